"""Ctrl-C and SIGTERM at moments that Python or the system would make nothing of."""

import _thread
import os
import signal
from types import SimpleNamespace

import pytest

from inferometer.cli.interrupts import ended_by_sigterm, interrupted_again


def test_ctrl_c_in_a_callback_is_raised_again(monkeypatch):
    raised = []
    monkeypatch.setattr(_thread, "interrupt_main", lambda: raised.append(True))
    interrupted_again(SimpleNamespace(exc_type=KeyboardInterrupt))
    assert raised


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM that a process could be sent")
def test_sigterm_ends_what_is_under_way_and_is_told_by_the_exit_code(capsys):
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, ended_by_sigterm():
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 143
    assert "SIGTERM" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before
    with pytest.raises(KeyboardInterrupt), ended_by_sigterm():
        raise KeyboardInterrupt
