"""Safetensors checkpoints: headers only; with a config.json beside them the whole architecture.

Opening safetensors: a file, a sharded model's index, or a model's folder.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import msgspec

from inferometer.core.dtypes import DTYPES
from inferometer.core.errors import FormatError, InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph, Tensor
from inferometer.core.json_text import parse_json
from inferometer.formats import stored
from inferometer.formats.base import Peek, look
from inferometer.formats.detect import foreign_content
from inferometer.formats.stored import Companion, Stored

# The header of a safetensors file: an 8-byte length, then JSON that says where each tensor lies.
#
# The format's own rules are checked: tensors fill the rest of the file without holes or overlaps, and each takes the
# bytes its shape and format need. Nothing but the header is read.

HEADER_LIMIT = 100_000_000  # the format's own
_MANY_TENSORS = 1 << 18
_MANY_AXES = 64
_LARGEST = 1 << 62

# The format's name of a number format → ours, and its bits. Where the core has no row the name is None.
_FORMATS: dict[str, tuple[str, int]] = {
    "BOOL": ("bool", 8), "U8": ("u8", 8), "I8": ("i8", 8), "U16": ("u16", 16), "I16": ("i16", 16), "U32": ("u32", 32),
    "I32": ("i32", 32), "U64": ("u64", 64), "I64": ("i64", 64), "F16": ("f16", 16), "BF16": ("bf16", 16),
    "F32": ("f32", 32), "F64": ("f64", 64), "C64": ("c64", 64), "F8_E4M3": ("f8e4m3", 8), "F8_E5M2": ("f8e5m2", 8),
    "F8_E4M3FNUZ": ("f8e4m3", 8), "F8_E5M2FNUZ": ("f8e5m2", 8), "F8_E8M0": ("f8e8m0", 8), "F6_E2M3": ("f6e2m3", 6),
    "F6_E3M2": ("f6e3m2", 6), "F4": ("f4e2m1", 4), "I4": ("i4", 4), "U4": ("u4", 4),
}  # fmt: skip


@frozen
class SafetensorsTensor:
    """`dtype` is None where `core.dtype` has no row for the format, which `stored_as` names."""

    name: str
    shape: tuple[int, ...]
    dtype: str | None
    stored_as: str
    offset: int  # from the start of the file
    nbytes: int


@frozen
class SafetensorsHeader:
    path: Path
    tensors: tuple[SafetensorsTensor, ...]
    metadata: Mapping[str, str]
    header_bytes: int
    file_bytes: int


class _Entry(msgspec.Struct):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def read_header(path: Path) -> SafetensorsHeader:
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, HEADER_LIMIT):
                if (foreign := foreign_content(look(path))) is not None:  # a folder was read by the names in it
                    raise FormatError(f"{str(path)!r} is {foreign.title}.", remedy=foreign.remedy)
                shown = f"{length:,}" if length < 1 << 50 else f"2^{length.bit_length() - 1} or more"
                problem = f"its header is said to have {shown} bytes at byte 0, of a file of {size:,}"
                raise _fault(path, problem, cut=True)
            raw = file.read(length)
    except FileNotFoundError:
        raise FormatError(f"There is no file {str(path)!r}.", remedy="Check the path.") from None
    except OSError as error:
        raise FormatError(f"{str(path)!r} cannot be read: {error}.") from None
    return _parsed(path, raw, size)


def _fault(path: Path, problem: str, *, cut: bool = False) -> FormatError:
    remedy = "Fetch the file again: it is cut short or damaged." if cut else None
    return FormatError(f"{str(path)!r} is not a sound safetensors file: {problem}.", remedy=remedy)


def _parsed(path: Path, raw: bytes, size: int) -> SafetensorsHeader:
    if raw.count(b'"data_offsets"') > _MANY_TENSORS:
        raise _fault(path, f"it claims more than {_MANY_TENSORS:,} tensors")
    try:
        entries: dict[str, Any] = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        described = entries.pop("__metadata__", None)
        metadata = {} if described is None else msgspec.json.decode(described, type=dict[str, str])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _fault(path, f"its header is not the JSON it should be ({error})") from None
    start = 8 + len(raw)
    tensors = tuple(_tensor(path, name, entry, start) for name, entry in entries.items())
    # one tensor after the other from the header to the end of the file
    reached, last = start, "the header"
    for tensor in sorted(tensors, key=lambda tensor: (tensor.offset, tensor.nbytes)):
        if tensor.offset != reached:
            relation = "overlaps" if tensor.offset < reached else "leaves a hole after"
            raise _fault(path, f"tensor {tensor.name[:200]!r} at byte {tensor.offset:,} {relation} {last}")
        reached, last = tensor.offset + tensor.nbytes, repr(tensor.name[:200])
    if reached != size:
        cut = reached > size
        what = "ends before the last tensor does" if cut else "goes on after the last tensor"
        raise _fault(path, f"the file of {size:,} bytes {what}, at byte {reached:,}", cut=cut)
    return SafetensorsHeader(path=path, tensors=tensors, metadata=metadata, header_bytes=start, file_bytes=size)


def _tensor(path: Path, name: str, raw: Any, start: int) -> SafetensorsTensor:
    try:
        entry = msgspec.json.decode(raw, type=_Entry)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _fault(path, f"tensor {name[:200]!r} is not described as it should be ({error})") from None
    if entry.dtype not in _FORMATS:
        raise FormatError(
            f"{str(path)!r}: tensor {name[:200]!r} has the unknown format {entry.dtype[:40]!r}.",
            remedy=f"Known: {', '.join(_FORMATS)}.",
        )
    begin, end = entry.data_offsets
    if len(entry.shape) > _MANY_AXES or any(not 0 <= size < _LARGEST for size in entry.shape) or not 0 <= begin <= end:
        raise _fault(path, f"tensor {name[:200]!r} has an impossible shape or place")
    ours, bits = _FORMATS[entry.dtype]
    needed = -(-prod(entry.shape) * bits // 8)
    if end - begin != needed:
        shown = f"{needed:,}" if needed < _LARGEST else "2^62 or more"
        raise _fault(path, f"tensor {name[:200]!r} has {end - begin:,} bytes where its shape needs {shown}")
    return SafetensorsTensor(
        name=name,
        shape=tuple(entry.shape),
        dtype=ours if ours in DTYPES else None,
        stored_as=entry.dtype,
        offset=start + begin,
        nbytes=needed,
    )


# From safetensors headers to a graph: the config's, with formats and bytes as stored; else one of the tensors.

# Quantised checkpoints: one weight of the model, several tensors of the file.
#
# Each row says how a method stores the weight `X.weight`: under which name the numbers lie, and what lies beside them.
# How many bits a number has follows from its bytes. Sources: the tensor names that AutoGPTQ/GPTQModel, AutoAWQ,
# compressed-tensors, bitsandbytes, torchao, TensorRT Model Optimizer, fine-grained FP8 and gpt-oss checkpoints use.

_BY_BITS = {2: "i2", 4: "i4", 8: "i8"}


@dataclass(frozen=True, slots=True)
class _Method:
    """`data` and `beside` follow the weight's name without `.weight`. `joint` counts what lies beside as the weight."""

    data: str
    beside: tuple[str, ...]
    formats: Mapping[int, str]
    joint: bool = False


_SCALES = (".weight_scale", ".weight_scale_inv", ".weight_scale_2", ".weight_global_scale", ".input_scale",
           ".weight_zero_point", ".weight_shape", ".weight_g_idx", ".input_global_scale", ".scales")  # fmt: skip
_BITSANDBYTES = (".weight.absmax", ".weight.quant_map", ".weight.nested_absmax", ".weight.nested_quant_map",
                 ".weight.quant_state.bitsandbytes__nf4", ".weight.quant_state.bitsandbytes__fp4", ".SCB",
                 ".weight_format")  # fmt: skip
_METHODS = (
    _Method(".qweight", (".qzeros", ".scales", ".g_idx"), _BY_BITS),  # GPTQ, AWQ
    _Method(".weight_packed", _SCALES, _BY_BITS),  # compressed-tensors
    _Method("_blocks", ("_scales",), {4: "mxfp4"}, joint=True),  # gpt-oss: 32 numbers share a scale
    _Method(".weight", (".weight_scale_2", ".weight_scale", ".input_scale"), {4: "f4e2m1"}),  # Model Optimizer, NVFP4
    _Method("._weight_qdata", ("._weight_scale", "._weight_zero_point"), {8: "i8"}),  # torchao, by transformers
    _Method(".weight", _BITSANDBYTES, {4: "i4", 8: "i8"}),
)
_PLAIN = _Method(".weight", (*_SCALES, *_BITSANDBYTES), {})  # one number a number: FP8, int8


def quantised(name: str, shape: tuple[int, ...], tensors: Mapping[str, Stored]) -> Stored | None:
    """What the file holds for a weight of that shape, with the scales that belong to it, or None."""
    stem = name.removesuffix(".weight")
    whole = tensors.get(name)
    if whole is not None and whole.elements == prod(shape):
        return _with_companions(whole, stem, _PLAIN, tensors)
    for method in _METHODS:
        data = tensors.get(stem + method.data)
        beside = [stem + suffix for suffix in method.beside if stem + suffix in tensors]
        if data is None or not beside or not prod(shape):
            continue
        bits, rest = divmod(8 * data.nbytes, prod(shape))
        if rest == 0 and bits in method.formats:
            unpacked = replace(data, shape=shape, dtype=method.formats[bits])
            return _with_companions(unpacked, stem, method, tensors)
    return whole


def _with_companions(weight: Stored, stem: str, method: _Method, tensors: Mapping[str, Stored]) -> Stored:
    beside = {suffix: tensors[stem + suffix] for suffix in method.beside if stem + suffix in tensors}
    names = (*weight.names, *(stem + suffix for suffix in beside))
    if method.joint:
        return replace(weight, names=names, nbytes=weight.nbytes + sum(entry.nbytes for entry in beside.values()))
    companions = tuple(
        Companion(suffix=suffix, shape=entry.shape, dtype=entry.dtype, nbytes=entry.nbytes)
        for suffix, entry in beside.items()
    )
    return replace(weight, names=names, companions=companions)


_RENAMED = {".weight": ".gamma", ".bias": ".beta"}  # what TensorFlow's checkpoints called a norm's weights
# Stored by some versions of the libraries, and no parameters: tables that can be computed, masks, counters.
_BUFFERS = (
    "rotary_emb.inv_freq", "position_ids", "masked_bias", "num_batches_tracked", "relative_position_index",
    "relative_coords_table", "attn_mask",
)  # fmt: skip
_WHOLE = frozenset({"bool", "u8", "u16", "u32", "u64", "i16", "i32", "i64"})


def safetensors_graph(headers: Sequence[SafetensorsHeader], config: Mapping[str, Any] | None, *, name: str) -> Graph:
    tensors = {
        tensor.name: Stored(names=(tensor.name,), shape=tensor.shape, dtype=tensor.dtype, nbytes=tensor.nbytes)
        for header in headers
        for tensor in header.tensors
    }
    graph, notes = _by_config(config, tensors, name)
    if graph is None:
        graph = replace(stored.tensors_graph(name, list(tensors.values())), precision=_precision(tensors))
    facts = {**graph.metadata, **_facts(headers), "notes": tuple(notes)}
    return replace(graph, precision=graph.precision or _precision(tensors), metadata=facts)


def _by_config(
    config: Mapping[str, Any] | None, tensors: Mapping[str, Stored], name: str
) -> tuple[Graph | None, list[str]]:
    """The config's graph where it fits the files to the last number, and what there is to say about it."""
    from inferometer.formats.huggingface.graph import graph_from_config  # noqa: PLC0415 - quick to import this module

    if config is None:
        return None, [stored.tensors_only("There is no config.json beside the file")]
    try:
        graph = graph_from_config(config, name=name)
    except InferometerError as error:
        return None, [stored.tensors_only(f"The config cannot be expanded ({error.message})")]
    held, problems = stored.fit(graph, _Locator(graph, tensors).locate)
    if problems:
        return None, [stored.tensors_only(f"The files do not fit the config ({stored.listed(problems)})")]
    return stored.with_others(stored.with_stored(graph, held), tensors, held, _is_buffer, _is_copy)


class _Locator:
    """Finds what the files hold for a weight, under its name, with another module before it, or in another library's.

    A checkpoint of the bare body lacks the module's name that one with a head has (`h.0…` for `transformer.h.0…`), and
    the other way round. Of a network that the graph has in torchvision's names, transformers' have their own.
    """

    def __init__(self, graph: Graph, tensors: Mapping[str, Stored]) -> None:
        self._tensors = tensors
        self._modules: Mapping[str, str] = graph.metadata.get("modules", {})
        names = [weight.name.replace("{}", "0").replace("*", "0") for weight, _ in graph.weights()]
        first = {name.partition(".")[0] + "." for name in (*names, *tensors)}

        def hits(change: tuple[str, str]) -> tuple[int, int]:
            return sum(1 for name in names if _changed(name, change) in tensors), -len(change[0] + change[1])

        changes = [("", ""), *(("", module) for module in first), *((module, "") for module in first)]
        self._change = max(sorted(changes), key=hits)

    def locate(self, name: str, weight: Tensor) -> Stored | None:
        shape = tuple(size for size in weight.shape if isinstance(size, int))
        if "*" not in name:
            return self._one(name, shape) or self._one(self._renamed(name, weight.name), shape)
        return stored.all_stacked([self._one(name.replace("*", str(expert)), shape[1:]) for expert in range(shape[0])])

    def _renamed(self, name: str, template: str) -> str:
        """The weight's name in the module that `modules` names for its op; `template` has `{}` for the index."""
        op, ending = (template, "") if template in self._modules else template.rpartition(".")[::2]
        if op not in self._modules:
            return name
        before, _, after = template.partition("{}")
        index = name[len(before) : len(name) - len(after)]
        return self._modules[op].replace("{}", index) + (f".{ending}" if ending else "")

    def _one(self, name: str, shape: tuple[int, ...]) -> Stored | None:
        for candidate in (name, _changed(name, self._change)):
            for spelled in (candidate, _old_name(candidate)):
                if entry := quantised(spelled, shape, self._tensors):
                    return entry
        return None


def _changed(name: str, change: tuple[str, str]) -> str:
    """The name with one module taken from its beginning and another put there."""
    away, put = change
    return put + name.removeprefix(away) if name.startswith(away) else name


def _old_name(name: str) -> str:
    return next((name.removesuffix(new) + old for new, old in _RENAMED.items() if name.endswith(new)), name)


def _is_copy(entry: Stored) -> bool:
    """A tied head that was stored all the same."""
    return entry.names[0].endswith("lm_head.weight")


def _is_buffer(entry: Stored) -> bool:
    name = entry.names[0]
    mask = name.endswith(".bias") and len(entry.shape) == 4  # GPT-2 and GPT-NeoX stored their causal mask so
    return mask or name.endswith(_BUFFERS) or entry.dtype in _WHOLE


def _precision(tensors: Mapping[str, Stored]) -> str:
    """The format most numbers have."""
    numbers: Counter[str] = Counter()
    for entry in tensors.values():
        if entry.dtype is not None and entry.dtype not in _WHOLE:
            numbers[entry.dtype] += entry.elements
    usual = numbers.most_common(1)
    return usual[0][0] if usual and usual[0][0] in {"f64", "f32", "f16", "bf16"} else "bf16"


def _facts(headers: Sequence[SafetensorsHeader]) -> dict[str, Any]:
    sizes: Counter[str] = Counter()
    for header in headers:
        for tensor in header.tensors:
            sizes[tensor.dtype or tensor.stored_as.lower()] += tensor.nbytes
    return {
        "format": "safetensors",
        "files": [header.path.name for header in headers],
        "file_bytes": sum(header.file_bytes for header in headers),
        "header_bytes": sum(header.header_bytes for header in headers),
        "tensor_bytes": sum(sizes.values()),
        "tensors": sum(len(header.tensors) for header in headers),
        "bytes_by_format": dict(sizes),
        "stored_metadata": {key: value for header in headers for key, value in header.metadata.items()},
    }


# Which files make up a model, and what they hold together.

_INDEX = ".safetensors.index.json"
_SUFFIX = ".safetensors"
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")
_USUAL = ("model.safetensors", "diffusion_pytorch_model.safetensors")
_TEXT_LIMIT = 1 << 26  # bytes of an index or a config
_MANY_FILES = 10_000


def headers_of(path: Path) -> tuple[SafetensorsHeader, ...]:
    """The headers of all files of the model that `path` names: a folder, an index, a whole file or a shard."""
    if path.is_dir():
        path = _chosen(path)
    if path.name.endswith(".json"):
        return _by_index(path)
    index = path.with_name(_SHARD.sub("", path.name.removesuffix(_SUFFIX)) + _INDEX)
    if _SHARD.search(path.name.removesuffix(_SUFFIX)) and index.is_file():
        return _by_index(index)
    return (read_header(path),)


def config_beside(path: Path) -> dict[str, Any] | None:
    """The `config.json` in the model's folder, if it is there."""
    file = (path if path.is_dir() else path.parent) / "config.json"
    return _document(file) if file.is_file() else None


def _chosen(folder: Path) -> Path:
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith((_SUFFIX, _INDEX)))
    indexes = [name for name in names if name.endswith(_INDEX)]
    files = [name for name in names if name.endswith(_SUFFIX)]
    if indexes:
        return folder / min(indexes, key=lambda name: (len(name), name))  # variants (fp16) have longer names
    usual = next((name for name in _USUAL if name in files), None)
    if usual is None and len(files) != 1:
        names_shown = ", ".join(files[:8]) or "no .safetensors file"
        raise FormatError(f"The folder {str(folder)!r} holds {names_shown}.", remedy="Name the file to read.")
    return folder / (usual or files[0])


def _by_index(path: Path) -> tuple[SafetensorsHeader, ...]:
    """The files an index names. It may only name files that lie beside it."""
    mapping = _document(path).get("weight_map")
    if not isinstance(mapping, dict) or not all(isinstance(name, str) for name in mapping.values()):
        raise FormatError(f"The index {str(path)!r} has no weight_map from tensors to files.")
    names = sorted(set(mapping.values()))
    if len(names) > _MANY_FILES:
        raise FormatError(f"The index {str(path)!r} names {len(names):,} files; at most {_MANY_FILES:,} are read.")
    for name in names:
        if not name.endswith(_SUFFIX) or name != Path(name).name or "\\" in name or ":" in name:
            raise FormatError(
                f"The index {str(path)!r} names {name[:200]!r}, which is no safetensors file beside it.",
                remedy="An index names files in its own folder only.",
            )
    headers = tuple(read_header(path.with_name(name)) for name in names)
    held = {tensor.name: header.path.name for header in headers for tensor in header.tensors}
    if len(held) != sum(len(header.tensors) for header in headers):
        raise FormatError(f"The files of {str(path)!r} hold a tensor twice.")
    for tensor, file in mapping.items():
        if held.get(tensor) != file:
            where = held.get(tensor, "no file")
            raise FormatError(f"The index {str(path)!r} says {tensor[:200]!r} is in {file}; it is in {where}.")
    return headers


def _document(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _TEXT_LIMIT:
            raise FormatError(f"{str(path)!r} is larger than {_TEXT_LIMIT:,} bytes.")
        document = parse_json(path.read_bytes())
    except FileNotFoundError:
        raise FormatError(f"There is no file {str(path)!r}.", remedy="Check the path.") from None
    except (OSError, ValueError) as error:
        raise FormatError(f"{str(path)!r} is not JSON that can be read: {str(error)[:200]}.") from None
    if not isinstance(document, dict):
        raise FormatError(f"{str(path)!r} is not a JSON object.")
    return document


class SafetensorsReader:
    name = "safetensors"
    formats = frozenset({"safetensors"})

    def match(self, peek: Peek) -> float:
        """There is no magic number: a sensible length before a JSON object that says where tensors lie."""
        if peek.is_folder:
            return (
                0.9 if any(name.endswith((".safetensors", ".safetensors.index.json")) for name in peek.names) else 0.0
            )
        head = peek.head
        if head[:1] == b"{":
            return 0.9 if b'"weight_map"' in head and b".safetensors" in head else 0.0
        length = int.from_bytes(head[:8], "little")
        if head[8:9] != b"{" or not 2 <= length <= min(HEADER_LIMIT, peek.size - 8):
            return 0.0
        text = head[8 : 8 + length]
        return 0.95 if b'"data_offsets"' in text or b'"__metadata__"' in text or text.strip() == b"{}" else 0.0

    def read(self, path: Path) -> Graph:
        path = Path(path)
        name = path.name if path.is_dir() else _name(path)
        return safetensors_graph(headers_of(path), config_beside(path), name=name)


def _name(path: Path) -> str:
    """Files of a model are all called alike; its folder has its name."""
    plain = path.stem.partition(".")[0].partition("-0")[0]
    return path.resolve().parent.name if plain in {"model", "diffusion_pytorch_model", "pytorch_model"} else path.stem


__all__ = ["SafetensorsReader", "reader"]

reader = SafetensorsReader()
