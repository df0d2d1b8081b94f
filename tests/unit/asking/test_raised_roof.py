"""A roof that an engine was seen above is no roof."""

from inferometer.asking.roof import raised
from inferometer.core.device import Sourced
from inferometer.core.profile import DeviceFacts, Headline, ModelFacts, OpTime, Phase, Profile
from inferometer.core.workload import Workload
from unit.cost.machines import machine


def roof(rate, origin="measured"):
    return machine(peaks={"f32": Sourced(value=rate, origin=origin, source="numpy", date="2026-11-15")})


def profile(*ops):
    phase = Phase(name="forward", time_s=sum(op.time_s for op in ops), ops=ops)
    return Profile(
        kind="measured", model=ModelFacts(name="m"), device=DeviceFacts(name="local"), workload=Workload(),
        phases=(phase,), summary=Headline(), runtime="onnxruntime",
    )  # fmt: skip


FAST = OpTime(name="fast", kind="convolution", time_s=1e-3, flops=3e8)
SLOW = OpTime(name="slow", kind="convolution", time_s=9e-3, flops=9e8)


def test_a_measured_peak_is_raised_to_what_an_op_reached():
    found = raised(roof(2e11), profile(FAST, SLOW)).peaks["f32"]
    assert (float(found), found.source) == (3e11, "onnxruntime: the best of the ops it ran")


def test_a_peak_above_all_ops_stays():
    assert raised(roof(4e11), profile(FAST, SLOW)) == roof(4e11)


def test_a_datasheet_is_not_raised():
    assert raised(roof(2e11, origin="datasheet"), profile(FAST)) == roof(2e11, origin="datasheet")


def test_an_op_too_short_to_be_read_well_lifts_nothing():
    dust = OpTime(name="dust", kind="convolution", time_s=1e-6, flops=1e9)
    assert float(raised(roof(2e11), profile(dust, SLOW)).peaks["f32"]) == 2e11


def test_ops_of_no_known_work_say_nothing():
    assert raised(roof(2e11), profile(OpTime(name="x", kind="view", time_s=1.0))) == roof(2e11)
