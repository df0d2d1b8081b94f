"""One figure of a benchmark, and how commands and calls are timed."""

import os
import statistics
import subprocess
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    name: str
    value: float
    unit: str
    target: str
    met: bool
    note: str = ""
    ratio: float | None = None  # to a peer of the same run, the larger the worse: it is held to the last recorded one

    def __str__(self):
        verdict = "" if self.met else ", MISSED"
        note = f"; {self.note}" if self.note else ""
        return f"{self.name}: {self.value:.4g} {self.unit} (target {self.target}{verdict}{note})"


def command_seconds(*commands, rounds=25):
    """Median wall time of each command, taken in turn so that a slow moment falls on all of them."""
    times = [[] for _ in commands]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}  # noqa: TID251 - as users have it
    for command in commands:  # so that bytecode is there, as it is after any first use
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    for _ in range(rounds):
        for command, taken in zip(commands, times, strict=True):
            start = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
            taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in times]


def call_seconds(function, *, least=0.2):
    """Median time of one call, over as many calls as fit in `least` seconds (three at least)."""
    function()
    taken = []
    begin = time.perf_counter()
    while len(taken) < 3 or time.perf_counter() - begin < least:
        start = time.perf_counter()
        function()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)
