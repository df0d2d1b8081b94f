"""Attention nodes as `attention` ops, with the products and rotations that some of them hold as ops of their own."""

from dataclasses import replace
from typing import Any

from inferometer.core.dims import Dim
from inferometer.core.graph import Op, Tensor
from inferometer.readers.onnx.faults import UnknownShapeError
from inferometer.readers.onnx.rules.attention import Heads, heads_of
from inferometer.readers.onnx.step import Maker, Step
from inferometer.readers.onnx.value import Value

__all__ = ["attention_attributes", "attention_op", "lower_attention", "lower_causal_conv", "lower_linear_attention"]


def attention_attributes(sizes: Heads, *, cached: bool, **more: Any) -> dict[str, Any]:
    """Keys that are neither as many as the queries nor added to a cache come from elsewhere: cross attention."""
    cross = not cached and sizes.keys != sizes.queries
    return {
        "heads": sizes.heads,
        "kv_heads": sizes.kv_heads,
        "head_dim": sizes.head_dim,
        "value_dim": sizes.value_dim,
        "query": sizes.queries,
        "context": sizes.keys if cross else sizes.past,
        "cross": cross,
        "cached": cached,
        **more,
    }


def fixed_heads(sizes: Heads) -> bool:
    """Whether all that rules multiply without binding are numbers."""
    return all(isinstance(n, int) for n in (sizes.heads, sizes.kv_heads, sizes.head_dim, sizes.value_dim))


def lower_attention(step: Step, maker: Maker) -> list[Op]:
    """ONNX's own. Inputs: Q, K, V, mask, past key, past value."""
    call = step.call
    try:
        sizes = heads_of(call)
    except UnknownShapeError:
        return maker.custom(step, "the shapes of its inputs are not known")
    if not fixed_heads(sizes):
        return maker.custom(step, "the sizes of its heads are not known")
    attributes = attention_attributes(
        sizes,
        cached=call.has(4),
        causal=bool(call.integer("is_causal")),
        window=_window(call.integer("left_window_size", -1)),
        soft_cap=call.number("softcap") > 0,
    )
    return [attention_op(step, maker, (0, 1, 2), (4, 5), attributes)]


def _window(left: int) -> int | None:
    """Tokens before the query's own, as a window that counts it; -1 is all."""
    return left + 1 if left >= 0 else None


def attention_op(
    step: Step,
    maker: Maker,
    qkv: tuple[int, ...],
    caches: tuple[int, ...],
    attributes: dict[str, Any],
    outputs: int = 1,
) -> Op:
    """Queries, keys and values first; caches keep the format they are stored in; masks come last."""
    call, inputs = step.call, step.call.inputs
    main = [inputs[i] for i in qkv if call.has(i)]
    rest = [inputs[i] for i in range(len(inputs)) if i not in (*qkv, *caches) and call.has(i)]
    activations = [value for value in (*main, *rest) if value is not None and not value.constant]
    op = maker.op_of(step, "attention", activations, rest, attributes)
    past = tuple(maker.tensor(value, "kv") for i in caches if call.has(i) and (value := inputs[i]) is not None)
    named = [value for value in step.outs if value.name]
    results = tuple(
        maker.tensor(value, "kv" if 0 < step.outs.index(value) <= 2 and outputs else None) for value in named
    )
    return replace(op, inputs=(*op.inputs[: len(main)], *op.inputs[len(main) :], *past), outputs=results)


def part(step: Step, suffix: str, outputs: tuple[Value, ...]) -> Step:
    """A part of a node as a step of its own."""
    return Step(name=f"{step.name}/{suffix}", call=step.call, row=step.row, outs=outputs)


def inner_tensor(step: Step, suffix: str, shape: tuple[Dim, ...], like: Tensor) -> Tensor:
    """A result that lives between two ops of one node."""
    return Tensor(name=f"{step.name}/{suffix}", shape=shape, dtype=like.dtype)


def lower_linear_attention(step: Step, maker: Maker) -> list[Op]:
    """A scan over matrix states. Each token and head updates and reads a [key, value] state: counted as a state-space
    scan whose channels are the values of all heads and whose state is as wide as a key.
    """
    call = step.call
    heads = call.integer("q_num_heads")
    q, v = call.shape(0), call.shape(2)
    kv_heads = max(1, call.integer("kv_num_heads"))
    if heads < 1 or not isinstance(q[-1], int) or not isinstance(v[-1], int):
        return maker.custom(step, "the sizes of its heads are not known")
    inner, state = v[-1] // kv_heads * heads, q[-1] // heads
    return [maker.op(step, "ssm_scan", inner=inner, state=state, heads=heads, groups=kv_heads, version=2)]


def lower_causal_conv(step: Step, maker: Maker) -> list[Op]:
    call = step.call
    weight = call.value(1).shape
    kernel = weight[-1] if weight else None
    channels = call.shape(0)[1]
    if not isinstance(kernel, int) or not isinstance(channels, int):
        return maker.custom(step, "the shape of its weight is not known")
    attributes = {
        "in_channels": channels,
        "out_channels": channels,
        "groups": channels,
        "kernel": (kernel,),
        "strides": (1,),
        "dilations": (1,),
        "transposed": False,
    }
    return [maker.op(step, "convolution", **attributes)]
