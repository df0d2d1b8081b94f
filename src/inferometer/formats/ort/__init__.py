"""ONNX Runtime's own format (.ort): a flatbuffer of a graph that its optimiser has gone through.

Opening .ort files. Their graphs have ONNX's operators, so they are assembled as an ONNX file's are.
"""

import mmap
from pathlib import Path

from inferometer.core.errors import FormatError
from inferometer.core.graph import Graph
from inferometer.formats.base import Peek
from inferometer.formats.onnx.faults import reading
from inferometer.formats.onnx.messages import Wire

_AGAIN = "Convert it again: python -m onnxruntime.tools.convert_onnx_models_to_ort MODEL.onnx."
IDENTIFIER = b"ORTM"


class OrtReader:
    name = "ort"
    formats = frozenset({"ort"})

    def match(self, peek: Peek) -> float:
        return 1.0 if peek.head[4:8] == IDENTIFIER else 0.0

    def read(self, path: Path) -> Graph:
        from inferometer.formats.onnx.assemble import assemble_model  # noqa: PLC0415 - matching a file needs none of it
        from inferometer.formats.ort.parse import parse_session  # noqa: PLC0415 - as above

        path = Path(path)
        with (
            reading(path, "an ORT model", remedy=_AGAIN),
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            if data[4:8] != IDENTIFIER:
                raise FormatError(f"{str(path)!r} is not in ONNX Runtime's format.")
            return assemble_model(path, parse_session(data, path), Wire(data))


reader = OrtReader()

__all__ = ["OrtReader", "reader"]
