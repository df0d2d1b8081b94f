"""Measured cases that predictions are tested on, and other tools' predictions of them: one JSON object per line.

A case names the model, device, runtime, format and sizes, the measured seconds, which statistic they are, and their
source. Its `role` says what it is for: `test` cases were never used in a fit; a `train` case was, so it counts only if
its model is left out of the fit.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from inferometer.core.errors import FormatError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph
from inferometer.measure.calibrate.fitting.points import StepPoint

CASES = Path(__file__).parents[2] / "known" / "data" / "accuracy"
T = TypeVar("T")


@frozen
class AccuracyCase:
    model: str
    device: str
    runtime: str
    dtype: str
    phase: str
    batch: int
    seconds: float
    source: str
    prompt: int | None = None
    context: int | None = None
    image: int | None = None
    weights: str | None = None  # their format, if it differs from the activations'
    statistic: str = "median"
    samples: int | None = None
    least_s: float | None = None
    threads: int | None = None
    role: str = "test"
    used_for: tuple[str, ...] = ()  # what else its time was used for: `priors`

    @property
    def query(self) -> int:
        return 1 if self.phase == "decode" else self.prompt or 1

    @property
    def ask_arguments(self) -> dict[str, Any]:
        """What a user would give to `predict`."""
        sizes = {"context": self.context, "prompt": 1} if self.phase == "decode" else {"prompt": self.prompt}
        if self.phase == "prefill":
            sizes["generate"] = 0
        return {
            "batch": self.batch, "image": self.image, "weights": self.weights or self.dtype,
            "activations": self.dtype, **sizes,
        }  # fmt: skip

    @property
    def key(self) -> tuple[Any, ...]:
        """Matches a peer's prediction with its cases."""
        length = self.context if self.phase == "decode" else self.prompt
        return self.model, self.device, self.phase, self.batch, length


@frozen
class Peer:
    """Another tool's prediction. It knows no runtime, so it is compared with every case of the same sizes."""

    peer: str
    model: str
    device: str
    phase: str
    batch: int
    length: int
    seconds: float

    @property
    def key(self) -> tuple[Any, ...]:
        return self.model, self.device, self.phase, self.batch, self.length


def read_cases(folder: Path = CASES) -> tuple[AccuracyCase, ...]:
    """Every case in a folder's files, those of peers left out."""
    paths = sorted(path for path in folder.glob("*.jsonl") if not path.name.startswith("peers"))
    return tuple(case for path in paths for case in _lines(path, AccuracyCase))


def read_peers(folder: Path = CASES) -> tuple[Peer, ...]:
    return tuple(peer for path in sorted(folder.glob("peers*.jsonl")) for peer in _lines(path, Peer))


def _lines(path: Path, kind: type[T]) -> Iterable[T]:
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        if line.strip():
            try:
                yield msgspec.json.decode(line, type=kind)
            except msgspec.DecodeError as error:
                raise FormatError(f"Line {number} of {path} is not a valid row: {error}.") from None


@cache
def case_graph(name: str) -> Graph:
    """The model without a limit on its window: cases beyond the limit were measured with a longer window."""
    from inferometer.formats.resolve import read  # noqa: PLC0415 - only predictions need a reader

    return replace(read(name), context_limit=None)


@cache
def family_of(model: str) -> str:
    """What kind of model it is, judged by its ops."""
    kinds = {op.kind for _, op in case_graph(model).ops()}
    cached = any(op.kind == "attention" and op.get("cached") for _, op in case_graph(model).ops())
    if cached:
        return "decoder"
    if "convolution" in kinds and "attention" not in kinds:
        return "cnn"
    return "vision transformer" if "convolution" in kinds else "encoder"


def step_of_case(case: AccuracyCase) -> StepPoint:
    """The case as a point that a fit can use."""
    return StepPoint(
        model=case.model,
        phase=case.phase,
        seconds=case.seconds,
        dtype=case.dtype,
        batch=case.batch,
        query=case.query,
        context=case.context or 0,
        image=case.image,
    )
