"""Weights that an engine writes out in a wider format when it loads them."""

import pytest

from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.core.workload import Precision, Workload
from inferometer.known import device
from inferometer.known.engines import engine
from inferometer.predict.ask import ask
from inferometer.predict.options import Options
from inferometer.predict.ready import make_ready

ARM, X86 = device("arm-neoverse-n1-2-cores"), device("intel-xeon-8480plus")


def product(stored):
    x, y = (Tensor(name=name, shape=(1, 4096), dtype="f32") for name in "xy")
    weight = Tensor(name="w", shape=(4096, 4096), dtype=stored, role="weight")
    op = Op(
        name="p", kind="linear", inputs=(x,), outputs=(y,), weights=(weight,),
        attributes={"in_features": 4096, "out_features": 4096},
    )  # fmt: skip
    return Graph(name="g", blocks=(Block(name="b", ops=(op,)),))


def weights_read(stored, where, precision=None):
    ready = make_ready(
        product(stored), where, effects=engine("openvino-genai").effects,
        workload=Workload(batch=1, precision=precision or Precision()), options=Options(),
    )  # fmt: skip
    return ready.plan.prepared.quantities({"batch": 1}).weights.sum(), ready.plan.arithmetic


def test_openvino_reads_compressed_weights_in_f16_on_arm_and_as_they_are_on_x86():
    assert weights_read("i8", ARM) == (2 * 4096**2, ("f16",))
    assert weights_read(None, ARM, Precision(weights="i8", activations="f32")) == (2 * 4096**2, ("f16",))
    assert weights_read("i8", X86) == (4096**2, ("i8",))


@pytest.mark.parametrize(
    ("name", "weights", "published_bytes"),
    [
        # bartowski/Llama-3.2-1B-Instruct-GGUF and bartowski/Meta-Llama-3.1-8B-Instruct-GGUF, with 8 MB of vocabulary
        ("llama-3.2-1b", "q4_0", 0.771e9),
        ("llama-3.1-8b", "q4_0", 4.66e9),
        ("llama-3.1-8b", "q6_k", 6.60e9),
    ],
)
def test_a_file_of_gguf_keeps_what_gives_the_logits_in_more_bits(name, weights, published_bytes):
    """Where the embedding is the same matrix, it is kept so too: a third of such a small model."""
    stored = ask(name, on="raspberry-pi-5", runtime="llamacpp", weights=weights).answer().model.weight_bytes
    assert stored + 8e6 == pytest.approx(published_bytes, rel=0.003)


def test_a_format_with_more_bits_than_that_holds_for_all_matrices():
    stored = ask("llama-3.2-1b", on="raspberry-pi-5", runtime="llamacpp", weights="q8_0").answer().model
    assert set(stored.weight_formats) == {"q8_0"}
