"""What denoisers are told beside the image: the time step, a text's vector, a class. Each is one vector an image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inferometer.readers.huggingface.parts import BATCH, activation, elementwise, linear, norm, output, tensor

if TYPE_CHECKING:
    from inferometer.core.graph import Op, Tensor

__all__ = ["FREQUENCIES", "LATENT", "LAYERS", "modulated", "timestep", "two_layers"]

FREQUENCIES = 256  # sines and cosines that a time step becomes, in every DiT
LAYERS = ("linear_1", "linear_2")
LATENT = 8  # pixels on a side of one latent pixel, in the autoencoders these denoisers are trained with


def timestep(
    at: str, module: str, features: int, *, frequencies: int = FREQUENCIES, layers: tuple[str, str] = LAYERS
) -> list[Op]:
    """A number becomes sines and cosines, then passes two layers."""
    step = tensor(f"{at}.step", BATCH, frequencies)
    waves = elementwise(f"{at}.waves", "sinusoid", step, flops=2)
    return [waves, *two_layers(at, output(waves), module, features, layers=layers)]


def two_layers(at: str, x: Tensor, module: str, features: int, *, layers: tuple[str, str] = LAYERS) -> list[Op]:
    first, second = layers
    ops = [linear(f"{at}.linear_1", x, features, f"{module}.{first}", bias=True)]
    ops.append(activation(f"{at}.act", output(ops), "silu"))
    return [*ops, linear(f"{at}.linear_2", output(ops), features, f"{module}.{second}", bias=True)]


def modulated(at: str, x: Tensor, condition: Tensor, module: str, chunks: int, features: int) -> list[Op]:
    """Adaptive norm: the condition gives `chunks` vectors (shifts, scales, gates); the norm itself has no weights."""
    active = activation(f"{at}.silu", condition, "silu")
    linear_op = linear(f"{at}.modulation", output(active), chunks * features, module, bias=True)
    normed = norm(f"{at}.norm", x, "layer")
    moved = elementwise(f"{at}.modulate", "scale and shift", output(normed), output(linear_op), flops=2)
    return [active, linear_op, normed, moved]
