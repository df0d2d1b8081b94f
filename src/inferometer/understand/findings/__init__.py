"""The catalog of findings: a small function for each code, Case → Finding or None, and the order they are shown in."""

from collections.abc import Callable

from inferometer.core.finding import SEVERITIES, Finding
from inferometer.understand.case import Case
from inferometer.understand.findings import bounds, overheads, placement, times, tokens

__all__ = ["FINDERS", "Finder", "findings_of"]

Finder = Callable[[Case], Finding | None]

FINDERS: dict[str, Finder] = {
    "attention.grows": tokens.attention_grows,
    "batch.small": bounds.batch_small,
    "communication.bound": overheads.communication_bound,
    "compute.bound": bounds.compute_bound,
    "environment.noisy": times.environment_noisy,
    "experts.imbalance": tokens.experts_imbalance,
    "host.copies": overheads.host_copies,
    "host.gap": overheads.host_gap,
    "latency.drift": times.latency_drift,
    "latency.first-token": tokens.latency_first_token,
    "latency.tail": times.latency_tail,
    "launch.bound": overheads.launch_bound,
    "layout.moves": overheads.layout_moves,
    "load.dominates": times.load_dominates,
    "load.storage-bound": times.load_storage_bound,
    "memory.bound": bounds.memory_bound,
    "memory.does-not-fit": placement.memory_does_not_fit,
    "memory.kv-cache": placement.memory_kv_cache,
    "memory.nearly-full": placement.memory_nearly_full,
    "op.dominates": times.op_dominates,
    "optimisation.off": times.optimisation_off,
    "outputs.wrong": times.outputs_wrong,
    "padding.waste": overheads.padding_waste,
    "placement.fallback": placement.placement_fallback,
    "quantisation.overhead": overheads.quantisation_overhead,
    "threads.too-few": placement.threads_too_few,
    "threads.too-many": placement.threads_too_many,
    "utilisation.low": bounds.utilisation_low,
}
_IN_DOUBT = ("outputs.wrong", "memory.does-not-fit", "environment.noisy")  # they cast doubt on every other number
_ONCE = ("load.dominates", "load.storage-bound")  # their seconds are paid once, not in a request


def findings_of(case: Case) -> tuple[Finding, ...]:
    """Every finding: by severity, then what casts doubt on the rest, then by the seconds at stake."""
    findings = [finding for finder in FINDERS.values() if (finding := finder(case)) is not None]
    return tuple(sorted(findings, key=_rank))


def _rank(finding: Finding) -> tuple[int, bool, bool, float, str]:
    severity = SEVERITIES.index(finding.severity)
    doubtful, once = finding.code in _IN_DOUBT, finding.code in _ONCE
    return -severity, not doubtful, once, -(finding.stake_s or 0.0), finding.code
