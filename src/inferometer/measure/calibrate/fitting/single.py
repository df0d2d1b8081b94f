"""Single ops as graphs: a kernel measured alone, as the cost model sees it.

A kernel's class, shape and floor come from the same code that prices it in a model, so a table fitted to kernels
applies to a model's ops.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from inferometer.core.dims import Symbol
from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.core.workload import Precision, Workload
from inferometer.known.engines import require_effects
from inferometer.measure.calibrate.fitting.points import OpWork, works_of
from inferometer.predict.options import Options
from inferometer.predict.ready import make_ready

if TYPE_CHECKING:
    from inferometer.core.device import Device
    from inferometer.core.engine import RuntimeEffects


_FEATURES = 1024  # a usual width: rows are long enough that what a row costs does not show


@frozen
class Single:
    """An op of fixed sizes, in the phase it would run in, with `context` tokens in its cache."""

    op: Op
    phase: str
    context: int = 0
    batch: int = 1
    query: int = 1
    sizes: dict[str, Any] = field(default_factory=dict)


def linear(rows: int, inputs: int, outputs: int, *, bias: bool = False, phase: str = "forward") -> Single:
    added = (Tensor(name="b", shape=(outputs,), role="weight"),) if bias else ()
    op = Op(
        name=f"{'biased' if bias else 'linear'} {rows}x{inputs}x{outputs}",
        kind="linear",
        inputs=(Tensor(name="x", shape=(rows, inputs)),),
        outputs=(Tensor(name="y", shape=(rows, outputs)),),
        weights=(Tensor(name="w", shape=(outputs, inputs), role="weight"), *added),
        attributes={"in_features": inputs, "out_features": outputs},
    )
    return Single(op=op, phase=phase)


def matmul(many: int, rows: int, inner: int, outputs: int) -> Single:
    """A product of activations with each other, `many` at once."""
    op = Op(
        name=f"matmul {many}x{rows}x{inner}x{outputs}",
        kind="matmul",
        inputs=(Tensor(name="x", shape=(many, rows, inner)), Tensor(name="y", shape=(many, inner, outputs))),
        outputs=(Tensor(name="z", shape=(many, rows, outputs)),),
        attributes={"contracted": inner},
    )
    return Single(op=op, phase="forward")


def mixture(rows: int, hidden: int, inner: int, *, experts: int, chosen: int) -> Single:
    """Gated experts of which each row passes through `chosen`."""
    op = Op(
        name=f"experts {rows}x{hidden}x{inner} {chosen} of {experts}",
        kind="moe_experts",
        inputs=(Tensor(name="x", shape=(rows, hidden)),),
        outputs=(Tensor(name="y", shape=(rows, hidden)),),
        weights=(
            Tensor(name="both", shape=(experts, 2 * inner, hidden), role="weight"),
            Tensor(name="down", shape=(experts, hidden, inner), role="weight"),
        ),
        attributes={
            "hidden": hidden, "intermediate": inner, "experts": experts, "top_k": chosen, "gated": True,
            "function": "silu",
        },
    )  # fmt: skip
    return Single(op=op, phase="forward")


def attention(  # noqa: PLR0913 - what attention is
    batch: int, heads: tuple[int, int], head_dim: int, *, query: int, context: int = 0, cached: bool = True
) -> Single:
    """`heads` are the numbers of query heads and key-value heads. One query after a context is a decode step."""
    width, narrow = heads[0] * head_dim, heads[1] * head_dim
    sides = {"q": width, "k": narrow, "v": narrow}
    op = Op(
        name=f"attention {batch}x{heads[0]}/{heads[1]}x{head_dim} {query}+{context}",
        kind="attention",
        inputs=tuple(Tensor(name=name, shape=(batch, query, size)) for name, size in sides.items()),
        outputs=(Tensor(name="y", shape=(batch, query, width)),),
        attributes={
            "heads": heads[0], "kv_heads": heads[1], "head_dim": head_dim, "value_dim": head_dim, "query": query,
            "context": context, "causal": cached, "cached": cached,
        },
    )  # fmt: skip
    phase = "forward" if not cached else "decode" if query == 1 and context else "prefill"
    return Single(op=op, phase=phase, batch=batch, query=query, context=context)


def padded(batch: int, heads: int, head_dim: int, *, query: int) -> Single:
    """An encoder's attention over texts, which may have padding: their length is the question's."""
    plain = attention(batch, (heads, heads), head_dim, query=query, cached=False)
    attributes = {**plain.op.attributes, "query": Symbol("query")}
    return replace(plain, op=replace(plain.op, name=f"texts {batch}x{heads}x{head_dim} {query}", attributes=attributes))


def convolution(  # noqa: PLR0913 - what a convolution is
    batch: int, channels: tuple[int, int], side: int, *, kernel: int, stride: int = 1, groups: int = 1
) -> Single:
    """A square image and a square window, padded so that a stride of 1 keeps the size."""
    out = -(-side // stride)
    op = Op(
        name=f"convolution {kernel}x{kernel}/{stride} {batch}x{channels[0]}x{side} to {channels[1]} in {groups}",
        kind="convolution",
        inputs=(Tensor(name="x", shape=(batch, channels[0], side, side)),),
        outputs=(Tensor(name="y", shape=(batch, channels[1], out, out)),),
        weights=(Tensor(name="w", shape=(channels[1], channels[0] // groups, kernel, kernel), role="weight"),),
        attributes={
            "in_channels": channels[0], "out_channels": channels[1], "kernel": (kernel, kernel),
            "strides": (stride, stride), "groups": groups,
        },
    )  # fmt: skip
    return Single(op=op, phase="forward", batch=batch)


def vector(kind: str, elements: int, *, features: int = _FEATURES, inputs: int = 1, phase: str = "forward") -> Single:
    """A norm, a sum, an activation … over rows of `features`."""
    shape = (max(1, elements // features), min(features, elements))
    forms = {
        "norm": {"norm": "layer", "features": shape[1]},
        "elementwise": {"function": "add", "flops_per_element": 1},
    }
    op = Op(
        name=f"{kind} {elements}" + ("" if features == _FEATURES else f" by {features}"),
        kind=kind,
        inputs=tuple(Tensor(name=f"x{number}", shape=shape) for number in range(inputs)),
        outputs=(Tensor(name="y", shape=shape),),
        attributes=forms.get(kind, {"function": "relu"}),
    )
    return Single(op=op, phase=phase)


def image_vector(kind: str, batch: int, channels: int, side: int) -> Single:
    """What is done to images between convolutions: a batch norm, a pool, a mean over each plane, another layout."""
    whole = (batch, channels, side, side)
    shapes = {"pool": (batch, channels, side // 2, side // 2), "reduce": (batch, channels)}
    forms: dict[str, dict[str, Any]] = {
        "norm": {"norm": "batch", "features": channels}, "pool": {"kernel": (3, 3), "strides": (2, 2)},
    }  # fmt: skip
    op = Op(
        name=f"image {kind} {batch}x{channels}x{side}",
        kind=kind,
        inputs=(Tensor(name="x", shape=whole),),
        outputs=(Tensor(name="y", shape=shapes.get(kind, whole)),),
        attributes=forms.get(kind, {}),
    )
    return Single(op=op, phase="forward", batch=batch)


def embedding(rows: int, vocabulary: int, features: int) -> Single:
    op = Op(
        name=f"embedding {rows} of {vocabulary}x{features}",
        kind="embedding",
        inputs=(Tensor(name="ids", shape=(1, rows), role="index"),),
        outputs=(Tensor(name="y", shape=(1, rows, features)),),
        weights=(Tensor(name="w", shape=(vocabulary, features), role="weight"),),
    )
    return Single(op=op, phase="forward")


def work_of_single(single: Single, device: Device, *, runtime: RuntimeEffects | str, dtype: str) -> OpWork:
    """The op as a runtime would run it on a device, weights and activations in one format."""
    graph = Graph(name=single.op.name, blocks=(Block(name="single", ops=(single.op,)),), precision=dtype)
    workload = Workload(batch=single.batch, precision=Precision(weights=dtype, activations=dtype, kv=dtype))
    ready = make_ready(graph, device, effects=require_effects(runtime), workload=workload, options=Options())
    sizes = {"batch": single.batch, "query": single.query, "context": single.context, "logits": 1, **single.sizes}
    works = works_of(ready.plan, sizes, single.phase)
    if len(works) != 1:
        raise DomainError(f"{single.op.name} is not an op that takes time.")
    return works[0]
