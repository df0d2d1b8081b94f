"""The machine that a run was measured on, and what its processor counts.

The run carries it, so that wherever it is read it is told from others.
"""

import re
from collections.abc import Mapping

from inferometer.core.frozen import frozen

_MARKS = re.compile(r"\((?:R|TM|C)\)", re.IGNORECASE)
_TAIL = re.compile(r"\s+(?:CPU\s*)?(?:@.*|(?:\d+-Core )?Processor|CPU)$", re.IGNORECASE)


@frozen
class MachineFacts:
    """`id` is the same after a reboot or a change of name, and says nothing else about the machine.

    `name` is the host's, or the one its user chose. `usable_cpus` is what a container or an affinity mask leaves of the
    logical cores. Unknown is None, or an empty tuple.
    """

    id: str
    name: str | None = None
    board: str | None = None
    cpu: str | None = None
    architecture: str | None = None
    sockets: int | None = None
    physical_cores: int | None = None
    logical_cores: int | None = None
    usable_cpus: float | None = None
    memory_bytes: int | None = None
    gpus: tuple[str, ...] = ()
    accelerators: tuple[str, ...] = ()
    system: str | None = None
    kernel: str | None = None
    virtualised: bool | None = None
    hypervisor: str | None = None
    container: str | None = None

    @property
    def called(self) -> str:
        """What to call it where there is room for one word."""
        return self.name or self.id

    @property
    def cores(self) -> str | None:
        """`2 cores`, or `2 of 8 CPUs` where a limit leaves fewer."""
        usable, logical = self.usable_cpus, self.logical_cores
        if usable is not None and logical is not None and usable < logical:
            return f"{usable:g} of {logical} CPUs"
        count = self.physical_cores or logical
        return None if count is None else f"{count} core{'' if count == 1 else 's'}"

    def title(self, unit_title: str | None = None) -> str:
        """`ubuntu-box · Intel Xeon Platinum 8592+ · 2 cores`; or, where another unit than the CPU ran, its name."""
        on_cpu = unit_title is None or unit_title in {self.cpu, self.board} or self.cpu is None
        what = short_name(self.cpu or self.board or unit_title) if on_cpu else short_name(unit_title)
        return " · ".join(filter(None, (self.called, what, self.cores if on_cpu else None)))


def short_name(product: str | None) -> str | None:
    """A processor's name without trademarks, clock and the word processor."""
    if product is None:
        return None
    plain = " ".join(_MARKS.sub("", product).split())
    return _TAIL.sub("", plain) or plain


# A processor's own counts of what ran: how many cycles and instructions, what missed the caches and the branches.
#
# Counts are of everything that ran inside a time, on all threads that were counted, in user mode where the kernel lets
# only that be seen. A count that the processor does not have is absent, and what is computed from it is then None.

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
