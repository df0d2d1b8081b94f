"""A real llama.cpp server under load beside its simulation, on this machine after `inferometer calibrate`.

`python benchmarks/llamacpp_served.py --device NAME [--calibration FILE] [--out FILE]` makes SmolLM2-135M with random
weights (q4_0), serves it with xllamacpp in a process of its own, loads it below and past its knee with `inferometer
load`'s client, and replays the very requests in the simulator. The step's times are those of the calibration alone.

A machine that others use is slower than it was when it was calibrated. So one request at a time is measured first, and
beside the plain error stands the error with every step stretched by what those requests were slower than simulated
("at its pace"): that one is about the rules and the batching, the plain one about everything.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np
import psutil

from inferometer.asking.ask import ask
from inferometer.core.calibration import Calibration
from inferometer.core.codec import decode
from inferometer.serving.load.plan import LoadPlan, LoadStep
from inferometer.serving.load.run import load
from inferometer.serving.simulate import run as runner
from inferometer.serving.simulate.plan import SimulationPlan
from inferometer.synth import synthesise
from inferometer.traffic.arrivals import Arrivals
from inferometer.traffic.lengths import parse_lengths
from inferometer.traffic.traces import RequestTrace

MODEL, WEIGHTS, SLOTS, CONTEXT = "smollm2-135m", "q4_0", 4, 4096
PROMPT, GENERATE = "uniform:8-40", "uniform:8-24"


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


def simulated(question, rows, pace):
    """The same requests in the simulator; in a closed loop each comes when it came."""
    trace = RequestTrace(
        name="requests", form="requests", arrival_s=np.array(rows["due_s"]) - min(rows["due_s"]),
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
    return {"TTFT": first - due, "TPOT": (last - first) / np.maximum(tokens - 1, 1)}


def statistics(rows):
    return {
        f"{metric} {name}": float(np.quantile(times, share))
        for metric, times in times_of(rows).items()
        for name, share in (("p50", 0.5), ("p95", 0.95))
    }


def compared(url, question, rates, seconds):
    """Each load with what was measured and simulated. The first, one at a time, gives the pace."""
    print("one at a time", file=sys.stderr)
    alone = measured(url, LoadStep(concurrency=1), seconds / 2, 1)
    plain = simulated(question, alone, 1.0)
    real, told = statistics(alone), statistics(plain)
    whole = {
        name: sum(np.array(rows["last_s"]) - np.array(rows["due_s"]))
        for name, rows in (("real", alone), ("told", plain))
    }
    pace = whole["real"] / whole["told"]
    levels = [{"load": "1 at once", "requests": len(alone["due_s"]), "measured": real, "simulated": told}]
    for number, rate in enumerate(rates):
        print(f"{rate} requests/s", file=sys.stderr)
        rows = measured(url, LoadStep(arrivals=Arrivals(rate_per_s=rate)), seconds, 2 + number)
        levels.append({
            "load": f"{rate}/s", "requests": len(rows["due_s"]), "machine_load": os.getloadavg()[0],
            "measured": statistics(rows), "simulated": statistics(simulated(question, rows, 1.0)),
            "at_its_pace": statistics(simulated(question, rows, pace)), "rows": rows,
        })  # fmt: skip
    levels[0]["rows"] = alone
    return pace, levels


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--device", required=True)
    options.add_argument("--calibration", type=Path)
    options.add_argument("--threads", type=int, default=psutil.cpu_count(logical=False))
    options.add_argument("--rates", default="0.8,2.5")
    options.add_argument("--seconds", type=float, default=90)
    options.add_argument("--out", type=Path)
    options.add_argument("--serve")
    given = options.parse_args()
    if given.serve:
        serve(given.serve, given.threads)
        return
    calibration = decode(given.calibration.read_bytes(), Calibration) if given.calibration else None
    question = ask(MODEL, on=given.device, runtime="llamacpp", weights=WEIGHTS, calibration=calibration)
    rates = [float(text) for text in given.rates.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        path = synthesise(MODEL, Path(folder) / "model.gguf", weights=WEIGHTS).path
        command = [
            sys.executable, __file__, "--device", given.device, "--serve", str(path), "--threads", str(given.threads),
        ]  # fmt: skip
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            pace, levels = compared(child.stdout.readline().strip(), question, rates, given.seconds)
        finally:
            child.kill()
            child.wait()
            child.stdout.close()
    show(pace, levels)
    if given.out:
        document = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"), "device": given.device, "model": MODEL,
            "weights": WEIGHTS, "slots": SLOTS, "threads": given.threads, "xllamacpp": version("xllamacpp"),
            "python": platform.python_version(), "prompt": PROMPT, "generate": GENERATE, "pace": pace,
            "calibrated": calibration.created if calibration is not None else None, "levels": levels,
        }  # fmt: skip
        given.out.write_text(json.dumps(document) + "\n", encoding="utf-8")


def show(pace, levels):
    print(f"pace {pace:.3f}: one at a time the server took so many times what was simulated")
    for level in levels:
        for name, real in level["measured"].items():
            told, paced = level["simulated"][name], level.get("at_its_pace", {}).get(name)
            more = "" if paced is None else f", at its pace {100 * (paced / real - 1):+.1f} %"
            off = f"simulated {100 * (told / real - 1):+.1f} %{more}"
            print(f"{level['load']:>10} {name}: measured {1e3 * real:8.1f} ms, {off}")


if __name__ == "__main__":
    main()
