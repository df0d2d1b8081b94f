"""Asking a place again that is away for a while: a job goes on there meanwhile."""

from collections.abc import Callable
from itertools import chain, repeat
from typing import TypeVar

from inferometer.core import notices
from inferometer.core.errors import InferometerError, PlaceError
from inferometer.core.frozen import frozen

T = TypeVar("T")

_WAITS_S = (0.5, 1.0, 2.0, 5.0, 10.0)


@frozen
class Patience:
    """How long to wait for a place."""

    title: str
    seconds: float
    sleep: Callable[[float], None]

    def ask(
        self,
        ask: Callable[[], T],
        *,
        away: type[InferometerError],
        says: Callable[[InferometerError], str],
        again: Callable[[], None] = lambda: None,
    ) -> T:
        """Ask; where `away` is raised say so, do what `again` does and ask again, until the patience is at its end."""
        waited = 0.0
        for pause in chain(_WAITS_S, repeat(_WAITS_S[-1])):
            try:
                return ask()
            except away as lost:
                if waited == 0.0:
                    notices.tell(says(lost))
                if waited >= self.seconds:
                    raise PlaceError(
                        f"{self.title} did not come back within {self.seconds:g} s. {lost.message}",
                        remedy="The job goes on there: the same command picks it up.",
                    ) from None
                again()
                self.sleep(pause)
                waited += pause
        raise AssertionError  # the pauses have no end
