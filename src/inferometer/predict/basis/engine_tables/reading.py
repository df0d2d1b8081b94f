"""Parquet tables of one system and engine → `KernelShares`, family by family. The one module that imports pyarrow here.

A table's own names become ours; seconds become shares of the floor on the device that was measured. Of the versions of
an engine the nearest to the one asked for is read; formats that it lacks are taken from the next nearest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.calibration import KernelShares
from inferometer.core.frozen import frozen
from inferometer.known.engines import version_numbers
from inferometer.predict.price import kernel_floors as floors

if TYPE_CHECKING:
    from pathlib import Path

    from inferometer.predict.price.kernel_floors import Ideals, PeakRates

_MILLI = 1e-3  # latencies are in milliseconds
_WIDE = 2  # bytes of a number of the messages that were measured
_LEAST_SHARE, _MOST_SHARE = 1e-7, 1.0  # a share is divided by, and none is faster than the peak
_UNCACHED_BYTES = 300e6  # weights that no device's cache holds
# Bytes of a weight by the tables' format names, scales left out: the same floor is put back when they are read.
WEIGHT_BYTES: Mapping[str, float] = {
    "bfloat16": 2.0, "float16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "int8": 1.0, "sq": 1.0, "int8_wo": 1.0,
    "int4_wo": 0.53125, "nvfp4": 0.5625, "w4a16_mxfp4": 0.53125, "w4a8_mxfp4_mxfp8": 0.53125, "w4afp8": 0.53125,
}  # fmt: skip
ARITHMETIC: Mapping[str, str] = {
    "fp8": "f8e4m3", "fp8_block": "f8e4m3", "int8": "i8", "sq": "i8", "nvfp4": "nvfp4", "w4a8_mxfp4_mxfp8": "mxfp4",
    "w4afp8": "f8e4m3",
}  # fmt: skip
_RENAMED = {"sq": "int8", "w4afp8": "int4_wo"}


@frozen
class TableFamily:
    """Where a family's tables lie and what their columns are called. `texts` and `sizes`: our name → theirs."""

    name: str
    folder: str
    file: str
    sizes: Mapping[str, str]
    texts: Mapping[str, str] = field(default_factory=dict)
    only: Mapping[str, frozenset[str]] = field(default_factory=dict)  # rows to keep, by a column's texts
    # standard deviation of a log; larger for families whose tables scatter more
    residual: float = 0.08
    best: str = ""  # the fastest of: `version`, all versions of the engine; `engine`, all engines; empty: the nearest


_ATTENTION = {
    "batch": "batch_size", "heads": "num_heads", "kv_heads": "num_key_value_heads", "head_dim": "head_dim",
    "window": "window_size", "query": "isl", "step": "step",
}  # fmt: skip
_LATENT = {"batch": "batch_size", "heads": "num_heads", "query": "isl", "step": "step"}
_EXPERTS = {
    "rows": "num_tokens", "hidden": "hidden_size", "intermediate": "inter_size", "top_k": "topk",
    "experts": "num_experts", "tp": "moe_tp_size", "ep": "moe_ep_size",
}  # fmt: skip
_GRAPHED = frozenset({"vLLM_custom_graph", "SGLang_CustomAllReduce_graph", "TRTLLM"})  # as in a step that is replayed
# Engines call the same libraries (cuBLASLt, CUTLASS, DeepGEMM, FlashInfer, Marlin) and choose the fastest that fits.
_FEW, _TWICE = 20, 2.0  # points, and times as long as others at them, by which a file is not believed
_ENGINES = ("trtllm", "vllm", "sglang")
# TensorRT-LLM's own mixture kernels, which vLLM and SGLang call through FlashInfer: its tables lack them in 8 bits.
_LENDER = "trtllm"
_LENT = frozenset({
    "sglang_flashinfer_trtllm_moe", "vllm_fp8moe_flashinfer_trtllm_trtllmfp8expertsmonolithic",
    "vllm_compressedtensorsw4a4nvfp4moe_flashinfer_trtllm_trtllmnvfp4expertsmonolithic",
})  # fmt: skip
_UNEVEN = frozenset({"power_law_1.01"})  # routers do not choose evenly; this is the spread that engines are tuned on

FAMILIES = (
    TableFamily(
        name="gemm",
        folder="gemm",
        file="gemm_perf.parquet",
        sizes={"rows": "m", "out_features": "n", "in_features": "k"},
        texts={"format": "gemm_dtype"},
        best="engine",
    ),
    TableFamily(
        name="attention.prefill",
        folder="attention",
        file="context_attention_perf.parquet",
        sizes=_ATTENTION,
        texts={"kv": "kv_cache_dtype", "format": "attn_dtype"},
    ),
    TableFamily(
        name="attention.decode",
        folder="attention",
        file="generation_attention_perf.parquet",
        sizes=_ATTENTION,
        texts={"kv": "kv_cache_dtype"},
    ),
    TableFamily(
        name="mla.prefill",
        folder="mla",
        file="context_mla_perf.parquet",
        sizes=_LATENT,
        texts={"kv": "kv_cache_dtype"},
    ),
    TableFamily(
        name="mla.decode",
        folder="mla",
        file="generation_mla_perf.parquet",
        sizes=_LATENT,
        texts={"kv": "kv_cache_dtype"},
    ),
    TableFamily(
        name="mla_module.prefill",
        folder="mla",
        file="mla_context_module_perf.parquet",
        sizes=_LATENT,
        texts={"kv": "kv_cache_dtype", "format": "gemm_type"},
    ),
    TableFamily(
        name="mla_module.decode",
        folder="mla",
        file="mla_generation_module_perf.parquet",
        sizes=_LATENT,
        texts={"kv": "kv_cache_dtype", "format": "gemm_type"},
    ),
    TableFamily(
        name="experts",
        folder="moe",
        file="moe_perf.parquet",
        sizes=_EXPERTS,
        texts={"format": "moe_dtype"},
        only={"distribution": _UNEVEN},
        # Standard deviation of the logarithm, above the 0.08 of other tables: these have one spread of tokens over
        # experts, and every other router would lie outside of a narrower one.
        residual=0.12,
        best="version",
    ),
    TableFamily(
        name="all_reduce",
        folder="comm",
        file="custom_allreduce_perf.parquet",
        sizes={"devices": "num_gpus", "elements": "message_size"},
        only={"kernel_source": _GRAPHED},
        residual=0.15,
        best="engine",
    ),
    *(
        TableFamily(
            name=ours,
            folder="comm",
            file="nccl_perf.parquet",
            sizes={"devices": "num_gpus", "elements": "message_size"},
            only={"op_name": frozenset({theirs}), "nccl_dtype": frozenset({"half"})},
            residual=0.15,
        )
        for ours, theirs in (
            ("all_gather", "all_gather"),
            ("reduce_scatter", "reduce_scatter"),
            ("all_to_all", "alltoall"),
            ("nccl_all_reduce", "all_reduce"),
        )
    ),
)


@frozen
class ReadTables:
    """What was read: families by name, and the version that each came from."""

    kernels: Mapping[str, KernelShares]
    versions: Mapping[str, str]
    points: int


def versions_read(folder: Path, engine: str, version: str | None) -> tuple[str, ...]:
    """The versions of a system's tables in the order in which `read_tables` takes them, family after family.

    Questions about versions that nobody measured mostly come to the same ones.
    """
    return tuple(
        name for family in FAMILIES for name, _ in _by_nearness(folder / family.folder / engine, family.file, version)
    )


def read_tables(folder: Path, engine: str, version: str | None, rates: PeakRates) -> ReadTables:
    """Every family of a system's folder for an engine, of the version that is nearest to the one asked for."""
    raw: dict[str, dict[str, Any]] = {}
    versions: dict[str, str] = {}
    for family in FAMILIES:
        owner = "nccl" if family.file.startswith("nccl") else engine
        files = _by_nearness(folder / family.folder / owner, family.file, None if owner == "nccl" else version)
        columns = _fastest(family, folder, engine) if family.best else _columns(family, [file for _, file in files])
        if columns is not None:
            raw[family.name] = columns
            versions[family.name] = files[0][0] if files else ""
    _take_latent_from_modules(raw, versions)
    if "all_reduce" not in raw and "nccl_all_reduce" in raw:
        raw["all_reduce"], versions["all_reduce"] = raw["nccl_all_reduce"], versions["nccl_all_reduce"]
    kept = [family for family in FAMILIES if family.name in raw and family.name != "nccl_all_reduce"]
    kernels = {
        family.name: _shares(family, raw[family.name], rates)
        for family in kept
        if not family.name.startswith("mla_module")
    }
    return ReadTables(kernels=kernels, versions=versions, points=sum(len(each) for each in kernels.values()))


def _fastest(family: TableFamily, folder: Path, engine: str) -> dict[str, Any] | None:
    """Of every point the shortest time that it was measured with on the device.

    The tables of one engine and version hold what its servers do not pay: products with scales for blocks that were
    launched one by one from the host (57 µs on an H100 and 150 µs on a B200 whatever the shape), activations that were
    quantised in a call of their own, mixtures in a kernel that the next version replaced.
    """
    owners = _ENGINES if family.best == "engine" else (engine,)
    parts = _parts(family, folder, owners)
    if engine == _LENDER and family.best == "version":
        lending = replace(family, only={**family.only, "kernel_source": _LENT})
        parts += _parts(lending, folder, [other for other in _ENGINES if other != engine], strict=True)
    if not parts:
        return None
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    keys = [np.unique(columns[name], return_inverse=True)[1] for name in columns if name != "seconds"]
    order = np.lexsort((columns["seconds"], *keys))

    def first() -> Any:
        new = np.ones(len(order), bool)
        new[1:] = np.any([key[order][1:] != key[order][:-1] for key in keys], axis=0)
        return new

    if family.best == "version" and "format" in columns:
        source = np.repeat(np.arange(len(parts)), [len(part["seconds"]) for part in parts])[order]
        order = order[_is_credible(source, columns["format"][order], columns["seconds"][order], np.cumsum(first()))]
    chosen = order[first()]
    return {name: values[chosen] for name, values in columns.items()}


def _is_credible(source: Any, formats: Any, seconds: Any, point: Any) -> Any:
    """Whether each measurement is of a file that is to be believed of its format; those of a `point` follow each other.

    Not where, of points that others measured too, most take over twice as long as the fastest: vLLM 0.19's mixtures in
    4 bits on H200 and B200 (3 to 5 times), whose other widths nobody measured again.
    """
    first = np.searchsorted(point, point)  # the fastest of each point
    shared, slower = np.bincount(point)[point] > 1, seconds / seconds[first]
    credible = np.ones(len(seconds), bool)
    for file in np.unique(source):
        for name in np.unique(formats[source == file]):
            own = (source == file) & (formats == name)
            if (own & shared).sum() >= _FEW and np.median(slower[own & shared]) > _TWICE:
                credible &= ~own
    return credible


def _parts(family: TableFamily, folder: Path, engines: Iterable[str], *, strict: bool = False) -> list[dict[str, Any]]:
    return [
        part
        for engine in engines
        for _, file in _by_nearness(folder / family.folder / engine, family.file, None)
        if (part := _read(family, file, strict=strict)) is not None
    ]


def _by_nearness(folder: Path, file: str, version: str | None) -> list[tuple[str, Path]]:
    """The versions that have the file: the nearest first, the newest first where none is asked for."""
    found = (
        [(path.name, path / file) for path in folder.iterdir() if (path / file).is_file()] if folder.is_dir() else []
    )
    found.sort(key=lambda each: version_numbers(each[0]), reverse=True)
    if version is not None:
        found.sort(key=lambda each: version_distance(each[0], version))  # stable: of two as near the newer one
    return found


def version_distance(one: str, other: str) -> float:
    """How far two versions are apart: a major number weighs most, each further one a fiftieth."""
    pairs = zip((*version_numbers(one), 0, 0, 0)[:3], (*version_numbers(other), 0, 0, 0)[:3], strict=True)
    # no engine of these tables has had fifty minor versions, so a lower number never outweighs a higher one
    return sum(float(abs(a - b)) / float(50**index) for index, (a, b) in enumerate(pairs))


def _columns(family: TableFamily, files: Iterable[Path]) -> dict[str, Any] | None:
    """The rows of the first file, and of further ones those in formats that no file before had."""
    parts: list[dict[str, Any]] = []
    formats: set[str] = set()
    for file in files:
        part = _read(family, file)
        if part is None:
            continue
        if "format" in part and parts:
            new = ~np.isin(part["format"], list(formats))
            part = {name: values[new] for name, values in part.items()}
        if "format" in part:
            formats |= set(np.unique(part["format"]).tolist())
        if len(part["seconds"]) and ("format" in part or not parts):
            parts.append(part)
    if not parts:
        return None
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _read(family: TableFamily, file: Path, *, strict: bool = False) -> dict[str, Any] | None:
    """The rows of a file that the family keeps. A restriction that no row meets does not hold, unless `strict`."""
    from pyarrow import parquet  # type: ignore[import-untyped, unused-ignore]  # noqa: PLC0415 - an extra, slow to import

    stored = parquet.ParquetFile(file)
    wanted = {*family.sizes.values(), *family.texts.values(), *family.only, "latency"}
    names = wanted & set(stored.schema_arrow.names)
    table = stored.read(columns=sorted(names))
    keep = np.ones(table.num_rows, bool)
    for column, allowed in family.only.items():
        if column in names:
            chosen = np.isin(_texts(table, column), list(allowed))
            keep &= chosen if strict or chosen.any() else np.ones_like(keep)
    seconds = table.column("latency").to_numpy().astype(float) * _MILLI
    keep &= np.isfinite(seconds) & (seconds > 0)
    if not keep.any():
        return None
    part: dict[str, Any] = {"seconds": seconds[keep]}
    for ours, theirs in family.sizes.items():
        given = table.column(theirs).to_numpy().astype(float) if theirs in names else np.zeros(table.num_rows)
        part[ours] = np.nan_to_num(given)[keep]
    for ours, theirs in family.texts.items():
        stated = _texts(table, theirs)[keep] if theirs in names else np.full(int(keep.sum()), "bfloat16")
        part[ours] = _renamed(stated) if ours == "format" else stated
    return part


def _renamed(stated: Any) -> Any:
    words, places = np.unique(stated, return_inverse=True)
    return np.array([_RENAMED.get(word, word) for word in words.tolist()], dtype=str)[places]


def _texts(table: Any, column: str) -> Any:
    """A column's texts; each that differs is made once."""
    coded = table.column(column).combine_chunks().dictionary_encode()
    words = np.array(["" if word is None else str(word) for word in coded.dictionary.to_pylist()], dtype=str)
    return words[coded.indices.fill_null(0).to_numpy(zero_copy_only=False)]


def _take_latent_from_modules(raw: dict[str, dict[str, Any]], versions: dict[str, str]) -> None:
    """Latent attention of an engine whose tables have the whole attention module only: the module less its products.

    The module of DeepSeek-V3: 7168 → 1536 + 576, 1536 → heads · 192, the absorbed up-projection 512 ↔ heads · 256, and
    heads · 128 → 7168. Where next to nothing is left, a third of the module counts as attention.
    """
    for way in ("prefill", "decode"):
        module = raw.get(f"mla_module.{way}")
        if module is None or f"mla.{way}" in raw or "gemm" not in raw:
            continue
        plain = module["format"] == "bfloat16" if (module["format"] == "bfloat16").any() else module["seconds"] > 0
        part = {name: values[plain] for name, values in module.items() if name != "format"}
        tokens = part["batch"] * (part["query"] if way == "prefill" else 1.0)
        heads = part["heads"]
        products = sum(
            _measured_gemm(raw["gemm"], tokens, n, k)
            # DeepSeek-V3's projections around its attention: down, queries up, keys and values up, out
            for n, k in ((2112.0, 7168.0), (heads * 192, 1536.0), (heads * 256, 512.0), (7168.0, heads * 128))
        )
        # at least a third is attention: two tables of two runs may differ by more than the rest
        part["seconds"] = np.maximum(part["seconds"] - products, part["seconds"] / 3)
        raw[f"mla.{way}"], versions[f"mla.{way}"] = part, versions[f"mla_module.{way}"]


def _measured_gemm(columns: Mapping[str, Any], rows: Any, n: Any, k: Any) -> Any:
    """Seconds of bf16 products of given shapes: those of the nearest shape that was measured, by its operations."""
    chosen = columns["format"] == "bfloat16"
    grids = {name: np.unique(columns[name][chosen]) for name in ("rows", "out_features", "in_features")}
    cube = np.full([len(grid) for grid in grids.values()], np.nan)
    places = tuple(np.searchsorted(grid, columns[name][chosen]) for name, grid in grids.items())
    cube[places] = columns["seconds"][chosen]
    wanted = (np.asarray(rows, float), np.asarray(n, float), np.asarray(k, float))
    index = tuple(
        np.argmin(np.abs(np.log(grid)[None, :] - np.log(np.maximum(np.atleast_1d(size), 1.0))[:, None]), axis=1)
        for grid, size in zip(grids.values(), wanted, strict=True)
    )
    return np.nan_to_num(cube[index])


def _shares(family: TableFamily, columns: Mapping[str, Any], rates: PeakRates) -> KernelShares:
    sizes = {name: values for name, values in columns.items() if name in family.sizes}
    texts = {name: values for name, values in columns.items() if name in family.texts and name in columns}
    sizes = _our_sizes(family.name, sizes)
    floor = np.empty(len(columns["seconds"]))
    for formats, chosen in _by_formats(texts, len(floor)):
        part = {name: values[chosen] for name, values in sizes.items()}
        floor[chosen] = floors.floor_of(ideals_of(family.name, formats)(rates, part))
    shares = np.clip(floor / columns["seconds"], _LEAST_SHARE, _MOST_SHARE)
    if family.name == "gemm":
        shares = np.minimum(shares, _most_from_memory(sizes, texts["format"], shares))
    return KernelShares(
        family=family.name,
        sizes={name: values.astype(np.float32) for name, values in sizes.items()},
        texts=texts,
        shares=shares,
        residual=family.residual,
    )


def _most_from_memory(sizes: Mapping[str, Any], formats: Any, shares: Any) -> Any:
    """The best rate of matrix products with this number of rows, their weights too large for any cache.

    A product that is measured again and again finds its weights in the cache where they fit (up to 128 MB on an RTX PRO
    6000: 2.8 TB/s of 1.6, on an L40S 1.9 times its memory); in a step every layer's come from memory.
    """
    weights = np.array([WEIGHT_BYTES.get(word, 2.0) for word in formats.tolist()])
    large = weights * sizes["out_features"] * sizes["in_features"] > _UNCACHED_BYTES
    groups = np.unique(
        np.stack([sizes["rows"], np.unique(formats, return_inverse=True)[1]]), axis=1, return_inverse=True
    )
    most = np.zeros(groups[0].shape[1])
    np.maximum.at(most, groups[1].ravel()[large], shares[large])
    return np.where(most > 0, most, _MOST_SHARE)[groups[1].ravel()]


def _our_sizes(family: str, sizes: dict[str, Any]) -> dict[str, Any]:
    if family.startswith(("attention", "mla")):
        if "kv_heads" in sizes:
            sizes["kv_heads"] = np.where(sizes["kv_heads"] > 0, sizes["kv_heads"], sizes["heads"])
        step = sizes.pop("step")
        if family.endswith("decode"):
            sizes["keys"] = sizes.pop("query") + step
        else:
            sizes["context"] = step
    if "elements" in sizes:
        sizes["bytes"] = _WIDE * sizes.pop("elements")
    return sizes


def _by_formats(texts: Mapping[str, Any], count: int) -> Iterable[tuple[dict[str, str], Any]]:
    if not texts:
        return [({}, np.ones(count, bool))]
    names = list(texts)
    combined = np.array(["|".join(each) for each in zip(*(texts[name].tolist() for name in names), strict=True)])
    return [
        (dict(zip(names, value.split("|"), strict=True)), combined == value) for value in np.unique(combined).tolist()
    ]


def ideals_of(family: str, formats: Mapping[str, str]) -> Callable[[PeakRates, Mapping[str, Any]], Ideals]:
    """The same seconds at the peaks that `predict.price.kernels` puts back."""
    cache = 1.0 if formats.get("kv", "") == "fp8" else 2.0
    named = formats.get("format", "bfloat16")
    if family in {"gemm", "experts"}:
        ideals = floors.gemm_ideals if family == "gemm" else floors.experts_ideals
        return partial(ideals, arithmetic=ARITHMETIC.get(named, "bf16"), weight_bytes=WEIGHT_BYTES.get(named, 2.0))
    if family.startswith("attention"):
        way = floors.attention_decode_ideals if family.endswith("decode") else floors.attention_prefill_ideals
        return partial(way, arithmetic="bf16", kv_bytes=cache)
    if family.startswith("mla"):
        way = floors.mla_decode_ideals if family.endswith("decode") else floors.mla_prefill_ideals
        return partial(way, arithmetic="bf16", kv_bytes=cache)
    return partial(floors.message_bytes_ideals, function=family)
