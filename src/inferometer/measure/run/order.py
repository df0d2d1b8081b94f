"""What a measuring child is asked to do. It is pickled for the child, so it holds plain values only."""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from inferometer.core.frozen import frozen
from inferometer.engines.base import Target
from inferometer.measure.bench.plan import Plan
from inferometer.measure.run.turns import TurnsAddress


@frozen
class TextOrder:
    """A generation to repeat. The prompt is `words` if given, otherwise random tokens."""

    prompt: int
    generate: int
    depth: int = 0
    words: str | None = None


@frozen
class MeasureOrder:
    """`runtime` is a plug-in's name, or `module:attribute` for one that is not installed.

    By the name of an input: `limits` say how many values an integer may take, and
    `inputs` are files or numbers that the user gave. `sizes` are the open sizes, by our names for them. The engine
    opens the file as it is, open sizes included, as a program in production does; the inputs then have the target's
    `shapes`.
    `shape` asks for the instrumented run, `energy` for joules where a sensor has them; `outputs` is a folder for the
    model's outputs, for verification.
    """

    runtime: str
    target: Target
    plan: Plan
    text: tuple[TextOrder, ...] = ()  # empty: the model takes arrays
    sizes: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    bare: bool = False  # passes alone, with no loop around them
    shape: bool = True
    guarded: bool = True
    outputs: Path | None = None
    energy: bool = False
    seed: int = 0
    turns: TurnsAddress | None = None  # where to wait for a turn, if another model is measured along with it
