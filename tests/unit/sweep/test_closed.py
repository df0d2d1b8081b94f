"""The closed form of a step is the step."""

import numpy as np
import pytest

from inferometer.catalog.engines import require_effects
from inferometer.core.workload import Parallel, Workload
from inferometer.cost.options import Options
from inferometer.cost.ready import make_ready
from inferometer.sweep.closed import close, step_sums
from unit.sweep.studies import device, graph

N = 3000
BATCH, TOKENS = 1 + np.arange(N) % 61, 1 + (np.arange(N) * 37) % 5000
DECODE = {"batch": BATCH, "query": 1, "context": TOKENS, "logits": 1}
PREFILL = {"batch": BATCH, "query": TOKENS, "context": 0, "logits": 1}


def plan(model, on, runtime, **workload):
    return make_ready(
        graph(model), device(on), effects=require_effects(runtime), workload=Workload(**workload), options=Options()
    ).plan


@pytest.mark.parametrize(
    ("on", "runtime"),
    [("nvidia-h200", name) for name in ("ideal", "torch-compile", "torch-eager")] + [("raspberry-pi-5", "llamacpp")],
)
@pytest.mark.parametrize(("phase", "sizes"), [("decode", DECODE), ("prefill", PREFILL)])
def test_a_closed_form_gives_what_the_plan_gives(on, runtime, phase, sizes):
    found = plan("llama-3.2-1b", on, runtime)
    closed = close(found, phase)
    assert closed is not None
    quick, slow = step_sums(found, closed, sizes, phase), step_sums(found, None, sizes, phase)
    for name in ("time_s", "computing_s", "waiting_s"):
        np.testing.assert_allclose(getattr(quick, name), getattr(slow, name), rtol=1e-12, atol=1e-18)


def test_a_point_has_the_same_price_to_the_last_bit_whoever_its_neighbours_are():
    found = plan("llama-3.2-1b", "nvidia-h200", "torch-compile")
    closed = close(found, "decode")
    whole = step_sums(found, closed, DECODE, "decode").time_s
    for start, stop in ((0, 1), (1023, 1026), (2999, 3000), (7, 1500)):
        part = {**DECODE, "batch": BATCH[start:stop], "context": TOKENS[start:stop]}
        assert (step_sums(found, closed, part, "decode").time_s == whole[start:stop]).all()


def test_a_table_is_read_once_at_most():
    """More rows than the vocabulary has entries: an embedding then reads all of its table, and no more."""
    found = plan("llama-3.2-1b", "nvidia-h200", "ideal")
    sizes = {"batch": np.array([1, 100, 1000]), "query": np.array([1, 1000, 8000]), "context": 0, "logits": 1}
    quick = step_sums(found, close(found, "prefill"), sizes, "prefill")
    np.testing.assert_allclose(quick.time_s, step_sums(found, None, sizes, "prefill").time_s, rtol=1e-12)


@pytest.mark.parametrize(
    ("model", "on", "workload"),
    [
        ("gemma-3-1b", "nvidia-h200", {}),  # a window's minimum is no polynomial
        ("qwen3-30b-a3b", "nvidia-h200", {}),  # nor is an expert's chance to be touched
        ("llama-3.2-1b", "nvidia-h200", {"parallel": Parallel(tp=2)}),  # messages go over links
        ("llama-3.2-1b", "amd-mi300x", {}),  # a cache with a bandwidth of its own
    ],
)
def test_what_has_no_closed_form_goes_through_the_plan(model, on, workload):
    found = plan(model, on, "ideal", **workload)
    assert close(found, "decode") is None
    sums = step_sums(found, None, DECODE, "decode")
    whole = found.step(DECODE, "decode")
    np.testing.assert_allclose(sums.time_s, whole.total("time_s"), rtol=1e-12)
