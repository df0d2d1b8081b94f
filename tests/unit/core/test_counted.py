"""How much of a phase has known work, and when it is compared with its floor."""

import pytest

from inferometer.core.profile import DeviceFacts, Headline, ModelFacts, OpTime, Phase, Profile
from inferometer.core.workload import Workload
from inferometer.understand.view.phrases import phase_remarks


def op(time_s, *, count=1, known=True):
    return OpTime(name="o", kind="conv", time_s=time_s, count=count, flops=1.0 if known else None)


def test_a_prediction_is_counted_by_ops_and_a_measurement_by_time():
    ops = (op(9.0), op(1.0, count=4, known=False))
    assert Phase(name="forward", time_s=10.0, ops=ops).counted == pytest.approx(0.2)
    assert Phase(name="forward", time_s=10.0, ops=ops, statistic="median").counted == pytest.approx(0.9)
    assert Phase(name="load", time_s=1.0).counted == 1


def test_a_floor_of_a_part_is_no_floor():
    most = Phase(name="forward", time_s=10.0, floor_s=5.0, bound="compute", ops=(op(9.6), op(0.4, known=False)))
    assert most.above_floor is None, "half of the ops are not counted"
    timed = Phase(name="forward", time_s=10.0, floor_s=5.0, bound="compute", ops=most.ops, statistic="median")
    assert timed.above_floor == 2.0, "nearly all of the time is"
    assert phase_remarks(timed) == ["2 × its floor", "bound by compute"]
    assert phase_remarks(most) == ["50% of the ops are ones whose work is not known"]


def test_a_profile_names_itself_with_the_first_time_that_it_has():
    def shown(runtime="ncnn", **times):
        facts = {"model": ModelFacts(name="net"), "device": DeviceFacts(name="pi"), "workload": Workload()}
        return repr(Profile(kind="measured", phases=(), summary=Headline(**times), runtime=runtime, **facts))

    assert shown(e2e_s=2.0, latency_s=0.005) == "<measured profile of net on pi with ncnn: 5 ms a pass>"
    assert shown(e2e_s=2.0) == "<measured profile of net on pi with ncnn: 2 s a request>"
    assert shown(runtime=None) == "<measured profile of net on pi>"
