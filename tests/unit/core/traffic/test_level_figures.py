"""The figures of a level beside a second count of the same requests, one by one in plain Python; and worked by hand."""

import random
from statistics import fmean, median

import numpy as np
import pytest

from inferometer.core.errors import DomainError
from inferometer.core.served import Level, LevelFigures, Objective, RequestColumns, Window, parse_objective
from inferometer.core.traffic.arrivals import Arrivals, arrival_times
from inferometer.core.traffic.demand import Sharing, closed_demand, open_demand, trace_demand
from inferometer.core.traffic.figures import figures_of, headline_of, knee_of, times_of
from inferometer.core.traffic.lengths import draw, parse_lengths
from inferometer.core.traffic.requests import Requests, closed_window, open_window
from inferometer.core.traffic.spreads import merged, quantile, spread_of, weighted_spread
from inferometer.core.traffic.traces import RequestTrace

FIELDS = ("due_s", "sent_s", "first_s", "last_s", "input_tokens", "output_tokens", "outcome", "gap_s")


def columns(*rows):
    """(due, first, last, tokens in, tokens out, outcome, longest gap); sent when due."""
    due, first, last, given, made, outcome, gap = zip(*rows, strict=True) if rows else ((),) * 7
    return RequestColumns(**dict(zip(FIELDS, (due, due, first, last, given, made, outcome, gap), strict=True)))


def window(start, end):
    return Window(start_s=start, end_s=end, why="")


# By hand: three answers and an error, in a window from 0 to 10 s

ROWS = (
    (0.0, 1.0, 5.0, 100, 5, "ok", 2.0),  # all of it inside: TTFT 1, TPOT 1, end to end 5
    (2.0, 4.0, 14.0, 200, 11, "ok", 3.0),  # its first token and 6 of 10 s of the others: 1/11 + 10/11 · 0.6
    (4.0, None, 8.0, 300, 1, "ok", None),  # not streamed: it arrives when it ends
    (6.0, None, None, 400, None, "timeout", None),
    (11.0, 12.0, 13.0, 500, 2, "ok", 1.0),  # due after the window, and nothing of it inside
)
GOALS = (
    Objective(metric="ttft", limit_s=1.0),
    Objective(metric="e2e", limit_s=8.0),
    Objective(metric="itl", limit_s=2.5),
)


def test_a_level_by_hand():
    level = Level(name="l", rate_per_s=0.5, requests=columns(*ROWS), windows=(window(0.0, 10.0),))
    found = figures_of(level, GOALS)
    second = 1 / 11 + 10 / 11 * 0.6
    assert (found.requests, found.completed, found.counted, found.errors) == (5, 4, 3, {"timeout": 1})
    assert (found.window_s, found.offered_per_s) == (10.0, 3 / 6.0)
    assert found.requests_per_s == pytest.approx((2 + second) / 10)
    assert found.input_tokens_per_s == pytest.approx((100 + 300 + 200 * second) / 10)
    assert found.output_tokens_per_s == pytest.approx((5 + 1 + 11 * second) / 10)
    assert (found.ttft_s.mean, found.ttft_s.count) == (1.5, 2)
    assert (found.tpot_s.mean, found.tpot_s.count) == (1.0, 2)
    assert (found.e2e_s.mean, found.e2e_s.min, found.e2e_s.max) == (7.0, 4.0, 12.0)
    assert found.little == pytest.approx((2 + second) / 10 * 7.0)
    assert (found.input_tokens, found.output_tokens) == (200.0, 17 / 3)
    # the first and the third keep every limit; the second breaks all three; the error breaks them too
    assert found.attained == 0.5
    assert found.goodput_per_s == pytest.approx(2 / 10)
    assert found.objectives == {"ttft<=1s": False, "e2e<=8s": False, "itl<=2.5s": False}
    assert times_of(level, "ttft") == (1.0, 2.0)
    assert times_of(level, "e2e") == (5.0, 12.0, 4.0)


@pytest.mark.parametrize(("start", "end", "due"), [(0.0, 4.0, 3), (0.0, 3.9, 2), (2.0, 6.0, 3), (2.1, 6.0, 2)])
def test_what_is_due_at_either_end_of_a_window_is_in_it(start, end, due):
    level = Level(name="l", rate_per_s=0.5, requests=columns(*ROWS), windows=(window(start, end),))
    assert figures_of(level).offered_per_s == (due - 1) / (2.0 * (due - 1))
    assert figures_of(level).counted == sum(start <= row[0] <= end and row[5] == "ok" for row in ROWS)


def test_a_level_without_requests_windows_or_answers():
    stated = LevelFigures(requests=3, completed=2)
    assert figures_of(Level(name="l", stated=stated)) is stated
    assert figures_of(Level(name="l")) == LevelFigures(requests=0, completed=0)
    assert times_of(Level(name="l"), "ttft") == ()
    for windows in ((), (window(5.0, 5.0),)):
        level = Level(name="l", requests=columns(*ROWS), windows=windows)
        assert figures_of(level) == LevelFigures(requests=5, completed=4, errors={"timeout": 1})
    failed = Level(name="l", requests=columns(ROWS[3]), windows=(window(0.0, 10.0),))
    assert figures_of(failed) == LevelFigures(requests=1, completed=0, errors={"timeout": 1})


@pytest.mark.parametrize(
    ("slow", "share", "held"), [(0, None, True), (1, None, False), (4, 0.9, True), (5, 0.9, False), (0, 0.99, None)]
)
def test_an_objective_of_a_share_may_be_broken_by_the_rest(slow, share, held):
    """Of 40 requests 4 are a tenth; a 99th percentile needs more than 40."""
    rows = [(float(n), n + (2.0 if n < slow else 1.0), n + 3.0, 10, 4, "ok", 1.0) for n in range(40)]
    goal = Objective(metric="ttft", limit_s=1.0, share=share)
    found = figures_of(Level(name="l", requests=columns(*rows), windows=(window(0.0, 40.0),)), [goal])
    assert found.objectives == {str(goal): held}


# A second way: every request by itself


def drawn(seed, count=60):
    chance, rows = random.Random(seed), []  # noqa: S311 - a sample, no secret
    for n in range(count):
        due = n * 0.5 + chance.random()
        first = due + chance.uniform(0.1, 2)
        kind = chance.choice(("ok", "ok", "ok", "timeout"))
        if kind == "ok":
            rows.append(
                (due, first, first + chance.uniform(0.1, 9), chance.randint(1, 50), chance.randint(1, 9), "ok", 0.5)
            )
        else:
            rows.append((due, None, chance.choice((None, first)), 7, None, kind, None))
    return rows


def arrived(row, start, end):
    """How much of an answer came in a window: its first token, and the time of the others that lies within."""
    _, first, last, _, tokens, outcome, _ = row
    if outcome != "ok":
        return 0.0
    head = 1 / tokens
    inside = max(0.0, min(last, end) - max(first, start)) / (last - first)
    return head * (start < first <= end) + (1 - head) * inside


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("windows", [((5.0, 25.0),), ((2.0, 12.0), (12.5, 30.0))])
def test_figures_are_those_of_the_requests_one_by_one(seed, windows):
    rows = drawn(seed)
    level = Level(name="l", rate_per_s=2.0, requests=columns(*rows), windows=tuple(window(*ends) for ends in windows))
    found = figures_of(level, GOALS[:2])
    inside = [row for row in rows if any(start <= row[0] <= end for start, end in windows)]
    answered = [row for row in inside if row[5] == "ok"]
    seconds = sum(end - start for start, end in windows)
    parts = [(row, arrived(row, *ends)) for row in rows for ends in windows]
    assert found.counted == len(answered)
    assert found.requests_per_s == pytest.approx(sum(part for _, part in parts) / seconds)
    assert found.input_tokens_per_s == pytest.approx(sum(row[3] * part for row, part in parts) / seconds)
    assert found.output_tokens_per_s == pytest.approx(sum((row[4] or 0) * part for row, part in parts) / seconds)
    assert found.ttft_s.p50 == pytest.approx(median(row[1] - row[0] for row in answered))
    assert found.e2e_s.mean == pytest.approx(fmean(row[2] - row[0] for row in answered))
    assert found.tpot_s.max == pytest.approx(max((row[2] - row[1]) / (row[4] - 1) for row in answered if row[4] > 1))
    assert found.little == pytest.approx(found.requests_per_s * found.e2e_s.mean)
    kept = [row[5] == "ok" and row[1] - row[0] <= 1.0 and row[2] - row[0] <= 8.0 for row in inside]
    assert found.attained == pytest.approx(fmean(kept))
    good = [row for row in rows if row[5] == "ok" and row[1] - row[0] <= 1.0 and row[2] - row[0] <= 8.0]
    assert found.goodput_per_s == pytest.approx(sum(arrived(row, *ends) for row in good for ends in windows) / seconds)
    gaps = [[row[0] for row in rows if start <= row[0] <= end] for start, end in windows]
    assert found.offered_per_s == pytest.approx(
        sum(len(due) - 1 for due in gaps) / sum(max(due) - min(due) for due in gaps)
    )
    assert found.rounds == ("2 equal rounds" if len(windows) == 2 else "3 equal parts of the window")


@pytest.mark.parametrize("due", [(), (1.0,), (1.0, 1.0, 1.0)])
def test_requests_of_one_moment_have_no_rate_at_which_they_were_offered(due):
    rows = [(moment, moment + 0.5, moment + 1.0, 10, 5, "ok", 0.1) for moment in due]
    level = Level(name="l", rate_per_s=2.0, requests=columns(*rows), windows=(window(0.0, 4.0),))
    assert figures_of(level, ()).offered_per_s is None


def test_how_many_are_in_the_system_at_a_moment():
    requests = Requests.of(columns((0.0, 1.0, 2.0, 1, 1, "ok", None), (1.0, None, None, 1, 1, "timeout", None)))
    assert requests.in_flight(np.array([-0.1, 0.0, 0.9, 1.0, 1.9, 2.0, 9.0])).tolist() == [0, 1, 1, 2, 2, 1, 1]


def test_a_queue_that_grows_is_told_from_one_that_does_not():
    """One request a second, each takes 2 s; or each takes two seconds more than the one before."""
    for longer, growing in ((0.0, False), (2.0, True)):
        rows = [(float(n), n + 0.5, n + 2 + longer * n, 1, 2, "ok", None) for n in range(60)]
        found = figures_of(Level(name="l", rate_per_s=1.0, requests=columns(*rows), windows=(window(10.0, 50.0),)))
        assert found.growing is growing
        assert found.growth_per_s == pytest.approx(2 / 3 if growing else 0.0, abs=0.03)
        assert found.in_flight == pytest.approx(20.7 if growing else 2.0, abs=0.4)
        closed = Level(name="l", concurrency=2, requests=columns(*rows), windows=(window(10.0, 50.0),))
        assert (figures_of(closed).growing, figures_of(closed).growth_per_s) == (False, None)


def test_a_queue_of_several_windows_grows_by_the_mean_of_theirs_and_only_if_it_grows_in_each():
    """Ten come each second; in the first two windows none leaves, in the third as many as come."""
    came = [(0.1 * n, None, None, 1, 2, "timeout", None) for n in range(200)]
    stay = [(20 + 0.1 * n, 20 + 0.1 * n + 0.05, 20 + 0.1 * n + 0.05, 1, 2, "ok", None) for n in range(100)]
    requests = columns(*came, *stay)
    spans = (window(0.0, 10.0), window(10.0, 20.0), window(20.0, 30.0))
    grown, both, all_of_it = (
        figures_of(Level(name="l", rate_per_s=10.0, requests=requests, windows=some))
        for some in (spans[:1], spans[:2], spans)
    )
    assert grown.growth_per_s == pytest.approx(10.0, rel=0.02)
    assert both.growth_per_s == pytest.approx(10.0, rel=0.02)
    assert all_of_it.growth_per_s == pytest.approx(20 / 3, rel=0.02), "and not the middle one"
    assert (grown.growing, both.growing, all_of_it.growing) == (True, True, False)


def test_parts_of_a_round_that_differ_say_by_how_much():
    rows = [(float(n), n + (1.0 if n < 20 else 2.0), n + 3.0, 10, 4, "ok", 1.0) for n in range(40)]
    found = figures_of(
        Level(name="l", rate_per_s=1.0, requests=columns(*rows), windows=(window(0, 19), window(20, 39)))
    )
    assert found.spread["ttft_s"] == pytest.approx((2 - 1) / 1.5)
    assert found.spread["e2e_s"] == 0.0
    ramp = Level(name="l", rate_per_s=1.0, rate_to_per_s=2.0, requests=columns(*rows), windows=(window(0, 39),))
    assert (figures_of(ramp).spread, figures_of(ramp).growth_per_s) == ({}, None)
    few = Level(name="l", rate_per_s=1.0, requests=columns(*rows[:17]), windows=(window(0, 17),))
    assert figures_of(few).spread == {}


# Windows


def answered(count, every=1.0, takes=2.0):
    return Requests.of(
        columns(*((n * every, n * every + 0.5, n * every + takes, 1, 2, "ok", None) for n in range(count)))
    )


def test_a_closed_loop_counts_from_when_every_place_has_answered_until_the_last_was_sent():
    found = closed_window(answered(20), 3)
    assert (found.start_s, found.end_s) == (4.0, 19.0)
    assert found.why == "from the first 3 answers until the last request was sent"
    assert closed_window(answered(20), 1).why.startswith("from the first answer until")


@pytest.mark.parametrize(("count", "concurrency"), [(3, 3), (20, 15)])
def test_too_few_requests_are_reported_whole(count, concurrency):
    found = closed_window(answered(count), concurrency)
    assert (found.start_s, found.end_s) == (0.0, count + 1.0)
    assert f"{count} requests are too few" in found.why


def test_an_open_loop_counts_from_one_usual_answer_on():
    found = open_window(answered(20))
    assert (found.start_s, found.end_s) == (2.0, 19.0)
    assert open_window(answered(20), 30.0).end_s == 30.0
    whole = open_window(answered(20, takes=15.0))
    assert (whole.start_s, whole.end_s) == (0.0, 34.0), "fewer than three in ten became due after 15 s"
    failed = Requests.of(columns((2.0, None, None, 1, 1, "timeout", None), (5.0, None, None, 1, 1, "timeout", None)))
    assert (open_window(failed).start_s, open_window(failed).end_s) == (2.0, 5.0)
    assert open_window(Requests.of(columns())).end_s == 1e-9


# Levels beside each other


def figures(rate, latency, *, met=None, completed=9):
    from inferometer.core.served import Distribution

    return LevelFigures(
        requests=9, completed=completed, requests_per_s=rate, e2e_s=Distribution(mean=latency),
        objectives={} if met is None else {"a": met},
    )  # fmt: skip


def test_the_knee_the_saturated_level_and_the_headline():
    levels = [figures(1, 1.0), figures(4, 2.0), figures(9.5, 6.0), figures(10, 12.0)]
    found = knee_of(levels)
    assert (found.knee, found.saturated, found.within, found.beyond) == (1, 2, None, False)
    assert headline_of(levels) == 1
    assert knee_of([*levels[:2], figures(9.4, 6.0), levels[3]]).saturated is None, "only the last reaches 95 %"
    assert headline_of([figures(1, 1.0, met=True), figures(4, 1.0, met=True), figures(5, 9.0, met=False)]) == 1
    assert (knee_of(levels[:2]).knee, headline_of(levels[:2])) == (None, 1)
    assert headline_of([figures(1, 1.0), figures(0, None, completed=0)]) == 0
    rising = knee_of([figures(1, 1.0), figures(2, 1.0), figures(3, 1.0)])
    assert (rising.knee, rising.beyond) == (None, True)


# Spreads


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 0.9, 1.0])
def test_a_spread_is_that_of_the_times_it_was_made_of(share):
    times = np.array([0.0, 0.0, *np.linspace(0.1, 9.0, 99)])
    spread = spread_of(times)
    assert quantile(spread, share) == pytest.approx(float(np.quantile(times, share, method="higher")), rel=0.003)
    assert (spread.count, spread.zeros, spread.min_s, spread.max_s) == (101, 2, 0.0, 9.0)
    assert spread.total_s == pytest.approx(float(times.sum()))


def test_times_that_came_several_times_and_spreads_that_are_joined():
    times, counts = np.array([0.0, 1.0, 2.0, 5.0]), np.array([3, 2, 0, 1])
    spread = weighted_spread(times, counts)
    assert spread == spread_of(np.repeat(times, counts))
    assert (spread.count, spread.zeros, spread.total_s, spread.max_s) == (6, 3, 7.0, 5.0)
    assert merged([spread_of(times[:2]), spread_of(times[2:])]) == spread_of(times)
    assert merged([]) is None
    assert weighted_spread(times, np.zeros(4, np.int64)) is None


# Demand


def test_sessions_keep_their_turns_and_are_shared_out_whole():
    lengths = parse_lengths("100", column="input_tokens"), parse_lengths("10", column="output_tokens")
    demand = closed_demand(*lengths, count=7, sharing=Sharing(turns=3, groups=2), seed=5)
    assert (len(demand), demand.is_open) == (9, False)
    assert demand.session.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert demand.turn.tolist() == [0, 1, 2] * 3
    assert set(demand.group.tolist()) <= {0, 1}
    assert (demand.part(1, 2).session.tolist(), demand.part(0, 2).turn.tolist()) == ([1, 1, 1], [0, 1, 2] * 2)
    steady = Arrivals(rate_per_s=2.0, process="constant")
    opened = open_demand(steady, *lengths, count=5, sharing=Sharing(turns=2))
    assert opened.due_s.tolist() == [0.0, 0.0, 0.5, 0.5, 1.0, 1.0]
    assert opened.part(1, 3).due_s.tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("count", "duration_s", "times"),
    [(3, 9.0, [0, 0.5, 1]), (9, 1.2, [0, 0.5, 1]), (None, 1.0, [0, 0.5]), (2, None, [0, 0.5])],
)
def test_a_steady_load_ends_with_its_count_or_its_time(count, duration_s, times):
    steady = Arrivals(rate_per_s=2.0, process="constant")
    assert arrival_times(steady, np.random.default_rng(0), count=count, duration_s=duration_s).tolist() == times


@pytest.mark.parametrize(("first", "last"), [(2.0, 6.0), (6.0, 2.0), (3.0, 3.0)])
def test_a_ramp_has_brought_as_many_as_its_rate_adds_up_to(first, last):
    """From a to b in T seconds, a·t + (b − a)·t²/2T have come until t: request n comes when that is n."""
    times = arrival_times(
        Arrivals(rate_per_s=first, to_per_s=last, process="constant"), np.random.default_rng(0), duration_s=5.0
    )
    assert len(times) == (first + last) / 2 * 5
    assert (first * times + (last - first) * times**2 / 10).tolist() == pytest.approx(list(range(len(times))))
    counted = Arrivals(rate_per_s=first, to_per_s=last, process="constant")
    assert arrival_times(counted, np.random.default_rng(0), count=len(times)).tolist() == pytest.approx(times.tolist())


@pytest.mark.parametrize(
    ("wrong", "sound"),
    [({"prefix_tokens": -1}, {"prefix_tokens": 0}), ({"groups": 0}, {"groups": 1}), ({"turns": 0}, {"turns": 1}),
     ({"think_s": -0.1}, {"think_s": 0.0}), ({"think_s": float("nan")}, {"think_s": 1.0})],
)  # fmt: skip
def test_what_prompts_share_is_not_negative(wrong, sound):
    Sharing(**sound)
    with pytest.raises(DomainError):
        Sharing(**wrong)


@pytest.mark.parametrize(("waiting", "growing"), [(5, False), (7, True)])
def test_growth_counts_from_three_roots_of_the_mean_on(waiting, growing):
    """One more at each of so many even moments: from 1 to 1 + n in 100 s, a mean of 1 + n/2, whose root counts thrice.

    5 more are less than 3·√3.5 = 5.6; 7 more are more than 3·√4.5 = 6.4 and less than four roots, 8.5.
    """
    rows = [(-1.0, 0.0, 500.0, 1, 2, "ok", None)]
    rows += [(100 * (n + 0.5) / waiting, 200.0, 500.0, 1, 2, "ok", None) for n in range(waiting)]
    found = figures_of(Level(name="l", rate_per_s=1.0, requests=columns(*rows), windows=(window(0.0, 100.0),)))
    assert found.in_flight == pytest.approx(1 + waiting / 2, abs=0.05)
    assert found.growth_per_s == pytest.approx(waiting / 100, rel=0.05)
    assert found.growing is growing


def test_an_answer_of_unknown_length_arrives_when_it_ends():
    level = Level(
        name="l", requests=columns((0.0, 1.0, 9.0, 5, None, "ok", None), (1.0, 2.0, 3.0, 5, 2, "ok", None)),
        windows=(window(0.0, 5.0),),
    )  # fmt: skip
    # its head, which is all of a single token, came at 1 s; of the other answer all came
    assert figures_of(level).requests_per_s == pytest.approx(2 / 5)


@pytest.mark.parametrize(("share", "sound"), [("99.9", True), ("100", False), ("0", False), ("0.1", True)])
def test_a_percentile_lies_between_nothing_and_all(share, sound):
    if sound:
        assert parse_objective(f"ttft_p{share}<=1s").share == pytest.approx(float(share) / 100)
    else:
        with pytest.raises(DomainError, match="percentile"):
            parse_objective(f"ttft_p{share}<=1s")


def test_lengths_are_read_from_the_column_that_is_asked_for(tmp_path):
    path = tmp_path / "lengths.csv"
    path.write_text("generate,prompt,input_tokens\n\n1,7,10\n2,7,20\n")
    drawn_in, drawn_out = (
        draw(parse_lengths(f"file:{path}", column=column), 200, np.random.default_rng(0))
        for column in ("input_tokens", "output_tokens")
    )
    assert (set(drawn_in.tolist()), set(drawn_out.tolist())) == ({10, 20}, {1, 2})
    for wrong in ("-1", "1e30"):
        with pytest.raises(DomainError):
            parse_lengths(wrong, column="input_tokens")


@pytest.mark.parametrize(
    ("text", "mean"), [("512", 512), ("normal:512,128", 512), ("lognormal:512,400", 512), ("uniform:128-1024", 576)]
)
def test_lengths_know_the_mean_that_was_asked_for(text, mean):
    assert parse_lengths(text, column="input_tokens").mean == mean


def test_a_trace_is_played_as_it_was():
    trace = RequestTrace(
        name="t", form="f",
        arrival_s=np.array([0.0, 2.0]), input_tokens=np.array([5, 6]), output_tokens=np.array([7, 8]),
        pieces=(((1, 5),), ((1, 5), (2, 1))),
    )  # fmt: skip
    demand = trace_demand(trace, seed=3)
    assert (demand.session.tolist(), demand.turn.tolist(), demand.group.tolist(), demand.seed) == (
        [0, 1],
        [0, 0],
        [0, 0],
        3,
    )
    assert len(demand.continues) == 0, "nobody goes on with a talk, so prompts are no talks"
    assert (demand.part(1, 2).pieces, demand.part(1, 2).due_s.tolist()) == ((((1, 5), (2, 1)),), [2.0])
