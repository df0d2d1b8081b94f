"""Published figures against the cost model: the question that a row answers, its prediction, and whether it can be."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import InferometerError
from inferometer.core.graph import takes_prompt
from inferometer.core.units import format_quantity
from inferometer.known import device as device_named
from inferometer.known.atlas.names import same_models
from inferometer.known.engines import known_engine
from inferometer.predict.ask import ask, model_graph

if TYPE_CHECKING:
    from inferometer.core.profile import Phase
    from inferometer.known.atlas import PublishedMeasurement

_PHASES = frozenset({"forward", "prefill", "decode"})
_ELSEWHERE = 0.1  # of a model's layers that may run on another unit: more of them, and its time is of two
ROUNDING = 0.9  # clocks run a little above the datasheet's, and figures are rounded


def impossible(row: PublishedMeasurement) -> str | None:
    """Why a row cannot be, or None: it can, or nothing is known that would say.

    The floor counts only what must be computed and moved, so it needs the model, the device and the format of the
    weights; one device; and a phase that predictions have.
    """
    if row.weights is None or row.device is None or not has_own_figures(row.device):
        return None
    engine = row.engine if row.engine and known_engine(row.engine) else None
    phases = [_predicted(row, name) for name in dict.fromkeys(("ideal", engine))]
    floors = [phase.floor_s for phase in phases if phase is not None and phase.floor_s is not None]
    if not floors or row.seconds >= ROUNDING * min(floors):  # an engine may know a way with fewer products
        return None
    took, least = format_quantity(row.seconds, "s"), format_quantity(min(floors), "s")
    return f"{took} is faster than {row.device} can be: {row.quantity} takes at least {least}."


@cache
def has_own_figures(name: str) -> bool:
    """Whether a device's row has a peak and a bandwidth of its own: its class's give no floor."""
    device = device_named(name)
    memory = device.memory
    return bool(device.peaks) and memory is not None and memory.bandwidth_bytes_per_s is not None


def ran_elsewhere(row: PublishedMeasurement) -> bool:
    """Whether much of a model ran on another unit than the one that is named: an NPU's toolkit left it to the CPU."""
    away, _, layers = row.settings.get("elsewhere", "").partition("/")
    return bool(layers) and int(away) >= _ELSEWHERE * int(layers)


def predicted_phase(row: PublishedMeasurement) -> Phase | None:
    """What `predict` answers to the question of a row; None where it knows the model, device or sizes not."""
    return _predicted(row, row.engine if row.engine and known_engine(row.engine) else None)


def predicted_seconds(row: PublishedMeasurement) -> float | None:
    phase = predicted_phase(row)
    return None if phase is None else phase.time_s


def _predicted(row: PublishedMeasurement, runtime: str | None) -> Phase | None:
    if row.model is None or row.device is None or row.count != 1 or row.part is not None:
        return None
    if row.quantity not in _PHASES or row.input is not None or (row.quantity == "prefill" and not row.prompt):
        return None
    # no question can name the small cores alone (ncnn's powersave=1), nor two units
    if ran_elsewhere(row) or (row.settings.get("powersave") == "1" and len(device_named(row.device).core_groups) > 1):
        return None
    model = _askable(row.model)
    try:
        if row.quantity == "forward" and row.prompt is None and takes_prompt(model_graph(model)):
            return None  # the length of the text is not published
        return _phase(model, row.device, runtime, row.quantity, _sizes(row))
    except (InferometerError, OverflowError):
        return None  # no row for its peak, no reader for its model: nothing can be said


def _askable(model: str) -> str:
    """The catalog's own name of an architecture where it has one: timm's needs timm to be read."""
    return next((name for name in sorted(same_models(model)) if ":" not in name), model)


def _sizes(row: PublishedMeasurement) -> tuple[tuple[str, Any], ...]:
    # Autocast keeps f32 weights and computes in another format, which is what a prediction calls the weights'.
    weights = row.activations if "autocast" in row.settings else row.weights
    sizes: dict[str, Any] = {
        "batch": row.batch or 1, "image": row.image, "weights": weights, "activations": row.activations,
    }  # fmt: skip
    threads = row.settings.get("threads", "")
    if threads.isdecimal() and device_named(row.device or "").unit == "cpu":
        sizes["threads"] = int(threads)
    if row.quantity == "forward":
        sizes["prompt"] = row.prompt
    elif row.quantity == "decode":
        mean = (row.context or 0) + (row.generate or 0) // 2
        sizes |= {"prompt": 1, "context": max(mean, 1)}
    elif row.quantity == "prefill":
        sizes |= {"prompt": row.prompt, "generate": 0}
    return tuple(sizes.items())


@cache
def _phase(
    model: str, device: str, runtime: str | None, phase: str, sizes: tuple[tuple[str, Any], ...]
) -> Phase | None:
    return ask(model, on=device, runtime=runtime, calibrated=runtime != "ideal", **dict(sizes)).answer().phase(phase)
