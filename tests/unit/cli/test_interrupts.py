"""Ctrl-C and SIGTERM at moments that Python or the system would make nothing of."""

import _thread
import os
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
