"""Joules of work: from counters that begin again, of the units that were used, never of too short a time."""

from dataclasses import replace

import pytest

from fakes.powered_machine import RANGE_UJ, Clock, PoweredMachine
from inferometer.measure.spans.energy import EnergyMeter, EnergyWindow, energy_meter
from inferometer.measure.spans.power import Power, Series

SECOND = 1_000_000_000


def meter_of(machine, unit=None) -> EnergyMeter:
    """A meter without a thread, on the machine's own clock."""
    meter = energy_meter(machine)
    meter = replace(meter, clock_ns=machine.clock, sleep=machine.clock.rest, every_s=None).at_rest()
    return meter if unit is None else meter.for_unit(unit)


@pytest.mark.parametrize("start_uj", [0, RANGE_UJ - 5_000_000])  # the second counter begins again meanwhile
def test_the_energy_of_work_is_what_its_counter_advanced_by(start_uj):
    machine = PoweredMachine(start_uj=start_uj)
    meter = meter_of(machine, "cpu")
    _, window = meter.over(lambda: machine.clock.draw(2.0, watts=30.0))
    assert window.joules() == pytest.approx(60.0)
    assert meter.idle_w() == pytest.approx(10.0)
    facts = meter.facts({})
    assert [(sensor.name, sensor.covers) for sensor in facts.sensors] == [("rapl package-0", "CPU package")]


def test_work_is_repeated_until_the_sensors_have_changed_often_enough():
    machine = PoweredMachine()
    meter = meter_of(machine, "cpu")

    def once():
        machine.clock.draw(0.01, watts=20.0)
        return 1

    stretch = meter.repeated(once)
    assert stretch.count == 25  # a quarter of a second
    assert stretch.each_j == pytest.approx(0.2)
    slow = meter_of(PoweredMachine(gpu=True), "gpu")
    assert slow.least_s == pytest.approx(1.0)  # ten updates of a GPU's counter
    assert "needs 1 s of runs, and there were 500 ms" in slow.too_slow(0.5)
    assert slow.too_slow(1.0) is None


def test_a_gpu_counts_only_where_it_is_used():
    machine = PoweredMachine(gpu=True)
    on_cpu, on_gpu = meter_of(machine, "cpu"), meter_of(machine, "gpu:0")
    work = lambda: machine.clock.draw(1.0, watts=30.0, gpu_watts=300.0)  # noqa: E731 - said twice
    assert on_cpu.over(work)[1].joules() == pytest.approx(30.0)
    assert on_gpu.over(work)[1].joules() == pytest.approx(330.0)
    assert (on_cpu.idle_w(), on_gpu.idle_w()) == (pytest.approx(10.0), pytest.approx(60.0))
    assert [channel.name for channel in meter_of(machine, "gpu:1").channels] == ["rapl package-0"]  # not that GPU


@pytest.mark.parametrize(("shown", "unit"), [("1,0", "gpu:0"), ("0", "gpu:hidden-1"), (None, "gpu:1")])
def test_gpus_are_counted_as_cuda_shows_them(monkeypatch, shown, unit):
    machine = PoweredMachine(gpu=True)
    machine.nvml.nvmlDeviceGetCount = lambda: 2
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if shown is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    units = {channel.name: channel.unit for channel in energy_meter(machine).channels}
    assert units["gpu 1"] == unit


def test_where_nobody_says_what_is_used_the_busy_ones_count():
    machine = PoweredMachine(gpu=True)
    meter = meter_of(machine)
    _, quiet = meter.over(lambda: machine.clock.draw(1.0, watts=30.0, gpu_watts=55.0))
    _, busy = meter.over(lambda: machine.clock.draw(1.0, watts=30.0, gpu_watts=300.0))
    assert [channel.name for channel in meter.for_busy(quiet).channels] == ["rapl package-0"]
    assert [channel.name for channel in meter.for_busy(busy).channels] == ["rapl package-0", "gpu 0"]


def test_a_battery_stands_for_the_machine_only_while_it_discharges_and_nothing_else_answers():
    meter = meter_of(PoweredMachine(battery="Discharging"), "cpu")
    assert [channel.name for channel in meter.channels] == ["rapl package-0"]
    machine = PoweredMachine(battery="Discharging", readable=False)
    meter = meter_of(machine, "cpu")
    _, window = meter.over(lambda: machine.clock.draw(30.0, watts=12.0))
    assert [sensor.covers for sensor in meter.facts({}).sensors] == ["whole machine"]
    assert window.joules() == pytest.approx(30.0 * 11.0)  # from 10 W to 12 W, in a straight line
    assert "battery BAT0 changes only every 2 s: it needs 20 s of runs" in meter.too_slow(3.0)
    charging = meter_of(PoweredMachine(battery="Charging", readable=False), "cpu")
    assert charging.channels == ()
    assert "does not discharge" in charging.facts({}).reason


def test_a_counter_that_may_not_be_read_says_how_to_allow_it():
    facts = meter_of(PoweredMachine(readable=False), "cpu").facts({})
    assert facts.sensors == ()
    assert "readable by root only; `sudo chmod a+r /sys/class/powercap/intel-rapl*/energy_uj`" in facts.reason


def test_a_part_of_the_work_has_its_part_of_the_energy():
    """10 W for a second, then 30 W for a second: the parts are told apart by the readings in between."""
    counter = Series(
        name="c", quantity="energy", times_ns=(0, SECOND, 2 * SECOND), values=(5.0, 15.0, 45.0), counted=True
    )
    window = EnergyWindow(power=Power(series=(counter,)), start_ns=0, end_ns=2 * SECOND)
    assert (window.joules(0, SECOND), window.joules(SECOND, 2 * SECOND), window.joules()) == (10.0, 30.0, 40.0)
    assert window.joules(0, 3 * SECOND) is None  # nothing was read then


def test_a_sensor_that_fails_meanwhile_gives_no_number():
    machine = PoweredMachine()
    meter = meter_of(machine, "cpu")

    def work():
        machine.clock.draw(1.0)
        machine.readable = False

    assert meter.over(work)[1].joules() is None


def test_the_thread_reads_while_the_work_runs():
    machine = PoweredMachine(clock=Clock())
    meter = replace(energy_meter(machine), clock_ns=machine.clock, every_s=1e-4)
    _, window = meter.over(lambda: [machine.clock.draw(0.01) for _ in range(100)])
    assert len(window.power.series[0].values) > 2
    assert window.joules() == pytest.approx(10.0, rel=0.05)
