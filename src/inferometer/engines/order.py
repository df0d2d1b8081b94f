"""What a tool in the child is told, and what it answers."""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from inferometer.core.frozen import frozen


@frozen
class ToolOrder:
    """Make `target` of `source`. `calibration` are .npz files, each with one set of inputs by their names.

    `shapes` are the inputs' at the sizes that were asked for. `format` is what `target` is to be.
    """

    source: Path
    target: Path
    format: str
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)  # the inputs', as numpy names them
    calibration: tuple[Path, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    threads: int | None = None
    trusted: bool = False  # by the owner of the machine: code that the source brings along may run


@frozen
class ToolAnswer:
    """How a tool ended: with notes, or with an error in its own words and what may be done about it."""

    notes: tuple[str, ...] = ()
    error: str | None = None
    remedy: str | None = None
