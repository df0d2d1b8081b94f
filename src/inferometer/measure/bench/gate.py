"""Gates: conditions that make a comparison fail, such as `latency>5%` or `memory>2GB`.

latency>5%       B is slower than A by more than 5 %, and the verdict says so: noise alone does not fail a gate
decode>5%        the same of a phase; ttft and tpot stand for prefill and decode
ops>10%          any op, after correction for their number
op:conv1>10%     one op
memory>10%       one number per side: the ratio decides
energy_per_token>5%, energy_per_input>2mJ    joules of a token, an image or a request; energy is of a whole run
tokens_per_s<-5% a rate that fell
latency>20ms     B itself, whatever A was
slower, undecided, disturbed    the verdict on the whole, or the state of the measurement
"""

import operator
import re
from collections.abc import Callable

from inferometer.core.errors import UnitError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.core.units import format_quantity, parse_quantity
from inferometer.measure.bench.compare import LATENCY, UNITS, ComparedMetric, Comparison

_RATES = ("tokens_per_s",)
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_WORDS = ("slower", "faster", "undecided", "disturbed")
_ALIASES = {  # what a metric is called where the two do not have one of that name
    "ttft": "prefill", "tpot": "decode", "forward": LATENCY, "run": LATENCY,
    "energy_per_image": "energy_per_input", "energy_per_request": "energy_per_input", "energy_per_input": "energy",
}  # fmt: skip
_GATE = re.compile(r"\s*(?P<metric>[^<>=\s][^<>=]*?)\s*(?P<sign>>=|<=|>|<)\s*(?P<limit>[^<>=]+?)\s*")
_REMEDY = "Write it as 'latency>5%', 'memory>2GB', 'ops>10%', 'op:NAME>10%', 'slower', 'undecided' or 'disturbed'."


@frozen
class Gate:
    """`limit` is a share where `relative`, else text with a unit that the metric decides. A word has no sign."""

    text: str
    metric: str
    sign: str | None = None
    limit: float | None = None
    quantity: str | None = None


def parse_gate(text: str) -> Gate:
    word = text.strip()
    if word in _WORDS:
        return Gate(text=text, metric=word)
    match = _GATE.fullmatch(text)
    if match is None:
        raise UnitError(f"{text!r} is not a condition.", remedy=_REMEDY)
    limit = match["limit"]
    if limit.endswith("%"):
        return Gate(text=text, metric=match["metric"], sign=match["sign"], limit=parse_quantity(limit, "1"))
    # refuse a bare number before anything is measured: 5 of what? A rate says its unit by its name
    metric = match["metric"]
    unit = UNITS.get(_ALIASES.get(metric, metric), "s")
    try:
        parse_quantity(limit, unit, bare=metric in _RATES)
    except UnitError as error:
        example = {"s": "5ms", "B": "2GB", "J": "3mJ"}.get(unit, "20")
        raise UnitError(
            f"{text.strip()!r} cannot be checked: {error.message}",
            remedy=f"Write a share of the baseline, as in '{metric}>5%', or a quantity, as in '{metric}>{example}'.",
        ) from None
    return Gate(text=text, metric=match["metric"], sign=match["sign"], quantity=limit)


def failed(gates: tuple[Gate, ...], comparison: Comparison) -> tuple[str, ...]:
    """For each gate that holds, a sentence that says on what."""
    reasons = ((gate, held(gate, comparison)) for gate in gates)
    return tuple(f"{gate.text.strip()} holds: {reason}" for gate, reason in reasons if reason is not None)


def held(gate: Gate, comparison: Comparison) -> str | None:
    """What makes the gate hold, or None."""
    if gate.sign is None:
        if gate.metric == "disturbed":
            return next((note for note in comparison.notes if " was disturbed" in note), None)
        reasons = [
            f"{metric.name}: {metric.reason}"
            for metric in _times(comparison)
            if (metric.verdict if metric.sure else "undecided") == gate.metric
        ]
        return "; ".join(reasons) or None
    reasons = [reason for metric in _meant(gate, comparison) if (reason := _exceeds(gate, metric)) is not None]
    return "; ".join(reasons) or None


def _times(comparison: Comparison) -> tuple[ComparedMetric, ...]:
    return tuple(metric for metric in comparison.metrics if metric.unit == "s")


def _meant(gate: Gate, comparison: Comparison) -> tuple[ComparedMetric, ...]:
    if gate.metric == "ops":
        return comparison.ops
    if gate.metric.startswith("op:"):
        name = gate.metric.removeprefix("op:")
        ops = tuple(op for op in comparison.ops if name in {op.name, f"{op.phase}/{op.name}"})
        if not ops:
            raise UnknownNameError("op", name, [op.name for op in comparison.ops])
        return ops
    known = {metric.name: metric for metric in comparison.metrics}
    name = gate.metric
    while name not in known and name in _ALIASES:
        name = _ALIASES[name]
    if name == LATENCY and LATENCY not in known:
        return _times(comparison)
    if name not in known:
        listing = f"The two have: {', '.join(known)}; and ops, op:NAME."
        raise UnknownNameError("metric", gate.metric, known, listing=listing)
    return (known[name],)


def _exceeds(gate: Gate, metric: ComparedMetric) -> str | None:
    compared = _COMPARISONS[gate.sign or ">"]
    if gate.quantity is not None:
        if metric.b is None or not compared(metric.b, parse_quantity(gate.quantity, metric.unit)):
            return None
        return f"{metric.name} is {format_quantity(metric.b, metric.unit)}"
    tested = metric.p_value is not None or metric.test == "predictions"
    if metric.ratio is None or gate.limit is None:
        return None
    if tested and not (metric.sure and metric.verdict in {"faster", "slower"}):
        return None
    return f"{metric.name}: {metric.reason}" if compared(metric.ratio - 1, gate.limit) else None
