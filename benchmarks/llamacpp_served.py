"""A real llama.cpp server under load beside its simulation, on this machine after
`inferometer calibrate --runtime llamacpp --dtype q4_0 --threads 1`.

`python benchmarks/llamacpp_served.py --measure FILE.jsonl` makes SmolLM2-135M with random weights (q4_0), serves it
with xllamacpp in a process of its own, sends it requests one at a time, below and past its knee with the client of
`inferometer load`, and adds a round to the file. It needs a quiet machine: threads of llama.cpp wait for each other by
spinning, and beside other work a token took ten times as long.

`--replay FILE.jsonl --device NAME [--calibration FILE]` puts the very requests of all rounds into the simulator. The
step's times are those of the calibration alone.

`--beside` does both in one run, with the same requests: 1, 2, 4 and 8 requests at once (four slots: eight is past the
knee), then a trace of agents whose prompts grow, through `load` and through `simulate`. The aims of 6 % below the knee
and 12 % past it are read from it, after
`inferometer calibrate --runtime llamacpp --dtype q4_0 --threads 1`. `--keep FILE.jsonl` adds each pair of profiles to a
file, so that rules can be looked at again without the machine.

A machine that others use is slower than it was when it was calibrated. So beside the plain error stands the error with
every step of a round stretched by what its requests of one at a time were slower than simulated ("at its pace"): that
one is about rules and batching, the plain one about everything.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np
import psutil

from inferometer.core.calibration import Calibration
from inferometer.core.codec import decode, encode
from inferometer.core.traffic.arrivals import Arrivals
from inferometer.core.traffic.demand import Agents, made_up
from inferometer.core.traffic.figures import figures_of
from inferometer.core.traffic.lengths import Lengths, parse_lengths
from inferometer.core.traffic.traces import RequestTrace
from inferometer.formats.synth import synthesise
from inferometer.predict.ask import ask
from inferometer.serving.load.plan import LoadPlan, LoadStep
from inferometer.serving.load.run import load
from inferometer.serving.simulate import run as runner
from inferometer.serving.simulate.plan import SimulationPlan

MODEL, WEIGHTS, SLOTS, CONTEXT = "smollm2-135m", "q4_0", 4, 4096
PROMPT, GENERATE = "uniform:8-40", "uniform:8-24"
ALONE, APART_S = "1 at once", 1000.0
AT_ONCE = (1, 2, 4, 8)
# Small enough for a slot of 1,024 tokens: what all begin with, a task, four calls with a tool's result after each.
AGENTS = Agents(
    sessions=6, rate_per_s=0.2, system=120, task=parse_lengths("uniform:20-60", column="tokens"),
    calls=Lengths(kind="fixed", mean=4), answer=parse_lengths(GENERATE, column="tokens"),
    result=parse_lengths("uniform:20-60", column="tokens"), tool_s=Lengths(kind="fixed", mean=1), delegated=0.0,
    context=900,
)  # fmt: skip


def serve(path, threads):
    """What the child does: the server prints its address and works until it is killed."""
    import xllamacpp  # noqa: PLC0415 - the child's alone

    parameters = xllamacpp.CommonParams()
    parameters.model.path, parameters.n_parallel, parameters.n_ctx, parameters.port = path, SLOTS, CONTEXT, 0
    parameters.endpoint_metrics = True
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    time.sleep(3600)


class Stretched:
    """Steps that take longer by a factor."""

    def __init__(self, times, pace):
        self._times, self._pace = times, pace

    def decode(self, sequences, context):
        return self._pace * self._times.decode(sequences, context)

    def mixed(self, chunks, sequences, context):
        return self._pace * self._times.mixed(chunks, sequences, context)


def measured(url, step, seconds, seed):
    """Requests of one load as columns, and how busy the rest of the machine was (load average)."""
    plan = LoadPlan(
        url=url, api="completions", steps=(step,), prompt=parse_lengths(PROMPT, column="input_tokens"),
        generate=parse_lengths(GENERATE, column="output_tokens"), duration_s=seconds, seed=seed,
    )  # fmt: skip
    columns = load(plan).served.levels[0].requests
    kept = [
        index for index, outcome in enumerate(columns.outcome) if outcome == "ok" and columns.output_tokens[index] > 1
    ]
    names = ("due_s", "first_s", "last_s", "input_tokens", "output_tokens")
    return {name: [getattr(columns, name)[index] for index in kept] for name in names}


def simulated(question, rows, pace, *, alone=False):
    """The same requests in the simulator, each when it came; `alone`, one after the other has ended."""
    due = np.arange(len(rows["due_s"])) * APART_S if alone else np.array(rows["due_s"]) - min(rows["due_s"])
    trace = RequestTrace(
        name="requests", form="requests", arrival_s=due,
        input_tokens=np.array(rows["input_tokens"]), output_tokens=np.array(rows["output_tokens"]),
    )  # fmt: skip
    plan = SimulationPlan(
        question=question, traffic=LoadPlan(url="simulated", steps=(LoadStep(),), trace=trace), sequences=SLOTS,
        whole=True,
    )  # fmt: skip
    service_of = runner.service_of

    def slower(asked):
        service, notes = service_of(asked)
        return replace(service, pool=replace(service.pool, times=Stretched(service.pool.times, pace))), notes

    runner.service_of = slower
    try:
        columns = runner.simulate(plan).served.levels[0].requests
    finally:
        runner.service_of = service_of
    return {name: list(getattr(columns, name)) for name in ("due_s", "first_s", "last_s", "output_tokens")}


def times_of(rows):
    due, first, last, tokens = (np.array(rows[name], float) for name in ("due_s", "first_s", "last_s", "output_tokens"))
    return {"TTFT": first - due, "TPOT": (last - first) / np.maximum(tokens - 1, 1), "E2E": last - due}


@contextmanager
def real_server(threads):
    """The address of a server of its own process, with a model that was made for it."""
    with tempfile.TemporaryDirectory() as folder:
        path = synthesise(MODEL, Path(folder) / "model.gguf", weights=WEIGHTS).path
        command = [sys.executable, __file__, "--serve", str(path), "--threads", str(threads)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            yield child.stdout.readline().strip()
        finally:
            child.kill()
            child.wait()
            child.stdout.close()


def beside(given):
    """(load, figure, measured, simulated): the same plans for the server and for the simulator."""
    question = ask(MODEL, on=given.device, runtime="llamacpp", weights=WEIGHTS, threads=given.threads)
    lengths = {
        "prompt": parse_lengths(PROMPT, column="input_tokens"),
        "generate": parse_lengths(GENERATE, column="output_tokens"),
    }
    with real_server(given.threads) as url:
        plan = LoadPlan(url=url, api="completions", seed=given.seed, **lengths)
        plans = [
            replace(plan, steps=(LoadStep(concurrency=n),), requests=given.requests * n, seed=given.seed + n)
            for n in AT_ONCE
        ]
        plans.append(replace(plan, steps=(LoadStep(),), trace=made_up(replace(AGENTS, seed=given.seed))))
        for each in plans:
            real = load(each)
            told = runner.simulate(
                SimulationPlan(question=question, traffic=as_counted(each, real), sequences=SLOTS, told=False)
            )
            name = "agents" if each.trace else each.steps[0].name
            if given.keep:
                with given.keep.open("ab") as file:
                    file.write(encode(real) + b"\n" + encode(told) + b"\n")
            for figure, value in figures_beside(real).items():
                yield name, figure, value, figures_beside(told)[figure]


def as_counted(plan, real):
    """The plan with the lengths of what was answered: the server counts other tokens than were asked for.

    The model's vocabulary is made up, so a word is a token on average only: prompts were 0.8 to 1.1 times as long as
    asked for, mean of ten against mean of ten. The agents' prompts share pieces, and keep their lengths.
    """
    rows = real.served.levels[0].requests
    if plan.trace is not None:
        return plan
    order = np.argsort(rows.session)
    inputs, outputs = (np.array(column)[order] for column in (rows.input_tokens, rows.output_tokens))
    trace = RequestTrace(
        name="as counted", form="requests", arrival_s=np.full(len(inputs), np.nan), input_tokens=inputs,
        output_tokens=outputs,
    )  # fmt: skip
    return replace(plan, trace=trace)


def figures_beside(profile):
    figures = figures_of(profile.served.levels[0])
    times = {"TTFT ms": 1e3 * figures.ttft_s.mean, "TPOT ms": 1e3 * figures.tpot_s.mean}
    return {**times, "requests/s": figures.requests_per_s}


def measure(given):
    """One round: a server, and each load in its turn."""
    loads = [
        LoadStep(concurrency=1),
        *(LoadStep(arrivals=Arrivals(rate_per_s=float(r))) for r in given.rates.split(",")),
    ]
    with real_server(given.threads) as url:
        # Another seed for each: the server finds a prompt that it has read before.
        levels = {
            step.name: measured(url, step, given.seconds, given.seed + 100 * place) for place, step in enumerate(loads)
        }
    document = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"), "machine": platform.machine(), "model": MODEL,
        "weights": WEIGHTS, "slots": SLOTS, "threads": given.threads, "xllamacpp": version("xllamacpp"),
        "python": platform.python_version(), "prompt": PROMPT, "generate": GENERATE, "seed": given.seed,
        "load_average": os.getloadavg(), "levels": levels,
    }  # fmt: skip
    with given.measure.open("a", encoding="utf-8") as file:
        file.write(json.dumps(document) + "\n")


def pace_of(question, alone):
    """How many times as long as simulated the requests of one at a time took."""
    return times_of(alone)["E2E"].sum() / times_of(simulated(question, alone, 1.0, alone=True))["E2E"].sum()


def errors(question, rounds):
    """(load, metric, percentile, requests, measured, plain, at its pace), over the requests of all rounds."""
    paces = [pace_of(question, each["levels"][ALONE]) for each in rounds]
    yield "pace", "", "", len(rounds), float(np.median(paces)), min(paces), max(paces)
    for load_name in rounds[0]["levels"]:
        rows = [each["levels"][load_name] for each in rounds]
        alone = load_name == ALONE
        told = [simulated(question, each, 1.0, alone=alone) for each in rows]
        paced = [simulated(question, each, pace, alone=alone) for each, pace in zip(rows, paces, strict=True)]
        for metric in ("TTFT", "TPOT"):
            times = [np.concatenate([times_of(each)[metric] for each in kind]) for kind in (rows, told, paced)]
            for name, share in (("p50", 0.5), ("p95", 0.95)):
                yield load_name, metric, name, len(times[0]), *(float(np.quantile(each, share)) for each in times)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--measure", type=Path)
    options.add_argument("--replay", type=Path)
    options.add_argument("--beside", action="store_true")
    options.add_argument("--requests", type=int, default=30, help="of each place, with --beside")
    options.add_argument("--keep", type=Path, help="where to put the profiles, with --beside")
    options.add_argument("--device", default="local:cpu", help="where the server runs")
    options.add_argument("--calibration", type=Path)
    options.add_argument("--threads", type=int, default=psutil.cpu_count(logical=False))
    options.add_argument("--rates", default="0.8,2.5")
    options.add_argument("--seconds", type=float, default=90)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--serve")
    given = options.parse_args()
    if given.serve:
        serve(given.serve, given.threads)
    if given.measure:
        measure(given)
    if given.beside:
        for load_name, figure, real, told in beside(given):
            off = f"{100 * (told / real - 1):+.1f} %"
            print(f"{load_name:>10} {figure:>10}: measured {real:8.2f}, simulated {told:8.2f} ({off})", flush=True)
    if given.replay:
        calibration = decode(given.calibration.read_bytes(), Calibration) if given.calibration else None
        question = ask(MODEL, on=given.device, runtime="llamacpp", weights=WEIGHTS, calibration=calibration)
        rounds = [json.loads(line) for line in given.replay.read_text(encoding="utf-8").splitlines()]
        (_, _, _, count, middle, low, high), *rows = errors(question, rounds)
        print(f"{count} rounds; one at a time took {middle:.2f} ({low:.2f} to {high:.2f}) times what was simulated")
        for load_name, metric, name, many, real, told, paced in rows:
            off = f"simulated {100 * (told / real - 1):+.1f} %, at its pace {100 * (paced / real - 1):+.1f} %"
            print(f"{load_name:>10} {metric} {name}: {1e3 * real:8.1f} ms of {many} requests, {off}")


if __name__ == "__main__":
    main()
