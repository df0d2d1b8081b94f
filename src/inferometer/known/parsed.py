"""The built-in files of a kind, parsed once: TOML takes a thousand device rows half a second, JSON a few milliseconds.

What was parsed lies in the cache folder under a hash of the very text, so that a file that changes is parsed again.
"""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

from inferometer.core.settings import cache_folder
from inferometer.known.load import file_text, parse_text

_WORTH_IT = 10_000  # characters; fewer are parsed as quickly as found


def parsed_files(kind: str, files: Sequence[Path], folder: Path | None = None) -> list[tuple[Path, Mapping[str, Any]]]:
    texts = [file_text(file) for file in files]
    if sum(map(len, texts)) < _WORTH_IT:
        return [(file, parse_text(text, file)) for file, text in zip(files, texts, strict=True)]
    mark = _mark(files, texts)
    kept = (folder or cache_folder()) / "catalog" / f"{kind}.json"
    contents = _kept(kept, mark)
    if contents is None:
        contents = [parse_text(text, file) for file, text in zip(files, texts, strict=True)]
        _keep(kept, {"mark": mark, "contents": contents})
    return list(zip(files, contents, strict=True))


def _mark(files: Sequence[Path], texts: Sequence[str]) -> str:
    digest = blake2b(digest_size=16)
    for file, text in zip(files, texts, strict=True):
        data = text.encode()
        digest.update(f"{file.name} {len(data)}\n".encode() + data)
    return digest.hexdigest()


def _kept(path: Path, mark: str) -> list[dict[str, Any]] | None:
    try:
        document = json.loads(path.read_bytes())
        return document["contents"] if document["mark"] == mark else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep(path: Path, document: Mapping[str, Any]) -> None:
    """Whole or not at all. A folder that cannot be written costs a parse each time, and TOML's dates are not JSON's."""
    with suppress(OSError, TypeError):
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f"{path.name}.{os.getpid()}")
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
