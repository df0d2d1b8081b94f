"""Whole simulations, number by number: each asks for something that no other does, of the same few requests.

`simulations_told.json` has the answers: `python tests/unit/serving/simulate/test_simulations_told.py` writes them anew
(with src and tests on the path). A change of a rule shows there as the numbers it changes: read them before committing
them.
"""

import json
from collections import Counter
from dataclasses import asdict, replace
from math import fsum
from pathlib import Path

import numpy as np
import pytest

from inferometer.core.served import Objective
from inferometer.core.traffic.arrivals import Arrivals
from inferometer.core.traffic.demand import Sharing
from inferometer.core.traffic.figures import figures_of
from inferometer.core.traffic.lengths import Lengths
from inferometer.core.traffic.traces import RequestTrace
from inferometer.known import link
from inferometer.predict.ask import ask, model_graph
from inferometer.predict.options import Options, Speculative
from inferometer.serving.load.plan import LoadPlan, LoadStep
from inferometer.serving.simulate import run
from inferometer.serving.simulate.plan import Lora, SimulationPlan, Vision
from inferometer.serving.simulate.run import simulate
from inferometer.serving.simulate.service import Scaling
from unit.predict.machines import priors_alone, take_fits_away  # noqa: F401 - `priors_alone` is used by being here

TOLD = Path(__file__).parent / "simulations_told.json"
COUNT = 90
PLACES = np.arange(COUNT)
# Lengths and times that follow no pattern, and no generator whose stream may change.
INPUT, OUTPUT = 20 + PLACES * 7919 % 613, 1 + PLACES * 104_729 % 97
TRACE = RequestTrace(
    name="t", form="requests", arrival_s=np.sort(PLACES * 15_485_863 % 4001 / 2000), input_tokens=INPUT,
    output_tokens=OUTPUT,
)  # fmt: skip
# Thirty sessions of three turns, whose prompts go on from the answers before.
TALKS = replace(
    TRACE,
    input_tokens=np.repeat(INPUT[:30], 3) + np.tile([0, 200, 400], 30),
    session=np.repeat(np.arange(30), 3), turn=np.tile(np.arange(3), 30), wait_s=np.tile([0.0, 0.05, 0.2], 30),
    after=tuple(() if place % 3 == 0 else (place - 1,) for place in range(COUNT)),
)  # fmt: skip
PIECES = replace(TRACE, pieces=tuple(
    ((f"group {place % 4}", min(int(size), 96)), (f"own {place}", max(0, int(size) - 96)))
    for place, size in zip(PLACES, INPUT, strict=True)
))  # fmt: skip
REPLAY = LoadPlan(url="", steps=(LoadStep(),), trace=TRACE)
TOGETHER = LoadPlan(url="", steps=(LoadStep(concurrency=12),), trace=TALKS)
GOALS = (Objective(metric="ttft", limit_s=0.4), Objective(metric="tpot", limit_s=0.03, share=0.9))
SMALL = ask("llama-3.2-1b", on="nvidia-l4", runtime="vllm")
DRAFT = Options(speculative=Speculative(draft=model_graph("smollm2-135m"), length=3, acceptance=0.6))


def paged(**more):
    """A service that has too little of everything."""
    return {
        "question": SMALL,
        "traffic": REPLAY,
        "sequences": 12,
        "tokens": 256,
        "blocks": 90,
        "block_tokens": 16,
    } | more


def of(runtime, **more):
    return ask("llama-3.2-1b", on="nvidia-l4", runtime=runtime, **more)


PLANS = {
    "alone": {"question": SMALL, "traffic": REPLAY},
    "narrow": paged(),
    "narrow, sglang": paged(question=of("sglang")),
    "narrow, trtllm": paged(question=of("trtllm")),
    "slots": {"question": of("llamacpp"), "traffic": TOGETHER, "sequences": 5},
    "slots, with a limit": {"question": of("llamacpp"), "traffic": REPLAY, "longest": 400, "queue": 9,
                            "patience_s": 4.0, "priorities": (0.3, 0.7)},
    "swapped": paged(swap=True),
    "without a cache of prefixes": paged(traffic=TOGETHER, prefix_cache=False),
    "talks": paged(traffic=TOGETHER, whole=True),
    "talks that are not told": paged(traffic=TOGETHER, told=False, blocks=300),
    "talks by the clock": paged(traffic=replace(REPLAY, trace=TALKS), blocks=300, replicas=2, routing="prefix-aware"),
    "shared pieces": paged(traffic=replace(REPLAY, trace=PIECES), blocks=200, replicas=3, routing="round-robin"),
    "tiers": paged(traffic=TOGETHER, offload=((3e7, None), (9e7, 2e9))),
    "urgent first": paged(priorities=(0.25, 0.5, 0.25)),
    "impatient": paged(queue=20, patience_s=0.9, longest=500),
    "taken back": paged(cancels=(0.3, 0.25)),
    "several answers": paged(answers=3, blocks=400),
    "adapters": paged(lora=Lora(adapters=5, rank=32, slots=2)),
    "images": paged(vision=Vision(images=2, tokens=64, encode_s=0.02, pictures=7), blocks=300),
    "drafted": paged(speculation=(3, 0.6), spread=0.2, head="eagle"),
    "drafted by words before": paged(speculation=(4, 0.4), head="ngram"),
    "drafted by a model": paged(question=replace(SMALL, options=DRAFT), speculation=(3, 0.6)),
    "scaled": paged(scaling=Scaling(least=1, most=4, target=6.0, cold_start_s=0.2, interval_s=0.1, idle_s=0.5)),
    "scaled by the cache": paged(scaling=Scaling(least=1, most=3, target=0.5, cold_start_s=0.1, interval_s=0.1,
                                                 idle_s=0.3, signal="cache", tolerance=0.1, begin=2)),
    "scaled by who waits": paged(scaling=Scaling(least=1, most=3, target=3.0, cold_start_s=0.1, interval_s=0.1,
                                                 idle_s=0.3, signal="waiting", tolerance=0.1)),
    "two pools": paged(readers=ask("llama-3.2-1b", on="nvidia-l4", runtime="vllm", tp=2), reader_replicas=2,
                       link=link("infiniband-ndr"), blocks=200),
    "ranks": paged(ranks=2, replicas=2),
    "ranks that share experts": {"question": ask("qwen3-30b-a3b", on="nvidia-h100-sxm", runtime="vllm"),
                                 "traffic": REPLAY, "ranks": 2, "tokens": 512, "sequences": 8},
    "by devices": {"question": of("vllm", tp=2, pp=2), "traffic": REPLAY, "replicas": 2, "sequences": 16},
    "rates, saturated": {"question": SMALL, "traffic": LoadPlan(
        url="", steps=(LoadStep(arrivals=Arrivals(rate_per_s=40.0, process="constant")),), requests=60, saturate=True,
        prompt=Lengths(kind="fixed", mean=300), generate=Lengths(kind="fixed", mean=20), objectives=GOALS,
    ), "sequences": 8},
    "places, within goals": {"question": SMALL, "traffic": LoadPlan(
        url="", steps=(LoadStep(concurrency=4),), requests=60, within=True, objectives=GOALS,
        prompt=Lengths(kind="fixed", mean=300), generate=Lengths(kind="fixed", mean=20),
        sharing=Sharing(prefix_tokens=64, groups=2),
    )},
    "streamed": {"question": SMALL, "traffic": LoadPlan(
        url="", steps=(LoadStep(arrivals=Arrivals(rate_per_s=90.0, process="constant")),), requests=120,
        prompt=Lengths(kind="fixed", mean=300), generate=Lengths(kind="fixed", mean=20), objectives=GOALS,
    ), "sequences": 8},
}  # fmt: skip


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch):
    monkeypatch.setattr(run, "MOST_KEPT", 100)
    monkeypatch.setattr(run, "_PART", 50)


def answer(name):
    plan = SimulationPlan(**PLANS[name])
    profile = simulate(plan)
    served = profile.served
    return rounded({
        "levels": [level(each, plan) for each in served.levels],
        "summary": {at: value for at, value in asdict(profile.summary).items() if value is not None},
        "workload": [profile.workload.batch, profile.workload.prompt, profile.workload.generate, profile.device.count],
        "phases": [[phase.name, phase.time_s] for phase in profile.phases],
        "words": [served.loop, served.arrivals, served.lengths, served.headline, *profile.provenance.notes],
    })  # fmt: skip


def level(one, plan):
    told = {
        "what": [one.name, one.rate_per_s, one.concurrency, one.seconds, *one.notes],
        "windows": [asdict(window) for window in one.windows],
        "counters": dict(sorted(one.server.counters.items())), "gauges": dict(sorted(one.server.gauges.items())),
        "gaps": one.gaps and asdict(one.gaps),
        "figures": asdict(figures_of(one, plan.traffic.objectives)),
    }  # fmt: skip
    rows = one.requests
    if rows is not None:
        times = {
            name: [value for value in getattr(rows, name) if value is not None]
            for name in ("due_s", "first_s", "last_s")
        }
        told |= {
            name: [fsum(values), fsum(at * value for at, value in enumerate(values))] for name, values in times.items()
        }
        told |= {
            "tokens": [sum(rows.input_tokens), sum(rows.output_tokens)],
            "outcomes": Counter(rows.outcome),
            "sessions": fsum(at * value for at, value in enumerate(rows.session)),
        }
    return told


def rounded(value):
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, np.ndarray):
        return rounded(value.tolist())
    if isinstance(value, list | tuple):
        return [rounded(inner) for inner in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value


@pytest.mark.parametrize("name", PLANS)
def test_a_service_is_simulated_as_it_was(name):
    assert near(answer(name), json.loads(TOLD.read_text())[name])


def near(found, wanted):
    """The same, but for the last digits of numbers."""
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        return all(near(found[name], wanted[name]) for name in wanted)
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(near, found, wanted))
    assert found == (pytest.approx(wanted, rel=1e-5) if isinstance(wanted, float) else wanted)
    return True


if __name__ == "__main__":
    take_fits_away()
    run.MOST_KEPT, run._PART = 100, 50
    told = {name: answer(name) for name in PLANS}
    TOLD.write_text("{\n" + ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in told.items()) + "\n}\n")
