import os
import threading

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


def test_who_reads_meanwhile_does_not_move_where_the_next_is_written():
    """Reading by seeking would let a thread's next line fall on the first ones."""
    lines = [f"line {number:04}\n" for number in range(2000)]
    with captured_stderr() as said:
        writer = threading.Thread(target=lambda: [os.write(2, line.encode()) for line in lines])
        writer.start()
        while writer.is_alive():
            said()
        writer.join()
        assert said() == "".join(lines)
