"""Measure steps of probe models along every path that PyTorch runs them on, as rows of a journal.

    python -m workshop.calibrations.paths --workers 10 --budget 540 --out FILE.jsonl

Decoders and mixtures of experts read prompts and make tokens, encoders read texts with a mask and without one; each is
launched op by op, captured in a CUDA graph, compiled, and compiled and captured. A row has the seconds of a step, and
where it is launched those after which the host is free, the kernels that ran and the host's speed just before.

Compiling is most of the time, so `--workers` processes compile ahead into a cache, each its share of the cases, and are
done before one process alone measures. Two that ran on the device at once told nothing: a step took up to four times as
long while others compiled theirs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

from inferometer.known.machine.health.host_calls import host_call_s
from inferometer.measure.calibrate.torch import models as probes
from inferometer.measure.calibrate.torch.kernels import torch_dtype
from inferometer.measure.calibrate.torch.provider import torch_environment
from inferometer.measure.calibrate.torch.timing import Clock
from workshop.calibrations.forwards import kernels_of, launched_s

CONFIGS: dict[str, dict[str, Any]] = {
    **{name: config for name, config in probes.PROBES.items() if "decoder" in name or "mixture" in name},
    "probe-mixture-c": probes._mixture(1024, 512, 4, (16, 4, 64), (64, 8)),  # noqa: SLF001 - one more of its kind
    "probe-text-a": {**probes._encoder(768, 4, 12), "vocab_size": 30000},  # noqa: SLF001 - as above
    "probe-text-b": {**probes._encoder(1024, 4, 16), "vocab_size": 30000},  # noqa: SLF001 - as above
}
PROMPTS = ((1, 64), (1, 128), (1, 256), (1, 512), (1, 1024), (1, 2048), (1, 4096), (4, 256), (16, 128))
ROUTED = ((1, 64), (1, 128), (1, 256), (1, 512), (1, 1024), (1, 2048), (1, 4096))
STEPS = (
    (1, 500), (1, 8000), (1, 16000), (1, 32000), (4, 1000), (4, 8000), (4, 16000), (4, 32000), (16, 1000), (16, 4000),
    (16, 16000), (64, 500), (64, 2000), (64, 8000), (128, 500), (128, 2000), (128, 4000),
)  # fmt: skip
FEW_STEPS = ((1, 500), (4, 8000), (8, 2000), (32, 1000), (32, 8000))
COMPILING = 0.45  # of the budget, at most
TEXTS = ((1, 64), (1, 384), (8, 128), (8, 512), (32, 64), (32, 256), (32, 384), (64, 128), (64, 512))
WAYS = ("compile-graph", "compile", "eager", "graph")
DEEP = ("probe-decoder-b", "probe-decoder-d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    model: str
    phase: str
    dtype: str
    batch: int
    query: int = 1
    context: int = 0
    mask: str = "none"  # of a text: none given, all ones, or some zeros; of a prompt: none, or `causal` in memory
    way: str

    @property
    def compiled(self) -> bool:
        return self.way.startswith("compile")

    @property
    def captured(self) -> bool:
        return self.way.endswith("graph")


def cases() -> list[Case]:
    """Prompts, steps and texts along the paths that engines run them on. A text is compiled only to be captured."""
    found: list[Case] = []
    about: dict[str, Any]
    for name, config in CONFIGS.items():
        kind = config["model_type"]
        if kind == "bert":
            for dtype, mask, (batch, query) in product(("bf16", "f32"), ("none", "ones", "padded"), TEXTS):
                ways = ("graph", "eager") if mask == "padded" else ("compile-graph", "graph", "eager")
                about = {"model": name, "dtype": dtype, "phase": "forward", "batch": batch, "query": query}
                found += [Case(**about, mask=mask, way=way) for way in ways]
            continue
        for batch, query in PROMPTS if kind == "llama" else ROUTED:
            about = {"model": name, "dtype": "bf16", "phase": "prefill", "batch": batch, "query": query}
            found += [Case(**about, mask="causal", way=way) for way in ("compile-graph", "graph")]
            found += [Case(**about, way=way) for way in ("compile-graph", "compile", "eager")]
        for batch, context in STEPS if name in DEEP else FEW_STEPS:
            about = {"model": name, "dtype": "bf16", "phase": "decode", "batch": batch, "context": context}
            found += [Case(**about, mask="causal", way=way) for way in ("compile-graph", "graph")]
    return found


@dataclass(slots=True)
class Made:
    """Builds the step of a case. The last network is kept: the next case often has the same."""

    clock: Clock
    kept: tuple[tuple[str, str, bool], Any] | None = None

    def call(self, case: Case) -> Callable[[], Any]:
        torch, clock, config = self.clock.torch, self.clock, CONFIGS[case.model]
        modules = case.phase == "forward" or case.way == "eager"
        key = (case.model, case.dtype, modules)
        if self.kept is None or self.kept[0] != key:
            self.kept = None  # before the next is made
            clock.tidy()
            form = torch_dtype(torch, case.dtype)
            self.kept = (key, probes._made(clock, config, form, modules=modules))  # noqa: SLF001 - cases of its own
        net = self.kept[1]
        if case.phase == "forward":
            call = text_call(torch, clock.place, net.weights, case)
        else:
            sizes = {"batch": case.batch, "query": case.query, "context": case.context}
            run = probes._Run(model=case.model, phase=case.phase, **sizes)  # noqa: SLF001 - as above
            call = net.prepared(run, masked=case.mask == "causal", config=config)
        if not case.compiled:
            return call
        torch.compiler.reset()
        compiled: Callable[[], Any] = torch.compile(call, dynamic=False)
        return compiled


def text_call(torch: Any, place: str, model: Any, case: Case) -> Callable[[], Any]:
    ids = torch.randint(5, 1000, (case.batch, case.query), device=place)
    if case.mask == "none":
        return lambda: model(input_ids=ids)
    mask = torch.ones_like(ids)
    if case.mask == "padded":
        mask[:, -max(1, case.query // 8) :] = 0
    return lambda: model(input_ids=ids, attention_mask=mask)


def row_of(case: Case, **measured: Any) -> dict[str, Any]:
    said = {name: getattr(case, name) for name in ("model", "phase", "dtype", "batch", "query", "context", "way")}
    return {**said, "mask": case.mask, "config": CONFIGS[case.model], **measured}


def timed(clock: Clock, case: Case, call: Callable[[], Any]) -> dict[str, Any]:
    if case.captured:
        return row_of(case, seconds=clock.replayed(call, wall=True).seconds)
    before = host_call_s()
    seconds = clock.wall(call).seconds
    beside = {"launched_s": launched_s(clock, call), "kernels": kernels_of(clock, call), "host_call_s": before}
    return row_of(case, seconds=seconds, **beside)


def named_kernels(clock: Clock, case: Case, call: Callable[[], Any]) -> dict[str, Any]:
    """What ran, by name, with the seconds of each: of one case, to see which kernels a path has."""
    torch = clock.torch
    for _ in range(3):
        call()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as trace:
        call()
        clock.sync()
    seconds: dict[str, list[float]] = {}
    for event in trace.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            seconds.setdefault(event.name[:120], []).append(event.device_time * 1e-6)
    return row_of(case, names={name: [len(each), sum(each)] for name, each in seconds.items()})


def work(arguments: argparse.Namespace, begun: float) -> None:
    """Compile one process's share of the cases, and measure nothing."""
    torch = import_module("torch")
    made, clock = Made(Clock(torch=torch, place=arguments.place)), Clock(torch=torch, place=arguments.place)
    part, parts = map(int, arguments.share.split("/"))
    with torch.inference_mode():
        for case in [case for case in cases() if case.way == "compile-graph"][part::parts]:
            if time.time() > begun + COMPILING * arguments.budget:
                return
            try:
                made.call(case)()
                clock.sync()
            except Exception as error:  # noqa: BLE001 - whoever measures says it again
                print(f"{case}: {error!r}"[:200], flush=True)
            clock.tidy()


def measured(clock: Clock, arguments: argparse.Namespace, begun: float) -> Iterator[dict[str, Any]]:
    """One way after the other, in the order that they were asked for; the names of kernels of one text on each."""
    made, ways = Made(clock), arguments.ways
    for case in sorted((case for case in cases() if case.way in ways), key=lambda case: ways.index(case.way)):
        if time.time() > begun + arguments.budget:
            print(f"left out, the budget is spent: {case}", flush=True)
            return
        try:
            call = made.call(case)
            if (case.model, case.batch, case.query) == ("probe-text-a", 32, 256):
                yield named_kernels(clock, case, call)
            yield timed(clock, case, call)
        except Exception as error:  # noqa: BLE001 - as above
            yield row_of(case, error=repr(error)[:300])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=540.0, help="seconds, of compiling too")
    parser.add_argument("--workers", type=int, default=10, metavar="N", help="processes that compile")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--place", default="cuda")
    parser.add_argument("--share", help=argparse.SUPPRESS)
    parser.add_argument("--begun", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    begun = arguments.begun or time.time()
    if arguments.share:
        work(arguments, begun)
        return
    command = [sys.executable, "-m", "workshop.calibrations.paths", "--begun", str(begun), "--out", str(arguments.out)]
    command += ["--budget", str(arguments.budget), "--place", arguments.place]
    shares = [f"{each}/{arguments.workers}" for each in range(arguments.workers)]
    started = [subprocess.Popen([*command, "--share", share]) for share in shares]
    for each in started:
        try:
            each.wait(max(0.0, begun + COMPILING * arguments.budget + 20 - time.time()))
        except subprocess.TimeoutExpired:  # in the middle of a long one
            each.kill()
    torch = import_module("torch")
    clock = Clock(torch=torch, place=arguments.place, limit_s=0.25)
    with arguments.out.open("a", encoding="utf-8") as journal, torch.inference_mode():
        versions, circumstances = torch_environment(torch)
        about = {"versions": {**versions, "transformers": import_module("transformers").__version__},
                 "environment": circumstances, "cpus": os.cpu_count(),
                 "created": datetime.now(UTC).isoformat(timespec="seconds")}  # fmt: skip
        journal.write(json.dumps(about) + "\n")
        for row in measured(clock, arguments, begun):
            journal.write(json.dumps(row) + "\n")
            journal.flush()


if __name__ == "__main__":
    main()
