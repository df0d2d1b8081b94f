"""Places, precisions and errors, with stand-ins for the engine."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from inferometer.core.errors import EngineError
from inferometer.engines.base import Target
from inferometer.engines.torch import compiled, eager
from inferometer.engines.torch.engine import (
    PRECISIONS,
    Threads,
    TorchDevice,
    choose_device,
    choose_precision,
    refused,
)
from inferometer.engines.torch.provenance import call_name, module_path

CPU, GPU = TorchDevice(unit="cpu", device="cpu"), TorchDevice(unit="gpu", device="cuda:0")


def engine(cards):
    return SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: cards > 0, device_count=lambda: cards))


def target(**changes):
    return Target(path=Path("m"), format="config", **changes)


@pytest.mark.parametrize(
    ("cards", "asked", "expected"),
    [
        (0, {}, CPU),
        (1, {}, GPU),
        (1, {"unit": "cpu"}, CPU),
        (1, {"unit": "gpu"}, GPU),
        (2, {"unit": "gpu:1"}, TorchDevice(unit="gpu:1", device="cuda:1")),
        (1, {"providers": ("cuda",)}, GPU),
        (1, {"unit": "gpu", "providers": ("cpu",)}, CPU),
        (0, {"providers": ("cuda:0", "cpu")}, CPU),
    ],
)
def test_a_place_is_the_one_asked_for(cards, asked, expected):
    assert choose_device(target(**asked), engine(cards)) == expected


@pytest.mark.parametrize("asked", [{"unit": "gpu:3"}, {"unit": "npu"}, {"providers": ("xpu",)}])
def test_a_place_that_is_not_there_is_refused_with_those_that_are(asked):
    with pytest.raises(EngineError, match=r"here it has cpu \(cpu\), gpu \(cuda:0\)"):
        choose_device(target(**asked), engine(1))


@pytest.mark.parametrize(
    ("place", "asked", "config", "expected"),
    [
        (CPU, None, "torch.bfloat16", "f32"),
        (GPU, None, "torch.bfloat16", "bf16"),
        (GPU, None, "float32", "f32"),
        (GPU, None, None, "bf16"),
        (CPU, "bf16", None, "bf16"),
    ],
)
def test_the_precision_is_the_one_asked_for_or_the_places_own(place, asked, config, expected):
    assert choose_precision(target(precision=asked), place, config) == expected


def test_the_precisions_it_declares_are_those_it_has():
    assert eager.capabilities.precision == compiled.capabilities.precision == tuple(PRECISIONS)


class OutOfMemoryError(RuntimeError):
    pass


def test_out_of_memory_says_how_much_was_asked_for_and_free():
    said = OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 128.00 GiB. GPU 0 has a total capacity of 139.80 GiB"
    )
    error = refused(said, "building LlamaForCausalLM", free=(int(99e9), int(150e9)))
    assert "asked for 128.00 GiB. 99.00 GB of 150.00 GB were free." in error.message


def test_out_of_memory_on_the_host_is_recognised():
    said = RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes.")
    assert "ran out of memory while loading: it asked for 4096 bytes" in refused(said, "loading", free=None).message


def test_an_op_that_is_not_there_is_named():
    said = NotImplementedError("Could not run 'aten::_fancy' with arguments from the 'CUDA' backend.\nlong text")
    error = refused(said, "running a step", free=None)
    assert "(op aten::_fancy)" in error.message
    assert "long text" not in error.message


class Counter:
    """An engine with a number of threads."""

    def __init__(self, threads):
        self.threads = threads

    def get_num_threads(self):
        return self.threads

    def set_num_threads(self, count):
        self.threads = count


def test_the_last_session_restores_the_threads_that_the_first_found():
    torch = Counter(7)
    first = Threads(torch, 1)
    second = Threads(torch, 3)
    first.hold()
    assert torch.threads == 1
    first.close()
    second.hold()
    assert torch.threads == 3
    second.close()
    second.close()
    assert torch.threads == 7


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("L['self'].model.layers.0.mlp", "model.layers.0.mlp"),
        ("L['self']._modules['model']._modules['layers']._modules['0']", "model.layers.0"),
        ("G['m'].model.layers[0]", "model.layers.0"),
        ("L['self']", None),
        ("L['self'].unknown", None),
    ],
)
def test_a_module_is_found_in_the_compilers_words(said, expected):
    names = frozenset({"model", "model.layers.0", "model.layers.0.mlp"})
    assert module_path(said, names) == expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("extern_kernels.mm:2", "aten::mm"),
        ("torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default:8",
         "aten::_scaled_dot_product_flash_attention_for_cpu"),
        ("triton_poi_fused_add_0:11", "triton_poi_fused_add_0"),
        ("cpp_fused_mul_3", "cpp_fused_mul_3"),
    ],
)  # fmt: skip
def test_a_call_has_the_name_that_the_profiler_shows(said, expected):
    assert call_name(said) == expected
