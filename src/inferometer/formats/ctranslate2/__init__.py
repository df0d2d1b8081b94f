"""CTranslate2's folders: a file with the weights and the switches of the architecture, and a vocabulary.

Opening a folder of CTranslate2, or the `model.bin` in it.
"""

from dataclasses import replace
from pathlib import Path

from inferometer.core.errors import FormatError
from inferometer.core.graph import Graph
from inferometer.formats.base import Peek

_WEIGHTS = "model.bin"
_VOCABULARIES = ("vocabulary.json", "vocabulary.txt")
_DECODER = "TransformerDecoderSpec"


class CTranslate2Reader:
    name = "ctranslate2"
    formats = frozenset({"ctranslate2"})

    def match(self, peek: Peek) -> float:
        """A folder by what lies in it; a file by the name of a class, which follows the version and its own length."""
        if peek.is_folder:
            return 0.95 if _WEIGHTS in peek.names and any(name in peek.names for name in _VOCABULARIES) else 0.0
        length = int.from_bytes(peek.head[4:6], "little")
        name = peek.head[6 : 6 + length]
        return 0.95 if 5 < length < 100 and name.endswith(b"Spec\0") and name[:-1].isalnum() else 0.0

    def read(self, path: Path) -> Graph:
        from inferometer.formats.ctranslate2.graph import (  # noqa: PLC0415 - matching needs none of it
            decoder_graph,
            read_variables,
        )

        file = path / _WEIGHTS if path.is_dir() else path
        held = read_variables(file)
        if held.architecture != _DECODER:
            raise FormatError(
                f"{str(path)!r} holds a {held.architecture} of CTranslate2; language models ({_DECODER}) are read.",
                remedy="Give a model that only decodes, such as a Llama.",
            )
        graph = decoder_graph(held, name=file.resolve().parent.name)
        return replace(graph, metadata={**graph.metadata, "format": "ctranslate2"})


reader = CTranslate2Reader()

__all__ = ["CTranslate2Reader", "reader"]
