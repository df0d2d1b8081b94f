"""ONNX files that are written, read back by `onnx` and by our own reader: the same numbers, parameters and sizes."""

import numpy as np
import pytest

from inferometer.core.binding import Binding
from inferometer.core.dims import evaluate
from inferometer.formats.huggingface.graph import graph_from_config
from inferometer.formats.onnx import reader, write
from inferometer.formats.onnx.write.lowering import lower, numbers_of
from inferometer.formats.synth import synthesise
from inferometer.formats.synth.weights import whole
from unit.formats.synth.test_onnx_lowering import LLAMA

onnx = pytest.importorskip("onnx", reason="onnx is not installed: nothing can be written")
SIZES = {"batch": 2, "query": 3, "context": 5, "logits": 1}
RESNET = {
    "model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic",
    "num_channels": 3, "architectures": ["ResNetForImageClassification"], "num_labels": 5,
}  # fmt: skip


def lowered(float_type="float32"):
    graph = graph_from_config(LLAMA, name="tiny")
    return graph, lower(graph, numbers_of(LLAMA), {"logits": 1}, float_type=float_type)


@pytest.mark.parametrize("float_type", ["float32", "float16"])
@pytest.mark.parametrize("beside", [False, True])
def test_every_number_is_where_the_file_says(tmp_path, monkeypatch, beside, float_type):
    monkeypatch.setattr(write, "CHUNK", 64)  # pieces that end within a matrix
    graph, nodes = lowered(float_type)
    path = tmp_path / "m.onnx"
    with path.open("wb") as file:
        write.write_model(file, nodes, graph, 7, data="m.data" if beside else None)
    if beside:
        write.write_data(tmp_path / "m.data", nodes, 7)
        assert (tmp_path / "m.data").stat().st_size == write.data_bytes(nodes)
    kept = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer}
    assert kept.keys() == nodes.stored.keys()
    for name, stored in nodes.stored.items():
        numbers = whole(stored.weight, 7).reshape(stored.weight.shape)
        expected = (numbers.T if stored.transposed else numbers).astype(float_type)
        assert kept[name].dtype == np.dtype(float_type)
        assert np.array_equal(kept[name], expected), name


def test_weights_beside_a_model_begin_on_pages_and_do_not_overlap(tmp_path):
    graph, nodes = lowered()
    with (tmp_path / "m.onnx").open("wb") as file:
        write.write_model(file, nodes, graph, 7, data="m.data")
    model = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    places = [{entry.key: entry.value for entry in tensor.external_data} for tensor in model.graph.initializer]
    end = 0
    for place, tensor in zip(places, model.graph.initializer, strict=True):
        assert (place["location"], int(place["length"])) == ("m.data", 4 * int(np.prod(tensor.dims)))
        assert int(place["offset"]) == -(-end // write.ALIGNMENT) * write.ALIGNMENT
        end = int(place["offset"]) + int(place["length"])
    assert {entry.key: entry.value for entry in model.metadata_props} == {
        "inferometer.weights": "random, seed 7", "inferometer.parameters": str(graph.parameters)
    }  # fmt: skip


@pytest.mark.parametrize("config", [LLAMA, RESNET], ids=["llama", "resnet"])
def test_a_written_model_has_the_parameters_and_products_of_the_graph(tmp_path, config):
    """Multiply-adds of products with weights, counted in the graph and in the file that was made of it."""
    graph = graph_from_config(config, name="tiny")
    sizes = {"image": 32} if config is RESNET else {}
    synthesise(config, tmp_path / "m.onnx", sizes=sizes)
    back = reader.read(tmp_path / "m.onnx")
    assert back.parameters == graph.parameters
    assert multiply_adds(back, {**SIZES, **sizes}) == multiply_adds(graph, {**SIZES, **sizes})


def multiply_adds(graph, sizes):
    names = {name: sizes[name] for name in graph.symbols}
    binding, total = Binding(sizes=names), 0
    for block, op in graph.ops():
        if op.kind in {"linear", "convolution"}:
            weight = next(weight for weight in op.weights if len(weight.shape) > 1)
            width = weight.shape[0] if op.kind == "convolution" else evaluate(op.outputs[0].shape[-1], names)
            total += block.count * binding.elements(op.outputs[0]) // width * weight.elements
    return total
