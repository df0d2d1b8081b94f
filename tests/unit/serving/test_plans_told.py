"""Whole plans, number by number and word by word: each asks for something that no other does.

`plans_told.json` has the answers: `python tests/unit/serving/test_plans_told.py` writes them anew (with src and tests
on the path). A change of a rule shows there as the numbers it changes: read them before committing them.
"""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from inferometer.core.served import Objective
from inferometer.core.traffic.lengths import Lengths
from inferometer.core.traffic.traces import RequestTrace
from inferometer.predict.options import Battery, Hosting, Options
from inferometer.serving.plans.asked import Drafting, EdgeAsked, PlanSearch
from inferometer.serving.plans.edge import EdgeSearch, edge_plans
from inferometer.serving.plans.regions import Region, plan_regions
from inferometer.serving.plans.search import plan
from unit.predict.machines import priors_alone, take_fits_away  # noqa: F401 - `priors_alone` is used by being here
from unit.serving.simulate.test_simulations_told import near, rounded

TOLD = Path(__file__).parent / "plans_told.json"
GOALS = (Objective(metric="ttft", limit_s=0.8, share=0.95), Objective(metric="tpot", limit_s=0.04, share=0.95))
PLACES = np.arange(200)
TRACE = RequestTrace(
    name="t", form="requests", arrival_s=np.sort(PLACES * 15_485_863 % 40_001 / 400),
    input_tokens=50 + PLACES * 7919 % 613,
    output_tokens=5 + PLACES * 104_729 % 97,
)  # fmt: skip


def asked(**more):
    plain = {
        "model": "llama-3.2-1b", "rate_per_s": 40.0, "prompt": Lengths(kind="fixed", mean=600),
        "generate": Lengths(kind="fixed", mean=80), "objectives": GOALS, "devices": ("nvidia-l4", "nvidia-h100-sxm"),
        "runtimes": ("vllm",), "weights": (None,), "kv": (None,), "sequences": (0, 32), "tokens": (0,), "tp": (1,),
    }  # fmt: skip
    return PlanSearch(**plain | more)


LARGE = {"model": "llama-3.1-8b", "devices": ("nvidia-h100-sxm",), "rate_per_s": 8.0, "sequences": (0,), "keep": 1}
BOARD = EdgeAsked(device="raspberry-pi-5", round_trip_s=0.05, model="smollm2-135m", weights="q4_0")
SEARCHES = {
    "cheapest": asked(keep=2),
    "greenest": asked(goal="greenest", kv=(None, "f8e4m3"), weights=("bf16", "f8e4m3"), sequences=(0,), keep=1),
    "smallest, of every engine": asked(goal="smallest", runtimes=("vllm", "sglang", "trtllm"), sequences=(0,),
                                         devices=("nvidia-l4",), tp=(1, 2), keep=1),
    "in stages": asked(goal="smallest", devices=("nvidia-l4",), sequences=(0,), pp=(2,), keep=1),
    "sure": asked(availability=0.999, replica_up=0.95, headroom=0.3, discount=0.2, most_watts=9000.0),
    "too tight": asked(objectives=(Objective(metric="ttft", limit_s=0.001),)),
    "too few": asked(rate_per_s=9000.0, most_devices=4),
    "too much power": asked(rate_per_s=400.0, most_watts=200.0),
    "of a day": asked(day=(0.2, 0.5, 1.0, 0.4), prices=(("nvidia-l4", 0.3),), devices=("nvidia-l4",),
                      options=Options(place=Hosting(grid="eu", pue=1.2))),
    "of a trace": asked(trace=TRACE, rate_per_s=2.0, devices=("nvidia-l4",)),
    "drafted": asked(**LARGE, drafts=(Drafting(draft="eagle", length=3, acceptance=0.7, spread=0.1),)),
    "drafted by a model": asked(**LARGE, drafts=(Drafting(draft="llama-3.2-1b", length=2, acceptance=0.8),)),
    "after the edge": asked(fallback=0.25, devices=("nvidia-l4",), edge=BOARD),
    "experts": asked(model="qwen3-30b-a3b", devices=("nvidia-h100-sxm",), tp=(1, 2), ep=(1, 2), dp=(1, 2),
                     sequences=(0,), rate_per_s=12.0, keep=2),
}  # fmt: skip
REGIONS = (
    Region(name="near", rate_per_s=20.0, devices=("nvidia-l4",), round_trip_s=0.05, grid="eu", pue=1.5, discount=0.1),
    Region(name="far", rate_per_s=9.0, day=(0.5, 1.0), round_trip_s=0.2, prices=(("nvidia-h100-sxm", 1.5),),
           availability=0.99, replica_up=0.9, most_watts=5e3),
    Region(name="too far", rate_per_s=9.0, round_trip_s=0.9),
)  # fmt: skip
BOARDS = ("nvidia-jetson-orin-nano", "raspberry-pi-5")
EDGES = {
    "cameras": EdgeSearch(model="resnet50", frames_per_s=4.0, streams=5, devices=BOARDS),
    "greenest": EdgeSearch(model="resnet50", frames_per_s=5.0, devices=BOARDS, goal="greenest", image=160,
                           options=Options(battery=Battery(capacity_j=1e5))),
    "little power": EdgeSearch(model="resnet50", frames_per_s=2.0, streams=9, devices=BOARDS[1:], max_watts=3.0),
    "too slow": EdgeSearch(model="resnet50", frames_per_s=500.0, devices=BOARDS[1:], goal="smallest"),
}  # fmt: skip


def answers():
    """What is told of each, by its name; made when it is asked for."""
    told = {f"plan: {name}": lambda search=search: planned(search) for name, search in SEARCHES.items()}
    told |= {f"edge: {name}": lambda search=search: edge_plans(search).document() for name, search in EDGES.items()}
    return told | {"regions": lambda: plan_regions(asked(), REGIONS).document()}


def planned(search):
    answer = plan(search)
    return {**answer.document(), "front": [*map(asdict, answer.front[:3])], "points": len(answer.front)}


def plain(value):
    return json.loads(json.dumps(rounded(value), default=str))


@pytest.mark.parametrize("name", answers())
def test_a_plan_is_as_it_was(name):
    assert near(plain(answers()[name]()), json.loads(TOLD.read_text())[name])


if __name__ == "__main__":
    take_fits_away()
    made = {}
    for name, answer in answers().items():
        made[name] = plain(answer())
    TOLD.write_text("{\n" + ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in made.items()) + "\n}\n")
