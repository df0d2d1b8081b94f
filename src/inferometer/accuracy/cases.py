"""Measured cases that predictions are tried on, and what other tools say of the same: data, one JSON object a line.

A case names the model, the device, the runtime, the format and the sizes, the seconds that were measured, which
statistic they are, and where they come from. Its `role` says what it is for: `test` cases were never used to fit
anything; a `train` case was, so that it counts only where its whole model was left out of the fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from inferometer.calibrate.fitting.points import StepPoint
from inferometer.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from inferometer.core.graph import Graph

CASES = Path(__file__).parent.parent / "catalog" / "data" / "accuracy"
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
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
    weights: str | None = None  # their format, where it is another than that of the activations
    statistic: str = "median"
    samples: int | None = None
    least_s: float | None = None
    threads: int | None = None
    role: str = "test"
    used_for: tuple[str, ...] = ()  # what else its time was looked at for: `priors`

    @property
    def query(self) -> int:
        return 1 if self.phase == "decode" else self.prompt or 1

    @property
    def asked(self) -> dict[str, Any]:
        """What a user would ask `predict` for."""
        sizes = {"context": self.context, "prompt": 1} if self.phase == "decode" else {"prompt": self.prompt}
        if self.phase == "prefill":
            sizes["generate"] = 0
        return {
            "batch": self.batch, "image": self.image, "weights": self.weights or self.dtype,
            "activations": self.dtype, **sizes,
        }  # fmt: skip

    @property
    def key(self) -> tuple[Any, ...]:
        """What a peer's prediction is matched by."""
        length = self.context if self.phase == "decode" else self.prompt
        return self.model, self.device, self.phase, self.batch, length


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another tool's prediction. It knows no runtime, so it stands beside every case of the same sizes."""

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


def read_cases(folder: Path = CASES) -> tuple[Case, ...]:
    """Every case of a folder: its files but those of peers."""
    paths = sorted(path for path in folder.glob("*.jsonl") if not path.name.startswith("peers"))
    return tuple(case for path in paths for case in _lines(path, Case))


def read_peers(folder: Path = CASES) -> tuple[Peer, ...]:
    return tuple(peer for path in sorted(folder.glob("peers*.jsonl")) for peer in _lines(path, Peer))


def _lines(path: Path, kind: type[T]) -> Iterable[T]:
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        if line.strip():
            try:
                yield msgspec.json.decode(line, type=kind)
            except msgspec.DecodeError as error:
                raise FormatError(f"Line {number} of {path} is no {kind.__name__.casefold()}: {error}.") from None


@cache
def case_graph(name: str) -> Graph:
    """The model without a limit on its window: what was measured beyond it was measured with a longer one."""
    from inferometer.readers.resolve import read  # noqa: PLC0415 - only predictions need a reader

    return replace(read(name), context_limit=None)


@cache
def family_of(model: str) -> str:
    """What kind of model it is: by what it is made of."""
    kinds = {op.kind for _, op in case_graph(model).ops()}
    cached = any(op.kind == "attention" and op.get("cached") for _, op in case_graph(model).ops())
    if cached:
        return "decoder"
    if "convolution" in kinds and "attention" not in kinds:
        return "cnn"
    return "vision transformer" if "convolution" in kinds else "encoder"


def step_of_case(case: Case) -> StepPoint:
    """The case as something a fit can be made from."""
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
