"""What this system has to hold a job with, found by trying."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache

from inferometer.core.box import Means
from inferometer.hub.box import landlock, seccomp
from inferometer.hub.box.cgroups import place_here

_TRY_S = 10.0


@cache
def means_here() -> Means:
    if sys.platform != "linux":
        return Means(system=sys.platform)
    return Means(
        bubblewrap=_bubblewrap(),
        landlock=landlock.version(),
        seccomp=seccomp.available(),
        memory="cgroup" if place_here() else "systemd" if _systemd() else "watch",
    )


def _bubblewrap() -> str | None:
    """Where it is, if it may do here what a box needs: a container or a distribution may forbid namespaces."""
    path = shutil.which("bwrap")
    return path if path and _works([path, *NAMESPACES, "--ro-bind", "/", "/", "--proc", "/proc", "true"]) else None


NAMESPACES = ("--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL", "--die-with-parent")
SCOPE = ("--user", "--scope", "--quiet", "--collect")


def _systemd() -> bool:
    path = shutil.which("systemd-run")
    return path is not None and _works([path, *SCOPE, "-p", "MemoryMax=1G", "true"])


def _works(command: list[str]) -> bool:
    try:
        return not subprocess.run(command, capture_output=True, check=False, timeout=_TRY_S).returncode  # noqa: S603 - ours
    except (OSError, subprocess.TimeoutExpired):
        return False
