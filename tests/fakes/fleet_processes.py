"""A hub and agents as processes, the way a user starts them."""

import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from fakes.waiting import until
from inferometer.hub.fleet import forecasting
from inferometer.hub.fleet.forecast import answer
from inferometer.store.store import open_store
from unit.hub.web.samples import hub


class Process:
    """A command in the background; `lines` is what it has written to stderr."""

    def __init__(self, *arguments, env=None):
        command = [sys.executable, "-m", "inferometer", *map(str, arguments)]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env)
        self.lines = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self._process.stderr:
            self.lines.append(line.rstrip("\n"))

    def until(self, pattern):
        """The first line that matches."""

        def found():
            over = not self._reader.is_alive()  # before the lines are looked at: there are no others then
            match = next(filter(None, (re.search(pattern, line) for line in [*self.lines])), None)
            assert match or not over, f"{pattern!r} is not in {self.lines}"
            return match

        return until(found, f"a line with {pattern!r}")

    def terminate(self):
        """As a system that shuts down does it; nobody waits for its end."""
        self._process.send_signal(signal.SIGTERM)

    def wait(self, seconds=240):
        """Until it ends by itself; gives its exit code."""
        return self._process.wait(seconds)

    def kill(self):
        self._process.kill()
        self._process.wait(240)

    def stop(self):
        if self._process.poll() is None:
            self.terminate()
            try:
                self._process.wait(240)
            except subprocess.TimeoutExpired:
                self.kill()
        self._process.stderr.close()


@contextmanager
def hub_process(folder, *options):
    open_store(folder / "runs.db").close()  # a hub makes no store of a name that may be a typing error
    process = Process("hub", "--port", 0, "--store", folder / "runs.db", *options)
    try:
        yield process.until(r"The hub is at (https?://\S+[^/])/ ")[1]
    finally:
        process.stop()


@contextmanager
def hub_here(folder, **rules):
    """The address of a hub in this process, for tests of agents: starting one takes longer than what is asked of it.

    Models are read and priced in this process too, and not in a box, which takes a second and has tests of its own.
    """
    with pytest.MonkeyPatch.context() as patch, hub(folder, **rules) as (_, client):
        patch.setattr(forecasting, "in_a_process", lambda asked, *_: answer(asked))
        yield str(client.base_url).rstrip("/")


@contextmanager
def agent_process(address, name, root, *options):
    fixed = ("--no-guard", "--no-reference")
    process = Process("hub", "agent", "--hub", address, "--name", name, "--root", root, *fixed, *options)
    try:
        process.until("takes jobs from")
        yield process
    finally:
        process.stop()
