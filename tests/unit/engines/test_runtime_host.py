import os

import pytest

from inferometer.engines.host import captured_stderr


def test_what_c_code_writes_is_kept_and_stderr_comes_back(capfd):
    with captured_stderr() as said:
        os.write(2, b"from C\n")
        assert said() == "from C\n"
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "after\n"


def test_stderr_comes_back_after_an_error(capfd):
    with pytest.raises(ValueError, match="x"), captured_stderr():
        raise ValueError("x")
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "after\n"
