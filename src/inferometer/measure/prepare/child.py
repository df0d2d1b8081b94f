"""The process in which a tool runs: it may crash, hang, print or use up the memory, and the parent lives on.

`python -m inferometer.measure.prepare.child ORDER ANSWER`: both are pickles, written and read by the same program.
"""

import os
import pickle
import sys
from importlib import import_module
from pathlib import Path

from inferometer.core.errors import InferometerError
from inferometer.engines.order import ToolAnswer, ToolOrder

ENGINES = "inferometer.engines"  # where steps name their tools from


def carry_out(work: str, order: ToolOrder) -> ToolAnswer:
    """Call the tool, one of ours or a function elsewhere by its full name; whatever it raises is an answer."""
    module, _, function = work.partition(":")
    try:
        notes = tuple(getattr(import_module(module, ENGINES), function)(order) or ())
    except InferometerError as error:
        return ToolAnswer(error=error.message, remedy=error.remedy)
    except MemoryError:
        return ToolAnswer(error="The memory was not enough.", remedy="Use a machine with more memory.")
    except Exception as error:  # noqa: BLE001 - a tool may raise anything, and all of it is for the user
        text = str(error).strip() or "no reason was given"
        return ToolAnswer(error=f"{type(error).__name__}: {text}")
    return ToolAnswer(notes=notes)


def main() -> None:
    work, order = pickle.loads(Path(sys.argv[1]).read_bytes())  # noqa: S301 - written by our own parent
    answer = carry_out(work, order)
    Path(sys.argv[2]).write_bytes(pickle.dumps(answer))
    sys.stdout.flush()
    os._exit(0)  # an orderly exit may hang in a tool's own threads


if __name__ == "__main__":
    main()
