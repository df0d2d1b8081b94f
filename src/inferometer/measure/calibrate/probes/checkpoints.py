"""Decoders for engines that open folders of their own: checkpoints with random weights, converted by `prepare`'s tools.

Some of these engines make a whole generation in one call, so nothing can be put between two of its steps to evict the
weights of a small probe from the caches. Their probes therefore have more layers, until a step reads more than a cache
holds, as a real model's does.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING

from inferometer.core.dtypes import dtype
from inferometer.engines.order import ToolOrder
from inferometer.measure.calibrate.probes.models import Probe, ProbeRun, file_of, graph_of
from inferometer.measure.prepare.carrying_out import carry_out
from inferometer.measure.prepare.steps import STEPS, PrepareStep

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from inferometer.core.device import Device
    from inferometer.measure.prepare.carrying_out import Tools

SOURCE = "safetensors"
_PLAIN = "f32"  # of a checkpoint, and of what is converted without another format
# Bytes of weights that a step reads, at least and at most: the checkpoint that they are made of is four times as large.
_LEAST_READ, _MOST_READ = 64_000_000, 256_000_000
_BEYOND = 1.5  # times the largest cache: of a stream in circles that is longer than a cache little stays in it
_MOST_LAYERS = 24  # for the least, and as many more for more
_LONGEST_S = 300.0
# Seconds to make a probe, the second one of a run and later: the builder of ONNX Runtime GenAI is a program of its own.
_MAKING_S = 6.0  # for the least, and as many more for more


def steps_to(formats: Collection[str]) -> dict[str, PrepareStep]:
    """What makes folders of these formats of a checkpoint, by the format that it leaves the weights in."""
    ours = [step for step in STEPS if SOURCE in step.takes and step.gives in formats]
    return {step.changes.get("weights", _PLAIN): step for step in ours}


def beyond_caches(device: Device) -> int:
    """Bytes of weights that a step has to read so that they come from memory, as a model's do."""
    caches = [float(memory.capacity_bytes or 0.0) for memory in device.memories if memory.level.startswith("l")]
    return int(min(_MOST_READ, max(_LEAST_READ, _BEYOND * max(caches, default=0.0))))


def making_s(read: int) -> float:
    """Seconds to make a probe, by the bytes that its step reads."""
    return _MAKING_S * read / _LEAST_READ


def deepened(probe: Probe, weights: str, read: int) -> Probe:
    """A probe with enough layers for a step to read the bytes wanted; a probe of overheads stays small."""
    if probe.role == "overhead":
        return probe
    had = int(probe.config["num_hidden_layers"])
    vocabulary = int(probe.config["vocab_size"]) * int(probe.config["hidden_size"])
    a_byte = 8 / float(dtype(weights).bits)
    inside = (graph_of(probe).parameters - 2 * vocabulary) / had
    layers = min(_MOST_LAYERS * read // _LEAST_READ, ceil((read * a_byte - vocabulary) / inside))
    if layers <= had:
        return probe
    return replace(
        probe, name=f"{probe.name}-{layers}-layers", config={**probe.config, "num_hidden_layers": layers}
    )  # fmt: skip


def converted_checkpoint(step: PrepareStep, probe: Probe, run: ProbeRun, *, folder: Path, tools: Tools) -> Path:
    """The probe's folder, made once and kept by what went in."""
    source = file_of(probe, run, format=SOURCE, weights=_PLAIN, folder=folder)
    order = ToolOrder(source=source, target=source, format=step.gives, options=step.options)
    return carry_out(step, order, folder, seconds_at_most=_LONGEST_S, tools=tools).path
