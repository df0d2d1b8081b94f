"""Where catalog rows come from: the built-in files, then the folders the user names."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, wraps
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar

from inferometer.core import settings
from inferometer.core.cache import write_whole
from inferometer.core.errors import CatalogError, UnknownNameError
from inferometer.core.settings import cache_folder
from inferometer.known.load import CatalogRow, CatalogRows, file_text, parse_file, parse_text, read_rows, rows_in

# Split a TOML file into its tables as text, so that one row can be read without parsing the others.
#
# Parsing a whole file takes longer than anything else one row is asked for. It needs a file in which every table
# starts with its header at the beginning of a line, and nothing else has a bracket there. Our own files are so
# written, and the tests hold them to it; a user's file may be any TOML, and is parsed whole.


def tables(text: str) -> list[tuple[tuple[str, str], str]]:
    """The first two keys of each header (the second may be empty), with the table's text, in the file's order."""
    _, *parts = f"\n{text}".split("\n[")
    return [(_first_keys(part.partition("]")[0].lstrip("[")), f"[{part}\n") for part in parts]


def _first_keys(header: str) -> tuple[str, str]:
    first, rest = _key(header)
    return first, _key(rest)[0]


def _key(dotted: str) -> tuple[str, str]:
    """The first key of a dotted one, and the rest."""
    if dotted.startswith('"'):
        key, _, rest = dotted[1:].partition('"')
        return key, rest.removeprefix(".")
    key, _, rest = dotted.partition(".")
    return key, rest


def excerpt(text: str, table: str, word: str) -> str:
    """The rows `[table.NAME…]` whose text has the word in it, with every source they may cite."""
    parts = tables(text)
    named = {name for (first, name), part in parts if first == table and word in part}
    rows = [part for (first, name), part in parts if first == table and name in named]
    row_text = "".join(rows)
    sources = [part for (first, name), part in parts if first == "sources" and name in row_text]
    return "".join([*sources, *rows])


# The built-in files of a kind, parsed once: TOML takes a thousand device rows half a second, JSON a few milliseconds.
#
# What was parsed lies in the cache folder under a hash of the very text, so that a file that changes is parsed again.

T = TypeVar("T")
P = ParamSpec("P")

_WORTH_IT = 10_000  # characters; fewer are parsed as quickly as found


def parsed_files(kind: str, files: Sequence[Path], folder: Path | None = None) -> list[tuple[Path, Mapping[str, Any]]]:
    texts = [file_text(file) for file in files]

    def parsed() -> list[dict[str, Any]]:
        return [parse_text(text, file) for file, text in zip(files, texts, strict=True)]

    worth_it = sum(map(len, texts)) >= _WORTH_IT
    contents = kept_in_cache(kind, _mark(files, texts), parsed, folder) if worth_it else parsed()
    return list(zip(files, contents, strict=True))


def kept_in_cache(kind: str, mark: str, make: Callable[[], T], folder: Path | None = None) -> T:
    """What was made under the same mark before, as JSON has it; made now, and kept, where nothing was."""
    path = (folder or cache_folder()) / "catalog" / f"{kind}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):
        document = json.loads(path.read_bytes())
        if document["mark"] == mark:
            kept: T = document["contents"]
            return kept
    contents = make()
    _keep(path, {"mark": mark, "contents": contents})
    return contents


def mark_of_catalog(*also: str) -> str:
    """What every value of the catalog stands on: its files, ours and the user's, and the code that reads them.

    `also` are files of those who make something else of the values.
    """
    data = sorted(_BUILT_IN.glob("*.toml")) + sorted(_BUILT_IN.glob("*/*.toml"))
    files = [*data, *_theirs(settings.catalog_folders())]
    code = [*_BUILT_IN.parent.glob("*.py"), *Path(settings.__file__).parent.glob("*.py"), *map(Path, also)]
    stamps = [(str(file), stat.st_mtime_ns, stat.st_size) for file in code for stat in [file.stat()]]
    return (
        _mark(files, [file_text(file) for file in files]) + blake2b(repr(stamps).encode(), digest_size=16).hexdigest()
    )


def _mark(files: Sequence[Path], texts: Sequence[str]) -> str:
    digest = blake2b(digest_size=16)
    for file, text in zip(files, texts, strict=True):
        data = text.encode()
        digest.update(f"{file.name} {len(data)}\n".encode() + data)
    return digest.hexdigest()


def _keep(path: Path, document: Mapping[str, Any]) -> None:
    """Whole or not at all. A folder that cannot be written costs a parse each time, and TOML's dates are not JSON's."""
    with suppress(OSError, TypeError):
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        write_whole(path, text.encode())


_BUILT_IN = Path(__file__).parent / "data"
# The command that lists each kind of rows.
_COMMANDS = {
    "devices": "devices", "models": "models", "links": "catalog links", "instances": "catalog instances",
    "grids": "catalog grids", "pue": "catalog pue", "levels": "catalog memory",
}  # fmt: skip


def rows_of(kind: str) -> CatalogRows:
    """The rows of one kind: devices, models, links, instances, grids, pue, levels, dtypes, cores, usable."""
    return _rows(kind, settings.catalog_folders())


def row_named(kind: str, name: str) -> CatalogRow | None:
    """The row of that name or alias. Only rows that hold the name are parsed: one should not cost all of them."""
    whole = _READ.get((kind, settings.catalog_folders()))
    rows = whole or rows_with(kind, name)
    canonical = rows.canonical(name)
    if whole is None and canonical is None and name.casefold() != name:  # the catalog's own names have small letters
        rows = rows_with(kind, name.casefold())
        canonical = rows.canonical(name)
    return None if canonical is None else rows.by_name[canonical]


def is_built_in(kind: str, name: str) -> bool:
    """Whether a row comes with Inferometer, and is the same wherever that is; not one of the user's own catalog."""
    return _with(kind, name, ()).canonical(name) is not None


def of_catalog(make: Callable[P, T]) -> Callable[P, T]:
    """Keep what a function makes of rows. The folders that the user names decide on those, so it is kept for them."""

    @cache
    def made(_folders: tuple[Path, ...], *given: P.args, **named: P.kwargs) -> T:
        return make(*given, **named)

    @wraps(make)
    def kept(*given: P.args, **named: P.kwargs) -> T:
        return made(settings.catalog_folders(), *given, **named)  # type: ignore[arg-type] # names of rows are hashable

    vars(kept)["cache_clear"] = made.cache_clear
    return kept


@of_catalog
def all_of(kind: str, make: Callable[[CatalogRow], T]) -> Mapping[str, T]:
    """Every row of a kind as the value that `make` turns it into, by name; made once, as the rows are read once."""
    return MappingProxyType({name: make(row) for name, row in rows_of(kind).by_name.items()})


def one_named(
    kind: str, name: str, make: Callable[[CatalogRow], T], *, what: str, also: Iterable[str] = ()
) -> T:  # fmt: skip
    """The row of that name or alias, in any case, as a value. `also` are names that a suggestion may offer."""
    row = row_named(kind, name)
    if row is None:
        rows = rows_of(kind)
        listing = f"`inferometer {_COMMANDS[kind]}` lists them." if kind in _COMMANDS else None
        raise UnknownNameError(what, name, (*rows.by_name, *also), listing=listing, words=rows.words())
    return make(row)


def rows_with(kind: str, word: str) -> CatalogRows:
    """Every row that has the word anywhere in it, and some that have not."""
    return _with(kind, word, settings.catalog_folders())


def own_texts(kind: str) -> list[str]:
    """The text of the built-in files of a kind, for those who need a few of its lines and no parser."""
    return [_text(file) for file in _own(kind)]


def names_of(kind: str) -> list[str]:
    """The names of a kind's rows, found without a parser: shells that complete them wait for it."""
    heading = re.compile(rf'^\[{kind}\.(?:"([^"]+)"|([\w-]+))\]\s*$', re.MULTILINE)
    own = [quoted or bare for text in own_texts(kind) for quoted, bare in heading.findall(text)]
    return [*own, *(row.name for row in rows_of_users(kind))]


def rows_of_users(kind: str) -> Iterable[CatalogRow]:
    """The rows of the folders that the user names."""
    return read_rows(_theirs(settings.catalog_folders()), kind).by_name.values()


@cache
def _with(kind: str, word: str, folders: tuple[Path, ...]) -> CatalogRows:
    own = [(file, text) for file in _own(kind) if word in (text := _text(file))]
    parsed = [(file, parse_text(excerpt(text, kind, word), file)) for file, text in own]
    return rows_in([*parsed, *((file, parse_file(file)) for file in _theirs(folders) if word in _text(file))], kind)


_READ: dict[tuple[str, tuple[Path, ...]], CatalogRows] = {}  # kinds that were read whole


def _rows(kind: str, folders: tuple[Path, ...]) -> CatalogRows:
    rows = _READ.get((kind, folders))
    if rows is None:
        theirs = ((file, parse_file(file)) for file in _theirs(folders))
        rows = _READ[kind, folders] = rows_in([*parsed_files(kind, _own(kind)), *theirs], kind)
    return rows


def _own(kind: str) -> list[Path]:
    files = [*(_BUILT_IN / kind).glob("*.toml")]
    if kind == "engines":  # the row of an engine that runs lies with its code
        files += _BUILT_IN.parents[1].glob("engines/*/*.engine.toml")
    return sorted(files, key=lambda file: file.name) or [_BUILT_IN / _FILES[kind]]


def _theirs(folders: tuple[Path, ...]) -> list[Path]:
    return [file for folder in folders for file in _toml_files(folder)]


def _text(file: Path) -> str:
    """What a file says, as far as it is text: parsing it will say what is wrong with it."""
    return file.read_text(encoding="utf-8", errors="replace")


_FILES = {
    "links": "links.toml",
    "schedulers": "schedulers.toml",
    "instances": "instances.toml",
    "grids": "grids.toml",
    "pue": "grids.toml",
    "levels": "hierarchy.toml",
    "dtypes": "dtypes.toml",
    "cores": "cores.toml",
    "usable": "usable.toml",
}


def _toml_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise CatalogError(
            f"INFEROMETER_CATALOG names {str(folder)!r}, which is not a folder.",
            remedy="Name folders that hold TOML files, or unset it.",
        )
    return sorted(folder.glob("*.toml"))
