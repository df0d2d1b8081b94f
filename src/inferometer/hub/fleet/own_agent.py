"""The hub's own machine as a device: an agent that a page starts, for somebody who has nothing but this machine."""

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence

from inferometer.core.errors import DomainError
from inferometer.hub.agent.facts import device_name
from inferometer.hub.web.answers import HubError
from inferometer.hub.web.guard.rules import Rules, is_loopback
from inferometer.store.store import Store
from inferometer.store.values import Filter

_BEGINS_S, _LOOK_S = 20.0, 0.2  # that a command has to begin its run, and between two looks
_STOPPING_S = 10.0  # that it has to give its job back


class OwnAgent:
    def __init__(self, rules: Rules) -> None:
        # Where others come in, a click of theirs must not start anything on this machine.
        self.offered = not rules.tokens and is_loopback(rules.host)
        self._process: subprocess.Popen[bytes] | None = None
        self._loading: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def start(self, hub: str) -> str:
        """Start it unless it runs already; gives the name that it takes jobs by."""
        name = device_name(None)
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                command = [sys.executable, "-m", "inferometer", "hub", "agent", "--hub", hub, "--name", name]
                self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603 - our own command
        return name

    def load(self, url: str, options: Sequence[str], store: Store) -> str:
        """Begin a load test here, one at a time; gives the page of its run, or says why there is none."""
        if not self.offered or store.location.file is None:
            raise HubError(
                403, "Others reach this hub: it sends no requests of theirs to other servers.",
                remedy="Start `inferometer load` yourself.",
            )  # fmt: skip
        with self._lock:
            if self._loading is not None and self._loading.poll() is None:
                raise HubError(409, "A load test runs here already.", remedy="Wait for its end: see /live.")
            before = _newest_load(store)
            command = [
                sys.executable,
                "-m",
                "inferometer",
                "load",
                *options,
                f"--store={store.location.file}",
                "--",
                url,
            ]
            with tempfile.TemporaryFile() as said:
                self._loading = subprocess.Popen(  # noqa: S603 - our own command
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said
                )
                for _ in range(round(_BEGINS_S / _LOOK_S)):
                    ended = self._loading.poll() is not None
                    if (run := _newest_load(store)) != before:
                        return f"/runs/{run}"
                    if ended:
                        said.seek(0)
                        raise DomainError(said.read().decode("utf-8", "replace").strip()[-500:] or "It ended at once.")
                    time.sleep(_LOOK_S)
        return "/live"

    def stop(self) -> None:
        with self._lock:
            for process in (self._process, self._loading):
                if process is None or process.poll() is not None:
                    continue
                process.terminate()
                try:
                    process.wait(_STOPPING_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _newest_load(store: Store) -> str | None:
    rows = store.list(Filter(kind="load"), limit=1).rows
    return rows[0].id if rows else None
