"""The keywords of questions and sweeps, with their types. `make docs` writes it: edit `predict.fields`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from inferometer.core.calibration import Calibration
    from inferometer.core.device import Device, Link
    from inferometer.core.engine import RuntimeEffects
    from inferometer.core.graph import Graph


class AskedOfAll(TypedDict, total=False):
    """What holds for every row of a sweep; what is absent or None is left to the model, the device and the engine."""

    sizes: Mapping[str, int] | None
    priors: bool | None
    prefill_on: str | Device | None
    engine_version: str | None
    chunk: int | None
    cached_prefix: int | None
    draft: str | Path | Graph | None
    draft_length: int | None
    acceptance: float | None
    draft_up_to: str | None
    link: str | Link | None
    overlap: float | None
    micro_batches: int | None
    imbalance: float | None
    sequence_parallel: bool | None
    steps: int | None
    offload_layers: int | None
    offload_experts: bool | None
    override: Sequence[str] | None
    storage: str | float | None
    tokenise: str | float | None
    sampling: str | float | None
    detokenise: str | float | None
    instance: str | None
    usd_per_hour: float | None
    spot: bool | None
    grid: str | None
    pue: str | float | None
    joules_per_flop: str | float | None
    joules_per_byte: str | float | None
    battery: str | float | None
    cooling: str | float | None
    per_second: float | None
    battery_efficiency: float | None
    layout: str | None
    host_speed: str | float | None
    frame_rate: float | None
    audio: str | float | None


class Asked(AskedOfAll, total=False):
    """What a question may be asked with."""

    runtime: RuntimeEffects | str | None
    weights: str | None
    activations: str | None
    kv: str | None
    batch: int | None
    prompt: int | None
    generate: int | None
    context: int | None
    image: int | None
    tp: int | None
    pp: int | None
    ep: int | None
    dp: int | None
    threads: int | None
    calibration: Calibration | str | Path | None


class Swept(AskedOfAll, total=False):
    """The lists whose combinations a sweep predicts, beside its models and devices."""

    runtimes: RuntimeEffects | str | Sequence[RuntimeEffects | str | None] | None
    threads: int | Sequence[int | None] | None
    weights: str | Sequence[str | None] | None
    activations: str | Sequence[str | None] | None
    kv: str | Sequence[str | None] | None
    tp: int | Sequence[int | None] | None
    pp: int | Sequence[int | None] | None
    ep: int | Sequence[int | None] | None
    dp: int | Sequence[int | None] | None
    image: int | Sequence[int | None] | None
    batch: int | Sequence[int | None] | None
    prompt: int | Sequence[int | None] | None
    generate: int | Sequence[int | None] | None
    context: int | Sequence[int | None] | None


class AskedOfService(TypedDict, total=False):
    """What serves a model in a simulation: an engine on its devices."""

    runtime: RuntimeEffects | str | None
    weights: str | None
    kv: str | None
    tp: int | None
    pp: int | None
    ep: int | None
    threads: int | None
    engine_version: str | None
    draft: str | Path | Graph | None
    draft_length: int | None
    acceptance: float | None
    draft_up_to: str | None
    link: str | Link | None
