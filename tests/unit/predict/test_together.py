"""Plans priced at once cost what each of them costs alone: on devices of every kind, in several formats."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from inferometer.core.errors import DomainError
from inferometer.core.workload import Precision, Workload
from inferometer.known import device
from inferometer.known.engines import require_effects
from inferometer.known.files import rows_of
from inferometer.predict.ask import ask, model_graph
from inferometer.predict.options import Options
from inferometer.predict.price.deviations import ModelEffect
from inferometer.predict.price.price import Levels
from inferometer.predict.price.together import sums_together
from inferometer.predict.ready import make_ready

# Few points are looked up one by one, more than sixteen in one call.
POINTS = {"batch": np.array([1.0, 3.0, 3.0, 64.0]), "context": np.array([0.0, 5.0, 900.0, 4000.0])}
MANY = {name: np.resize(values, 20) * (1 + np.arange(20) // 4) for name, values in POINTS.items()}
NAMES = ("time_s", "computing_s", "waiting_s")
PHASES = {"decode": {"query": 1}, "prefill": {"query": 100}}


def plans(model, runtime, weights):
    """On every fiftieth device, and the calibrated ones, from what a question would be answered with."""
    graph = model_graph(model)
    names = [*rows_of("devices").by_name]
    for name in dict.fromkeys(["nvidia-h200", "intel-emerald-rapids-1-vcpu", *names[::50]]):
        basis = ask(graph, on=device(name), runtime=runtime, weights=weights).basis()
        workload = Workload(precision=Precision(weights=weights))
        effects = require_effects(runtime)
        try:
            yield make_ready(graph, basis.device, effects=effects, workload=workload, options=Options(),
                             calibration=basis.calibration).plan  # fmt: skip
        except DomainError:
            continue


@pytest.mark.parametrize("model", ["llama-3.2-1b", "gemma-3-1b", "qwen3-30b-a3b"])
@pytest.mark.parametrize("pair", [("torch-compile", "llamacpp"), ("torch-graph", "vllm")], ids="-".join)
def test_plans_together_cost_what_each_costs_alone(model, pair):
    """Engines beside each other whose rows differ in number, kind and sizes, some of them no polynomials."""
    asked = product(pair, ("bf16", "q4_0", "f32"))
    found = [plan for runtime, weights in asked for plan in plans(model, runtime, weights)]
    assert len(found) > 100
    assert len({len(plan.prepared.rows) for plan in found}) > 1
    for phase, points in product(PHASES, (POINTS, MANY)):
        sizes = {**points, **PHASES[phase], "logits": 1}
        together = sums_together(found, sizes, phase)
        for place, plan in enumerate(found):
            alone = plan.step(sizes, phase).sums()
            for name in NAMES:
                np.testing.assert_allclose(getattr(together, name)[place], getattr(alone, name), rtol=1e-12, atol=1e-18)


def test_a_plan_costs_the_same_to_the_last_bit_whoever_its_neighbours_are():
    found = [plan for runtime in ("torch-compile", "vllm") for plan in plans("gemma-3-1b", runtime, "bf16")]
    sizes = {**POINTS, **PHASES["decode"], "logits": 1}
    whole = sums_together(found, sizes, "decode").time_s
    one = {name: value[:1] if np.ndim(value) else value for name, value in sizes.items()}
    for place in range(0, len(found), 9):
        assert (sums_together(found[place : place + 1], sizes, "decode").time_s[0] == whole[place]).all()
        assert sums_together(found[place : place + 1], one, "decode").time_s[0, 0] == whole[place, 0]


def test_the_floor_of_each_plan_is_by_the_memory_of_its_own_device():
    """Caches, one of a known bandwidth, smaller and larger than the model and its cache: none counts for another."""
    levels = [
        Levels(main="a", bandwidth=1e11, cache_bytes=8e6, cache_bandwidth=4e11, spill_bytes=8e6),
        Levels(main="b", bandwidth=5e10, cache_bytes=1e5),
        Levels(main="c", bandwidth=3e10, cache_bytes=1e12),
    ]
    plan = make_ready(
        model_graph("llama-3.2-1b"), device("nvidia-l4"), effects=require_effects("torch-compile"),
        workload=Workload(precision=Precision(weights="bf16")), options=Options(),
    ).plan  # fmt: skip
    for phase, query in PHASES.items():
        # All that is priced lies far below the floors, which a model effect below 1 makes it look at.
        near = dict.fromkeys(("compute_share", "memory_share"), 1e6)
        none = dict.fromkeys(("compute_ramp_s", "memory_ramp_s", "overhead_s", "host_s", "step_s"), 0.0)
        pace, effects = replace(plan.pace(phase), **near, **none), {phase: ModelEffect(times=0.5)}
        own = [
            replace(
                plan,
                levels=each,
                effects=effects,
                weights_bytes=1e6,
                parts={},
                paces={phase: replace(pace, levels=each)},
            )
            for each in levels
        ]
        own.append(replace(plan, parts={}))  # beside them one that no effect makes quicker
        sizes = {**POINTS, **query, "logits": 1}
        together = sums_together(own, sizes, phase)
        for place, each in enumerate(own):
            step = each.step(sizes, phase)
            assert not each.may_undercut or (step.priced.time_s == step.priced.floor_s).mean() > 0.8
            np.testing.assert_allclose(together.time_s[place], step.sums().time_s, rtol=1e-12)
