"""From safetensors headers to a graph: the config's, with formats and bytes as stored; else one of the tensors."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from inferometer.core.errors import InferometerError
from inferometer.core.graph import Graph, Tensor
from inferometer.formats import stored
from inferometer.formats.safetensors.header import SafetensorsHeader
from inferometer.formats.safetensors.quantised import quantised
from inferometer.formats.stored import Stored

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
