"""What is to be written, and where."""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph


@frozen
class Order:
    """`config` says what the graph need not know (the numbers of norms and rotations); `sizes` fixes symbols."""

    graph: Graph
    path: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    weights: str = "f32"
    seed: int = 0
    sizes: Mapping[str, int] = field(default_factory=dict)
    overwrite: bool = False


def epsilon_of(config: Mapping[str, Any]) -> float:
    """What a norm adds under its root: configs have five names for it."""
    names = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps")
    return next((float(config[name]) for name in names if config.get(name) is not None), 1e-5)


def rope_theta_of(config: Mapping[str, Any], *others: str) -> float:
    """The base of a rotation's angles, also under the names of `others`."""
    inside = config.get("rope_parameters")
    merged = {**(inside if isinstance(inside, Mapping) else {}), **config}
    return float(next((merged[name] for name in ("rope_theta", *others) if name in merged), 10_000.0))


def require_sizes(order: Order) -> None:
    """Sizes must be of symbols that the graph has, and whole numbers."""
    known = order.graph.symbols
    for name, size in order.sizes.items():
        if name not in known:
            listing = f"Its sizes: {', '.join(sorted(known)) or 'none'}."
            raise UnknownNameError(f"open size of {order.graph.name}", name, known, listing=listing)
        if isinstance(size, bool) or size < 1:
            raise DomainError(f"The size {name} must be a whole number of 1 or more, and is {size!r}.")
