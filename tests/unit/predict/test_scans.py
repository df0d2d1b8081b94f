"""Prompts of state-space models in eager PyTorch, which has no kernel that scans."""

import pytest

from inferometer.predict.ask import ask


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
