"""Torch's own counter agrees with ours on models where it counts everything.

FlopCounterMode counts products: matrices, convolutions and attention, two operations a multiply-add. It leaves out
biases, norms, activations and softmax, and for causal attention it counts the whole square of pairs. So the products of
our ops are compared, without biases and softmax, and attention once as torch counts it and once as it is. Both sides
see tensors on the meta device: nothing is computed.
"""

from dataclasses import replace
from functools import cache

import pytest

from inferometer.core.binding import Binding
from inferometer.predict import coverage, op_works, work_of

torch = pytest.importorskip("torch", reason="torch is not installed: live modules are not compared with its counter")

from inferometer.formats.torch import read_module  # noqa: E402 - after the skip
from unit.formats.torch import models  # noqa: E402

FlopCounterMode = pytest.importorskip("torch.utils.flop_counter").FlopCounterMode
IMAGE = (1, 3, 224, 224)

# name: (module, input, parameters as published, multiply-adds as published)
# ResNet-50, MobileNetV2 and ViT-B/16: https://pytorch.org/vision/stable/models.html (num_params, GFLOPS as it calls
# multiply-adds). GPT-2: https://huggingface.co/openai-community/gpt2, 124M, 124,439,808 in its safetensors header.
MODELS = {
    "mlp": (models.Mlp, (64, 784), None, None),
    "resnet50": (models.ResNet, IMAGE, 25_557_032, 4.09e9),
    "mobilenet_v2": (models.MobileNetV2, IMAGE, 3_504_872, 0.30e9),
    "vit_b_16": (models.VisionTransformer, IMAGE, 86_567_656, 17.56e9),
    "gpt2": (models.Gpt, (2, 256), 124_439_808, None),
}


@cache
def built(name):
    """The module and its input, made once for all tests, as its graph is: each takes a second."""
    make, shape, *_ = MODELS[name]
    with torch.device("meta"):
        module = make().eval()
        x = torch.empty(shape, dtype=torch.long) if name == "gpt2" else torch.empty(shape)
    return module, x


@cache
def graph_of(name):
    module, x = built(name)
    return read_module(module, (x,))


def counted_by_torch(name):
    module, x = built(name)
    with FlopCounterMode(display=False) as counter:
        module(x)  # with gradients on, so that no fused encoder layer hides its products
    return counter.get_total_flops()


def products(graph, *, square):
    """Operations of the products alone. `square` counts causal attention as all pairs, as torch does."""
    return sum(block.count * _products(op, square=square) for block, op in graph.ops())


def _products(op, *, square):
    if op.kind in {"linear", "convolution"}:
        return work_of(replace(op, weights=op.weights[:1]), Binding()).total_flops
    if op.kind == "matmul":
        return work_of(replace(op, inputs=op.inputs[:2]), Binding()).total_flops
    if op.kind == "attention":
        op = replace(op, attributes={**op.attributes, "causal": op["causal"] and not square})
        width = 2 * (op["head_dim"] + op["value_dim"])
        return work_of(op, Binding()).total_flops * width // (width + 5)  # 5 a pair are the softmax
    return 0


@pytest.mark.parametrize("name", MODELS)
def test_products_agree_with_torchs_counter(name):
    assert products(graph_of(name), square=True) == pytest.approx(counted_by_torch(name), rel=0.01)


@pytest.mark.parametrize("name", MODELS)
def test_every_op_is_covered_and_every_parameter_is_there_once(name):
    graph, published = graph_of(name), MODELS[name][2]
    assert coverage(graph).share == 1
    assert graph.parameters == sum(p.numel() for p in built(name)[0].parameters())
    assert published in {None, graph.parameters}


@pytest.mark.parametrize("name", ["resnet50", "mobilenet_v2", "vit_b_16"])
def test_multiply_adds_are_those_published(name):
    assert products(graph_of(name), square=True) / 2 == pytest.approx(MODELS[name][3], rel=0.01)


def test_a_causal_model_needs_about_half_the_pairs_that_torch_counts():
    graph = graph_of("gpt2")
    whole, counted = products(graph, square=True), products(graph, square=False)
    tokens, layers, width = 256, 12, 768
    assert whole - counted == 2 * layers * 4 * width * (tokens * tokens - tokens * (tokens + 1) // 2)


def test_what_torch_leaves_out_is_small_in_a_convolutional_network():
    total = sum(block.count * work.total_flops for block, _, work in op_works(graph_of("resnet50"), Binding()))
    assert 1 < total / counted_by_torch("resnet50") < 1.02
