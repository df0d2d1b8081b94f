"""How much a session costs beside the engine's bare loop, and whether its kernels close, on this machine.

    python -m inferometer.engines.torch.check config.json --runtime torch-compile --prompt 512 --generate 64

`check` gives numbers; the command prints them as JSON. The bare loop is the engine alone on the same module and cache:
pass, likeliest token, token on the host.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferometer.engines.base import Request, Target
from inferometer.engines.torch import compiled, eager, graph

if TYPE_CHECKING:
    from inferometer.engines.base import Event, Kernel

_RUNTIMES = {runtime.name: runtime for runtime in (eager, graph, compiled)}


def check(target: Target, *, runtime: str, prompt: int, generate: int, repeats: int = 3) -> dict[str, Any]:
    """Medians of prefill and step: bare loop, session and instrumented session; device times; sums by layer."""
    request = Request(prompt=tuple(1 + each % 97 for each in range(prompt)), generate=generate)
    session: Any = _RUNTIMES[runtime].open(replace(target, text=True, instrument=False))
    list(session.generate(request))
    bare: dict[str, list[float]] = {"prefill": [], "decode": []}
    events: list[Event] = []
    for _ in range(repeats):  # in turn, so that what disturbs one disturbs both
        _bare(session, request, bare)
        events += session.generate(request)
    opened, peak = session.opened, session.memory_peak_bytes
    session.close()
    timed: Any = _RUNTIMES[runtime].open(replace(target, text=True, instrument=True))
    list(timed.generate(request))
    timed.kernels()
    seen = list(timed.generate(request))
    kernels = timed.kernels()
    cost_s, notes = timed.cost_per_kernel_s, timed.opened.notes
    timed.close()
    return {
        "runtime": runtime, "versions": dict(opened.versions), "unit": opened.unit, "precision": opened.precision,
        "stages_s": {stage.name: stage.seconds for stage in opened.stages}, "memory_peak_bytes": peak,
        "notes": list(notes), "cost_per_kernel_s": cost_s,
        "prefill": _phase(bare["prefill"], _of(events, "prefill"), _of(seen, "prefill"), kernels.get("prefill", ())),
        "decode": _phase(bare["decode"], _of(events, "token"), _of(seen, "token"), kernels.get("decode", ())),
    }  # fmt: skip


def _bare(session: Any, request: Request, seconds: dict[str, list[float]]) -> None:
    host, forward = session._host, session._forward  # noqa: SLF001 - compares from inside
    torch = host.torch
    ids = torch.tensor([request.prompt], device=host.place.device).expand(host.target.batch, -1).contiguous()
    with torch.inference_mode():
        forward.reset()
        host.sync()
        start = time.perf_counter()
        last = forward.read(ids).argmax(-1, keepdim=True)
        last.flatten().tolist()
        seconds["prefill"].append(time.perf_counter() - start)
        for _ in range(request.generate - 1):
            start = time.perf_counter()
            if forward.write_token:
                forward.write(last)
            last = forward.token(last).argmax(-1, keepdim=True)
            last.flatten().tolist()
            seconds["decode"].append(time.perf_counter() - start)


def _of(events: list[Event], kind: str) -> list[Event]:
    return [event for event in events if event.kind == kind]


def _phase(bare: list[float], clean: list[Event], seen: list[Event], kernels: tuple[Kernel, ...]) -> dict[str, Any]:
    if not bare or not clean or not seen:
        return {}
    wall = statistics.median(_seconds(event) for event in clean)
    device = [event.parts["device"] for event in clean if "device" in event.parts]
    return {
        "bare_s": statistics.median(bare),
        "session_s": wall,
        "ratio": wall / statistics.median(bare),
        "device_s": statistics.median(device) if device else None,
        "parts_s": {name: statistics.median(event.parts[name] for event in clean) for name in clean[0].parts},
        "instrumented_s": statistics.median(_seconds(event) for event in seen),
        "kernels": len(kernels),
        "kernels_host_s": _total(kernels, lambda each: each.samples_s),
        "kernels_device_s": _total(kernels, lambda each: each.device_s or ()),
        "wait_s": _total(tuple(each for each in kernels if each.kind == "wait"), lambda each: each.samples_s),
        "without_layer_device_s": _total(tuple(e for e in kernels if not e.layers), lambda each: each.device_s or ()),
        "by_layer": _by_layer(kernels),
    }


def _seconds(event: Event) -> float:
    return (event.end_ns - event.start_ns) * 1e-9


def _total(kernels: tuple[Kernel, ...], of: Any) -> float:
    return float(sum(statistics.median(of(kernel)) for kernel in kernels if of(kernel)))


def _by_layer(kernels: tuple[Kernel, ...]) -> dict[str, list[float]]:
    """Host and device seconds of each module that kernels name first."""
    by_layer: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for kernel in kernels:
        place = by_layer[kernel.layers[0] if kernel.layers else ""]
        place[0] += statistics.median(kernel.samples_s)
        place[1] += statistics.median(kernel.device_s or (0.0,))
    return dict(by_layer)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="A PyTorch session beside the bare loop.")
    parser.add_argument("path", type=Path)
    parser.add_argument("--runtime", choices=sorted(_RUNTIMES), default=eager.name)
    parser.add_argument("--format", choices=["config", "safetensors"], default="config")
    for name, value in (("prompt", 512), ("generate", 64), ("batch", 1), ("repeats", 3)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--unit")
    parser.add_argument("--precision")
    given = parser.parse_args(arguments)
    target = Target(path=given.path, format=given.format, unit=given.unit, precision=given.precision, batch=given.batch)
    numbers = check(target, runtime=given.runtime, prompt=given.prompt, generate=given.generate, repeats=given.repeats)
    sys.stdout.write(json.dumps(numbers, indent=1) + "\n")


if __name__ == "__main__":
    main()
