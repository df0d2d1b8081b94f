"""The plug-in, in a pytest of its own."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from inferometer.core.profile import Profile
from inferometer.measure.bench.files import load_profile, save_profile

pytest_plugins = ["pytester"]

TESTS = """
from inferometer.measure.bench import Plan

PLAN = Plan(warmup=3, runs=40, seconds=0.0, calls=1)

def work(loops):
    return sum(range(loops))

def test_forward(inferometer_bench):
    measurement = inferometer_bench(work, 20000, plan=PLAN)
    assert len(measurement.samples_s) in {1, 40}

def test_twice(inferometer_bench):
    inferometer_bench(lambda: work(20000), plan=PLAN)
    inferometer_bench(lambda: work(20000), plan=PLAN, name="again")

def test_plain():
    pass
"""


@pytest.fixture
def session(pytester):
    pytester.makepyfile(test_it=TESTS)

    def run(*options, plain=True):
        plugins = (
            "--disable-plugin-autoload",
            "-p",
            "inferometer.measure.bench.pytest_plugin",
            "-p",
            "no:cacheprovider",
        )
        result = pytester.runpytest_inprocess(*plugins, *options, *(["--inferometer-no-guard"] if plain else []))
        return SimpleNamespace(returncode=result.ret, stdout=result.stdout.str(), stderr=result.stderr.str())

    return run


def rescaled(profile: Profile, factor: float) -> Profile:
    """The same session on a machine so many times as slow."""
    from dataclasses import replace

    phases = [
        replace(phase, time_s=phase.time_s * factor, samples_s=tuple(factor * taken for taken in phase.samples_s))
        for phase in profile.phases
    ]
    return replace(profile, phases=tuple(phases))


def test_a_session_is_saved_compared_and_gated(session, pytester):
    first = session("--inferometer-save=out/base.json")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "test_it.py::test_forward" in first.stdout
    base = load_profile(pytester.path / "out" / "base.json")
    names = [phase.name for phase in base.phases]
    assert names == ["test_it.py::test_forward", "test_it.py::test_twice", "test_it.py::test_twice:again"]
    assert all(len(phase.samples_s) == 40 for phase in base.phases)

    save_profile(rescaled(base, 1e-3), pytester.path / "quick.json")
    slower = session("--inferometer-compare=quick.json", "--inferometer-fail-if=latency>50%")
    assert slower.returncode == 1, slower.stdout
    assert "FAILED latency>50% holds" in slower.stdout
    assert "slower" in slower.stdout

    save_profile(rescaled(base, 1e3), pytester.path / "slow.json")
    faster = session("--inferometer-compare=slow.json", "--inferometer-fail-if=latency>50%")
    assert faster.returncode == 0, faster.stdout
    assert "faster" in faster.stdout


def test_once_only_calls(session, pytester):
    result = session("--inferometer-once", "--inferometer-save=base.json")
    assert result.returncode == 0, result.stdout
    assert not (pytester.path / "base.json").exists()


def test_the_guard_says_what_it_saw(session, pytester):
    result = session("-k", "test_forward", "--inferometer-save=base.json", plain=False)
    assert result.returncode == 0, result.stdout
    document = json.loads((pytester.path / "base.json").read_text())
    assert document["environment"]["disturbed"] in {True, False, None}
    assert document["environment"]["host"]["logical_cores"] >= 1


def test_beside_other_tests_a_measurement_is_disturbed(session, pytester):
    pytest.importorskip("xdist")
    result = session("-p", "xdist", "-n", "2", "--inferometer-save=base.json")
    assert result.returncode == 0, result.stdout
    environment = load_profile(pytester.path / "base.json").environment
    assert environment.disturbed
    assert "pytest-xdist" in " ".join(environment.reasons)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--inferometer-compare=gone.json"], "gone.json: cannot be read"),
        (["--inferometer-fail-if=latency>5%"], "needs --inferometer-compare"),
        (["--inferometer-save=x.json", "--inferometer-threshold=much"], "'much' is not a quantity"),
        (["--inferometer-save=test_it.py/x.json"], "cannot be made"),
    ],
)
def test_a_mistake_in_the_options_stops_before_the_first_test(session, options, words):
    result = session(*options)
    assert result.returncode == 4
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_who_does_not_measure_pays_nothing(session):
    result = session("-k", "test_plain")
    assert result.returncode == 0, result.stdout
    assert "= inferometer =" not in result.stdout
    code = "import inferometer.measure.bench.pytest_plugin, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert {"numpy", "msgspec", "psutil", "scipy"}.isdisjoint(loaded.stdout.split())
