"""A process in which tools make one probe after the other.

Tools for language models and exported programs take seven seconds to import, and less than one for a probe. So this
process stays, and is handed orders as long as there are some. It ends with us, or when an order is interrupted; the
next order then starts another.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from inferometer.measure.prepare.carrying_out import answer_of, end_group, too_long
from inferometer.measure.prepare.child import carry_out

if TYPE_CHECKING:
    from inferometer.engines.order import ToolAnswer, ToolOrder
    from inferometer.measure.prepare.steps import PrepareStep

_LOOK_S = 0.01  # between two looks for the answer
_LEAVE_S = 5.0  # to end by itself when it is asked to


@dataclass(slots=True)
class Workshop:
    """Called with an order as `carry_out` of `prepare` has it, it gives the tool's answer."""

    _process: subprocess.Popen[bytes] | None = None
    _log: Path | None = None

    def __call__(self, step: PrepareStep, order: ToolOrder, folder: Path, seconds_at_most: float) -> ToolAnswer:
        if self._process is None or self._log is None:
            number, name = tempfile.mkstemp(prefix="inferometer-tools-", suffix=".txt")
            with os.fdopen(number, "wb") as printed:
                self._process = subprocess.Popen(  # noqa: S603 - our own module
                    [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=printed, stderr=subprocess.STDOUT,
                    start_new_session=True,
                )  # fmt: skip
            self._log = Path(name)
        process, log = self._process, self._log
        asked, answered = folder / "order", folder / "answer"
        asked.write_bytes(pickle.dumps((step.work, order, answered)))
        until = time.monotonic() + seconds_at_most
        try:
            # A process that has ended says so by its code: that nobody reads is no error of ours.
            if process.stdin is not None:
                with suppress(BrokenPipeError):
                    process.stdin.write(f"{asked}\n".encode())
                    process.stdin.flush()
            while not answered.is_file() and process.poll() is None:
                if time.monotonic() > until:
                    raise too_long(step, seconds_at_most)  # noqa: TRY301 - it ends as Ctrl-C does
                time.sleep(_LOOK_S)
        except BaseException:
            self._drop()
            raise
        code = process.poll()
        answer = answer_of(answered, code or 0, log)
        if code is not None:
            self._drop()
        return answer

    def _drop(self) -> None:
        if self._process is not None:
            end_group(self._process)
            if self._process.stdin is not None:
                with suppress(OSError):
                    self._process.stdin.close()
        if self._log is not None:
            self._log.unlink(missing_ok=True)
        self._process = self._log = None

    def close(self) -> None:
        process = self._process
        if process is not None and process.stdin is not None:
            with suppress(OSError, subprocess.TimeoutExpired):
                process.stdin.close()
                process.wait(_LEAVE_S)
        self._drop()


def main() -> None:
    home = Path.cwd()
    for line in sys.stdin:
        asked = Path(line.rstrip("\n"))
        work, order, answered = pickle.loads(asked.read_bytes())  # noqa: S301 - written by our own parent
        os.chdir(asked.parent)
        answer = carry_out(work, order)
        os.chdir(home)
        partial = answered.with_name("answer.partial")
        partial.write_bytes(pickle.dumps(answer))
        partial.replace(answered)
    sys.stdout.flush()
    os._exit(0)  # an orderly exit may hang in a tool's own threads


if __name__ == "__main__":
    main()
