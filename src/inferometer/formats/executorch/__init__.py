"""ExecuTorch's programs (.pte): a flatbuffer of instructions and values, and what was lowered to backends behind it.

Opening an ExecuTorch program. Its weights are counted where they lie and never read.
"""

import mmap
from pathlib import Path

from inferometer.core.errors import FormatError
from inferometer.core.graph import Graph
from inferometer.formats.base import Peek

_IDENTIFIER = b"ET12"
_REMEDY = "Convert the model again, with ExecuTorch or `inferometer prepare MODEL --for executorch`."


class PteReader:
    name = "executorch"
    formats = frozenset({"pte"})

    def match(self, peek: Peek) -> float:
        return 1.0 if not peek.is_folder and peek.head[4:8] == _IDENTIFIER else 0.0

    def read(self, path: Path) -> Graph:
        from inferometer.formats.executorch.graph import pte_graph  # noqa: PLC0415 - matching a file needs none of it
        from inferometer.formats.executorch.program import parse_program  # noqa: PLC0415 - as above

        path = Path(path)
        try:
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return pte_graph(parse_program(data, path), data, path)
        except FileNotFoundError:
            raise FormatError(f"There is no file {str(path)!r}.", remedy="Check the path.") from None
        except FormatError as error:
            if str(path) in error.message:
                raise
            raise FormatError(f"{str(path)!r} cannot be read: {error.message}", remedy=_REMEDY) from error
        except (OSError, ValueError) as error:
            raise FormatError(f"{str(path)!r} cannot be opened: {error}.") from None
        except (IndexError, KeyError, TypeError, ZeroDivisionError) as error:
            raise FormatError(
                f"{str(path)!r} is not a sound ExecuTorch file: an instruction has arguments that do not fit it "
                f"({error}).", remedy=_REMEDY,
            ) from error  # fmt: skip


reader = PteReader()

__all__ = ["PteReader", "reader"]
