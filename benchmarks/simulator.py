"""The simulator against real vLLM, request by request, and how quick it is.

`recorded/vllm_serving_requests.csv.gz`: 600 requests with their arrivals, TTFT and TPOT, vLLM 0.19, Llama-3.1-8B on an
RTX 4090 and an RTX PRO 6000 (LLMServingSim, bench/examples, MIT). Each is replayed with its own arrivals and limits.
The step costs of those two devices are fitted to these very rows (`known/data/engines/vllm.toml`, source
`requests`), so they say how well rules and kernels explain them and not how well others are predicted.

`python benchmarks/simulator.py` prints every figure, `--trace FILE` with a thousand requests of a trace (Mooncake's
conversations are the aim's). `--fit` fits the steps; `--left-out` shows each device with the step of the other one and
kernels as they were measured: that is what a card is off by that nobody has measured requests of.

The speed is per second of CPU time of one core. A plan is timed with the operator tables read before.
"""

import argparse
import csv
import gzip
import resource
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from figure import Figure

from inferometer.core.kept import Kept
from inferometer.core.served import parse_objective
from inferometer.core.traffic.arrivals import Arrivals
from inferometer.core.traffic.demand import Sharing
from inferometer.core.traffic.lengths import Lengths
from inferometer.core.traffic.traces import RequestTrace, part_of, read_trace
from inferometer.known.engines import costs_of, engine
from inferometer.predict.ask import ask
from inferometer.predict.options import Options
from inferometer.predict.served import question as served_by
from inferometer.serving.load.plan import LoadPlan, LoadStep
from inferometer.serving.plans.asked import PlanSearch
from inferometer.serving.plans.search import plan
from inferometer.serving.simulate.plan import SimulationPlan
from inferometer.serving.simulate.run import simulate

RECORDED = Path(__file__).parent / "recorded" / "vllm_serving_requests.csv.gz"
DEVICES = {"NVIDIA GeForce RTX 4090": "nvidia-rtx-4090", "RTXPRO6000": "nvidia-rtx-pro-6000-blackwell"}
REQUESTS = 300_000
_AT_ONCE_MS = 1000  # in the queue: a request that waited for less was read at once
_STARTING = 10  # requests that also paid for what an engine does when it first works


def _column(rows, name):
    return np.array([float(row[name]) for row in rows])


def replayed(rows, device):
    """Measured and simulated TTFT and TPOT of one setting, request by request."""
    trace = RequestTrace(
        name="requests",
        form="requests",
        arrival_s=_column(rows, "arrival_s"),
        input_tokens=_column(rows, "input_tokens").astype(int),
        output_tokens=_column(rows, "output_tokens").astype(int),
    )
    first = rows[0]
    question = ask("llama-3.1-8b", on=device, runtime="vllm", options=Options(engine_version=first["vllm"]))
    profile = simulate(
        SimulationPlan(
            question=question, traffic=LoadPlan(url="simulated", steps=(LoadStep(),), trace=trace),
            sequences=int(first["max_num_seqs"]), tokens=int(first["max_num_batched_tokens"]),
            blocks=int(first["num_gpu_blocks"]) if first["num_gpu_blocks"] else None, whole=True,
        )
    )  # fmt: skip
    columns = profile.served.levels[0].requests
    due, begun, ended = (np.array(values) for values in (columns.due_s, columns.first_s, columns.last_s))
    simulated = {"TTFT": begun - due, "TPOT": (ended - begun) / (np.array(columns.output_tokens) - 1)}
    measured = {"TTFT": _column(rows, "ttft_ms") / 1e3, "TPOT": _column(rows, "tpot_ms") / 1e3}
    return measured, simulated


def accuracy():
    with gzip.open(RECORDED, "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for named, device in DEVICES.items():
        measured, simulated = replayed([row for row in rows if row["device"] == named], device)
        for metric, aim in (("TTFT", 0.08), ("TPOT", 0.03)):
            for statistic, of in (("mean", np.mean), ("p95", lambda times: np.quantile(times, 0.95))):
                error = of(simulated[metric]) / of(measured[metric]) - 1
                yield Figure(
                    name=f"vLLM requests, {device}: {statistic} {metric}", value=100 * error, unit="% off",
                    target=f"within {aim:.0%}", met=bool(abs(error) <= aim),
                )  # fmt: skip


def fitted(named, device, names=("step_s", "kernels_prompt")):
    """Costs of vLLM on a device that bring the mean TPOT to 0 % off, and the usual TTFT of early requests.

    Those came when nobody waited, so their TTFT is the reading of prompts. All others' is left to be predicted.
    """
    with gzip.open(RECORDED, "rt", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["device"] == named]

    def errors(logs):
        with costing(**dict(zip(names, np.exp(logs), strict=True))):
            measured, simulated = replayed(rows, device)
        tpot = np.log(simulated["TPOT"].mean() / measured["TPOT"].mean())
        return np.array([tpot, np.log(simulated["TTFT"][early] / measured["TTFT"][early]).mean()])[: len(names)]

    early = (_column(rows, "queue_ms") < _AT_ONCE_MS) & (np.arange(len(rows)) >= _STARTING)
    first = costs_of(engine("vllm").serving, "0.19", device)
    logs = np.log([getattr(first, name).value for name in names])
    for _ in range(10):
        off = errors(logs)
        slopes = np.stack([(errors(logs + nudge) - off) / 0.05 for nudge in 0.05 * np.eye(len(logs))], axis=1)
        logs = logs - 0.7 * np.clip(np.linalg.solve(slopes, off), -0.2, 0.2)
    return dict(zip(names, np.exp(logs).tolist(), strict=True)), errors(logs).tolist()


@contextmanager
def costing(**changed):
    """Other costs of a step, whatever the device."""

    def changed_costs(*asked, **options):
        costs = costs_of(*asked, **options)
        return replace(costs, **{name: replace(getattr(costs, name), value=value) for name, value in changed.items()})

    served_by.costs_of, served_by._steps = changed_costs, Kept(8)  # noqa: SLF001 - nothing kept of other costs
    try:
        yield
    finally:
        served_by.costs_of, served_by._steps = costs_of, Kept(512)  # noqa: SLF001 - as above


def left_out():
    """Each card with the step of the other, and kernels as they were measured."""
    cards = {"RTXPRO6000": "nvidia-rtx-pro-6000-server", "NVIDIA GeForce RTX 4090": "nvidia-rtx-4090"}
    with gzip.open(RECORDED, "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for named, device in cards.items():
        other = next(each for each in cards.values() if each != device)
        step_s = costs_of(engine("vllm").serving, "0.19", other).step_s.value
        with costing(step_s=step_s, kernels_prompt=1.0):
            measured, simulated = replayed([row for row in rows if row["device"] == named], device)
        off = {name: 100 * (simulated[name].mean() / measured[name].mean() - 1) for name in measured}
        print(f"{device} with the step of {other}: mean TTFT {off['TTFT']:+.1f} %, TPOT {off['TPOT']:+.1f} %")


def timed(**asked):
    """Requests a second of CPU time, of a plan whose prices have been read before."""
    traffic = asked["traffic"]
    few = replace(traffic, requests=50) if traffic.trace is None else traffic
    simulate(SimulationPlan(**(asked | {"traffic": few})))
    start = time.process_time()
    simulate(SimulationPlan(**asked))
    return (traffic.requests or len(traffic.trace)) / (time.process_time() - start)


def speed(trace=None):
    question = ask("llama-3.1-8b", on="nvidia-h100-sxm", runtime="vllm")
    traffic = LoadPlan(
        url="simulated", steps=(LoadStep(arrivals=Arrivals(rate_per_s=40)),), requests=REQUESTS,
        prompt=Lengths(kind="lognormal", mean=512, deviation=256),
        generate=Lengths(kind="lognormal", mean=128, deviation=64),
    )  # fmt: skip
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rate = timed(question=question, traffic=traffic)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    yield Figure(name="simulated requests", value=rate, unit="/s of CPU", target=">= 100,000", met=rate >= 1e5)
    yield Figure(name=f"memory of {REQUESTS:,} requests", value=grown, unit="MiB more", target="flat", met=grown < 64)
    sharing = replace(
        traffic, requests=60_000, steps=(LoadStep(arrivals=Arrivals(rate_per_s=160)),),
        sharing=Sharing(prefix_tokens=256, groups=50),
    )  # fmt: skip
    rate = timed(question=question, traffic=sharing, replicas=4, routing="prefix-aware", priorities=(0.2, 0.8))
    name = "simulated requests with prefixes, 2 priorities, 4 replicas"
    yield Figure(name=name, value=rate, unit="/s of CPU", target=">= 20,000", met=rate >= 2e4)
    if trace is None:
        return
    thousand = part_of(read_trace(trace), count=1000)
    replay = LoadPlan(url="simulated", steps=(LoadStep(),), trace=thousand)
    seconds = len(thousand) / timed(question=question, traffic=replay, replicas=8)
    name = f"{len(thousand)} requests of {trace.name}"
    yield Figure(name=name, value=seconds, unit="s of CPU", target="<= 1", met=seconds <= 1)


def planning():
    search = PlanSearch(
        model="llama-3.3-70b", rate_per_s=50, prompt=Lengths(kind="fixed", mean=1024),
        generate=Lengths(kind="fixed", mean=256), devices=("nvidia-h100-sxm", "nvidia-h200", "nvidia-b200"),
        objectives=(parse_objective("ttft_p95<=1s"), parse_objective("tpot_p95<=50ms")), weights=(None, "f8e4m3"),
    )  # fmt: skip
    start = time.process_time()
    answer = plan(search)
    seconds = time.process_time() - start
    per = seconds * 10_000 / answer.candidates
    yield Figure(name="10,000 candidates of a plan", value=per, unit="s of CPU", target="<= 10", met=per <= 10)


def figures(trace=None):
    yield from accuracy()
    yield from speed(trace)
    yield from planning()


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--fit", action="store_true")
    options.add_argument("--left-out", action="store_true")
    options.add_argument("--trace", type=Path)
    given = options.parse_args()
    if given.fit:
        print(fitted("RTXPRO6000", "nvidia-rtx-pro-6000-server"))
        print(fitted("NVIDIA GeForce RTX 4090", "nvidia-rtx-4090"))
    elif given.left_out:
        left_out()
    else:
        for figure in figures(given.trace):
            print(figure, flush=True)


if __name__ == "__main__":
    main()
