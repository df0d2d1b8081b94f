"""Putting it together: measurements, their profiles, files, and what people see of them."""

import errno
import io
import os
from datetime import UTC, datetime
from itertools import chain, repeat
from pathlib import Path

import pytest

import inferometer.measure.bench as bench_package
from fakes.recorded_machine import load_machine
from inferometer.cli.progress import progress_line, step_text
from inferometer.core import Profile, Run
from inferometer.core.codec import decode, encode
from inferometer.core.errors import FormatError, GateError, InferometerError, SchemaError
from inferometer.measure.bench import NoGuard, Plan, bench, bench_against, bench_commands, files
from inferometer.measure.bench import run as running
from inferometer.measure.bench.compare import compare
from inferometer.measure.bench.files import load_profile, require_room, save_profile
from inferometer.measure.bench.guard import Guard
from inferometer.measure.bench.loop import LoopProgress
from inferometer.measure.bench.measurement import BENCH, turns_of
from inferometer.measure.bench.run import measure, require_quiet
from inferometer.understand.view.measured import comparison_markdown, comparison_table, headline, measurement_card
from inferometer.understand.view.render import render
from inferometer.understand.view.terminal import draw_card
from unit.measure.bench.fakes import FakeClock, Scripted
from unit.measure.bench.profiles import noisy, op, phase, profile, run_of

QUICK = Plan(warmup=1, runs=5, seconds=0.0, calls=1)
NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)


def measured(script, plan=QUICK, **more):
    clock = FakeClock()
    subject = Scripted(clock, script, "it")
    (found,) = measure(
        [subject], plan, guard=NoGuard(), clock=clock, sleep=clock.sleep, now=lambda: NOW, **more
    )  # fmt: skip
    assert subject.closed
    return found


def test_a_function_is_measured():
    calls = []
    found = bench(lambda: calls.append(1), QUICK, name="append", guard=NoGuard())
    assert found.name == "append"
    assert len(found.samples_s) == 5
    assert len(calls) == 6
    assert found.success_rate == 1.0
    assert found.summary.count == 5
    assert found.disturbed is None


def test_the_measurement_is_a_profile_that_can_be_saved_and_read(tmp_path):
    found = measured(chain([9.0], [1.0, 1.1, "boom", 1.2, 1.3, 1.4]))
    whole = found.profile
    assert whole.kind == "measured"
    (run,) = whole.phases
    assert (run.name, run.statistic, run.time_s, run.clean_s) == ("run", "median", 1.2, 1.2)
    assert run.samples_s == (1.0, 1.1, 1.2, 1.3, 1.4)
    assert whole.summary.latency_s == 1.2
    record = whole.environment.host[BENCH]
    assert record["failures"] == [{"run": 4, "reason": "boom"}]
    assert record["success_rate"] == pytest.approx(6 / 7)
    assert record["warmup_s"] == [9.0]
    assert record["plan"]["runs"] == 5
    assert whole.provenance.created == "2026-05-04T03:02:01+00:00"
    assert "1 of 7 runs failed; run 4: boom" in whole.provenance.notes
    path = tmp_path / "deep" / "folder" / "new.json"
    save_profile(whole, path)
    assert load_profile(path) == decode(encode(whole), Profile)
    assert [file.name for file in path.parent.iterdir()] == ["new.json"]


def test_no_run_that_succeeds_is_an_error_with_the_first_reason():
    with pytest.raises(InferometerError, match=r"None of the 5 runs of it gave a time\. Run 1: boom"):
        measured(repeat("boom"))


def test_what_a_reader_should_know_is_noted():
    found = measured(
        chain((2.0**-step for step in range(4)), repeat(1e-3)),
        Plan(runs=10, seconds=0.0, runs_at_most=10, warmup_at_most=3),
    )
    assert "not steady after 3 warm-up runs" in " ".join(found.notes)
    short = measured(repeat(1.0), Plan(warmup=0, runs=10, seconds=0.0, seconds_at_most=3.0))
    assert "stopped at a limit before the 10 runs and 0 s" in " ".join(short.notes)


def test_two_functions_in_turns_know_of_each_other():
    old, new = bench_against(lambda: None, lambda: None, QUICK, names=("old", "new"), guard=NoGuard())
    assert old.turns is not None
    assert old.turns == new.turns == turns_of(new.profile)
    apart = bench_against(
        lambda: None, lambda: None, Plan(warmup=1, runs=5, seconds=0.0, calls=1, interleave=False), guard=NoGuard()
    )
    assert apart[0].turns is None


def test_commands_keep_their_line(tmp_path):
    import sys

    (found,) = bench_commands([[sys.executable, "-I", "-S", "-c", "pass"]], QUICK, guard=NoGuard())
    assert found.profile.provenance.command.endswith("-I -S -c pass")
    assert found.name == found.command


def test_strict_refuses_to_measure_on_a_machine_that_is_not_quiet():
    machine, clock = load_machine(Path(__file__).parents[3] / "data" / "hosts" / "laptop-i7-1260p"), FakeClock()
    guard = Guard(machine, clock=clock, sleep=clock.sleep)
    first = guard.before()
    assert first.disturbances  # it was recorded on its battery
    subject = Scripted(clock, repeat(1.0))
    with pytest.raises(GateError, match="The measurement was disturbed before the runs: Power supply"):
        measure([subject], QUICK, guard=guard, strict=True, clock=clock, sleep=clock.sleep)
    assert subject.log == []
    (found,) = measure([subject], QUICK, guard=guard, clock=clock, sleep=clock.sleep)
    assert found.disturbed
    assert found.environment.reasons[0].startswith("before the runs: Power supply")
    assert require_quiet([]) is None


def test_the_public_names_load():
    assert all(getattr(bench_package, name) is not None for name in bench_package.__all__)
    with pytest.raises(AttributeError, match="frobnicate"):
        bench_package.frobnicate  # noqa: B018 - the access is the test


def test_a_file_that_is_not_there_or_not_a_profile_is_told(tmp_path):
    with pytest.raises(FormatError, match=r"gone\.json: cannot be read.*bench -o"):
        load_profile(tmp_path / "gone.json")
    cut = tmp_path / "cut.json"
    cut.write_bytes(encode(run_of(noisy(1.0)))[:200])
    with pytest.raises(SchemaError, match=r"cut\.json: This is not a JSON document"):
        load_profile(cut)
    other = tmp_path / "other.json"
    other.write_text('{"schema": "inferometer.trace/1"}')
    with pytest.raises(SchemaError, match=r"other\.json: .*inferometer\.trace/1"):
        load_profile(other)
    newer = tmp_path / "newer.json"
    newer.write_text('{"schema": "inferometer.profile/99"}')
    with pytest.raises(SchemaError, match="Upgrade"):
        load_profile(newer)


def test_a_saved_run_is_read_for_its_profile(tmp_path):
    path = tmp_path / "run.json"
    inside = run_of(noisy(1.0))
    path.write_bytes(encode(Run(id="r1", project="p", status="finished", created="now", profile=inside)))
    assert load_profile(path).phases == inside.phases
    path.write_bytes(encode(Run(id="r1", project="p", status="failed", created="now")))
    with pytest.raises(FormatError, match="run r1 is failed and has no profile"):
        load_profile(path)


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "kept.json"
    save_profile(run_of(noisy(1.0)), path)
    before = path.read_bytes()

    def full(self, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(InferometerError, match=r"No space left on device.*unchanged.*Make room"):
        save_profile(run_of(noisy(2.0)), path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["kept.json"]


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path, monkeypatch):
    with pytest.raises(InferometerError, match="is a folder"):
        require_room(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(InferometerError, match="cannot be made"):
        require_room(tmp_path / "file" / "inside.json")
    monkeypatch.setattr(files.os, "access", lambda folder, how: (folder, how) != (tmp_path / "new", os.W_OK))
    with pytest.raises(InferometerError, match="new may not be written to"):
        require_room(tmp_path / "new" / "inside.json")
    require_room(tmp_path / "other" / "inside.json")


def test_the_card_has_the_time_its_spread_and_the_circumstances():
    found = measured(chain([9.0], (1.0 + 0.01 * (index * 7 % 10) for index in range(40))), Plan(warmup=1, runs=40))
    text = draw_card(measurement_card(found))
    for words in ("median, 95% between", "fastest and slowest run", "p90", "too few runs for p95", "warm-up", "1 run "):
        assert words in text
    failing = measured(chain([9.0, "boom"], repeat(1.0)))
    assert "85.7%" in draw_card(measurement_card(failing))


def test_the_table_and_the_markdown_say_the_verdict_and_why():
    rows = [op("conv", 1.0, 0.99, 1.01), op("add|relu", 1.0, 0.99, 1.01)]
    others = [op("conv", 1.3, 1.29, 1.31), op("add|relu", 1.0, 0.99, 1.01)]
    old, new = (
        profile(phase("forward", noisy(1.0), ops=rows)),
        profile(phase("forward", noisy(1.1, seed=4), ops=others)),
    )
    comparison = compare(old, new, names=("old.json", "new.json"))
    assert headline(comparison).startswith("new.json is slower than old.json by 10")
    table = render(comparison_table(comparison), "table")
    assert "forward/conv" in table
    text = comparison_markdown(comparison)
    assert text.startswith("### 🔴 slower")
    assert "1 of 2 ops changed" in text
    assert text.index("forward/conv") < text.index("add\\|relu")
    assert "Holm" in text
    for a, b, words in (
        (noisy(1.0), noisy(1.0), "as fast as"),
        (noisy(1.1), noisy(1.0), "is faster than"),
        ((1.0, 1.2), (1.1, 1.0), "No difference is shown between"),
    ):
        assert words in headline(compare(run_of(a), run_of(b)))


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_progress_bar_is_drawn_on_a_terminal_only(monkeypatch):
    log = io.StringIO()
    monkeypatch.setattr("sys.stderr", log)
    with progress_line(step_text) as draw:
        draw(LoopProgress(stage="runs", done=1, share=0.5))
    assert log.getvalue() == ""
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    clock = FakeClock()
    monkeypatch.setattr("time.monotonic", clock)
    with progress_line(step_text) as draw:
        for done in range(1, 5):
            draw(LoopProgress(stage="runs", done=done, share=done / 4))
            clock.now += 0.06
    *drawn, wiped = terminal.getvalue().split("\r")[1:]
    assert wiped == "\x1b[K"
    assert len(drawn) == 2  # not more often than the eye sees
    assert "runs" in drawn[-1]
    assert "75%" in drawn[-1]


def test_who_gives_no_plan_gets_the_usual_one(monkeypatch):
    heard = []
    monkeypatch.setattr(running, "measure", lambda subjects, plan, **_how: heard.append(plan) or [None] * len(subjects))
    bench(int)
    bench_against(int, float)
    bench_commands([("true",)])
    assert heard == [Plan()] * 3
    chosen = Plan(runs=7)
    bench(int, chosen)
    bench_against(int, float, chosen)
    bench_commands([("true",)], chosen)
    assert heard[3:] == [chosen] * 3
