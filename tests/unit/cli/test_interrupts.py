"""Ctrl-C and SIGTERM at moments that Python or the system would make nothing of."""

import _thread
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from inferometer.cli.run import interrupted_again


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
print([run(["wait", str(int(number))]) for number in (signal.SIGINT, signal.SIGTERM)])
print(signal.getsignal(signal.SIGTERM) is before)
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM that a process could be sent")
def test_sigterm_keeps_what_ctrl_c_keeps_and_is_told_by_the_exit_code():
    ended = subprocess.run([sys.executable, "-c", _ENDED], capture_output=True, text=True, check=False)
    assert ended.stdout.splitlines() == ["kept what there was", "kept what there was", "[130, 143]", "True"], (
        ended.stderr
    )


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
