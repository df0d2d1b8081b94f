"""The graph and the device behind a profile's names."""

from dataclasses import replace

import pytest

import inferometer as im
from inferometer.core.errors import UnknownNameError
from inferometer.core.profile import DeviceFacts, ModelFacts
from inferometer.understand.judging import device_behind, graph_behind
from unit.understand.explain_cases import CPU, computing, explain, forward, judged_on, profile


def named(**facts):
    return replace(profile(forward(computing(1.0))), **facts)


def test_a_catalog_model_is_found_by_its_name():
    graph, why = graph_behind(named(model=ModelFacts(name="resnet50")), files=True)
    assert graph.name == "resnet50"
    assert why is None


def test_a_model_that_is_nowhere_leaves_gains_unpriced(tmp_path):
    gone = ModelFacts(name="mine", source=str(tmp_path / "gone.onnx"))
    graph, why = graph_behind(named(model=gone), files=True)
    assert graph is None
    assert "not priced" in why


def test_a_file_that_cannot_be_read_is_said(tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"no model")
    graph, why = graph_behind(named(model=ModelFacts(name="mine", source=str(tmp_path / "m.onnx"))), files=True)
    assert graph is None
    assert "not priced" in why


def test_a_catalog_device_is_found_by_its_name():
    found, why = device_behind(named(device=DeviceFacts(name="nvidia-l4")))
    assert (found.name, why) == ("nvidia-l4", None)


def test_the_device_that_is_named_wins_and_must_exist():
    assert device_behind(named(device=DeviceFacts(name="nvidia-l4")), "nvidia-t4")[0].name == "nvidia-t4"
    with pytest.raises(UnknownNameError):
        device_behind(named(), "nvidia-h2000")


def test_an_unknown_device_is_no_error_and_says_what_to_do():
    found, why = device_behind(named(device=DeviceFacts(name="Samsung Galaxy S24")))
    assert found is None
    assert "--on DEVICE" in why


def test_what_it_was_judged_by_counts_before_the_catalog():
    judged = judged_on(named(device=DeviceFacts(name="nvidia-l4")), CPU)
    assert device_behind(judged) == (CPU, None)


def test_a_machine_whose_roof_was_not_kept_has_none_here():
    found, why = device_behind(named(device=DeviceFacts(name="local")))
    assert found is None
    assert "has no roof" in why
    assert device_behind(named(device=DeviceFacts(name="local")), "local")[0].name == "local"


def test_a_guests_profile_reads_no_file_of_this_machine(tmp_path):
    row = tmp_path / "mine.toml"
    row.write_text("")
    assert device_behind(named(device=DeviceFacts(name=str(row))))[0] is None
    (tmp_path / "m.onnx").write_bytes(b"")
    graph, why = graph_behind(named(model=ModelFacts(name="mine", source=str(tmp_path / "m.onnx"))), files=False)
    assert graph is None
    assert "catalog has no" in why


def test_predictions_are_put_beside_a_bare_measurement():
    graph = im.read("resnet50")
    layer = graph.blocks[0].full_name(graph.blocks[0].ops[0].name)
    bare = replace(
        profile(forward(computing(0.5, layer, "convolution"))),
        model=ModelFacts(name="resnet50", parameters=25_557_032, weight_bytes=102_228_128),
        runtime="onnxruntime",
    )
    found = explain(bare, CPU, graph=graph).profile.phase("forward")
    assert found.predicted_s > found.floor_s > 0
    assert found.ops[0].predicted_s is not None


def test_a_workload_that_the_model_cannot_do_is_explained_without_prices():
    graph = im.read("llama-3.2-1b")
    odd = replace(profile(forward(computing(1.0))), workload=im.Workload(prompt=10**8, generate=2))
    assert any("no prediction" in note for note in explain(odd, CPU, graph=graph).notes)
