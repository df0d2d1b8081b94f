"""What a template gives: the blocks of a model, or of one part of it."""

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from inferometer.core.frozen import frozen
from inferometer.core.graph import Block, Op, Tensor
from inferometer.formats.huggingface import nn

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
    last = replace(ops[-1], outputs=(nn.tensor(name, *nn.output(ops).shape), *ops[-1].outputs[1:]))
    return (*ops[:-1], last)


def once_only(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """Blocks that run once a request."""
    return tuple(replace(block, ops=nn.once(block.ops)) for block in blocks)


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
        nn.elementwise(f"{at}.waves", "sinusoid", nn.tensor(name, nn.BATCH), flops=2),
        outputs=(nn.tensor(f"{at}.waves", nn.BATCH, frequencies),),
    )
    return [waves, *two_layers(at, nn.output(waves), module, features, layers=layers)]


def two_layers(at: str, x: Tensor, module: str, features: int, *, layers: tuple[str, str] = LAYERS) -> list[Op]:
    first, second = layers
    ops = [nn.linear(f"{at}.linear_1", x, features, f"{module}.{first}", bias=True)]
    ops.append(nn.activation(f"{at}.act", ops, "silu"))
    return [*ops, nn.linear(f"{at}.linear_2", ops, features, f"{module}.{second}", bias=True)]


def modulated(at: str, x: Tensor, condition: Tensor, module: str, chunks: int) -> list[Op]:
    """Adaptive norm: the condition gives `chunks` vectors (shifts, scales, gates); the norm itself has no weights."""
    active = nn.activation(f"{at}.silu", condition, "silu")
    vectors = nn.linear(f"{at}.modulation", active, chunks * nn.width(x), module, bias=True)
    normed = nn.norm(f"{at}.norm", x, "layer")
    return [active, vectors, normed, moved(at, nn.output(normed), nn.output(vectors))]


def moved(at: str, x: Tensor, vectors: Tensor) -> Op:
    """What a modulation does: x · (1 + scale) + shift."""
    return nn.elementwise(f"{at}.modulate", "scale and shift", x, vectors, flops=2)
