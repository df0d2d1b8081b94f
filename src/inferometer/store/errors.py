"""Errors of the store itself: its file, its server, its disk space."""

from inferometer.core.errors import InferometerError


class StoreError(InferometerError):
    """The store cannot be opened, read or written, or refuses what would lose something.

    The message is for whoever's machine it is: it names files, and the address of a database. `told` is the same for
    those who see the store through a hub, and names neither; without it, they hear only that it failed.
    """

    def __init__(self, message: str, *, remedy: str | None = None, told: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.told = told


class ConflictError(StoreError):
    """Another run, or another version of this one, is there already under the same id."""


class NotAllowedError(StoreError):
    """Somebody brings something to a project that is not theirs to write to."""


class LeaseLostError(StoreError):
    """A device speaks of a job that it does not hold any more: the lease ran out, or the job has ended."""
