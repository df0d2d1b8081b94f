"""What a box is made of: what is wished for, what the system has for it, and what may be used up in it."""

from __future__ import annotations

from typing import Literal

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.units import format_quantity, parse_quantity

Wish = Literal["none", "auto", "strict"]
WISHES: tuple[Wish, ...] = ("auto", "strict", "none")
MEMORY_SHARE, DISK_SHARE = 0.8, 0.8  # of what is free when a job starts: the rest is for the agent and its system
PROCESSES = 4096  # and threads: an engine on a large server starts hundreds
SECONDS = 12 * 3600.0  # for a job that has no limit of its own


@frozen
class Means:
    """What this system has to hold a process with. `memory`: who counts what all of a job's processes hold together."""

    bubblewrap: str | None = None  # where it is, if it works here
    landlock: int = 0  # the version of its interface
    seccomp: bool = False
    memory: Literal["cgroup", "systemd", "watch"] = "watch"
    system: str = "linux"

    @property
    def real(self) -> bool:
        """Whether files and the network can be kept from a job."""
        return self.seccomp and (self.bubblewrap is not None or self.landlock > 0)

    @property
    def said(self) -> str:
        """For people: what holds files, network and memory."""
        if not self.real:
            return f"none: {self._lacks}"
        files = "bubblewrap" if self.bubblewrap else f"Landlock {self.landlock}"
        counted = {"cgroup": "a cgroup", "systemd": "a systemd scope", "watch": "watching"}[self.memory]
        return f"{files} and seccomp, memory by {counted}"

    @property
    def _lacks(self) -> str:
        if self.system != "linux":
            name = {"darwin": "macOS", "win32": "Windows"}.get(self.system, self.system)
            return f"{name} has no way that is used here; memory is watched"
        if not self.seccomp:
            return "system calls cannot be filtered here; memory is watched"
        return "neither bubblewrap nor Landlock works here; memory is watched"


@frozen
class Ceiling:
    """A limit as somebody writes it: an amount, or a share of what is free when a job starts."""

    amount: int | None = None
    share: float | None = None

    def of(self, free: int) -> int:
        return self.amount if self.amount is not None else int((self.share or 0.0) * free)

    def said(self, limit: int, free: str) -> str:
        """`17.2 GB, 80 % of the memory that was free`."""
        size = format_quantity(limit, "B")
        return size if self.amount is not None else f"{size}, {self.share:.0%} of the {free}".replace("%", " %", 1)


def parse_ceiling(text: str, option: str) -> Ceiling:
    """`4 GB` or `50 %`."""
    number, percent, rest = text.partition("%")
    if not percent:
        return Ceiling(amount=int(parse_quantity(text, "B")))
    try:
        share = float(number) / 100
    except ValueError:
        share = 0.0
    if rest.strip() or not 0 < share <= 1:
        raise DomainError(f"{option} is {text!r}.", remedy="Write a size, as 4 GB, or a share, as 50 %.")
    return Ceiling(share=share)


@frozen
class BoxOrder:
    """What the owner of a device wants of its box. `hide` are paths that nothing in it may see."""

    wish: Wish = "auto"
    memory: Ceiling = Ceiling(share=MEMORY_SHARE)
    disk: Ceiling = Ceiling(share=DISK_SHARE)
    processes: int = PROCESSES
    seconds: float = SECONDS
    hide: tuple[str, ...] = ()
