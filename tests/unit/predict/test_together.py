"""Plans priced at once cost what each of them costs alone: on devices of every kind, in several formats."""

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
from inferometer.predict.price.price import Levels
from inferometer.predict.price.together import _levels, sums_together
from inferometer.predict.ready import make_ready

POINTS = {"batch": np.array([1.0, 3.0, 3.0, 64.0]), "context": np.array([0.0, 5.0, 900.0, 4000.0])}
MANY = {name: np.resize(values, 40) * (1 + np.arange(40) // 4) for name, values in POINTS.items()}
PHASES = {"decode": {"query": 1}, "prefill": {"query": 100}}


def plans(model, runtime, weights):
    """On every thirtieth device, and the calibrated ones, from what a question would be answered with."""
    graph = model_graph(model)
    names = [*rows_of("devices").by_name]
    for name in dict.fromkeys(["nvidia-h200", "intel-emerald-rapids-1-vcpu", *names[::30]]):
        basis = ask(graph, on=device(name), runtime=runtime, weights=weights).basis()
        workload = Workload(precision=Precision(weights=weights))
        effects = require_effects(runtime)
        try:
            yield make_ready(graph, basis.device, effects=effects, workload=workload, options=Options(),
                             calibration=basis.calibration).plan  # fmt: skip
        except DomainError:
            continue


@pytest.mark.parametrize(
    ("model", "runtime"),
    [("llama-3.2-1b", "torch-compile"), ("gemma-3-1b", "torch-graph"), ("qwen3-30b-a3b", "llamacpp")],
)
def test_plans_together_cost_what_each_costs_alone(model, runtime):
    found = [plan for weights in ("bf16", "q4_0", "f32") for plan in plans(model, runtime, weights)]
    assert len(found) > 50
    for phase, points in product(PHASES, (POINTS, MANY)):
        sizes = {**points, **PHASES[phase], "logits": 1}
        together = sums_together(found, sizes, phase)
        for place, plan in enumerate(found):
            alone = plan.step(sizes, phase).sums()
            for name in ("time_s", "computing_s", "waiting_s"):
                np.testing.assert_allclose(getattr(together, name)[place], getattr(alone, name), rtol=1e-12, atol=1e-18)


def test_a_plan_costs_the_same_to_the_last_bit_whoever_its_neighbours_are():
    found = [*plans("llama-3.2-1b", "torch-compile", "bf16")]
    sizes = {**POINTS, **PHASES["decode"], "logits": 1}
    whole = sums_together(found, sizes, "decode").time_s
    one = {name: value[:1] if np.ndim(value) else value for name, value in sizes.items()}
    for place in (0, 7, len(found) - 1):
        assert (sums_together(found[place : place + 1], sizes, "decode").time_s[0] == whole[place]).all()
        assert sums_together(found[place : place + 1], one, "decode").time_s[0, 0] == whole[place, 0]


def test_the_floor_of_each_column_is_by_the_memory_of_its_own_device():
    """Floors are looked at where a price could lie below them: no sum of today's devices shows another's cache."""
    levels = [
        Levels(main="a", bandwidth=100.0, cache_bytes=8.0, cache_bandwidth=400.0, spill_bytes=8.0),
        Levels(main="b", bandwidth=50.0, cache_bytes=64.0),
    ]
    beside = _levels(levels, 3)
    for resident, activations in ((4.0, 2.0), (32.0, 7.0), (32.0, 40.0), (100.0, 100.0)):
        for place, alone in enumerate(levels):
            column = slice(3 * place, 3 * place + 3)
            assert (
                beside.floor(10.0, activations, 3.0, resident)[column] == alone.floor(10.0, activations, 3.0, resident)
            ).all()
            assert (beside.ideal(10.0, activations, 3.0, 1.0)[column] == alone.ideal(10.0, activations, 3.0, 1.0)).all()
