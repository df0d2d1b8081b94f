"""Waiting for what another process or thread does: as long as it takes, and not for ever."""

import time

import psutil

PATIENCE_S = 200.0  # under the limit of a test (suite_plugin.py), so that what was waited for is said


def until(happened, what):
    """What `happened()` gives as soon as it gives something."""
    ends = time.monotonic() + PATIENCE_S
    while not (given := happened()):
        assert time.monotonic() < ends, f"{what} did not happen within {PATIENCE_S:g} s"
        time.sleep(0.01)
    return given


def until_gone(*pids):
    """Until these processes have ended; one whose parent has not asked for its exit code has."""
    until(lambda: not any(map(_lives, pids)), f"the end of {pids}")


def _lives(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
