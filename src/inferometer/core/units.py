"""Quantities as text: the only place with prefixes.

Inside the program every number is in SI base units (seconds, bytes, joules, FLOP/s …). Here `"3.35 TB/s"` becomes
`3.35e12` and back. GB is 10⁹ bytes and GiB is 2³⁰; `b` is a bit and `B` a byte; what can be read two ways is refused.
"""

import math
import re
from fractions import Fraction
from functools import cache, lru_cache

from inferometer.core.errors import UnitError
from inferometer.core.frozen import frozen

# Fractions, so that "5 us" is the float nearest to 5e-6 and not a product of two roundings.
_LARGE = {name: Fraction(10) ** power for name, power in zip("kMGTPE", range(3, 21, 3), strict=True)}
_SMALL = {name: Fraction(10) ** -power for name, power in zip("mµμunpf", (3, 6, 6, 6, 9, 12, 15), strict=True)}
_BINARY = {
    name: Fraction(2) ** power for name, power in zip(("Ki", "Mi", "Gi", "Ti", "Pi"), range(10, 60, 10), strict=True)
}
_NO_PREFIX: dict[str, Fraction] = {}
_ONE = Fraction(1)

Dimension = tuple[tuple[str, int], ...]


@frozen
class UnitSymbol:
    """A unit symbol: its base units, how many of them one is, and the prefixes it takes."""

    base: Dimension
    factor: Fraction = _ONE
    prefixes: tuple[dict[str, Fraction], ...] = (_NO_PREFIX,)


def _counted(name: str) -> UnitSymbol:
    return UnitSymbol(base=((name, 1),), prefixes=(_LARGE,))


_PER_SECOND = (("FLOP", 1), ("s", -1))
SYMBOLS: dict[str, UnitSymbol] = {
    "1": UnitSymbol(base=()),
    "%": UnitSymbol(base=(), factor=Fraction(1, 100)),
    "s": UnitSymbol(base=(("s", 1),), prefixes=(_SMALL,)),
    "min": UnitSymbol(base=(("s", 1),), factor=Fraction(60)),
    "h": UnitSymbol(base=(("s", 1),), factor=Fraction(3600)),
    "day": UnitSymbol(base=(("s", 1),), factor=Fraction(86400)),
    "year": UnitSymbol(base=(("s", 1),), factor=Fraction(365 * 86400)),
    "Hz": UnitSymbol(base=(("s", -1),), prefixes=(_LARGE,)),
    "B": UnitSymbol(base=(("B", 1),), prefixes=(_LARGE, _BINARY)),
    "b": UnitSymbol(base=(("B", 1),), factor=Fraction(1, 8), prefixes=(_LARGE,)),
    "bit": UnitSymbol(base=(("B", 1),), factor=Fraction(1, 8), prefixes=(_LARGE,)),
    "FLOP": _counted("FLOP"),
    "OP": _counted("FLOP"),
    "FLOPS": UnitSymbol(base=_PER_SECOND, prefixes=(_LARGE,)),
    "OPS": UnitSymbol(base=_PER_SECOND, prefixes=(_LARGE,)),
    "MAC": _counted("MAC"),
    "T": _counted("transfer"),
    "transfer": _counted("transfer"),
    "token": _counted("token"),
    "tok": _counted("token"),
    "instr": _counted("instr"),
    "cycle": _counted("cycle"),
    "sample": _counted("sample"),
    "req": _counted("req"),
    "W": UnitSymbol(base=(("J", 1), ("s", -1)), prefixes=(_LARGE, _SMALL)),
    "Wh": UnitSymbol(base=(("J", 1),), factor=Fraction(3600), prefixes=(_LARGE, {"m": _SMALL["m"]})),
    "J": UnitSymbol(base=(("J", 1),), prefixes=(_LARGE, _SMALL)),
    "g": UnitSymbol(base=(("g", 1),), prefixes=({"k": _LARGE["k"], "m": _SMALL["m"]},)),
    "t": UnitSymbol(base=(("g", 1),), factor=Fraction(10**6)),
    "USD": UnitSymbol(base=(("USD", 1),)),
    "$": UnitSymbol(base=(("USD", 1),)),
    "dB": UnitSymbol(base=(("dB", 1),)),
}

EXAMPLES: dict[str, str] = {
    "s": "'1.28 s', '5 us', '80 ns', '3 min', '4 h'",
    "B": "'24 GiB', '141 GB', '327680 B', '16 kB'",
    "B/s": "'3.35 TB/s', '50 GB/s', '400 Gb/s'",
    "FLOP/s": "'990 TFLOP/s', '990 TFLOPS', '38 TOP/s'",
    "FLOP": "'8.2 GFLOP', '4.5e9 FLOP'",
    "Hz": "'3.2 GHz', '800 MHz'",
    "W": "'700 W', '2.5 mW', '10.2 kW'",
    "J": "'6000 J', '15 Wh', '1.3 kWh'",
    "USD": "'98 USD', '$98'",
    "USD/h": "'98 USD/h'",
    "g": "'372 g', '520 kg', '1.2 t'",
    "g/kWh": "'400 g/kWh'",
    "1": "'0.9', '90 %'",
}

_AMBIGUOUS = {
    r"K(B|b|Hz|W|FLOP|OP)\b": "'K' is neither kilo nor kibi: write 'k' (1000) or 'Ki' (1024)",
    r"^[kMGTPE]?(FL)?OPs$": "'FLOPs' may be a count or a rate: write 'FLOP' or 'FLOP/s'",
    r"^[kmgt]b(/s)?$": "lower case does not tell bits from bytes: write 'GB' (bytes), 'GiB' or 'Gb' (bits)",
    r"^[kMGTPE]i?$": "a prefix without a unit",
    r"^m$": "'m' may be minutes or metres: write 'min'",
    r"^[kMGT]?bps$": "'bps' may be bits or bytes: write 'Gb/s' or 'GB/s'",
}


@frozen
class Unit:
    """A parsed unit: its dimension as powers of base symbols, and how many base units one of it is."""

    dimension: Dimension
    factor: Fraction


@lru_cache(maxsize=512)
def parse_unit(text: str) -> Unit:
    """`"TB/s"` → bytes per second, 10¹² of them."""
    for pattern, why in _AMBIGUOUS.items():
        if re.search(pattern, text):
            raise UnitError(f"The unit {text!r} is ambiguous: {why}.")
    powers: dict[str, int] = {}
    factor = _ONE
    for index, part in enumerate(text.split("/")):
        sign = 1 if index == 0 else -1
        for name in re.split(r"[·*]", part):
            scale, symbol = _factor(name.strip(), text)
            factor *= scale**sign
            for base, power in symbol.base:
                powers[base] = powers.get(base, 0) + sign * power
    return Unit(dimension=tuple(sorted((k, v) for k, v in powers.items() if v)), factor=factor)


def _factor(name: str, whole: str) -> tuple[Fraction, UnitSymbol]:
    if symbol := SYMBOLS.get(name):
        return symbol.factor, symbol
    for length in (1, 2):
        symbol = SYMBOLS.get(name[length:])
        scale = next((p[name[:length]] for p in symbol.prefixes if name[:length] in p), None) if symbol else None
        if symbol and scale is not None:
            return scale * symbol.factor, symbol
    raise UnitError(
        f"There is no unit {whole!r}.", remedy=f"Known units: {', '.join(SYMBOLS)}, with SI prefixes where they fit."
    )


_LONGEST = 60  # letters of a quantity: nobody writes more, and exact arithmetic with thousands of digits takes long
_QUANTITY = re.compile(r"\s*(\$?)\s*([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?)\s*([^\d\s.,+-].*?|1/\S+)?\s*")


def parse_quantity(text: str, unit: str, *, bare: bool = True) -> float:
    """Text as a number of `unit`. A bare number counts as that unit unless `bare` is False."""
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
        raise UnitError(f"{shown!r} is not a quantity.", remedy=_accepted(unit))
    digits, written = match[2].replace("_", ""), match[3]
    if match[1]:  # "$98/h"
        written = f"USD{written or ''}"
    number = float(digits)
    if not math.isfinite(number):
        raise UnitError(f"{text!r} is not a finite number.", remedy=_accepted(unit))
    if written is None:
        if not bare:
            raise UnitError(f"{text!r} has no unit.", remedy=_accepted(unit))
        return number
    try:
        ratio = _ratio(written, unit)
    except UnitError as error:
        raise UnitError(f"{text!r} cannot be read: {error.message}", remedy=_accepted(unit)) from None
    if ratio is None:
        raise UnitError(f"{text!r} is not a number of {unit}.", remedy=_accepted(unit))
    try:
        return _times(digits, *ratio)
    except OverflowError:
        raise UnitError(f"{text!r} is not a finite number.", remedy=_accepted(unit)) from None


@lru_cache(maxsize=512)
def _ratio(written: str, unit: str) -> tuple[int, int] | None:
    """How many of `unit` one of the unit that was written is, as a fraction; None where they measure other things."""
    found, wanted = parse_unit(written), parse_unit(unit)
    return (found.factor / wanted.factor).as_integer_ratio() if found.dimension == wanted.dimension else None


def _times(digits: str, over: int, under: int) -> float:
    """A decimal number times a fraction, rounded once. Whole numbers are ten times as quick as a Fraction."""
    if "e" in digits or "E" in digits:
        return float(Fraction(digits) * Fraction(over, under))
    before, _, after = digits.partition(".")
    tens: int = 10 ** len(after)
    return int(before + after) * over / (under * tens)


def _accepted(unit: str) -> str:
    return f"Accepted: {EXAMPLES.get(unit, f'a number, or a number with the unit, as in 12 {unit}')}."


def format_quantity(value: float | None, unit: str, *, digits: int = 4) -> str:
    """A number of `unit` for a person: `3.35e12, "B/s"` → `"3.35 TB/s"`. Unknown is said, not drawn as zero."""
    if value is None:
        return "unknown"
    if not math.isfinite(value):
        return f"{value} {unit}"
    head, _, tail = unit.partition("/")
    prefix, scale = _prefix(abs(value), head, digits)
    number = _significant(value / scale, digits)
    suffix = f"{prefix}{head}" + (f"/{tail}" if tail else "")
    return number if suffix in {"1", ""} else f"{number} {suffix}"


def format_number(value: float, digits: int = 3) -> str:
    """A number without a unit for a person: `2870.4` → `"2,870"`, `0.01234` → `"0.0123"`; never with a power of ten."""
    rounded = float(f"{value:.{digits - 1}e}")
    return f"{value:,.0f}" if abs(rounded) >= 10**digits else f"{value:.{digits}g}"


def format_capacity(value: float | None) -> str:
    """Bytes of a memory as its maker counts them: `24 GiB` where that is a whole number, else `141 GB`."""
    if value:
        for prefix, step in reversed(_BINARY.items()):
            count = value / float(step)
            if 1 <= count < 10_000 and count == int(count):
                return f"{int(count)} {prefix}B"
    return format_quantity(value, "B")


def format_duration(seconds: float) -> str:
    """About how long something takes, as people say it: 350 ms, 15 s, 2 min, 3.5 h, 4 days."""
    if seconds < 10:
        return format_quantity(seconds, "s", digits=3 if seconds < 1 else 2)
    for unit, length, most, digits in (("s", 1, 120, 0), ("min", 60, 7200, 0), ("h", 3600, 172_800, 1)):
        if seconds < most:
            return f"{seconds / length:.{digits}f} {unit}"
    return f"{seconds / 86_400:,.0f} days"


def counted(number: int, noun: str) -> str:
    """`1 run`, `2 runs`: for nouns whose plural has an s, such as those of this program."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _prefix(size: float, symbol: str, digits: int) -> tuple[str, float]:
    """The prefix that leaves one to three digits before the point, rounding included (999.96 ms is 1 s)."""
    if not size:
        return "", 1.0
    steps = _steps(symbol)
    most = float(f"{size:.{digits - 1}e}") * (1 + 1e-12)
    step, name = next((each for each in steps if each[0] <= most), steps[-1])
    return name, step


@cache
def _steps(symbol: str) -> tuple[tuple[float, str], ...]:
    """The prefixes that a unit is written with, the largest first."""
    known = SYMBOLS.get(symbol)
    steps = {"": _ONE}
    for family in known.prefixes if known else ():
        if family is not _BINARY:
            steps |= {name: step for name, step in family.items() if name not in {"μ", "u"}}
    return tuple(sorted(((float(step), name) for name, step in steps.items()), reverse=True))


def _significant(number: float, digits: int) -> str:
    if number == 0:
        return "0"
    if abs(number) < 1e-3 or abs(number) >= 1e15:
        return f"{number:.{digits}g}"
    if abs(number) >= 10**digits:
        return f"{number:,.0f}".replace(",", "_")
    text = f"{number:.{digits}g}"
    return text if "e" not in text else f"{number:.0f}"
