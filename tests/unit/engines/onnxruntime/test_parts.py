"""Providers, ports, messages, decoders and threads: what needs no engine."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from inferometer.core.errors import DomainError, EngineError, FormatError, MissingDependencyError, UnknownNameError
from inferometer.engines.base import Port, Target
from inferometer.engines.feeding import end_tokens, load_tokeniser, require_fitting
from inferometer.engines.host import default_threads, threads_of
from inferometer.engines.onnxruntime.loading import (
    CPU,
    choose_providers,
    engine_words,
    fault_of,
    placement_notes,
    to_port,
    unit_of,
)
from inferometer.engines.onnxruntime.session import DecoderSession, decoder_of, empty_shape, feeds

CUDA = "CUDAExecutionProvider"
HERE = ["AzureExecutionProvider", CPU]
GPU = ["TensorrtExecutionProvider", CUDA, CPU]


def target(**more):
    return Target(path=Path("m.onnx"), format="onnx", **more)


def test_the_cpu_is_the_default_and_the_last_resort():
    assert choose_providers(target(), GPU) == [(CPU, {})]
    assert choose_providers(target(unit="gpu"), GPU) == [(CUDA, {}), (CPU, {})]


def test_the_second_gpu_is_asked_for_by_number():
    assert choose_providers(target(unit="gpu:1"), GPU) == [(CUDA, {"device_id": "1"}), (CPU, {})]


def test_providers_are_named_in_full_or_short():
    assert choose_providers(target(providers=("tensorrt",)), GPU)[0][0] == "TensorrtExecutionProvider"
    assert choose_providers(target(providers=(CPU,)), HERE) == [(CPU, {})]


def test_a_unit_without_a_provider_says_which_there_are():
    with pytest.raises(EngineError, match="CPUExecutionProvider"):
        choose_providers(target(unit="gpu"), HERE)


def test_a_provider_that_is_not_here_says_which_are():
    with pytest.raises(UnknownNameError, match=CPU):
        choose_providers(target(providers=("CUDAExecutionProvider",)), HERE)


def test_a_unit_of_no_known_kind_and_one_without_a_number_are_refused():
    with pytest.raises(UnknownNameError, match="cpu"):
        choose_providers(target(unit="tpu"), HERE)
    with pytest.raises(DomainError, match="gpu:1"):
        choose_providers(target(unit="gpu:x"), GPU)
    with pytest.raises(DomainError, match="one cpu"):
        choose_providers(target(unit="cpu:1"), GPU)


def test_a_fallback_is_said_in_words():
    assert placement_notes([CUDA, CPU], [CPU], {CPU: 9}) == (f"{CUDA} was asked for, and the engine dropped it.",)
    (note,) = placement_notes([CUDA, CPU], [CUDA, CPU], {CUDA: 7, CPU: 2})
    assert "7" in note
    assert f"2 on {CPU}" in note
    assert placement_notes([CPU], [CPU], {CPU: 9}) == ()


def test_a_provider_runs_on_a_kind_of_unit():
    assert [unit_of(name) for name in (CPU, CUDA, "TensorrtExecutionProvider", "QNNExecutionProvider", "New")] == [
        "cpu", "gpu", "gpu", "npu", "cpu",
    ]  # fmt: skip


def test_ports_are_read_from_the_engines_words():
    entry = SimpleNamespace(name="x", type="tensor(float)", shape=["batch", 3, None, "?"])
    assert to_port(entry) == Port(name="x", dtype="float32", shape=("batch", 3, None, "?"))
    with pytest.raises(EngineError, match="seq"):
        to_port(SimpleNamespace(name="x", type="seq(tensor(float))", shape=[]))


PORTS = (Port(name="a", dtype="float32", shape=("n", 3)), Port(name="b", dtype="int64", shape=("n",)))


def test_inputs_that_fit_pass():
    require_fitting(PORTS, {"a": np.zeros((2, 3), np.float32), "b": np.zeros(2, np.int64)})


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"a": np.zeros((2, 3), np.float32)}, ["'b' missing"]),
        ({"a": np.zeros((2, 3), np.float32), "b": np.zeros(2, np.int64), "c": np.zeros(1)}, ["'c' not among"]),
        ({"a": np.zeros((2, 3)), "b": np.zeros(2, np.int64)}, ["'a'", "float32 [n, 3]", "float64 [2, 3]"]),
        ({"a": np.zeros((2, 4), np.float32), "b": np.zeros(2, np.int64)}, ["'a'", "[2, 4]"]),
        ({"a": np.zeros((2, 3), np.float32), "b": np.zeros(5, np.int64)}, ["'b'", "n is 2 in another input"]),
    ],
)
def test_inputs_that_do_not_fit_are_named_with_both_shapes(inputs, words):
    with pytest.raises(DomainError) as caught:
        require_fitting(PORTS, inputs)
    assert all(word in str(caught.value) for word in words)


# as ONNX Runtime 1.31.1 says it
NO_KERNEL = (
    "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for Conv(22) node with name 'cv'"
)
NO_OP = (
    "[ONNXRuntimeError] : 1 : FAIL : Load model from /tmp/frob.onnx failed:Fatal error: my.ops:Frob(-1) is not a "
    "registered function/op"
)
IN_STEP = (
    "Error in execution: Non-zero status code returned while running If node. Name:'If_0' Status Message: Non-zero "
    "status code returned while running LSTM node. Name:'rnn/LSTM' Status Message: Input X must have 3 dimensions only."
)
IR = (
    "[ONNXRuntimeError] : 1 : FAIL : Load model from /tmp/ir14.onnx failed:/onnxruntime_src/onnxruntime/core/graph/"
    "model.cc:256 onnxruntime::Model::Model(onnx::ModelProto&&) Unsupported model IR version: 14, max supported IR "
    "version: 13\n"
)


def test_the_op_is_named_where_the_message_names_one():
    for words, about in (
        (NO_KERNEL, " at Conv (node 'cv'):"),
        (NO_OP, " at my.ops:Frob:"),
        (IN_STEP, " at LSTM (node 'rnn/LSTM'):"),
        (IR, ":"),
    ):
        assert f"ONNX Runtime refused 'm.onnx'{about}" in str(fault_of(Path("m.onnx"), "refused", Exception(words)))


def test_the_engines_own_files_are_left_out_of_its_words():
    assert engine_words(Exception(IR)) == "Unsupported model IR version: 14, max supported IR version: 13"
    assert engine_words(ValueError("")) == "ValueError"


def test_a_refusal_names_the_file_the_op_and_a_remedy():
    error = fault_of(Path("net.onnx"), "refused", Exception(NO_KERNEL))
    assert isinstance(error, EngineError)
    assert "net.onnx" in error.message
    assert "Conv (node 'cv')" in error.message
    assert "upgrade onnxruntime" in error.remedy


def test_no_memory_is_no_refusal():
    assert isinstance(fault_of(Path("m"), "failed", Exception("Failed to allocate memory for buffer")), MemoryError)


IDS = Port(name="input_ids", dtype="int64", shape=("batch", "query"))
PAST = [
    Port(name=f"past_key_values.0.{part}", dtype="float32", shape=("batch", 2, "context", 8))
    for part in ("key", "value")
]
PRESENT = [Port(name=f"present.0.{part}", dtype="float32", shape=("batch", 2, "all", 8)) for part in ("key", "value")]
LOGITS = Port(name="logits", dtype="float32", shape=("batch", "query", 50))


def test_a_decoder_is_known_by_its_ports():
    found = decoder_of([IDS, *PAST], [LOGITS, *PRESENT], name="m")
    assert [(port.name, name) for port, name in found.cache] == [
        ("past_key_values.0.key", "present.0.key"), ("past_key_values.0.value", "present.0.value"),
    ]  # fmt: skip
    assert (found.vocabulary, found.last_only, dict(found.beside)) == (50, False, {})


def test_a_decoder_with_a_mask_and_positions_gets_them():
    beside = [
        Port(name="attention_mask", dtype="int64", shape=("batch", "all")),
        Port(name="position_ids", dtype="int64", shape=("batch", "query")),
        Port(name="use_cache_branch", dtype="bool", shape=(1,)),
    ]
    found = decoder_of([IDS, *beside, *PAST], [LOGITS, *PRESENT], name="m")
    given = feeds(found, (7, 8), 3, 2)
    assert given["input_ids"].tolist() == [[7, 8], [7, 8]]
    assert given["attention_mask"].tolist() == [[1] * 5] * 2
    assert given["position_ids"].tolist() == [[3, 4]] * 2
    assert given["use_cache_branch"].tolist() == [True]
    assert {name: array.dtype.name for name, array in given.items()} == {
        "input_ids": "int64", "attention_mask": "int64", "position_ids": "int64", "use_cache_branch": "bool",
    }  # fmt: skip


def test_an_empty_cache_has_no_tokens_and_the_batch_asked_for():
    assert empty_shape(PAST[0], 3) == (3, 2, 0, 8)


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [([IDS], [LOGITS]), ([IDS, *PAST], [LOGITS]), (PAST, [LOGITS, *PRESENT]), ([IDS, *PAST], PRESENT),
     ([IDS, *PAST, Port(name="pixels", dtype="float32", shape=(1,))], [LOGITS, *PRESENT])],
)  # fmt: skip
def test_what_is_no_decoder_says_what_it_has_and_what_it_needs(inputs, outputs):
    with pytest.raises(FormatError, match=r"net\.onnx") as caught:
        decoder_of(inputs, outputs, name="net.onnx")
    assert "past_key_values.N.key" in str(caught.value)


def test_threads_are_the_physical_cores_that_may_be_used():
    assert default_threads(8, 4) == 4
    assert default_threads(4, 8) == 4
    assert default_threads(None, None) == 1
    assert threads_of(3) == 3
    with pytest.raises(DomainError, match="threads"):
        threads_of(0)


def test_a_model_without_a_tokeniser_says_so(tmp_path):
    with pytest.raises(DomainError, match=r"tokenizer\.json"):
        load_tokeniser(tmp_path / "m.onnx")


def test_a_tokeniser_that_cannot_be_read_says_why(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises((DomainError, MissingDependencyError), match="tokeniser"):
        load_tokeniser(tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("text", "ends"),
    [('{"eos_token_id": 2}', {2}), ('{"eos_token_id": [2, 3]}', {2, 3}), ("{}", set()), ("[", set()), ("[]", set())],
)
def test_tokens_that_end_a_text_are_read_from_the_config_beside_it(tmp_path, text, ends):
    (tmp_path / "config.json").write_text(text)
    assert end_tokens(tmp_path / "m.onnx") == ends


@pytest.mark.parametrize(
    ("recorder", "provider", "idle_s"),
    [
        (SimpleNamespace(timers=SimpleNamespace(step_s=4.0)), "CPUExecutionProvider", 4.0),
        (SimpleNamespace(timers=SimpleNamespace(step_s=4.0)), "CUDAExecutionProvider", None),  # beside each other
        (None, "CPUExecutionProvider", None),
    ],
)
def test_what_a_decoders_step_idles_is_known_where_its_kernels_follow_each_other(recorder, provider, idle_s):
    session = SimpleNamespace(_recorder=recorder, _plan=SimpleNamespace(providers=[(provider, {})]))
    assert DecoderSession.idle_per_step_s.fget(session) == idle_s
