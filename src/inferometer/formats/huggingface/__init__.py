"""Hugging Face configs: architecture templates as data, expanded into a Graph.

The reader of `config.json`: JSON only, no weights, no code.
"""

import json
import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from inferometer.core.errors import FormatError, InferometerError, UnknownNameError
from inferometer.core.graph import Graph
from inferometer.core.json_text import parse_json
from inferometer.formats.base import Peek
from inferometer.formats.huggingface.config import Config
from inferometer.formats.huggingface.family import families, of_another_form
from inferometer.formats.huggingface.graph import graph_from_config

LARGEST_CONFIG = 16 * 1024 * 1024  # bytes; published configs have a few thousand
_NAMES = ("config.json", "model_index.json")
_KEYS = (b'"model_type"', b'"architectures"', b'"_class_name"')
_DENOISERS = ("unet", "transformer")
_PLAIN = re.compile(r"[A-Za-z0-9_\-]{1,64}")  # a model_type that may be the name of one of transformers' packages


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
        config = _loaded(file)
        try:
            graph = graph_from_config(config, name=str(file))
        except UnknownNameError as unknown:
            if unknown.kind != "architecture":
                raise
            graph = _by_its_module(config, file, unknown)
        except FormatError as lacking:
            if not of_another_form(Config(name=str(file), values=config)):
                raise
            graph = _by_its_module(config, file, lacking)
        folder = file.resolve().parent
        return replace(graph, name=folder.name or file.stem)


def _by_its_module(config: dict[str, Any], file: Path, unknown: InferometerError) -> Graph:
    """The graph of an architecture without a row: of transformers' own module, built without weights and traced.

    A row may also be for another library's form of the architecture, such as torchvision's of MobileNetV2.
    """
    name = str(config.get("model_type", ""))[:80]
    if not _PLAIN.fullmatch(name):
        raise unknown
    installed = find_spec("transformers")
    row = "no row here" if isinstance(unknown, UnknownNameError) else "no row here for a config of transformers' own"
    lacks = f"The architecture {name!r} of {str(file)!r} has {row}"
    if installed is None or find_spec("torch") is None:
        raise FormatError(
            f"{lacks}.",
            remedy="Where transformers knows it, its module is read in place of a row: pip install "
            f"'inferometer[torch]'. {unknown.remedy or ''}".rstrip(),
        ) from None
    places = installed.submodule_search_locations or ()
    if not any((Path(place) / "models" / name.replace("-", "_")).is_dir() for place in places):
        raise unknown  # transformers does not know it either; looking costs less than importing it
    from inferometer.formats.torch import read_pretrained_config  # noqa: PLC0415 - brings torch and transformers

    try:
        graph = read_pretrained_config(config, name=file.resolve().parent.name)
    except InferometerError as error:
        raise FormatError(
            f"{lacks}, and transformers' module of it cannot be read: {error.message[:400]}",
            remedy=error.remedy,
        ) from None
    note = f"{name} has {row}: the graph is that of transformers' module, traced without weights."
    return replace(graph, metadata={**graph.metadata, "notes": (*graph.metadata.get("notes", ()), note)})


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
        config = parse_json(text.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        raise FormatError(f"{str(path)!r} is no JSON: {error.msg} at byte {error.pos}.") from None
    except ValueError as error:
        raise FormatError(f"{str(path)!r} is no JSON that can be read: {type(error).__name__}.") from None
    if not isinstance(config, dict):
        raise FormatError(f"{str(path)!r} holds a JSON {type(config).__name__}, and a config is an object.")
    return config


reader = HuggingFaceReader()


__all__ = ["families", "graph_from_config", "reader"]
