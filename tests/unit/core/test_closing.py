"""One request, and the sums that a profile promises: each is broken by itself, and said."""

from dataclasses import replace

import pytest

from fakes.closed_sums import unclosed
from inferometer.core.profile import DeviceFacts, Headline, ModelFacts, OpTime, Phase, Profile
from inferometer.core.request import (
    distinct_ops,
    kept_steps,
    op_count,
    ops_by,
    outside_layers,
    pace,
    phase_repeats,
    repeats,
    request_s,
    request_shares,
    step_times,
)
from inferometer.core.workload import Workload

CONTEXTS = (8, 9, 10, 11)
STEPS = (0.9e-3, 1.0e-3, 1.1e-3, 1.4e-3)  # of each of two generations: their mean is 1.1 ms


def op(name, time_s, **more):
    return OpTime(name=name, kind=more.pop("kind", "linear"), time_s=time_s, unit=more.pop("unit", "cpu"), **more)


def llm(**changes):
    """Tokenise 1 ms, prefill 20 ms, four steps of 1.1 ms: of each 0.8 ms are in layers, two of the steps sampled."""
    prefill = Phase(
        name="prefill", time_s=0.02, ops=(op("a", 0.015), op("b", 0.004, unit="npu", kind="attention")),
        unattributed_s=0.001, parts={"run": 0.019, "sample": 0.0005, "between": 0.0005}, floor_s=0.01,
    )  # fmt: skip
    decode = Phase(
        name="decode", time_s=1.1e-3, statistic="median over generations of the mean step", samples_s=STEPS * 2,
        context=CONTEXTS * 2, op_context=(8, 11), parts={"run": 0.9e-3, "read": 0.2e-3}, unattributed_s=0.3e-3,
        ops=(
            op("a", 1.1e-3 * 0.9 / 2.3, samples_s=(0.4e-3, 0.5e-3)),
            op("b", 1.1e-3 * (0.8 / 1.1 - 0.9 / 2.3), unit="npu", kind="attention",
               samples_s=(0.2e-3, 2.3e-3 * (0.8 / 1.1 - 0.9 / 2.3) - 0.2e-3)),
        ),
    )  # fmt: skip
    phases = (Phase(name="load", time_s=9.0), Phase(name="tokenise", time_s=0.001), prefill, decode)
    profile = Profile(
        kind="measured",
        model=ModelFacts(name="tiny"),
        device=DeviceFacts(name="x"),
        workload=Workload(prompt=8, generate=5),
        phases=phases,
        summary=Headline(ttft_s=0.021, tpot_s=1.1e-3, e2e_s=0.0254),
    )
    return replace(profile, **changes)


def test_a_profile_that_adds_up_has_nothing_to_say():
    assert unclosed(llm()) == ()


def changed(name, **changes):
    profile = llm()
    return replace(
        profile, phases=tuple(replace(p, **changes) if p.name == name else p for p in profile.phases)
    )  # fmt: skip


def shifted(phase, place, **changes):
    ops = list(llm().phase(phase).ops)
    ops[place] = replace(ops[place], **changes)
    return changed(phase, ops=tuple(ops))


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (lambda: changed("prefill", unattributed_s=0.002), "prefill: ops and the unattributed rest come to 0.021 s"),
        (lambda: changed("prefill", parts={"run": 0.021}), "prefill: parts come to 0.021 s"),
        (lambda: changed("decode", samples_s=(*STEPS, *STEPS[:3], 3e-3)), "decode: the median over generations"),
        (lambda: changed("decode", context=CONTEXTS), "decode: 8 samples, and 4 contexts"),
        (lambda: shifted("decode", 0, samples_s=(0.3e-3, 0.5e-3)), "decode: the samples of a come to"),
        (lambda: shifted("decode", 1, samples_s=(0.6e-3, 0.15e-3)), "decode: at 8 tokens its ops come to"),
        (lambda: shifted("prefill", 0, floor_s=0.011), "prefill: floor_s of its ops comes to 0.011 s"),
        (lambda: llm(summary=replace(llm().summary, e2e_s=0.0265)), "The headline says e2e_s 0.0265"),
        (lambda: llm(summary=replace(llm().summary, ttft_s=0.02)), "The headline says ttft_s 0.02"),
        (lambda: llm(summary=replace(llm().summary, tpot_s=1e-3)), "The headline says tpot_s 0.001"),
        (lambda: shifted("prefill", 0, time_s=0.0301), "prefill: ops and the unattributed rest"),
    ],
)
def test_each_sum_that_does_not_close_is_said(broken, said):
    assert any(line.startswith(said) for line in unclosed(broken())), unclosed(broken())


def test_a_prediction_faster_than_its_floor_is_said():
    forward = Phase(name="forward", time_s=1.0, floor_s=1.5, ops=(op("a", 1.0, floor_s=1.5),), unattributed_s=0.0)
    profile = llm(kind="predicted", phases=(forward,), summary=Headline(latency_s=1.0))
    assert unclosed(profile) == (
        "forward: forward takes 1 s, less than its floor of 1.5 s.",
        "forward: a takes 1 s, less than its floor of 1.5 s.",
    )
    lower = replace(forward, floor_s=0.5, ops=(op("a", 1.0, floor_s=0.4),))
    (wrong,) = unclosed(replace(profile, phases=(lower,)))
    assert wrong == "forward: the floors of its ops come to 0.4 s, and its own is 0.5 s."


def test_a_request_runs_the_prefill_once_and_a_step_for_each_further_token():
    assert repeats(llm()) == {"tokenise": 1, "prefill": 1, "decode": 4}
    assert request_s(llm()) == pytest.approx(0.001 + 0.02 + 4 * 1.1e-3)


@pytest.mark.parametrize("by", ["phase", "kind", "unit"])
def test_every_breakdown_of_a_request_comes_to_the_request(by):
    shares = request_shares(llm(), by)
    assert sum(shares.values()) == pytest.approx(0.0254)
    assert all(seconds > 0 for seconds in shares.values())


def test_time_outside_layers_has_a_name_and_is_the_hosts():
    decode = llm().phase("decode")
    assert outside_layers(decode) == pytest.approx({"read": 2e-4, "unattributed": 1e-4})
    units = request_shares(llm(), "unit")
    assert units["host"] == pytest.approx(0.001 + 0.001 + 4 * 2e-4)  # tokenise, the prefill's parts, the reads
    assert units["unattributed"] == pytest.approx(4 * 1e-4)
    by_device = replace(decode, ops=tuple(replace(each, device_s=1e-4) for each in decode.ops))
    assert outside_layers(by_device) == pytest.approx({"unattributed": 3e-4})  # the host reads while the device works


def test_an_op_of_two_phases_is_one_op():
    assert list(distinct_ops(llm().phases)) == [("a", 1), ("b", 1)]
    assert op_count(llm()) == 2
    assert ops_by(llm(), "unit") == {"cpu": 1, "npu": 1}
    twice = changed("prefill", ops=(op("a", 0.01), op("a", 0.009, count=3)))
    assert op_count(twice) == 5  # two of one name in a phase are two, of which one stands for three; and b


def test_a_prediction_counts_host_work_by_the_token_and_a_phase_may_say_its_own_number():
    phases = [Phase(name=name, time_s=1.0) for name in ("prefill", "decode", "sampling", "detokenise")]
    workload = Workload(prompt=8, generate=5)
    assert phase_repeats(phases, workload, "predicted") == {"prefill": 1, "decode": 4, "sampling": 5, "detokenise": 4}
    assert phase_repeats(phases, workload, "measured")["detokenise"] == 1
    assert phase_repeats([Phase(name="forward", time_s=1.0, repeats=20.0)], workload, "predicted") == {"forward": 20}
    assert phase_repeats([Phase(name="decode", time_s=1.0)], workload, "predicted") == {"decode": 1}


def test_the_first_and_the_last_step_are_kept_and_others_evenly_between():
    assert kept_steps(3) == (0, 1, 2)
    assert kept_steps(40) == tuple(range(40))
    many = kept_steps(127, 5)
    assert many == (0, 32, 63, 94, 126)
    assert len(set(kept_steps(10_000))) == 40


def test_a_step_is_the_median_of_its_context_over_the_generations():
    decode = Phase(name="decode", time_s=2.0, context=(4, 5, 4, 5, 4, 5), samples_s=(1.0, 5.0, 9.0, 2.0, 3.0, 4.0))
    assert step_times(decode) == {4: 3.0, 5: 4.0}
    assert pace(replace(decode, op_context=(5,))) == pytest.approx(0.5)
