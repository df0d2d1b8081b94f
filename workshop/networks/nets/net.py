"""A network of the zoo: how it is built on the meta device, and what it reads."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, kw_only=True)
class Net:
    """`inputs` are shapes whose first axis is the batch, with the format after a colon where it is not f32.

    `step`: both sides of the image stay open, in multiples of it. `published` is somebody's count of its parameters, to
    so many digits as it was given with: a count that does not round to it fails the build.
    """

    make: Callable[[], Any]
    inputs: tuple[tuple[int, ...] | tuple[tuple[int, ...], str], ...]
    step: int = 0
    fixed: bool = False
    published: str | None = None


@dataclass(frozen=True, kw_only=True)
class Config:
    """A language model of transformers by its config.

    Where `layers` is given, only `head` layers and one `period` are traced, and the period is repeated up to `layers`:
    a trace of sixty layers that are alike takes minutes.
    """

    config: dict[str, Any]
    published: str | None = None
    layers: int = 0
    head: int = 0
    period: int = 1


def image(side, wide=0, channels=3):
    return ((1, channels, side, wide or side),)


def examples(net, batch, cells):
    """Inputs of a network with an open batch of `batch`, and with sides of `cells` steps where they are open."""
    made = []
    for entry in net.inputs:
        shape, dtype = entry if isinstance(entry[0], tuple) else (entry, "float32")
        if not net.fixed:
            shape = (batch * shape[0], *shape[1:])
        if net.step and len(shape) == 4:
            shape = (*shape[:2], net.step * cells, net.step * cells)
        made.append(torch.empty(shape, dtype=getattr(torch, dtype), device="meta"))
    return tuple(made)
