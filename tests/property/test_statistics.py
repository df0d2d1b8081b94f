"""Every statistic against numpy's and scipy's."""

import math

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from inferometer.core import statistics

READING = st.floats(min_value=-1e9, max_value=1e9, allow_nan=False, allow_subnormal=False)
SAMPLE = st.lists(READING, min_size=1, max_size=60)
PAIR_OR_MORE = st.lists(READING, min_size=2, max_size=60)
SHARE = st.floats(min_value=0, max_value=1)


def near(expected, values):
    """Equal up to rounding, which grows with the largest reading."""
    return pytest.approx(expected, rel=1e-9, abs=1e-9 * (1 + max(map(abs, values))))


@given(SAMPLE)
def test_mean_median_and_total(values):
    assert statistics.mean(values) == near(np.mean(values), values)
    assert statistics.median(values) == near(np.median(values), values)
    assert statistics.total(values) == near(np.sum(values), [len(values) * max(map(abs, values))])


@given(SAMPLE, SHARE)
def test_percentiles_are_numpys_default(values, p):
    assert statistics.percentile_of(sorted(values), p) == near(np.quantile(values, p), values)


@given(SAMPLE, SHARE)
def test_a_percentile_is_within_the_sample(values, p):
    assert min(values) <= statistics.percentile_of(sorted(values), p) <= max(values)


@given(SAMPLE, SHARE, SHARE)
def test_percentiles_rise(values, p, q):
    low, high = sorted((p, q))
    tolerance = 1e-9 * (1 + max(map(abs, values)))
    in_order = sorted(values)
    assert statistics.percentile_of(in_order, low) <= statistics.percentile_of(in_order, high) + tolerance


@given(PAIR_OR_MORE)
def test_std_mad_and_cv(values):
    assert statistics.std(values) == near(np.std(values, ddof=1), values)
    assert statistics.mad(values) == near(scipy.stats.median_abs_deviation(values), values)
    if abs(np.mean(values)) > 1e-3:
        assert statistics.cv(values) == pytest.approx(abs(scipy.stats.variation(values, ddof=1)), rel=1e-5, abs=1e-12)


@given(PAIR_OR_MORE)
def test_fences_are_tukeys(values):
    low, high = np.quantile(values, [0.25, 0.75])
    reach = 1.5 * (high - low)
    found = statistics.fences(values)
    assert found[0] == near(low - reach, values)
    assert found[1] == near(high + reach, values)
    assert all(not found[0] <= values[index] <= found[1] for index in statistics.outliers(values))


@given(PAIR_OR_MORE)
def test_slope_is_the_least_squares_one(values):
    fitted = scipy.stats.linregress(range(len(values)), values).slope
    assert statistics.slope(values) == near(fitted, values)


@given(st.floats(min_value=0.01, max_value=0.999))
def test_the_sample_a_percentile_needs_is_the_smallest_that_can_bound_it(p):
    side, least = max(p, 1 - p), statistics.needed(p)
    assert side**least <= 0.025 * (1 + 1e-6)
    assert least == 1 or side ** (least - 1) > 0.025 * (1 - 1e-6)


@given(SAMPLE, st.integers(min_value=-1000, max_value=1000))
def test_moving_a_sample_moves_its_median_and_leaves_its_spread(values, shift):
    moved = [value + shift for value in values]
    size = [*values, *moved]
    assert statistics.median(moved) == near(statistics.median(values) + shift, size)
    assert statistics.mad(moved) == near(statistics.mad(values), size)
    assert math.isfinite(statistics.mad(moved))
