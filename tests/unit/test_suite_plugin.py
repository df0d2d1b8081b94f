"""The plug-in of our own tests, on tiny test files in processes of their own."""

import json
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from _pytest.assertion import rewrite

import suite_plugin
from fakes.waiting import until_gone

TESTS = Path(__file__).parents[1]
XDIST = ("-p", "xdist", "-n", "2")
ONE_SECOND = {"TEST_LIMIT_S": "1"}
pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no signals that a process could be sent")

FILE = """
import ctypes, os, signal, subprocess, sys, threading, time
from pathlib import Path
import pytest
"""
OTHER = "\n@pytest.mark.limit(60)\ndef test_other():\n    time.sleep(1.1)\n"
HANGS = """
def waits_for_ever():
    Path("begun").touch()
    threading.Event().wait()

def test_hangs():
    try:
        waits_for_ever()
    except Exception:
        pass
"""
# What is called through PyDLL gives no other thread a turn until it returns, and here no alarm wakes it up.
HANGS_IN_C = """
def test_hangs_in_c():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    Path("begun in c").touch()
    ctypes.PyDLL(None).sleep(1000)
"""
HANGS_AFTERWARDS = """
@pytest.fixture
def stuck():
    yield
    waits_for_ever()

def test_hangs_afterwards(stuck):
    pass
"""
SIGNALS = """
ASK = '''import signal
for name in ("SIGTERM", "SIGHUP", "SIGCHLD"):
    assert signal.getsignal(getattr(signal, name)) is signal.SIG_DFL, name
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())'''

@pytest.mark.limit(60)
def test_an_interrupt_arrives():
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)

@pytest.mark.limit(60)
def test_a_child_has_the_defaults():
    subprocess.run([sys.executable, "-c", ASK], check=True)
"""


INTERRUPTED = """
def test_interrupts():
    child = subprocess.Popen(["sleep", "1000"])
    Path("child").write_text(str(child.pid))
    os.kill(os.getppid(), signal.SIGINT)
    threading.Event().wait()
"""


def run(folder, text, *options, settings="", **limits):
    """What pytest says to a file, started by a parent that ignores and blocks signals; nothing of this run's settings.

    `settings` go into its conftest.
    """

    def as_a_shell_leaves_them():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})

    (folder / "test_it.py").write_text(FILE + text)
    (folder / "conftest.py").write_text(f"import suite_plugin\n{settings}")
    chosen = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}  # noqa: TID251
    plain = ("--disable-plugin-autoload", "-c", os.devnull, "--rootdir", str(folder), "-p", "no:cacheprovider")
    return subprocess.run(
        [sys.executable, "-m", "pytest", *plain, "-p", "suite_plugin", "test_it.py", *options],
        cwd=folder, env=chosen | {"PYTHONPATH": str(TESTS)} | limits,
        capture_output=True, text=True, check=False, timeout=250, preexec_fn=as_a_shell_leaves_them,
    )  # fmt: skip


def test_each_test_that_hangs_fails_with_all_stacks_and_the_others_run(tmp_path):
    ended = run(tmp_path, HANGS + HANGS_AFTERWARDS + OTHER + SIGNALS, **ONE_SECOND)
    assert ended.returncode == 1
    assert "The call of test_it.py::test_hangs was not over after 1 s." in ended.stdout
    assert "The teardown of test_it.py::test_hangs_afterwards was not over after 1 s." in ended.stdout
    assert "Thread MainThread" in ended.stdout
    assert "in waits_for_ever" in ended.stdout
    assert "1 failed, 4 passed, 1 error" in ended.stdout


def test_a_worker_that_does_not_react_is_ended_with_its_stacks_and_replaced(tmp_path):
    soon = """
def pytest_runtest_protocol(item):
    suite_plugin.GRACE_S = 0.5 if "in_c" in item.name else 60.0
"""
    ended = run(tmp_path, HANGS + HANGS_IN_C + OTHER + SIGNALS, *XDIST, settings=soon, **ONE_SECOND)
    assert "The call of test_it.py::test_hangs was not over after 1 s." in ended.stdout
    assert "in test_hangs_in_c" in ended.stderr
    assert "crashed while running 'test_it.py::test_hangs_in_c'" in ended.stdout
    assert "2 failed, 3 passed" in ended.stdout


def test_without_workers_one_that_does_not_react_ends_the_run(tmp_path):
    ended = run(tmp_path, HANGS_IN_C, settings="suite_plugin.GRACE_S = 0.5", **ONE_SECOND)
    assert ended.returncode == 1
    assert "in test_hangs_in_c" in ended.stderr


@pytest.mark.parametrize(
    ("text", "workers", "hanging"),
    [(HANGS, (), ["test_hangs"]), (HANGS + HANGS_IN_C, XDIST, ["test_hangs", "test_hangs_in_c"])],
    ids=["alone", "xdist"],
)
def test_a_run_that_does_not_end_says_what_hangs_sums_up_and_ends(tmp_path, text, workers, hanging):
    files = ["begun", "begun in c"][: len(hanging)]
    when_all_hang = f"""
import time
from pathlib import Path

def all_hang(self):
    while len(self._running) < {len(hanging)} or not all(Path(name).exists() for name in {files}):
        time.sleep(0.01)
    return True

suite_plugin._SuiteLimit._is_reached = all_hang
"""
    ended = run(tmp_path, text, *workers, settings=when_all_hang, SUITE_LIMIT_S="7")
    assert ended.returncode == 1
    assert "The tests were not over after 7 s" in ended.stderr
    for name in hanging:
        assert re.search(rf"test_it.py::{name}, for \d+ s\n", ended.stderr)
        assert re.search(rf"in {name}\n", ended.stderr)
    assert re.search(r"!! .*the tests were not over after 7 s !!", ended.stdout)


def test_an_interrupted_run_leaves_nothing_of_what_its_tests_started(tmp_path):
    at_once = "from xdist.workermanage import NodeManager\nNodeManager.EXIT_TIMEOUT = 0.5  # instead of 10 s"
    ended = run(tmp_path, INTERRUPTED, *XDIST, settings=at_once)
    assert "KeyboardInterrupt" in ended.stdout
    until_gone(int((tmp_path / "child").read_text()))


def test_the_limit_of_a_run_is_the_time_that_was_set(monkeypatch):
    limit = suite_plugin._SuiteLimit(config=None, stderr=2)
    monkeypatch.setattr(suite_plugin, "SUITE_LIMIT_S", 0.001)
    assert limit._is_reached()
    monkeypatch.setattr(suite_plugin, "SUITE_LIMIT_S", 3600.0)
    limit.pytest_sessionfinish()
    assert not limit._is_reached()


def test_a_seed_shuffles_modules_and_their_tests_and_leaves_modules_together():
    collected = [f"test_{module}.py::test[{number}]" for module in "abcd" for number in range(5)]

    def shuffled(seed):
        items = [SimpleNamespace(nodeid=nodeid) for nodeid in collected]
        suite_plugin.pytest_collection_modifyitems(SimpleNamespace(getoption=lambda _: seed), items)
        return [item.nodeid for item in items]

    assert shuffled(None) == collected
    assert shuffled(1) == shuffled(1) != shuffled(2)  # pytest-xdist wants the same order of every worker
    assert sorted(shuffled(1)) == collected
    modules = [nodeid[5] for nodeid in shuffled(1)]
    assert [*dict.fromkeys(modules)] != [*"abcd"]
    assert modules == [letter for letter in dict.fromkeys(modules) for _ in range(5)]


def test_workers_rewrite_assertions_once_between_them(tmp_path, pytestconfig, monkeypatch):
    files = [tmp_path / folder / f"test_{name}.py" for folder in "ab" for name in "cd"]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_text("def test():\n    assert 1 == 1\n", encoding="utf-8")
    (tmp_path / "other.py").write_text("", encoding="utf-8")
    monkeypatch.setattr(pytestconfig, "args", [str(tmp_path / "a"), f"{tmp_path / 'b'}::test", str(files[0])])
    written = []

    def kept(file):
        return rewrite.get_cache_dir(file) / f"{file.stem}{rewrite.PYC_TAIL}"

    def note(write, state, code, digest, pyc):
        written.append(pyc)
        write(state, code, digest, pyc)

    monkeypatch.setattr(rewrite, "_write_pyc", partial(note, rewrite._write_pyc))
    suite_plugin._rewrite_a_share(pytestconfig, 1, 2)
    assert written == [kept(files[1]), kept(files[3])]
    suite_plugin._rewrite_a_share(pytestconfig, 0, 1)
    assert sorted(written) == [kept(file) for file in files]
    for file in files:
        assert "@pytest_ar" in rewrite._read_pyc(file, kept(file)).co_names  # as pytest itself keeps and reads it
    suite_plugin._rewrite_a_share(pytestconfig, 0, 1)
    assert len(written) == len(files)
    os.utime(files[2], (2**32, 2**32))
    suite_plugin._rewrite_a_share(pytestconfig, 0, 1)
    assert written[4:] == [kept(files[2])]


REPORT = {"when": "setup", "outcome": "passed", "duration": 0.1, "sections": [], "keywords": {"test_it.py": 1}}


@pytest.mark.parametrize(
    ("differs", "is_sent"),
    [
        ({}, False), ({"when": "teardown"}, False), ({"when": "call"}, True), ({"duration": 0.6}, True),
        ({"outcome": "failed"}, True), ({"outcome": "skipped"}, True), ({"sections": [["stdout", "seen"]]}, True),
    ],
)  # fmt: skip
def test_of_what_passed_only_calls_and_what_was_slow_or_printed_is_reported(differs, is_sent):
    sent = []
    send = suite_plugin._sending_less(lambda name, **about: sent.append((name, about)), 0.5)
    send("testreport", data=REPORT | differs)
    assert len(sent) == is_sent


def test_an_event_that_is_no_report_is_sent_as_it_is_and_a_failure_keeps_its_names():
    sent = []
    send = suite_plugin._sending_less(lambda name, **about: sent.append((name, about)), 0.5)
    send("logstart", nodeid="a", location=("a", 1, "b"))
    send("testreport", data=REPORT | {"outcome": "failed"})
    marked = REPORT | {"when": "call", "keywords": {"test_it.py": 1, "installed": 1}}
    send("testreport", data=marked)
    assert sent[0] == ("logstart", {"nodeid": "a", "location": ("a", 1, "b")})
    assert [about["data"]["keywords"] for _, about in sent[1:]] == [REPORT["keywords"], {"installed": 1}]


def test_workers_report_the_same_outcomes_slow_setups_and_marks(tmp_path):
    text = """
@pytest.fixture
def slow():
    time.sleep(0.3)

def test_waits(slow): pass

@pytest.mark.installed
def test_is_installed(): pass

def test_is_skipped(): pytest.skip("no")

@pytest.fixture
def broken():
    yield
    assert False, "at the end"

def test_is_broken_afterwards(broken): pass
"""
    ini = tmp_path / "marks.ini"
    ini.write_text("[pytest]\nmarkers = installed: as ours")
    noting = ("-p", "passed_before", "--note-passed", "noted.json")
    ended = run(tmp_path, text, *XDIST, *noting, "-c", str(ini), "--durations=5", "--durations-min=0.2")
    assert "3 passed, 1 skipped, 1 error" in ended.stdout
    assert re.search(r"0\.\d+s setup +test_it.py::test_waits", ended.stdout)
    noted = json.loads((tmp_path / "noted.json").read_text(encoding="utf-8"))
    assert noted["test_it.py"]["passed"] == ["test_it.py::test_waits"]
