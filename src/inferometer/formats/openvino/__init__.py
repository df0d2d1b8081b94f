"""OpenVINO's intermediate representation: an XML file of layers, and a .bin file of their constants beside it.

Opening an IR by its .xml file. The .bin file beside it is looked at only for the few numbers that shapes need.
"""

import re
from pathlib import Path

from inferometer.core.errors import FormatError
from inferometer.core.graph import Graph
from inferometer.formats.base import Peek
from inferometer.formats.onnx.faults import reading
from inferometer.formats.onnx.messages import Wire

_NET = re.compile(  # after a byte-order mark, a declaration and comments, where there are some
    rb"^(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*\?>\s*)?(?:<!--(?:[^-]|-(?!->))*-->\s*)*<net\s[^>]*\bversion\s*=\s*[\"'](\d+)"
)
_AGAIN = "Convert it again: openvino.save_model writes the .xml and the .bin file."
_OLDEST, _LARGEST = 10, 1 << 30


_LANGUAGE_MODEL = "openvino_model.xml"  # how exporters of language models call the network in a folder


class OpenvinoReader:
    """An IR, or the folder of a language model with one in it, which is a format of its own."""

    name = "openvino"
    formats = frozenset({"openvino", "openvino-genai"})

    def match(self, peek: Peek) -> float:
        if peek.is_folder:
            return 0.95 if _LANGUAGE_MODEL in peek.names else 0.0
        return 1.0 if _NET.match(peek.head) else 0.0

    def read(self, path: Path) -> Graph:
        from inferometer.formats.onnx.assemble import assemble_model  # noqa: PLC0415 - matching a file needs none of it
        from inferometer.formats.openvino.convert import as_onnx, folder_graph  # noqa: PLC0415 - as above
        from inferometer.formats.openvino.net import parse_net  # noqa: PLC0415 - as above

        path = Path(path)
        if path.is_dir():
            return folder_graph(self.read(path / _LANGUAGE_MODEL), path)
        with reading(path, "an OpenVINO IR", remedy=_AGAIN):
            if path.stat().st_size > _LARGEST:
                raise FormatError(f"{str(path)!r} is larger than an IR's XML file may be ({_LARGEST:,} bytes).")
            data = path.read_bytes()
            version = _NET.match(data)
            if version is None:
                raise FormatError(f"{str(path)!r} is not an OpenVINO IR: it does not start with <net … version=…>.")
            if int(version[1][:9]) < _OLDEST:
                raise FormatError(
                    f"{str(path)!r} is an IR of version {version[1].decode()}; {_OLDEST} and later are read.",
                    remedy="Convert the original model again with a newer OpenVINO (openvino.convert_model).",
                )
            return assemble_model(path, as_onnx(parse_net(data), path), Wire(b""))


reader = OpenvinoReader()

__all__ = ["OpenvinoReader", "reader"]
