"""Folders of ONNX Runtime GenAI: a config of the generation, and the ONNX file of the decoder.

Opening a folder of ONNX Runtime GenAI, or the config in it: the graph is that of the decoder's ONNX file.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from inferometer.core.errors import FormatError
from inferometer.core.graph import Graph
from inferometer.core.json_text import parse_json
from inferometer.formats.base import Peek

_CONFIG = "genai_config.json"
_KEYS = (b'"decoder"', b'"context_length"', b'"vocab_size"')

_HEAD = "kv_cache_dim"  # newer builders leave a head's width open in the file; the config says it


class GenaiReader:
    name = "onnxruntime-genai"
    formats = frozenset({"onnxruntime-genai"})

    def match(self, peek: Peek) -> float:
        if peek.is_folder:
            return 0.95 if _CONFIG in peek.names else 0.0
        head = peek.head.lstrip(b"\xef\xbb\xbf \t\r\n")
        return 0.9 if head.startswith(b"{") and all(key in head for key in _KEYS) else 0.0

    def read(self, path: Path) -> Graph:
        from inferometer.formats.onnx import reader as onnx_reader  # noqa: PLC0415 - matching needs none of it

        file = path / _CONFIG if path.is_dir() else path
        model = _model(file)
        decoder, limit = model["decoder"], model.get("context_length")
        graph = onnx_reader.read(file.parent / decoder["filename"])
        facts: dict[str, Any] = {"format": "onnxruntime-genai"}
        if _HEAD in graph.symbols and isinstance(decoder.get("head_size"), int):
            facts["default_sizes"] = {**graph.metadata.get("default_sizes", {}), _HEAD: decoder["head_size"]}
        return replace(
            graph, name=file.resolve().parent.name, metadata={**graph.metadata, **facts},
            context_limit=limit if isinstance(limit, int) else graph.context_limit,
        )  # fmt: skip


def _model(file: Path) -> dict[str, Any]:
    """What the config says of the model, whose decoder's file lies beside it."""
    try:
        config: Any = parse_json(file.read_text(encoding="utf-8"))
        model: dict[str, Any] = config["model"]
        name = model["decoder"]["filename"]
    except OSError as error:
        raise FormatError(f"{str(file)!r} cannot be opened: {error}.", remedy="Check the path.") from None
    except ValueError as error:
        raise FormatError(f"{str(file)!r} is no JSON that can be read: {error}.") from None
    except (KeyError, TypeError, IndexError):
        name, model = None, {}
    # By the names that are there: one of another folder, or longer than a name can be, is none of them.
    if not isinstance(name, str) or name not in {path.name for path in file.parent.iterdir() if path.is_file()}:
        raise FormatError(
            f"{str(file)!r} does not name the ONNX file of a decoder that lies beside it.",
            remedy="Make the folder again: `inferometer prepare CHECKPOINT --for onnxruntime-genai -o FOLDER`.",
        )
    return model


reader = GenaiReader()

__all__ = ["GenaiReader", "reader"]
