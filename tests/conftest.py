"""What every test shares."""

import os

import pytest
from hypothesis import settings

from fakes.closing import check_every_profile

# No deadline: a busy machine is not a bug. In CI the same examples each time: a change fails for what it changed.
# Elsewhere other ones each time, so half of hypothesis's hundred finds as much over a few runs.
settings.register_profile("here", deadline=None, max_examples=50)
settings.register_profile("ci", deadline=None, max_examples=100, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")  # noqa: TID251 - the test run's own environment

check_every_profile()


@pytest.fixture(autouse=True, scope="session")
def _folders_of_our_own(tmp_path_factory):
    """Commands that keep runs, models or calibrations keep them here, not among the user's."""
    folder = tmp_path_factory.mktemp("user")
    chosen = {
        "INFEROMETER_DATA": str(folder / "data"),
        "INFEROMETER_CACHE": str(folder / "cache"),
        "INFEROMETER_CONFIG": str(folder / "config.toml"),
    }
    patch = pytest.MonkeyPatch()
    for name, value in chosen.items():
        patch.setenv(name, value)
    yield
    patch.undo()
