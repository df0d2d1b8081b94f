"""What converters are told, what is kept of what they leave, and what is said of it; others stand in for them."""

import json
import os
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from inferometer.core.errors import DomainError, FormatError
from inferometer.core.graph import Graph
from inferometer.core.workload import Workload
from inferometer.engines.executorch import convert as executorch
from inferometer.engines.litert import convert as litert
from inferometer.engines.mnn import convert as mnn
from inferometer.engines.ncnn import convert as ncnn
from inferometer.engines.onnxruntime.convert import _clean, _Readings, _renewed, quantise_dynamic, save
from inferometer.engines.openvino import convert as openvino
from inferometer.engines.openvino_genai import convert as openvino_genai
from inferometer.engines.order import ToolOrder
from inferometer.engines.torch import aotinductor, checkpoint, onnx2torch
from inferometer.engines.torch.convert import first_line
from inferometer.engines.torch.torchao import _name
from inferometer.measure.prepare import run
from inferometer.measure.prepare.proof import MeasuredGain
from inferometer.measure.prepare.run import PrepareRequest, _as_it_is, _doubts, _proving, _require_context
from inferometer.measure.prepare.steps import step_named
from unit.measure.prepare.networks import convolution_onnx


@pytest.fixture
def packages(monkeypatch):
    """Puts modules in the place of packages, by their dotted names."""

    def put(**modules):
        for name, content in modules.items():
            dotted = name.replace("__", ".")
            module = ModuleType(dotted)
            vars(module).update(content)
            monkeypatch.setitem(sys.modules, dotted, module)

    return put


def ordered(folder, **more):
    (folder / "work" / "out").mkdir(parents=True, exist_ok=True)
    source = folder / "in.bin"
    source.write_bytes(b"source")
    return ToolOrder(**{"source": source, "target": folder / "work" / "out" / "model", "format": "f", **more})


def network(path, *, opset=17, ir=9):
    weights = numpy_helper.from_array(np.array([[1.0, 0.1], [70_000.0, 1e-9]], np.float32), "w")
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="n")], "g", [value("x", TensorProto.FLOAT, ["b", 2])],
        [value("y", TensorProto.FLOAT, ["b", 2])], [weights],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir), path)
    return path


# ncnn.


@pytest.mark.parametrize(("kind", "known"), [("Gemm", True), ("Tensor.reshape", False), ("aten::roll", False)])
def test_names_that_are_not_ncnns_are_refused_though_nobody_can_be_asked(monkeypatch, kind, known):
    monkeypatch.setattr(ncnn, "_has", lambda _: True)
    text = f"7767517\n2 2\nInput in0 0 1 in0\n{kind} one 1 1 in0 out0\n\n"
    if known:
        ncnn._require_known(text)
        return
    with pytest.raises(FormatError, match="no layer for"):
        ncnn._require_known(text)


def test_pnnx_is_told_shapes_types_and_precision_and_two_files_are_kept(tmp_path, monkeypatch):
    order = ordered(tmp_path, shapes={"a": (1, 3, 4, 5), "b": (1, 7)}, dtypes={"a": "float32", "b": "int64"})
    order = replace(order, target=order.target.with_suffix(".param"), options={"weights": "f16"})
    asked = []

    def ran(command, cwd, **_):
        asked.append(command)
        (cwd / "network.ncnn.param").write_text("7767517\n2 2\nInput in0 0 1 in0\nInput in1 0 1 in1\n")
        (cwd / "network.ncnn.bin").write_bytes(b"weights")
        return SimpleNamespace(stdout="", stderr="")

    monkeypatch.setattr(ncnn, "_program", lambda: "pnnx")
    monkeypatch.setattr(ncnn, "_has", lambda _: True)
    monkeypatch.setattr(ncnn.subprocess, "run", ran)
    assert len([*ncnn.convert(order)]) == 1
    assert asked == [["pnnx", "network.onnx", "inputshape=[1,3,4,5]f32,[1,7]i64", "fp16=1"]]
    assert order.target.read_text().splitlines()[2:] == ["Input in0 0 1 in0 2=3 1=4 0=5", "Input in1 0 1 in1 0=7"]
    assert order.target.with_suffix(".bin").read_bytes() == b"weights"
    assert ncnn._with_sizes("a\nb\nRelu r 1 1 in0 out0\n", [(1, 2)]) == "a\nb\nRelu r 1 1 in0 out0\n"


def test_what_pnnx_said_last_is_told_where_it_made_nothing(tmp_path, monkeypatch):
    order = ordered(tmp_path, shapes={}, dtypes={})
    asked = []
    monkeypatch.setattr(ncnn, "_program", lambda: "pnnx")
    monkeypatch.setattr(
        ncnn.subprocess, "run",
        lambda command, **_: asked.append(command) or SimpleNamespace(stdout="one\n", stderr="two\n"),
    )  # fmt: skip
    with pytest.raises(FormatError, match="Its last words: one / two"):
        [*ncnn.convert(order)]
    assert asked[0][-1] == "fp16=0"


# MNN.


@pytest.mark.parametrize(
    ("weights", "flags", "notes"),
    [(None, [], 0), ("f16", ["--fp16"], 0), ("i8", ["--weightQuantBits", "8"], 1),
     ("i4", ["--weightQuantBits", "4"], 1)],
)  # fmt: skip
def test_mnns_converter_is_told_how_to_store_weights(tmp_path, packages, weights, flags, notes):
    asked = []

    def convert(arguments):
        asked.append(arguments)
        Path(arguments[6]).write_bytes(b"made")

    packages(_tools={"mnnconvert": convert})
    order = ordered(tmp_path, source=network(tmp_path / "m.onnx"), options={"weights": weights} if weights else {})
    assert len([*mnn.convert(order)]) == notes
    (arguments,) = asked
    source = tmp_path / "work" / "rewritten.onnx" if weights == "f16" else order.source
    assert arguments == ["MNNConvert", "-f", "ONNX", "--modelFile", str(source), "--MNNModel", str(order.target),
                         "--bizCode", "inferometer", *flags]  # fmt: skip


@pytest.mark.parametrize("content", [None, b""])
def test_an_operator_that_mnn_does_not_know_is_named_once(tmp_path, packages, content):
    order = ordered(tmp_path, source=network(tmp_path / "m.onnx"))
    packages(_tools={"mnnconvert": lambda _: content is not None and order.target.write_bytes(content)})
    with pytest.raises(FormatError, match=r"made nothing of it\."):
        [*mnn.convert(order)]
    log = "a: b: These Op Not Support: ONNX::Frob\nfine\n  ONNX::Frob  \nONNX::Grob\n"
    (tmp_path / "work" / "log.txt").write_text(log)
    with pytest.raises(FormatError, match="it does not know ONNX::Frob, ONNX::Grob"):
        [*mnn.convert(order)]


def test_weights_are_rounded_to_the_nearest_half_and_what_is_beyond_is_left(tmp_path):
    model = onnx.load(network(tmp_path / "m.onnx"))
    mnn._round_to_half(model)
    (held,) = (numpy_helper.to_array(tensor) for tensor in model.graph.initializer)
    assert held.tolist() == [[1.0, float(np.float16(0.1))], [70_000.0, 0.0]]
    assert held.dtype == np.float32


def test_mnns_quantiser_gets_a_folder_for_each_set(tmp_path, packages):
    asked = []

    def quantise(arguments):
        asked.append(arguments)
        Path(arguments[2]).write_bytes(b"q")
        return True

    packages(_tools={"mnnconvert": lambda a: Path(a[6]).write_bytes(b"plain"), "mnnquant": quantise})
    sets = []
    for number in range(2):
        sets.append(tmp_path / f"{number}.npz")
        np.savez(sets[-1], x=np.array([[0.5, number]], np.float32))
    order = ordered(tmp_path, source=network(tmp_path / "m.onnx"), calibration=tuple(sets))
    assert "2 sets of inputs" in " ".join(mnn.quantise(order))
    ((_, plain, target, config),) = asked
    assert (Path(plain).read_bytes(), target) == (b"plain", str(order.target))
    told = json.loads(Path(config).read_text())
    assert (told["used_sample_num"], told["feature_quantize_method"], told["quant_bits"]) == (2, "KL", 8)
    folder = Path(told["path"]) / "0001"
    assert (folder / "x.txt").read_text().split() == ["0.5", "1"]
    assert json.loads((folder / "input.json").read_text()) == {
        "inputs": [{"name": "x", "shape": [1, 2]}], "outputs": [],
    }  # fmt: skip
    bad = tmp_path / "bad.npz"
    np.savez(bad, **{"a/b": np.zeros(1)})
    with pytest.raises(DomainError, match="'a/b' is none"):
        mnn._write_sample(tmp_path / "x", bad)


# ONNX files.


@pytest.mark.parametrize(("opset", "renewed"), [(12, 13), (13, 13), (17, 17)])
def test_a_file_is_brought_to_the_first_opset_with_scales_by_channel(tmp_path, opset, renewed):
    model = _renewed(onnx.load(network(tmp_path / "m.onnx", opset=opset)))
    assert model.opset_import[0].version == renewed
    kept, changed = mnn._renewed(onnx.load(network(tmp_path / "m.onnx", opset=opset)))
    assert (kept.opset_import[0].version, changed) == (renewed, opset < 13)


@pytest.mark.parametrize(("before", "after"), [(3, 8), (8, 8), (9, 9), (11, 10)])
def test_the_file_format_is_new_enough_for_quantisers_and_old_enough_for_engines(tmp_path, before, after):
    order = ordered(tmp_path, source=network(tmp_path / "m.onnx", ir=before))
    made = onnx.load(_clean(order))
    assert made.ir_version == after
    assert Path(_clean(order)).parent == tmp_path / "work"
    save(onnx.load(order.source), tmp_path / "plain.onnx")
    assert onnx.load(tmp_path / "plain.onnx").ir_version == min(before, 10)
    assert not (tmp_path / "plain.onnx.data").exists()


def test_calibration_sets_are_read_one_after_the_other_and_then_none(tmp_path):
    for number in range(2):
        np.savez(tmp_path / f"{number}.npz", x=np.array([number]))
    readings = _Readings((tmp_path / "0.npz", tmp_path / "1.npz"))
    assert [int(readings.get_next()["x"][0]) for _ in range(2)] == [0, 1]
    assert readings.get_next() is None


# OpenVINO.


def test_openvinos_files_are_halved_only_where_asked_and_four_bits_have_no_groups(tmp_path, packages, monkeypatch):
    saved, asked = [], []
    modes = SimpleNamespace(INT4_SYM="4", INT8_SYM="8")
    core = SimpleNamespace(read_model=lambda path: f"read {Path(path).name}")
    packages(
        openvino={"save_model": lambda *given, **more: saved.append((given, more)), "Core": lambda: core,
                  "convert_model": lambda path: f"converted {Path(path).name}"},
        nncf={"CompressWeightsMode": modes,
              "compress_weights": lambda model, **more: asked.append((model, more)) or "small"},
    )  # fmt: skip
    order = ordered(tmp_path)
    openvino.convert(order)
    openvino.halve(order)
    target = str(order.target)
    assert saved == [(("converted in.bin", target), {"compress_to_fp16": False}),
                     (("read in.bin", target), {"compress_to_fp16": True})]  # fmt: skip
    openvino.compress(replace(order, options={"weights": "i4"}))
    openvino.compress(replace(order, options={"weights": "i8"}))
    assert asked == [("read in.bin", {"mode": "4", "group_size": -1, "ratio": 1.0}), ("read in.bin", {"mode": "8"})]
    assert saved[2] == (("small", target), {})


@pytest.mark.parametrize(
    ("weights", "half", "compressed"), [(None, False, []), ("f16", True, []), ("i4", False, ["i4"])]
)
def test_a_genai_folder_has_the_network_and_what_lies_beside_the_weights(
    *, tmp_path, packages, monkeypatch, weights, half, compressed
):
    source = tmp_path / "checkpoint"
    source.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (source / name).write_text(name)
    saved, asked = [], []
    packages(openvino={"save_model": lambda *given, **more: saved.append((given, more))})
    monkeypatch.setattr(openvino_genai, "offline", lambda: None)
    monkeypatch.setattr(openvino_genai, "whole_checkpoint", lambda _: (source, ()))
    monkeypatch.setattr(openvino_genai, "_network", lambda folder: f"network of {folder.name}")
    monkeypatch.setattr(openvino_genai, "_compressed", lambda network, kind: asked.append(kind) or network)
    monkeypatch.setattr(openvino_genai, "_tokeniser", lambda folder, _target: iter([f"tokeniser of {folder.name}"]))
    order = ordered(tmp_path, options={"weights": weights} if weights else {})
    assert [*openvino_genai.convert(order)] == ["tokeniser of checkpoint"]
    assert asked == compressed
    assert saved == [(("network of checkpoint", str(order.target / "openvino_model.xml")), {"compress_to_fp16": half})]
    assert {file.name: file.read_text() for file in order.target.iterdir()} == {
        "config.json": "config.json", "tokenizer.json": "tokenizer.json",
    }  # fmt: skip
    assert openvino_genai._pairs({"past_key_values.1.key", "past_key_values.0.value"}) == {
        "past_key_values.0.value": "present.0.value", "past_key_values.1.key": "present.1.key",
    }  # fmt: skip


# PyTorch.


def test_executorch_tells_what_was_lowered_and_what_was_left(tmp_path, packages, monkeypatch):
    def made(*operators, delegates=2):
        listed = [SimpleNamespace(name=name, overload=overload) for name, overload in operators]
        plan = SimpleNamespace(operators=listed, delegates=[None] * delegates)
        program = SimpleNamespace(
            executorch_program=SimpleNamespace(execution_plan=[plan]), write_to_file=lambda file: file.write(b"pte")
        )
        packages(
            executorch__backends__xnnpack__partition__xnnpack_partitioner={"XnnpackPartitioner": lambda: "xnnpack"},
            executorch__exir={
                "to_edge_transform_and_lower": lambda given, partitioner: SimpleNamespace(
                    to_executorch=lambda: program if (given, partitioner) == ("program", ["xnnpack"]) else None
                )
            },
        )
        return [*executorch._written("program", ordered(tmp_path))]

    engine = SimpleNamespace(_get_operator_names=lambda: ["aten::a.out", "aten::b"])
    monkeypatch.setattr("inferometer.engines.executorch.session.loaded_engine", lambda: engine)
    assert made() == ["Parts lowered to XNNPACK: 2."]
    assert made(("aten::a", "out"), ("aten::b", "")) == [
        "Parts lowered to XNNPACK: 2; portable kernels are left for aten::a.out, aten::b..",
    ]  # fmt: skip
    assert (tmp_path / "work" / "out" / "model").read_bytes() == b"pte"
    with pytest.raises(FormatError, match=r"no kernel for aten::c\.out\."):
        made(("aten::c", "out"))


@pytest.mark.parametrize(
    ("stack", "name"),
    [([("body.0.fc", "torch.nn.Linear")], "body.0.fc"), ([("body.0", "Block")], "body.0.linear_1"),
     ([("", "Linear")], "linear_1"), ([], "linear_1"), ([("body..x", "Linear")], "linear_1"),
     ([("outer", "Block"), ("outer.fc", "Linear")], "outer.fc")],
)  # fmt: skip
def test_a_dense_layer_has_the_name_of_its_module(stack, name):
    node = SimpleNamespace(name="linear_1", meta={"nn_module_stack": dict(enumerate(stack))} if stack else {})
    assert _name(node) == name


def test_the_first_line_of_an_error_and_the_node_it_failed_at():
    assert first_line(ValueError("\n  \none.\ntwo")) == "one"
    assert first_line(KeyError()) == "KeyError"
    nodes = [SimpleNamespace(name="a;b", op_type="Frob"), SimpleNamespace(name="c", op_type="Relu")]
    model = SimpleNamespace(graph=SimpleNamespace(node=nodes))
    failed = ValueError("x call_module[target=a_b] y")
    assert onnx2torch._at(failed, model) == " of the operator Frob, which the node 'a_b' is"
    assert onnx2torch._at(ValueError("call_module[target=z]"), model) == onnx2torch._at(ValueError("x"), model) == ""


def test_litert_keeps_what_goes_in_and_out_as_it_is():
    found = litert._as_they_are("INPUT")
    assert (found["regex"], found["operation"], found["algorithm_key"]) == (".*", "INPUT", "no_quantize")
    assert found["op_config"]["compute_precision"] == "FLOAT"


# What is asked of a preparation.


def generative(limit):
    return Graph(name="g", blocks=(), context_limit=limit)


@pytest.mark.parametrize(
    ("prompt", "generate", "limit", "fits"),
    [(6, 4, 10, True), (7, 4, 10, False), (11, None, 10, False), (None, None, 10, True), (99, 99, None, True)],
)
def test_what_is_proven_fits_the_models_positions(*, monkeypatch, prompt, generate, limit, fits):
    monkeypatch.setattr(run, "is_generative", lambda _: True)
    request = PrepareRequest(model="m", runtime="r", workload=Workload(prompt=prompt, generate=generate))
    if fits:
        _require_context(request, generative(limit))
    else:
        with pytest.raises(DomainError, match=r"positions for 10 tokens, and is to be proven with 11\."):
            _require_context(request, generative(limit))
    monkeypatch.setattr(run, "is_generative", lambda _: False)
    _require_context(request, generative(limit))


def test_nothing_to_prepare_says_what_else_can_be_done():
    engine = SimpleNamespace(title="E")
    request = PrepareRequest(model="resnet50", runtime="e")
    assert _as_it_is(request, engine, ("i8", "f16")).remedy == (
        "Quantise it: --quantise i8 or f16. `inferometer prepare resnet50 -o FILE` writes it."
    )
    own = replace(request, model="m.onnx")
    assert _as_it_is(own, engine, ()).remedy == "Give it to `inferometer profile`."


def test_proofs_are_on_this_machine_unless_another_is_named_or_nothing_is_measured(monkeypatch):
    monkeypatch.setattr(run, "reference_for", lambda _graph: "reference")
    engine = SimpleNamespace(name="e", opens=("onnx",))
    model = Graph(name="g", blocks=(), metadata={"format": "onnx"})
    request = PrepareRequest(model="m", runtime="e", threads=3, seed=4, sizes={"n": 2}, workload=Workload(batch=2))
    found = _proving(request, Path("m.onnx"), model, engine)
    assert (found.original.runtime, found.original.sizes, found.device, found.here) == ("e", {"n": 2}, "local", True)
    assert (found.threads, found.seed, found.workload, found.graph) == (3, 4, Workload(batch=2), model)
    assert (found.plan.runs, found.plan.warmup, found.plan.seconds, found.plan.seconds_at_most) == (15, 3, 0.0, 60.0)
    assert _proving(replace(request, runs=4), Path("m"), model, engine).plan.runs == 4
    other = _proving(
        replace(request, device="nvidia-t4"), Path("m"), replace(model, metadata={"format": "pt2"}), engine
    )
    assert (other.original.runtime, other.device, other.here) == ("reference", "nvidia-t4", False)
    assert not _proving(replace(request, measure=False), Path("m"), model, engine).here
    assert _proving(replace(request, device="local:cpu"), Path("m"), model, engine).here


def test_only_what_is_undecided_for_a_reason_is_doubted():
    made = MeasuredGain(gain=1.0, low=None, high=None, verdict="undecided", reason="few", profile=None)
    assert _doubts(made) == ("Undecided: few.",)
    assert _doubts(replace(made, reason="")) == _doubts(replace(made, verdict="faster")) == ()


def test_a_package_is_refused_for_its_compiler_or_for_the_model():
    class CxxMissing(Exception):  # noqa: N818 - PyTorch's is called InvalidCxxCompiler
        pass

    for error in (CxxMissing("none found"), RuntimeError("no working Compiler")):
        assert aotinductor._refused(error).message.startswith("PyTorch found no C++ compiler: ")
    assert aotinductor._refused(RuntimeError("odd op.\nmore")).message == "PyTorch cannot compile it: odd op."


def test_kernels_of_a_package_stand_for_modules_or_nodes_in_the_order_of_their_numbers(tmp_path):
    def made(name, *stack, op="call_function"):
        return SimpleNamespace(name=name, op=op, meta={"nn_module_stack": dict(enumerate(stack))} if stack else {})

    nodes = [
        made("a", ("", "Top"), ("body.0", "Linear")),
        made("b"),
        made("c", ("", "Top")),
        made("d", op="placeholder"),
    ]
    assert [aotinductor._layer(node) for node in nodes[:3]] == ["body.0", "b", "c"]
    told = {"extern_kernels.mm:10": {"pre_grad_nodes": ["b", "d"]},
            "cpp_fused_add_relu_0:2": {"pre_grad_nodes": ["a", "a", "c"]},
            "cpp_fused_1:3": {}}  # fmt: skip
    program = SimpleNamespace(graph=SimpleNamespace(nodes=nodes))
    with zipfile.ZipFile(tmp_path / "p.pt2", "w") as archive:
        assert aotinductor._calls(archive, "r/", program) == []
        archive.writestr("r/data/aotinductor/model/kernel_information.json", json.dumps(told))
        calls = aotinductor._calls(archive, "r/", program)
    assert [layers for _, layers in calls] == [["body.0", "c"], [], ["b"]]
    assert calls[2][0] == "aten::mm"


def test_libraries_are_told_to_stay_off_the_network(monkeypatch):
    for switch in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.setenv(switch, "0")
    checkpoint.offline()
    assert [os.environ[switch] for switch in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")] == ["1", "1"]  # noqa: TID251


def test_a_step_that_failed_has_a_row_with_its_reason():
    row = run._failed(step_named("simplify"), "broke")
    assert (row.name, row.format, row.bytes, row.seconds, row.cached) == ("simplify", "onnx", None, 0.0, False)
    assert (row.verdict, row.kept, row.notes) == ("failed", False, ("broke",))


def test_convolutions_quantised_while_they_run_have_unsigned_weights_and_products_signed_ones(tmp_path):
    """ConvInteger multiplies signed weights number by number on x86-64: six times slower, and slower than floats."""
    source, out = convolution_onnx(tmp_path / "net.onnx"), tmp_path / "made" / "model.onnx"
    out.parent.mkdir()
    quantise_dynamic(ToolOrder(source=source, target=out, format="onnx"))
    graph = onnx.load(out).graph
    stored = {tensor.name: tensor.data_type for tensor in graph.initializer}
    kinds = {node.op_type: stored[node.input[1]] for node in graph.node if node.op_type.endswith("Integer")}
    assert kinds == {"ConvInteger": onnx.TensorProto.UINT8, "MatMulInteger": onnx.TensorProto.INT8}
    assert [path.name for path in out.parent.iterdir()] == ["model.onnx"]
