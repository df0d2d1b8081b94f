"""What each engine can be asked, and what it is told: in the place of its library stands one that keeps every word."""

import ctypes
from pathlib import Path
from types import SimpleNamespace

import pytest

from inferometer.core.errors import EngineError
from inferometer.core.plugins import load_all
from inferometer.engines.base import Capabilities, Request, Target
from inferometer.engines.ctranslate2.session import CTranslate2Session
from inferometer.engines.executorch import session as executorch
from inferometer.engines.llamacpp import direct
from inferometer.engines.llamacpp.library import CACHE_TYPES, ContextFields, LlamaOptions, ModelFields
from inferometer.engines.torch import provenance
from inferometer.engines.torch.trace import _short

RUNTIMES = load_all("inferometer.runtimes")[0]


def can(name):
    known, plain = RUNTIMES[name].capabilities, Capabilities()
    return {key: getattr(known, key) for key in plain.__slots__ if getattr(known, key) != getattr(plain, key)}


SMALL, BOTH = ("f32", "f16"), ("cpu", "gpu")
TEXT = {"arrays": False, "text": True, "logits": True}
TORCH = {"text": True, "logits": True, "bare": True, "precision": ("f64", "f32", "bf16", "f16"), "units": BOTH}
CAN = {
    "ctranslate2": {**TEXT, "per_op": False, "precision": (*SMALL, "bf16"), "units": BOTH},
    "executorch": {}, "litert": {}, "llamacpp": {**TEXT, "perturbs": True, "units": BOTH}, "mnn": {"precision": SMALL},
    "ncnn": {"batches": False, "perturbs": True, "precision": SMALL},
    "onnxruntime": {"text": True, "logits": True, "optimisation": ("none", "basic", "extended", "all"),
                    "units": ("cpu", "gpu", "npu")},
    "onnxruntime-genai": TEXT, "openvino": {"precision": (*SMALL, "bf16"), "units": ("cpu", "gpu", "npu")},
    "openvino-genai": {**TEXT, "precision": (*SMALL, "bf16"), "units": BOTH}, "torch-compile": TORCH,
    "torch-eager": TORCH, "torch-graph": {**TORCH, "units": ("gpu",)},
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(CAN))
def test_an_engine_can_what_it_says_and_no_more(name):
    assert can(name) == CAN[name], "beyond what every engine can"


# llama.cpp.

FIELDS = ContextFields(threads=20, flash=60, callback=80, type_k=96)


class Parameters:
    def __init__(self):
        self.held = {}

    def put(self, at, value, size=4):
        self.held[at] = (value, size)


def library(**more):
    calls = []

    def told(name, answer):
        return lambda *given: calls.append((name, given)) or answer

    values = {
        "llama_model_default_params": Parameters, "llama_context_default_params": Parameters, "context": FIELDS,
        "model": ModelFields(), "lines": [], "label": "llama", "calls": calls,
        "llama_model_has_encoder": lambda _: False,
        "llama_model_load_from_file": told("load", 77), "llama_init_from_model": told("init", 88),
        "llama_model_free": told("free model", None), "llama_free": told("free", None),
        "llama_set_n_threads": told("threads", None), "llama_model_n_ctx_train": lambda _: 1024,
        "llama_n_ctx": lambda _: 600, "llama_n_seq_max": lambda _: 2, "llama_n_threads": lambda _: 3,
    }  # fmt: skip
    return SimpleNamespace(**{**values, **more})


def plan(options=None, watch=None, **target):
    asked = Target(**{"path": Path("m.gguf"), "format": "gguf", "batch": 2, "context": 300, **target})
    devices = (ctypes.c_void_p * 1)(None)
    return SimpleNamespace(
        target=asked, threads=3, options=options or LlamaOptions(), layers=9, devices=devices, watch=watch
    )


def test_a_model_is_loaded_with_its_layers_and_the_whole_address_of_its_devices():
    told, asked = library(), plan()
    assert direct._load(told, asked) == 77
    ((_, (path, parameters)),) = told.calls
    assert path == b"m.gguf"
    assert parameters.held == {16: (9, 4), 0: (ctypes.addressof(asked.devices), 8)}
    with pytest.raises(EngineError, match="has an encoder"):
        direct._load(library(llama_model_has_encoder=lambda _: True), asked)


def test_a_context_has_room_for_every_sequence_and_the_types_that_were_asked_for():
    options = LlamaOptions(type_k="q8_0", type_v="bf16", flash=1, batch=64, ubatch=32)
    held = direct._parameters(library(), plan(options), 300).held
    assert {at: value for at, (value, _) in held.items()} == {
        0: 600, 4: 64, 8: 32, 12: 2, 20: 3, 24: 3, 60: 1, 96: CACHE_TYPES["q8_0"], 100: CACHE_TYPES["bf16"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "refused"),
    [({}, None), ({"flash": 1}, "flash_attention"), ({"type_k": "q8_0"}, "type_k"), ({"type_v": "q8_0"}, "type_v"),
     ({"flash": -1, "type_k": "f16", "type_v": "f16"}, None)],
)  # fmt: skip
def test_what_cannot_be_set_is_refused_unless_it_is_the_default(options, refused):
    hidden = ContextFields(threads=20, flash=None, callback=None, type_k=None)
    told, asked = library(context=hidden), plan(LlamaOptions(**options))
    if refused is None:
        assert 96 not in direct._parameters(told, asked, 300).held
        return
    with pytest.raises(EngineError, match=f"where its {refused} is set"):
        direct._parameters(told, asked, 300)


@pytest.mark.parametrize(
    ("given", "held"),
    [({}, 300), ({"llama_n_ctx": lambda _: 598}, None), ({"llama_n_threads": lambda _: 2}, None),
     ({"llama_n_seq_max": lambda _: 1}, None), ({"llama_init_from_model": lambda *_: 0}, None)],
)  # fmt: skip
def test_a_context_that_is_less_than_asked_for_is_given_back(given, held):
    told = library(**given)
    if held is not None:
        assert direct._context(told, plan(), 77) == (88, held)
        assert ("threads", (88, 3, 3)) in told.calls
        return
    with pytest.raises(EngineError):
        direct._context(told, plan(), 77)
    assert (("free", (88,)) in told.calls) == ("llama_init_from_model" not in given)


def test_without_a_wish_a_context_is_as_long_as_the_model_was_trained_for():
    told = library(llama_model_n_ctx_train=lambda _: 128, llama_n_ctx=lambda _: 4096)
    assert direct._context(told, plan(context=None), 77)[1] == 128


# CTranslate2.


def test_ctranslate2_takes_the_best_token_and_goes_on_after_the_end_where_the_length_counts():
    asked = []

    def generate_batch(prompts, callback, **more):
        asked.append((prompts, more))
        for step, token in ((0, 5), (0, 9), (1, 6)):
            callback(SimpleNamespace(step=step, token_id=token))

    made = object.__new__(CTranslate2Session)
    made._words = ["a", "b", "c", "d"]
    made._generator = SimpleNamespace(generate_batch=generate_batch)
    made._target = Target(path=Path("m"), format="ctranslate2", batch=2)
    made._folder = Path("m")
    steps = made._generated((1, 2), 4, Request(prompt=(1, 2), generate=4))
    assert [token for token, *_ in steps] == [5, 6], "those of the first sequence"
    made._generated((1,), 4, Request(prompt=(1,), generate=4, depth=3, ignore_end=False))
    shared = {"max_length": 4, "sampling_topk": 1, "beam_size": 1, "include_prompt_in_result": False}
    assert asked == [([["b", "c"]] * 2, {**shared, "end_token": []}),
                     ([["b"]] * 2, {**shared, "static_prompt": ["b", "a", "d"]})]  # fmt: skip
    made.close()
    with pytest.raises(EngineError, match="closed"):
        made._generated((1,), 4, Request(prompt=(1,), generate=4))


# ExecuTorch and PyTorch.


def test_executorchs_reason_is_among_the_lines_that_it_prints():
    printed = (
        "[cpuinfo.cc:1] cpuinfo failed\n[a.cpp:5] Missing operator: x.\n\n[b.cpp:7] threadpool grew\nplain words\n"
    )
    error = executorch._refused(Target(path=Path("m.pte"), format="pte"), "Error 20", printed)
    assert error.message == "ExecuTorch refused 'm.pte': Error 20 Missing operator: x. plain words."
    assert executorch._refused(Target(path=Path("m"), format="pte"), "", "").message.endswith(": it gave no reason.")


def test_the_method_is_forward_or_the_only_one():
    def chosen(*names):
        program = SimpleNamespace(num_methods=lambda: len(names), get_method_name=lambda number: names[number])
        return executorch._chosen(program, Target(path=Path("m.pte"), format="pte"))

    assert chosen("other") == "other"
    assert chosen("a", "forward") == "forward"
    with pytest.raises(EngineError, match="has the methods a, b, and none"):
        chosen("a", "b")


def test_calls_of_the_compiler_are_named_as_the_profiler_shows_them():
    assert [provenance.call_name(name) for name in (
        "extern_kernels.mm:2", "torch.ops.aten.bmm.default", "torch.ops.mine.op", "triton_poi_fused:7",
        "cpp_fused")] == [
        "aten::mm", "aten::bmm", "mine::op", "triton_poi_fused", "cpp_fused",
    ]  # fmt: skip
    assert provenance.behind("aten::mm", ["mm_default_1", "add", "mm"]) == ["mm_default_1", "mm"]
    assert provenance.behind("aten::bmm", ["add"]) == provenance.behind("triton", ["add"]) == ["add"]
    modules = {"a": "one", "b": "two", "c": "two"}
    assert provenance._call("triton:3", ["a", "b", "c", "d"], modules) == ("triton", ("two", "one"))


def test_modules_and_settings_are_found_by_their_paths(tmp_path):
    names = frozenset({"model.layers.0", "layers.0"})
    assert provenance.module_path("L['self']._modules['model'].layers.0", names) == "model.layers.0"
    assert provenance.module_path("L['self'].other[3]", names) is None
    config = SimpleNamespace(trace=SimpleNamespace(level=0), plain=None)
    assert [provenance._has(config, key) for key in ("trace.level", "trace.none", "nothing.level", "plain")] == [
        True, False, False, False,
    ]  # fmt: skip
    stack = {"x": ("model", "A"), "y": ("L['self'].layers.0", "B")}
    assert provenance._deepest(SimpleNamespace(meta={"nn_module_stack": stack}), names) == "layers.0"
    assert provenance._deepest(SimpleNamespace(meta={}), names) is None
    assert (
        provenance._key("code", names) != provenance._key("code", frozenset()) != provenance._key("other", frozenset())
    )
    path = tmp_path / "new" / "calls.json"
    provenance._write(path, [("mm", ("a", "b"))])
    assert provenance._read(path) == [("mm", ("a", "b"))]
    assert [each.name for each in path.parent.iterdir()] == ["calls.json"]
    path.write_text("[1]")
    assert provenance._read(path) == provenance._read(tmp_path / "absent") == []


@pytest.mark.parametrize(
    ("name", "short"),
    [("void at::native::elementwise_kernel<int, float>(int)", "elementwise_kernel"),
     ("ampere_sgemm_128", "ampere_sgemm_128"),
     ("<lambda>::x", "<lambda>::x"), ("Memcpy DtoH (Device -> Pageable)", "Memcpy DtoH"),
     ("<" + "y" * 99, "<" + "y" * 79)],
)  # fmt: skip
def test_a_kernel_is_called_by_its_function(name, short):
    assert _short(name) == short
