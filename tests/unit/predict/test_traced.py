"""A catalog model that is a package's network too is predicted as it was traced, and from its config at other sizes."""

import pytest

import inferometer as im
from inferometer.formats.networks.shipped import is_shipped
from inferometer.known.zoo import models
from inferometer.predict.ask import graphs_named, model_graph

GRAPH = {"on": "nvidia-h200", "runtime": "torch-graph", "weights": "bf16", "activations": "bf16"}


def seconds(model, **asked):
    return im.predict(model, **GRAPH, **asked).summary.latency_s


def test_every_network_that_a_row_names_is_shipped_with_as_many_parameters():
    named = {name: row for name, row in models().items() if row.network is not None}
    assert {"swin-t", "swin-s", "swin-b"} <= named.keys()
    for name, row in named.items():
        assert is_shipped(row.network)
        assert model_graph(name).parameters == row.parameters.value == model_graph(row.network).parameters


def test_a_name_and_its_alias_lead_to_the_traced_graph():
    assert seconds("swin-t") == seconds("swin_t") == seconds("torchvision:swin_t")
    assert model_graph("swin-t").name == "swin-t"


def test_a_size_that_is_asked_for_is_read_from_the_config_through_every_door():
    assert seconds("swin-t", image=224) < seconds("swin-t", image=448)
    rows = im.sweep(
        models="swin-t", devices=GRAPH["on"], runtimes=GRAPH["runtime"], weights="bf16", activations="bf16",
        image=[224, 448],
    )  # fmt: skip
    assert rows["latency_s"].tolist() == pytest.approx([seconds("swin-t", image=side) for side in (224, 448)])


def test_a_measured_run_may_be_of_either_graph():
    traced, configured = graphs_named("swin-t")
    assert traced.name == configured.name == "swin-t"
    assert "image" in configured.symbols
    assert "image" not in traced.symbols
    assert len(graphs_named("resnet50")) == 1
