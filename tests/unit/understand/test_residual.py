import json

import pytest
from click.testing import CliRunner

from inferometer.cli.commands.explain import command
from inferometer.core.codec import encode
from inferometer.core.errors import DomainError
from inferometer.core.profile import DeviceFacts, Headline, ModelFacts, OpTime, Phase, Profile
from inferometer.core.workload import Workload
from inferometer.understand.residual import explain_residual


def op(name, kind, measured, predicted, *, count=1, floor=None):
    return OpTime(name=name, kind=kind, time_s=measured, predicted_s=predicted, count=count,
                  floor_s=0.8 * predicted if floor is None else floor)  # fmt: skip


def story(*ops, measured=None, predicted=None):
    phase = Phase(
        name="forward",
        time_s=sum(each.time_s for each in ops) if measured is None else measured,
        predicted_s=sum(each.predicted_s for each in ops) if predicted is None else predicted,
        ops=ops,
    )
    profile = Profile(kind="measured", model=ModelFacts(name="m"), device=DeviceFacts(name="d"), workload=Workload(),
                      phases=(phase,), summary=Headline())  # fmt: skip
    (found,) = explain_residual(profile)
    return found


def test_all_kinds_off_alike_is_the_device():
    found = story(op("a", "linear", 1.4, 1.0), op("b", "norm", 0.42, 0.3), op("c", "attention", 0.7, 0.5))
    assert found.blame == "device"
    assert "40% slower" in found.sentence


def test_many_small_ops_off_is_the_runtime():
    small = [op(f"n{k}", "norm", 40e-6, 4e-6, floor=1e-7) for k in range(50)]
    found = story(op("a", "linear", 1e-3, 1e-3), *small)
    assert found.blame == "runtime"


def test_time_between_the_ops_is_the_runtime():
    found = story(op("a", "linear", 1e-3, 1e-3), op("b", "norm", 3e-4, 3e-4), measured=2e-3, predicted=1.3e-3)
    assert found.blame == "runtime"
    assert found.kinds[0].kind == "beside the layers"


def test_one_kind_off_is_the_model_and_its_layer_is_named():
    found = story(op("a", "linear", 1.0, 1.0), op("x", "attention", 2.0, 0.5), op("y", "attention", 0.6, 0.5))
    assert found.blame == "model"
    assert found.kinds[0].kind == "attention"
    assert "most of it in x" in found.sentence


def test_shares_are_signed_and_of_all_differences():
    found = story(op("a", "linear", 2.0, 1.0), op("b", "norm", 0.5, 1.0))
    assert {each.kind: each.share for each in found.kinds} == pytest.approx(
        {"linear": 2 / 3, "norm": -1 / 3, "beside the layers": 0.0}
    )


def test_kinds_that_cancel_out_never_have_more_than_all_of_the_difference():
    found = story(op("a", "linear", 3.0, 2.0), op("b", "norm", 0.5, 1.0), op("c", "attention", 1.0, 1.0))
    assert found.blame == "model"
    assert "67% of the difference is in linear" in found.sentence  # 1.0 of 1.0 + 0.5 s; it was 200 % of the 0.5 s


def test_what_is_near_needs_no_explanation():
    assert story(op("a", "linear", 1.05, 1.0)).blame == "none"


def test_a_profile_without_a_prediction_is_refused():
    phase = Phase(name="forward", time_s=1.0, ops=(OpTime(name="a", kind="linear", time_s=1.0),))
    profile = Profile(kind="measured", model=ModelFacts(name="m"), device=DeviceFacts(name="d"), workload=Workload(),
                      phases=(phase,), summary=Headline())  # fmt: skip
    with pytest.raises(DomainError, match="no prediction beside"):
        explain_residual(profile)


def test_the_command_tells_what_the_prediction_missed(tmp_path):
    ops = (op("a", "linear", 3.0, 1.0), op("b", "norm", 0.5, 0.5), op("c", "attention", 0.5, 0.5))
    phase = Phase(name="forward", time_s=4.0, predicted_s=2.0, ops=ops)
    profile = Profile(kind="measured", model=ModelFacts(name="m"), device=DeviceFacts(name="nvidia-l4"),
                      workload=Workload(), phases=(phase,), summary=Headline())  # fmt: skip
    path = tmp_path / "profile.json"
    path.write_bytes(encode(profile))
    told = CliRunner().invoke(command, [str(path), "--format", "json"])
    assert told.exit_code == 0, told.output
    (found,) = json.loads(told.stdout)["residual"]
    assert (found["blame"], found["kinds"][0]["kind"]) == ("model", "linear")
    page = CliRunner().invoke(command, [str(path)]).stdout
    assert "Against the prediction" in page
    assert "linear: 3 s, predicted 1 s, 100% of the difference" in page


def test_a_measurement_without_a_prediction_has_no_such_part(tmp_path):
    phase = Phase(name="forward", time_s=4.0, ops=(OpTime(name="a", kind="linear", time_s=4.0),))
    profile = Profile(kind="measured", model=ModelFacts(name="m"), device=DeviceFacts(name="nvidia-l4"),
                      workload=Workload(), phases=(phase,), summary=Headline())  # fmt: skip
    path = tmp_path / "profile.json"
    path.write_bytes(encode(profile))
    assert json.loads(CliRunner().invoke(command, [str(path), "--format", "json"]).stdout)["residual"] == []
    assert "Against the prediction" not in CliRunner().invoke(command, [str(path)]).stdout
