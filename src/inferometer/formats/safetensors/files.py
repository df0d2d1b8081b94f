"""Which files make up a model, and what they hold together."""

import re
from pathlib import Path
from typing import Any

from inferometer.core.errors import FormatError
from inferometer.core.json_text import parse_json
from inferometer.formats.safetensors.header import SafetensorsHeader, read_header

_INDEX = ".safetensors.index.json"
_SUFFIX = ".safetensors"
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")
_USUAL = ("model.safetensors", "diffusion_pytorch_model.safetensors")
_TEXT_LIMIT = 1 << 26  # bytes of an index or a config
_MANY_FILES = 10_000


def headers_of(path: Path) -> tuple[SafetensorsHeader, ...]:
    """The headers of all files of the model that `path` names: a folder, an index, a whole file or a shard."""
    if path.is_dir():
        path = _chosen(path)
    if path.name.endswith(".json"):
        return _by_index(path)
    index = path.with_name(_SHARD.sub("", path.name.removesuffix(_SUFFIX)) + _INDEX)
    if _SHARD.search(path.name.removesuffix(_SUFFIX)) and index.is_file():
        return _by_index(index)
    return (read_header(path),)


def config_beside(path: Path) -> dict[str, Any] | None:
    """The `config.json` in the model's folder, if it is there."""
    file = (path if path.is_dir() else path.parent) / "config.json"
    return _document(file) if file.is_file() else None


def _chosen(folder: Path) -> Path:
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith((_SUFFIX, _INDEX)))
    indexes = [name for name in names if name.endswith(_INDEX)]
    files = [name for name in names if name.endswith(_SUFFIX)]
    if indexes:
        return folder / min(indexes, key=lambda name: (len(name), name))  # variants (fp16) have longer names
    usual = next((name for name in _USUAL if name in files), None)
    if usual is None and len(files) != 1:
        names_shown = ", ".join(files[:8]) or "no .safetensors file"
        raise FormatError(f"The folder {str(folder)!r} holds {names_shown}.", remedy="Name the file to read.")
    return folder / (usual or files[0])


def _by_index(path: Path) -> tuple[SafetensorsHeader, ...]:
    """The files an index names. It may only name files that lie beside it."""
    mapping = _document(path).get("weight_map")
    if not isinstance(mapping, dict) or not all(isinstance(name, str) for name in mapping.values()):
        raise FormatError(f"The index {str(path)!r} has no weight_map from tensors to files.")
    names = sorted(set(mapping.values()))
    if len(names) > _MANY_FILES:
        raise FormatError(f"The index {str(path)!r} names {len(names):,} files; at most {_MANY_FILES:,} are read.")
    for name in names:
        if not name.endswith(_SUFFIX) or name != Path(name).name or "\\" in name or ":" in name:
            raise FormatError(
                f"The index {str(path)!r} names {name[:200]!r}, which is no safetensors file beside it.",
                remedy="An index names files in its own folder only.",
            )
    headers = tuple(read_header(path.with_name(name)) for name in names)
    _require_agreement(path, mapping, headers)
    return headers


def _require_agreement(path: Path, mapping: dict[str, str], headers: tuple[SafetensorsHeader, ...]) -> None:
    held = {tensor.name: header.path.name for header in headers for tensor in header.tensors}
    if len(held) != sum(len(header.tensors) for header in headers):
        raise FormatError(f"The files of {str(path)!r} hold a tensor twice.")
    for tensor, file in mapping.items():
        if held.get(tensor) != file:
            where = held.get(tensor, "no file")
            raise FormatError(f"The index {str(path)!r} says {tensor[:200]!r} is in {file}; it is in {where}.")


def _document(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _TEXT_LIMIT:
            raise FormatError(f"{str(path)!r} is larger than {_TEXT_LIMIT:,} bytes.")
        document = parse_json(path.read_bytes())
    except FileNotFoundError:
        raise FormatError(f"There is no file {str(path)!r}.", remedy="Check the path.") from None
    except (OSError, ValueError) as error:
        raise FormatError(f"{str(path)!r} is not JSON that can be read: {str(error)[:200]}.") from None
    if not isinstance(document, dict):
        raise FormatError(f"{str(path)!r} is not a JSON object.")
    return document
