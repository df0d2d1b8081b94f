"""Every statistic against numpy's or scipy's of the same name, or against its definition written out."""

import itertools
import math

import numpy as np
import pytest
import scipy
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from inferometer.core.errors import DomainError
from inferometer.measure.bench import ranks
from inferometer.measure.bench import statistics as bench
from inferometer.measure.bench.verdict import Criteria, judge, weigh

TIMES = st.floats(1e-6, 1e3)
ROUND_TIMES = st.integers(1, 12).map(lambda ticks: ticks * 1e-3)  # a coarse clock: many ties


def samples(least, most=40, element=TIMES):
    return st.lists(element, min_size=least, max_size=most)


ANY = st.one_of(samples(1), samples(1, element=ROUND_TIMES))
CLOSE = 1e-9


@given(ANY)
def test_the_plain_statistics_are_numpys(values):
    found = bench.summarise(values, name="x")
    data = np.array(values)
    assert found.count == len(values)
    assert found.total == pytest.approx(data.sum(), rel=CLOSE)
    assert (found.min, found.max) == (data.min(), data.max())
    assert found.mean == pytest.approx(data.mean(), rel=CLOSE)
    assert found.median == pytest.approx(np.median(data), rel=CLOSE)
    assert found.per_s == pytest.approx(len(values) / data.sum(), rel=CLOSE)


@given(st.one_of(samples(2), samples(2, element=ROUND_TIMES)))
def test_spread_is_numpys_and_scipys(values):
    found = bench.summarise(values, name="x")
    assert found.std == pytest.approx(np.std(values, ddof=1), rel=1e-6, abs=1e-12)
    assert found.mad == pytest.approx(scipy.stats.median_abs_deviation(values), rel=1e-9, abs=1e-12)
    assert found.cv == pytest.approx(scipy.stats.variation(values, ddof=1), rel=1e-6, abs=1e-12)


@settings(max_examples=40)
@given(st.integers(1, 400), st.integers(0, 2**32 - 1))
def test_a_percentile_is_numpys_where_the_sample_supports_it_and_absent_where_not(count, seed):
    values = np.random.default_rng(seed).lognormal(size=count).tolist()
    found = bench.summarise(values, name="x")
    for label, share in (("p90", 0.90), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)):
        value = getattr(found, label)
        # the chance that the whole sample lies below the percentile is share ** count
        assert (value is None) == (share**count > 0.025)
        if value is not None:
            assert value == pytest.approx(np.percentile(values, 100 * share), rel=CLOSE)


@given(samples(4))
def test_outliers_lie_outside_tukeys_fences(values):
    low, high = np.percentile(values, [25, 75])
    reach = 1.5 * (high - low)
    slack = 1e-9 * max(values)  # a reading on the fence itself may fall to either side by rounding
    certain = sum(value < low - reach - slack or value > high + reach + slack for value in values)
    possible = sum(value < low - reach + slack or value > high + reach - slack for value in values)
    assert certain <= bench.summarise(values, name="x").outliers <= possible


# The same examples each time: of medians of few readings, one in a hundred lies further apart than is allowed here.
@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(5, 60), st.integers(0, 2**32 - 1), st.sampled_from(["mean", "median"]))
def test_the_bootstrap_interval_is_scipys(count, seed, statistic):
    values = np.random.default_rng(seed).lognormal(0, 0.3, size=count)
    found = bench.bootstrap_interval(values, statistic, alike=1)
    drawn = scipy.stats.bootstrap(
        (values,), getattr(np, statistic), method="percentile", n_resamples=4000, rng=np.random.default_rng(seed)
    ).bootstrap_distribution
    # 2.5 % of scipy's resamples lie beyond each end; many medians share one value, so both ways of counting are tried
    assert np.mean(drawn < found.low) <= 0.025 + 0.022
    assert np.mean(drawn <= found.low) >= 0.025 - 0.022
    assert np.mean(drawn > found.high) <= 0.025 + 0.022
    assert np.mean(drawn >= found.high) >= 0.025 - 0.022
    assert found.confidence == 0.95


def test_the_short_way_for_many_readings_gives_the_same_interval(monkeypatch):
    values = np.random.default_rng(3).lognormal(0, 0.3, size=4000)
    for statistic in ("mean", "median"):
        long = bench.bootstrap_interval(values, statistic, alike=1)
        monkeypatch.setattr(bench, "_MANY", 100)
        short = bench.bootstrap_interval(values, statistic, alike=1)
        monkeypatch.undo()
        width = long.high - long.low
        assert short.low == pytest.approx(long.low, abs=0.15 * width)
        assert short.high == pytest.approx(long.high, abs=0.15 * width)


@given(samples(2), st.floats(1.0, 20.0))
def test_an_interval_holds_its_statistic_and_grows_with_alikeness(values, alike):
    plain, wide = (bench.bootstrap_interval(values, alike=factor) for factor in (1, alike))
    middle = float(np.median(values))
    slack = 1e-9 * middle
    assert plain.low <= middle + slack
    assert plain.high >= middle - slack
    assert wide.low <= plain.low + slack
    assert wide.low > 0 or min(values) <= 0
    assert wide.high >= plain.high - slack


@given(st.floats(0.5, 0.9999), st.integers(1, 600))
def test_students_quantile_is_scipys(confidence, freedom):
    wanted = scipy.stats.t.ppf((1 + confidence) / 2, freedom)
    assert bench.student_quantile(confidence, freedom) == pytest.approx(wanted, rel=1e-6 if freedom <= 500 else 0.01)


@given(st.one_of(samples(8, 60), samples(8, 60, element=ROUND_TIMES)))
def test_the_autocorrelation_time_is_its_definition(values):
    ranks_of = scipy.stats.rankdata(values)
    centred = ranks_of - ranks_of.mean()
    n = len(values)
    if not np.any(centred):
        assert bench.autocorrelation_time(values) == 1.0
        return
    correlation = [float(np.dot(centred[: n - lag], centred[lag:]) / np.dot(centred, centred)) for lag in range(n)]
    total, last = 0.0, math.inf
    for lag in range(0, n - 1, 2):
        pair = correlation[lag] + correlation[lag + 1]
        if pair <= 1e-12:
            break
        last = min(last, pair)
        total += last
    assert bench.autocorrelation_time(values) == pytest.approx(min(max(2 * total - 1, 1.0), n / 2), rel=1e-6)


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.8])
def test_the_autocorrelation_time_of_a_known_process_is_found(phi):
    generator = np.random.default_rng(7)
    noise = generator.normal(size=20_000)
    values = np.empty_like(noise)
    values[0] = noise[0]
    for index in range(1, len(noise)):
        values[index] = phi * values[index - 1] + noise[index]
    assert bench.autocorrelation_time(values) == pytest.approx((1 + phi) / (1 - phi), rel=0.25)


@given(st.one_of(samples(4, 30), samples(4, 30, element=ROUND_TIMES)))
def test_drift_is_scipys_theil_sen_slope_and_kendalls_test(values):
    found = bench.drift(values)
    order = np.arange(len(values))
    assert found.per_run == pytest.approx(scipy.stats.theilslopes(values, order).slope, rel=1e-9, abs=1e-15)
    assert found.share == pytest.approx(found.per_run * (len(values) - 1) / np.median(values), rel=1e-9)
    score = sum(np.sign(b - a) for a, b in itertools.combinations(values, 2))
    theirs = scipy.stats.kendalltau(order, values, method="asymptotic").pvalue
    if score and not math.isnan(theirs):
        assert found.p_value >= theirs - 1e-12  # ours takes one off the score for continuity
        corrected = math.sqrt(2) * (abs(score) - 1) / abs(score) * _erfc_inverse(theirs)
        assert found.p_value == pytest.approx(math.erfc(corrected / math.sqrt(2)), rel=1e-5, abs=1e-9)


def _erfc_inverse(p):
    return float(scipy.stats.norm.isf(p / 2)) / math.sqrt(2)


def test_drift_of_very_many_readings_is_that_of_their_blocks():
    values = [1.0 + 1e-6 * index for index in range(100_000)]
    found = bench.drift(values)
    assert found.per_run == pytest.approx(1e-6, rel=1e-3)
    assert found.p_value < 1e-9


@given(st.one_of(samples(10, 60), samples(10, 60, element=ROUND_TIMES)))
def test_the_steady_part_is_where_the_error_of_the_mean_is_least(values):
    data = np.clip(values, *np.quantile(values, (0.05, 0.95)))
    errors = [float(np.var(data[cut:]) / len(data[cut:])) for cut in range(len(data) // 2 + 1)]
    found = bench.steady_from(values)
    if found not in {0, None}:
        assert errors[found] <= min(errors) + 1e-9 * (data.max() ** 2)
    if found is None:
        assert errors[-1] <= min(errors) + 1e-9 * (data.max() ** 2)


TWO = st.one_of(
    st.tuples(samples(1, 25), samples(1, 25)),
    st.tuples(samples(2, 25, ROUND_TIMES), samples(2, 25, ROUND_TIMES)),
)


@given(TWO)
def test_mann_whitney_is_scipys(pair):
    a, b = pair
    assume(len(set(a + b)) > 1)
    found = ranks.mann_whitney(a, b)
    assert found.p_value == pytest.approx(scipy.stats.mannwhitneyu(b, a).pvalue, rel=1e-9)
    wins = sum((y > x) - (y < x) for x in a for y in b)
    assert found.delta == pytest.approx(wins / (len(a) * len(b)))


def test_samples_that_are_all_equal_are_no_difference():
    assert ranks.mann_whitney([1.0] * 9, [1.0] * 20).p_value == 1.0
    assert ranks.signed_rank([0.0] * 9).p_value == 1.0


DIFFERENCES = st.one_of(
    st.lists(st.floats(-1, 1).filter(bool), min_size=1, max_size=60),
    st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=60),
)


@given(DIFFERENCES)
def test_the_signed_rank_test_is_scipys(differences):
    kept = [value for value in differences if value]
    assume(kept)
    found = ranks.signed_rank(differences)
    tied = len({abs(value) for value in kept}) < len(kept) or len(kept) < len(differences)
    method = "exact" if len(kept) <= 50 and not tied else "asymptotic"
    theirs = scipy.stats.wilcoxon(kept, method=method, correction=method == "asymptotic").pvalue
    assert found.p_value == pytest.approx(theirs, rel=1e-6)


@given(TWO)
def test_the_ratio_is_the_median_over_all_pairs_and_lies_in_its_interval(pair):
    a, b = pair
    found = ranks.ratio(a, b, confidence=0.95)
    logs = [math.log(y) - math.log(x) for x in a for y in b]
    assert found.ratio == pytest.approx(math.exp(float(np.median(logs))), rel=1e-9)
    assert found.low <= found.ratio * (1 + 1e-12)
    assert found.high >= found.ratio * (1 - 1e-12)


@given(st.tuples(samples(6, 25), samples(6, 25)))
def test_the_interval_leaves_1_out_just_where_the_test_finds_a_difference(pair):
    a, b = pair
    assume(len(set(a + b)) == len(a + b))
    found, test = ranks.ratio(a, b, confidence=0.95), ranks.mann_whitney(a, b)
    assume(abs(test.p_value - 0.05) > 0.01)  # the normal one is corrected for continuity, the interval is not
    assert (test.p_value < 0.05) == (found.low > 1 or found.high < 1)


@given(st.lists(st.tuples(TIMES, TIMES), min_size=1, max_size=25))
def test_the_paired_ratio_is_the_median_of_walsh_averages(pairs):
    a, b = zip(*pairs, strict=True)
    logs = [math.log(y) - math.log(x) for x, y in pairs]
    walsh = [(x + y) / 2 for x, y in itertools.combinations_with_replacement(logs, 2)]
    assert ranks.paired_ratio(a, b, confidence=0.9).ratio == pytest.approx(math.exp(float(np.median(walsh))), rel=1e-9)


@pytest.mark.parametrize("paired", [False, True])
def test_the_interval_covers_the_true_ratio_as_often_as_it_says(paired):
    generator = np.random.default_rng(11)
    held = 0
    for _ in range(400):
        a, b = generator.lognormal(0, 0.1, 12), 1.5 * generator.lognormal(0, 0.1, 12)
        found = (ranks.paired_ratio if paired else ranks.ratio)(a, b, confidence=0.9)
        held += found.low <= 1.5 <= found.high
    assert 0.86 <= held / 400 <= 0.95


@given(st.lists(st.floats(0, 1), max_size=12))
@example([0.01, 0.04, 0.03])
def test_holms_correction_is_its_definition(p_values):
    adjusted = ranks.holm(p_values)
    in_order = sorted(p_values)
    for p_value, found in zip(p_values, adjusted, strict=True):
        steps = [min(1.0, (len(in_order) - j) * in_order[j]) for j in range(in_order.index(p_value) + 1)]
        last = len(in_order) - 1 - in_order[::-1].index(p_value)  # equal ones share the largest
        steps += [min(1.0, (len(in_order) - j) * in_order[j]) for j in range(last + 1)]
        assert found <= max(steps) + 1e-12
        assert found >= p_value
    by_size = [found for _, found in sorted(zip(p_values, adjusted, strict=True))]
    assert by_size == sorted(by_size)


@given(st.integers(2, 500), st.floats(1e-4, 0.3), st.floats(0.001, 0.5))
def test_with_as_many_runs_as_needed_the_effect_is_detectable(runs, error, effect):
    needed = bench.runs_needed(runs, error, effect, alpha=0.005, power=0.8)
    then = error * math.sqrt(runs / needed)
    assert bench.minimum_detectable_effect(then, alpha=0.005, power=0.8) <= effect * (1 + 1e-9)
    z = scipy.stats.norm.ppf(1 - 0.0025) + scipy.stats.norm.ppf(0.8)
    assert bench.minimum_detectable_effect(error, alpha=0.005, power=0.8) == pytest.approx(math.expm1(z * error))


@given(st.tuples(samples(1, 20), samples(1, 20)))
def test_exchanging_the_sides_exchanges_the_verdict(pair):
    a, b = pair
    there, back = weigh(a, b, paired=False, criteria=Criteria()), weigh(b, a, paired=False, criteria=Criteria())
    assert there.ratio == pytest.approx(1 / back.ratio, rel=1e-9)
    assert there.effect == pytest.approx(-back.effect)
    assert there.p_value == pytest.approx(back.p_value, rel=1e-6, abs=1e-12)
    opposite = {"faster": "slower", "slower": "faster", "same": "same", "undecided": "undecided"}
    assert judge(b, a).verdict == opposite[judge(a, b).verdict]


@given(st.tuples(samples(1, 20), samples(1, 20)), st.floats(1e-3, 1e3))
def test_the_unit_of_time_does_not_matter(pair, factor):
    a, b = pair
    scaled = judge([value * factor for value in a], [value * factor for value in b])
    assert scaled.evidence.ratio == pytest.approx(judge(a, b).evidence.ratio, rel=1e-9)


@pytest.mark.parametrize(("a", "b"), [([], [1.0]), ([1.0], []), ([0.0], [1.0]), ([1.0], [-1.0])])
def test_a_verdict_needs_times(a, b):
    with pytest.raises(DomainError):
        judge(a, b)


def test_pairs_come_in_pairs():
    with pytest.raises(DomainError, match="2 and 3"):
        judge([1.0, 1.0], [1.0, 1.0, 1.0], paired=True)
