"""Which tests touch which line, and how long each takes: one run of the tests with coverage.py, a context a test."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import coverage
import pytest

ROOT = Path(__file__).parents[2]
OVERLAY = Path(__file__).parent / "overlay"


def environment(**more):
    path = os.pathsep.join(map(str, (OVERLAY, ROOT / "src", ROOT / "tests")))
    return {**os.environ, "PYTHONPATH": path, "CI": "1", **more}  # noqa: TID251 - children see what we see


class Touching:
    """A pytest plug-in: a context a test, seconds of each that passed."""

    def __init__(self, lines):
        self.lines = lines
        self.seconds = {}
        self.failed = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        self.lines.switch_context(item.nodeid)
        start = time.perf_counter()
        outcome = yield
        self.seconds[item.nodeid] = time.perf_counter() - start
        return outcome

    def pytest_runtest_logreport(self, report):
        if not report.passed:
            self.failed.add(report.nodeid)


def record(kept, tests):
    """In a process of its own (see `main`): run `tests` and keep what they touch in the folder `kept`."""
    lines = coverage.Coverage(data_file=str(kept / "lines"), source_pkgs=["inferometer"])
    touching = Touching(lines)
    lines.start()
    pytest.main([*tests, "-q", "-p", "no:xdist", "-p", "no:cacheprovider"], plugins=[touching])
    lines.stop()
    lines.save()
    lines.combine([str(kept)], keep=False)
    lines.save()
    seconds = {test: taken for test, taken in touching.seconds.items() if test not in touching.failed}
    (kept / "seconds.json").write_text(json.dumps(seconds), encoding="utf-8")


def touched(kept, tests):
    """{file: {line: {test}}} and {test: seconds} of `tests`, recorded in the folder `kept` if not there already."""
    if not (kept / "seconds.json").exists():
        kept.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, __file__, str(kept), *tests]
        subprocess.run(command, check=True, cwd=ROOT, env=environment(MUTATION_LINES=str(kept / "lines")))
    seconds = json.loads((kept / "seconds.json").read_text(encoding="utf-8"))
    data = coverage.CoverageData(basename=str(kept / "lines"))
    data.read()
    lines = {}
    for file in data.measured_files():
        by_line = data.contexts_by_lineno(file)
        lines[file] = {line: {test for test in tests if test in seconds} for line, tests in by_line.items()}
    return lines, seconds


if __name__ == "__main__":
    record(Path(sys.argv[1]), sys.argv[2:])
