"""The process in which an engine runs. It may crash, hang or use up the memory: the parent lives on.

It reads its order from standard input and answers on what was standard output; what the engine itself prints goes to
the log. Answers are pickles, each preceded by its length: both ends are the same program.
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
import time
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any

from inferometer.core import notices
from inferometer.core.errors import DomainError, InferometerError, PluginError
from inferometer.core.plugins import listed, load
from inferometer.known.engines import known_engine
from inferometer.measure.bench.loop import LoopProgress

if TYPE_CHECKING:
    from collections.abc import Callable

    from inferometer.engines.base import Runtime
    from inferometer.measure.run.order import MeasureOrder
    from inferometer.measure.run.raw import Tell

LENGTH = struct.Struct("<Q")
_PROGRESS_S = 0.1


def runtime_named(name: str) -> Runtime:
    """The runtime of a plug-in's name, or of `module:attribute`."""
    module, colon, attribute = name.partition(":")
    if not colon:
        # A serving engine is a server of its own: it is measured from outside.
        engine = None if any(plugin.name == name for plugin in listed("inferometer.runtimes")) else known_engine(name)
        if engine is not None and engine.serving is not None:
            raise DomainError(
                f"{engine.title} is predicted here, and not run.",
                remedy="Start its server, and measure that under load: `inferometer load URL`.",
            )
        return load("inferometer.runtimes", name)  # type: ignore[no-any-return]  # the group's contract
    try:
        runtime: Runtime = getattr(import_module(module), attribute)
    except Exception as error:
        raise PluginError(
            f"The runtime {name!r} cannot be loaded: {type(error).__name__}: {error}.",
            remedy="Write the name of a runtime, or MODULE:ATTRIBUTE of one that Python can import.",
        ) from error
    return runtime


def carry_out(order: MeasureOrder, tell: Tell) -> None:
    """Measure what the order says, and report how it ended."""
    try:
        runtime = runtime_named(order.runtime)
        with notices.told_to(lambda stage: tell("progress", LoopProgress(stage=stage, done=0, share=0.0))):
            if order.text:
                from inferometer.measure.run.texts import measure_text  # noqa: PLC0415 - each brings what it needs

                measure_text(order, runtime, tell)
            else:
                from inferometer.measure.run.arrays import measure_arrays  # noqa: PLC0415 - as above

                measure_arrays(order, runtime, tell)
    except InferometerError as error:
        tell("ended", ("refused", error.message, error.remedy))
    except MemoryError:
        tell("ended", ("too-big", "The memory was not enough.", None))
    except KeyboardInterrupt:
        tell("ended", ("stopped", None, None))
    except Exception as error:  # noqa: BLE001 - whatever an engine raises is a result
        tell("ended", ("failed", f"{type(error).__name__}: {error}", None))
    else:
        tell("ended", ("done", None, None))


def main() -> None:
    """`python -m inferometer.measure.run.child LOG`."""
    answers = os.fdopen(os.dup(1), "wb")
    with open(sys.argv[1], "ab", buffering=0) as log:  # noqa: PTH123 - a descriptor is wanted
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        order: MeasureOrder = pickle.load(sys.stdin.buffer)  # noqa: S301 - written by our own parent
        carry_out(order, _Teller(answers).tell)
        answers.close()
    sys.stdout.flush()
    os._exit(0)  # an orderly exit may hang in an engine's own threads


class _Teller:
    """Sends answers. Of one stage, progress is sent a few times a second at most: it must not disturb what runs."""

    def __init__(self, answers: IO[bytes], clock: Callable[[], float] = time.monotonic) -> None:
        self._answers, self._clock, self._sent, self._stage = answers, clock, 0.0, ""

    def tell(self, field: str, value: Any) -> None:
        now = self._clock()
        if field == "progress":
            if value.stage == self._stage and now - self._sent < _PROGRESS_S:
                return
            self._stage = value.stage
        self._sent = now
        data = pickle.dumps((field, value), protocol=pickle.HIGHEST_PROTOCOL)
        self._answers.write(LENGTH.pack(len(data)) + data)
        self._answers.flush()


if __name__ == "__main__":
    main()
