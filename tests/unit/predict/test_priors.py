from inferometer.core.device import UNITS
from inferometer.known.engines import runtime_effects
from inferometer.predict.price.priors import known_priors, power_prior, prior_for, storage_prior
from inferometer.predict.work.classes import CLASSES, class_of, class_path
from unit.predict.decoders import attend
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


def test_a_recurrent_network_is_far_from_the_peak_of_a_cpu():
    """Each step waits for the one before: they were answered at the peak, ten times as fast as they are."""
    assert prior_for("cpu", ("recurrent",)).compute_share.value < 0.2


def test_transforms_of_onnx_runtime_are_plain_loops_and_other_lengths_than_powers_of_two_take_longest():
    transform = {"function": "fft", "flops_per_element": 25}
    effects = runtime_effects("onnxruntime").sets["x86"]
    even, odd, other = (
        effects.plainly(op("elementwise", **more), "", "f32", "f32")
        for more in (transform, {**transform, "odd": True}, {"function": "add"})
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
