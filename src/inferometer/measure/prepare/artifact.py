"""What goes into a preparation and what comes out: the model to start from, and the file or folder that is written.

Its name asks for a format; it is written whole or not at all.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, field, replace
from pathlib import Path

from inferometer.core.cache import is_kept
from inferometer.core.engine import EngineDescriptor
from inferometer.core.errors import DomainError, FormatError, InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph, is_generative
from inferometer.core.notices import tell
from inferometer.core.settings import cache_folder
from inferometer.formats.resolve import read
from inferometer.formats.synth import synthesise
from inferometer.formats.synth.files import landing, landing_folder
from inferometer.known.files import row_named
from inferometer.known.zoo import require_file
from inferometer.measure.prepare.carrying_out import model_files
from inferometer.measure.prepare.chain import goals_of, usable
from inferometer.measure.prepare.steps import COMPANIONS, FOLDERS, SUFFIXES
from inferometer.measure.run.model_file import config_hash
from inferometer.version import __version__

# What a prepared file was made of, so that advice about it can begin there: most formats lead to no other.
#
# It is kept beside the cache by the file's content, and holds wherever the file is copied to on this machine.

_PIECE = 1 << 16  # of the beginning and the end of each file: a whole one may have gigabytes


@frozen
class Origin:
    """`model` is a name of the catalog, or a path. `image` and `sizes` are fixed in some of the files made of it."""

    model: str
    image: int | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)


def keep_origin(artifact: Path, origin: Origin) -> None:
    """A cache that cannot be written is none."""
    model = origin.model if row_named("models", origin.model) else str(Path(origin.model).resolve())
    with suppress(OSError):
        place = _place(artifact)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(asdict(replace(origin, model=model))), encoding="utf-8")


def origin_of(model: str) -> Origin | None:
    """What a file was made of here, if that is still there."""
    try:
        origin = Origin(**json.loads(_place(Path(model)).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, InferometerError):
        return None
    return origin if row_named("models", origin.model) or Path(origin.model).exists() else None


def _place(path: Path) -> Path:
    digest = hashlib.sha256()
    for file in model_files(path):
        size = file.stat().st_size
        with file.open("rb") as content:
            digest.update(f"{size}\0".encode() + content.read(_PIECE))
            content.seek(max(0, size - _PIECE))
            digest.update(content.read(_PIECE))
    return cache_folder() / "prepared" / "origins" / digest.hexdigest()[:32]


def goal_of(out: Path | None, engine: EngineDescriptor, overwrite: bool) -> str | None:
    """The format that the name of the file asks for; refused before any work, if it cannot be."""
    if out is None:
        return None
    if out.exists() and not overwrite:
        raise DomainError(f"{out} exists already.", remedy="Give another name, or overwrite it with --overwrite.")
    # Before any work: what is not there yet is made in the nearest folder that is
    there = next(parent for parent in (out.absolute().parent, *out.absolute().parent.parents) if parent.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise DomainError(f"Nothing can be written in {there}.", remedy="Choose a folder you may write to.")
    opens = [form for form in engine.opens if form in SUFFIXES]
    named = (form for form in (*goals_of(engine), *SUFFIXES) if out.name.endswith(SUFFIXES.get(form, "/")))
    goal = next(named, None)
    folder = next((form for form in engine.opens if form in FOLDERS), None)
    if folder is not None and (goal is None or not opens):
        # the folder is replaced as a whole: one that holds something else is left alone
        if goal is not None or out.is_file():
            raise FormatError(
                f"{engine.title} opens a folder, and {out.name} is the name of a file.", remedy="Name a folder."
            )
        if out.is_dir() and any(out.iterdir()) and not (out / FOLDERS[folder]).is_file():
            raise DomainError(
                f"{out} holds other things than a model of {engine.title}, and would be replaced.",
                remedy="Name a folder of its own.",
            )
        return folder
    if goal not in opens:
        endings = " or ".join(dict.fromkeys(SUFFIXES[form] for form in opens))
        raise FormatError(f"{out.name} is no name of a file that {engine.title} opens.", remedy=f"End it in {endings}.")
    if out.is_dir():
        raise DomainError(f"{out} is a folder, where {out.name} is to be a file.", remedy="Give another name.")
    beside = out.with_suffix(COMPANIONS[goal]) if goal in COMPANIONS else None
    if beside is not None and beside.exists() and not overwrite:
        raise DomainError(
            f"{beside} exists already, where the weights of {out.name} would lie.",
            remedy="Give another name, or overwrite it with --overwrite.",
        )
    return goal


def require_another(out: Path | None, source: Path) -> None:
    """Refuse to write over the model itself, which everything is proven against."""
    if out is not None and out.resolve() in {source, *source.parents}:
        raise DomainError(
            f"{out} is the model itself, or has it inside, and would be replaced.", remedy="Give another name."
        )


def written(path: Path, out: Path | None, *, overwrite: bool) -> Path:
    """The artifact under the user's name, all of its files or none; without a name it stays in the cache."""
    if out is None:
        return path
    if path.is_dir():
        with landing_folder(out, overwrite=overwrite, needs_bytes=bytes_of(path)) as partial:
            shutil.copytree(path, partial)
        return out
    form = next(form for form, suffix in SUFFIXES.items() if path.name.endswith(suffix))
    pairs = [(path, out)]
    if form in COMPANIONS:
        pairs.insert(0, (path.with_suffix(COMPANIONS[form]), out.with_suffix(COMPANIONS[form])))
    pairs = [*((file, out.parent / file.name) for file in model_files(path) if file.suffix == ".data"), *pairs]
    size = sum(file.stat().st_size for file, _ in pairs)
    with landing(*(place for _, place in pairs), overwrite=overwrite, needs_bytes=size) as partial:
        for (file, _), place in zip(pairs, partial, strict=True):
            shutil.copyfile(file, place)
    return out


def bytes_of(path: Path) -> int:
    return sum(file.stat().st_size for file in model_files(path))


# What goes in: the user's file, or one made with random weights of a model that has none.

_MADE_OF = frozenset({"config", None})  # models without weights of their own: random ones are made


def source_of(model: str, engine: EngineDescriptor, *, image: int | None = None, seed: int = 0) -> Path:
    """The model's file, made with random weights first if the model has none."""
    graph = _graph(model)
    if not _is_made(model, graph):
        return Path(model).resolve()
    kind = _kind_for(graph, engine)
    sides = dict.fromkeys(("image", "height", "width") if image is not None and kind != "safetensors" else (), image)
    sizes = {name: size for name, size in sides.items() if size is not None and name in graph.symbols}
    asked = f"{model}{config_hash(Path(model))}{sorted(sizes.items())}{seed}{kind}{__version__}"
    folder = cache_folder() / "models" / f"prepare-{hashlib.sha256(asked.encode()).hexdigest()[:12]}"
    path = folder / f"{Path(model).name}{SUFFIXES.get(kind, '')}"
    tell(f"{model} has no weights: random ones are made at the exact shapes …")
    if not is_kept(path):
        synthesise(model, path, format=kind, weights="f32", seed=seed, sizes=sizes)
    return path


def starting_format(model: str, engine: EngineDescriptor) -> tuple[str, bool]:
    """The format that the steps begin with, and whether the model makes tokens. Nothing is made for that."""
    graph = _graph(model)
    form = _kind_for(graph, engine) if _is_made(model, graph) else graph.metadata["format"]
    return form, is_generative(graph)


def _graph(model: str) -> Graph:
    if row_named("models", model) is None:
        require_file(model)
    return read(model)


def _is_made(model: str, graph: Graph) -> bool:
    return row_named("models", model) is not None or graph.metadata.get("format") in _MADE_OF


def _kind_for(graph: Graph, engine: EngineDescriptor) -> str:
    """A checkpoint of a language model, if the engine takes one; TFLite where ONNX does not lead to what it opens."""
    generates = is_generative(graph)
    steps = usable(engine, generates=generates)

    def leads(form: str) -> bool:
        return form in engine.opens or any(form in step.takes and step.gives in engine.opens for step in steps)

    if generates and leads("safetensors"):
        return "safetensors"
    return "tflite" if leads("tflite") and not leads("onnx") else "onnx"
