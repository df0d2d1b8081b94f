"""Torch's kernels and probe models at sizes that a CPU does in a moment. Needs torch."""

import pytest

from inferometer.known import device
from inferometer.known.engines import require_effects
from inferometer.measure.calibrate.fitting.steps import alone_note
from inferometer.measure.calibrate.job import CalibrationJob, PreparedEngine, calibrate
from inferometer.measure.calibrate.torch.kernels import KernelSizes, routed
from inferometer.measure.calibrate.torch.models import TINY, ProbeModels, _made, _Run
from inferometer.measure.calibrate.torch.provider import torch_environment, torch_provider
from inferometer.measure.calibrate.torch.timing import Clock

torch = pytest.importorskip("torch")

SMALL = KernelSizes(
    rows=(1, 4), weights=((32, 32), (32, 64)), biased=((32, 32),), experts=((32, 16, 4, 2),),
    heads=((4, 2, 16), (2, 2, 16)), batches=(1,), queries=(8,), contexts=(8,),
    elements=(256, 1024), images=(1,), planes=((8, 16, 8),), patches=((2, 16, 9), (2, 16, 60)),
    points=((8, 16),), sides=(6,), stems=((3, 2, 8, 16),), lookup=(64, 16),
    most_bytes=1e8,
)  # fmt: skip


@pytest.fixture
def bare_functions(monkeypatch):
    """Whole models without transformers, whose modules take a CPU seconds in f16, and no hundred images at once."""
    monkeypatch.setattr("inferometer.measure.calibrate.torch.models.builds_modules", lambda: False)
    monkeypatch.setattr("inferometer.measure.calibrate.torch.models._IMAGES", (1, 2))


@pytest.mark.usefixtures("bare_functions")
@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # a CPU without such products multiplies in another way
@pytest.mark.parametrize("runtime", ["torch-eager", "torch-compile"])
def test_every_case_runs_and_the_fit_holds_all_classes(tmp_path, runtime):
    gpu = device("nvidia-h200")
    provider = torch_provider(
        torch, gpu, require_effects(runtime), "f16", place="cpu", limit_s=0.002, sizes=SMALL, probes=TINY, most=100
    )
    versions, environment = torch_environment(torch)
    job = CalibrationJob(device=gpu, runtime=runtime, dtype="f16", budget_s=120.0, folder=tmp_path)
    found = calibrate(job, PreparedEngine(provider=provider, versions=versions, environment=environment))
    assert found.outcome.skipped == ()
    assert found.outcome.left == 0
    masked = set() if runtime == "torch-eager" else {"attention.masked", "attention.padded"}
    ways = {"attention.decode", "attention.prefill"} | masked
    classes = {table.op_class for table in found.calibration.tables}
    expected = ways | {"linear", "matmul", "experts", "convolution", "depthwise", "vector", "indexing"}
    assert expected <= classes
    assert {name.partition(".")[0] for name in classes} == {name.partition(".")[0] for name in expected}
    assert {"h2d", "d2h"} <= set(found.calibration.bandwidths)
    # Steps of a CPU held against a GPU's peaks may explain nothing: their phase is then dropped, and that is said.
    steps = found.outcome.steps
    assert {step.model for step in steps} == set(TINY)
    dropped = {step.phase for step in steps if alone_note(step.phase) in found.calibration.notes}
    assert set(found.calibration.fitted_on) == {step.model for step in steps if step.phase not in dropped}
    assert not {f"linear.{phase}" for phase in dropped} & set(found.calibration.factors)
    assert found.calibration.versions["torch"] == torch.__version__


@pytest.mark.parametrize("probe", sorted(TINY))
def test_modules_one_by_one_are_transformers_own(probe):
    pytest.importorskip("transformers")
    models = ProbeModels(
        clock=Clock(torch=torch, place="cpu", limit_s=0.02), runtime=require_effects("torch-eager"), dtype="bf16",
        probes={probe: TINY[probe]}, most=100,
    )  # fmt: skip
    first = {each.op_class: each for each in reversed(models.candidates())}
    models.dtype = "f32"  # the format of the weights alone: bf16 has prompts and steps
    for candidate in first.values():
        (step,) = models.measure(candidate).steps
        assert step.seconds > 0
    net = models._kept[1].weights
    assert type(net).__name__ == TINY[probe]["architectures"][0]
    assert type(net).__module__.startswith("transformers.")
    assert net.dtype == torch.float32


def test_a_decoders_cache_is_as_long_after_a_step_as_before():
    pytest.importorskip("transformers")
    config = TINY["probe-decoder-tiny"]
    net = _made(Clock(torch=torch, place="cpu"), config, torch.float32, modules=True)
    lengths = []
    inner = net.weights.forward
    net.weights.forward = lambda **given: (lengths.append(given["past_key_values"].get_seq_length()), inner(**given))
    step = net.prepared(_Run(model="probe", phase="decode", batch=2, context=7), masked=False, config=config)
    with torch.inference_mode():
        step()
        step()
    assert lengths == [7, 7]


def test_rows_pass_through_the_experts_that_they_name_and_are_weighed():
    """The grouped products against one expert after the other, row by row."""
    rows, hidden, inner, experts, chosen = 5, 8, 16, 4, 2
    chance = torch.Generator().manual_seed(0)
    x, both, down, weights = (
        torch.rand(shape, generator=chance)
        for shape in ((rows, hidden), (experts, 2 * inner, hidden), (experts, hidden, inner), (rows, chosen))
    )
    places = torch.rand(rows, experts, generator=chance).topk(chosen, dim=1).indices
    assert len(set(places.flatten().tolist())) == experts
    alone = torch.zeros(rows, hidden)
    for row in range(rows):
        for expert, weight in zip(places[row].tolist(), weights[row], strict=True):
            gate, up = (both[expert] @ x[row]).chunk(2)
            alone[row] += weight * (down[expert] @ (torch.nn.functional.silu(gate) * up))
    torch.testing.assert_close(routed(torch, x, places, weights, both, down), alone)
