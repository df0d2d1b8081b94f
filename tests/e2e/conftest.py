"""What the tests of commands share."""

import sys
from types import SimpleNamespace

import pytest

from inferometer.cli.run import run


@pytest.fixture
def answered(capsys, monkeypatch):
    """A command in this process, as `python -m inferometer` calls it: its exit code and what it wrote.

    For tests of what is said. Those of a process, its signals, pipes and environment, start one.
    """

    def answered(*arguments):
        monkeypatch.setattr(sys, "argv", ["inferometer", *arguments])  # what is kept with a result
        code = run(arguments)
        written = capsys.readouterr()
        return SimpleNamespace(returncode=code, stdout=written.out, stderr=written.err)

    return answered
