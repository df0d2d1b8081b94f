"""Predictions beside numbers that were measured or published, with class priors only: nothing is calibrated here."""

import numpy as np
import pytest

from inferometer.core import Parallel, Precision, Workload
from inferometer.formats.resolve import read
from inferometer.known import device
from inferometer.predict.answer import predict_graph
from inferometer.predict.memory.fit import fit

H200, H100 = device("nvidia-h200"), device("nvidia-h100-sxm")
BF16 = Precision(weights="bf16", activations="bf16", kv="bf16")

# Median milliseconds on an NVIDIA H200: PyTorch 2.11, CUDA 13, transformers 5.17, torch.compile, bf16, random weights.
# Decoding is one step replayed from a CUDA graph with a static cache; prefills are without a cache.
COMPILED = [
    ("llama-3.2-1b", "decode", 1, 128, 1.491),
    ("llama-3.2-1b", "decode", 1, 2048, 1.702),
    ("llama-3.2-1b", "decode", 8, 2048, 2.893),
    ("llama-3.2-1b", "decode", 32, 2048, 6.661),
    ("llama-3.2-1b", "prefill", 1, 512, 7.839),
    ("llama-3.2-1b", "prefill", 1, 2048, 10.304),
    ("llama-3.2-1b", "prefill", 8, 2048, 74.044),
    ("tinyllama-1.1b", "decode", 1, 128, 1.733),
    ("tinyllama-1.1b", "decode", 1, 2048, 2.120),
    ("tinyllama-1.1b", "decode", 8, 2048, 3.612),
    ("tinyllama-1.1b", "decode", 32, 2048, 8.602),
    ("tinyllama-1.1b", "prefill", 1, 512, 5.873),
    ("tinyllama-1.1b", "prefill", 1, 2048, 11.396),
]
# The same modules op by op, captured in a CUDA graph.
CAPTURED = [
    ("llama-3.1-8b", "decode", 1, 128, 7.509),
    ("llama-3.1-8b", "decode", 8, 2048, 18.667),
    ("llama-3.1-8b", "decode", 32, 8192, 177.311),
    ("llama-3.1-8b", "prefill", 1, 2048, 63.328),
    ("llama-3.1-8b", "prefill", 8, 2048, 518.636),
    ("qwen2.5-0.5b", "decode", 1, 2048, 3.191),
    ("qwen2.5-0.5b", "prefill", 8, 512, 12.470),
    ("llama-2-13b", "decode", 8, 2048, 15.624),
    ("llama-2-13b", "prefill", 1, 2048, 115.543),
]


def predicted(model, phase, batch, tokens, runtime):
    sizes = {"context": tokens} if phase == "decode" else {"prompt": tokens, "generate": 0}
    workload = Workload(batch=batch, precision=BF16, **sizes)
    return predict_graph(read(model), H200, runtime=runtime, workload=workload).phase(phase)


@pytest.mark.parametrize(("rows", "runtime"), [(COMPILED, "torch-compile"), (CAPTURED, "torch-graph")])
def test_priors_alone_are_near_what_an_h200_does(rows, runtime):
    found = [(predicted(*row[:4], runtime), row[4] * 1e-3) for row in rows]
    errors = [abs(phase.time_s / measured - 1) for phase, measured in found]
    assert np.median(errors) < 0.10
    assert np.percentile(errors, 90) < 0.30
    assert all(phase.floor_s <= measured for phase, measured in found)
    inside = [phase.low_s <= measured <= phase.high_s for phase, measured in found]
    assert np.mean(inside) >= 0.8


def test_decoding_llama_3_1_8b_on_an_h200_reads_its_weights_in_3_13_ms_and_never_less():
    for runtime in ("ideal", "torch-compile", "torch-eager", "llamacpp"):
        profile = predict_graph(read("llama-3.1-8b"), H200, runtime=runtime, workload=Workload(context=128))
        phase = profile.phase("decode")
        assert 3.130e-3 <= phase.floor_s < 3.135e-3
        assert phase.time_s >= phase.low_s >= phase.floor_s


def test_llama_3_1_70b_on_one_to_eight_h100s():
    """141.1 GB of weights and 327,680 B a token: it does not fit on one, barely on two, easily on four and eight."""
    model = read("llama-3.1-70b")
    found = {
        tp: fit(model, H100, runtime="torch-compile", workload=Workload(context=8191, parallel=Parallel(tp=tp)))
        for tp in (1, 2, 4, 8)
    }
    assert [found[tp].fits for tp in (1, 2, 4, 8)] == [False, True, True, True]
    assert found[1].weights_bytes == 141_107_412_992
    assert found[1].kv_bytes_per_token == 327_680
    assert found[1].kv_bytes == 8192 * 327_680
    assert found[1].devices_at_least == 2
    for tp in (2, 4, 8):
        assert found[tp].weights_bytes == pytest.approx(141_107_412_992 / tp, rel=1e-3)
        assert found[tp].kv_bytes == 8192 * 327_680 // tp
    assert found[2].largest_batch < found[4].largest_batch < found[8].largest_batch
    assert found[8].longest_context == 131_072


def test_the_contracts_example():
    profile = predict_graph(
        read("llama-3.2-1b"), H200, runtime="torch-compile", workload=Workload(prompt=2048, generate=128)
    )
    assert profile.model.parameters == profile.model.active_parameters == 1_235_814_400
    assert profile.model.weight_bytes == 2_471_628_800
    assert profile.model.kv_bytes_per_token == 32_768
    assert "layers.0.attn.q_proj" in {op.name for op in profile.phase("prefill").ops}


@pytest.mark.parametrize(
    ("model", "active"),
    [("qwen3-30b-a3b", 3.3e9), ("mixtral-8x7b", 12.9e9), ("deepseek-v3", 37e9)],
)
def test_a_token_uses_the_published_share_of_a_mixture(model, active):
    profile = predict_graph(read(model), H200, workload=Workload(context=1))
    assert profile.model.active_parameters == pytest.approx(active, rel=0.05)


def test_a_known_tool_error_is_not_made_the_weight_load_is_in_no_token():
    """A real log of TinyLlama on a CPU: 11.1 s once and 152 ms a token; a tool that adds them says 11 s a token."""
    profile = predict_graph(
        read("tinyllama-1.1b"), device("raspberry-pi-5"), runtime="llamacpp", workload=Workload(prompt=32, generate=100)
    )
    assert profile.summary.tpot_s < 0.2 * profile.phase("load").time_s
