"""Speed that lasts: levels are found in the times of a long run, and clock and temperature stand beside them."""

import json
import math
import random
from dataclasses import replace
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from inferometer.cli.commands import profile as profiling
from inferometer.cli.measuring import ONCE, measurement_from
from inferometer.core.errors import DomainError, FormatError
from inferometer.core.profile import DeviceFacts, Headline, ModelFacts, Phase, Profile, Sustained
from inferometer.core.workload import Workload
from inferometer.measure.bench.compare import compare, phase_times
from inferometer.measure.run import sustained as lasting
from inferometer.measure.run.raw import Resident
from inferometer.measure.run.sustained import (
    cool_down,
    cooling_fit,
    power_reader,
    read_record,
    sensed_at,
    sustained,
    with_sustained,
)
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


# ── what the cooling takes away ─────────────────────────────────────────────────────────────────────────────────────

BOARD = {"idle": 2.9, "full": 8.1, "resistance": 9.0, "warms": 95.0, "rest": 52.0}  # made up, like a Pi 5 without a fan


def record(path, *, limit=85.0, clock_power=2.6, seconds=1200, **other):
    """A board that warms as one body and lowers its clock at its limit; a third of a step waits for memory."""
    board, drawn = {**BOARD, **other}, random.Random(7)  # noqa: S311 - noise
    heat, clock = board["rest"], 1.0
    rows = ["time_s,latency_ms,clock_mhz,temperature_c,power_w"]
    rows += [f"{at},,1500,{board['rest']},{board['idle'] + drawn.gauss(0, 0.05):.2f}" for at in range(-20, 0, 2)]
    for at in range(0, seconds, 2):
        watts = board["idle"] + (board["full"] - board["idle"]) * clock**clock_power
        heat += 2 / board["warms"] * (board["rest"] + board["resistance"] * (watts - board["idle"]) - heat)
        clock = max(0.4, clock - 0.004) if heat > limit - 0.3 else min(1.0, clock + 0.004 * (heat < limit - 1))
        step_ms = 83.3 * (1 / 3 + 2 / 3 / clock) * (1 + drawn.gauss(0, 0.01))
        rows.append(f"{at},{step_ms:.3f},{2400 * clock:.0f},{heat + drawn.gauss(0, 0.3):.1f},{watts:.2f}")
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return 1e-3 * step_ms, watts


@pytest.mark.parametrize("clock_power", [1.2, 2.6])
def test_a_recorded_board_that_throttles_says_what_its_cooling_takes_away(tmp_path, clock_power):
    last_s, watts = record(tmp_path / "pi.csv", clock_power=clock_power)
    found, idle_w = read_record(tmp_path / "pi.csv")
    assert found.steady_s == pytest.approx(last_s, rel=0.05)
    assert found.temperature_c[1] == pytest.approx(85, abs=1.5)
    fit = cooling_fit(found, idle_w=idle_w)
    assert fit.throttled
    assert (fit.idle_w, fit.power_w, fit.cooling_w) == (
        pytest.approx(2.9, rel=0.03), pytest.approx(8.1, rel=0.03), pytest.approx(watts, rel=0.05)
    )  # fmt: skip
    assert fit.resistance_c_per_w == pytest.approx(9.0, rel=0.15)
    assert fit.warms_s == pytest.approx(95, rel=0.2)


def by_hand(path, *, warm=lambda at: 80.0 if at >= 20 else 50.0, slow=200):
    """A step of 100 ms for 20 s and of `slow` ms for 20 s more, at 9 W and then 6 W; 2 W at rest, before it."""
    rows = ["Latency_ms, time_s ,clock_mhz,temperature_c,power_mw,other"]
    rows += [f",{at},,40,{milliwatts},x" for at, milliwatts in ((-3, 1000), (-2, 2000), (-1, 9000))]
    rows += [f"{100 if at < 20 else slow},{at},{2400 if at < 20 else 1200},{warm(at)},{9000 if at < 20 else 6000},x"
             for at in range(40)]  # fmt: skip
    path.write_text("\n".join([*rows, "broken,40,,,", "100,,1,1,1,x", "nan,41,1,1,1,x"]), encoding="utf-8")
    return read_record(path)


def test_a_record_worked_out_by_hand(tmp_path):
    """Forty rows over 39 s are twenty windows of 1.95 s; the eleventh is the first that is slower."""
    found, idle_w = by_hand(tmp_path / "x.csv")
    assert (found.span_s, idle_w, len(found.at_s), found.at_s[0], found.at_s[-1]) == (39.0, 2.0, 20, 1.95, 39.0)
    assert (found.latency_s, found.changes_s, found.steady_after_s) == ((0.1,) * 10 + (0.2,) * 10, (19.5,), 19.5)
    assert (found.first_s, found.steady_s, found.slower) == (0.1, 0.2, pytest.approx(1.0))
    assert (found.clock_hz, found.temperature_c, found.power_w) == ((2.4e9, 1.2e9), (50.0, 80.0), (9.0, 6.0))
    assert {each.name: (each.at_s[:2], each.values[0], each.values[-1]) for each in found.sensed} == {
        "clock_hz": ((0.0, 1.0), 2.4e9, 1.2e9), "temperature_c": ((0.0, 1.0), 50.0, 80.0),
        "power_w": ((0.0, 1.0), 9.0, 6.0),
    }  # fmt: skip
    fit = cooling_fit(found, idle_w=idle_w)  # until 19.5 s it drew 9 W and its temperature stayed
    assert (fit.power_w, fit.idle_w, fit.cooling_w, fit.throttled, fit.warms_s) == (9.0, 2.0, 6.0, True, None)
    assert (fit.resistance_c_per_w, cooling_fit(found).idle_w) == (0.0, 0.0)


def test_when_a_record_was_begun_is_its_own_matter(tmp_path):
    plain, _ = by_hand(tmp_path / "x.csv")
    head, *rows = (tmp_path / "x.csv").read_text(encoding="utf-8").splitlines()
    cells = [row.split(",", 2) for row in rows]
    late = [f"{latency},{float(at) + 7200:g},{rest}" for latency, at, rest in cells if at]
    (tmp_path / "y.csv").write_text("\n".join([head, *late]), encoding="utf-8")
    assert read_record(tmp_path / "y.csv") == (plain, 2.0)


def test_a_limit_that_was_not_reached_is_as_many_watts_above_rest_as_it_is_degrees_above_the_start(tmp_path):
    """Warming by 14 °C at 5.5 W above rest: from 50 °C to 90 °C it is 40 / 14 times 5.5 W."""
    found, idle_w = by_hand(tmp_path / "x.csv", warm=lambda at: 50 + 14 * (1 - math.exp(-at / 5)), slow=100)
    assert (found.changes_s, found.steady_after_s, found.slower) == ((), 0.0, 0.0)
    fit = cooling_fit(found, idle_w=idle_w, limit_c=90.0)
    assert (fit.power_w, fit.throttled) == (7.5, False)  # the median of all 40 s
    assert fit.resistance_c_per_w == pytest.approx(14 / 5.5, rel=2e-3)
    assert fit.cooling_w == pytest.approx(2 + 40 * 5.5 / 14, rel=2e-3)
    assert fit.warms_s == pytest.approx(5, rel=0.03)
    cold, idle_w = by_hand(tmp_path / "y.csv", warm=lambda _: 50.0, slow=100)
    assert cooling_fit(cold, idle_w=idle_w, limit_c=90.0).cooling_w == 7.5, "it does not warm: all of it is taken away"


def test_a_board_that_stays_below_its_limit_is_told_by_it(tmp_path):
    record(tmp_path / "fan.csv", resistance=4.0, limit=85.0)
    found, idle_w = read_record(tmp_path / "fan.csv")
    with pytest.raises(DomainError, match="never slowed down at 8"):
        cooling_fit(found, idle_w=idle_w)
    fit = cooling_fit(found, idle_w=idle_w, limit_c=85.0)
    assert fit == cooling_fit(replace(found, limit_c=85.0), idle_w=idle_w), "as its own sensor says"
    assert fit == cooling_fit(replace(found, limit_c=70.0), idle_w=idle_w, limit_c=85.0), "who asks knows better"
    assert fit.cooling_w == pytest.approx(2.9 + (85 - 52) / 4.0, rel=0.05)
    assert not fit.throttled


def test_a_prediction_with_the_fitted_cooling_has_the_board_between_its_ends(tmp_path, answered):
    """The loop closed: fit one board, write its row, predict, and hold that against what the board did."""
    last_s, _ = record(tmp_path / "pi.csv")
    shown = answered("calibrate", "--cooling", str(tmp_path / "pi.csv"))
    assert "slower than 83" in shown.stderr
    line = shown.stdout.strip()
    row = tmp_path / "board.toml"
    row.write_text(
        '[sources.made-up]\ntitle = "made up"\norigin = "datasheet"\ndate = "2026-11-18"\n'
        '[devices.board]\nsource = "made-up"\ntitle = "Board"\nvendor = "nobody"\nunit = "gpu"\nyear = 2026\n'
        f'{line}\n[devices.board.peaks]\nf32 = "100 GFLOP/s"\n'
        '[[devices.board.memory]]\nlevel = "dram"\ncapacity = "8 GB"\nbandwidth = "15 GB/s"\n',
        encoding="utf-8",
    )
    found = json.loads(
        answered("predict", "resnet18", "--on", str(row), "--runtime", "ideal", "--format", "json").stdout
    )
    lasts = found["sustained"]
    assert lasts["low_s"] / lasts["first_s"] < last_s / 0.0833 < lasts["high_s"] / lasts["first_s"]
    assert found["summary"]["sustained_s"] == lasts["steady_s"] > lasts["first_s"]
    assert lasts["steady_after_s"] == pytest.approx(-95 * math.log(1 - 33 / (9.0 * 5.2)), rel=0.35)


@pytest.mark.parametrize(("count", "disordered"), [(10, False), (9, False), (10, True)])
def test_a_record_has_ten_rows_of_work_in_the_order_of_time(tmp_path, count, disordered):
    at = [*range(count)] if not disordered else [*range(count - 2), count, count - 1]
    (tmp_path / "x.csv").write_text(
        "time_s,latency_s\n" + "\n".join(f"{second},0.1" for second in at), encoding="utf-8"
    )
    if count == 10 and not disordered:
        assert read_record(tmp_path / "x.csv")[0].steady_s == 0.1
        return
    with pytest.raises(FormatError, match=f"has {count} rows with a time and a latency, and 10 in the order"):
        read_record(tmp_path / "x.csv")


@pytest.mark.parametrize(
    ("text", "told"),
    [("", "columns are none"), ("a,b\n1,2\n", "no record of a long run"), ("time_s,latency_s\n1,0.1\n", "1 rows")],
)
def test_a_record_that_is_none_is_told(tmp_path, text, told):
    (tmp_path / "x.csv").write_text(text, encoding="utf-8")
    with pytest.raises(FormatError, match=told):
        read_record(tmp_path / "x.csv")
    with pytest.raises(DomainError, match="no power_w and temperature_c over time"):
        cooling_fit(sustained(THROTTLED, 600.0))


def test_what_lasts_is_what_two_long_runs_are_compared_by():
    quick = with_sustained(measured(noisy(9000, 0.035)), 600.0, {})
    slowed = with_sustained(measured(THROTTLED), 600.0, {})
    found = compare(quick, slowed)
    assert (found.metric, found.main.verdict, found.main.test) == ("sustained", "slower", "Mann–Whitney")
    lasts = slowed.sustained
    late = tuple(time_s for at, time_s in zip(lasts.at_s, lasts.latency_s, strict=True) if at > lasts.steady_after_s)
    assert 0 < len(late) < len(lasts.at_s)
    assert phase_times(slowed)[None, "sustained"].samples == late
    assert found.main.ratio == pytest.approx(41 / 35, rel=0.01)
    assert compare(measured(THROTTLED), slowed).metric == "latency", "one of them was not watched"


def test_the_machine_rests_until_it_no_longer_becomes_cooler():
    now = [1000.0]
    heat = lambda: round(1e3 * (45 + 35 * math.exp((1000 - now[0]) / 40)))  # noqa: E731 - a body that cools
    told = cool_down(600, heat, clock=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))
    assert 1120 < now[0] < 1240
    assert told.startswith("It rested for ")
    assert told.endswith("80 to 45 °C.")
    now[0] = 1000.0
    told = cool_down(23, heat, clock=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))
    assert "still cooling" in told
    assert now[0] == 1023.0, "and not longer than it may"
    with pytest.raises(DomainError, match="No temperature can be read here"):
        cool_down(20, None)


def test_what_can_be_read_here_is_read_in_whole_numbers(monkeypatch):
    def place(**facts):
        return SimpleNamespace(**{"current": None, "high": None, "critical": None, **facts})

    chips = {
        "a": [place(current=41.2, high=95.0), place()],
        "b": [place(current=55.25, critical=90.0), place(high=-1.0)],
    }
    monkeypatch.setattr(lasting, "energy_meter", lambda _: SimpleNamespace(channels=()))
    monkeypatch.setattr(lasting, "psutil", SimpleNamespace(
        cpu_freq=lambda: SimpleNamespace(current=2400.5), sensors_temperatures=lambda: chips,
    ))  # fmt: skip
    readers = lasting.sensor_readers()
    assert {name: read() for name, read in readers.items()} == {"clock_hz": 2_400_500_000, "temperature_c": 55_250}
    assert lasting.hottest_limit() == 90.0
    chips["c"] = [place(current=40.0, high=80.0, critical=70.0)]
    assert lasting.hottest_limit() == 80.0, "from where a sensor says it slows down, and not where it stops"
    chips.clear()
    assert (list(lasting.sensor_readers()), lasting.hottest_limit()) == (["clock_hz"], None)
    for cpu_freq in (lambda: None, lambda: SimpleNamespace(current=0.0)):
        monkeypatch.setattr(lasting, "psutil", SimpleNamespace(cpu_freq=cpu_freq))
        assert (lasting.sensor_readers(), lasting.hottest_limit()) == ({}, None)
    monkeypatch.setattr(lasting, "psutil", SimpleNamespace())
    assert lasting.sensor_readers() == {}


def test_power_is_what_channels_say_and_how_far_counters_move():
    now, joules = [0.0], [100.0]
    counter = SimpleNamespace(name="rapl", quantity="energy", range_j=1000.0, read=lambda: joules[0])
    plug = SimpleNamespace(name="plug", quantity="power", range_j=None, read=lambda: 5.0)
    read = power_reader(SimpleNamespace(channels=(counter, plug)), lambda: now[0])
    assert read() is None
    now[0], joules[0] = 2.0, 130.0
    assert read() == 20_000
    joules[0] = 140.0
    assert read() is None, "at the same moment"
    joules[0] = 130.0
    assert read() is None
    now[0], joules[0] = 3.0, 10.0  # the counter began anew
    assert read() == 885_000
    assert power_reader(SimpleNamespace(channels=()))() is None
