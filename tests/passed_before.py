"""`--note-passed FILE` keeps which tests passed, and `--beyond FILE` leaves those out: nothing is run twice.

`make test` runs wherever there is a Python. `make test-torch` adds PyTorch, a browser and an sshd and runs what was
skipped for want of them. A test whose subject is what is installed has the mark `installed` and is run both times.
"""

import hashlib
import json
from pathlib import Path

import pytest


def pytest_addoption(parser):
    group = parser.getgroup("what passed before")
    group.addoption("--note-passed", metavar="FILE", type=Path, help="keep which tests passed")
    group.addoption("--beyond", metavar="FILE", type=Path, help="leave out what passed when FILE was noted")


def pytest_configure(config):
    noted, beyond = config.getoption("note_passed"), config.getoption("beyond")
    if noted is not None and not hasattr(config, "workerinput"):  # the workers report to one that writes
        config.pluginmanager.register(PassedLog(noted, config.rootpath))
    if beyond is not None and beyond.exists():
        config.pluginmanager.register(Beyond(json.loads(beyond.read_text(encoding="utf-8")), config.rootpath))


def file_of(nodeid):
    return nodeid.partition("::")[0]


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


class PassedLog:
    def __init__(self, path, root):
        self.path, self.root = path, root
        self.passed, self.others, self.installed = set(), set(), set()

    def pytest_runtest_logreport(self, report):
        if report.outcome != "passed":
            self.others.add(report.nodeid)
        elif report.when == "call":
            self.passed.add(report.nodeid)
        if "installed" in report.keywords:
            self.installed.add(report.nodeid)

    def pytest_collectreport(self, report):
        if report.outcome != "passed":
            self.others.add(report.nodeid)  # a module that was skipped as a whole

    def pytest_sessionfinish(self):
        files = {}
        for nodeid in sorted(self.passed - self.others - self.installed):
            files.setdefault(file_of(nodeid), []).append(nodeid)
        partly = {file_of(nodeid) for nodeid in self.others | self.installed}
        kept = {
            file: {"digest": digest(self.root / file), "whole": file not in partly, "passed": passed}
            for file, passed in files.items()
        }
        self.path.write_text(json.dumps(kept, indent=1), encoding="utf-8")


class Beyond:
    def __init__(self, kept, root):
        self.kept, self.root = kept, root
        self.passed = {nodeid for row in kept.values() for nodeid in row["passed"]}

    def pytest_ignore_collect(self, collection_path):
        """Files in which everything passed, and that are as they were, are not even imported."""
        if collection_path.suffix != ".py" or not collection_path.is_relative_to(self.root):
            return None
        row = self.kept.get(collection_path.relative_to(self.root).as_posix())
        return True if row is not None and row["whole"] and row["digest"] == digest(collection_path) else None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config, items):
        left = [item for item in items if item.nodeid not in self.passed]
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in self.passed])
        items[:] = left

    def pytest_sessionfinish(self, session, exitstatus):
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.passed:
            session.exitstatus = pytest.ExitCode.OK  # all of them have passed before
