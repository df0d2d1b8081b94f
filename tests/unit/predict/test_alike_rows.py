"""Ops that graphs have in common are counted once for all of them, and come out as if each were counted alone."""

from dataclasses import replace

import numpy as np
import pytest

from inferometer.core.kept import Kept
from inferometer.core.workload import Parallel, Precision
from inferometer.formats.networks.shipped import shipped_graph
from inferometer.known.engines import runtime_effects
from inferometer.predict.parallel import place
from inferometer.predict.work import collect as collecting
from inferometer.predict.work import prepare as preparing
from inferometer.predict.work.collect import collect
from inferometer.predict.work.merge import with_sizes
from inferometer.predict.work.prepare import Terms, prepare

NETWORKS = ("resnet18", "resnet34", "mobilenetv3_small_100", "vit_tiny_patch16_224", "swin_tiny_patch4_window7_224")


def prepared(name, engine, form):
    graph = shipped_graph("timm", name, 224)
    terms = Terms(precision=Precision(weights=form, activations=form), effects=runtime_effects(engine))
    return prepare(graph, place(graph, Parallel()), terms)


def test_what_two_graphs_share_is_counted_as_if_it_were_one_s_alone(monkeypatch):
    asked = [
        (name, engine, form)
        for engine in ("torch-compile", "torch-eager", "onnxruntime")
        for form in ("f16", "bf16", "f32")
        for name in NETWORKS
    ]
    shared = [prepared(*each) for each in asked]
    for each, found in zip(asked, shared, strict=True):
        monkeypatch.setattr(preparing, "_of_alike", Kept(1))
        alone = prepared(*each)
        assert (found.keys, found.monomials, found.loose) == (alone.keys, alone.monomials, alone.loose), each
        assert np.array_equal(found.matrix, alone.matrix), each


@pytest.mark.parametrize("name", NETWORKS)
def test_rows_do_not_depend_on_what_a_graph_was_collected_for_before(monkeypatch, name):
    graph = shipped_graph("timm", name, 224)
    placed = place(graph, Parallel())
    engines = [runtime_effects(engine) for engine in ("torch-eager", "torch-compile", "onnxruntime")]
    for effects, found in [(effects, collect(graph, placed, effects)) for effects in engines]:
        monkeypatch.setattr(collecting, "_tokens", Kept(1))
        alone = collect(graph, placed, effects)
        assert (found.rows, found.entries) == (alone.rows, alone.entries)


def test_a_graph_without_a_size_is_not_made_anew_for_it():
    graph = shipped_graph("timm", "resnet18", 224)
    assert "image" not in graph.symbols
    assert with_sizes(graph, {"image": 224, "height": 224}) is graph
    sized = with_sizes(graph, {"batch": 3})
    assert "batch" not in sized.symbols


@pytest.mark.parametrize("value", [np.array([1.0]), {"unhashable"}])
def test_an_attribute_that_cannot_be_compared_makes_an_op_like_no_other(value):
    """By its id it would be like whatever comes to lie in its place."""
    graph = shipped_graph("timm", "resnet18", 224)
    block = graph.blocks[0]

    def collected():
        ops = tuple(replace(op, attributes={**op.attributes, "note": value}) for op in block.ops)
        noted = replace(graph, blocks=(replace(block, ops=ops), *graph.blocks[1:]))
        return collect(noted, place(noted, Parallel()), runtime_effects("torch-eager"))

    first, again = collected(), collected()
    noted = [(one, two) for one, two in zip(first.rows, again.rows, strict=True) if "note" in one.op.attributes]
    assert len(noted) == len(block.ops)
    assert all(one.alike is not two.alike for one, two in noted)
