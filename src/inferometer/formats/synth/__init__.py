"""From a model's name, config or graph to a runnable file with random weights at the exact shapes.

The same seed gives the same weights in every format, so two runtimes can be compared on one model that nobody had to
download. Files are written piece by piece: a model larger than the memory can be made.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from inferometer.core.dtypes import dtype, is_gguf_block
from inferometer.core.errors import FormatError, InferometerError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph
from inferometer.core.json_text import parse_json
from inferometer.formats.huggingface.graph import graph_from_config
from inferometer.formats.resolve import read
from inferometer.formats.synth.files import Order
from inferometer.known import model as catalog_model
from inferometer.known.files import rows_of

__all__ = ["FORMATS", "Order", "Synthesised", "parts_of", "synthesise"]

FORMATS = ("onnx", "gguf", "tflite", "safetensors")
_SIZED = frozenset({"onnx", "tflite"})  # formats that sizes can be fixed in
_SUFFIXES = {".onnx": "onnx", ".gguf": "gguf", ".tflite": "tflite", ".safetensors": "safetensors", "": "safetensors"}
_CONFIG_BYTES = 16_000_000


@frozen
class Synthesised:
    """What was written. `paths` are all files, the one to open is `path` (a folder for a sharded checkpoint)."""

    path: Path
    paths: tuple[Path, ...]
    format: str
    weights: str
    nbytes: int
    parameters: int
    seed: int
    note: str = "The weights are random: shapes, sizes and speed are the model's, what it says is noise."


def synthesise(  # noqa: PLR0913 - the options of the command that calls it
    model: str | Graph | Mapping[str, Any],
    path: Path | str,
    *,
    format: str | None = None,  # noqa: A002 - the word users have for it
    weights: str = "f32",
    seed: int = 0,
    sizes: Mapping[str, int] | None = None,
    part: str | None = None,
    overwrite: bool = False,
) -> Synthesised:
    """Write a model with random weights.

    `model` is a catalog name, a folder with a config.json, a model file, a config, or a graph. The format follows from
    the path (.onnx, .gguf, .tflite, .safetensors, or a folder) unless it is given. `sizes` fixes symbols of an ONNX or
    TFLite model, such as {"image": 320}; `part` takes one part of a model in several, such as "encoder".
    """
    path = Path(path)
    kind = _format(path, format)
    graph, config = _resolved(model)
    if part is not None:
        graph = _part(graph, part)
    if sizes and kind not in _SIZED:
        raise InferometerError(f"Sizes are given ({', '.join(sizes)}), and {kind} files have none open.")
    # The format's own name for an alias (fp16 → f16). A mixture (q4_k_m) keeps its name: the writer has its
    # recipe.
    stored = weights.casefold() if is_gguf_block(weights) else dtype(weights).name
    order = Order(
        graph=graph, config=config, path=path, weights=stored, seed=seed, sizes=sizes or {}, overwrite=overwrite
    )
    paths = _save(kind, order)
    return Synthesised(
        path=path,
        paths=paths,
        format=kind,
        weights=stored,
        nbytes=sum(written.stat().st_size for written in paths),
        parameters=graph.parameters,
        seed=seed,
    )


def parts_of(graph: Graph) -> tuple[str, ...]:
    """Parts that can be taken alone: what stands before the dot in the names of blocks, in order."""
    return tuple(dict.fromkeys(block.name.partition(".")[0] for block in graph.blocks))


def _save(kind: str, order: Order) -> tuple[Path, ...]:
    from inferometer.formats.gguf import write as gguf  # noqa: PLC0415 - only who writes pays for numpy
    from inferometer.formats.onnx import write as onnx  # noqa: PLC0415 - as above
    from inferometer.formats.safetensors import write as safetensors  # noqa: PLC0415 - as above
    from inferometer.formats.tflite import write as tflite  # noqa: PLC0415 - as above

    writers = {"onnx": onnx.save, "gguf": gguf.save, "tflite": tflite.save, "safetensors": safetensors.save}
    return writers[kind](order)


def _format(path: Path, asked: str | None) -> str:
    if asked is not None:
        if asked not in FORMATS:
            raise UnknownNameError("model format", asked, FORMATS, listing=f"Known: {', '.join(FORMATS)}.")
        return asked
    if path.is_dir():
        return "safetensors"
    if path.suffix not in _SUFFIXES:
        raise InferometerError(
            f"The format of {str(path)!r} does not follow from its name.",
            remedy="Let it end in .onnx, .gguf, .tflite or .safetensors, or in nothing for a folder with a checkpoint.",
        )
    return _SUFFIXES[path.suffix]


def _resolved(model: str | Graph | Mapping[str, Any]) -> tuple[Graph, Mapping[str, Any]]:
    """The graph, and the config where there is one."""
    if isinstance(model, Graph):
        return model, {}
    if isinstance(model, Mapping):
        return _expanded(model, str(model.get("_name_or_path") or model.get("model_type", "model")))
    if rows_of("models").canonical(model) is not None:
        row = catalog_model(model)
        return _expanded(row.config, row.name)
    index = Path(model)
    if index.is_dir() or (index.suffix == ".json" and index.exists()):
        path = index / "config.json" if index.is_dir() else index
        try:
            if path.stat().st_size > _CONFIG_BYTES:
                raise FormatError(f"{str(path)!r} is too large for a config.")
            config = parse_json(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise FormatError(f"{str(path)!r} cannot be read: {error.strerror}.", remedy="Check the path.") from None
        except ValueError as error:
            raise FormatError(f"{str(path)!r} is no JSON document: {error}.") from None
        if not isinstance(config, dict):
            raise FormatError(f"{str(path)!r} holds no table of config values.")
        return _expanded(config, index.resolve().stem)
    return read(model), {}


def _expanded(config: Mapping[str, Any], name: str) -> tuple[Graph, Mapping[str, Any]]:
    """Without the config's own quantisation: the weights get the format that is asked for."""
    plain = {key: value for key, value in config.items() if key != "quantization_config"}
    return graph_from_config(plain, name=name), plain


def _part(graph: Graph, part: str) -> Graph:
    """The blocks of one part as a model: it reads what they do not make, and gives what their last op gives."""
    blocks = tuple(block for block in graph.blocks if block.name.partition(".")[0] == part)
    if not blocks:
        known = parts_of(graph)
        raise UnknownNameError(f"part of {graph.name}", part, known, listing=f"Known: {', '.join(known)}.")
    read = {tensor.name for block in blocks for op in block.ops for tensor in op.inputs}
    inputs = tuple(tensor for tensor in graph.inputs if tensor.name in read)
    return replace(
        graph, name=f"{graph.name}-{part}", blocks=blocks, inputs=inputs, outputs=blocks[-1].ops[-1].outputs[:1]
    )
