"""What goes in: the user's file, or one made with random weights of a model that has none."""

import hashlib
from pathlib import Path

from inferometer.core.cache import is_kept
from inferometer.core.engine import EngineDescriptor
from inferometer.core.graph import Graph, is_generative
from inferometer.core.notices import tell
from inferometer.core.settings import cache_folder
from inferometer.formats.resolve import read
from inferometer.known.files import row_named
from inferometer.known.networks import require_file
from inferometer.measure.prepare.chain import usable
from inferometer.measure.prepare.steps import SUFFIXES
from inferometer.measure.run.model_file import config_hash
from inferometer.version import __version__

_MADE_OF = frozenset({"config", None})  # models without weights of their own: random ones are made


def source_of(model: str, engine: EngineDescriptor, *, image: int | None = None, seed: int = 0) -> Path:
    """The model's file, made with random weights first if the model has none."""
    graph = _graph(model)
    if not _is_made(model, graph):
        return Path(model).resolve()
    from inferometer.formats.synth import synthesise  # noqa: PLC0415 - brings what writes files, only where one is written

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
