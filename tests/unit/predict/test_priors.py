import pytest

from inferometer import predict
from inferometer.core.device import UNITS
from inferometer.core.graph import Block, Graph
from inferometer.core.workload import Workload
from inferometer.known import device
from inferometer.known.engines import runtime_effects
from inferometer.predict.answer import predict_graph
from inferometer.predict.price.priors import known_priors, power_prior, prior_for, storage_prior
from inferometer.predict.work.classes import CLASSES, class_of, class_path
from unit.predict.decoders import BATCH, attend, tensor, weight
from unit.predict.examples import EXAMPLES, op


def test_priors_are_shares_and_say_where_they_come_from():
    for (unit, name), prior in known_priors().items():
        shares = [prior.compute_share, prior.memory_share, prior.link_share]
        assert unit in UNITS
        assert any(share is not None for share in shares), prior.name
        assert all(0 < share.value <= 1 and share.source for share in shares if share is not None), prior.name
        assert prior.spread.value >= 1
        assert name.partition(".")[0] in CLASSES


def test_the_first_class_that_has_a_prior_is_taken():
    assert prior_for("gpu", ("attention.decode", "attention")).name == "gpu-attention-decode"
    assert prior_for("cpu", ("attention.decode", "attention")).name == "cpu-attention"
    assert prior_for("tpu", ("attention",)) is None


def test_a_recurrent_network_is_far_from_the_peak_of_a_cpu_and_nearer_with_a_batch():
    """Each step waits for the one before and reads all matrices: at the peak it was ten times too fast, and eight rows
    took eight times as long as one, of which they take three."""
    cell = op("recurrent", [tensor("x", 200, BATCH, 128)], [tensor("y", 200, BATCH, 128)],
              [weight("w", 512, 128), weight("r", 512, 128)], cell="lstm", hidden=128, steps=200)  # fmt: skip
    graph = Graph(name="lstm", blocks=(Block(name="lstm", ops=(cell,)),), inputs=cell.inputs, precision="f32")
    one, eight = (
        predict_graph(graph, device("intel-xeon-8480plus"), runtime="onnxruntime", workload=Workload(batch=batch))
        for batch in (1, 8)
    )
    times = [each.phase("forward").ops[0] for each in (one, eight)]
    assert 6 < times[0].time_s / times[0].floor_s < 12
    assert 2.5 < times[1].time_s / times[0].time_s < 4.5


def test_transforms_of_onnx_runtime_are_plain_loops_and_other_lengths_than_powers_of_two_take_longest():
    transform = {"function": "fft", "flops_per_element": 25}
    effects = runtime_effects("onnxruntime").sets["x86"]
    even, odd, other = (
        effects.plainly(op("elementwise", **more), "", "f32", "f32")
        for more in (transform, {**transform, "odd": 8.5}, {"function": "add"})
    )
    assert odd > 3 * even > other == 1


def test_every_kind_of_op_has_a_class():
    assert {class_of(example) for example in EXAMPLES} <= CLASSES


def test_attention_is_told_apart_by_phase_path_and_width_of_head():
    wide, narrow = attend("a", heads=8, kv_heads=8, head_dim=128), attend("a", heads=8, kv_heads=8, head_dim=64)
    assert class_path(wide, "decode") == ("attention.decode.wide", "attention.decode", "attention")
    assert class_path(narrow, "prefill", "masked")[0] == "attention.masked.narrow"
    assert class_path(wide, "decode", "masked")[1] == "attention.decode"  # one query meets every key: nothing is masked


def test_a_convolution_of_single_channels_is_depthwise():
    conv = {"kernel": (3, 3), "in_channels": 16, "out_channels": 16}
    assert class_of(op("convolution", groups=16, **conv)) == "depthwise"
    assert class_of(op("convolution", groups=1, **conv)) == "convolution"


def test_power_and_storage_are_known_for_some_machines_and_unknown_for_others():
    shares = power_prior("gpu")
    assert 0 < shares.idle_share.value < shares.moving_share.value < shares.computing_share.value <= 1
    assert power_prior("npu") is None
    assert storage_prior("server").high_bytes_per_s.value > storage_prior("board").high_bytes_per_s.value
    assert storage_prior("toaster") is None


@pytest.mark.parametrize(
    "name",
    [
        "apple-m1-gpu", "apple-m2-ultra-gpu", "apple-m4-gpu", "apple-m1-cpu", "nvidia-rtx-4090", "nvidia-rtx-3060",
        "nvidia-jetson-orin-nano-8gb", "intel-arc-a770", "intel-core-ultra-9-288v-gpu", "amd-ryzen-ai-max-395-gpu",
        "qualcomm-snapdragon-8-elite-gpu", "raspberry-pi-5", "rockchip-rk3588-cpu",
    ],
)  # fmt: skip
@pytest.mark.parametrize("formats", [("q4_k", "q5_k", "q6_k"), ("q4_0", "q5_0", "q5_1")])
def test_wider_blocks_that_nobody_measured_are_read_no_faster_than_narrower_ones(name, formats):
    times = [
        predict("llama-3.2-3b", on=name, runtime="llamacpp", weights=each, context=512).phase("decode").time_s
        for each in formats
    ]
    assert times == sorted(times)
