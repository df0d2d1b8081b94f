"""Rules of the engines that need no engine: where things run, what stands for what, and what is refused."""

import json
from itertools import combinations, product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from inferometer.core.engine import EngineDescriptor
from inferometer.core.errors import DomainError, EngineError, FormatError, MissingDependencyError, UnknownNameError
from inferometer.engines import base, onnx_nodes
from inferometer.engines.base import (
    Capabilities,
    Engine,
    FileNode,
    Kernel,
    Missing,
    Port,
    Ready,
    Request,
    Target,
    longest_pairing,
)
from inferometer.engines.ctranslate2 import session as ctranslate2
from inferometer.engines.executorch.session import RanKernel
from inferometer.engines.executorch.session import layers_of as executorch_layers
from inferometer.engines.feeding import end_tokens, require_arrays_on_cpu, require_fitting, require_request
from inferometer.engines.litert.mapping import (
    DELEGATE_INTERNAL,
    OPERATOR,
    Operator,
    ProfilerEvent,
    RanOperator,
    StepEvents,
    kernel_events,
    layers_of_kernels,
)
from inferometer.engines.litert.session import (
    FileTensor,
    check_inputs,
    concrete,
    operators_of,
    partitions_of,
    placed,
    tensors_of,
)
from inferometer.engines.llamacpp.library import choose_devices
from inferometer.engines.llamacpp.session import read_chunk
from inferometer.engines.onnx_nodes import name_nodes, open_sizes, require_sizes, topology_of
from inferometer.engines.onnxruntime.fusion import Fusion, constant_nodes, map_fusion, with_served
from inferometer.engines.onnxruntime.loading import CPU, choose_providers, placement_notes, to_port, wrongly_declared
from inferometer.engines.onnxruntime.recorder import NodeTable, NodeTime, _quiet, kernels_from_table, timers_from
from inferometer.engines.onnxruntime.session import _parts, decoder_of
from inferometer.engines.onnxruntime_genai.session import config_of, folder_of
from inferometer.engines.openvino.adopt import ends_made_up, known_names, listed_layers, own_names
from inferometer.engines.openvino.devices import choose_device, placement_note, precision_hint, unit_of
from inferometer.engines.openvino.executed import (
    CounterReading,
    Executed,
    NameFlow,
    RunningMeans,
    mean_between,
    needed,
    running,
)
from inferometer.engines.openvino.recorded import executed_seconds
from inferometer.engines.torch.host import modules_renamed
from inferometer.formats.onnx.messages import ELEMENTS, element_bytes
from unit.engines.onnxruntime.test_fusion import graph, node

CUDA, AZURE = "CUDAExecutionProvider", "AzureExecutionProvider"


def target(**more):
    return Target(**{"path": Path("m"), "format": "onnx", **more})


# What every engine is asked.


def engine(monkeypatch, *, module=True, versions=None, lacks=None):
    effects = SimpleNamespace(name="e", title="E")
    descriptor = EngineDescriptor(effects=effects, packages=("e-gpu", "e"), module="e", extra="e", opens=("onnx",))
    monkeypatch.setattr(base, "find_spec", lambda name: "spec" if module and name == "e" else None)

    def version(name):
        if name not in (versions or {}):
            raise base.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(base, "version", version)
    return Engine(engine=descriptor, opener="x", **({} if lacks is None else {"lacks": lacks}))


def test_a_package_is_ready_under_any_of_its_names(monkeypatch):
    assert engine(monkeypatch, versions={"e": "2"}).probe() == Ready(version="2")
    assert engine(monkeypatch, versions={"e": "2", "e-gpu": "1"}).probe() == Ready(version="1")
    assert engine(monkeypatch, module=False, versions={"e": "2"}).probe() == Missing(
        reason="e-gpu is not installed", remedy="pip install 'inferometer[e]'"
    )
    assert engine(monkeypatch).probe().reason == "a module e is here, but not from the package e-gpu"
    old = Missing(reason="too old", remedy="r")
    asked = engine(monkeypatch, versions={"e": "2"}, lacks=lambda version: old if version == "2" else None)
    assert asked.probe() == old
    with pytest.raises(MissingDependencyError, match="E cannot be used: too old"):
        asked.open(target())
    ready = engine(monkeypatch, versions={"e": "2"})
    with pytest.raises(FormatError, match="a gguf model; it opens onnx"):
        ready.open(target(format="gguf"))


@pytest.mark.parametrize(
    ("asked", "known", "error"),
    [({"precision": "f16"}, ("f32", "f16"), None), ({"precision": "f8"}, ("f32",), UnknownNameError),
     ({"precision": "f16"}, (), DomainError), ({}, (), None), ({"optimisation": "all"}, (), DomainError)],
)  # fmt: skip
def test_what_cannot_be_chosen_is_refused(asked, known, error):
    runtime = SimpleNamespace(title="E", capabilities=Capabilities(precision=known))
    if error is None:
        base.require_choices(runtime, target(**asked))
        return
    with pytest.raises(error):
        base.require_choices(runtime, target(**asked))


@pytest.mark.parametrize(
    ("request_", "room", "words"),
    [
        (Request(prompt=(0, 9), generate=3, depth=5), 10, None),
        (Request(prompt=(0, 9), generate=3, depth=5), 9, "10 tokens"),
        (Request(prompt=(0, 9), generate=0), None, None), (Request(prompt=(), generate=1), None, "empty"),
        (Request(prompt=(10,), generate=1), None, "0 to 9"), (Request(prompt=(-1,), generate=1), None, "token -1"),
        (Request(prompt=(1,), generate=-1), None, "negative"),
        (Request(prompt=(1,), generate=1, depth=-1), None, "negative"),
    ],
)  # fmt: skip
def test_a_request_fits_the_vocabulary_and_the_cache(request_, room, words):
    if words is None:
        require_request(request_, vocabulary=10, room=room)
        return
    with pytest.raises(DomainError, match=words):
        require_request(request_, vocabulary=10, room=room)


def test_an_engine_of_arrays_on_the_cpu_refuses_the_rest():
    def refused(error, **more):
        with pytest.raises(error):
            require_arrays_on_cpu(target(**more), "e", "E", listing="none")

    for unit in (None, "cpu", "cpu:0"):
        require_arrays_on_cpu(target(unit=unit), "e", "E", listing="none")
    refused(EngineError, unit="cpu:1")
    refused(EngineError, unit="gpu")
    refused(DomainError, text=True)
    refused(UnknownNameError, options={"a": "b"})
    refused(UnknownNameError, providers=("p",))


def test_open_sizes_without_a_name_are_free_and_ranks_are_not():
    ports = (Port(name="a", dtype="float32", shape=("?", None)), Port(name="b", dtype="float32", shape=("?",)))
    require_fitting(ports, {"a": np.zeros((2, 5), np.float32), "b": np.zeros(7, np.float32)})
    with pytest.raises(DomainError, match="'a' must be"):
        require_fitting(ports, {"a": np.zeros(2, np.float32), "b": np.zeros(7, np.float32)})


@pytest.mark.parametrize(("rows", "fits"), [(2, True), (3, False)])
def test_one_name_of_two_open_sizes_means_that_they_are_equal(rows, fits):
    ports = (Port(name="a", dtype="float32", shape=("n", 5)), Port(name="b", dtype="float32", shape=("n",)))
    given = {"a": np.zeros((2, 5), np.float32), "b": np.zeros(rows, np.float32)}
    if fits:
        require_fitting(ports, given)
        return
    with pytest.raises(DomainError, match=r"'b' must be float32 \[n\], and is float32 \[3\]: n is 2 in another input"):
        require_fitting(ports, given)


def test_the_tokens_that_end_a_text_are_the_generations_before_the_models(tmp_path):
    model = tmp_path / "m.onnx"

    def written(**configs):
        for name in ("generation_config", "config"):
            path = tmp_path / f"{name}.json"
            path.write_text(configs[name]) if name in configs else path.unlink(missing_ok=True)
        return end_tokens(model)

    assert written() == frozenset()
    assert written(config='{"eos_token_id": 3}') == {3}
    assert written(config='{"eos_token_id": 3}', generation_config='{"eos_token_id": [4, 5, null]}') == {4, 5}
    assert written(config='{"eos_token_id": 3}', generation_config="{}") == {3}
    assert written(config='{"eos_token_id": 3}', generation_config="[1]") == {3}
    assert written(config='{"eos_token_id": 3}', generation_config="{") == {3}


def test_the_longest_pairing_keeps_both_orders_and_none_is_longer():
    """All lists of up to four of two letters: of random ones few show a pair that is counted twice."""
    lists = [letters for size in range(5) for letters in product("ab", repeat=size)]
    for left, right in product(lists, repeat=2):
        pairs = longest_pairing(list(enumerate(left)), list(enumerate(right)), lambda a, b: a[1] == b[1])
        assert all(a[1] == b[1] for a, b in pairs)
        for side in range(2):
            places = [pair[side][0] for pair in pairs]
            assert places == sorted(set(places))
        common = (
            size
            for size in range(min(len(left), len(right)), -1, -1)
            if not set(combinations(left, size)).isdisjoint(combinations(right, size))
        )
        assert len(pairs) == next(common), (left, right)


def test_a_pairing_takes_the_first_that_fits():
    assert longest_pairing("ab", "aab", lambda a, b: a == b) == [("a", "a"), ("b", "b")]
    rows = longest_pairing([1], [(1, "x"), (1, "y")], lambda a, b: a == b[0])
    assert rows == [(1, (1, "x"))]


# ONNX Runtime.


def test_a_service_is_no_provider_and_the_first_device_needs_no_number():
    with pytest.raises(UnknownNameError, match=f"Here: {CPU}"):
        choose_providers(target(providers=("azure",)), [AZURE, CPU])
    with pytest.raises(EngineError) as caught:
        choose_providers(target(unit="gpu"), [AZURE, CPU])
    assert f"it has {CPU} (units: cpu)" in caught.value.message
    assert choose_providers(target(unit="gpu:0"), [CUDA, CPU]) == [(CUDA, {}), (CPU, {})]
    assert choose_providers(target(unit="gpu:2", providers=("cpu", "cuda")), [CUDA, CPU]) == [
        (CPU, {}), (CUDA, {"device_id": "2"}),
    ]  # fmt: skip
    assert placement_notes([CUDA, CPU], [CUDA, CPU], {CUDA: 7, CPU: 2}) == (
        f"Of 9 nodes 7 were placed on {CUDA}, 2 on {CPU}.",
    )
    assert placement_notes([CUDA], [CUDA], {CUDA: 7}) == placement_notes([CUDA], [CUDA], {}) == ()


def test_ports_have_numpys_types_and_outputs_are_what_the_file_declares():
    kinds = ("float", "double", "float16", "bool", "int8", "uint64", "string", "complex64")
    ports = [to_port(SimpleNamespace(name="x", type=f"tensor({kind})", shape=[-1, 0, "n", ""])) for kind in kinds]
    assert [port.dtype for port in ports] == [
        "float32", "float64", "float16", "bool", "int8", "uint64", "object", "complex64",
    ]  # fmt: skip
    assert ports[0].shape == (None, 0, "n", None)
    declared = [Port(name=name, dtype="float32", shape=shape) for name, shape in
                (("a", (2, "n")), ("b", (2, 3)), ("c", (2,)), ("d", ()), ("e", (None, "n", 3)))]  # fmt: skip
    notes = wrongly_declared(declared, [(2, 9), (2, 4), (2, 1), (5,), (7, 8, 4)])
    assert [note.partition("'")[2].partition("'")[0] for note in notes] == ["b", "c", "e"]
    assert "as [2, 3], and it is [2, 4]" in notes[0]
    assert "as [?, n, 3], and it is [7, 8, 4]" in notes[2]


def test_the_timers_cost_is_what_a_node_reports_beyond_what_one_more_takes():
    found = timers_from(3e-6, 16 * 1e-6 + 5e-6, 144 * 1e-6 + 5e-6)
    assert (found.node_s, found.step_s) == (pytest.approx(2e-6), pytest.approx(5e-6))
    nothing = timers_from(1e-7, 16 * 1e-6, 144 * 1e-6)
    assert (nothing.node_s, nothing.step_s) == (0.0, pytest.approx(0.0, abs=1e-12))
    assert _quiet([float(n) for n in range(20, 0, -1)]) == 3.0
    assert _quiet([4.0]) == 4.0


def test_parts_of_a_step_are_seconds_between_its_marks():
    assert _parts(0, 10, 110, 1110, 11_110) == pytest.approx({"write": 1e-8, "run": 1e-7, "read": 1e-6, "sample": 1e-5})


def test_logits_of_the_last_position_alone_are_told_by_their_shape():
    ids = Port(name="input_ids", dtype="int64", shape=("b", "q"))
    past = [Port(name="past_key_values.0.key", dtype="float32", shape=("b", 1, "c", 1))]
    present = [Port(name="present.0.key", dtype="float32", shape=("b", 1, "c", 1))]

    def made(*shape):
        logits = Port(name="logits", dtype="float32", shape=shape)
        found = decoder_of([ids, *past], [logits, *present], name="m")
        return found.last_only, found.vocabulary

    assert made("b", "q", 50) == (False, 50)
    assert made("b", 1, 50) == made("b", 50) == (True, 50)
    assert made("b", "q", "v") == (False, None)


def test_a_kernel_whose_results_nobody_knows_is_the_node_of_its_name():
    original = graph(node("conv", "Conv", "x w", "a"), node("relu", "Relu", "a", "y"), stored="w")
    renamed = graph(node("conv_nchwc", "Conv", "x w", "new"), node("relu", "Relu", "new", "y"), stored="w")
    assert map_fusion(original, renamed).layers == {"conv_nchwc": ("conv",), "relu": ("relu",)}
    alone = graph(
        node("fused conv", "FusedConv", "x w", "strange"), node("out", "Identity", "strange", "y"), stored="w"
    )
    assert map_fusion(original, alone).layers["fused conv"] == ("conv",)
    other = graph(node("unknown", "FusedConv", "x w", "strange"), stored="w")
    assert map_fusion(original, other).layers == {"unknown": ()}


def test_constants_are_what_rests_on_stored_tensors_alone():
    topology = graph(
        node("c", "Constant", "", "k"), node("cast", "Cast", "w", "w16"), node("sum", "Add", "w16 k", "s"),
        node("noise", "RandomNormalLike", "w", "r"), node("mixed", "Add", "s x", "m"), node("later", "Add", "r w", "y"),
        node("loop", "Loop", "w", "l", results=("in",)), stored="w",
    )  # fmt: skip
    assert constant_nodes(topology) == {"c", "cast", "sum"}


def test_own_kernels_serve_layers_and_pieces_are_layers():
    original = graph(node("unpack", "DequantizeLinear", "q", "w"), node("mm", "MatMul", "x w", "y"), stored="q")
    optimised = graph(
        node("unpack", "DequantizeLinear", "q", "w"), node("cast", "Cast", "x", "x2"), node("piece", "Mul", "x2", "x3"),
        node("mm", "MatMul", "x3 w", "y"), stored="q",
    )  # fmt: skip
    found = with_served(original, optimised, Fusion(layers={"mm": ("mm",), "unpack": (), "cast": (), "piece": ()}))
    assert found.serves == {"unpack": ("mm",), "cast": ("mm",)}
    assert found.layers == {"mm": ("mm",), "unpack": (), "cast": (), "piece": ("mm",)}


def test_what_only_an_output_takes_serves_the_layer_that_made_it_first():
    takers = {"a": ["out"], "b": ["out"], "out": []}
    assert base.served(takers, {"a": ("la",), "b": ("lb",)}) == {"out": ("la",)}
    assert base.served({"a": ["own"], "own": ["b"], "b": []}, {"a": ("la",), "b": ("lb",)}) == {"own": ("lb",)}


def test_stored_numbers_take_the_bits_that_the_reader_of_such_files_knows():
    """Two tables of one schema: what a number takes, with eight of them in as many bytes."""
    bits = {number: element_bytes(element.name, 8) for number, element in ELEMENTS.items()}
    assert {number: count for number, count in bits.items() if count is not None} == onnx_nodes._BITS


def test_kernels_have_the_bytes_of_their_weights_and_the_units_of_their_providers():
    rows = {
        "a": NodeTime(name="a", kind="Conv", provider=CUDA, seconds=1.0, bytes=10.0, dtype="float", shapes=((1, 2),)),
        "b": NodeTime(name="b", kind="Reorder", provider="", seconds=1.0, bytes=5.0, dtype=None),
        "c": NodeTime(name="c", kind="Add", provider=CPU, seconds=1.0, bytes=1.0, dtype="int8"),
    }
    table = NodeTable(
        rows=rows, samples_s={"a": [1.0, 2.0], "b": [3.0, 4.0], "c": [0.0, 1.0]}, order=["c", "a", "b"], runs=2
    )
    fusion = Fusion(layers={"a": ("l",), "b": (), "c": ()}, serves={"b": ("l",)})
    c, a, b = kernels_from_table(table, fusion, {"a": 100.0})
    assert a == Kernel(
        name="a", kind="Conv", samples_s=(1.0, 2.0), unit="gpu", layers=("l",), provider=CUDA, dtype="float32",
        bytes=110.0, shapes=((1, 2),),
    )  # fmt: skip
    assert (b.own, b.layers, b.provider, b.dtype, b.bytes, b.unit) == (True, ("l",), None, None, 5.0, "cpu")
    assert (c.own, c.layers, c.dtype) == (False, (), "int8")


# The nodes of an ONNX file.


def branching():
    """An If whose two branches make a tensor of one name, take one from outside, and store weights."""
    value = helper.make_tensor_value_info

    def branch(op, weight):
        nodes = [
            helper.make_node(op, ["x", weight.name], ["out"], name="inner"),
            helper.make_node("Relu", ["out"], ["res"]),
        ]
        return helper.make_graph(nodes, "b", [], [value("res", TensorProto.FLOAT, [2])], [weight])

    weights = [
        numpy_helper.from_array(np.ones(2, np.float32), "wa"),
        numpy_helper.from_array(np.ones(2, np.float16), "wb"),
    ]
    nodes = [
        helper.make_node("Relu", ["x"], ["c"], name="same"),
        helper.make_node("Cast", ["c"], ["flag"], name="same", to=9),
        helper.make_node("If", ["flag"], ["y"], name="if", then_branch=branch("Add", weights[0]),
                         else_branch=branch("Mul", weights[1])),
    ]  # fmt: skip
    packed = onnx.TensorProto(name="packed", data_type=TensorProto.INT4, dims=[3, 5])
    made = helper.make_graph(
        nodes, "g", [value("x", TensorProto.FLOAT, ["n", 2]), value("packed", TensorProto.INT4, [3, 5])],
        [value("y", TensorProto.FLOAT, ["n"])], [packed],
    )  # fmt: skip
    return helper.make_model(made)


def test_nodes_within_nodes_have_their_names_before_their_own_and_tensors_of_one_name_too():
    model = branching()
    given_names = name_nodes(model)
    found = topology_of(model, given_names)
    assert [row.name for row in found.nodes] == [
        "same", "same#2", "if", "if/else/inner", "if/else/res", "if/then/inner", "if/then/res",
    ]  # fmt: skip
    by_name = {row.name: row for row in found.nodes}
    assert by_name["if"].inputs == ("flag", "x")
    assert by_name["if"].results == ("if/else/res", "if/then/res")
    assert by_name["if/then/inner"].outputs == ("if/then/out",)
    assert by_name["if/else/res"].inputs == ("if/else/out",)
    assert [by_name[name].inside for name in ("if", "if/then/res")] == [None, "if"]
    assert [by_name[name].printed for name in ("same", "same#2", "if/then/res")] == ["same", "same", ""]
    assert found.stored == {"packed": 7.5, "wa": 8.0, "wb": 4.0}
    assert (found.inputs, found.outputs) == (("x",), ("y",))
    assert [row.name for row in found.users()["x"]] == ["same", "if", "if/else/inner", "if/then/inner"]


def test_sizes_are_of_what_the_file_leaves_open():
    model = branching()
    assert open_sizes(model) == ("n",)
    require_sizes(model, Path("m"), {"n": 1})
    with pytest.raises(UnknownNameError, match="It leaves open: n"):
        require_sizes(model, Path("m"), {"k": 1})
    for size in (0, True):
        with pytest.raises(DomainError, match="whole number"):
            require_sizes(model, Path("m"), {"n": size})


def test_a_folder_of_genai_is_found_by_any_of_its_files(tmp_path):
    with pytest.raises(FormatError, match="no folder of"):
        folder_of(tmp_path)
    config = {"model": {"decoder": {"filename": "model.onnx"}, "vocab_size": 5}}
    (tmp_path / "genai_config.json").write_text(json.dumps(config))
    (tmp_path / "model.onnx").write_bytes(b"")
    (tmp_path / "other.txt").write_bytes(b"")
    assert (
        folder_of(tmp_path)
        == folder_of(tmp_path / "model.onnx")
        == folder_of(tmp_path / "genai_config.json")
        == tmp_path
    )
    with pytest.raises(FormatError, match="no folder of"):
        folder_of(tmp_path / "other.txt")
    assert config_of(tmp_path) == config


# LiteRT.


def operator(index, kind, inputs, outputs, *, name=None, fused=()):
    return Operator(index=index, name=name or f"o{index}", type=kind, inputs=inputs, outputs=outputs, fused=fused)


def test_a_delegate_may_hand_over_what_it_was_given_and_what_no_operator_made():
    details = [{"index": 0, "op_name": "CONV_2D", "inputs": [0], "outputs": [1]},
               {"index": 1, "op_name": "DELEGATE", "inputs": [0], "outputs": [1, 0, 77]}]  # fmt: skip
    operators = operators_of(details, {1: "a"})
    assert partitions_of(details, operators) == ((0,),)
    dense = [{"index": 0, "op_name": "DENSIFY", "inputs": [0], "outputs": [1]},
             {"index": 1, "op_name": "ADD", "inputs": [1, -1], "outputs": [-1, 2]}]  # fmt: skip
    (only,) = operators_of(dense, {1: "weights", 2: "sum;fused;more"})
    assert (only.index, only.name, only.fused, only.inputs, only.outputs) == (
        1,
        "sum",
        ("fused", "more"),
        (1, -1),
        (-1, 2),
    )
    assert placed((only,), [{"op_name": "DELEGATE", "outputs": [5]}], lambda place: place == 2) == {"builtin": 1}


def test_what_has_no_kernel_of_its_own_is_in_its_neighbours():
    operators = (
        operator(0, "PAD", (0,), (1,)), operator(1, "CONV_2D", (1,), (2,), fused=("bias", "o2")),
        operator(2, "RELU", (2,), (3,)), operator(3, "RESHAPE", (3,), (4,)), operator(4, "ADD", (4, 4), (5,)),
        operator(5, "SOFTMAX", (5,), (6,)),
    )  # fmt: skip
    kinds = ("Convolution (NHWC) IGEMM", "Static Reshape", "Add (ND)", "Clamp")
    ran = (*(RanOperator(kind=kind) for kind in kinds), RanOperator(kind="SOFTMAX", operator=5, delegate=-1))
    assert layers_of_kernels(ran, operators) == (("o0", "o1", "bias", "o2"), ("o3",), ("o4",), ("o4",), ("o5",))
    lone = (RanOperator(kind="Static Reshape"), RanOperator(kind="Fully Connected"), RanOperator(kind="Clamp"))
    dense = (operator(0, "FULLY_CONNECTED", (0,), (1,), name="d", fused=("d/relu",)),)
    assert layers_of_kernels(lone, dense) == (("d", "d/relu"), ("d", "d/relu"), ("d/relu", "d"))


def test_each_delegate_has_its_own_operators():
    operators = tuple(operator(n, "ADD", (n,), (n + 1,)) for n in range(4))
    ran = (RanOperator(kind="Add", delegate=0), RanOperator(kind="Add", delegate=1))
    assert layers_of_kernels(ran, operators, ((1,), (3,))) == (("o1",), ("o3",))
    assert layers_of_kernels(ran, operators, ((1,),)) == (("o0",), ("o1",))


def event(tag, kind, us, number, subgraph=0):
    return ProfilerEvent(tag=tag, kind=kind, elapsed_us=us, number=number, subgraph=subgraph)


def test_a_delegates_event_is_its_kernels_and_a_step_without_a_kernel_has_no_time_of_it():
    whole = event("TfLiteXNNPackDelegate", OPERATOR, 50, 9)
    conv, other = event("Convolution", DELEGATE_INTERNAL, 20, 0), event("Convolution", DELEGATE_INTERNAL, 30, 1)
    body = event("ADD", OPERATOR, 5, 0, subgraph=1)
    assert kernel_events([whole, conv, other, body, event("x", 99, 1, 1)]) == [conv, other]
    assert kernel_events([whole]) == [whole]
    steps = StepEvents(
        (operator(0, "CONV_2D", (0,), (1,)), operator(1, "CONV_2D", (1,), (2,)), operator(2, "GATHER", (2,), (3,)))
    )
    gather = event("GATHER", OPERATOR, 7, 2)
    steps.add([whole, conv, other, gather])
    steps.add([whole, conv, gather])
    found = steps.take()["forward"]
    assert [(kernel.name, kernel.layers, kernel.provider) for kernel in found] == [
        ("o0", ("o0",), "XNNPACK"), ("o1", ("o1",), "XNNPACK"), ("o2", ("o2",), "builtin"),
    ]  # fmt: skip
    wanted = ((20e-6, 20e-6), (30e-6, 0.0), (7e-6, 7e-6))
    assert [kernel.samples_s for kernel in found] == [pytest.approx(samples) for samples in wanted]
    assert steps.take() == {}


@pytest.mark.parametrize(
    ("signature", "shape", "batch", "asked", "found"),
    [
        ((-1, 3), (1, 3), 1, None, (1, 3)), ((-1, 3), (1, 3), 4, None, (4, 3)), ((-1, -1), (1, 0), 1, None, (1, 1)),
        ((-1, -1), (2, 5), 1, None, (2, 5)), ((-1, 3), (1, 3), 1, (6, 3), (6, 3)), ((2, 3), (2, 3), 2, None, (2, 3)),
        ((1, 3), (1, 3), 2, None, None), ((-1, 3), (1, 3), 2, (6, 3), None), ((-1, 3), (1, 3), 1, (6, 4), None),
        ((-1, 3), (1, 3), 1, (6,), None), ((), (), 2, None, None),
    ],
)  # fmt: skip
def test_an_open_axis_is_what_was_asked_for_or_the_batch(*, signature, shape, batch, asked, found):
    tensor = FileTensor(name="x", index=0, dtype="float32", shape=shape, signature=signature)
    if found is None:
        with pytest.raises(DomainError):
            concrete(tensor, batch=batch, asked=asked)
        return
    assert concrete(tensor, batch=batch, asked=asked) == found


def test_tensors_of_one_name_have_their_number_and_empty_ones_are_refused():
    detail = {"name": "x", "index": 3, "dtype": np.float32, "shape": [1, 2], "shape_signature": [-1, 2]}
    other = {**detail, "index": 4, "shape_signature": []}
    found = tensors_of([detail, other, {**detail, "name": "y", "index": 5}])
    assert [(tensor.name, tensor.index, tensor.signature) for tensor in found] == [
        ("x:3", 3, (-1, 2)), ("x:4", 4, (1, 2)), ("y", 5, (-1, 2)),
    ]  # fmt: skip
    assert found[0].port() == Port(name="x:3", dtype="float32", shape=(None, 2))
    with pytest.raises(DomainError, match="it holds nothing"):
        check_inputs(found[2:], {"y": np.zeros((0, 2), np.float32)})


# OpenVINO.


@pytest.mark.parametrize(
    ("given_", "device"),
    [({}, "CPU"), ({"unit": "gpu"}, "GPU"), ({"unit": "gpu:1"}, "GPU.1"), ({"unit": "gpu:0"}, "GPU.0"),
     ({"providers": ("hetero:gpu", "cpu")}, "HETERO:GPU,CPU"), ({"providers": ("auto",)}, "AUTO"),
     ({"unit": "gpu:2"}, EngineError), ({"unit": "npu"}, EngineError), ({"unit": "tpu"}, UnknownNameError),
     ({"unit": "gpu:x"}, DomainError), ({"providers": ("hetero:npu",)}, UnknownNameError)],
)  # fmt: skip
def test_a_device_is_one_that_is_there(given_, device):
    available = ["CPU", "GPU.0", "GPU.1"]
    if isinstance(device, str):
        assert choose_device(target(**given_), available) == device
        return
    with pytest.raises(device):
        choose_device(target(**given_), available)


def test_where_it_runs_is_told_where_it_is_another_place():
    assert choose_device(target(unit="gpu:0"), ["GPU"]) == "GPU.0"
    assert placement_note("GPU", ["GPU.0"]) == placement_note("GPU.1", ["GPU.1"]) == placement_note("CPU", []) == ()
    assert placement_note("GPU", ["CPU"]) == ("GPU was asked for, and the engine runs on CPU.",)
    assert placement_note("AUTO:GPU", ["CPU"]) == ("AUTO:GPU was asked for; the engine chose CPU.",)
    assert [unit_of(name) for name in ("GPU.1", "NPU", "CPU", "AUTO")] == ["gpu", "npu", "cpu", "cpu"]
    assert [precision_hint(*row[:1], all_f32=row[1]) for row in ((None, True), (None, False), ("f16", True))] == [
        "f32", None, "f16",
    ]  # fmt: skip


def test_running_means_become_the_mean_of_the_steps_between():
    before, after = (
        CounterReading(steps=2, means_s={"a": 10e-6}),
        CounterReading(steps=5, means_s={"a": 16e-6, "b": 4e-6}),
    )
    found = mean_between(before, after)
    assert found["a"] == pytest.approx((5 * 16.5e-6 - 2 * 10.5e-6) / 3)
    assert found["b"] == pytest.approx(5 * 4.5e-6 / 3)
    assert mean_between(after, after) == {}
    assert mean_between(CounterReading(steps=4, means_s={"a": 1.0}), CounterReading(steps=5, means_s={"a": 0.1})) == {
        "a": 0.0
    }
    means = RunningMeans()
    assert means.take(before) == {"a": (pytest.approx(10.5e-6),) * 2}
    assert {name: len(samples) for name, samples in means.take(after).items()} == {"a": 3, "b": 3}


def test_counters_of_one_name_are_numbered_and_what_did_not_run_is_left_out():
    def entry(name, seconds, status="EXECUTED"):
        return SimpleNamespace(node_name=name, status=SimpleNamespace(name=status),
                               real_time=SimpleNamespace(total_seconds=lambda: seconds))  # fmt: skip

    request = SimpleNamespace(
        get_profiling_info=lambda: [entry("a", 1.0), entry("b", 9.0, "NOT_RUN"), entry("a", 2.0), entry("a", 3.0)]
    )
    assert executed_seconds(request) == {"a": 1.0, "a#2": 2.0, "a#3": 3.0}


def test_what_rests_on_constants_alone_was_computed_at_load():
    ops = [
        Executed(name="in", kind="Input", takers=("add",)), Executed(name="c", kind="Const", takers=("cast", "mul")),
        Executed(name="cast", kind="Convert", takers=("add",)),
        Executed(name="add", kind="Add", takers=("mul", "gone")),
        Executed(name="mul", kind="Mul"),
    ]  # fmt: skip
    assert list(running(ops)) == ["in", "add", "mul"]
    assert needed(running(ops)) == {"in": [], "add": ["in"], "mul": ["add"]}
    assert [op.is_end for op in ops[:2]] == [True, False]


FLOW = NameFlow(
    before={"in": (), "a": ("in",), "u": ("a",), "v": ("u",), "b": ("v", "a"), "w": ("b",), "x": ("in",),
            "out": ("w", "x")},
    labels={"in": "", "a": "A", "b": "B", "out": ""},
)  # fmt: skip


def test_the_nearest_labels_before_and_after():
    before, after = FLOW.labels_before(), FLOW.labels_after()
    assert (before["u"], before["v"], before["b"], before["x"]) == ({"A"}, {"A"}, {"A"}, {""})
    assert (after["u"], after["v"], after["in"], after["w"]) == ({"B"}, {"B"}, {"A", ""}, {""})
    assert FLOW.unlabelled() == [["u", "v"], ["w"], ["x"]]
    assert FLOW.in_line(("a", "v", "w"))
    assert not FLOW.in_line(("a", "x"))
    assert FLOW.without({"u", "x"}).before == {
        "in": (), "a": ("in",), "v": ("a",), "b": ("v", "a"), "w": ("b",), "out": ("w", "in"),
    }  # fmt: skip


def test_operations_with_made_up_names_belong_to_the_next_that_is_known():
    topology = graph(node("n1", "Conv", "x", "a b"), node("n2", "Relu", "a", "y"))
    assert known_names(topology) == {"a": "n1", "b": "n1", "n1.0": "n1", "n1.1": "n1", "n1": "n1", "y": "n2",
                                     "n2.0": "n2", "n2": "n2"}  # fmt: skip
    consumers = {"p": ["q", "n2"], "q": ["n1"], "n1": ["r"], "r": ["n2"], "n2": ["s"], "s": []}
    known = {"n1": "n1", "n2": "n2"}
    assert own_names(consumers, known) == {"p": "n2", "q": "n1", "n1": "n1", "r": "n2", "n2": "n2"}
    chain = {"a": ["b"], "b": ["c"], "c": ["n"], "n": []}
    assert own_names(chain, {"n": "n"}, at_most=2) == {"n": "n", "c": "n", "b": "n"}
    own = {"a": "A", "b,c": "BC", "b": "B"}
    assert listed_layers("a,b,c,zz,a", own) == ("A", "BC")
    assert [ends_made_up(text, own) for text in ("a,zz", "zz,a", "")] == [True, False, False]


# The others.


@pytest.mark.parametrize(
    ("asked", "gpus", "found"),
    [(None, 0, ("cpu", "cpu", 0)), ("cpu", 2, ("cpu", "cpu", 0)), ("cpu:0", 2, ("cpu:0", "cpu", 0)),
     ("gpu", 1, ("gpu", "cuda", 0)), ("gpu:1", 2, ("gpu:1", "cuda", 1)), ("gpu:1", 1, None), ("gpu", 0, None),
     ("cpu:1", 2, None), ("npu", 2, None)],
)  # fmt: skip
def test_ctranslate2_runs_on_what_there_is(asked, gpus, found):
    if found is not None:
        assert ctranslate2._device(asked, gpus) == found
        return
    with pytest.raises(EngineError, match="There is: cpu"):
        ctranslate2._device(asked, gpus)


@pytest.mark.parametrize(
    ("words", "remedy"),
    [("no such compute type", "Leave --activations out"), ("binary version 9", "upgrade"), ("revision 3", "upgrade"),
     ("broken file.", "Convert the model again: ")],
)  # fmt: skip
def test_ctranslate2s_error_says_what_to_do(words, remedy):
    error = ctranslate2._fault(Path("m"), "refused", RuntimeError(words))
    assert error.remedy.startswith(remedy) or remedy in error.remedy
    assert error.message == f"CTranslate2 refused 'm': {words.rstrip('.')}."


def test_llama_cpps_devices_share_memory_or_have_their_own_and_blas_is_none():
    devices = [("CPU", 0, 1), ("iGPU", 2, 5), ("BLAS", 1, 6), ("CUDA0", 1, 7), ("ACC", 3, 8)]
    assert list(choose_devices(None, 0, devices)[1]) == [5, 7, None]
    assert choose_devices("gpu:1", None, devices)[::2] == ("gpu:1", 999)
    assert list(choose_devices("gpu:1", 3, devices)[1]) == [7, None]
    chunk = read_chunk(
        {"timings": {"cache_n": -1, "prompt_n": 2, "prompt_ms": 3, "predicted_n": 4, "predicted_ms": 5}}, 9
    )
    assert (chunk.cached, chunk.read, chunk.read_s, chunk.made, chunk.made_s, chunk.text) == (0, 2, 3e-3, 4, 5e-3, "")


def test_executorchs_kernels_are_laid_beside_the_nodes_of_their_delegate():
    nodes = [FileNode(name=name, kind=kind) for name, kind in (
        ("view_2", "view"), ("conv2d_0.0", "XNNConv2d"), ("relu_0.1", "XNNClamp"), ("cat_0.2", "XNNConcatenate3"),
        ("fc_0.3", "XNNFullyConnected"), ("other", "x"), ("lone_4.0", "XNNAdd"), ("lone_4.1", "XNNAdd"))]  # fmt: skip

    def ran(kind, instruction=0, **more):
        return RanKernel(kind=kind, instruction=instruction, seconds=1.0, **{"delegated": True, **more})

    kernels = [
        ran("Static Reshape (ND)"), ran("Convolution (NHWC, F32) IGEMM #1"), ran("Clamp (ND)"), ran("Concatenate (ND)"),
        ran("Fully Connected (NC)"), ran("Clamp (ND)"), ran("DELEGATE_CALL", rest=True),
        ran("view.out", 2, delegated=False), ran("DELEGATE_CALL", 4), ran("x", 9, delegated=False),
    ]  # fmt: skip
    assert executorch_layers(kernels, nodes) == (
        ("conv2d_0.0",), ("conv2d_0.0",), ("relu_0.1",), ("cat_0.2",), ("fc_0.3",), ("fc_0.3",), (), ("view_2",),
        ("lone_4.0", "lone_4.1"), (),
    )  # fmt: skip


def test_modules_are_renamed_as_their_weights_are():
    weights = {"enc.l.0.q.weight": "bert.encoder.0.query.weight", "enc.l.0.k.weight": "bert.encoder.0.key.weight",
               "enc.l.1.q.weight": "bert.encoder.1.query.weight", "head.weight": "head.weight"}  # fmt: skip
    modules = ["enc", "enc.l", "enc.l.0", "enc.l.0.q", "enc.l.0.k", "enc.l.0.act", "enc.l.1", "enc.l.1.q", "head"]
    assert modules_renamed(weights, modules) == {
        "enc": "bert.encoder", "enc.l": "bert.encoder", "enc.l.0": "bert.encoder.0",
        "enc.l.0.q": "bert.encoder.0.query",
        "enc.l.0.k": "bert.encoder.0.key", "enc.l.0.act": "bert.encoder.0.act", "enc.l.1": "bert.encoder.1.query",
        "enc.l.1.q": "bert.encoder.1.query",
    }  # fmt: skip
    assert modules_renamed({"a.w": "a.w"}, ["a"]) == {}
