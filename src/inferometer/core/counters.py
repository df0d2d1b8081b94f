"""A processor's own counts of what ran: how many cycles and instructions, what missed the caches and the branches.

Counts are of everything that ran inside a time, on all threads that were counted, in user mode where the kernel lets
only that be seen. A count that the processor does not have is absent, and what is computed from it is then None.
"""

from collections.abc import Mapping

COUNTERS = ("cycles", "instructions", "cache_references", "cache_misses", "branches", "branch_misses")


def instructions_per_cycle(counts: Mapping[str, float]) -> float | None:
    """Instructions that were completed a cycle (IPC)."""
    return _over(counts, "instructions", "cycles")


def cache_miss_share(counts: Mapping[str, float]) -> float | None:
    """The share of the accesses to the last level of cache that went to memory."""
    return _over(counts, "cache_misses", "cache_references")


def branch_miss_share(counts: Mapping[str, float]) -> float | None:
    """The share of the branches that the processor had guessed wrong."""
    return _over(counts, "branch_misses", "branches")


def _over(counts: Mapping[str, float], part: str, whole: str) -> float | None:
    if part not in counts or not counts.get(whole):
        return None
    return counts[part] / counts[whole]
