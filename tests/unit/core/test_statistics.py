"""Statistics of plain sequences: what each says, and when it says nothing."""

import math

import pytest

from inferometer.core import statistics
from inferometer.core.errors import DomainError


def test_the_median_of_an_even_sample_is_between_the_two_in_the_middle():
    assert statistics.median([4.0, 1.0, 3.0, 2.0]) == 2.5


def test_the_95th_percentile_of_one_to_a_hundred_is_not_one_rank_high():
    assert statistics.percentile([float(n) for n in range(1, 101)], 0.95) == pytest.approx(95.05)


@pytest.mark.parametrize(("p", "least"), [(0.5, 6), (0.9, 36), (0.95, 72), (0.99, 368), (0.999, 3688)])
def test_a_percentile_is_given_from_the_sample_that_supports_it_on(p, least):
    assert statistics.needed(p) == least
    assert statistics.percentile([1.0] * least, p) == 1.0
    assert statistics.percentile([1.0] * (least - 1), p) is None


def test_the_rule_is_symmetric_and_extremes_are_readings():
    assert statistics.needed(0.05) == statistics.needed(0.95)
    assert statistics.needed(1.0) == statistics.needed(0.0) == 1


def test_a_99th_percentile_of_twenty_readings_is_not_given():
    assert statistics.percentile([float(n) for n in range(20)], 0.99) is None


def test_the_standard_deviation_has_n_minus_one_in_its_denominator():
    assert statistics.std([1.0, 3.0]) == pytest.approx(math.sqrt(2))
    assert statistics.std([1.0]) is None


def test_the_coefficient_of_variation_of_readings_around_zero_is_unknown():
    assert statistics.cv([-1.0, 1.0]) is None
    assert statistics.cv([2.0]) is None
    assert statistics.cv([1.0, 3.0]) == pytest.approx(math.sqrt(2) / 2)


def test_a_reading_far_beyond_the_quartiles_is_an_outlier():
    assert statistics.outliers([1.0, 1.1, 0.9, 1.0, 9.0]) == (4,)
    assert statistics.outliers([1.0, 1.0, 1.0]) == ()


def test_mad_ignores_a_single_wild_reading():
    assert statistics.mad([1.0, 2.0, 3.0, 4.0, 1000.0]) == 1.0


def test_the_slope_of_a_straight_line_is_its_step():
    assert statistics.slope([5.0, 7.0, 9.0]) == pytest.approx(2.0)
    assert statistics.slope([5.0]) is None


@pytest.mark.parametrize("statistic", [statistics.mean, statistics.median, statistics.mad, statistics.fences])
def test_no_readings_have_no_statistics(statistic):
    with pytest.raises(DomainError, match="no readings"):
        statistic([])


def test_a_reading_that_is_not_a_number_is_refused():
    with pytest.raises(DomainError, match="nan"):
        statistics.median([1.0, math.nan])


def test_a_percentile_is_a_share():
    with pytest.raises(DomainError, match="is the 95th"):
        statistics.percentile([1.0] * 100, 95)


def test_a_sum_is_rounded_once():
    assert statistics.total([0.1] * 10) == 1.0
