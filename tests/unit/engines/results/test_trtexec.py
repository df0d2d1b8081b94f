import pytest

from inferometer.core.errors import FormatError
from unit.engines.results.sources import only, parsed, taken, times, written


def test_a_profile_gives_the_mean_of_each_layer():
    profile = only("trtexec_profile.json")
    forward = profile.phase("forward")
    assert list(times(forward).values()) == pytest.approx([205, 5, 40])
    assert forward.time_s == pytest.approx(250e-6)
    assert forward.unattributed_s is None
    assert [op.kind for op in forward.ops] == ["convolution", "copy", "linear"]
    assert profile.environment.host["iterations"] == 100
    assert profile.summary.top_unit == "gpu"


def test_times_give_a_sample_for_each_query_and_its_parts():
    forward = only("trtexec_times.json").phase("forward")
    assert forward.samples_s == pytest.approx((2.75e-3, 3.25e-3, 3.75e-3))
    assert forward.time_s == pytest.approx(3.25e-3)
    assert forward.parts == pytest.approx({"write": 0.5e-3, "run": 2.5e-3, "read": 0.25e-3})


def test_a_latency_that_is_not_there_is_the_sum_of_its_parts(tmp_path):
    rows = [{key: value for key, value in row.items() if key != "latencyMs"} for row in parsed("trtexec_times.json")]
    (profile,) = taken(written(tmp_path, rows))
    assert profile.phase("forward").samples_s == pytest.approx((2.75e-3, 3.25e-3, 3.75e-3))


def test_a_layer_whose_name_is_free_has_no_known_kind(tmp_path):
    rows = [{"count": 1}, {"name": "conv_like_name", "averageMs": 1.0}]
    (profile,) = taken(written(tmp_path, rows))
    assert profile.phase("forward").ops[0].kind == "custom"


@pytest.mark.parametrize("wrong", [-1, None, "x", float("inf")])
def test_a_time_that_cannot_be_is_named(tmp_path, wrong):
    rows = parsed("trtexec_times.json")
    rows[1]["latencyMs"] = wrong
    rows[1]["computeMs"] = wrong
    with pytest.raises(FormatError, match="of query 1"):
        taken(written(tmp_path, rows))
