"""An engine for tests: every number it gives is written in its model file, and its clock moves only when it works.

A model of format `fake` is a JSON file, written by `write_arrays` or `write_text`. `Target.options` asks for trouble:

    refuse=WORDS     open fails with an EngineError that has the words
    crash=open|N     the process dies (SIGABRT) while opening, or in step N, counted from 0
    hang=open|N      it never comes back; with note=PATH it makes that file first
    memory=open|N    it raises MemoryError
    fail=N           step N raises an EngineError
    fall_back=1      it runs on cpu whatever unit was asked for, and says so

`FakeRuntime` can be pickled, so that a child process can be given one; the child then has a clock of its own.
"""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from inferometer.core.errors import DomainError, EngineError, FormatError, UnknownNameError
from inferometer.engines.base import (
    Capabilities,
    Event,
    Kernel,
    Opened,
    Port,
    Ready,
    Request,
    Stage,
    Target,
    require_choices,
    require_format,
    require_ready,
)

UNITS = ("cpu", "gpu")
ABLE = Capabilities(
    units=UNITS, text=True, logits=True, precision=("f32", "f16"), optimisation=("none", "all")
)  # fmt: skip
LAYERS = (("conv1", "Conv", 1e-3), ("relu1", "Relu", 2e-4), ("pool", "MaxPool", 3e-4), ("head", "Gemm", 5e-4))


@dataclass
class FakeClock:
    """Seconds when called; it moves when it is told to."""

    now_ns: int = 0

    def __call__(self) -> float:
        return self.now_ns * 1e-9

    def ns(self) -> int:
        return self.now_ns

    def advance(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)


@dataclass
class BusyClock:
    """The real clock: work is time really spent, so that code that measures with its own clock sees it."""

    def __call__(self) -> float:
        return time.perf_counter()

    def ns(self) -> int:
        return time.perf_counter_ns()

    def advance(self, seconds: float) -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass


def write_arrays(
    path: Path, *, layers=LAYERS, fuse=(("conv1", "relu1"),), gap_s=1e-4, cost_per_kernel_s=4e-6, around_s=6e-6
) -> Path:
    """A model y = 2 x of float32 [batch, 3].

    `layers` are name, kind and seconds. `fuse` lists layers that run as one kernel. `gap_s` is time between kernels in
    every step. An instrumented step costs `cost_per_kernel_s` more inside each kernel's time, and `around_s` outside.
    """
    path.write_text(
        json.dumps(
            {
                "kind": "arrays", "layers": [list(layer) for layer in layers], "fuse": [list(names) for names in fuse],
                "gap_s": gap_s, "cost_per_kernel_s": cost_per_kernel_s, "around_s": around_s,
            }
        )
    )  # fmt: skip
    return path


def write_text(
    path: Path, *, layers=LAYERS, vocabulary=64, prefill_s=1e-4, context_s=1e-6, sample_s=1e-5, cost_per_kernel_s=4e-6
) -> Path:
    """A language model: after token t comes t + 1. A step takes its layers' time, plus `context_s` a cached token.

    A prefill takes the layers' time and `prefill_s` a token of the prompt.
    """
    path.write_text(
        json.dumps(
            {
                "kind": "text", "layers": [list(layer) for layer in layers], "fuse": [], "vocabulary": vocabulary,
                "prefill_s": prefill_s, "context_s": context_s, "sample_s": sample_s, "gap_s": 0.0,
                "cost_per_kernel_s": cost_per_kernel_s, "around_s": 0.0,
            }
        )
    )  # fmt: skip
    return path


@dataclass(frozen=True, kw_only=True)
class FakeRuntime:
    clock: FakeClock | BusyClock = field(default_factory=FakeClock)
    name: str = "fake"
    title: str = "The fake engine"
    formats: frozenset[str] = frozenset({"fake"})
    capabilities: Capabilities = ABLE

    def probe(self) -> Ready:
        return Ready(version="1.0")

    def open(self, target: Target):
        require_ready(self)
        require_format(self, target)
        require_choices(self, target)
        model = _model(target)
        unit = _unit(target)
        trouble = Trouble(options=dict(target.options))
        trouble.strike("open")
        if "refuse" in target.options:
            raise EngineError(f"{self.title} refused {str(target.path)!r}: {target.options['refuse']}")
        self.clock.advance(0.25)
        kind = FakeTextSession if model["kind"] == "text" else FakeSession
        if target.text != (model["kind"] == "text"):
            raise DomainError(f"{str(target.path)!r} is a model of {model['kind']}, and was opened as another.")
        return kind(model=model, target=target, unit=unit, clock=self.clock, trouble=trouble)


@dataclass(kw_only=True)
class Trouble:
    """What the options ask to go wrong, and when."""

    options: dict[str, str]

    def strike(self, moment: str) -> None:
        if self.options.get("crash") == moment:
            os.abort()
        if self.options.get("hang") == moment:
            if "note" in self.options:
                Path(self.options["note"]).touch()
            threading.Event().wait()
        if self.options.get("memory") == moment:
            raise MemoryError
        if self.options.get("fail") == moment:
            raise EngineError(f"The fake engine failed in step {moment}: no reason.")


def _model(target: Target):
    try:
        found = json.loads(target.path.read_text())
    except (OSError, ValueError) as error:
        raise FormatError(f"{str(target.path)!r} is no fake model: {error}.") from error
    if not isinstance(found, dict) or "layers" not in found:
        raise FormatError(f"{str(target.path)!r} is no fake model.")
    return found


def _unit(target: Target) -> str:
    asked = (target.unit or "cpu").split(":")[0]
    if asked not in UNITS:
        raise UnknownNameError("unit of the fake engine", asked, UNITS, listing=f"There are {', '.join(UNITS)}.")
    for provider in target.providers:
        if provider not in UNITS:
            raise UnknownNameError("fake provider", provider, UNITS, listing=f"There are {', '.join(UNITS)}.")
    return "cpu" if target.options.get("fall_back") else asked


@dataclass(kw_only=True)
class Engine:
    """What both kinds of session share: kernels, their time, and what was recorded of them."""

    model: dict
    target: Target
    unit: str
    clock: FakeClock | BusyClock
    trouble: Trouble
    steps: int = 0
    closed: bool = False
    record: dict = field(default_factory=dict)

    @property
    def cost_per_kernel_s(self) -> float | None:
        return self.model["cost_per_kernel_s"] if self.target.instrument else None

    def _opened(self, inputs=(), outputs=()) -> Opened:
        asked = (self.target.unit or "cpu").split(":")[0]
        fell = () if asked == self.unit else (f"{asked} was asked for; every kernel ran on {self.unit}.",)
        return Opened(
            stages=(Stage(name="load", seconds=0.2), Stage(name="compile", seconds=0.05)),
            versions={"fake": "1.0"},
            inputs=inputs,
            outputs=outputs,
            threads=self.target.threads or 1,
            unit=self.unit,
            placed={self.unit: len(self._plan())},
            precision=self.target.precision or "f32",
            notes=fell,
        )

    def _plan(self):
        """(name, kind, seconds, layers) of each kernel."""
        group = {name: tuple(names) for names in self.model["fuse"] for name in names}
        rows, seen = [], set()
        by_name = {name: (kind, seconds) for name, kind, seconds in self.model["layers"]}
        for name, kind, seconds in self.model["layers"]:
            names = group.get(name, (name,))
            if names in seen:
                continue
            seen.add(names)
            if len(names) == 1:
                rows.append((name, kind, seconds, names))
            else:
                total = sum(by_name[each][1] for each in names)
                rows.append(("+".join(names), "Fused" + kind, total, names))
        return rows

    def _run(self, phase: str, extra_s: float = 0.0) -> None:
        """One pass; `extra_s` falls on the last kernel."""
        if self.closed:
            raise EngineError("The fake session is closed.")
        self.trouble.strike(str(self.steps))
        self.steps += 1
        plan = self._plan()
        for index, (name, _, seconds, _) in enumerate(plan):
            spent = seconds + (extra_s if index == len(plan) - 1 else 0.0)
            if self.target.instrument:
                spent += self.model["cost_per_kernel_s"]
                before = self.clock.ns()
                self.clock.advance(spent)
                self.record.setdefault(phase, {}).setdefault(name, []).append((self.clock.ns() - before) * 1e-9)
                self.clock.advance(self.model["around_s"])
            else:
                self.clock.advance(spent)
        self.clock.advance(self.model["gap_s"])

    def kernels(self):
        record, self.record = self.record, {}
        return {
            phase: tuple(
                Kernel(
                    name=name, kind=kind, samples_s=tuple(times[name]), unit=self.unit, layers=names, provider=self.unit
                )
                for name, kind, _, names in self._plan()
            )
            for phase, times in record.items()
        }  # fmt: skip

    def close(self) -> None:
        self.closed = True


@dataclass(kw_only=True)
class FakeSession(Engine):
    placed: np.ndarray | None = None
    result: np.ndarray | None = None

    @property
    def opened(self) -> Opened:
        shape = ("batch", 3)
        return self._opened(
            inputs=(Port(name="x", dtype="float32", shape=shape),),
            outputs=(Port(name="y", dtype="float32", shape=shape),),
        )

    def feed(self, inputs) -> None:
        if set(inputs) != {"x"}:
            raise DomainError(f"The fake model takes the input 'x', and was given {', '.join(map(repr, inputs))}.")
        array = inputs["x"]
        if array.dtype != np.float32 or array.ndim != 2 or array.shape[1] != 3:
            raise DomainError(f"'x' must be float32 [batch, 3], and is {array.dtype} {list(array.shape)}.")
        self.placed = array.copy()

    def step(self) -> None:
        if self.placed is None:
            raise DomainError("The fake session was stepped before it was fed.")
        self._run("forward")
        self.result = self.placed * 2

    def outputs(self):
        return {} if self.result is None else {"y": self.result}


@dataclass(kw_only=True)
class FakeTextSession(Engine):
    @property
    def opened(self) -> Opened:
        return self._opened()

    @property
    def vocabulary(self) -> int:
        return int(self.model["vocabulary"])

    def tokenise(self, text: str) -> tuple[int, ...]:
        return tuple(ord(letter) % self.vocabulary for letter in text)

    def detokenise(self, ids: tuple[int, ...]) -> str:
        return "".join(chr(ord("a") + each % 26) for each in ids)

    def generate(self, request: Request):
        self._check(request)
        last, cached = request.prompt[-1], request.depth
        made = 0
        while made < max(1, request.generate):
            fresh = len(request.prompt) if made == 0 else 1
            start = self.clock.ns()
            if made == 0:
                self._run("prefill", fresh * self.model["prefill_s"])
            else:
                self._run("decode", cached * self.model["context_s"])
            ran = self.clock.ns()
            self.clock.advance(self.model["sample_s"])
            end = self.clock.ns()
            last = (last + 1) % self.vocabulary
            ids = (last,) if request.generate else ()
            yield Event(
                kind="token" if made else "prefill", start_ns=start, end_ns=end, tokens=fresh, context=cached, ids=ids,
                text=self.detokenise(ids), parts={"run": (ran - start) * 1e-9, "sample": (end - ran) * 1e-9},
            )  # fmt: skip
            cached += fresh
            made += 1

    def _check(self, request: Request) -> None:
        if not request.prompt:
            raise DomainError("The prompt is empty: there is nothing to go on from.")
        wrong = [each for each in request.prompt if not 0 <= each < self.vocabulary]
        if wrong:
            raise DomainError(f"The token {wrong[0]} is outside the vocabulary of {self.vocabulary}.")
        needs = request.depth + len(request.prompt) + request.generate
        if self.target.context is not None and needs > self.target.context:
            raise DomainError(f"{needs} tokens do not fit the context of {self.target.context}.")

    def score(self, ids):
        return np.eye(self.vocabulary, dtype=np.float32)[[(each + 1) % self.vocabulary for each in ids]]


# For a measuring child, which is told a runtime as `fakes.fake_runtime:BUSY`: its clock is the real one.
BUSY = FakeRuntime(clock=BusyClock())
BLIND = FakeRuntime(clock=BusyClock(), capabilities=Capabilities(units=UNITS, text=True, per_op=False))
