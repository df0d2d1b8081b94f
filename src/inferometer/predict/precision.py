"""Number formats: what is stored in which, and which arithmetic an op is computed in on a device.

A format that the device has no peak for is an error that names those it has, unless the runtime says in what arithmetic
it computes such numbers; then that is used, with a note.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from inferometer.core.dtypes import dtype, is_gguf_block
from inferometer.core.engine import DYNAMIC, RuntimeEffects
from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph, Op, Tensor, is_generative
from inferometer.core.kept import Kept
from inferometer.core.workload import Precision
from inferometer.known.engines import known_engine
from inferometer.predict.work.classes import MATRIX, class_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from inferometer.core.binding import Binding
    from inferometer.core.device import Device

_HALVES = frozenset({"f16", "bf16"})
_FLOATS = _HALVES | {"f32", "f64"}
_BYTES = frozenset({"i8", "u8"})
UNSTATED = "f32"  # of a model that names no format
_ARRAYS = "arrays:"  # before a format that is widened in networks that make no tokens


@frozen
class Arithmetic:
    """The format an op is computed in (None: it computes nothing), with a note where it is not the one asked for."""

    name: str | None
    note: str | None = None


# Whole numbers that quantised files are in and datasheets do not list. The same units multiply 8 bits of either kind;
# none multiplies 16 bits faster than 8, so that is their floor too. Fewer bits are widened to 8.
_WHOLE = {
    "u8": ("i8",), "i16": ("i8",), "u16": ("i8",), "i4": ("i8",), "u4": ("i8",), "i2": ("i8",), "u2": ("i8",),
    "i32": ("f32",), "u32": ("f32",), "i64": ("f32",), "u64": ("f32",),
}  # fmt: skip


def arithmetic_for(op: Op, key: str, binding: Binding, device: Device, effects: RuntimeEffects) -> Arithmetic:
    """`key` is the format that the op's work is counted in.

    Matrix products run in the format of the activations, or as the runtime says of the weights' format, or of weights
    beside activations. Weights in a wider float are cast to the activations' format first, which is what autocast does.
    Everything else runs on the vector units, at the device's f32 peak where it has one.
    """
    if class_of(op) not in MATRIX:
        known = ("f32", key, *device.peaks)
        return Arithmetic(name=next((name for name in known if name in device.peaks), None))
    stored = binding.format(op.weights[0]).name if op.weights else key
    places = _places(device)
    formats = () if is_autocast(stored, key) else (f"{stored}/{key}", stored)
    if op.get("dynamic") and (slower := effects.rule(op.kind, DYNAMIC, places)):
        return Arithmetic(
            name=slower[0],
            note=f"{op.kind} ops that quantise what they read run at the speed of {slower[0]} in {effects.name}.",
        )
    wanted = next((name for name in formats if effects.rule(op.kind, name, places)), key)
    candidates = (*effects.candidates(op.kind, wanted, places), *_WHOLE.get(wanted, ()))
    if wanted == "f64" != binding.precision.activations:
        candidates = (*candidates, "f32")  # an angle or two that a network computes so; no unit does it faster than f32
    computed_in = next((name for name in candidates if name in device.peaks), None)
    if computed_in is None:
        raise _no_peak(device, effects, wanted, candidates)
    if computed_in == wanted or (wanted, computed_in) == ("u8", "i8"):
        return Arithmetic(name=computed_in)
    if candidates[0] == wanted:
        return Arithmetic(
            name=computed_in, note=f"{device.name} has no {wanted} peak: {effects.name} computes it in {computed_in}."
        )
    return Arithmetic(
        name=computed_in, note=f"{op.kind} ops of {wanted} are computed in {computed_in} by {effects.name}."
    )


def widened_to(kind: str, precision: Precision, device: Device, effects: RuntimeEffects) -> str | None:
    """The floats that a runtime multiplies in whatever is stored: its speed is that of a model in those.

    None where it has no such rule: what is multiplied is then as its formats say.
    """
    weights, activations, places = precision.weights or "", precision.activations or "", _places(device)
    rule = effects.rule(kind, f"{weights}/{activations}", places)
    if rule is None and weights == activations and weights in _BYTES:
        rule = effects.rule(kind, weights, places)
    if rule is None or rule[0] in _BYTES:
        return None
    return next((name for name in rule if name in device.peaks), None)


def is_autocast(weights: str, activations: str) -> bool:
    """Whether single-precision weights are multiplied with halves."""
    return weights == "f32" and activations in _HALVES


def _no_peak(device: Device, effects: RuntimeEffects, wanted: str, candidates: tuple[str, ...]) -> DomainError:
    if not device.peaks:
        return DomainError(
            f"No peak of {device.name} is known in any number format, so nothing can be priced on it.",
            remedy="Give its peaks in a device file of your own, or calibrate the device.",
        )
    widest = max(device.peaks, key=lambda name: dtype(name).bits)
    return DomainError(
        f"{device.name} has no peak for {' or '.join(candidates)} (it has: {', '.join(device.peaks)}), "
        f"which {effects.name} computes {wanted} in.",
        remedy=f"Ask for formats that it has, as in --weights {widest} --activations {widest}.",
    )


def _places(device: Device) -> tuple[str, ...]:
    """What rules may name: the CPU's instruction set, then the kind of unit."""
    return (device.unit,) if device.engine_set is None else (device.engine_set, device.unit)


def resolved_precision(graph: Graph, asked: Precision) -> Precision:
    """The three formats with nothing left open: what is asked, what the model says, f32 as frameworks make it.

    A cache has the activations' format.
    """
    stated = graph.precision or UNSTATED
    activations = asked.activations or stated
    return Precision(
        weights=dtype(asked.weights or stated).name,
        activations=dtype(activations).name,
        kv=dtype(asked.kv or activations).name,
    )


def engine_formats(asked: Precision, runtime: str) -> Precision:
    """Eight and four bits of weights and cache by the engine's own formats of them, where those are blocks of GGUF.

    ggml has no plain i8: who asks llama.cpp for eight bits gets a file in q8_0.
    """
    descriptor = known_engine(runtime)
    if descriptor is None or not is_gguf_block(descriptor.small.byte):
        return asked
    own = {"i8": descriptor.small.byte, "i4": descriptor.small.narrow}
    return replace(asked, weights=own.get(asked.weights or "", asked.weights), kv=own.get(asked.kv or "", asked.kv))


def held_precision(
    graph: Graph, asked: Precision, effects: RuntimeEffects, unit: str, *, quantised: bool = False
) -> Precision:
    """The formats of an engine that quantises networks whole, or loads all floats into the one that it computes in.

    On a GPU a model of single precision whose weights are asked for in halves is a half model (`module.half()`, an
    engine built for f16): its activations are halves too, unless another format is asked for.
    """
    if (
        effects.stored
        and asked.weights is None
        and is_generative(graph)
        and graph.precision in _FLOATS
        and is_open(graph)
    ):
        asked = replace(asked, weights=effects.stored)
    if asked.activations is None and is_open(graph):
        if asked.weights in _HALVES and unit == "gpu" and graph.precision in {"f32", None}:
            return replace(asked, activations=asked.weights)
        if not is_generative(graph) and (whole := _whole(graph, asked, effects, unit, quantised)) is not None:
            return replace(asked, weights=whole, activations=whole)
    stated = effects.held.get(unit)
    if stated is None or asked.activations is not None or graph.precision not in _HALVES or not is_open(graph):
        return asked
    activations = asked.weights if asked.weights in _FLOATS else stated
    return replace(asked, weights=asked.weights or activations, activations=activations)


def _whole(graph: Graph, asked: Precision, effects: RuntimeEffects, unit: str, quantised: bool) -> str | None:
    """The format that a network has throughout, its activations too; None where it has floats between its weights.

    It is asked for, or what an engine makes of the floats that it is given. An NPU multiplies bytes by bytes: no engine
    there keeps floats between weights of eight bits.
    """
    if asked.weights is None:
        stated = graph.precision or UNSTATED
        made = next(iter(effects.whole), None) if quantised and stated in _FLOATS else None
        made = made or widened_by(graph, asked, effects).get(stated, stated)
        return made if made in effects.whole and made != stated else None
    return asked.weights if asked.weights in effects.whole or (asked.weights == "i8" and unit == "npu") else None


def widened_by(graph: Graph, asked: Precision, effects: RuntimeEffects) -> Mapping[str, str]:
    """The format that each narrower one is widened to on loading: an engine that computes in f32 may hold halves so."""
    made = is_generative(graph)
    widened = {
        name.removeprefix(_ARRAYS): wide
        for name, wide in effects.widened.items() if not (made and name.startswith(_ARRAYS))
    }  # fmt: skip
    if not effects.held or asked.activations is None or not is_open(graph):
        return widened
    narrower = (name for name in sorted(_HALVES) if dtype(name).bits < dtype(asked.activations).bits)
    return {**widened, **dict.fromkeys(narrower, asked.activations)}


def is_open(graph: Graph) -> bool:
    """Whether a precision decides what the activations are in: a file of operators names their formats."""
    formats = (tensor.dtype for _, op in graph.ops() for tensor in op.outputs if tensor.role == "activation")
    return next(formats, None) is None


_parameters = Kept()


def weight_formats(graph: Graph, precision: Precision) -> dict[str, float]:
    """The share of the parameters that is stored in each format, most first: a tensor's own, else the precision's."""
    counts: Counter[str] = Counter()
    for name, count in _parameters.get_or_make((), (graph,), lambda: _by_format(graph)).items():
        counts[name or precision.weights or UNSTATED] += count
    whole = sum(counts.values())
    return {name: count / whole for name, count in counts.most_common()}


def counted_precision(graph: Graph, asked: Precision) -> Precision:
    """The resolved precision with the format that most weights have: tensors that name their own keep it."""
    precision = resolved_precision(graph, asked)
    return replace(precision, weights=next(iter(weight_formats(graph, precision)), precision.weights))


def _by_format(graph: Graph) -> Counter[str | None]:
    """Parameters by the format that their tensors name; under None, tensors without a format."""
    counts: Counter[str | None] = Counter()
    for tensor, times in graph.weights():
        if tensor.role == "weight" and isinstance(tensor.elements, int):
            counts[tensor.dtype] += times * tensor.elements
    return counts


def with_overrides(graph: Graph, overrides: Mapping[str, str]) -> Graph:
    """The graph with the weights of some ops in other formats: `{"lm_head*": "f16"}` by the op's name in its block."""
    unused = set(overrides)
    blocks = []
    for block in graph.blocks:
        ops = []
        for op in block.ops:
            pattern = next((key for key in overrides if fnmatchcase(op.name, key)), None)
            unused.discard(pattern or "")
            ops.append(op if pattern is None else _stored_as(op, dtype(overrides[pattern]).name))
        blocks.append(replace(block, ops=tuple(ops)))
    if unused:
        raise DomainError(
            f"No op is named {', '.join(sorted(unused))}.", remedy="Patterns are as for files: *.lm_head, *proj*."
        )
    return replace(graph, blocks=tuple(blocks))


def _stored_as(op: Op, name: str) -> Op:
    return replace(op, weights=tuple(_as(tensor, name) for tensor in op.weights))


def _as(tensor: Tensor, name: str) -> Tensor:
    return replace(tensor, dtype=name, stored_bytes=None) if tensor.role == "weight" else tensor
