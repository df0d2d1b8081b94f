"""Ctrl-C and SIGTERM at moments that Python or the system would make nothing of."""

import _thread
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from inferometer.cli.interrupts import interrupted_again


def test_ctrl_c_in_a_callback_is_raised_again(monkeypatch):
    raised = []
    monkeypatch.setattr(_thread, "interrupt_main", lambda: raised.append(True))
    interrupted_again(SimpleNamespace(exc_type=KeyboardInterrupt))
    assert raised


_ENDED = """
import signal
from inferometer.cli.interrupts import ended_by_sigterm
before = signal.getsignal(signal.SIGTERM)
try:
    with ended_by_sigterm():
        raise KeyboardInterrupt
except KeyboardInterrupt:
    print("Ctrl-C stays what it is", signal.getsignal(signal.SIGTERM) is before)
with ended_by_sigterm():
    signal.raise_signal(signal.SIGTERM)
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM that a process could be sent")
def test_sigterm_ends_what_is_under_way_and_is_told_by_the_exit_code():
    ended = subprocess.run([sys.executable, "-c", _ENDED], capture_output=True, text=True, check=False)
    assert ended.returncode == 143
    assert "SIGTERM" in ended.stderr
    assert ended.stdout == "Ctrl-C stays what it is True\n"
