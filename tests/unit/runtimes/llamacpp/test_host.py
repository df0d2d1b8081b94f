import os

import pytest

from inferometer.errors import DomainError
from inferometer.runtimes.llamacpp.host import captured, chosen_threads, usable_cores


def test_what_c_code_writes_is_kept_and_stderr_comes_back(capfd):
    with captured() as said:
        os.write(2, b"from C\n")
        assert said() == "from C\n"
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "after\n"


def test_stderr_comes_back_after_an_error(capfd):
    with pytest.raises(ValueError, match="x"), captured():
        raise ValueError("x")
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "after\n"


def test_threads_are_those_asked_for_else_the_usable_cores():
    assert chosen_threads(3) == 3
    assert chosen_threads(None, cores=lambda: 7) == 7
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)
    with pytest.raises(DomainError, match="0 threads"):
        chosen_threads(0)
