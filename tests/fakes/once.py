"""What takes seconds to make, made once for all tests of a run."""

import os

from inferometer.core.settings import cache_folder
from inferometer.hub.agent.runner import alone


def made_once(name, make):
    """The folder that `make(folder)` has filled, for whichever worker asked first. Nobody may change what is in it."""
    place = cache_folder() / "of-tests" / name  # all workers have one cache: see conftest.py
    place.parent.mkdir(parents=True, exist_ok=True)
    with alone(place.with_name(f"{name}.lock"), lambda _: None):
        if not place.is_dir():
            begun = place.with_name(f"{name}-{os.getpid()}")
            begun.mkdir()
            make(begun)
            begun.replace(place)
    return place
