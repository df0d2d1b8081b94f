"""Shares of a request close: by phase, kind or unit they add up to what the request takes, whatever is stated."""

from math import fsum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.core.profile import DeviceFacts, Headline, ModelFacts, OpTime, Phase, Profile
from inferometer.core.request import (
    op_count,
    ops_by,
    outside_layers,
    phase_shares,
    repeats,
    request_s,
    request_shares,
    summed_request_s,
)
from inferometer.core.workload import Workload

times = st.sampled_from((0.25, 0.5, 1.0, 2.0, 3.5))
ops = st.lists(
    st.builds(
        OpTime, name=st.sampled_from(("a", "b")), kind=st.sampled_from(("linear", "norm")), time_s=times,
        count=st.integers(1, 3), unit=st.sampled_from((None, "cpu", "gpu")), device_s=st.sampled_from((None, 0.5)),
    ),
    max_size=4,
)  # fmt: skip
parts = st.dictionaries(st.sampled_from(("run", "sampling", "between", "wait")), times, max_size=3)


@st.composite
def profiles(draw):
    names = draw(st.sampled_from((("forward",), ("prefill", "decode"), ("load", "prefill", "decode"))))
    phases = tuple(Phase(name=name, time_s=draw(times), ops=tuple(draw(ops)), parts=draw(parts)) for name in names)
    stated = draw(st.sampled_from((None, 0.0, 5.0, 100.0)))
    return Profile(
        kind=draw(st.sampled_from(("measured", "predicted"))), model=ModelFacts(name="m"), device=DeviceFacts(name="d"),
        workload=Workload(prompt=4, generate=draw(st.sampled_from((None, 1, 5)))), phases=phases,
        summary=Headline(e2e_s=stated, latency_s=draw(st.sampled_from((None, 7.0)))),
    )  # fmt: skip


@given(profile=profiles())
def test_shares_add_up_to_the_request(profile):
    whole = request_s(profile)
    for by in ("phase", "kind", "unit"):
        shares = request_shares(profile, by)
        assert fsum(shares.values()) == pytest.approx(whole)
        assert not {name for name, seconds in shares.items() if seconds < 0} - {"overlapping"}
    stated = [value for value in (profile.summary.e2e_s, profile.summary.latency_s) if value]
    assert whole == (stated[0] if stated else summed_request_s(profile))
    counted = repeats(profile)
    assert summed_request_s(profile) == pytest.approx(
        fsum(counted[phase.name] * phase.time_s for phase in profile.phases if phase.name in counted)
    )


@given(profile=profiles())
def test_shares_of_a_phase_add_up_to_it_and_what_is_in_no_layer_is_the_rest(profile):
    for phase in profile.phases:
        for by in ("phase", "kind", "unit"):
            assert fsum(phase_shares(phase, by).values()) == pytest.approx(phase.time_s)
        rest = phase.time_s - fsum(op.time_s for op in phase.ops)
        assert fsum(outside_layers(phase).values()) == pytest.approx(rest)


@given(profile=profiles())
def test_ops_by_kind_and_by_unit_are_all_ops(profile):
    assert sum(ops_by(profile, "kind").values()) == sum(ops_by(profile, "unit").values()) == op_count(profile)
