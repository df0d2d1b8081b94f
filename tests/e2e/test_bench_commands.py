"""`inferometer bench` and `inferometer compare` as a user runs them."""

import csv
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.waiting import until, until_gone
from inferometer.core import Profile
from inferometer.core.codec import decode
from inferometer.core.profile import DeviceFacts, Headline, ModelFacts, OpTime, Phase
from inferometer.core.workload import Workload
from inferometer.measure.bench.files import load_profile, save_profile
from inferometer.measure.bench.guard import Guard
from inferometer.measure.bench.processes import Watchdog
from inferometer.measure.bench.subject import CommandSubject
from inferometer.store import open_store

PYTHON = [sys.executable, "-I", "-S", "-c"]
QUICK = ["--no-guard", "--warmup", "1", "--seconds", "0", "--runs", "3"]


def inferometer(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "inferometer", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=240,
        check=False,
        cwd=cwd,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},  # noqa: TID251 - a child needs PATH
    )


def saved(path, middle, *, count=50, spread=0.01, seed=0):
    """A saved result with times around a middle."""
    generator = random.Random(seed)  # noqa: S311 - test data
    samples = tuple(middle * generator.lognormvariate(0, spread) for _ in range(count))
    found = Profile(
        kind="measured",
        model=ModelFacts(name="m"),
        device=DeviceFacts(name="local"),
        workload=Workload(),
        phases=(Phase(name="run", time_s=sorted(samples)[count // 2], statistic="median", samples_s=samples),),
        summary=Headline(latency_s=sorted(samples)[count // 2]),
    )
    save_profile(found, path)
    return str(path)


def test_a_command_line_is_measured_and_saved(tmp_path):
    result = inferometer(
        "bench", *QUICK, "-o", "deep/new.json", "--format", "json", "--", *PYTHON, "pass", cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["schema"] == "inferometer.profile/1"
    assert document["kind"] == "measured"
    (phase,) = document["phases"]
    assert (phase["name"], phase["statistic"], len(phase["samples_s"])) == ("run", "median", 3)
    assert phase["time_s"] == sorted(phase["samples_s"])[1] == document["summary"]["latency_s"]
    assert document["provenance"]["command"].endswith("-c pass")
    assert "Saved" in result.stderr
    assert load_profile(tmp_path / "deep" / "new.json") == decode(result.stdout, Profile)


@pytest.mark.parametrize("form", ["table", "csv", "md"])
def test_every_form_tells_the_median(answered, form):
    result = answered("bench", *QUICK, "--name", "nothing", "--format", form, "--", *PYTHON, "pass")
    assert result.returncode == 0, result.stderr
    assert "median, 95% between" in result.stdout
    assert "\x1b" not in result.stdout + result.stderr  # neither colours nor a progress bar in a pipe


def test_the_guard_tells_what_the_machine_was_like(answered, monkeypatch):
    class Brief(Guard):
        def __init__(self):
            super().__init__(interval_s=0.01)

    monkeypatch.setattr("inferometer.measure.bench.guard.Guard", Brief)
    result = answered(
        "bench", "--warmup", "0", "--runs", "2", "--seconds", "0", "--format", "json", "--", *PYTHON, "pass"
    )
    assert result.returncode == 0, result.stderr
    environment = json.loads(result.stdout)["environment"]
    assert environment["disturbed"] in {True, False, None}
    assert bool(environment["reasons"]) == (environment["disturbed"] is True)
    assert result.stderr.count("disturbed") == len(environment["reasons"])


def test_a_hung_run_is_killed_and_kept_as_an_error(answered, monkeypatch, tmp_path):
    every_other = """
import os, threading
if os.path.exists("seen"):
    os.unlink("seen")
    open("hangs", "w").close()
    threading.Event().wait()
open("seen", "w").close()
"""

    def watched(*given, clock, **limits):
        """Time stands still until the run hangs: how long a process takes to start does not count."""
        return Watchdog(*given, clock=lambda: clock() if (tmp_path / "hangs").exists() else 0.0, **limits)

    monkeypatch.setattr("inferometer.measure.bench.subject.Watchdog", watched)
    monkeypatch.chdir(tmp_path)
    plan = ["--no-guard", "--warmup", "0", "--seconds", "0", "--runs", "2", "--timeout", "0.1 s"]
    result = answered("bench", *plan, "--format", "json", "--", *PYTHON, every_other)
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert len(document["phases"][0]["samples_s"]) == 2
    record = document["environment"]["host"]["bench"]
    assert record["failures"] == [{"run": 2, "reason": "timed out: killed after 0.1 s"}]
    assert record["success_rate"] == pytest.approx(2 / 3)


def test_a_command_that_always_hangs_is_an_error(answered):
    result = answered(
        "bench", *QUICK, "--timeout", "0.1 s", "--", *PYTHON, "import threading; threading.Event().wait()"
    )
    assert result.returncode == 2
    assert "None of the 5 runs" in result.stderr
    assert "timed out: killed after 0.1 s" in result.stderr


def test_two_commands_in_turns_give_a_verdict(answered, monkeypatch, tmp_path):
    """Their processes are real, and their times made up."""
    run, chance = CommandSubject.run, random.Random(1)  # noqa: S311 - test data

    def told(self, *, watched=False):
        middle_s = 0.03 if "slow" in self.argv[-1] else 0.01
        return replace(run(self, watched=watched), seconds=middle_s * chance.lognormvariate(0, 0.01))

    monkeypatch.setattr(CommandSubject, "run", told)
    monkeypatch.chdir(tmp_path)
    quick = shlex.join([sys.executable, "-I", "-S", "-c", "pass"])
    result = answered(
        "bench", "--no-guard", "--warmup", "1", "--seconds", "0", "--runs", "12", "--against", quick,
        "-o", "new.json", "--save-against", "old.json", "--fail-if", "latency>5%", "--format", "json",
        "--", *PYTHON, "'slow'",
    )  # fmt: skip
    assert result.returncode == 1, result.stderr
    document = json.loads(result.stdout)
    assert document["verdict"] == "slower"
    assert document["metrics"][0]["test"] == "Wilcoxon signed-rank"
    assert "latency>5% holds" in result.stderr
    again = answered("compare", "old.json", "new.json", "--format", "json")
    assert json.loads(again.stdout)["ratio"] == document["ratio"]


def test_a_planted_slow_down_of_5_percent_is_caught_and_fails_the_gate(answered, tmp_path):
    old, new = saved(tmp_path / "old.json", 0.0100, seed=1), saved(tmp_path / "new.json", 0.0105, seed=2)
    result = answered("compare", old, new, "--format", "json")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert {"verdict", "ratio", "low", "high", "p_value", "reason", "ops"} <= document.keys()
    assert document["verdict"] == "slower"
    assert document["low"] < 1.05 < document["high"]
    failing = answered("compare", old, new, "--fail-if", "latency>3%")
    assert failing.returncode == 1
    assert failing.stderr.startswith("inferometer: latency>3% holds")
    assert "is slower than" in failing.stdout
    assert answered("compare", old, new, "--fail-if", "latency>20%").returncode == 0


def test_a_noisy_equal_pair_is_undecided_or_the_same(answered, tmp_path):
    old = saved(tmp_path / "old.json", 0.01, spread=0.3, seed=1)
    new = saved(tmp_path / "new.json", 0.01, spread=0.3, seed=2)
    result = answered("compare", old, new, "--format", "json", "--fail-if", "latency>5%")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["verdict"] == "undecided"
    assert re.search(r"about [\d,]+ runs per side would find 1 %", document["reason"])
    assert "not sure" in result.stderr
    quiet = [saved(tmp_path / f"{seed}.json", 0.01, spread=0.002, seed=seed) for seed in (3, 4)]
    assert json.loads(answered("compare", *quiet, "--format", "json").stdout)["verdict"] == "same"


def test_more_than_two_are_each_compared_with_the_first(answered, tmp_path):
    files = [saved(tmp_path / f"{number}.json", 0.01 * (1 + number / 10), seed=number) for number in range(3)]
    document = json.loads(answered("compare", *files, "--format", "json").stdout)
    assert [each["verdict"] for each in document["comparisons"]] == ["slower", "slower"]
    assert [each["a"] for each in document["comparisons"]] == [files[0]] * 2


@pytest.mark.parametrize(("form", "words"), [("table", "is slower than"), ("md", "### 🔴 slower"), ("csv", "latency")])
def test_a_comparison_has_every_form(answered, tmp_path, form, words):
    old, new = saved(tmp_path / "old.json", 0.01), saved(tmp_path / "new.json", 0.02)
    assert words in answered("compare", old, new, "--format", form).stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["bench"], "Give the command to measure"),
        (["bench", "--fail-if", "latency>5%", "--", "true"], "need --against"),
        (["bench", "--no-guard", "--", "no-such-program"], "'no-such-program' cannot be started"),
        (["bench", "--runs", "0", "--", "true"], "not a whole number from 1 to 1,000,000"),
        (["bench", "--seconds", "much", "--", "true"], "'much' is not a quantity"),
        (["bench", "--timeout", "5 GB", "--", "true"], "'5 GB' is not a number of s"),
        (["bench", "--seconds", "100 s", "--", "true"], "at least 100 seconds and at most 60"),
        (["bench", "-o", ".", "--", "true"], "is a folder"),
        (["bench", "--against", "echo 'open", "--", "true"], "is not a command line"),
        (["compare", "old.json"], "two or more runs or files"),
        (["compare", "gone.json", "gone.json"], "There is no file gone.json"),
        (["compare", "a", "b", "--fail-if", "latency"], "'latency' is not a condition"),
        (["compare", "a", "b", "--alpha", "2"], "not a finite number between 0 and 1"),
        (["compare", "a", "b", "--threshold", "0"], "threshold must lie between 0 and 1"),
    ],
    ids=" ".join,
)
def test_a_mistake_is_one_sentence_and_exit_2(answered, arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = answered(*arguments)
    assert result.returncode == 2
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_stored_runs_are_compared_by_name_and_as_last(answered, tmp_path):
    place = str(tmp_path / "runs.db")
    with open_store(place) as store:
        for name, middle, seed in (("before", 0.01, 1), ("after", 0.02, 2)):
            store.add(load_profile(Path(saved(tmp_path / f"{name}.json", middle, seed=seed))), name=name)
    for pair in (("last~1", "last"), ("before", "after"), (str(tmp_path / "before.json"), "last")):
        result = answered("compare", *pair, "--store", place)
        assert result.returncode == 0, result.stderr
        assert result.stdout.startswith(f"{pair[1]} is slower than {pair[0]} by 2 × (latency): ratio 2")
    assert "no file gone.json" in answered("compare", "gone.json", "last", "--store", place).stderr
    assert "Did you mean last" in answered("compare", "lst", "last", "--store", place).stderr


def test_a_comparison_shows_the_largest_changes_and_has_plain_numbers_as_csv(answered, tmp_path):
    def with_ops(name, times):
        whole = load_profile(Path(saved(tmp_path / name, sum(times))))
        (phase,) = whole.phases
        ops = tuple(OpTime(name=f"op{index}", kind="linear", time_s=time_s) for index, time_s in enumerate(times))
        save_profile(replace(whole, phases=(replace(phase, ops=ops),)), tmp_path / name)
        return str(tmp_path / name)

    old = with_ops("old.json", [1.0] * 20)
    new = with_ops("new.json", [1.0 + 0.01 * index for index in range(20)])
    table = answered("compare", old, new).stdout
    shown = re.findall(r"run/(op\d+) ", table)
    assert shown == [f"op{index}" for index in range(19, 7, -1)]
    assert "8 more ops changed by less: --format json lists all of them." in table
    assert len(re.findall(r"run/op\d+ ", answered("compare", old, new, "--all").stdout)) == 20
    rows = list(csv.DictReader(answered("compare", old, new, new, "--format", "csv").stdout.splitlines()))
    assert len(rows) == 2 * 21
    assert all(float(row["a"]) > 0 and float(row["ratio"]) > 0 for row in rows)
    assert {row["compared"] for row in rows} == {new}


def test_a_file_cut_in_the_middle_is_told_by_name(answered, tmp_path):
    whole = saved(tmp_path / "old.json", 0.01)
    cut = tmp_path / "cut.json"
    cut.write_bytes((tmp_path / "old.json").read_bytes()[:300])
    result = answered("compare", whole, str(cut))
    assert result.returncode == 2
    assert "cut.json: This is not a JSON document" in result.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_ctrl_c_ends_the_measured_command_and_keeps_the_runs_before_it(tmp_path):
    note, count = tmp_path / "pid", tmp_path / "count"
    third_hangs = f"""
import os, threading
with open({str(count)!r}, "a") as file:
    file.write("x")
if os.path.getsize({str(count)!r}) == 3:
    open({str(note)!r}, "w").write(str(os.getpid()))
    threading.Event().wait()
"""
    options = ["--no-guard", "--warmup", "0", "--seconds", "0", "-o", "kept.json", "--store", "runs.db"]
    process = subprocess.Popen(
        [sys.executable, "-m", "inferometer", "bench", *options, "--", *PYTHON, third_hangs],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        cwd=tmp_path,
    )
    until(lambda: process.poll() is not None or (note.exists() and note.read_text("ascii")), "the third run")
    process.send_signal(signal.SIGINT)
    printed, words = process.communicate(timeout=240)
    assert process.returncode == 130
    assert words.strip().endswith("Interrupted.")
    until_gone(int(note.read_text("ascii")))
    assert "interrupted before the 30 runs and 0 s that were wanted at least" in printed
    kept = load_profile(tmp_path / "kept.json")
    assert len(kept.phases[0].samples_s) == 2
    assert kept.environment.host["bench"]["interrupted"] is True
    with open_store(tmp_path / "runs.db") as store:
        (row,) = store.list().rows
        assert (row.status, store.get(row.id).profile) == ("killed", kept)
