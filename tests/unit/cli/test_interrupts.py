"""Ctrl-C and SIGTERM at moments that Python or the system would make nothing of."""

import _thread
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import click
import pytest

from inferometer.cli.run import cli, interrupted_again, interrupted_by_signals, run


def test_ctrl_c_in_a_callback_is_raised_again(monkeypatch):
    raised = []
    monkeypatch.setattr(_thread, "interrupt_main", lambda: raised.append(True))
    interrupted_again(SimpleNamespace(exc_type=KeyboardInterrupt))
    assert raised


_ENDED = """
import signal, sys
from inferometer.cli.run import cli, run
import click

@cli.command("wait")
@click.argument("number", type=int)
def wait(number):
    try:
        signal.raise_signal(number)
    except KeyboardInterrupt:
        print("kept what there was")
        raise

cli.get_command = lambda *_: wait
before = signal.getsignal(signal.SIGTERM)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever the tests were started by
print([run(["wait", str(int(number))]) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)])
print(signal.getsignal(signal.SIGTERM) is before)
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM that a process could be sent")
def test_other_endings_keep_what_ctrl_c_keeps_and_are_told_by_the_exit_code():
    ended = subprocess.run([sys.executable, "-c", _ENDED], capture_output=True, text=True, check=False)
    assert ended.stdout.splitlines() == [*["kept what there was"] * 3, "[130, 143, 129]", "True"], ended.stderr


_HUNG_UP = """
import os, pty, signal, sys
child, terminal = pty.fork()
if child == 0:
    from inferometer.cli.run import cli, run
    import click

    @cli.command("wait")
    def wait():
        try:
            print("ready", flush=True)
            signal.pause()
        except BaseException:
            print("to nobody", flush=True)
            open(sys.argv[1], "w").write("kept")
            raise

    cli.get_command = lambda *_: wait
    os._exit(run(["wait"]))
while b"ready" not in os.read(terminal, 1000):
    pass
os.close(terminal)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no terminals of that kind")
def test_a_terminal_that_is_closed_ends_a_command_as_ctrl_c_does(tmp_path):
    kept = tmp_path / "kept"
    ended = subprocess.run([sys.executable, "-c", _HUNG_UP, str(kept)], capture_output=True, text=True, check=False)
    assert ended.stdout.splitlines() == ["129"], ended.stderr
    assert kept.read_text() == "kept"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGHUP")
def test_nohup_is_obeyed():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupted_by_signals() as ended_by:
            signal.raise_signal(signal.SIGHUP)
            assert ended_by() is None
    finally:
        signal.signal(signal.SIGHUP, before)


# A process in which Ctrl-C comes while libraries are loaded, and one in which it comes when the command is over.
LOADING = """import os, signal, sys
from inferometer.cli import main
class Finder:
    def find_spec(name, *_):
        if name == "click":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder)
main()
"""
OVER = """import gc, os, signal
from inferometer.cli import main
gc.freeze = lambda: os.kill(os.getpid(), signal.SIGINT)
main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there a process is not ended by Ctrl-C's signal")
@pytest.mark.parametrize("moment", [LOADING, OVER], ids=["loading", "over"])
def test_ctrl_c_before_and_after_a_command_ends_it_without_a_traceback(moment):
    done = subprocess.run(
        [sys.executable, "-c", moment, "formulas"], capture_output=True, text=True, check=False, timeout=200
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def test_what_was_kept_is_told_of_an_interrupted_command(monkeypatch, capsys):
    """click raises an Abort of its own from the interrupt, and what stood beside it was lost."""

    @click.command("stopped")
    def stopped():
        interrupt = KeyboardInterrupt()
        interrupt.add_note("Kept: 3 points and 1 step.")
        raise interrupt

    monkeypatch.setattr(cli, "get_command", lambda *_: stopped)
    assert run(["stopped"]) == 130
    assert capsys.readouterr().err.strip() == "inferometer: Interrupted.\nKept: 3 points and 1 step."
