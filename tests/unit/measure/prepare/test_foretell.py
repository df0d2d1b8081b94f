"""What quantising would bring is told before anything is made, op by op; and a search keeps to its goals."""

import json

import pytest
from click.testing import CliRunner

from inferometer.cli.commands.prepare import command
from inferometer.core.errors import DomainError
from inferometer.measure.prepare import search as searching
from inferometer.measure.prepare.foretell import Foretold, foretell
from inferometer.measure.prepare.run import Prepared, PrepareRequest
from inferometer.measure.prepare.search import Found, Goal, chosen, parse_goal
from inferometer.predict.gains import Gain


def gain(value, low, high):
    return Gain(
        change="x", phase="forward", before_s=1.0, after_s=1 / value, gain=value, low=low, high=high,
        throughput_gain=value,
    )  # fmt: skip


def test_every_format_of_a_target_is_foretold_and_its_ops_add_up():
    found = foretell(PrepareRequest(model="mobilenet-v2", runtime="onnxruntime", device="raspberry-pi-5"))
    assert {"i8", "i8-dynamic"} <= {row.quantise for row in found}
    for row in found:
        assert row.reason is None
        assert sum(op.before_s for op in row.ops) == pytest.approx(row.gain.before_s, rel=0.05)
        assert sum(op.after_s for op in row.ops) == pytest.approx(row.gain.after_s, rel=0.05)
    whole = next(row for row in found if row.quantise == "i8")
    slower = next(row for row in found if row.quantise == "i8-dynamic")
    assert whole.gain.gain > 2
    assert slower.verdict in {"slower", "likely slower"}, (
        "quantising activations while it runs costs more than it gains"
    )
    assert whole.weight_bytes == pytest.approx(3.5e6, rel=0.05)


def test_what_an_engine_computes_in_other_formats_is_the_reason():
    (found,) = foretell(
        PrepareRequest(model="mobilenet-v2", runtime="openvino", device="raspberry-pi-5", quantise="int8")
    )
    assert found.quantise == "i8"
    assert any("convolution ops of i8 are computed in f32 by openvino" in note for note in found.why)


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        (gain(2.0, 1.2, 3.0), "faster"), (gain(0.5, 0.3, 0.9), "slower"), (gain(1.2, 0.8, 1.5), "likely faster"),
        (gain(0.8, 0.6, 1.1), "likely slower"), (gain(1.01, 0.9, 1.1), "no gain"), (None, None),
    ],
)  # fmt: skip
def test_a_verdict_is_as_sure_as_its_interval(given, verdict):
    assert Foretold(quantise="i8", gain=given).verdict == verdict


def test_the_command_makes_nothing_and_shows_the_ops_of_one_format(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = ["resnet50", "--for", "onnxruntime@raspberry-pi-5", "--dry"]
    shown = CliRunner().invoke(command, [*asked, "--quantise", "i8"])
    assert (shown.exit_code, "What i8 changes" in shown.output) == (0, True), shown.output
    document = json.loads(CliRunner().invoke(command, [*asked, "--format", "json"]).stdout)
    assert {row["quantise"]: row["verdict"] for row in document["formats"]}["i8"] == "faster"
    assert list(tmp_path.iterdir()) == []


def prepared(gain, size, drift):
    return Prepared(
        model="m", runtime="r", device="local", quantise=None, original_bytes=100, steps=(), artifact=None,
        measured_gain=gain, bytes=size, drift=drift,
    )  # fmt: skip


def test_a_search_marks_what_keeps_its_goals_and_takes_the_fastest_of_it(monkeypatch):
    made = {None: prepared(None, None, None), "i8": prepared(3.0, 25, 0.03), "f16": prepared(1.5, 50, 0.001)}
    monkeypatch.setattr(searching, "carry_out_request", lambda request: made[request.quantise])
    monkeypatch.setattr(searching, "starting_format", lambda *_: ("onnx", False))
    monkeypatch.setattr(searching, "formats_for", lambda *_, **__: ("i8", "f16"))
    request = PrepareRequest(model="m", runtime="onnxruntime")
    found = searching.search(
        request, budget_s=1e9, goals=[Goal(name="drift", most=0.01), Goal(name="latency", most=0.7)]
    )
    assert {row.quantise: row.meets for row in found} == {"as it is": False, "i8": False, "f16": True}
    assert chosen(found).quantise == "f16"
    wide = searching.search(request, budget_s=1e9, goals=[Goal(name="size", most=0.5)])
    assert chosen(wide).quantise == "i8", "both keep it, and it is the faster"
    assert chosen(searching.search(request, budget_s=1e9)) is None, "nothing was aimed at"
    unknown = Found(quantise="x", prepared=prepared(2.0, 10, None))
    assert not Goal(name="drift", most=1.0).met_by(unknown), "what is not known is not kept"


def test_goals_are_read_as_people_write_them():
    assert parse_goal("drift<=1%") == Goal(name="drift", most=0.01)
    assert parse_goal(" Latency ≤ 0.7x") == Goal(name="latency", most=0.7)
    assert parse_goal("size<0.5") == Goal(name="size", most=0.5)
    for wrong in ("drift", "speed<=2", "drift>=1%", "size<=.", "size<=1.2.3"):
        with pytest.raises(DomainError, match="is no goal"):
            parse_goal(wrong)
