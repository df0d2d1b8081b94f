"""Errors of the store itself: its file, its server, its disk space."""

from inferometer.errors import InferometerError


class StoreError(InferometerError):
    """The store cannot be opened, read or written, or refuses what would lose something."""
