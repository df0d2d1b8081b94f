"""A grid that is priced folded costs what its points cost one by one, wherever it is cut."""

from dataclasses import replace

import numpy as np
import pytest

from inferometer.core.workload import Precision, Workload
from inferometer.known import device
from inferometer.known.engines import require_effects
from inferometer.predict.ask import ask, model_graph
from inferometer.predict.options import Options
from inferometer.predict.price.deviations import NO_EFFECT
from inferometer.predict.price.over import sums_over
from inferometer.predict.price.step import Sums
from inferometer.predict.ready import make_ready

BATCHES = np.array([1.0, 2.0, 3.0, 64.0, 500.0]).reshape(-1, 1, 1, 1)
LENGTHS = np.array([1.0, 5.0, 128.0, 333.0, 4000.0, 70_000.0]).reshape(1, -1, 1, 1)
PHASES = {"prefill": {"query": LENGTHS, "context": 0}, "decode": {"query": 1, "context": LENGTHS}}
NAMES = ("time_s", "computing_s", "waiting_s")
# Tables on two axes and on one, curves of kernels, the shipped fit, a cache whose bandwidth counts, unpacked weights.
CASES = [
    ("llama-3.2-1b", "torch-compile", "nvidia-h200", "bf16"),
    ("llama-3.2-1b", "torch-eager", "nvidia-h200", "bf16"),
    ("llama-3.2-1b", "vllm", "nvidia-h200", "bf16"),
    ("llama-3.1-8b", "llamacpp", "nvidia-l4", "q4_0"),
    ("llama-3.2-1b", "llamacpp", "intel-emerald-rapids-1-vcpu", "q4_0"),
    ("gemma-3-1b", "torch-compile", "nvidia-l40s", "i8"),
    ("qwen3-30b-a3b", "vllm", "nvidia-h200", "bf16"),
    ("llama-3.2-1b", "ideal", "raspberry-pi-5", "i4"),
    ("llama-3.1-8b", "torch-eager", "amd-mi300x", "bf16"),
]


def plan(model, runtime, on, weights, factor=None):
    """`factor` takes the place of what ops take inside a model over what they take alone."""
    graph = model_graph(model)
    basis = ask(graph, on=device(on), runtime=runtime, weights=weights).basis()
    calibration = basis.calibration
    if factor is not None:
        calibration = replace(calibration, factors=dict.fromkeys(calibration.factors, factor))
    return make_ready(
        graph, basis.device, effects=require_effects(runtime), options=Options(), calibration=calibration,
        workload=Workload(precision=Precision(weights=weights)),
    ).plan  # fmt: skip


def grid(phase, batches=BATCHES):
    return {"batch": batches, **PHASES[phase], "logits": 1}


def over_all(priced, sizes, phase):
    """The pieces of a grid put together: [batches, lengths], as one vector."""
    shape = np.broadcast_shapes(*(np.shape(value) for value in sizes.values()))
    found = {name: np.full((shape[0], shape[1]), np.nan) for name in NAMES}
    for here, sums in sums_over(priced, sizes, phase):
        for name in NAMES:
            found[name][here] = getattr(sums, name)
    return Sums(**{name: values.ravel() for name, values in found.items()})


def one_by_one(priced, sizes, phase):
    shape = np.broadcast_shapes(*(np.shape(value) for value in sizes.values()))
    flat = {name: np.broadcast_to(value, shape).ravel() if np.ndim(value) else value for name, value in sizes.items()}
    return priced.step(flat, phase).sums()


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("case", CASES)
def test_a_grid_costs_what_its_points_cost_one_by_one(case, phase):
    priced = plan(*case)
    found, wanted = over_all(priced, grid(phase), phase), one_by_one(priced, grid(phase), phase)
    assert any(part.lean is not None for part in priced.parts[phase, False])
    for name in NAMES:
        np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), rtol=1e-12, atol=1e-18)


@pytest.mark.parametrize("phase", PHASES)
def test_no_folded_row_beats_its_floor(phase):
    priced = plan(*CASES[0], factor=0.01)
    found, wanted = over_all(priced, grid(phase), phase), one_by_one(priced, grid(phase), phase)
    np.testing.assert_allclose(found.time_s, wanted.time_s, rtol=1e-12)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("case", CASES[:3])
def test_a_point_costs_the_same_to_the_last_bit_wherever_the_grid_is_cut(case, phase):
    priced, many = plan(*case), np.arange(1.0, 301.0).reshape(-1, 1, 1, 1)
    whole = over_all(priced, grid(phase, many), phase)
    points = len(whole.time_s) // len(many)
    for start, end in ((0, 1), (7, 9), (299, 300)):
        part = over_all(priced, grid(phase, many[start:end]), phase)
        for name in NAMES:
            np.testing.assert_array_equal(getattr(part, name), getattr(whole, name)[start * points : end * points])


def test_rows_that_are_no_polynomials_are_counted_at_every_point():
    priced = plan("gemma-3-1b", "torch-compile", "nvidia-h200", "bf16")  # five in six layers see only a window
    over_all(priced, grid("decode"), "decode")
    folded = {
        row.op.get("window") is not None: part.lean is not None
        for part in priced.parts["decode", False]
        for row in part.plan.prepared.rows
        if row.op.kind == "attention"
    }
    assert folded == {True: False, False: True}


def test_what_a_model_takes_over_its_work_slows_all_that_was_fitted_of_models_and_nothing_else():
    """Rates, ramps, launches and the step itself, each as many times; kernels that were timed alone stay."""
    made = plan("resnet50", "torch-eager", "nvidia-t4", "f32")
    once, twice = (
        replace(made, effects={"forward": replace(NO_EFFECT, times=times)}, paces={}).pace("forward")
        for times in (1, 2)
    )
    factor = np.where(made.rates_in("forward").fitted > 0, 2.0, 1.0)
    assert factor.max() == 2.0
    assert np.max(once.host_s) > 0
    for name in ("compute_ramp_s", "memory_ramp_s", "host_s"):
        assert np.allclose(getattr(twice, name), factor * getattr(once, name), rtol=1e-12), name
    for name in ("compute_share", "memory_share"):
        assert np.allclose(getattr(twice, name), getattr(once, name) / factor, rtol=1e-12), name
    assert np.array_equal(twice.overhead_s, once.overhead_s)
