"""Prompts of state-space models in eager PyTorch, which has no kernel that scans."""

import numpy as np
import pytest

from inferometer.known.engines import require_effects
from inferometer.predict.ask import ask
from inferometer.predict.options import Options
from inferometer.predict.price.over import sums_over
from inferometer.predict.price.together import sums_together
from inferometer.predict.ready import make_ready


def prefill_s(model, prompt, *, runtime="torch-eager", **asked):
    answer = ask(model, on="nvidia-h200", runtime=runtime, prompt=prompt, generate=8, weights="f32", **asked).answer()
    return next(phase.time_s for phase in answer.phases if phase.name == "prefill")


def scan_s(prompt, **asked):
    answer = ask(
        "mamba2-1.3b", on="nvidia-h200", runtime="torch-eager", prompt=prompt, generate=8, weights="f32", **asked
    ).answer()
    phase = next(phase for phase in answer.phases if phase.name == "prefill")
    return sum(op.time_s for op in phase.ops if op.kind == "ssm_scan")


def test_a_scan_in_chunks_takes_as_long_as_the_whole_chunks_that_it_is_padded_to():
    assert scan_s(300) == pytest.approx(scan_s(512), rel=0.02)
    assert scan_s(2048) == pytest.approx(2 * scan_s(1024), rel=0.05)
    assert scan_s(256, batch=4) == pytest.approx(scan_s(1024), rel=0.02)


def test_products_of_a_chunk_that_are_written_out_take_at_least_as_long_as_their_bytes():
    # By hand: 64 heads of 64 with a state of 128, 48 layers, f32: each product is written, and read to be summed up.
    numbers = 64 * 256 * (256 * (128 + 64) + 2 * 128 * 64)
    assert scan_s(256) > 48 * 2 * 4 * numbers / 4.8e12  # an H200's memory


def test_one_token_updates_the_state_without_a_chunk():
    assert prefill_s("mamba2-1.3b", 1) < 0.3 * prefill_s("mamba2-1.3b", 2)


def test_a_host_goes_over_a_prompt_of_mamba_1_token_by_token_in_every_layer():
    """Three launches of an H200's host, 14.5 µs each: a product with the state, a sum, and a product with C."""
    a_token = (prefill_s("mamba-1.4b", 500) - prefill_s("mamba-1.4b", 100)) / 400
    assert a_token == pytest.approx(48 * 3 * 14.5e-6, rel=0.02)
    half = Options(host_speed=0.5)
    assert prefill_s("mamba-1.4b", 500, options=half) == pytest.approx(2 * prefill_s("mamba-1.4b", 500), rel=0.02)
    assert prefill_s("mamba-1.4b", 500, batch=4) == pytest.approx(prefill_s("mamba-1.4b", 500), rel=0.02)
    # Engines that have a kernel for it, and Mamba-2's chunks, do not loop.
    for model, runtime in (("mamba-1.4b", "vllm"), ("mamba-1.4b", "llamacpp"), ("mamba2-1.3b", "torch-eager")):
        times = prefill_s(model, 512, runtime=runtime) / prefill_s(model, 256, runtime=runtime)
        assert times < 2.1, (model, runtime)
    assert prefill_s("mamba-1.4b", 500, runtime="vllm") < 0.1 * prefill_s("mamba-1.4b", 500)


@pytest.mark.parametrize("host_speed", [1, 100])  # which waits for its host, and which does not
def test_a_loop_over_tokens_is_priced_alike_alone_together_and_over_a_grid(host_speed):
    basis = (asked := ask("mamba-1.4b", on="nvidia-h200", runtime="torch-eager", weights="f32")).basis()
    plan = make_ready(
        asked.graph, basis.device, effects=require_effects("torch-eager"), workload=asked.workload,
        options=Options(host_speed=host_speed), calibration=basis.calibration,
    ).plan  # fmt: skip
    batches, prompts = np.array([1.0, 7.0, 64.0]), np.array([1.0, 30.0, 2000.0])
    sizes = {"batch": batches, "query": prompts, "context": 0.0, "logits": 1}
    ((_, grid),) = sums_over(plan, {**sizes, "batch": batches[:, None], "query": prompts[None]}, "prefill")
    together = sums_together([plan], sizes, "prefill")
    steps = plan.step(sizes, "prefill").sums()
    for name in ("time_s", "computing_s", "waiting_s"):
        np.testing.assert_allclose(getattr(together, name)[0], getattr(steps, name), rtol=1e-12)
        np.testing.assert_allclose(np.diag(getattr(grid, name)), getattr(steps, name), rtol=1e-9)
