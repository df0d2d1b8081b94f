"""Vision models of transformers, whose modules have other names than our graphs: every layer is found all the same."""

import json
from math import isclose

import pytest

from inferometer.core.sizes import bind
from inferometer.core.workload import Workload
from inferometer.engines.base import Target
from inferometer.engines.results.words import kind_of
from inferometer.engines.torch import eager
from inferometer.engines.torch.host import modules_renamed
from inferometer.formats.detect import read_graph
from inferometer.measure.run.correct import Corrected, steady_mean
from inferometer.measure.run.inputs import make_inputs
from inferometer.measure.run.layers import graph_layers
from inferometer.measure.run.ops import measured_ops

transformers = pytest.importorskip("transformers", reason="transformers is not installed: there is no module to run")
pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries' own remarks

LAYERED = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 56, "patch_size": 14}
STAGED = {"embedding_size": 8, "depths": [2, 1], "image_size": 64}
CONFIGS = {
    "ResNetForImageClassification": {**STAGED, "hidden_sizes": [16, 32], "layer_type": "bottleneck"},
    "ResNetModel": {**STAGED, "hidden_sizes": [8, 16], "layer_type": "basic"},
    "ConvNextForImageClassification": {
        "hidden_sizes": [8, 16], "depths": [2, 1], "patch_size": 4, "image_size": 64, "num_stages": 2
    },
    "ViTForImageClassification": {**LAYERED, "intermediate_size": 64},
    "DeiTForImageClassification": {**LAYERED, "intermediate_size": 64},
    "Dinov2ForImageClassification": LAYERED,
    "SwinForImageClassification": {
        "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 2], "image_size": 56, "window_size": 7, "patch_size": 4
    },
}  # fmt: skip
WITH_WEIGHTS = frozenset({"convolution", "linear", "norm"})


def model_of(name):
    kind = getattr(transformers, name)
    return kind._from_config(kind.config_class(**CONFIGS[name], architectures=[name]))


@pytest.mark.parametrize("name", CONFIGS)
def test_every_layer_of_a_vision_model_has_its_kernels(name, tmp_path):
    config = getattr(transformers, name).config_class(**CONFIGS[name], architectures=[name])
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict()), encoding="utf-8")
    graph = read_graph(tmp_path)
    binding = bind(graph, Workload())
    session = eager.open(Target(path=tmp_path, format="config", instrument=True, threads=1))
    layers = graph_layers(graph, binding, session.opened.stored_names)
    session.feed(make_inputs(session.opened.inputs, sizes=binding.sizes))
    for _ in range(2):
        session.step()
    kernels = session.kernels()["forward"]
    session.close()
    times = tuple(steady_mean(kernel.samples_s) for kernel in kernels)
    ops = measured_ops(
        kernels, Corrected(times_s=times, unattributed_s=0.0, raw_s=sum(times), cost_s=0.0, scale=1.0), layers
    )
    assert not [op.name for op in ops if op.block is None and op.kind in WITH_WEIGHTS]
    assert isclose(sum(op.flops or 0.0 for op in ops), sum(layer.flops for layer in layers.by_name.values()))
    for kernel in kernels:  # and the layer is of the kernel's kind
        if kind_of(kernel.kind) in WITH_WEIGHTS:
            assert {layer.kind for layer in layers.find(kernel.layers, "")} <= WITH_WEIGHTS, kernel


@pytest.mark.parametrize("name", ["ResNetForImageClassification", "ConvNextForImageClassification"])
def test_a_checkpoint_in_transformers_names_is_the_configs_graph(name, tmp_path):
    model = model_of(name)
    model.save_pretrained(tmp_path)
    graph = read_graph(tmp_path)
    assert graph.metadata["format"] == "safetensors"
    assert graph.metadata["notes"] == ()
    assert graph.parameters == sum(weight.numel() for weight in model.parameters())
    assert any(op.kind == "convolution" for _, op in graph.ops())


def test_modules_are_renamed_as_the_weights_in_them_are():
    weights = {
        "v.layers.0.attention.q.weight": "v.encoder.layer.0.attention.self.query.weight",
        "v.layers.0.attention.o.weight": "v.encoder.layer.0.attention.output.dense.weight",
        "v.layers.0.mlp.up.weight": "v.encoder.layer.0.inner.dense.weight",
        "head.weight": "head.weight",
    }
    modules = ["v", "v.layers", "v.layers.0", "v.layers.0.attention", "v.layers.0.attention.q", "v.layers.0.mlp",
               "v.layers.0.mlp.up", "v.layers.0.mlp.act", "head"]  # fmt: skip
    renamed = modules_renamed(weights, modules)
    assert renamed["v.layers.0.attention"] == "v.encoder.layer.0.attention"
    assert renamed["v.layers.0.attention.q"] == "v.encoder.layer.0.attention.self.query"
    assert renamed["v.layers.0.mlp.act"] == f"{renamed['v.layers.0.mlp']}.act"
    assert "head" not in renamed
    assert modules_renamed({"a.b.weight": "a.b.weight"}, ["a", "a.b"]) == {}
