"""The ops that templates are made of: one small function a kind, from the tensor that comes in to the op.

An op's name is short and the same in every family (`layers.{}.attn.q_proj`); a weight's name is the checkpoint's own
(`transformer.h.{}.attn.c_attn.weight`), so that stored files can be matched. An op's output has the op's name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from inferometer.core.dims import Dim, Symbol, product
from inferometer.core.graph import Op, Role, Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "BATCH", "CONTEXT", "ENCODER", "FRAMES", "IMAGE", "LOGITS", "QUERY", "activation", "add", "constant", "convolution",
    "copy", "elementwise", "embedding", "linear", "multiply", "norm", "once", "output", "pool", "reshaped", "split",
    "tensor", "view", "weight",
]  # fmt: skip

BATCH, QUERY, CONTEXT, LOGITS = Symbol("batch"), Symbol("query"), Symbol("context"), Symbol("logits")
IMAGE, FRAMES, ENCODER = Symbol("image"), Symbol("frames"), Symbol("encoder")


def tensor(name: str, *shape: Dim, role: Role = "activation") -> Tensor:
    return Tensor(name=name, shape=shape, role=role)


def weight(name: str, *shape: int) -> Tensor:
    return Tensor(name=name, shape=shape, role="weight")


def constant(name: str, *shape: int) -> Tensor:
    """Stored beside the weights, but no parameter: running statistics, index tables."""
    return Tensor(name=name, shape=shape, role="constant")


def output(op: Op | Iterable[Op]) -> Tensor:
    """What an op, or the last of several, gives."""
    last = op if isinstance(op, Op) else tuple(op)[-1]
    return last.outputs[0]


def width(x: Tensor) -> int:
    """The last axis of a tensor whose features lie there."""
    last = x.shape[-1]
    if not isinstance(last, int):
        raise TypeError(f"The features of {x.name} are not a fixed number.")
    return last


def linear(
    name: str,
    x: Tensor,
    features: int,
    module: str,
    *,
    bias: bool | str = False,
    tied: str = "",
    transposed: bool = False,
) -> Op:
    """`bias` is a flag or the bias's own name; `tied` names a weight that another op owns; `transposed` is [in, out]."""
    shape = (width(x), features) if transposed else (features, width(x))
    weights = [weight(tied or f"{module}.weight", *shape)]
    if bias:
        weights.append(weight(bias if isinstance(bias, str) else f"{module}.bias", features))
    attributes: dict[str, Any] = {"in_features": width(x), "out_features": features}
    if transposed:
        attributes["layout"] = "in_out"
    y = tensor(name, *x.shape[:-1], features)
    return Op(name=name, kind="linear", inputs=(x,), outputs=(y,), weights=tuple(weights), attributes=attributes)


def norm(
    name: str, x: Tensor, kind: str, module: str = "", *, bias: bool = False, axis: int = -1, features: int = 0
) -> Op:
    """`features` where the norm runs over less than the whole axis (a head); no `module`, no learned scale."""
    size = features or x.shape[axis]
    if not isinstance(size, int):
        raise TypeError(f"The features of {x.name} are not a fixed number.")
    weights = [weight(f"{module}.weight", size)] if module else []
    if module and bias:
        weights.append(weight(f"{module}.bias", size))
    if kind == "batch":
        weights += [constant(f"{module}.running_mean", size), constant(f"{module}.running_var", size)]
    y = tensor(name, *x.shape)
    attributes = {"norm": kind, "features": size}
    return Op(name=name, kind="norm", inputs=(x,), outputs=(y,), weights=tuple(weights), attributes=attributes)


def embedding(name: str, ids: Tensor, rows: int, features: int, table: str) -> Op:
    y = tensor(name, *ids.shape, features)
    return Op(name=name, kind="embedding", inputs=(ids,), outputs=(y,), weights=(weight(table, rows, features),))


def activation(name: str, x: Tensor, function: str) -> Op:
    return Op(
        name=name, kind="activation", inputs=(x,), outputs=(tensor(name, *x.shape),), attributes={"function": function}
    )


def elementwise(name: str, function: str, *inputs: Tensor, weights: tuple[Tensor, ...] = (), flops: int = 1) -> Op:
    """The first input has the shape of the output; the others are broadcast."""
    attributes = {"function": function, "flops_per_element": flops}
    y = tensor(name, *inputs[0].shape)
    return Op(name=name, kind="elementwise", inputs=inputs, outputs=(y,), weights=weights, attributes=attributes)


def add(name: str, *inputs: Tensor, out: str = "") -> Op:
    op = elementwise(name, "add", *inputs, flops=len(inputs) - 1)
    return replace(op, outputs=(tensor(out or name, *inputs[0].shape),))


def multiply(name: str, *inputs: Tensor, weights: tuple[Tensor, ...] = ()) -> Op:
    return elementwise(name, "multiply", *inputs, weights=weights)


def view(name: str, x: Tensor, *shape: Dim) -> Op:
    """A reshape or slice that moves nothing."""
    return Op(name=name, kind="view", inputs=(x,), outputs=(tensor(name, *shape),))


def split(name: str, x: Tensor, /, **parts: tuple[Dim, ...]) -> Op:
    """One tensor seen as several."""
    outputs = tuple(tensor(f"{name}.{part}", *shape) for part, shape in parts.items())
    return Op(name=name, kind="view", inputs=(x,), outputs=outputs)


def reshaped(x: Tensor, *shape: Dim) -> Tensor:
    """The same tensor in another shape, for an op that looks at it differently."""
    return replace(x, shape=shape)


def copy(name: str, function: str, inputs: tuple[Tensor, ...], *shape: Dim, weights: tuple[Tensor, ...] = ()) -> Op:
    """Bytes that really move: concatenations, padding, transposes that are written out."""
    y = tensor(name, *shape)
    return Op(name=name, kind="copy", inputs=inputs, outputs=(y,), weights=weights, attributes={"function": function})


def convolution(
    name: str,
    x: Tensor,
    features: int,
    kernel: tuple[int, ...],
    module: str,
    *,
    strides: tuple[int, ...] = (),
    padding: tuple[int, ...] = (),
    groups: int = 1,
    bias: bool = False,
) -> Op:
    """Channels first: [batch, channels, *space]. Output sides are ⌊(side + 2·padding − kernel) / stride⌋ + 1."""
    channels = x.shape[1]
    if not isinstance(channels, int):
        raise TypeError(f"The channels of {x.name} are not a fixed number.")
    strides, padding = strides or (1,) * len(kernel), padding or (0,) * len(kernel)
    space = tuple(sides(x.shape[2:], kernel, strides, padding))
    weights = [weight(f"{module}.weight", features, channels // groups, *kernel)]
    if bias:
        weights.append(weight(f"{module}.bias", features))
    attributes = {
        "in_channels": channels, "out_channels": features, "groups": groups, "kernel": kernel, "strides": strides,
        "padding": padding, "dilations": (1,) * len(kernel), "transposed": False,
    }  # fmt: skip
    y = tensor(name, x.shape[0], features, *space)
    return Op(name=name, kind="convolution", inputs=(x,), outputs=(y,), weights=tuple(weights), attributes=attributes)


def sides(
    space: tuple[Dim, ...], kernel: tuple[int, ...], strides: tuple[int, ...], padding: tuple[int, ...]
) -> Iterable[Dim]:
    for side, k, stride, pad in zip(space, kernel, strides, padding, strict=True):
        yield (side + (2 * pad - k)) // stride + 1


def pool(name: str, x: Tensor, function: str, kernel: int = 0, stride: int = 0, padding: int = 0) -> Op:
    """Without a kernel the whole plane becomes one value a channel, as [batch, channels]."""
    if not kernel:
        y, attributes = tensor(name, *x.shape[:2]), {"function": "global", "kernel": ()}
    else:
        rank = len(x.shape) - 2
        space = sides(x.shape[2:], (kernel,) * rank, (stride or kernel,) * rank, (padding,) * rank)
        y = tensor(name, *x.shape[:2], *space)
        attributes = {"function": function, "kernel": (kernel,) * rank, "strides": (stride or kernel,) * rank}
    return Op(name=name, kind="pool", inputs=(x,), outputs=(y,), attributes=attributes)


def once(ops: Iterable[Op]) -> tuple[Op, ...]:
    """Mark ops that run once a request, not at every decoding step: an encoder, the keys of cross-attention."""
    return tuple(replace(op, attributes={**op.attributes, "once": True}) for op in ops)


def elements(x: Tensor) -> Dim:
    return product(x.shape)


def reduce(name: str, x: Tensor, function: str, axis: int) -> Op:
    y = tensor(name, *x.shape[:axis], *x.shape[axis + 1 :])
    return Op(
        name=name, kind="reduce", inputs=(x,), outputs=(y,), attributes={"function": function, "axes": (axis,)}
    )


def resize(name: str, x: Tensor, mode: str, space: tuple[Dim, ...]) -> Op:
    y = tensor(name, *x.shape[:2], *space)
    return Op(name=name, kind="resize", inputs=(x,), outputs=(y,), attributes={"mode": mode})
