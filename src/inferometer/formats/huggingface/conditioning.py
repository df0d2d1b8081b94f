"""What denoisers are conditioned on: the time step, a text, a class. Each is one vector per image."""

from dataclasses import replace

from inferometer.core.graph import Op, Tensor
from inferometer.formats.huggingface import nn

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
