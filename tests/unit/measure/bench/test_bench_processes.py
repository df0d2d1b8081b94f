"""Limits that are really enforced: on children that hang, grow, die and fail, and on command lines that do."""

import functools
import os
import sys
import threading
import time

import pytest

from fakes.waiting import until_gone
from inferometer.core.errors import InferometerError
from inferometer.measure.bench.child import ChildSubject, start_method
from inferometer.measure.bench.processes import Tree, kill_tree, own_peak_bytes, own_use
from inferometer.measure.bench.subject import CommandSubject, split_command

posix = pytest.mark.skipif(os.name != "posix", reason="POSIX signals and fork")
LIMIT = 400_000_000


def hang():
    threading.Event().wait()


def hold():
    held = bytearray(500_000_000)
    threading.Event().wait()
    return held


def die():
    os._exit(3)


def fail():
    raise ValueError("no such layer")


def nothing():
    pass


@pytest.fixture
def child():
    made = []

    def make(function, **limits):
        made.append(ChildSubject(function, **limits))
        return made[-1]

    yield make
    for subject in made:
        subject.close()


def test_a_run_in_a_child_gives_its_time_and_its_peak(child):
    outcome = child(nothing, calls=1).run()
    assert outcome.seconds > 0
    assert outcome.peak_bytes > 1_000_000


def test_a_hung_run_is_killed_and_the_next_one_has_a_new_process(child):
    subject = child(hang, calls=1, timeout_s=0.2)
    first = subject.run()
    assert first.error == "timed out: killed after 0.2 s"
    assert first.lost
    assert subject.run().error == first.error


def test_a_killed_child_is_gone(child):
    subject = child(hang, calls=1, timeout_s=0.1)
    subject._start()
    pid = subject._process.pid
    subject.run()
    until_gone(pid)


def test_a_run_that_needs_too_much_memory_is_killed(child):
    outcome = child(hold, calls=1, memory_bytes=LIMIT).run()
    assert outcome.error.startswith("too much memory: killed at ")
    assert outcome.lost


def test_a_peak_between_two_looks_is_seen_afterwards(child):
    outcome = child(nothing, calls=1, memory_bytes=1_000_000).run()
    assert outcome.seconds is None
    assert "too much memory" in outcome.error
    assert outcome.lost


def test_a_child_that_dies_is_told_with_its_exit_code(child):
    outcome = child(die, calls=1).run()
    assert outcome.error == "the process of the run ended by itself with exit code 3"
    assert outcome.lost


def test_an_error_in_the_child_is_kept_and_the_child_stays(child):
    subject = child(fail, calls=1)
    first = subject.run()
    assert first.error == "ValueError: no such layer"
    assert not first.lost
    pid = subject._process.pid
    subject.run()
    assert subject._process.pid == pid


@posix
def test_a_closure_is_measured_by_forking(child):
    sizes = [1, 2, 3]
    assert child(lambda: sum(sizes), calls=1, timeout_s=120.0).run().error is None


def test_an_asynchronous_function_is_refused_in_a_child_too(child):
    async def forward():
        return 1

    if sys.platform == "win32":
        pytest.skip("a local function cannot be sent to a child here")
    with pytest.raises(InferometerError, match="asynchronous"):
        child(forward, calls=1).run()


def test_how_a_child_is_started(monkeypatch):
    monkeypatch.setattr(threading, "active_count", lambda: 4)
    assert start_method(nothing) == "spawn"
    monkeypatch.setattr("multiprocessing.get_all_start_methods", lambda: ["spawn"])
    assert start_method(functools.partial(nothing)) == "spawn"
    with pytest.raises(InferometerError, match="cannot be sent to another process"):
        start_method(lambda: None)


def test_a_child_started_afresh_measures_too(child, monkeypatch):
    monkeypatch.setattr(threading, "active_count", lambda: 4)
    assert child(time.perf_counter_ns, calls=1, timeout_s=120.0).run().error is None


def python(code, **limits):
    return CommandSubject(argv=(sys.executable, "-I", "-S", "-c", code), name="it", **limits)


def test_a_command_line_is_timed_until_it_has_ended():
    outcome = python("pass").run()
    assert outcome.error is None
    assert outcome.seconds > 0


def test_a_command_during_which_the_clock_went_back_gives_no_time():
    readings = iter([10.0, 8.0])
    assert "the clock went back by 2 s" in python("pass", clock=lambda: next(readings)).run().error


def test_a_failing_command_tells_its_code_and_its_last_words():
    outcome = python("import sys; sys.stderr.write('first\\nlast words\\n'); sys.exit(7)").run()
    assert outcome.seconds is None
    assert outcome.error == "exit code 7: last words"
    assert python("raise SystemExit(3)").run().error == "exit code 3"


@posix
def test_a_command_ended_by_a_signal_says_which():
    assert python("import os; os.kill(os.getpid(), 9)").run().error == "ended by signal 9"


def test_a_hung_command_is_killed_with_its_children(tmp_path):
    code = (
        "import subprocess, sys; "
        "child = subprocess.Popen([sys.executable, '-c', 'import threading; threading.Event().wait()']); "
        "open(sys.argv[1], 'w').write(str(child.pid)); child.wait()"
    )
    note = tmp_path / "pid"

    def clock():
        """Time stands still until the child has a child of its own."""
        return 100.0 if note.is_file() and note.read_text("ascii") else 0.0

    command = (sys.executable, "-I", "-S", "-c", code, str(note))
    outcome = CommandSubject(argv=command, name="it", timeout_s=0.01, clock=clock).run()
    assert outcome.error == "timed out: killed after 0.01 s"
    until_gone(int(note.read_text("ascii")))


def test_a_command_that_needs_too_much_memory_is_killed():
    code = "import threading\nheld = bytearray(500_000_000)\nthreading.Event().wait()"
    outcome = python(code, memory_bytes=LIMIT).run()
    assert outcome.error.startswith("too much memory: ")


def test_a_watched_run_tells_its_peak(tmp_path):
    code = (
        "import os, time; held = bytearray(60_000_000); os.mkdir('held')\n"
        "while not os.path.exists('seen'): time.sleep(0.001)"
    )
    looks = []

    def clock():
        """Read before every look. At the second look since the command holds its memory, it may end."""
        if (tmp_path / "held").exists():
            looks.append(1)
            if len(looks) == 2:
                (tmp_path / "seen").touch()
        return 0.0

    assert python(code, folder=tmp_path, clock=clock).run(watched=True).peak_bytes > 60_000_000


def test_a_program_that_is_not_there_is_an_error_at_once():
    with pytest.raises(InferometerError, match=r"'no-such-program' cannot be started.*sh -c"):
        CommandSubject(argv=("no-such-program",), name="it").run()


@pytest.mark.skipif(os.name == "nt", reason="quoted as Windows has it there")
def test_a_command_line_is_split_as_a_shell_would():
    assert split_command("./old --name 'two words'") == ("./old", "--name", "two words")


@pytest.mark.parametrize(("text", "words"), [("", "empty"), ("  ", "empty"), ("echo 'open", "not a command line")])
def test_what_is_no_command_line_is_refused(text, words):
    with pytest.raises(InferometerError, match=words):
        split_command(text)


def test_what_is_ours_is_known():
    used = own_use()
    assert os.getpid() in used.pids
    assert used.cpu_s is None or used.cpu_s > 0
    assert own_peak_bytes() > 1_000_000
    assert Tree(os.getpid()).nbytes() > 1_000_000
    assert Tree(2**22 + 1).nbytes() is None


@pytest.mark.parametrize("pid", [1, 0, -1])
def test_the_first_process_of_a_machine_is_nobodys_to_end(pid):
    with pytest.raises(ValueError, match="no process of ours"):
        kill_tree(pid)
