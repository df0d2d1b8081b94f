"""Speed that lasts: levels are found in the times of a long run, and clock and temperature stand beside them."""

import random

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from inferometer.cli.commands import profile as profiling
from inferometer.cli.measuring import ONCE, measurement_from
from inferometer.core.errors import DomainError
from inferometer.core.profile import DeviceFacts, Headline, ModelFacts, Phase, Profile, Sustained
from inferometer.core.workload import Workload
from inferometer.measure.run.sustained import sensed_at, sustained, with_sustained
from inferometer.measure.run.watch import Resident
from inferometer.understand.view.phrases import sustained_fact


def noisy(count, seconds, *, seed=0, noise=0.01):
    drawn = random.Random(seed)  # noqa: S311 - noise
    return [seconds * (1 + drawn.gauss(0, noise)) for _ in range(count)]


# A board of the kind that throttles: 33 ms a step for two minutes, then 41 ms at 85 °C.
THROTTLED = [*noisy(3600, 0.033), *noisy(11_700, 0.041, seed=1)]


def test_a_board_that_throttles_has_two_levels_and_the_time_of_the_second():
    found = sustained(THROTTLED, 600.0)
    assert found.first_s == pytest.approx(0.033, rel=0.01)
    assert found.steady_s == pytest.approx(0.041, rel=0.01)
    assert found.steady_after_s == pytest.approx(119, abs=6)
    assert found.slower == pytest.approx(0.24, abs=0.02)


def test_noise_alone_is_one_level():
    for seed in range(10):
        found = sustained(noisy(5000, 0.01, seed=seed, noise=0.03), 60.0)
        assert (found.changes_s, found.steady_after_s) == ((), 0.0)
        assert found.first_s == found.steady_s


def test_a_slow_decline_ends_in_what_it_comes_to():
    falling = [0.010 + 0.005 * min(1.0, step / 4000) for step in range(12_000)]
    found = sustained(falling, 150.0)
    assert found.steady_s == pytest.approx(0.015, rel=0.03)
    assert found.first_s < 0.0105
    assert found.steady_after_s == pytest.approx(44.1, rel=0.1), "when the decline was over"


@given(st.lists(st.floats(1e-4, 1.0), min_size=10, max_size=400), st.floats(10, 1e5))
def test_windows_cover_the_run_and_lie_within_its_times(samples, span_s):
    found = sustained(samples, span_s)
    assert 0 < len(found.at_s) == len(found.latency_s) <= 120
    assert found.at_s[-1] == pytest.approx(span_s)
    assert list(found.at_s) == sorted(found.at_s)
    assert min(samples) <= min(found.latency_s) <= max(found.latency_s) <= max(samples)


def measured(samples):
    phase = Phase(name="forward", time_s=0.033, samples_s=tuple(samples), statistic="median")
    return Profile(
        kind="measured", model=ModelFacts(name="m"), device=DeviceFacts(name="local"), workload=Workload(),
        phases=(phase,), summary=Headline(latency_s=0.033),
    )  # fmt: skip


def test_a_profile_keeps_what_became_of_it_and_fewer_samples():
    seconds = tuple(float(at) for at in range(0, 600, 3))
    heat = Resident(at_s=seconds, nbytes=tuple(45_000 if at < 100 else 85_000 for at in seconds))
    clock = Resident(at_s=seconds, nbytes=tuple(2_400_000_000 if at < 119 else 1_900_000_000 for at in seconds))
    found = with_sustained(measured(THROTTLED), 600.0, {"temperature_c": heat, "clock_hz": clock})
    assert found.sustained.temperature_c == (45.0, 85.0)
    assert found.sustained.clock_hz == (2.4e9, 1.9e9)
    assert len(found.phase("forward").samples_s) <= 5_000
    ((label, value, remark),) = sustained_fact(found.sustained)
    assert (label, value[:4]) == ("sustained", "41 m")
    assert "24% slower than 33" in remark.replace("\u202f", "").replace(" %", "%")
    assert "2.4 GHz to 1.9 GHz, 45 to 85 °C" in remark
    few = measured(THROTTLED[:5])
    assert with_sustained(few, 600.0, {}) is few
    assert sensed_at({"temperature_c": Resident()}, found.sustained) == {}


def test_a_steady_run_says_so():
    told = Sustained(span_s=1800.0, at_s=(1800.0,), latency_s=(0.01,), first_s=0.01, steady_s=0.01, steady_after_s=0.0)
    assert next(sustained_fact(told))[2] == "for all of 1800 s"


def subject(**more):
    shown = CliRunner().invoke(profiling.command, ["--help"])
    assert "--sustained TIME" in shown.output
    usual = {
        "runtime": None, "batch": 1, "prompt": None, "generate": None, "image": None, "sizes": (), "inputs": (),
        "weights": None, "precision": None, "threads": None, "unit": None, "providers": (), "optimisation": None,
        "options": (), "timeout": "10 min", "memory_limit": None, "ignore_memory": False, "seed": 0, "trust": (),
    }  # fmt: skip
    return measurement_from("m", {**usual, **ONCE, **more})


def test_how_long_is_asked_once_and_within_reason():
    asked = subject(sustained="30min")
    assert (asked.sustained_s, asked.plan.seconds, asked.plan.retries, asked.plan.warmup) == (1800.0, 1800.0, 0, 0)
    for more, words in (
        ({"sustained": "30min", "runs": 3}, "--runs does too"),
        ({"sustained": "1s"}, "cannot be watched for 1s"),
    ):
        with pytest.raises(DomainError, match=words):
            subject(**more)
