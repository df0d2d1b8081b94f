"""What is not known is absent and said; it is never a number that happens to be zero."""

from dataclasses import replace
from math import isnan

import pytest

from inferometer.core import Block, Graph, Op, Parallel, Workload
from inferometer.core.engine import Overheads, RuntimeEffects
from inferometer.core.errors import DomainError
from inferometer.known import device as device_named
from inferometer.predict.answer import predict_graph
from inferometer.predict.memory.fit import fit
from inferometer.predict.options import EnergyCosts, Options
from inferometer.predict.sweep import run_study, study_of
from inferometer.understand.view.cards import device_card
from inferometer.understand.view.phrases import phase_remarks
from inferometer.understand.view.records import ops_per_joule
from unit.predict.decoders import LLAMA_3_1_8B, project, tokens
from unit.predict.machines import MACHINE, WIRE, machine, stated

CHAT = Workload(prompt=64, generate=8)


def predict(device=MACHINE, graph=LLAMA_3_1_8B, workload=CHAT, **options):
    return predict_graph(graph, device, workload=workload, options=Options(**options))


def notes(profile, word):
    return [note for note in profile.provenance.notes if word in note]


@pytest.mark.parametrize("link", [MACHINE.host_link, None])
def test_where_the_storage_is_not_known_loading_is_absent(link):
    """Not 0 s and 0 J, and not the host link's part alone."""
    profile = predict(machine(kind="toaster", host_link=link))
    assert [phase.name for phase in profile.phases] == ["prefill", "decode"]
    assert "not predicted" in notes(profile, "storage")[0]


def test_loading_is_there_where_the_storage_is_given():
    assert predict(machine(kind="toaster"), storage_bytes_per_s=1e9).phase("load").time_s > 16


def test_an_op_that_cannot_be_counted_has_no_work():
    known = project("p", "x", "q", 128, 128)
    ops = (known, Op(name="odd", kind="custom", inputs=known.outputs))
    model = Graph(name="odd", blocks=(Block(name="all", ops=ops),), inputs=(tokens("x", 128),), precision="bf16")
    found, odd = predict(graph=model, workload=Workload(prompt=1)).phase("forward").ops
    assert (odd.name, odd.flops, odd.bytes) == ("odd", None, None)
    assert found.flops
    assert found.bytes


def odd_model(*ops):
    return Graph(name="odd", blocks=(Block(name="all", ops=ops),), inputs=(tokens("x", 128),), precision="bf16")


def loop(*body, trips):
    return Op(name="loop", kind="control", source_type="Loop", attributes={"bodies": (body,), "trips": trips})


ODD = Op(name="odd", kind="custom", source_type="acme.Odd")
KNOWN = project("p", "x", "q", 128, 128)
FORWARD = Workload(prompt=1)


@pytest.mark.parametrize("unknown", [ODD, loop(KNOWN, trips=None), loop(KNOWN, ODD, trips=3)])
def test_a_time_with_work_that_nobody_knows_has_no_high_end(unknown):
    """Not in a prediction, not in its headline, and not in a row of a sweep."""
    model = odd_model(KNOWN, unknown)
    profile = predict(graph=model, workload=FORWARD)
    phase = profile.phase("forward")
    assert (phase.high_s, profile.summary.latency_high_s) == (None, None)
    assert profile.summary.latency_low_s == phase.low_s > 0
    assert phase_remarks(phase)[0].startswith("at least ")
    asked = {"models": model, "devices": MACHINE, "runtimes": "ideal", "prompt": 1}
    row = run_study(study_of(asked, details=True))
    assert isnan(row["latency_high_s"][0])
    assert row["latency_low_s"][0] == pytest.approx(phase.low_s)


def test_a_loop_whose_ops_are_all_known_has_both_ends():
    assert predict(graph=odd_model(loop(KNOWN, trips=3)), workload=FORWARD).summary.latency_high_s


@pytest.mark.parametrize("unknown", [ODD, loop(KNOWN, trips=None)])
def test_where_no_op_has_known_work_there_is_no_time(unknown):
    """A launch is not a prediction of what is launched."""
    with pytest.raises(DomainError, match=rf"time of odd is not known.*: {unknown.source_type}\. Measure it"):
        predict(graph=odd_model(unknown), workload=FORWARD)


def test_a_latency_that_is_not_known_is_said_where_devices_talk():
    wire = replace(WIRE, latency_s=None)
    plans = {"tp": Parallel(tp=2), "dp": Parallel(dp=2)}
    found = {name: predict(workload=replace(CHAT, batch=2, parallel=plan), link=wire) for name, plan in plans.items()}
    assert len(notes(found["tp"], "latency")) == 1
    assert notes(found["dp"], "latency") == []
    assert notes(predict(workload=replace(CHAT, parallel=plans["tp"]), link=WIRE), "latency") == []


def test_idle_power_that_is_not_known_is_said_where_energy_is_counted_by_the_operation():
    costs = EnergyCosts(joules_per_flop=1e-12, joules_per_byte=1e-11)
    assert len(notes(predict(machine(power_w=None), energy=costs), "idle power")) == 1
    assert notes(predict(energy=costs), "idle power") == []


def test_a_reserve_that_is_not_known_is_not_nothing():
    known = RuntimeEffects(name="t", title="t", overheads={"gpu": Overheads(reserve_bytes=stated(1e9))})
    assert fit(LLAMA_3_1_8B, MACHINE, workload=CHAT).reserve_bytes is None
    assert fit(LLAMA_3_1_8B, MACHINE, workload=CHAT, runtime=known).reserve_bytes == 1e9


def test_a_unit_of_a_chip_has_no_operations_per_watt():
    """28 W are the whole chip's; 50 TOPS are the NPU's. A module that is all its own device has both."""
    npu = device_named("amd-ryzen-ai-9-hx-370-npu")
    assert ops_per_joule(npu) is None
    remarks = [remark for label, _, remark in device_card(npu).facts if label == "per watt"]
    assert "whole chip" in remarks[0]
    assert ops_per_joule(device_named("hailo-8")) == pytest.approx(26e12 / 2.5)


def test_energy_counted_with_a_whole_chips_power_says_so():
    assert "the whole chip A1" in notes(predict(machine(unit="npu", chip="A1")), "Energy")[0]
    assert "the whole chip A1" in notes(predict(machine(chip="A1")), "Energy")[0]
    assert notes(predict(), "Energy") == []
