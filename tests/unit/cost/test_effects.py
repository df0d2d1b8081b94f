import pytest

from inferometer.catalog import device, devices
from inferometer.core.device import UNITS
from inferometer.cost.effects import _every, default_runtime, require_effects, runtime_effects
from inferometer.cost.price.priors import known_priors, power_prior, prior_for, storage_prior
from inferometer.cost.work.classes import CLASSES, class_of, class_path
from inferometer.errors import DomainError, UnknownNameError
from unit.cost.decoders import LLAMA_3_1_8B, attend
from unit.cost.examples import EXAMPLES, op

PROMISED = {"onnxruntime", "openvino", "litert", "torch-eager", "torch-compile", "llamacpp", "ideal"}


def test_every_promised_runtime_has_a_row():
    assert set(_every()) >= PROMISED


def test_an_unknown_runtime_is_an_error_that_names_the_known_ones():
    with pytest.raises(UnknownNameError, match="torch-compile"):
        runtime_effects("torch-compiled")
    with pytest.raises(DomainError, match="neither"):
        require_effects(3)


def test_every_number_of_a_runtime_says_where_it_comes_from():
    for effects in _every().values():
        numbers = [effects.cache_moves, effects.repeat_moves, effects.first_run]
        for overheads in effects.overheads.values():
            numbers += [overheads.kernel_s, overheads.host_s, overheads.step_s, overheads.reserve_bytes]
        assert all(number.source and number.date for number in numbers if number is not None), effects.name


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


def test_the_default_runtime_is_one_that_fits_the_device():
    assert default_runtime(device("nvidia-h200")) == "torch-compile"
    assert default_runtime(device("raspberry-pi-5"), LLAMA_3_1_8B) == "llamacpp"
    assert all(default_runtime(row) in PROMISED for row in devices().values())


def test_power_and_storage_are_known_for_some_machines_and_unknown_for_others():
    shares = power_prior("gpu")
    assert 0 < shares.idle_share.value < shares.moving_share.value < shares.computing_share.value <= 1
    assert power_prior("npu") is None
    assert storage_prior("server").high_bytes_per_s.value > storage_prior("board").high_bytes_per_s.value
    assert storage_prior("toaster") is None
