"""Findings: what was noticed, the numbers behind it, what to do, and what that would gain."""

from collections.abc import Mapping
from dataclasses import field
from typing import Literal, get_args

from inferometer.core.frozen import frozen

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
GainOf = Literal["latency", "throughput"]

# Every code a finding may have, and what it means. docs/findings.md is made from this.
CODES: dict[str, str] = {
    "attention.grows": "Attention takes a large part of a step, and the more the longer the context is.",
    "batch.small": "Each byte of weights that is read serves so few sequences that the arithmetic units wait for it.",
    "communication.bound": "Devices that share the work spend much of the time exchanging results.",
    "compute.bound": "Most of the time is arithmetic: the memory keeps up with it.",
    "environment.noisy": "Something else disturbed the measurement, or its times scatter so much that few can be told.",
    "experts.imbalance": "Some experts get many more tokens than others, and a layer takes as long as its busiest one.",
    "host.copies": "Much of the time goes into copies between the host and the device.",
    "host.gap": "Much of the time is in no op: the host prepares, schedules or waits between them.",
    "latency.drift": "Runs take longer and longer: the machine gets slower while it works.",
    "latency.first-token": "The first token takes many times as long as each one after it, and much of the request.",
    "latency.tail": "The slowest runs take far longer than the usual ones.",
    "launch.bound": "Much of the time goes into starting ops that have hardly anything to do.",
    "layout.moves": "Transposes, reorders, copies and casts take a large part of the time and compute nothing.",
    "load.dominates": "Loading, compiling and the first run take as long as many requests.",
    "load.storage-bound": "The model is loaded as fast as the storage gives it, and no faster.",
    "memory.bound": "Most of the time is spent moving bytes: the arithmetic units wait for memory.",
    "memory.does-not-fit": (
        "The model, its cache and its activations need more memory than the device has. The times are those it would "
        "have if it fitted. Use fewer bits a weight, a shorter context, a smaller batch, or more devices."
    ),
    "memory.kv-cache": "The cache of keys and values takes more memory than the weights, and grows with every token.",
    "memory.nearly-full": "It fits, with so little memory left that a longer context or a second program may not.",
    "op.dominates": "One op takes a large part of the time by itself.",
    "optimisation.off": "The engine ran the graph as it stands in the file: it was told not to optimise it.",
    "outputs.wrong": "The outputs are not those of the reference: how fast they came does not matter yet.",
    "padding.waste": "Part of what is computed is padding: rows that are there only to fill a shape.",
    "placement.fallback": "Ops that were meant for the accelerator ran elsewhere.",
    "quantisation.overhead": "Converting between number formats costs much of what the smaller format saves.",
    "threads.too-few": "It runs on fewer threads than there are CPUs for it.",
    "threads.too-many": "It runs on more threads than there are CPUs, so that they wait for each other.",
    "utilisation.low": "It takes much longer than this device should take for this work, and than its physics demand.",
}


@frozen
class Finding:
    """`gain` is a predicted factor: 1.3 is 30 % faster, or 30 % more in the same time, as `gain_of` says."""

    code: str
    severity: Severity
    title: str
    evidence: Mapping[str, float] = field(default_factory=dict)
    advice: str | None = None
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    gain_of: GainOf | None = None
    phase: str | None = None
    stake_s: float | None = None  # seconds of one request that it is about; of a one-time cost, those it takes
    changes: tuple[str, ...] = ()  # what could be changed, as KEY=VALUE; the gain is that of the first
