import pytest

from inferometer.core.errors import DomainError, EngineError
from inferometer.engines.llamacpp.library import choose_devices, placed_by_log

CPU, FIRST, SECOND = ("CPU", 0, 10), ("CUDA0", 1, 11), ("CUDA1", 1, 12)


def test_the_cpu_alone_is_an_empty_list_of_devices():
    unit, devices, layers = choose_devices("cpu", None, [CPU, FIRST])
    assert (unit, list(devices), layers) == ("cpu", [None], 0)


def test_without_a_wish_an_accelerator_is_used_where_there_is_one():
    assert choose_devices(None, None, [CPU])[0] == "cpu"
    unit, devices, layers = choose_devices(None, None, [CPU, FIRST, SECOND])
    assert (unit, list(devices), layers) == ("gpu", [11, 12, None], 999)


def test_one_of_several_can_be_chosen():
    assert list(choose_devices("gpu:1", 5, [CPU, FIRST, SECOND])[1]) == [12, None]


@pytest.mark.parametrize("unit", ["tpu", "gpu:x", "npu"])
def test_an_unknown_unit_is_refused_with_those_there_are(unit):
    with pytest.raises(EngineError, match=r"cpu, gpu:0 \(CUDA0\)"):
        choose_devices(unit, None, [CPU, FIRST])


@pytest.mark.parametrize("unit", ["gpu", "gpu:1"])
def test_a_gpu_that_is_not_there_is_refused(unit):
    with pytest.raises(EngineError, match="There are: cpu"):
        choose_devices(unit, None, [CPU] if unit == "gpu" else [CPU, FIRST])


def test_layers_on_a_gpu_and_the_cpu_alone_contradict_each_other():
    with pytest.raises(DomainError, match="7 layers"):
        choose_devices("cpu", 7, [CPU])


def test_the_log_says_where_the_layers_are():
    lines = ["load_tensors: offloading 20 repeating layers to GPU", "load_tensors: offloaded 20/31 layers to GPU"]
    assert placed_by_log(lines, 31, "gpu") == ({"gpu": 20, "cpu": 11}, ("11 of 31 layers run on the CPU.",))
    assert placed_by_log(lines[:0], 31, "cpu") == ({"cpu": 31}, ())
    assert placed_by_log(["offloaded 31/31 layers to GPU"], 31, "gpu:0") == ({"gpu": 31}, ())
