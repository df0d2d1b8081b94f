"""The guard before, during and after, on machines made of files that change while it looks. Nothing here waits."""

from dataclasses import replace
from pathlib import Path

import pytest

from fakes.recorded_machine import RecordedMachine, load_machine
from inferometer.measure.bench.guard import Guard, NoGuard
from inferometer.measure.bench.loop import Disturbance, together
from inferometer.measure.bench.processes import OwnUse
from unit.measure.bench.fakes import FakeClock

HOSTS = Path(__file__).parents[3] / "data" / "hosts"
CPUS = 4
TICKS = 100
NO_USE = OwnUse(cpu_s=0.0, pids=frozenset({1000}))


class Box:
    """A Linux machine of four CPUs: `spend` lets time pass, and says who used the CPUs meanwhile."""

    def __init__(self):
        self.clock = FakeClock()
        self.files = {
            "/proc/cpuinfo": "".join(f"processor\t: {cpu}\nmodel name\t: Box\n\n" for cpu in range(CPUS)),
            "/proc/meminfo": "MemTotal: 16000000 kB\nMemAvailable: 15000000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n",
            "/proc/loadavg": "0.10 0.10 0.10 1/100 1000\n",
            "/proc/vmstat": "pswpin 0\npswpout 0\n",
            "/proc/pressure/cpu": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
            "/proc/pressure/memory": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
            "/proc/pressure/io": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
        }
        self.machine = RecordedMachine(
            system="Linux", architecture="x86_64", python="3.12.0", pid=1000, files=self.files, affinity_cpus=CPUS
        )
        self.cpu = {"user": 0.0, "idle": 0.0, "steal": 0.0}
        self.processes = {7: ["backup", 0.0], 1000: ["inferometer", 0.0]}
        self.own = 0.0
        self.while_waiting = lambda: None
        self.spend(1.0)

    def spend(self, seconds, *, ours=0.0, backup=0.0, steal=0.0):
        """`ours`, `backup` and `steal` are CPU seconds."""
        self.clock.now += seconds
        self.own += ours
        self.processes[7][1] += backup
        self.processes[1000][1] += ours
        self.cpu["user"] += ours + backup
        self.cpu["steal"] += steal
        self.cpu["idle"] += seconds * CPUS - ours - backup - steal
        ticks = {name: round(value * TICKS) for name, value in self.cpu.items()}
        line = f"{ticks['user']} 0 0 {ticks['idle']} 0 0 0 {ticks['steal']} 0 0"
        self.files["/proc/stat"] = f"cpu  {line}\ncpu0 {line}\nprocs_running 1\nprocs_blocked 0\n"
        for pid, (name, used) in self.processes.items():
            self.files[f"/proc/{pid}/stat"] = f"{pid} ({name}) S " + "0 " * 10 + f"{round(used * TICKS)} 0 " + "0 " * 20

    def sleep(self, seconds):
        self.clock.slept.append(seconds)
        self.spend(seconds, **(self.while_waiting() or {}))

    def guard(self):
        return Guard(
            self.machine,
            clock=self.clock,
            sleep=self.sleep,
            own=lambda: OwnUse(cpu_s=self.own, pids=frozenset({1000})),
        )


@pytest.fixture
def box():
    return Box()


def codes(found):
    return [each.code for each in found]


def test_a_quiet_machine_is_found_quiet(box):
    first = box.guard().before()
    assert first.disturbances == ()
    assert first.quiet is True


def test_a_busy_machine_is_looked_at_again_and_then_named(box):
    box.while_waiting = lambda: {"backup": 1.0}  # two CPUs' worth of each half second
    first = box.guard().before(retries=2)
    assert codes(first.disturbances) == ["cpu-hog"]
    assert "backup (pid 7) 200%" in first.disturbances[0].found
    assert len(box.clock.slept) == 5  # three looks, two pauses


def test_a_disturbance_that_passes_is_none(box):
    busy = iter([{"backup": 1.0}, {"backup": 1.0}])
    box.while_waiting = lambda: next(busy, {})
    first = box.guard().before(retries=3)
    assert first.disturbances == ()


def test_an_average_that_only_remembers_does_not_count_against_a_quiet_machine(box):
    box.files["/proc/loadavg"] = "9.00 5.00 2.00 1/100 1000\n"
    assert box.guard().before().disturbances == ()
    del box.files["/proc/stat"]
    box.spend = lambda *_, **__: None
    assert codes(box.guard().before().disturbances) == ["load-high"]  # all that is known here


def during(box, **used):
    guard = box.guard()
    guard.before()
    mark = guard.mark()
    box.spend(1.0, **used)
    return guard.since(mark)


def test_our_own_work_is_no_disturbance(box):
    assert during(box, ours=4.0) == ()


def test_others_disturb_where_they_use_much(box):
    (found,) = during(box, backup=2.0)
    assert found.code == "cpu-busy"
    assert found.found == "other programs used 50% of all CPUs: backup (pid 7) 200% of a CPU"
    assert found.remedy


def test_others_disturb_with_little_where_we_need_all_the_rest(box):
    assert during(box, ours=1.0, backup=0.6) == ()
    (found,) = during(box, ours=3.3, backup=0.6)
    assert "15% of all CPUs" in found.found


def test_where_ended_children_are_not_counted_the_living_others_are_summed(box):
    guard = Guard(box.machine, clock=box.clock, sleep=box.sleep, own=lambda: OwnUse(cpu_s=None, pids=frozenset({1000})))
    mark = guard.mark()
    box.spend(1.0, ours=2.0)
    assert guard.since(mark) == ()
    mark = guard.mark()
    box.spend(1.0, ours=1.0, backup=2.0)
    assert codes(guard.since(mark)) == ["cpu-busy"]


def test_stolen_time_and_swapping_disturb(box):
    assert codes(during(box, ours=1.0, steal=0.5)) == ["cpu-steal"]
    guard = box.guard()
    mark = guard.mark()
    box.spend(1.0)
    box.files["/proc/vmstat"] = "pswpin 5000\npswpout 5000\n"
    assert codes(guard.since(mark)) == ["swapping"]


def test_time_stolen_before_the_runs_is_no_disturbance_of_them(box):
    box.spend(100.0, steal=90.0)
    assert during(box, ours=1.0) == ()
    assert codes(during(box, ours=1.0, steal=0.25)) == ["cpu-steal"], "of four CPUs in a second, six in a hundred"


def test_stolen_time_is_part_of_the_whole_that_others_are_a_share_of(box):
    """1.1 of 4 CPU seconds are below three in ten; of the 3 that were not stolen they would be more."""
    assert codes(during(box, backup=1.1, steal=1.0)) == ["cpu-steal"]
    assert codes(during(box, backup=1.2, steal=1.0)) == ["cpu-steal", "cpu-busy"], "three in ten"


def test_others_disturb_from_a_tenth_where_nine_in_ten_are_in_use(box):
    assert codes(during(box, ours=3.2, backup=0.42)) == ["cpu-busy"]
    assert during(box, ours=3.2, backup=0.39) == ()
    assert during(box, ours=3.1, backup=0.45) == ()


def test_throttling_during_or_after_is_told(box):
    throttle = "/sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count"
    box.files[throttle] = "3\n"
    guard = box.guard()
    first = guard.before()
    mark = guard.mark()
    box.spend(1.0, ours=1.0)
    box.files[throttle] = "8\n"
    assert codes(guard.since(mark)) == ["cpu-throttled"]
    assert codes(guard.after(first)) == ["cpu-throttled"]


def test_heat_a_lowered_clock_and_a_pulled_plug_are_seen_after(box):
    box.files |= {
        "/sys/class/thermal/thermal_zone0/temp": "50000\n",
        "/sys/class/thermal/thermal_zone0/type": "cpu\n",
        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq": "4000000\n",
        "/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "4000000\n",
        "/sys/class/power_supply/BAT0/type": "Battery\n",
        "/sys/class/power_supply/BAT0/status": "Charging\n",
    }
    guard = box.guard()
    first = guard.before()
    assert guard.after(first) == ()
    box.files |= {
        "/sys/class/thermal/thermal_zone0/temp": "95000\n",
        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq": "2000000\n",
        "/sys/class/power_supply/BAT0/status": "Discharging\n",
    }
    assert codes(guard.after(first)) == ["temperature-high", "on-battery", "cpu-clock-capped"]


def test_the_environment_keeps_what_was_found_in_words(box):
    box.files["/sys/devices/system/cpu/intel_pstate/no_turbo"] = "0\n"
    guard = box.guard()
    first = guard.before()
    seen = Disturbance(when="during", code="cpu-busy", found="a backup ran", remedy="Stop it.")
    environment = guard.environment(first, [seen])
    assert environment.disturbed is True
    assert environment.reasons == ("during the runs: a backup ran (cpu-busy). Stop it.",)
    assert environment.load_before == 0.1
    assert environment.load_after == 0.1
    assert environment.host["logical_cores"] == CPUS
    assert environment.host["turbo"] is True
    assert environment.versions["python"] == "3.12.0"
    assert guard.environment(first).disturbed is False
    assert None not in environment.host.values(), "what is not known is not there"


@pytest.mark.parametrize("folder", sorted(path.name for path in HOSTS.iterdir() if path.is_dir()))
def test_every_recorded_machine_can_be_guarded(folder):
    machine, clock = load_machine(HOSTS / folder), FakeClock()
    guard = Guard(machine, clock=clock, sleep=clock.sleep, own=lambda: NO_USE)
    first = guard.before()
    mark = guard.mark()
    clock.now += 1.0
    guard.since(mark)
    environment = guard.environment(first, (), guard.after(first))
    assert environment.disturbed in {True, False, None}
    assert bool(environment.reasons) == (environment.disturbed is True)


def test_where_nothing_can_be_read_nothing_is_claimed():
    machine, clock = RecordedMachine(system="Plan9", architecture="mips"), FakeClock()
    guard = Guard(machine, clock=clock, sleep=clock.sleep, own=lambda: NO_USE)
    first = guard.before()
    assert first.quiet is None
    assert guard.since(guard.mark()) == ()
    assert guard.environment(first).disturbed is None


def test_no_guard_looks_at_nothing():
    assert NoGuard().since(NoGuard().mark()) == ()
    assert Guard(RecordedMachine(system="Linux", architecture="x86_64")).since(None) == ()


def test_the_same_disturbance_is_told_once_with_how_often():
    one = Disturbance(when="during", code="cpu-busy", found="first words")
    other = Disturbance(when="after", code="cpu-busy", found="afterwards")
    assert together([one, replace(one, found="later words"), other, one]) == (replace(one, times=3), other)
