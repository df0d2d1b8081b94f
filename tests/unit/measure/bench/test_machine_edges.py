"""The machine, its processes, a run and what is kept of it: edges that no run of the loop comes to by itself."""

import io
from dataclasses import replace
from types import SimpleNamespace

import psutil
import pytest

from inferometer.core.profile import (
    DeviceFacts,
    EnergyFacts,
    Environment,
    Headline,
    ModelFacts,
    Phase,
    Profile,
    Provenance,
)
from inferometer.core.statistics import Interval, Summary
from inferometer.core.workload import Workload
from inferometer.known.machine.health import Absent
from inferometer.measure.bench import guard, processes, pytest_plugin
from inferometer.measure.bench.child import ChildSubject
from inferometer.measure.bench.energy import MeteredSubject
from inferometer.measure.bench.files import save_profile
from inferometer.measure.bench.guard import _clock_fell, _setting, _top_clock, disturbances, host_record
from inferometer.measure.bench.loop import Disturbance, collect, together
from inferometer.measure.bench.measurement import Measurement, turns_of
from inferometer.measure.bench.plan import Plan
from inferometer.measure.bench.processes import OwnUse, Tree, Watchdog, own_use
from inferometer.measure.bench.pytest_plugin import _whole
from inferometer.measure.bench.subject import CommandSubject, RunOutcome, Stopwatch, _failure, calls_for
from unit.measure.bench.fakes import FakeClock, FakeWatch, Scripted


def profile(*phases, kind="measured", runtime=None, environment=None, **summary):
    return Profile(
        kind=kind, model=ModelFacts(name="m"), device=DeviceFacts(name="d"), workload=Workload(), phases=phases,
        summary=Headline(**summary), runtime=runtime, environment=environment,
        provenance=Provenance(tool="x", version="1", created="2026"),
    )  # fmt: skip


# The machine and its processes.


def test_the_allowed_clock_is_the_highest_of_those_that_are_known():
    def state(*allowed):
        return SimpleNamespace(clocks=[SimpleNamespace(allowed_hz=value) for value in allowed])

    assert _top_clock(state(2e9, None, 3e9)) == 3e9
    assert _top_clock(state(None)) is None
    assert _top_clock(SimpleNamespace(clocks=Absent("not here"))) is None
    assert _clock_fell(state(1e9), state(0.9e9)) is None
    assert _clock_fell(state(1e9), state(0.89e9)).code == "cpu-clock-capped"
    assert _clock_fell(state(None), state(1e9)) is None
    assert _clock_fell(state(1e9), state(None)) is None


@pytest.mark.parametrize(
    ("boost", "barred", "turbo"),
    [("1", None, True), ("0", None, False), (None, "1", False), (None, "0\n", True), ("0", "0", False),
     (None, "x", None)],
)  # fmt: skip
def test_whether_the_clock_may_boost_is_told_by_either_driver(boost, barred, turbo):
    machine = SimpleNamespace(read=lambda path: boost if path.endswith("boost") else barred)
    wanted = {} if turbo is None else {"turbo": turbo}
    assert _setting(machine, ()) == wanted
    assert _setting(machine, ("a cap",)) == {**wanted, "reservations": ["a cap"]}


def test_a_host_is_recorded_as_far_as_it_is_known():
    host = SimpleNamespace(
        cpu=SimpleNamespace(model="x", architecture=None, logical_cores=4), usable_cpus=2.0, usable_memory_bytes=None,
        os=SimpleNamespace(name="Linux", version=None), limits=SimpleNamespace(container=None, hypervisor="kvm"),
        gpus=[SimpleNamespace(name=None), SimpleNamespace(name="G")],
    )  # fmt: skip
    assert host_record(host) == {
        "cpu": "x", "logical_cores": 4, "usable_cpus": 2.0, "system": "Linux", "hypervisor": "kvm", "gpus": ["G"],
    }  # fmt: skip


def test_disturbances_of_one_kind_are_counted_together():
    seen = [Disturbance(when=when, code=code, found=f"{n}") for n, (when, code) in enumerate(
        [("during", "a"), ("after", "a"), ("during", "a"), ("during", "b")])]  # fmt: skip
    found = together([*seen, replace(seen[0], times=3)])
    assert [(each.when, each.code, each.found, each.times) for each in found] == [
        ("during", "a", "0", 5), ("after", "a", "1", 1), ("during", "b", "3", 1),
    ]  # fmt: skip
    assert str(replace(seen[0], times=2)) == "during the runs, 2 times: 0 (a)"
    assert str(replace(seen[0], remedy="Stop.")) == "during the runs: 0 (a). Stop."
    assert disturbances(()) == ()


class FakeProcess:
    """Stands for one of psutil's."""

    def __init__(self, pid, rss=0, times=(0.0, 0.0, 0.0, 0.0), children=(), *, gone=False):
        self.pid, self.rss, self.times, self.family, self.gone = pid, rss, times, children, gone

    def children(self, *, recursive):
        assert recursive
        return list(self.family)

    def memory_info(self):
        if self.gone:
            raise psutil.NoSuchProcess(self.pid)
        return SimpleNamespace(rss=self.rss)

    def cpu_times(self):
        if self.gone:
            raise psutil.NoSuchProcess(self.pid)
        return SimpleNamespace(**dict(zip(("user", "system", "children_user", "children_system"), self.times)))  # noqa: B905


def test_our_use_is_that_of_the_living_and_of_the_ended(monkeypatch):
    busy, late = FakeProcess(2, times=(16.0, 32.0, 64.0, 128.0)), FakeProcess(4, times=(256.0, 0.0, 0.0, 0.0))
    family = (busy, FakeProcess(3, gone=True), late)
    monkeypatch.setattr(psutil, "Process", lambda: FakeProcess(1, times=(1.0, 2.0, 4.0, 8.0), children=family))
    found = own_use()
    assert (found.cpu_s, found.pids) == (511.0, {1, 2, 3, 4})
    monkeypatch.setattr(processes.sys, "platform", "win32")
    assert own_use().cpu_s is None


def test_a_tree_is_searched_now_and_then_and_asked_at_every_look(monkeypatch):
    now, searches = [0.0], []
    root = FakeProcess(1, 10, children=(FakeProcess(2, 20), FakeProcess(3, 40, gone=True), FakeProcess(4, 80)))

    def found(pid):
        searches.append(pid)
        if root.gone:
            raise psutil.NoSuchProcess(pid)
        return root

    monkeypatch.setattr(psutil, "Process", found)
    tree = Tree(7, clock=lambda: now[0])
    assert tree.nbytes() == tree.nbytes() == 110
    assert searches == [7]
    root.rss = 15
    now[0] = 0.19
    assert (tree.nbytes(), searches) == (115, [7])
    now[0] = 0.2
    assert (tree.nbytes(), searches) == (115, [7, 7])
    root.gone, now[0] = True, 1.0
    assert tree.nbytes() is None


def test_a_watchdog_looks_again_long_before_the_time_is_up(monkeypatch):
    sizes, killed = iter([50, 90, 101]), []
    monkeypatch.setattr(processes, "Tree", lambda pid, clock: SimpleNamespace(nbytes=lambda: next(sizes)))  # noqa: ARG005
    monkeypatch.setattr(processes, "kill_tree", killed.append)
    dog = Watchdog(7, timeout_s=30.0, memory_bytes=100, watched=False)
    dog._thread.join()
    assert dog.verdict == "too much memory: killed at 101 bytes, 100 are allowed"
    assert (dog.peak_bytes, killed) == (101, [7])
    dog.stop()


def test_without_limits_nobody_watches():
    assert Watchdog(7, timeout_s=None, memory_bytes=None, watched=False)._thread is None


def test_a_failure_tells_the_last_words():
    assert _failure(0, io.BytesIO(b"words")) is None
    assert _failure(3, io.BytesIO(b"first\n last \n")) == "exit code 3: last"
    assert _failure(-9, io.BytesIO(b"")) == "ended by signal 9"
    long = io.BytesIO(b"x" * 5000 + b"\nend")
    assert _failure(1, long) == "exit code 1: end"
    subject = CommandSubject(argv=("true",), name="true", memory_bytes=100)
    assert (subject._too_much(100), subject._too_much(None)) == (None, None)
    assert subject._too_much(101) == "too much memory: 101 bytes at the peak, 100 are allowed"


@pytest.mark.parametrize(
    ("own", "watched", "peak"),
    [(500, 300, 500), (300, 500, 500), (None, 300, 300), (500, None, 500), (None, None, None)],
)
def test_the_peak_of_a_command_is_the_higher_of_its_own_and_what_was_seen_of_it(monkeypatch, own, watched, peak):
    """The system tells of the process itself, whoever watches sees all that it started."""
    dog = SimpleNamespace(peak_bytes=watched, verdict=None, stop=lambda: None)
    monkeypatch.setattr("inferometer.measure.bench.subject.Watchdog", lambda *_given, **_limits: dog)
    monkeypatch.setattr("inferometer.measure.bench.subject._ended", lambda process: own if process.wait() == 0 else -1)
    assert CommandSubject(argv=("true",), name="true").run().peak_bytes == peak


def test_a_child_over_its_limit_gives_no_time():
    child = ChildSubject(int, memory_bytes=100)
    within, over = (RunOutcome(seconds=1.0, peak_bytes=size) for size in (100, 101))
    assert child._within_limit(within) is within
    found = child._within_limit(over)
    assert (found.seconds, found.lost, found.error) == (
        None,
        True,
        "too much memory: 101 bytes at the peak, 100 are allowed",
    )


def test_other_programs_disturb_by_what_they_use_of_all_cpus(monkeypatch):
    readings = SimpleNamespace(before=SimpleNamespace(cpu=0), after=SimpleNamespace(cpu=1), elapsed_s=2.0)
    shares = [(0.5, "a"), (0.3, "b"), (0.05, "c"), (0.05, "d"), (0.049, "e")]
    monkeypatch.setattr(guard, "process_shares", lambda _readings, _ours: shares)

    def found(busy, own, total=10.0):
        monkeypatch.setattr(guard, "cpu_seconds", lambda *_: (busy, 0.0, total))
        before, after = (OwnUse(cpu_s=each, pids=frozenset()) for each in ((None, None) if own is None else (1.0, own)))
        return guard._others(readings, before, after)

    assert found(2.99, 1.0) is None
    assert found(3.0, 1.0).found == "other programs used 30% of all CPUs: a 50% of a CPU, b 30% of a CPU, c 5% of a CPU"
    assert found(9.0, 8.99).found.startswith("other programs used 10%")
    assert found(9.0, 9.01) is None
    assert found(8.99, 8.9) is None
    assert found(9.9, None, total=6.0).found.startswith("other programs used 30%"), "1.8 of 6 s, by those that live"
    assert found(1.0, 99.0) is None


def test_one_of_two_that_keeps_failing_ends_both():
    clock = FakeClock()
    subjects = [Scripted(clock, [0.1] * 99, "good"), Scripted(clock, ["no"] * 99, "bad")]
    plan = Plan(warmup=0, runs=5, seconds=0, failures_at_most=3)
    good, bad = collect(subjects, plan, watch=FakeWatch(), clock=clock, sleep=clock.sleep)
    assert (good.runs, bad.runs, len(bad.failures), good.samples_s) == (3, 3, 3, ())


def test_the_loss_of_one_of_two_processes_warms_that_one_up_again():
    clock, log = FakeClock(), []
    subjects = [Scripted(clock, [0.1] * 99, "a", log), Scripted(clock, [0.1, ("gone",), *[0.1] * 99], "b", log)]
    plan = Plan(warmup=1, runs=2, seconds=0, window_s=60.0)
    first, second = collect(subjects, plan, watch=FakeWatch(), clock=clock, sleep=clock.sleep)
    assert (len(first.samples_s), len(second.samples_s), len(second.failures)) == (2, 2, 1)
    assert (first.runs, second.runs) == (4, 5)
    assert log[4] == "b", "warmed up as soon as it was lost"


# A run, its calls and its energy.


def test_the_number_of_calls_is_found_in_the_first_runs():
    ticks = iter([0, 10_000, 10_000, 110_000, 200_000, 230_000, 0, 5_000])
    watch = Stopwatch(int, None, clock_ns=lambda: next(ticks))
    found = [watch.run() for _ in range(3)]
    assert [(each.calls, pytest.approx(each.seconds)) for each in found] == [(1, 1e-5), (10, 1e-5), (10, 3e-6)]
    assert watch.run().calls == 34
    assert [calls_for(None, warmup) for warmup in (None, 2, 3)] == [None, 1, None]
    assert calls_for(7, 0) == 7


class Meter:
    """Counts what it is asked for; a window is its number."""

    def __init__(self, least_s=1.0, channels=("rapl",), slow=None):
        self.least_s, self.channels, self.slow, self.now, self.windows = least_s, channels, slow, 0, []
        self.sensors = SimpleNamespace(why_none="none")

    def clock_ns(self):
        return self.now

    def over(self, work):
        before = self.now
        outcome = work()
        window = SimpleNamespace(seconds=(self.now - before) * 1e-9, joules=lambda: 6.0)
        self.windows.append(window)
        return outcome, window

    def too_slow(self, budget_s):
        self.budget_s = budget_s
        return self.slow

    def for_busy(self, window):  # noqa: ARG002 - the meter's signature
        return self

    def for_unit(self, unit):
        self.unit = unit
        return self

    def counted(self, window):
        return window

    def facts(self, stretches, reason=None):
        return EnergyFacts(reason=reason, counts={name: each.count for name, each in stretches.items()})


class Lasting:
    name = "it"

    def __init__(self, meter, *seconds, calls=1):
        self.meter, self.seconds, self.calls, self.runs = meter, list(seconds), calls, 0

    def run(self, *, watched=False):  # noqa: ARG002 - the seam's signature
        taken = self.seconds[min(self.runs, len(self.seconds) - 1)]
        self.runs += 1
        if taken is None:
            return RunOutcome(seconds=None, error="no")
        self.meter.now += int(taken * self.calls * 1e9)
        return RunOutcome(seconds=taken, calls=self.calls)

    def close(self):
        self.closed = True


def test_runs_as_long_as_the_sensor_needs_are_measured_as_they_come():
    meter = Meter(least_s=1.0)
    metered = MeteredSubject(subject=Lasting(meter, 0.25, calls=4), meter=meter)
    metered.run(watched=True)
    assert (metered.spent_s, meter.windows) == (0.0, [])
    metered.run()
    metered.run()
    assert (metered.spent_s, len(meter.windows)) == (2.0, 2)
    found = metered.energy("run", unit="gpu")
    assert (found.energy_j, found.facts.counts, meter.unit) == (pytest.approx(12 / 8), {"run": 8}, "gpu")


def test_shorter_runs_are_repeated_afterwards_and_failures_say_so():
    meter = Meter(least_s=1.0)
    metered = MeteredSubject(subject=Lasting(meter, 0.3), meter=meter)
    metered.run()
    found = metered.energy("run")
    assert (found.facts.counts, found.energy_j, meter.budget_s) == ({"run": 4}, 1.5, 3.0)
    assert len(meter.windows) == 1
    failing = MeteredSubject(subject=Lasting(meter, 0.3, None), meter=meter)
    failing.run()
    assert failing.energy("run").energy_j is None
    slow = MeteredSubject(subject=Lasting(Meter(slow="too slow"), 0.3), meter=Meter(slow="too slow"))
    assert slow.energy("run").facts.reason == "too slow"
    blind = MeteredSubject(subject=Lasting(meter, 9.0), meter=Meter(channels=()))
    blind.run()
    blind.run()
    assert (blind.energy("run").energy_j, blind.meter.windows) == (None, [])
    blind.close()
    assert blind.subject.closed


# What is kept.


def measurement(**more):
    times = (1.0, 2.0)
    values = {
        "name": "it", "samples_s": times, "warmup_s": (3.0,), "failures": (), "runs": 4, "discarded": 0,
        "settled": True, "complete": True, "calls": 1, "peak_memory_bytes": 7, "disturbances": (),
        "summary": Summary(name="it", unit="s", count=2, total=3.0, min=1.0, max=2.0, mean=1.5, median=1.4,
                           median_interval=Interval(low=1.0, high=2.0, confidence=0.95)),
        "plan": Plan(runs=3, seconds=2.0), "environment": Environment(host={"cpu": "c"}), "created": "2026",
    }  # fmt: skip
    return Measurement(**values | more)


def test_a_reader_is_told_what_was_not_as_planned():
    assert measurement().notes == ()
    assert measurement(settled=None).notes == ()
    odd = measurement(settled=False, complete=False, discarded=2, calls=3)
    assert odd.notes == (
        "2 runs were disturbed and repeated", "stopped at a limit before the 3 runs and 2 s that were wanted at least",
        "the times were not steady after 1 warm-up run", "each sample is the mean of 3 calls",
    )  # fmt: skip


def test_a_measurement_is_a_profile_of_its_median():
    found = measurement(turns="t1", energy_j=0.5, phase="work").profile
    phase = found.phases[0]
    assert (phase.name, phase.time_s, phase.low_s, phase.high_s, phase.clean_s) == ("work", 1.4, 1.0, 2.0, 1.4)
    assert (found.summary.latency_s, found.summary.peak_memory_bytes, found.summary.energy_j) == (1.4, 7, 0.5)
    assert (found.device.title, turns_of(found)) == ("c", "t1")
    assert turns_of(replace(found, environment=None)) is None
    assert turns_of(measurement().profile) is None


class Options:
    """What pytest_addoption asks a parser for, and a config that answers with what was given."""

    def __init__(self, **given):
        self.known, self.stash, self.given = {}, {}, given

    def getgroup(self, _name):
        return self

    def addoption(self, name, **more):
        self.known[name] = more.get("default", False if more.get("action") == "store_true" else None)

    def getoption(self, name):
        return self.given.get(name.removeprefix("--inferometer-").replace("-", "_"), self.known[name])


def configured(**given):
    options = Options(**given)
    pytest_plugin.pytest_addoption(options)
    pytest_plugin.pytest_configure(options)
    (session,) = options.stash.values()
    return session, options


def test_options_of_a_session_arrive_where_they_belong(tmp_path, monkeypatch):
    plain, options = configured()
    assert (plain.once, plain.strict, plain.beside_others, plain.save, plain.baseline) == (
        False,
        False,
        False,
        None,
        None,
    )
    assert options.known["--inferometer-threshold"] == "1%"
    assert [configured(once=True)[0].once, configured(strict=True)[0].strict] == [True, True]
    assert [configured(once=True)[0].strict, configured(strict=True)[0].once] == [False, False]
    old = tmp_path / "old.json"
    save_profile(profile(Phase(name="run", time_s=1.0)), old)
    session, _ = configured(
        save=str(tmp_path / "new" / "it.json"), compare=str(old), threshold="3%", fail_if=["slower"]
    )
    assert (session.save, session.baseline_name) == (tmp_path / "new" / "it.json", str(old))
    assert (session.criteria.threshold, [gate.metric for gate in session.gates]) == (0.03, ["slower"])
    with pytest.raises(pytest.UsageError, match="needs --inferometer-compare"):
        configured(fail_if=["slower"])
    looks = []
    monkeypatch.setattr(guard.Guard, "before", lambda self: looks.append(self) or "first")
    for given, first in (({"no_guard": True}, None), ({"once": True}, None), ({}, "first")):
        session, options = configured(**given)
        assert pytest_plugin._watch(session, options)[1] == first
        assert pytest_plugin._watch(session, options)[0] is session.watch
    assert len(looks) == 1


def test_a_session_is_disturbed_if_one_of_its_benchmarks_was():
    def session(states):
        told = [Environment(disturbed=each, reasons=(f"r{n}", "r")) for n, each in enumerate(states)]
        return _whole([profile(Phase(name=f"{n}", time_s=1.0), environment=e) for n, e in enumerate(told)], "session")

    states = ((False, True, None), (False, None), (False, False))
    assert [session(each).environment.disturbed for each in states] == [True, None, False]
    found = session((False, True))
    assert ([phase.name for phase in found.phases], found.model.name) == (["0", "1"], "session")
    assert found.environment.reasons == ("r0", "r", "r1")
