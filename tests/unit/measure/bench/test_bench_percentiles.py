"""Percentiles between order statistics: against scipy, and against the chance that they claim."""

import json
import sys
from math import comb

import numpy as np
import pytest
import scipy
from click.testing import CliRunner

from inferometer.cli.run import cli
from inferometer.core.errors import DomainError
from inferometer.core.profile import Phase
from inferometer.core.statistics import needed
from inferometer.measure.bench.statistics import order_ranks, percentile_between, percentile_documents
from inferometer.understand.view.measured import percentile_fact

SHARES = (0.01, 0.05, 0.5, 0.9, 0.95, 0.99, 0.999)


@pytest.mark.parametrize("count", [1, 2, 5, 6, 29, 36, 71, 72, 100, 367, 368, 1000, 3688])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_the_ranks_are_those_of_the_binomial(count, confidence):
    for share in SHARES:
        beyond = (1 - confidence) / 2
        low = int(scipy.stats.binom.ppf(beyond, count, share))
        high = int(scipy.stats.binom.ppf(1 - beyond, count, share)) + 1
        assert order_ranks(count, share, confidence) == (low or None, high if high <= count else None)


@pytest.mark.parametrize("share", SHARES)
def test_both_ends_are_there_from_as_many_readings_as_support_the_percentile(share):
    least = needed(share)
    assert None not in order_ranks(least, share, 0.95)
    assert None in order_ranks(least - 1, share, 0.95)


def test_the_interval_is_between_readings_of_unequal_distance():
    values = [float(value**2) for value in range(1, 101)]
    found = percentile_between(values[::-1], 0.9, alike=1.0)
    low, high = order_ranks(100, 0.9, 0.95)
    assert (low, high) == (84, 96)  # scipy's binom.ppf of 0.025 and 0.975, and one
    assert (found.low, found.high, found.count) == (84.0**2, 96.0**2, 100)
    assert found.low < found.value < found.high


def test_few_readings_give_a_lower_end_and_no_value():
    found = percentile_between([1.0, 2.0, 3.0, 4.0, 5.0], 0.99)
    assert (found.value, found.low, found.high) == (None, 4.0, None)  # 5.0 only with a chance of 1 − 0.99⁵, 4.9 %
    label, value, remark = percentile_fact([1.0, 2.0, 3.0, 4.0, 5.0], 99)
    assert (label, value) == ("p99", "≥ 4 s")
    assert "about 368" in remark
    assert percentile_fact([1.0, 2.0, 3.0, 4.0, 5.0], 1)[1] == "≤ 2 s"
    assert percentile_fact([1.0, 2.0, 3.0], 50, "decode")[:2] == ("p50 decode", "–")


def test_a_99th_percentile_of_128_readings_has_a_value_and_an_interval_that_is_open_above():
    values = [float(value) for value in range(128)]
    found = percentile_between(values, 0.99, alike=1.0)
    assert found.low < found.value < values[-1]
    assert found.high is None
    assert percentile_between(values[:99], 0.99, alike=1.0).value is None
    label, value, remark = percentile_fact([value * 37 % 128 for value in values], 99)
    assert label == "p99"
    assert not value.startswith("≥")
    assert remark.startswith("open on one side: ≥ ")
    assert "of 128 runs; about" in remark


def test_readings_that_are_alike_count_for_fewer():
    """Each reading ten times over says no more than it did once."""
    once = percentile_between([float(value) for value in range(100)], 0.9, alike=1.0)
    repeated = percentile_between([float(value) for value in range(100) for _ in range(10)], 0.9, alike=10.0)
    assert (repeated.low, repeated.high) == (once.low, once.high)
    assert percentile_between([float(value) for value in range(400)], 0.99, alike=4.0).high is None


def test_the_interval_holds_as_often_as_it_says():
    generator = np.random.default_rng(3)
    samples = generator.exponential(size=(400, 120))
    true = -np.log1p(-0.9)
    found = [percentile_between(row.tolist(), 0.9, confidence=0.9, alike=1.0) for row in samples]
    inside = sum(each.low <= true <= each.high for each in found)
    assert inside >= 0.9 * 400 - 3 * (400 * 0.09) ** 0.5
    assert inside < 399  # and not always


@pytest.mark.parametrize("share", [0.0, 1.0, 1.5])
def test_ends_and_nonsense_are_refused(share):
    with pytest.raises(DomainError, match="between 0 and 100"):
        percentile_between([1.0, 2.0], share)
    with pytest.raises(DomainError, match="confidence"):
        percentile_between([1.0, 2.0], 0.5, confidence=1.0)


def test_documents_have_null_for_an_open_end():
    (found,) = percentile_documents(Phase(name="run", time_s=1.0, samples_s=(1.0, 1.5, 2.0)), [0.999])
    assert found == {
        "percentile": 99.9, "value_s": None, "low_s": 2.0, "high_s": None, "confidence": 0.95, "samples": 3,
    }  # fmt: skip


def test_bench_prints_the_percentiles_it_is_asked_for():
    command = ["bench", "--runs", "3", "--seconds", "0 s", "--warmup", "0", "--no-guard", "--no-store"]
    asked = [*command, "--percentile", "99", "--percentile", "50", "--", sys.executable, "-c", ""]
    card = CliRunner().invoke(cli, asked)
    assert "p99" in card.output
    assert "≥" in card.output
    plain = CliRunner().invoke(cli, [*asked[: len(command)], "--format", "json", *asked[len(command) :]])
    found = json.loads(plain.stdout)["phases"][0]["percentiles"]
    assert [(row["percentile"], row["high_s"], row["samples"]) for row in found] == [(99.0, None, 3), (50.0, None, 3)]


@pytest.mark.parametrize(
    ("count", "share", "ranks"),
    [(20, 0.5, (6, 15)), (6, 0.5, (1, 6)), (5, 0.5, (None, None)), (100, 0.9, (84, 96)), (36, 0.9, (29, 36)),
     (35, 0.9, (28, None)), (36, 0.1, (1, 8))],
)  # fmt: skip
def test_ranks_are_those_of_the_tables_of_the_binomial(count, share, ranks):
    """By the sums of the distribution itself: so many of `count` readings lie below, with 2.5 % beyond each end."""

    def below(k):
        return sum(comb(count, n) * share**n * (1 - share) ** (count - n) for n in range(k + 1))

    low = next(k for k in range(count + 1) if below(k) >= 0.025)
    high = next((k + 1 for k in range(count) if below(k) >= 0.975), None)
    assert (low or None, high) == order_ranks(count, share, 0.95) == ranks
