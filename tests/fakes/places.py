"""Every place that the contract suite runs jobs at, each made ready for tests."""

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferometer.providers.base import resolve


@dataclass
class GivenPlace:
    place: Any
    root: Path

    def deliver(self, handle) -> None:
        """What somebody has to do by hand."""

    def left(self, handle) -> list[str]:
        """What a job left behind that nobody will use again."""
        return [path.name for path in (self.root / "jobs").glob("*") if path.name == handle.job]


@contextmanager
def local(tmp_path_factory):
    root = tmp_path_factory.mktemp("local")
    with resolve(f"local:?root={root}") as place:
        yield GivenPlace(place, root)


PLACES = {"local": local}
