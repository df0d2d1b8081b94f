"""The hub's own machine as a device: an agent that a page starts, for somebody who has nothing but this machine."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from inferometer.hub.agent.facts import device_name
from inferometer.hub.web.guard.rules import is_loopback

if TYPE_CHECKING:
    from inferometer.hub.web.guard.rules import Rules

_STOPPING_S = 10.0  # that it has to give its job back


class OwnAgent:
    def __init__(self, rules: Rules) -> None:
        # Where others come in, a click of theirs must not start anything on this machine.
        self.offered = not rules.tokens and is_loopback(rules.host)
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def start(self, hub: str) -> str:
        """Start it unless it runs already; gives the name that it takes jobs by."""
        name = device_name(None)
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                command = [sys.executable, "-m", "inferometer", "agent", "--hub", hub, "--name", name]
                self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603 - our own command
        return name

    def stop(self) -> None:
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                return
            self._process.terminate()
            try:
                self._process.wait(_STOPPING_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
