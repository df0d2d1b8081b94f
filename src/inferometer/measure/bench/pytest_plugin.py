"""The pytest plug-in: a fixture that benchmarks, and options that save results, compare them and fail the session.

    def test_forward(inferometer_bench):
        measurement = inferometer_bench(lambda: model(inputs))

    pytest --inferometer-save=new.json --inferometer-compare=old.json --inferometer-fail-if="latency>5%"

A session is one profile: each benchmark a phase, named by its test. Nothing but pytest is imported until the fixture or
an option is used.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from inferometer.core.errors import InferometerError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from inferometer.core.profile import Profile
    from inferometer.measure.bench.compare import Comparison
    from inferometer.measure.bench.gate import Gate
    from inferometer.measure.bench.guard import FirstLook, Guard, NoGuard
    from inferometer.measure.bench.measurement import Measurement
    from inferometer.measure.bench.plan import Plan
    from inferometer.measure.bench.verdict import Criteria

_BESIDE = "during the runs: other tests ran beside them (pytest-xdist). Measure with -n 0."


class _Session:
    """What one pytest session asks for, and what it has measured so far."""

    def __init__(self, *, once: bool, strict: bool, beside_others: bool) -> None:
        self.once, self.strict, self.beside_others = once, strict, beside_others
        self.gates: tuple[Gate, ...] = ()
        self.baseline: Profile | None = None
        self.baseline_name = "baseline"
        self.criteria: Criteria | None = None
        self.save: Path | None = None
        self.watch: Guard | NoGuard | None = None
        self.first: FirstLook | None = None
        self.profiles: list[Profile] = []
        self.comparison: Comparison | None = None
        self.failures: tuple[str, ...] = ()


_SESSION = pytest.StashKey[_Session]()
_MEASURED = pytest.StashKey[list[str]]()
_REPORT_KEY = "inferometer_profiles"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("inferometer")
    group.addoption("--inferometer-save", metavar="FILE", help="Save what was measured, as JSON.")
    group.addoption("--inferometer-compare", metavar="FILE", help="Compare with a saved session.")
    group.addoption(
        "--inferometer-fail-if",
        action="append",
        default=[],
        metavar="CONDITION",
        help='Fail the session where it holds: "latency>5%%".',
    )
    group.addoption(
        "--inferometer-threshold", default="1%", metavar="SHARE", help="The smallest difference that counts."
    )
    group.addoption("--inferometer-strict", action="store_true", help="A disturbed measurement is an error.")
    group.addoption("--inferometer-no-guard", action="store_true", help="Do not look whether the machine is quiet.")
    group.addoption("--inferometer-once", action="store_true", help="Call each function once, as a plain test.")


def pytest_configure(config: pytest.Config) -> None:
    """Read the options at once: a mistake in them should not wait for the last test."""
    session = config.stash[_SESSION] = _Session(
        once=config.getoption("--inferometer-once"),
        strict=config.getoption("--inferometer-strict"),
        beside_others=hasattr(config, "workerinput"),
    )
    saved, compared = config.getoption("--inferometer-save"), config.getoption("--inferometer-compare")
    conditions = config.getoption("--inferometer-fail-if")
    if conditions and not compared:
        raise pytest.UsageError("--inferometer-fail-if needs --inferometer-compare=FILE.")
    if not (saved or compared):
        return
    try:
        _read_options(session, saved, compared, conditions, config.getoption("--inferometer-threshold"))
    except InferometerError as error:
        raise pytest.UsageError(str(error)) from None


def _read_options(
    session: _Session, saved: str | None, compared: str | None, conditions: list[str], threshold: str
) -> None:
    from inferometer.core.units import parse_quantity  # noqa: PLC0415 - as above
    from inferometer.measure.bench.files import load_profile, require_room  # noqa: PLC0415 - only who asks pays
    from inferometer.measure.bench.gate import parse_gate  # noqa: PLC0415 - as above
    from inferometer.measure.bench.verdict import Criteria  # noqa: PLC0415 - as above

    session.criteria = Criteria(threshold=parse_quantity(threshold, "1"))
    if saved:
        session.save = Path(saved)
        require_room(session.save)
    if compared:
        session.baseline_name, session.baseline = compared, load_profile(Path(compared))
        session.gates = tuple(parse_gate(text) for text in conditions)


class Benchmark:
    """What the fixture gives: call it with a function, and with the arguments the function takes."""

    def __init__(self, node: pytest.Item, session: _Session) -> None:
        self._node, self._session = node, session

    def __call__(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        plan: Plan | None = None,
        name: str | None = None,
        **keywords: Any,
    ) -> Measurement:
        """Measure `function(*arguments, **keywords)`; a test that measures twice names the second."""
        from inferometer.core.codec import encode  # noqa: PLC0415 - as above
        from inferometer.measure.bench.run import function_subject, measure  # noqa: PLC0415 - only who measures pays

        taken = self._node.stash.setdefault(_MEASURED, [])
        label = self._node.nodeid if name is None else f"{self._node.nodeid}:{name}"
        if name is None and taken:
            label = f"{label}:{len(taken) + 1}"
        plan = self._plan(plan)
        subject = function_subject(lambda: function(*arguments, **keywords), plan, name=label)
        session = self._session
        watch, first = _watch(session, self._node.config)
        measurement = measure([subject], plan, guard=watch, first=first, strict=session.strict, phase=label)[0]
        if session.beside_others:
            environment = measurement.environment
            reasons = (*environment.reasons, _BESIDE)
            measurement = replace(measurement, environment=replace(environment, disturbed=True, reasons=reasons))
        taken.append(encode(measurement.profile).decode())
        return measurement

    def _plan(self, plan: Plan | None) -> Plan:
        from inferometer.measure.bench.plan import Plan  # noqa: PLC0415 - as above

        if self._session.once:
            return Plan(warmup=0, runs=1, seconds=0.0, calls=1)
        return plan or Plan(seconds=0.5, seconds_at_most=20.0)


@pytest.fixture
def inferometer_bench(request: pytest.FixtureRequest) -> Benchmark:
    """Measures a function: `inferometer_bench(function, *arguments, plan=Plan(…))` gives a `Measurement`."""
    return Benchmark(request.node, request.config.stash[_SESSION])


def _watch(session: _Session, config: pytest.Config) -> tuple[Guard | NoGuard, FirstLook | None]:
    """One first look for the whole session: each benchmark then only looks at its own runs."""
    from inferometer.measure.bench.guard import Guard, NoGuard  # noqa: PLC0415 - as above

    if session.watch is None:
        quick = session.once or config.getoption("--inferometer-no-guard")
        session.watch = NoGuard() if quick else Guard()
        session.first = session.watch.before() if isinstance(session.watch, Guard) else None
    return session.watch, session.first


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put what a test measured on its report, which finds its way from a worker to the session that ends it."""
    report = yield
    if call.when == "call":
        setattr(report, _REPORT_KEY, item.stash.get(_MEASURED, []))
    return report


class _Collector:
    def __init__(self, session: _Session) -> None:
        self.session = session

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" or not report.passed:
            return
        written = getattr(report, _REPORT_KEY, [])
        if written:
            from inferometer.core.codec import decode  # noqa: PLC0415 - as above
            from inferometer.core.profile import Profile  # noqa: PLC0415 - as above

            self.session.profiles += [decode(text, Profile) for text in written]


def pytest_sessionstart(session: pytest.Session) -> None:
    config = session.config
    config.pluginmanager.register(_Collector(config.stash[_SESSION]), "inferometer-collector")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Save, compare, and fail the session where a gate holds."""
    ours = session.config.stash[_SESSION]
    if ours.beside_others or not ours.profiles or ours.once:
        return
    profile = _whole(ours.profiles, str(session.config.rootpath.name))
    if ours.save is not None:
        from inferometer.measure.bench.files import save_profile  # noqa: PLC0415 - as above

        save_profile(profile, ours.save)
    if ours.baseline is not None:
        from inferometer.measure.bench.compare import compare  # noqa: PLC0415 - as above
        from inferometer.measure.bench.gate import failed  # noqa: PLC0415 - as above

        names = (ours.baseline_name, "this session")
        ours.comparison = compare(ours.baseline, profile, criteria=ours.criteria, names=names)
        ours.failures = failed(ours.gates, ours.comparison)
    if ours.failures and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _whole(profiles: list[Profile], name: str) -> Profile:
    """All benchmarks of the session as the phases of one profile; disturbed if one of them was."""
    from inferometer.core.profile import Environment, Headline, ModelFacts  # noqa: PLC0415 - as above

    first = profiles[0]
    environments = [profile.environment or Environment() for profile in profiles]
    states = [environment.disturbed for environment in environments]
    return replace(
        first,
        model=ModelFacts(name=name),
        phases=tuple(phase for profile in profiles for phase in profile.phases),
        summary=Headline(),
        environment=replace(
            environments[0],
            disturbed=True if True in states else None if None in states else False,
            reasons=tuple(dict.fromkeys(reason for environment in environments for reason in environment.reasons)),
        ),
    )


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The times, the verdicts and the gates that hold, after the tests' own summary."""
    session = config.stash[_SESSION]
    if not session.profiles or session.once:
        return
    from inferometer.core.units import format_quantity  # noqa: PLC0415 - as above

    terminalreporter.section("inferometer")
    for profile in session.profiles:
        disturbed = "  disturbed" if profile.environment and profile.environment.disturbed else ""
        for phase in profile.phases:
            runs = len(phase.samples_s or ())
            terminalreporter.line(f"{format_quantity(phase.time_s, 's'):>10}  {phase.name}  {runs} runs{disturbed}")
    if session.comparison is not None:
        for metric in session.comparison.metrics:
            terminalreporter.line(f"{metric.verdict:>10}  {metric.name}: {metric.reason}")
    if session.save is not None:
        terminalreporter.line(f"Saved {session.save}.")
    for words in session.failures:
        terminalreporter.line(f"FAILED {words}", red=True)
