"""Profile many models in one process, or trace their kernels, as rows of a journal.

    python -m workshop.calibrations.traced --cases FILE.json --warm 10 --budget 560 --out FILE.jsonl

The file has `[model, engine, {sizes}]` a case, as that of benchmarks/pairs.py, whose rows these are: a profile without
its layers, so `pairs.py --again FILE.jsonl --on nvidia-h200` predicts them. `profile` starts a process for each model,
and importing PyTorch is half of its time; here it is imported once. Networks of torchvision that the catalog knows by
their graphs alone run too (`torchvision:vgg11_bn`).

With `--trace` a row has the device's kernels of one step of each phase, in order, with their microseconds; its other
times are worth little then, for a process that has traced once launches more slowly from then on.

Compiling is most of the time of what is compiled, so `--warm` processes compile ahead into the cache that `profile`
keeps, and are done before anything is measured.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from inferometer.core.codec import document
from inferometer.core.errors import InferometerError
from inferometer.core.workload import Workload
from inferometer.engines.base import Target, look_at_host
from inferometer.engines.torch.arrays import Arrays
from inferometer.engines.torch.session import Text
from inferometer.measure.bench.plan import Plan
from inferometer.measure.run import isolate, model
from inferometer.measure.run.child import carry_out, runtime_named
from inferometer.measure.run.raw import Raw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TEXT_PLAN = Plan(runs=4, seconds=0.8, seconds_at_most=20.0, retries=0)
ARRAY_PLAN = Plan(runs=30, seconds=0.5, seconds_at_most=10.0, retries=0)
QUICK_PLAN = Plan(warmup=0, runs=1, seconds=0.0, calls=1, retries=0)
WORKLOAD = ("batch", "prompt", "generate", "image", "context")
ACTIONS = ("precision", "weights")
FOLDER = Path("build/traced")


def marker(case: list[Any]) -> Path:
    """A file that is there when a case was compiled ahead."""
    return FOLDER / "-".join(map(str, (*case[:2], *case[2].values())))


class Traces:
    """The kernels of one call, in order: an index into `names`, and microseconds."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.names: dict[str, int] = {}
        self.phases: dict[str, Any] = {}

    def record(self, phase: str, call: Callable[[], Any]) -> None:
        torch = self.torch
        with torch.inference_mode():
            call()
            torch.cuda.synchronize()
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as trace:
                call()
                torch.cuda.synchronize()
        found = [(each.start_ns(), each.duration_ns(), each.name())
                 for each in trace.profiler.kineto_results.events()
                 if each.device_type() == torch.autograd.DeviceType.CUDA]  # fmt: skip
        found.sort()
        if found:
            span_s = (max(start + lasts for start, lasts, _ in found) - found[0][0]) * 1e-9
            kernels = [(self.names.setdefault(name[:160], len(self.names)), round(lasts / 1000, 2))
                       for _, lasts, name in found]  # fmt: skip
            self.phases[phase] = {"span_s": span_s, "kernels": kernels}

    def taken(self) -> dict[str, Any]:
        taken = {"names": list(self.names), "phases": self.phases}
        self.names, self.phases = {}, {}
        return taken


def trace_sessions(traces: Traces) -> None:
    """Sessions are traced before they are closed."""
    generate, close_text, close_arrays = Text.generate, Text.close, Arrays.close
    last: dict[str, Any] = {}

    def generating(self: Any, request: Any) -> Iterator[Any]:
        last["ids"] = request.prompt
        return generate(self, request)

    def closing_text(self: Any) -> None:
        forward = self._forward
        if last and forward is not None:
            torch = traces.torch
            ids = torch.tensor([last.pop("ids")], device="cuda").expand(self._target.batch, -1).contiguous()
            try:
                traces.record("prefill", lambda: (forward.reset(), forward.read(ids)))
                token = ids[:, :1].contiguous()
                traces.record("decode", lambda: forward.token(token))
            except Exception as error:  # noqa: BLE001 - the times are there without it
                print(f"no trace: {error!r}"[:200], flush=True)
            del forward, ids
        close_text(self)

    def closing_arrays(self: Any) -> None:
        if self._step is not None:
            traces.record("forward", self._step)
        close_arrays(self)

    Text.generate, Text.close, Arrays.close = generating, closing_text, closing_arrays  # type: ignore[method-assign]


def in_process(order: Any, **_: Any) -> Raw:
    raw = Raw(ended="crashed")

    def tell(name: str, value: Any) -> None:
        nonlocal raw
        if name == "ended":
            raw = replace(raw, ended=value[0], error=value[1], remedy=value[2])
        elif name != "progress":
            raw = isolate._with(raw, name, value)  # noqa: SLF001 - what the parent of a child does

    carry_out(order, tell)
    return raw


def profiled(name: str, engine: str, sizes: dict[str, Any], plan: Plan | None) -> dict[str, Any]:
    """The row of benchmarks/pairs.py, without what was predicted at the time."""
    if name.startswith("torchvision:"):
        return network(name, engine, sizes)
    chosen = plan or (TEXT_PLAN if "generate" in sizes else ARRAY_PLAN)
    asked = model.MeasureRequest(
        model=name, runtime=engine, workload=Workload(**{key: sizes[key] for key in WORKLOAD if key in sizes}),
        shape=False, guarded=False, energy=False, plan=chosen, **{key: sizes[key] for key in ACTIONS if key in sizes},
    )  # fmt: skip
    plain = document(model.measure_model(asked).profile)
    phases = [{**phase, "ops": [], "samples_s": None, "context": None} for phase in plain["phases"]]
    kept = {key: plain[key] for key in ("environment", "precision", "provenance", "summary", "workload")}
    kept["environment"]["host"].pop("memory", None)
    return {"phases": phases, **kept}


def network(name: str, engine: str, sizes: dict[str, Any]) -> dict[str, Any]:
    """A network of torchvision that the catalog knows by its graph alone: its steps, in the form of a profile."""
    place = FOLDER / name.replace(":", "-")
    place.mkdir(parents=True, exist_ok=True)
    config = {"model_type": "resnet", "architecture": name.replace(":", "/")}
    (place / "config.json").write_text(json.dumps(config), encoding="utf-8")
    batch, form = sizes.get("batch", 1), sizes.get("precision", "f32")
    numpy = import_module("numpy")
    session: Any = runtime_named(engine).open(Target(path=place, format="config", batch=batch, precision=form))
    try:
        session.feed({"pixel_values": numpy.random.default_rng(0).random((batch, 3, 224, 224), numpy.float32)})
        taken: list[float] = []
        modules_s: list[float] = []
        begun = time.perf_counter()
        while len(taken) < 40 or (time.perf_counter() - begun < 0.5 and len(taken) < 2000):
            if len(taken) % 16 == 0:
                look_at_host(session, modules_s)
            start = time.perf_counter()
            session.step()
            taken.append(time.perf_counter() - start)
    finally:
        session.close()
    phase = {"name": "forward", "time_s": median(taken[10:]), "predicted_s": None, "parts": []}
    return {"phases": [phase], "precision": {"weights": form}, "image": 224,
            "environment": {"host": {"module_s": median(modules_s) if modules_s else None}}}  # fmt: skip


def measured(cases: list[Any], arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    torch = import_module("torch")
    traces = Traces(torch)
    if arguments.trace:
        trace_sessions(traces)
    for number, (name, engine, sizes) in enumerate(cases):
        case = {"case": number, "model": name, "engine": engine, **sizes}
        late = engine == "torch-compile" and arguments.warm and not marker([name, engine, sizes]).exists()
        if late or time.time() > arguments.begun + arguments.budget:
            yield {**case, "error": "It was not compiled in time." if late else "The budget is spent."}
            continue
        start = time.perf_counter()
        try:
            row = profiled(name, engine, sizes, None)
        except InferometerError as error:
            row = {"error": str(error)[:400]}
        except Exception as error:  # noqa: BLE001 - the others go on
            row = {"error": repr(error)[:400]}
        torch.cuda.empty_cache()
        torch.compiler.reset()
        traced = {"trace": traces.taken()} if arguments.trace else {}
        yield {**case, **row, "seconds": time.perf_counter() - start, **traced}


def compile_ahead(arguments: argparse.Namespace) -> None:
    command = [sys.executable, "-m", "workshop.calibrations.traced", "--cases", str(arguments.cases), "--out", "-"]
    command += ["--begun", str(arguments.begun), "--ahead", str(arguments.ahead)]
    started = [subprocess.Popen([*command, "--share", f"{each}/{arguments.warm}"]) for each in range(arguments.warm)]
    for each in started:
        try:
            each.wait(max(0.0, arguments.begun + arguments.ahead + 30 - time.time()))
        except subprocess.TimeoutExpired:  # in the middle of a long one
            each.kill()


def compile_share(cases: list[Any], arguments: argparse.Namespace) -> None:
    part, parts = map(int, arguments.share.split("/"))
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, engine, sizes in [case for case in cases if case[1] == "torch-compile"][part::parts]:
        if time.time() < arguments.begun + arguments.ahead:
            try:
                profiled(name, engine, sizes, QUICK_PLAN)
                marker([name, engine, sizes]).touch()
            except Exception as error:  # noqa: BLE001 - whoever measures says it again
                print(f"{name} {engine} {sizes}: {error!r}"[:300], flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=560.0, help="seconds, of compiling ahead too")
    parser.add_argument("--warm", type=int, default=0, metavar="N", help="processes that compile ahead")
    parser.add_argument("--ahead", type=float, default=120.0, help="seconds after which no such case begins")
    parser.add_argument("--trace", action="store_true", help="tell the kernels, and nothing of their host")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--share", help=argparse.SUPPRESS)
    parser.add_argument("--begun", type=float, default=time.time(), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    model.isolated = in_process  # type: ignore[attr-defined]  # what starts a process for each model
    cases = json.loads(arguments.cases.read_text(encoding="utf-8"))
    if arguments.share:
        compile_share(cases, arguments)
        return
    if arguments.warm:
        compile_ahead(arguments)
    print(f"compiled ahead, {time.time() - arguments.begun:.0f} s", flush=True)
    with arguments.out.open("a", encoding="utf-8") as journal:
        for row in measured(cases, arguments):
            journal.write(json.dumps(row) + "\n")
            journal.flush()
            times = {each["name"]: round(each["time_s"] * 1e3, 3) for each in row.get("phases", ())
                     if each["name"] in {"forward", "prefill", "decode"}}  # fmt: skip
            said = f"{row['case']} {row['model']} {row['engine']} {times} {row.get('error', '')}"
            print(f"{time.time() - arguments.begun:.0f} s: {said[:260]}", flush=True)


if __name__ == "__main__":
    main()
