"""safetensors with config.json beside it, as Hugging Face lays a checkpoint out; written in one pass."""

import json
from collections.abc import Iterable, Sequence
from math import isqrt
from pathlib import Path
from typing import IO, Any

import numpy as np

from inferometer.core.dtypes import dtype as format_of
from inferometer.core.errors import InferometerError
from inferometer.formats.synth.files import Order, landing
from inferometer.formats.synth.weights import Array, Weight, numbers, planned, relative_index

SHARD_BYTES = 5_000_000_000
FORMATS = {"f32": ("F32", "float32"), "f16": ("F16", "float16"), "bf16": ("BF16", "bfloat16")}


def save(order: Order, *, shard_bytes: int = SHARD_BYTES) -> tuple[Path, ...]:
    """Write the graph's weights and its config; the paths written, config.json last.

    The path is a folder, or one `.safetensors` file, which is then not split.
    """
    dtype = order.weights
    if dtype not in FORMATS:
        raise InferometerError(
            f"safetensors cannot be written with {dtype} weights.", remedy=f"Choose one of {', '.join(FORMATS)}."
        )
    name, torch_name = FORMATS[dtype]
    weights, size, path = planned(order.graph), format_of(order.weights).block_bytes, order.path
    single = path.suffix == ".safetensors"
    if not single and path.exists() and not path.is_dir():
        raise InferometerError(
            f"{str(path)!r} is a file.", remedy="Give a folder, or a name that ends in .safetensors."
        )
    shards = [weights] if single else sharded(weights, size, shard_bytes)
    folder = path.parent if single else path
    targets = [path] if single else _shard_paths(folder, len(shards))
    extra = [folder / "model.safetensors.index.json"] if len(shards) > 1 else []
    total = sum(_nbytes(weight, size) for weight in weights)
    paths = (*targets, *extra, folder / "config.json")
    with landing(*paths, overwrite=order.overwrite, needs_bytes=total) as partial:
        for shard, temporary in zip(shards, partial, strict=False):
            with temporary.open("wb") as file:
                _write(file, shard, name, size, order.seed)
        if extra:
            places = {weight.name: path.name for shard, path in zip(shards, targets, strict=True) for weight in shard}
            partial[-2].write_text(
                json.dumps({"metadata": {"total_size": total}, "weight_map": places}, indent=2), encoding="utf-8"
            )
        partial[-1].write_text(json.dumps({**order.config, "torch_dtype": torch_name}, indent=2), encoding="utf-8")
    return paths


def sharded(weights: Sequence[Weight], size: int, most: int) -> list[tuple[Weight, ...]]:
    """Weights in files of at most `most` bytes each; one that is larger has a file of its own."""
    shards: list[tuple[Weight, ...]] = []
    shard: list[Weight] = []
    held = 0
    for weight in weights:
        nbytes = _nbytes(weight, size)
        if shard and held + nbytes > most:
            shards.append(tuple(shard))
            shard, held = [], 0
        shard.append(weight)
        held += nbytes
    return [*shards, tuple(shard)]


def as_stored(values: Array, dtype: str) -> Array:
    """f32 numbers in a plain format. bf16 keeps the upper half of the bits, rounded to nearest, ties to even."""
    if dtype == "f32":
        return values.astype("<f4", copy=False)
    if dtype == "f16":
        return values.astype("<f2")
    bits = values.view(np.uint32)
    rounded: Array = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype("<u2")
    return rounded


def _write(file: IO[bytes], weights: Iterable[Weight], name: str, size: int, seed: int) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt", "weights": f"random, seed {seed}"}}
    offset = 0
    for weight in weights:
        end = offset + _nbytes(weight, size)
        kind = "I64" if weight.index else name
        header[weight.name] = {"dtype": kind, "shape": list(weight.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the data begins at a multiple of 8
    file.write(len(text).to_bytes(8, "little") + text)
    dtype = name.casefold()
    for weight in weights:
        if weight.index:
            file.write(relative_index(isqrt(weight.shape[0])).data)
            continue
        for piece in numbers(weight, seed):
            file.write(as_stored(piece, dtype).data)


def _nbytes(weight: Weight, size: int) -> int:
    return weight.elements * (8 if weight.index else size)


def _shard_paths(folder: Path, count: int) -> list[Path]:
    if count == 1:
        return [folder / "model.safetensors"]
    return [folder / f"model-{index:05d}-of-{count:05d}.safetensors" for index in range(1, count + 1)]
