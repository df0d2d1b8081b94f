"""What is to be written, and where."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inferometer.core.graph import Graph

__all__ = ["Order"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """`config` says what the graph need not know (the numbers of norms and rotations); `sizes` fixes symbols."""

    graph: Graph
    path: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    weights: str = "f32"
    seed: int = 0
    sizes: Mapping[str, int] = field(default_factory=dict)
    overwrite: bool = False
