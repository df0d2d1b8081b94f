"""Every option of a measuring command reaches the measurement, and `--strict` its exit code."""

from dataclasses import fields, replace
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from inferometer.cli.commands import bench, doctor
from inferometer.cli.measuring import measurement_from, measuring_options, require_complete
from inferometer.core.errors import DomainError, EngineError, GateError
from inferometer.core.profile import Environment, Verification
from inferometer.measure.bench.plan import Plan
from inferometer.measure.run.model import MeasuredRun, MeasureRequest
from inferometer.measure.run.outcome import outcome_of
from inferometer.measure.run.raw import Raw
from unit.measure.bench.profiles import noisy, run_of

DISTURBED = Environment(disturbed=True, reasons=("during the runs: a backup ran.",))


def asked(*arguments):
    """The request that a command line asks for."""
    seen = []

    @click.command()
    @measuring_options
    def command(**options):
        seen.append(measurement_from("m", options, command="line", words="hello"))

    found = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return seen[0]


EVERY = {
    "--runtime": "fake", "--batch": "3", "--prompt": "20", "--generate": "7", "--depth": "40", "--image": "96",
    "--size": "heads=2", "--input": "x=5", "--weights": "q4_0", "--activations": "f16", "--threads": "5",
    "--unit": "gpu:1", "--provider": "Cpu", "--optimisation": "basic", "--option": "k=v", "--runs": "11",
    "--seconds": "4s", "--seconds-at-most": "9s", "--warmup": "2", "--timeout": "30s", "--memory-limit": "2GB",
    "--seed": "8", "--trust": "m.pt2", "--loop": "bare",
}  # fmt: skip


def test_every_option_reaches_the_request():
    flags = ("--no-shape", "--no-guard", "--strict", "--ignore-memory")
    found = asked(*(word for pair in EVERY.items() for word in pair), *flags)
    wanted = {
        "model": "m", "runtime": "fake", "weights": "q4_0", "precision": "f16", "threads": 5, "unit": "gpu:1",
        "providers": ("Cpu",), "optimisation": "basic", "options": {"k": "v"}, "sizes": {"heads": 2},
        "inputs": {"x": "5"}, "seed": 8, "shape": False, "guarded": False, "strict": True, "command": "line",
        "words": "hello", "cases": (), "ignore_memory": True, "trust": ("m.pt2",),
        "loop": "bare",
    }  # fmt: skip
    assert {name: getattr(found, name) for name in wanted} == wanted
    workload = found.workload
    assert (workload.batch, workload.prompt, workload.generate, workload.context, workload.image) == (3, 20, 7, 40, 96)
    assert found.plan == replace(Plan(seconds=4.0, seconds_at_most=9.0, warmup=2), runs=11)
    assert (found.limits.silence_s, found.limits.memory_bytes) == (30.0, 2_000_000_000)
    assert asked("--sustained", "5min").sustained_s == 300
    assert asked("--cool-down", "2min").cool_down_s == 120
    told = {
        *wanted,
        "workload",
        "plan",
        "limits",
        "sustained_s",
        "cool_down_s",
        "energy",
        "turns",
    }  # the last two are no options
    assert {field.name for field in fields(MeasureRequest)} <= told, "a new field: is it an option, and does it arrive?"


def test_without_options_the_defaults_stand():
    found = asked()
    assert found.plan is None
    assert (found.shape, found.guarded, found.strict, found.seed) == (True, True, False, 0)
    assert found.limits.silence_s == 600.0
    assert found.workload.context is None


@pytest.mark.parametrize(
    ("arguments", "least_s", "most_s"),
    [(("--runs", "5"), 1.0, 30.0), (("--seconds", "50s"), 50.0, 50.0), (("--seconds-at-most", "0.5s"), 0.5, 0.5),
     (("--seconds-at-most", "90s"), 1.0, 90.0), (("--seconds", "2s"), 2.0, 30.0)],
)  # fmt: skip
def test_the_least_and_the_most_time_agree(arguments, least_s, most_s):
    plan = asked(*arguments).plan
    assert (plan.seconds, plan.seconds_at_most) == (least_s, most_s)


def test_lists_of_lengths_are_every_combination():
    found = asked("--prompt", "8, 16", "--generate", "4", "--depth", "0,32")
    assert [(case.prompt, case.generate, case.depth, case.words) for case in found.cases] == [
        (8, 4, 0, "hello"), (8, 4, 32, "hello"), (16, 4, 0, "hello"), (16, 4, 32, "hello"),
    ]  # fmt: skip
    assert asked("--depth", "0").workload.context is None


@pytest.mark.parametrize(
    ("arguments", "error"),
    [(("--prompt", "many"), DomainError), (("--option", "k"), DomainError), (("--option", "=v"), DomainError)],
)  # fmt: skip
def test_what_cannot_be_read_names_its_option(arguments, error):
    with pytest.raises(error, match=arguments[0]):
        asked(*arguments)


def ran(*, strict=False, environment=None, ended="done", complete=True, verification=None):
    profile = replace(run_of(noisy(1.0)), verification=verification, environment=environment)
    raw = Raw(ended=ended, error="it fell")
    return outcome_of(MeasuredRun(profiles=(profile,), graph=None, raw=raw, complete=complete, strict=strict))


def test_strict_ends_with_an_error_where_the_machine_was_disturbed():
    require_complete(ran(strict=True))
    require_complete(ran(strict=True, environment=Environment(disturbed=False)))
    require_complete(ran(environment=DISTURBED))
    with pytest.raises(GateError, match="a backup ran"):
        require_complete(ran(strict=True, environment=DISTURBED))


def test_what_ended_early_or_differs_ends_with_an_error():
    with pytest.raises(KeyboardInterrupt):
        require_complete(ran(ended="stopped", complete=False))
    with pytest.raises(EngineError, match=r"ended early \(crashed\): it fell"):
        require_complete(ran(ended="crashed", complete=False))
    for status, reference, error in (("failed", "torch", GateError), ("unchecked", "torch", EngineError)):
        with pytest.raises(error):
            require_complete(ran(verification=Verification(status=status, reference=reference, reason="far off")))
    require_complete(ran(verification=Verification(status="verified", reference="torch")))
    require_complete(ran(verification=Verification(status="unchecked")))


def test_bench_measures_nothing_on_a_disturbed_machine_where_strict(monkeypatch):
    from inferometer.measure.bench import guard, run

    class Disturbed(guard.Guard):
        def __init__(self):
            pass

        def before(self, **_):
            return SimpleNamespace(disturbances=("before the runs: a backup runs",))

    seen = []
    monkeypatch.setattr(guard, "Guard", Disturbed)
    monkeypatch.setattr(run, "bench_commands", lambda *_, **given: seen.append(given) or "measured")
    with pytest.raises(GateError, match="a backup runs"):
        bench._measure((("true",),), None, Plan(), guarded=True, strict=True)
    assert seen == []
    assert bench._measure((("true",),), ("x",), Plan(), guarded=True, strict=False) == "measured"
    assert bench._measure((("true",),), None, Plan(), guarded=False, strict=True) == "measured"
    assert isinstance(seen[0]["guard"], Disturbed)
    assert (seen[0]["names"], seen[1]["first"]) == (("x",), None)


def test_bench_ends_with_an_error_where_strict_and_disturbed_meanwhile(monkeypatch):
    measured = SimpleNamespace(profile=run_of(noisy(1.0)), environment=DISTURBED, name="true", interrupted=False)
    monkeypatch.setattr(bench, "_measure", lambda *_, **__: (measured,))
    monkeypatch.setattr(bench, "_print_measurement", lambda *_: None)
    assert CliRunner().invoke(bench.command, ["--no-store", "--", "true"]).exception is None
    found = CliRunner().invoke(bench.command, ["--no-store", "--strict", "--", "true"])
    assert isinstance(found.exception, GateError)


@pytest.mark.parametrize(
    ("quiet", "strict", "code"), [(False, True, 1), (False, False, 0), (True, True, 0), (None, True, 1)]
)
def test_doctor_exits_with_1_where_strict_and_not_quiet(monkeypatch, quiet, strict, code):
    from inferometer.known.machine import health

    usual = health.overall
    monkeypatch.setattr(health, "overall", lambda checks: replace(usual(checks), quiet=quiet))
    monkeypatch.setattr(health, "take", lambda *_, **__: None)
    monkeypatch.setattr(health, "judge", lambda _readings: ())
    found = CliRunner().invoke(doctor.command, ["--strict"] if strict else [])
    assert (1 if found.exception else 0) == code, found.output
