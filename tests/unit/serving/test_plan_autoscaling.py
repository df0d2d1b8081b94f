"""Replicas that follow the load: what is played of a day, what is refused, and what is held and paid for."""

from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from inferometer.cli.commands.plan import search_from
from inferometer.cli.run import cli
from inferometer.core.errors import DomainError
from inferometer.core.served import Objective
from inferometer.core.traffic.lengths import Lengths, listed_lengths
from inferometer.core.traffic.traces import RequestTrace
from inferometer.serving.plans import autoscaling, search
from inferometer.serving.plans.asked import Autoscaling, PlanSearch
from inferometer.serving.plans.closed import LoadCurve
from inferometer.serving.plans.regions import Region
from inferometer.serving.simulate.service import Scaling
from inferometer.understand.view.serving import plan_card, plan_table

DAY = (0.2, 0.4, 1.0, 0.7)
SCALING = Scaling(least=1, most=8, target=10, cold_start_s=300.0, idle_s=300.0)


def asked(**more):
    given = {
        "model": "llama-3.2-1b", "rate_per_s": 100.0, "prompt": Lengths(kind="fixed", mean=500),
        "generate": Lengths(kind="fixed", mean=100), "devices": ("nvidia-l4",), "weights": (None,), "kv": (None,),
        "tp": (1,), "sequences": (0,), "tokens": (0,), "keep": 1, "day": DAY,
        "objectives": (Objective(metric="ttft", limit_s=1.0, share=0.95),), "autoscale": Autoscaling(),
    }  # fmt: skip
    return PlanSearch(**{**given, **more})


def trace_of(times):
    times = np.sort(np.asarray(times, float))
    tokens = np.full(len(times), 500, np.int64), np.full(len(times), 100, np.int64)
    return RequestTrace(name="t", form="requests", arrival_s=times, input_tokens=tokens[0], output_tokens=tokens[1])


def of_trace(trace, **more):
    lengths = {"prompt": listed_lengths(trace.input_tokens, "t"), "generate": listed_lengths(trace.output_tokens, "t")}
    return asked(trace=trace, day=(), rate_per_s=len(trace) / trace.seconds, **{**lengths, **more})


def test_the_load_lies_on_lines_between_the_middles_of_a_day_and_keeps_its_mean():
    at = [autoscaling.load_at(asked(), hour * 3600) for hour in (3, 9, 15, 21, 6, 24, 0)]
    assert at == pytest.approx([20, 40, 100, 70, 30, 45, 45])
    whole = np.mean([autoscaling.load_at(asked(), second) for second in np.linspace(0, 86400, 4800, endpoint=False)])
    assert whole == pytest.approx(100 * np.mean(DAY))


def test_the_first_stretch_outgrows_the_fewest_replicas_of_the_steepest_rise_at_the_days_own_pace():
    first, *lines = autoscaling.stretches_of(asked(), SCALING, 15.0)
    assert first.from_per_s < 45.0 < first.to_per_s  # 40 to 100 in six hours: three replicas are too few from 45 on
    pace = (100 - 40) / (6 * 3600)
    assert (first.to_per_s - first.from_per_s) / first.seconds == pytest.approx(pace)
    reached = (45.0 - first.from_per_s) / pace
    assert reached + SCALING.cold_start_s < first.seconds  # the new one comes while it is looked at
    assert (first.counts, [each.counts for each in lines]) == (False, [True] * 4)
    middles = [(each.from_per_s + each.to_per_s) / 2 for each in lines]
    assert middles == pytest.approx([30, 70, 85, 45])
    falling = lines[2]
    assert falling.before_per_s == pytest.approx(falling.from_per_s + 30 / (6 * 3600) * 300)


@pytest.mark.parametrize("signal", ["requests", "waiting"])
def test_replicas_are_tried_from_the_fullest_down_and_wait_only_where_they_can_take_no_more(monkeypatch, signal):
    """A curve of 1, 2 and 4 requests a second with 1, 3 and 8 under way; its capacity is 97 % of the most."""
    played = []
    monkeypatch.setattr(
        autoscaling,
        "_day",
        lambda _search, _asked, scaling, settled, _missed: played.append((scaling, settled)) or "no",
    )
    curve = LoadCurve(
        sequences=np.array([1.0, 3.0, 8.0]), rate_per_s=np.array([1.0, 2.0, 4.0]), ttft_s=np.full(3, 0.1),
        tpot_s=np.full(3, 0.01),
    )  # fmt: skip
    search = asked(autoscale=Autoscaling(signal=signal, cold_start_s=7.0), headroom=0.5)
    assert autoscaling.follow(search, None, None, curve, replicas=6, most=9, missed=None) == "no"
    shares = (0.9, 0.75, 0.6, 0.45, 0.3)
    loads = [share * 0.97 * 4.0 * 0.5 for share in shares]
    if signal == "waiting":
        assert [(scaling.target, settled) for scaling, settled in played] == [
            (target, 4.0) for target in (8.0, 4.0, 2.0, 1.0, 0.5)
        ]
    else:
        assert [settled for _, settled in played] == pytest.approx(loads)
        assert [scaling.target for scaling, _ in played] == [max(1, round(curve.at(load)[2])) for load in loads]
    assert {(each.least, each.most, each.cold_start_s, each.signal) for each, _ in played} == {(1, 6, 7.0, signal)}


def test_a_service_with_little_to_do_is_played_all_day():
    stretches = list(autoscaling.stretches_of(asked(rate_per_s=0.1), SCALING, 15.0))
    assert [each.seconds for each in stretches[1:]] == [6 * 3600] * 4


STEADY = trace_of(np.arange(0, 2000, 0.5))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (asked(day=()), "does not vary"),
        (asked(day=(0.5, 0.5)), "does not vary"),
        (asked(availability=0.999), "takes them away"),
        (asked(autoscale=Autoscaling(cold_start_s=7 * 3600.0)), "after the part of the day"),
        (asked(trace=STEADY), "Leave --day out"),
        (of_trace(STEADY, autoscale=Autoscaling(cold_start_s=1200.0)), "none would come in time"),
        (asked(trace=replace(STEADY, arrival_s=np.full(len(STEADY), np.nan)), day=()), "none would come in time"),
    ],
)
def test_what_replicas_cannot_follow_is_refused(given, words):
    with pytest.raises(DomainError, match=words):
        search.plan(given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (asked(devices=("nvidia-rtx-4090",)), "rented by the hour"),
        (asked(autoscale=Autoscaling(cold_start_s=0.01)), "loading its weights alone takes"),
    ],
)
def test_a_device_whose_replicas_cannot_come_and_go_has_no_plan(given, words):
    assert words in search.plan(given).why_not


def test_ones_own_price_rents_any_device():
    given = asked(devices=("nvidia-rtx-4090",), prices=(("nvidia-rtx-4090", 0.4),))
    assert search.all_configurations(given)[0]


BUSY = {"model": "llama-3.1-8b", "rate_per_s": 12.0}  # three replicas of an L4


@pytest.fixture
def short(monkeypatch):
    """Stretches of so few requests that a test may play them."""
    monkeypatch.setattr(autoscaling, "_REQUESTS", 1000)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("signal", ["requests", "cache"])
def test_a_plan_pays_what_is_held_and_no_less_than_the_load_needs(signal):
    given = asked(**BUSY, autoscale=Autoscaling(signal=signal, cold_start_s=60.0))
    (plan,) = search.plan(given).plans
    (still,) = search.plan(replace(given, autoscale=None, day=())).plans
    scaled = plan.autoscaled
    assert (plan.replicas, scaled.most, scaled.least) == (still.replicas, still.replicas, 1)
    assert still.replicas * np.mean(DAY) * still.utilisation < scaled.mean_replicas < still.replicas
    assert plan.usd_per_hour == pytest.approx(still.usd_per_hour * scaled.mean_replicas / still.replicas)
    assert plan.watts < still.watts
    assert plan.ttft_p95_s <= 1.0
    assert scaled.replica_hours == pytest.approx(24 * scaled.mean_replicas)


def test_a_trace_is_held_for_its_own_hours_and_a_late_replica_is_judged():
    """Four times the load within a second: whoever starts slowly has to be there already."""
    rng = np.random.default_rng(3)
    few, many = rng.uniform(0, 1200, 1200), rng.uniform(1200, 2400, 4 * 1200)
    trace = trace_of([*few, *many])
    quick, slow = (of_trace(trace, model=BUSY["model"], autoscale=Autoscaling(cold_start_s=cold)) for cold in (20, 500))
    (plan,), (late,) = search.plan(quick).plans, search.plan(slow).plans
    assert plan.autoscaled.hours == pytest.approx(trace.seconds / 3600)
    assert plan.autoscaled.mean_replicas < plan.replicas
    assert late.autoscaled.target < plan.autoscaled.target
    assert late.autoscaled.mean_replicas > plan.autoscaled.mean_replicas
    assert late.usd_per_hour > plan.usd_per_hour


@pytest.mark.usefixtures("short")
def test_what_is_held_stands_in_the_card_the_table_and_the_document():
    answer = search.plan(asked(**BUSY, autoscale=Autoscaling(cold_start_s=60.0)))
    document = answer.document()
    scaled = document["plans"][0]["autoscaled"]
    held = {label: (value, words) for label, value, words in plan_card(document, title="").facts}["held"]
    assert held[0] == f"{scaled['mean_replicas']:.3g} on average"
    assert f"of 1 to {scaled['most']} replicas, for {scaled['target']:g} requests each" in held[1]
    assert "cold starts of 60 s" in held[1]
    assert plan_table(document).rows[0]["held"] == scaled["mean_replicas"]
    assert f"{scaled['mean_replicas']:.3g} of {scaled['most']} replicas are held" in answer.plans[0].notes[0]


@pytest.mark.usefixtures("short")
def test_requests_that_wait_are_a_signal_that_comes_too_late_for_a_tight_objective():
    """They wait where a replica can take no more, and long before that each token takes longer than it may."""
    given = asked(**BUSY, objectives=(Objective(metric="tpot", limit_s=0.09, share=0.95),))
    (plan,) = search.plan(given).plans
    late = search.plan(replace(given, autoscale=Autoscaling(signal="waiting")))
    assert plan.tpot_p95_s <= 0.09
    assert not late.plans
    assert "while replicas follow the load" in late.why_not


def test_a_region_has_its_own_cold_start():
    region = Region(name="far", rate_per_s=2.0, cold_start_s=600.0)
    assert region.asked(asked()).autoscale == Autoscaling(cold_start_s=600.0)
    assert replace(region, cold_start_s=None).asked(asked()).autoscale == asked().autoscale
    assert region.asked(asked(autoscale=None)).autoscale is None


def test_options_are_those_of_the_search_and_none_goes_without_its_other(monkeypatch):
    made = []

    def noted(model, options):
        made.append(search_from(model, options))
        raise DomainError("enough")

    monkeypatch.setattr("inferometer.cli.commands.plan.search_from", noted)
    plan = ["plan", "llama-3.2-1b", "--rate", "4", "--slo", "ttft<=1s", "--day", "0.5,1"]
    CliRunner().invoke(cli, [*plan, "--autoscale", "--scale-by", "waiting", "--cold-start", "2min"])
    CliRunner().invoke(cli, plan)
    assert [each.autoscale for each in made] == [Autoscaling(signal="waiting", cold_start_s=120.0), None]
    for option, needed in (
        (["--scale-by", "cache"], "--autoscale"), (["--cold-start", "9s"], "--autoscale or --interruptions"),
    ):  # fmt: skip
        refused = CliRunner().invoke(cli, [*plan, *option]).exception
        assert isinstance(refused, DomainError)
        assert needed in refused.remedy
    frames = ["plan", "yolo11n", "--frames", "30", "--autoscale"]
    assert "devices that look at images" in str(CliRunner().invoke(cli, frames).exception)
