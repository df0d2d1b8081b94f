"""Which tests touch which line of a package, and how long each takes: one run with coverage.py, a context a test.

Kept by what the package's source says, a test file at a time: where only tests changed, only those files run again.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import coverage
import pytest

ROOT = Path(__file__).parents[2]
OVERLAY = Path(__file__).parent / "overlay"
KEPT = ROOT / ".mutation"
AT_ONCE = 10  # test files recorded in one process: what a cut off loses at most


def environment(**more):
    path = os.pathsep.join(map(str, (OVERLAY, ROOT / "src", ROOT / "tests")))
    return {**os.environ, "PYTHONPATH": path, "CI": "1", **more}  # noqa: TID251 - children see what we see


def spent_s():
    """Of processors, by this process and those it has waited for: on a busy machine the same as on a quiet one."""
    return sum(os.times()[:4])


class Touching:
    """A pytest plug-in: a context a test, and the processors' seconds of each that passed."""

    def __init__(self, lines):
        self.lines = lines
        self.seconds = {}
        self.failed = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        self.lines.switch_context(item.nodeid)
        start = spent_s()
        outcome = yield
        self.seconds[item.nodeid] = spent_s() - start
        return outcome

    def pytest_runtest_logreport(self, report):
        if not report.passed:
            self.failed.add(report.nodeid)


def record(folder, package, tests):
    """In a process of its own (see `main`): run `tests` and keep what they touch of the package in `folder`."""
    lines = coverage.Coverage(data_file=str(folder / "lines"), source_pkgs=[f"inferometer.{package.replace('/', '.')}"])
    touching = Touching(lines)
    lines.start()
    pytest.main([*tests, "-q", "-p", "no:xdist", "-p", "no:cacheprovider"], plugins=[touching])
    lines.stop()
    lines.save()
    lines.combine([str(folder)], keep=False)
    lines.save()
    seconds = {test: taken for test, taken in touching.seconds.items() if test not in touching.failed}
    (folder / "seconds.json").write_text(json.dumps(seconds), encoding="utf-8")


def digest(files):
    found = hashlib.sha256()
    for file in sorted(files):
        found.update(str(file.relative_to(ROOT)).encode() + file.read_bytes())
    return found.hexdigest()[:12]


def source_of(package):
    return digest((ROOT / "src" / "inferometer" / package).rglob("*.py"))


def test_files(name):
    """{path: digest} of the test files in a folder under tests/ (or of one file), each with the modules beside it."""
    common = [ROOT / "tests" / "conftest.py", *(ROOT / "tests" / "fakes").glob("*.py")]
    path = ROOT / "tests" / name
    found = {}
    for file in sorted(path.rglob("test_*.py")) if path.is_dir() else [path]:
        beside = [module for module in file.parent.glob("*.py") if not module.name.startswith("test_")]
        found[file.relative_to(ROOT).as_posix()] = digest({file, *beside, *common})
    return found


def touched(package, tests):
    """{file: {line: {test}}} and {test: seconds} of the tests in folders or files; those that are new are recorded."""
    kept = KEPT / f"{package.replace('/', '.')}-{source_of(package)}"
    told = kept / "seconds.json"
    by_file = json.loads(told.read_text(encoding="utf-8")) if told.exists() else {}
    wanted = {file: said for name in tests for file, said in test_files(name).items()}
    new = [file for file in wanted if by_file.get(file, {}).get("digest") != wanted[file]]
    for some in (new[start : start + AT_ONCE] for start in range(0, len(new), AT_ONCE)):
        taken = recorded(kept, package, some)
        by_file |= {file: {"digest": wanted[file], "seconds": of_file(file, taken)} for file in some}
        told.write_text(json.dumps(by_file), encoding="utf-8")
    seconds = {test: taken for file in wanted for test, taken in by_file[file]["seconds"].items()}
    return lines_in(kept, seconds), seconds


def of_file(file, seconds):
    return {test: taken for test, taken in seconds.items() if test.partition("::")[0] == file}


def recorded(kept, package, files):
    """The {test: seconds} of test files; their lines join those in `kept`."""
    print(f"recording the lines that {len(files)} test files touch, from {files[0]}", flush=True)
    new = kept / "new"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    command = [sys.executable, __file__, str(new), package, *files]
    environ = environment(
        MUTATION_LINES=str(new / "lines"), MUTATION_PACKAGE=f"inferometer.{package.replace('/', '.')}"
    )
    subprocess.run(command, check=True, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL)
    data = coverage.CoverageData(basename=str(kept / "lines"))
    if (kept / "lines").exists():
        data.read()
    more = coverage.CoverageData(basename=str(new / "lines"))
    more.read()
    data.update(more)
    return json.loads((new / "seconds.json").read_text(encoding="utf-8"))


def lines_in(kept, seconds):
    data = coverage.CoverageData(basename=str(kept / "lines"))
    data.read()
    lines = {}
    for file in data.measured_files():
        by_line = data.contexts_by_lineno(file)
        lines[file] = {line: {test for test in tests if test in seconds} for line, tests in by_line.items()}
    return lines


if __name__ == "__main__":
    record(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
