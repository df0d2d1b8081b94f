"""Measure whole forwards of networks, and what their host takes to launch them, as rows of a journal.

    python -m workshop.calibrations.forwards --warm 8 --budget 520 --out FILE.jsonl

A network runs in four ways: `eager`, `graph` (its ops in a CUDA graph), `compile` (launched) and `compile-graph`. Each
row has the seconds of a step, those after which the host is free, the kernels that ran, and what a call took on the
host just before: hosts that are shared have two speeds, and only rows of the quick one say what a launch takes.

None of these networks is one that predictions are judged by. Compiling is most of the time, so other processes compile
ahead, into a cache that the one that measures reads; they are done before it begins.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from inferometer.known.engines import require_effects
from inferometer.known.machine.health.host_calls import host_call_s
from inferometer.known.zoo import model as catalog_model
from inferometer.measure.calibrate.run import ProbeCandidate
from inferometer.measure.calibrate.torch import models as probes
from inferometer.measure.calibrate.torch.kernels import torch_dtype
from inferometer.measure.calibrate.torch.provider import torch_environment
from inferometer.measure.calibrate.torch.timing import Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

IMAGES = (
    "resnet34", "mobilenet_v2", "densenet121", "swin_t", "wide_resnet50_2", "efficientnet_b2", "convnext_small",
    "vit_b_32", "regnet_y_1_6gf", "resnet101", "vit_l_16", "efficientnet_b4", "shufflenet_v2_x1_0",
)  # fmt: skip
TEXTS = ("roberta-base", "distilbert-base", "bert-large", "minilm-l6")
FORMS = ("bf16", "f32")
COMPILED = (32, 1, 128, 8)  # batches, the ones that say most first
UNCOMPILED = (1, 4, 16, 64, 128)
LENGTHS = {32: 128, 1: 384, 128: 64, 8: 384, 4: 128, 16: 384, 64: 128}  # tokens of a text, by batch
DEEP = tuple((batch, context) for context in (8000, 16000, 32000) for batch in (1, 4, 16, 64))
LATE_S = 30.0
Case = tuple[str, str, int, bool]  # network, format, batch, masked


def cases(batches: tuple[int, ...]) -> list[Case]:
    """All networks at one batch before any at the next, so that a budget that ends early leaves none out."""
    images = [(name, form, batch, False) for batch in batches for form in FORMS for name in IMAGES]
    texts = [(name, form, batch, True) for batch in batches for form in FORMS for name in TEXTS]
    texts += [(name, "bf16", batches[0], False) for name in TEXTS]
    share = len(images) // len(texts) + 1
    mixed: list[Case] = []
    while images or texts:
        mixed, images, texts = [*mixed, *texts[:1], *images[:share]], images[share:], texts[1:]
    return mixed


def prepared(torch: Any, place: str, case: Case) -> Callable[[], Any]:
    """One forward of a network with random weights, as a call without arguments."""
    name, form, batch, masked = case
    dtype = torch_dtype(torch, form)
    torch.manual_seed(0)
    if name in IMAGES:
        with torch.device(place):
            network = import_module("torchvision.models").get_model(name, weights=None).eval().to(dtype)
        pixels = torch.randn(batch, 3, 224, 224, device=place, dtype=dtype)
        return lambda: network(pixels)
    transformers = import_module("transformers")
    stated = dict(catalog_model(name).config)
    config = transformers.AutoConfig.for_model(stated.pop("model_type"), **stated)
    with torch.device(place):
        network = transformers.AutoModel.from_config(config).eval().to(dtype)
    ids = torch.randint(5, 1000, (batch, LENGTHS[batch]), device=place)
    if not masked:
        return lambda: network(input_ids=ids)
    mask = torch.ones_like(ids)
    return lambda: network(input_ids=ids, attention_mask=mask)


def launched_s(clock: Clock, call: Callable[[], Any], calls: int = 1) -> float:
    """Seconds a call until the host is free again, of a device that was idle."""
    seconds = []
    for _ in range(9):
        clock.sync()
        start = clock.now()
        for _ in range(calls):
            call()
        seconds.append((clock.now() - start) / calls)
    clock.sync()
    return median(seconds)


def kernels_of(clock: Clock, call: Callable[[], Any]) -> int | None:
    if not clock.cuda:
        return None
    torch = clock.torch
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as trace:
        call()
        clock.sync()
    return sum(1 for event in trace.events() if event.device_type == torch.autograd.DeviceType.CUDA)


def row_of(clock: Clock, case: Case, way: str, call: Callable[[], Any], *, captured: bool) -> dict[str, Any]:
    """A step's row. It has the keys of a whole step of a calibration, and what is known beside it."""
    name, form, batch, masked = case
    said = {"model": name, "phase": "forward", "dtype": form, "batch": batch, "way": way, "masked": masked}
    said["query"], said["image"] = (1, 224) if name in IMAGES else (LENGTHS[batch], None)
    said["host_call_s"] = host_call_s()
    if captured:
        return {**said, "seconds": clock.replayed(call, wall=True).seconds}
    beside = {"launched_s": launched_s(clock, call), "kernels": kernels_of(clock, call)}
    return {**said, "seconds": clock.wall(call).seconds, **beside}


def uncompiled(clock: Clock, case: Case) -> Iterator[dict[str, Any]]:
    call = prepared(clock.torch, clock.place, case)
    yield row_of(clock, case, "eager", call, captured=False)
    yield row_of(clock, case, "graph", call, captured=True)


def compiled(clock: Clock, case: Case) -> Iterator[dict[str, Any]]:
    torch = clock.torch
    torch.compiler.reset()
    call = torch.compile(prepared(torch, clock.place, case), dynamic=False)
    yield row_of(clock, case, "compile", call, captured=False)
    yield row_of(clock, case, "compile-graph", call, captured=True)


def small_ops(torch: Any, place: str, dtype: Any) -> dict[str, Callable[[], Any]]:
    """An op of each kind, so small that its device never works as long as its host."""
    nn, f = torch.nn, torch.nn.functional
    with torch.device(place):
        row, image, heads = (torch.randn(*shape, dtype=dtype) for shape in ((8, 64), (1, 64, 8, 8), (1, 4, 8, 16)))
        ids = torch.arange(8)
        modules = [nn.Linear(64, 64), nn.LayerNorm(64), nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64)]
        modules += [nn.GELU(), nn.Embedding(16, 64)]
    linear, norm, convolution, batch_norm, gelu, embedding = (each.eval().to(dtype) for each in modules)
    return {
        "elementwise": lambda: row + row, "in place": lambda: row.add_(1), "linear": lambda: linear(row),
        "layer norm": lambda: norm(row), "convolution": lambda: convolution(image),
        "batch norm": lambda: batch_norm(image), "activation": lambda: gelu(row), "embedding": lambda: embedding(ids),
        "softmax": lambda: f.softmax(row, -1), "matmul": lambda: row @ row.T, "mean": lambda: row.mean(-1),
        "concatenation": lambda: torch.cat((row, row)), "copy": lambda: image.transpose(1, 2).contiguous(),
        "view": lambda: row.view(-1), "attention": lambda: f.scaled_dot_product_attention(heads, heads, heads),
    }  # fmt: skip


def launches_by_kind(clock: Clock) -> Iterator[dict[str, Any]]:
    """What one op of each kind takes on the host, in chains that are short enough for the queue of a GPU."""
    for form in FORMS:
        for name, op in small_ops(clock.torch, clock.place, torch_dtype(clock.torch, form)).items():
            for _ in range(20):
                op()
            before = host_call_s()
            seconds = launched_s(clock, op, calls=100)
            yield {"op": name, "dtype": form, "launched_s": seconds, "kernels": kernels_of(clock, op),
                   "host_call_s": before}  # fmt: skip


def deep_steps(clock: Clock) -> Iterator[dict[str, Any]]:
    """Decode steps of probe decoders at long contexts, and prompts of mixtures, compiled."""
    provider = probes.ProbeModels(clock=clock, runtime=require_effects("torch-compile"), dtype="bf16")
    provider.candidates()
    run_of = probes._Run  # noqa: SLF001 - cases of its own
    runs = [run_of(model=f"probe-decoder-{each}", phase="decode", batch=batch, context=context)
            for batch, context in DEEP for each in "bd"]  # fmt: skip
    runs += [run_of(model=f"probe-mixture-{each}", phase="prefill", batch=1, query=query)
             for query in (200, 700, 2000, 6000) for each in "ab"]  # fmt: skip
    for run in runs:
        provider._runs[run.key] = run  # noqa: SLF001 - as above
        try:
            steps = provider.measure(ProbeCandidate(key=run.key, op_class=f"step.{run.phase}")).steps
        except Exception as error:  # noqa: BLE001 - one that does not run leaves the others
            yield {"step": run.key, "error": repr(error)[:300]}
            continue
        for step in steps:
            yield {"model": step.model, "phase": step.phase, "dtype": step.dtype, "batch": step.batch,
                   "query": step.query, "context": step.context, "seconds": step.seconds, "config": dict(step.config),
                   "way": "compile" if step.phase == "prefill" else "compile-graph"}  # fmt: skip


def warm(clock: Clock, share: str, until: float) -> None:
    """Compile a share of the cases, and measure nothing."""
    torch = clock.torch
    part, parts = map(int, share.split("/"))
    for case in cases(COMPILED)[part::parts]:
        if time.time() > until:
            return
        torch.compiler.reset()
        try:
            with torch.inference_mode():
                torch.compile(prepared(torch, clock.place, case), dynamic=False)()
        except Exception as error:  # noqa: BLE001 - whoever measures says it again, with its case
            print(f"{case}: {error!r}"[:200], flush=True)
        clock.tidy()


def compile_ahead(workers: int, until: float) -> None:
    command = [sys.executable, "-m", "workshop.calibrations.forwards", "--until", str(until)]
    started = [subprocess.Popen([*command, "--share", f"{each}/{workers}"]) for each in range(workers)]
    for each in started:
        try:
            each.wait(max(0.0, until + LATE_S - time.time()))
        except subprocess.TimeoutExpired:  # in the middle of a long one
            each.kill()


def measured(clock: Clock, arguments: argparse.Namespace, begun: float) -> Iterator[dict[str, Any]]:
    """Ops first, then networks until the last fifth of the budget, then long contexts."""
    torch = clock.torch
    versions, circumstances = torch_environment(torch)
    yield {"versions": versions, "environment": circumstances, "cpus": os.cpu_count(),
           "created": datetime.now(UTC).isoformat(timespec="seconds")}  # fmt: skip
    yield from launches_by_kind(clock)
    plain = [(uncompiled, case) for case in cases(UNCOMPILED)]
    worked = [(compiled, case) for case in cases(COMPILED)]
    for way, case in [pair for both in zip(plain, worked, strict=False) for pair in both]:
        if time.time() > begun + 0.85 * arguments.budget:
            break
        try:
            yield from way(clock, case)
        except Exception as error:  # noqa: BLE001 - one that does not run leaves the others
            yield {"model": case[0], "dtype": case[1], "batch": case[2], "error": repr(error)[:300]}
        clock.tidy()
    yield from deep_steps(clock)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=520.0, help="seconds, of compiling ahead too")
    parser.add_argument(
        "--warm", type=int, default=0, metavar="N", help="processes that compile ahead, for 45 %% of it"
    )
    parser.add_argument("--out", type=Path, default=Path("forwards.jsonl"))
    parser.add_argument("--place", default="cuda")
    parser.add_argument("--share", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    begun, clock = time.time(), Clock(torch=import_module("torch"), place=arguments.place, limit_s=0.4)
    if arguments.share:
        warm(clock, arguments.share, arguments.until)
        return
    if arguments.warm:
        compile_ahead(arguments.warm, begun + 0.45 * arguments.budget)
    with arguments.out.open("a", encoding="utf-8") as journal, clock.torch.inference_mode():
        for row in measured(clock, arguments, begun):
            journal.write(json.dumps(row) + "\n")
            journal.flush()
            if time.time() > begun + arguments.budget:
                break


if __name__ == "__main__":
    main()
