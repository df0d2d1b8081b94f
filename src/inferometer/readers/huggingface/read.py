"""The reader of `config.json`: JSON only, no weights, no code."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from inferometer.core.graph import Graph
from inferometer.errors import FormatError
from inferometer.readers.base import Peek
from inferometer.readers.huggingface.graph import graph_from_config

LARGEST_CONFIG = 16 * 1024 * 1024  # bytes; published configs have a few thousand
_NAMES = ("config.json", "model_index.json")
_KEYS = (b'"model_type"', b'"architectures"', b'"_class_name"')
_DENOISERS = ("unet", "transformer")


class HuggingFaceReader:
    """A config file, or a folder that holds one. Of a diffusers pipeline the denoiser is read."""

    name = "huggingface"
    formats = frozenset({"config.json"})

    def match(self, peek: Peek) -> float:
        """A folder with weights in it belongs to the reader of those, which is surer."""
        if peek.is_folder:
            return 0.5 if any(name in peek.names for name in _NAMES) else 0.0
        head = peek.head.lstrip(b"\xef\xbb\xbf \t\r\n")
        if not head.startswith(b"{"):
            return 0.0
        return 0.8 if any(key in head for key in _KEYS) else 0.0

    def read(self, path: Path) -> Graph:
        file = _config_in(path)
        # Errors name the file; the graph is called after its folder.
        graph = graph_from_config(_loaded(file), name=str(file))
        folder = file.resolve().parent
        return replace(graph, name=folder.name or file.stem)


def _config_in(path: Path) -> Path:
    if not path.is_dir():
        return path
    if (path / "config.json").is_file():
        return path / "config.json"
    if (path / "model_index.json").is_file():
        for part in _DENOISERS:
            if (path / part / "config.json").is_file():
                return path / part / "config.json"
    raise FormatError(
        f"The folder {str(path)!r} has no config.json.", remedy="Give a folder with a config.json, or the file itself."
    )


def _loaded(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST_CONFIG + 1)
    except (OSError, ValueError) as error:
        raise FormatError(f"{str(path)!r} cannot be opened: {error}.") from None
    if len(text) > LARGEST_CONFIG:
        raise FormatError(f"{str(path)!r} has more than {LARGEST_CONFIG} bytes, which no config has.")
    try:
        config = json.loads(text.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        raise FormatError(f"{str(path)!r} is no JSON: {error.msg} at byte {error.pos}.") from None
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{str(path)!r} is no JSON that can be read: {type(error).__name__}.") from None
    if not isinstance(config, dict):
        raise FormatError(f"{str(path)!r} holds a JSON {type(config).__name__}, and a config is an object.")
    return config


reader = HuggingFaceReader()
