"""A Hugging Face checkpoint as GGUF, for the families whose tensors are the checkpoint's own, renamed and turned.

Names, metadata and layout are those with which models with random weights are written; the numbers are read from the
checkpoint and quantised by the `gguf` package, which is llama.cpp's own.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from inferometer.core.errors import FormatError
from inferometer.core.json_text import parse_json
from inferometer.engines.order import ToolOrder
from inferometer.engines.torch.checkpoint import config_of
from inferometer.formats.gguf.write import (
    WrittenTensor,
    architecture_row,
    file_type,
    format_of,
    metadata_of,
    model_facts,
    targets,
    turned,
    write_tensors,
)
from inferometer.formats.huggingface import graph_from_config

Array = np.ndarray[Any, Any]

# Families that PyTorch and llama.cpp were seen to agree on. Others add one to norms, cut tensors, scale residuals …
FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "olmo2")
_PRE_TOKENISERS = {"llama": "llama-bpe", "qwen2": "qwen2", "qwen3": "qwen2"}  # as llama.cpp names them


def convert(order: ToolOrder) -> Iterator[str]:
    stored = order.options["weights"]
    config = config_of(order.source if order.source.is_dir() else order.source.parent)
    graph = graph_from_config(
        {key: value for key, value in config.items() if key != "quantization_config"}, name=order.source.name
    )
    if graph.architecture not in FAMILIES:
        raise FormatError(
            f"{order.source.name} is of the family {graph.architecture}, which cannot be written as GGUF here.",
            remedy=f"Use llama.cpp's convert_hf_to_gguf.py; here it is done for {', '.join(FAMILIES)}.",
        )
    tensors_of = targets(graph, architecture_row(graph, config))
    model = model_facts(graph, tensors_of)
    tensors = [(target, format_of(target, stored, model)) for target in tensors_of]
    metadata = metadata_of(graph, config, file_type=file_type(stored), seed=0)
    metadata["general.description"] = f"Made by inferometer of the checkpoint {order.source.name}."
    words = _vocabulary(order.source, config, int(metadata[f"{metadata['general.architecture']}.vocab_size"]))  # type: ignore[arg-type]
    with ExitStack() as open_files, order.target.open("wb") as file:
        read = _reader(order.source, open_files)
        write_tensors(file, metadata | words, tensors, lambda target, kind: _stored(target, kind, read))
    if not words:
        yield "The tokeniser is none that is converted here: the file has a made-up vocabulary of the right size."


def _stored(target: WrittenTensor, kind: str, read: Callable[[str], Array]) -> Iterator[bytes]:
    import gguf  # noqa: PLC0415 - an edge, in a child

    for part in target.parts:
        values = read(part.name).astype(np.float32, copy=False).reshape(part.shape)
        whole = next(turned(iter([values.reshape(-1)]), part, target)).reshape(target.shape)
        yield gguf.quants.quantize(whole, gguf.GGMLQuantizationType[kind.upper()]).tobytes()


def _reader(folder: Path, open_files: ExitStack) -> Callable[[str], Array]:
    """Tensors by name, out of however many files; a tied head has the embedding's numbers."""
    from safetensors import safe_open  # noqa: PLC0415 - as above

    shards = sorted(folder.glob("*.safetensors")) if folder.is_dir() else [folder]
    places: dict[str, Any] = {}
    for shard in shards:
        try:
            opened = open_files.enter_context(safe_open(str(shard), framework="np"))
        except Exception as error:  # noqa: BLE001 - its errors have no common root
            raise FormatError(f"{shard.name} cannot be read: {error}.", remedy="Download it again.") from None
        places |= dict.fromkeys(opened.keys(), opened)

    def read(name: str) -> Array:
        held = name if name in places else f"model.{name}"
        if held not in places:
            raise FormatError(
                f"The checkpoint has no tensor {name!r}, which its config says it has.", remedy="Check config.json."
            )
        # Numpy has no bf16: it comes as ml_dtypes' where that is installed, and else is widened by hand
        opened = places[held]
        if opened.get_slice(held).get_dtype() == "BF16":
            import ml_dtypes  # noqa: F401, PLC0415 - teaches numpy the format
        values: Array = opened.get_tensor(held)
        return values.astype(np.float32)

    return read


def _vocabulary(folder: Path, config: Mapping[str, Any], size: int) -> dict[str, Any]:
    """The checkpoint's tokens and merges, if its tokeniser is one of pairs of bytes that llama.cpp knows by name."""
    path = (folder if folder.is_dir() else folder.parent) / "tokenizer.json"
    family = str(config.get("model_type"))
    if not path.is_file() or family not in _PRE_TOKENISERS:
        return {}
    known = parse_json(path.read_text(encoding="utf-8"))
    model = known.get("model", {})
    byte_level = "ByteLevel" in json.dumps(known.get("decoder"))
    if model.get("type") != "BPE" or not byte_level:
        return {}
    added = {entry["content"]: entry for entry in known.get("added_tokens", ())}
    ids = {**model["vocab"], **{word: entry["id"] for word, entry in added.items()}}
    words = {number: word for word, number in ids.items()}
    tokens = [words.get(number, f"<|unused{number}|>") for number in range(size)]
    control = {word for word, entry in added.items() if entry.get("special")}
    types = [5 if number not in words else 3 if words[number] in control else 1 for number in range(size)]
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    return {
        "tokenizer.ggml.pre": _PRE_TOKENISERS[family],
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": merges or ["! !"],
        "tokenizer.ggml.add_bos_token": False,
        **_marks(config, size),
    }


def _marks(config: Mapping[str, Any], size: int) -> dict[str, int]:
    marks = {}
    for key, ours in (("bos_token_id", "tokenizer.ggml.bos_token_id"), ("eos_token_id", "tokenizer.ggml.eos_token_id")):
        value = config.get(key)
        number = value[0] if isinstance(value, list) and value else value
        if isinstance(number, int) and 0 <= number < size:
            marks[ours] = number
    return marks
