"""What templates are made of: the ops, one small function a kind, and what a template gives.

An op's name is short and the same in every family (`layers.{}.attn.q_proj`); a weight's name is the checkpoint's own
(`transformer.h.{}.attn.c_attn.weight`), so that stored files can be matched. An op's output has the op's name.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from inferometer.core.dims import Dim, Symbol
from inferometer.core.frozen import frozen
from inferometer.core.graph import Block, Op, Role, Tensor

_WRITTEN = frozenset({"gelu_new", "gelu_fast"})  # the tanh form of GELU, out of eight ops instead of one

BATCH, QUERY, CONTEXT, LOGITS = Symbol("batch"), Symbol("query"), Symbol("context"), Symbol("logits")
IMAGE, FRAMES, ENCODER = Symbol("image"), Symbol("frames"), Symbol("encoder")


# What an op reads: a tensor, or the first result of an op or of the last of several.
Source = Tensor | Op | Sequence[Op]


def tensor(name: str, *shape: Dim, role: Role = "activation") -> Tensor:
    return Tensor(name=name, shape=shape, role=role)


def weight(name: str, *shape: int) -> Tensor:
    return Tensor(name=name, shape=shape, role="weight")


def constant(name: str, *shape: int) -> Tensor:
    """Stored beside the weights, but no parameter: running statistics, index tables."""
    return Tensor(name=name, shape=shape, role="constant")


def output(source: Source) -> Tensor:
    """The tensor itself, or what an op, or the last of several, gives."""
    if isinstance(source, Tensor):
        return source
    return (source if isinstance(source, Op) else source[-1]).outputs[0]


def width(x: Tensor) -> int:
    """The last axis of a tensor whose features lie there."""
    return _fixed(x, -1)


def channels_of(x: Tensor) -> int:
    """The second axis: [batch, channels, …]."""
    return _fixed(x, 1)


def _fixed(x: Tensor, axis: int) -> int:
    size = x.shape[axis]
    if not isinstance(size, int):
        raise TypeError(f"Axis {axis} of {x.name} is not a fixed number.")
    return size


def reshaped(x: Tensor, *shape: Dim) -> Tensor:
    """The same tensor in another shape, for an op that looks at it differently."""
    return replace(x, shape=shape)


def linear(  # noqa: PLR0913 - a matrix is stored in as many ways
    name: str,
    x: Source,
    features: int,
    module: str,
    *,
    bias: bool | str = False,
    tied: str = "",
    transposed: bool = False,
) -> Op:
    """A matrix over the last axis.

    `bias` is a flag or the bias's own name; `tied` is the weight's own name where that is not `module.weight`;
    `transposed` weights are stored as [in, out].
    """
    x = output(x)
    shape = (width(x), features) if transposed else (features, width(x))
    weights = [weight(tied or f"{module}.weight", *shape)]
    if bias:
        weights.append(weight(bias if isinstance(bias, str) else f"{module}.bias", features))
    attributes: dict[str, Any] = {"in_features": width(x), "out_features": features}
    if transposed:
        attributes["layout"] = "in_out"
    y = tensor(name, *x.shape[:-1], features)
    return Op(name=name, kind="linear", inputs=(x,), outputs=(y,), weights=tuple(weights), attributes=attributes)


def norm(name: str, x: Source, kind: str, module: str = "", *, bias: bool = False) -> Op:
    """Over the last axis. Without a module it has no learned scale."""
    x = output(x)
    return _norm(name, x, kind, width(x), _learned(module, width(x), bias=bias))


def head_norm(name: str, x: Source, kind: str, module: str, features: int) -> Op:
    """Over each head's features, with one scale for all heads."""
    x = output(x)
    return _norm(name, x, kind, features, _learned(module, features, bias=False))


def channel_norm(name: str, x: Source, kind: str, module: str, *, groups: int = 0) -> Op:
    """With scale and bias for each channel of [batch, channels, …]: batch and group norms, ConvNeXt's layer norm."""
    x = output(x)
    features = channels_of(x)
    weights = _learned(module, features, bias=True)
    if kind == "batch":
        weights += [constant(f"{module}.{part}", features) for part in ("running_mean", "running_var")]
    op = _norm(name, x, kind, features, weights)
    return replace(op, attributes={**op.attributes, "groups": groups}) if groups else op


def _learned(module: str, features: int, *, bias: bool) -> list[Tensor]:
    parts = ("weight", "bias") if bias else ("weight",)
    return [weight(f"{module}.{part}", features) for part in parts] if module else []


def _norm(name: str, x: Tensor, kind: str, features: int, weights: list[Tensor]) -> Op:
    attributes = {"norm": kind, "features": features}
    if kind == "rms_offset":  # its scale is kept as what is added to 1, which is two ops more where nothing is fused
        attributes |= {"norm": "rms", "written": "offset"}
    y = tensor(name, *x.shape)
    return Op(name=name, kind="norm", inputs=(x,), outputs=(y,), weights=tuple(weights), attributes=attributes)


def embedding(name: str, ids: Tensor, rows: int, features: int, table: str) -> Op:
    y = tensor(name, *ids.shape, features)
    return Op(name=name, kind="embedding", inputs=(ids,), outputs=(y,), weights=(weight(table, rows, features),))


def activation(name: str, x: Source, function: str) -> Op:
    """What transformers writes out op by op keeps its name: an engine that fuses nothing runs all of them."""
    x = output(x)
    y = tensor(name, *x.shape)
    attributes = {"function": "gelu_tanh", "written": function} if function in _WRITTEN else {"function": function}
    return Op(name=name, kind="activation", inputs=(x,), outputs=(y,), attributes=attributes)


def elementwise(name: str, function: str, *inputs: Source, weights: tuple[Tensor, ...] = (), flops: int = 1) -> Op:
    """The first input has the shape of the output; the others are broadcast."""
    attributes = {"function": function, "flops_per_element": flops}
    read = tuple(output(source) for source in inputs)
    y = tensor(name, *read[0].shape)
    return Op(name=name, kind="elementwise", inputs=read, outputs=(y,), weights=weights, attributes=attributes)


def add(name: str, *inputs: Source, out: str = "") -> Op:
    op = elementwise(name, "add", *inputs, flops=len(inputs) - 1)
    return replace(op, outputs=(tensor(out or name, *output(op).shape),))


def multiply(name: str, *inputs: Source, weights: tuple[Tensor, ...] = ()) -> Op:
    return elementwise(name, "multiply", *inputs, weights=weights)


def view(name: str, x: Source, *shape: Dim) -> Op:
    """A reshape or slice that moves nothing."""
    x = output(x)
    return Op(name=name, kind="view", inputs=(x,), outputs=(tensor(name, *shape),))


def split(name: str, x: Source, /, **parts: tuple[Dim, ...]) -> Op:
    """One tensor seen as several."""
    x = output(x)
    outputs = tuple(tensor(f"{name}.{part}", *shape) for part, shape in parts.items())
    return Op(name=name, kind="view", inputs=(x,), outputs=outputs)


def copy(name: str, function: str, inputs: tuple[Source, ...], *shape: Dim, weights: tuple[Tensor, ...] = ()) -> Op:
    """Bytes that really move: concatenations, padding, transposes that are written out."""
    y, read = tensor(name, *shape), tuple(output(source) for source in inputs)
    return Op(name=name, kind="copy", inputs=read, outputs=(y,), weights=weights, attributes={"function": function})


@frozen
class ConvFilter:
    """What a convolution does to [batch, channels, *space]."""

    features: int
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[int, ...]
    groups: int = 1

    def sides(self, space: tuple[Dim, ...]) -> Iterator[Dim]:
        """⌊(side + 2·padding − kernel) / stride⌋ + 1."""
        return _sides(space, self.kernel, self.strides, self.padding)


def square(features: int, kernel: int, *, stride: int = 1, padding: int | None = None, groups: int = 1) -> ConvFilter:
    """A filter in two dimensions. Its default padding keeps the side length at stride 1."""
    pad = (kernel - 1) // 2 if padding is None else padding
    return ConvFilter(
        features=features, kernel=(kernel, kernel), strides=(stride, stride), padding=(pad, pad), groups=groups
    )


def convolution(name: str, x: Source, shape: ConvFilter, module: str, *, bias: bool = False) -> Op:
    x = output(x)
    channels, features = channels_of(x), shape.features
    weights = [weight(f"{module}.weight", features, channels // shape.groups, *shape.kernel)]
    if bias:
        weights.append(weight(f"{module}.bias", features))
    attributes = {
        "in_channels": channels, "out_channels": features, "groups": shape.groups, "kernel": shape.kernel,
        "strides": shape.strides, "padding": shape.padding, "dilations": (1,) * len(shape.kernel), "transposed": False,
    }  # fmt: skip
    y = tensor(name, x.shape[0], features, *shape.sides(x.shape[2:]))
    return Op(name=name, kind="convolution", inputs=(x,), outputs=(y,), weights=tuple(weights), attributes=attributes)


def pool(name: str, x: Source, function: str, window: tuple[int, int, int] | None = None, *, ceil: bool = False) -> Op:
    """`window` is kernel, stride and padding; without one each plane becomes a single number: [batch, channels].

    `ceil`: a window that only partly fits counts.
    """
    x = output(x)
    if window is None:
        y, attributes = tensor(name, *x.shape[:2]), dict[str, Any](function="global", kernel=None)
    else:
        kernel, strides, padding = ((side,) * (len(x.shape) - 2) for side in window)
        space = tuple(side + (window[1] - 1) for side in x.shape[2:]) if ceil else x.shape[2:]
        y = tensor(name, *x.shape[:2], *_sides(space, kernel, strides, padding))
        attributes = {"function": function, "kernel": kernel, "strides": strides, "padding": padding, "ceil": ceil}
    return Op(name=name, kind="pool", inputs=(x,), outputs=(y,), attributes=attributes)


def _sides(
    space: tuple[Dim, ...], kernel: tuple[int, ...], strides: tuple[int, ...], padding: tuple[int, ...]
) -> Iterator[Dim]:
    for side, k, stride, pad in zip(space, kernel, strides, padding, strict=True):
        yield (side + (2 * pad - k)) // stride + 1


def reduce(name: str, x: Source, function: str, axis: int) -> Op:
    x = output(x)
    y = tensor(name, *x.shape[:axis], *x.shape[axis + 1 :])
    return Op(name=name, kind="reduce", inputs=(x,), outputs=(y,), attributes={"function": function, "axes": (axis,)})


def resize(name: str, x: Source, mode: str, space: tuple[Dim, ...]) -> Op:
    x = output(x)
    y = tensor(name, *x.shape[:2], *space)
    return Op(name=name, kind="resize", inputs=(x,), outputs=(y,), attributes={"mode": mode})


def once(ops: Iterable[Op]) -> tuple[Op, ...]:
    """Mark ops that run once a request, not at every decoding step: an encoder, the keys of cross-attention."""
    return tuple(replace(op, attributes={**op.attributes, "once": True}) for op in ops)


# What a template gives: the blocks of a model, or of one part of it; and what templates share.

# What configs call an activation → what the work rules do.
_FUNCTIONS = {
    "gelu_pytorch_tanh": "gelu_tanh", "gelu_python": "gelu", "gelu_10": "gelu", "relu_squared": "relu2",
    "sqrelu": "relu2", "swish": "silu", "hard_swish": "hardswish",
}  # fmt: skip


@frozen
class Body:
    """`metadata` holds sizes by name; `default_sizes` in it are those of symbols that the model itself suggests."""

    blocks: tuple[Block, ...]
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    context_limit: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


def function_of(name: str) -> str:
    return _FUNCTIONS.get(name, name)


def ending_in(ops: list[Op], name: str) -> tuple[Op, ...]:
    """The ops with the last one's output under that name: what the next block reads."""
    last = replace(ops[-1], outputs=(tensor(name, *output(ops).shape), *ops[-1].outputs[1:]))
    return (*ops[:-1], last)


def once_only(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """Blocks that run once a request."""
    return tuple(replace(block, ops=once(block.ops)) for block in blocks)


def labels_of(config: Any) -> int:
    """How many classes a classifier has; two, as the library takes it, where the config does not say."""
    labels = config.get("id2label")
    count: int = config.whole("num_labels", len(labels) if isinstance(labels, Mapping) and labels else 2)
    return count


@frozen
class NamePrefixes:
    """Where a part of a model stands: what goes before the names of its weights and of its ops."""

    body: str = ""  # before the body's weights: `model.`
    head: str = ""  # before its heads' weights
    at: str = ""  # before the names of ops, where the part is one of several


# What denoisers are conditioned on: the time step, a text, a class. Each is one vector per image.

FREQUENCIES = 256  # sines and cosines that a time step becomes, in every DiT
LAYERS = ("linear_1", "linear_2")
LATENT = 8  # pixels on a side of one latent pixel, in the autoencoders these denoisers are trained with


def timestep(
    at: str, module: str, features: int, *, frequencies: int = FREQUENCIES, layers: tuple[str, str] = LAYERS
) -> list[Op]:
    """A number an image (the time step, or how strong the guidance is) becomes sines and cosines, then two layers."""
    name = "guidance" if at.endswith("guidance") else "timestep"
    waves = replace(
        elementwise(f"{at}.waves", "sinusoid", tensor(name, BATCH), flops=2),
        outputs=(tensor(f"{at}.waves", BATCH, frequencies),),
    )
    return [waves, *two_layers(at, output(waves), module, features, layers=layers)]


def two_layers(at: str, x: Tensor, module: str, features: int, *, layers: tuple[str, str] = LAYERS) -> list[Op]:
    first, second = layers
    ops = [linear(f"{at}.linear_1", x, features, f"{module}.{first}", bias=True)]
    ops.append(activation(f"{at}.act", ops, "silu"))
    return [*ops, linear(f"{at}.linear_2", ops, features, f"{module}.{second}", bias=True)]


def modulated(at: str, x: Tensor, condition: Tensor, module: str, chunks: int) -> list[Op]:
    """Adaptive norm: the condition gives `chunks` vectors (shifts, scales, gates); the norm itself has no weights."""
    active = activation(f"{at}.silu", condition, "silu")
    vectors = linear(f"{at}.modulation", active, chunks * width(x), module, bias=True)
    normed = norm(f"{at}.norm", x, "layer")
    return [active, vectors, normed, moved(at, output(normed), output(vectors))]


def moved(at: str, x: Tensor, vectors: Tensor) -> Op:
    """What a modulation does: x · (1 + scale) + shift."""
    return elementwise(f"{at}.modulate", "scale and shift", x, vectors, flops=2)
