"""What every test shares."""

import os

from hypothesis import settings

# No deadline: a busy machine is not a bug. In CI the same examples each time: a change fails for what it changed.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")  # noqa: TID251 - the test run's own environment
