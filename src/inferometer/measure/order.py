"""What a measuring child is asked to do. It travels to the child as it is, so it holds plain values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from inferometer.bench.plan import Plan
from inferometer.runtimes.base import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOrder:
    """A generation to be repeated. `words` are tokenised where they are given; else the prompt is random tokens."""

    prompt: int
    generate: int
    depth: int = 0
    words: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """`runtime` is a plug-in's name, or `module:attribute` for one that is not installed.

    By the name of an input: `shapes` are those the workload gives it, `limits` say how many values an integer may take,
    `inputs` are files or numbers given for some. `sizes` are the open ones by our names for them. The engine opens the
    file as it is, open sizes and all, as a program in production does; the inputs then have these.
    `shape` asks for the instrumented run; `outputs` is where to keep what the model gave, for verification.
    """

    runtime: str
    target: Target
    plan: Plan
    text: tuple[TextOrder, ...] = ()  # empty for a model that takes arrays
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    shape: bool = True
    guarded: bool = True
    outputs: Path | None = None
    seed: int = 0
