"""The quantities that formulas name in their annotations: a unit, and the numbers that make sense in it.

`Seconds`, `Bytes`, `Probability` … are the contract of an argument. `Some…` stands where zero would divide by zero or
mean nothing; `…List` stands where several values are one argument (stage times, samples, power readings).
"""

import sys
from collections.abc import Sequence
from math import isfinite, nextafter
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from inferometer.core.frozen import frozen

# A float gives a float and an array gives an array. Only an overload a formula could say that, and a union would make
# every caller take it apart again, so the type is open, as numpy's own functions have it; the call checks the value.
Number = Any
Numbers = Sequence[float] | NDArray[Any]

_LARGEST = sys.float_info.max
_INFINITY = float("inf")
_EXACT = 2**53  # every whole number up to here is a float64


@frozen
class Quantity:
    """The unit of an argument or result and the values it may have."""

    unit: str
    low: float = -_INFINITY
    high: float = _INFINITY
    open_low: bool = False  # the lower end itself is excluded
    open_high: bool = False
    whole: bool = False
    sequence: bool = False  # several values, along the last axis of an array
    at_least: int = 1  # how many values a sequence needs
    choices: tuple[str, ...] = ()  # words, not numbers

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and greatest float that is one of these."""
        low, high = max(self.low, -_LARGEST), min(self.high, _LARGEST)
        return (nextafter(low, _INFINITY) if self.open_low else low), (nextafter(high, 0.0) if self.open_high else high)

    def read(self, value: Any) -> Any:
        """`value` as a plain number, a float64 array or a known word. A ValueError says why it is not one of these."""
        if self.choices:
            if isinstance(value, str) and value in self.choices:
                return value
            raise ValueError(f"must be one of {', '.join(self.choices)}")
        number = _plain(value)
        if self.sequence:
            number = np.atleast_1d(np.asarray(number, dtype=np.float64))
            if number.shape[-1] < self.at_least:
                raise ValueError(f"must hold {self.at_least} values or more")
        if why := self._outside(number):
            raise ValueError(why)
        return number

    def _outside(self, number: Any) -> str | None:
        least, greatest = np.min(number), np.max(number)  # a NaN anywhere makes both of them one
        if not (isfinite(least) and isfinite(greatest)):
            return "must be finite"
        low, high = self.bounds
        if least < low:
            return f"must be greater than {self.low:.15g}" if self.open_low else f"must be {self.low:.15g} or more"
        if greatest > high:
            return f"must be less than {self.high:.15g}" if self.open_high else f"must be {self.high:.15g} or less"
        if self.whole and np.any(np.floor(number) != number):
            return "must be a whole number"
        return None


def _plain(value: Any) -> Any:
    """A Python number for a scalar, a float64 array for anything longer.

    float64, because integer arrays wrap around silently where bytes are multiplied.
    """
    if type(value) is int and abs(value) > _LARGEST:
        raise ValueError("is too large a number")
    if type(value) in (int, float):
        return value if abs(value) <= _EXACT else float(value)  # numpy takes no integer beyond 64 bits
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, OverflowError):
        raise ValueError("must be a number or an array of numbers") from None
    if array.size == 0:
        raise ValueError("must not be empty")
    if array.dtype.kind == "O" and all(type(item) in (int, float) for item in array.flat):
        if not all(type(item) is float or abs(item) <= _LARGEST for item in array.flat):
            raise ValueError("is too large a number")
        array = array.astype(np.float64)
    if array.dtype.kind not in "iuf":
        raise ValueError("must be a number")
    if array.ndim == 0:
        return float(array) if array.dtype.kind == "f" else int(array)
    return array.astype(np.float64, copy=False)


def shown(value: Any) -> str:
    """A value for an error message: on one line, and no longer than one."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:76]} …"


def is_finite(result: Any) -> bool:
    """Whether a result holds finite numbers only; words and truths are no numbers and pass."""
    if isinstance(result, float | int):
        return isfinite(result)
    if not isinstance(result, np.ndarray) or result.dtype.kind not in "iuf":
        return True
    return isfinite(np.min(result)) and isfinite(np.max(result))  # a NaN makes both of them one


def _positive(unit: str) -> Quantity:
    return Quantity(unit=unit, low=0.0, open_low=True)


def _at_least_zero(unit: str) -> Quantity:
    return Quantity(unit=unit, low=0.0)


def _list(unit: str, *, at_least: int = 1, open_low: bool = False) -> Quantity:
    return Quantity(unit=unit, low=0.0, open_low=open_low, sequence=True, at_least=at_least)


# Time
Seconds = Annotated[Number, _at_least_zero("s")]
SomeSeconds = Annotated[Number, _positive("s")]
Instant = Annotated[Number, Quantity(unit="s")]  # a point on a clock, whose zero may lie anywhere
SecondsList = Annotated[Numbers, _list("s")]
SampleList = Annotated[Numbers, Quantity(unit="s", sequence=True)]  # readings: mostly times, and any numbers
Hertz = Annotated[Number, _positive("Hz")]

# Data
Bytes = Annotated[Number, _at_least_zero("B")]
SomeBytes = Annotated[Number, _positive("B")]
Bits = Annotated[Number, _positive("bit")]
WholeBits = Annotated[Number, Quantity(unit="bit", low=2.0, high=32.0, whole=True)]
Bandwidth = Annotated[Number, _positive("B/s")]
ByteRate = Annotated[Number, _at_least_zero("B/s")]
BandwidthList = Annotated[Numbers, _list("B/s", open_low=True)]
TransferRate = Annotated[Number, _positive("transfer/s")]

# Work
Flops = Annotated[Number, _at_least_zero("FLOP")]
SomeFlops = Annotated[Number, _positive("FLOP")]
FlopRate = Annotated[Number, _positive("FLOP/s")]
DeliveredRate = Annotated[Number, _at_least_zero("FLOP/s")]
OpRate = Annotated[Number, _positive("OP/s")]
FlopsPerCycle = Annotated[Number, _positive("FLOP/cycle")]
Macs = Annotated[Number, _at_least_zero("MAC")]
MacsPerCycle = Annotated[Number, _positive("MAC/cycle")]
MacRate = Annotated[Number, _positive("MAC/s")]
Intensity = Annotated[Number, _at_least_zero("FLOP/B")]
SomeIntensity = Annotated[Number, _positive("FLOP/B")]
IntensityList = Annotated[Numbers, _list("FLOP/B")]
Instructions = Annotated[Number, _at_least_zero("instr")]
SomeInstructions = Annotated[Number, _positive("instr")]
InstructionRate = Annotated[Number, _positive("instr/s")]
InstructionsPerCycle = Annotated[Number, _positive("instr/cycle")]
CyclesPerInstruction = Annotated[Number, _positive("cycle/instr")]
Cycles = Annotated[Number, _at_least_zero("cycle")]
SomeCycles = Annotated[Number, _positive("cycle")]

# Things that are served
Tokens = Annotated[Number, Quantity(unit="token", low=1.0, whole=True)]
TokensOrNone = Annotated[Number, Quantity(unit="token", low=0.0, whole=True)]
SeveralTokens = Annotated[Number, Quantity(unit="token", low=2.0, whole=True)]
TokensOnAverage = Annotated[Number, _at_least_zero("token")]
TokensList = Annotated[Numbers, _list("token")]
TokenRate = Annotated[Number, _at_least_zero("token/s")]
SomeTokenRate = Annotated[Number, _positive("token/s")]
RequestRate = Annotated[Number, _at_least_zero("req/s")]
SomeRequestRate = Annotated[Number, _positive("req/s")]
Requests = Annotated[Number, _at_least_zero("req")]
SomeRequests = Annotated[Number, _positive("req")]
Samples = Annotated[Number, _at_least_zero("sample")]
SomeSamples = Annotated[Number, _positive("sample")]
SampleRate = Annotated[Number, _at_least_zero("sample/s")]
SomeSampleRate = Annotated[Number, _positive("sample/s")]

# Energy, money, carbon
Joules = Annotated[Number, _at_least_zero("J")]
SomeJoules = Annotated[Number, _positive("J")]
JoulesPerFlop = Annotated[Number, _at_least_zero("J/FLOP")]
JoulesPerByte = Annotated[Number, _at_least_zero("J/B")]
JouleSeconds = Annotated[Number, _at_least_zero("J·s")]
FlopsPerJoule = Annotated[Number, _at_least_zero("FLOP/J")]
OpsPerJoule = Annotated[Number, _positive("OP/J")]
TokensPerJoule = Annotated[Number, _at_least_zero("token/J")]
Watts = Annotated[Number, _at_least_zero("W")]
SomeWatts = Annotated[Number, _positive("W")]
WattsList = Annotated[Numbers, _list("W", at_least=2)]
Usd = Annotated[Number, _at_least_zero("USD")]
SomeUsd = Annotated[Number, _positive("USD")]
UsdPerHour = Annotated[Number, _at_least_zero("USD/h")]
SomeUsdPerHour = Annotated[Number, _positive("USD/h")]
UsdPerKwh = Annotated[Number, _at_least_zero("USD/kWh")]
TokenRatePerPrice = Annotated[Number, _at_least_zero("token·h/s/USD")]
TokenRatePerUsd = Annotated[Number, _at_least_zero("token/s/USD")]
TokensPerUsd = Annotated[Number, _at_least_zero("token/USD")]
Grams = Annotated[Number, _at_least_zero("g")]
GramsPerKwh = Annotated[Number, _at_least_zero("g/kWh")]

# Plain numbers
Ratio = Annotated[Number, _at_least_zero("1")]
SomeRatio = Annotated[Number, _positive("1")]
Fraction = Annotated[Number, Quantity(unit="1", low=0.0, high=1.0)]
SomeFraction = Annotated[Number, Quantity(unit="1", low=0.0, high=1.0, open_low=True)]
PartFraction = Annotated[Number, Quantity(unit="1", low=0.0, high=1.0, open_high=True)]
Probability = Fraction
Pue = Annotated[Number, Quantity(unit="1", low=1.0)]  # the whole building over its computers: never below 1
Count = Annotated[Number, Quantity(unit="1", low=1.0, whole=True)]
CountOrNone = Annotated[Number, Quantity(unit="1", low=0.0, whole=True)]
Several = Annotated[Number, Quantity(unit="1", low=2.0, whole=True)]
UpToAMillion = Annotated[Number, Quantity(unit="1", low=1.0, high=1e6, whole=True)]
UpToAMillionOrNone = Annotated[Number, Quantity(unit="1", low=0.0, high=1e6, whole=True)]
Real = Annotated[Number, Quantity(unit="1")]
WholeNumber = Annotated[Number, Quantity(unit="1", whole=True)]
Amount = Annotated[Number, _at_least_zero("1")]
SomeAmount = Annotated[Number, _positive("1")]
Rate = Annotated[Number, _at_least_zero("1/s")]
SomeRate = Annotated[Number, _positive("1/s")]
Decibels = Annotated[Number, Quantity(unit="dB")]

# Words and truths
Label = Annotated[Any, Quantity(unit="label")]
Truth = Annotated[Any, Quantity(unit="truth")]
