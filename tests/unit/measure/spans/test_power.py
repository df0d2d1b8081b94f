"""Power, heat, clocks and use: which sensors there are, what they say, and how much of it a span had."""

from pathlib import Path

import numpy as np
import pytest

from fakes.recorded_machine import RecordedMachine, load_machine
from inferometer.core.errors import DomainError
from inferometer.measure.spans import Measure, Profiler
from inferometer.measure.spans.energy import Sampler
from inferometer.measure.spans.power import Power, Series, energy_curve, energy_of_spans, uses
from inferometer.measure.spans.sensors import find_sensors
from unit.measure.spans.clocks import Manual

HOSTS = Path(__file__).parents[3] / "data" / "hosts"
SECOND = 1_000_000_000


def channels(host):
    return {(c.name, c.quantity): c for c in find_sensors(load_machine(HOSTS / host)).channels}


def test_a_jetsons_rails_are_volts_times_amperes_and_add_up():
    found = channels("jetson-agx-orin")
    rails = {name: channel for (name, quantity), channel in found.items() if quantity == "power"}
    assert rails["ina3221 VDD_GPU_SOC"].read() == pytest.approx(19.84 * 0.120)
    assert rails["ina3221 VIN_SYS_5V0"].read() == pytest.approx(4.992 * 0.360)
    assert all(channel.counted for channel in rails.values())
    assert not any("NC" in name for name in rails)


def test_where_one_rail_feeds_the_rest_it_alone_is_counted():
    machine = RecordedMachine(
        system="Linux", architecture="aarch64",
        files={f"/sys/class/hwmon/hwmon1/{file}": text for file, text in {
            "name": "ina3221", "in1_label": "VDD_IN", "in1_input": "5000", "curr1_input": "2000",
            "in2_label": "VDD_SOC", "in2_input": "5000", "curr2_input": "500"}.items()},
    )  # fmt: skip
    counted = {channel.name: channel.counted for channel in find_sensors(machine).channels}
    assert counted == {"ina3221 VDD_IN": True, "ina3221 VDD_SOC": False}


def test_a_laptops_package_is_counted_and_what_is_inside_it_is_not():
    found = channels("laptop-i7-1260p")
    assert found["rapl package-0", "energy"].counted
    assert not found["rapl core", "energy"].counted
    assert found["rapl package-0", "energy"].read() == pytest.approx(123456.789012)
    assert found["coretemp Package id 0", "temperature"].read() == 93.0
    assert found["battery BAT0", "power"].read() == pytest.approx(9.876)


def test_a_counter_that_only_root_may_read_is_missing_with_the_reason():
    sensors = find_sensors(load_machine(HOSTS / "workstation-rtx4090"))
    assert "root only" in sensors.missing["rapl"]
    assert not any(channel.quantity == "energy" for channel in sensors.channels)


def test_a_virtual_machine_has_nothing_and_says_why():
    missing = find_sensors(load_machine(HOSTS / "cloud-vm-xeon")).missing
    assert {"rapl", "hwmon", "ina3221", "nvml", "powermetrics", "battery"} <= missing.keys()


def test_macos_needs_root_for_powermetrics():
    machine = RecordedMachine(system="Darwin", architecture="arm64", privileged=False, commands={"powermetrics": ""})
    assert "sudo" in find_sensors(machine).missing["powermetrics"]


def test_macos_powermetrics_is_run_once_for_all_its_domains():
    command = "powermetrics -n 1 -i 100 --samplers cpu_power,gpu_power"
    text = "CPU Power: 1234 mW\nGPU Power: 56 mW\nANE Power: 0 mW\nCombined Power (CPU + GPU + ANE): 1290 mW\n"
    machine = RecordedMachine(system="Darwin", architecture="arm64", privileged=True, commands={command: text})
    found = {channel.name: channel.read() for channel in find_sensors(machine).channels}
    assert found == {"cpu": 1.234, "gpu": 0.056, "ane": 0.0}


class ActedNvml:
    class NVMLError(Exception):
        pass

    def __init__(self, *, counter):
        self.counter, self.open = counter, 0

    def nvmlInit(self):  # noqa: N802 - NVML's names, here and below
        self.open += 1

    def nvmlShutdown(self):  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetCount(self):  # noqa: N802
        return 1

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        return index

    def nvmlDeviceGetTotalEnergyConsumption(self, _handle):  # noqa: N802
        if not self.counter:
            raise self.NVMLError
        return 5_000_000

    def nvmlDeviceGetPowerUsage(self, _handle):  # noqa: N802
        return 700_000

    def nvmlDeviceGetTemperature(self, _handle, _sensor):  # noqa: N802
        return 61

    def nvmlDeviceGetClockInfo(self, _handle, _which):  # noqa: N802
        return 1980

    def nvmlDeviceGetUtilizationRates(self, _handle):  # noqa: N802
        return type("Rates", (), {"gpu": 87})


@pytest.mark.parametrize("counter", [True, False])
def test_a_gpu_is_counted_once_by_its_counter_or_its_power(counter):
    nvml = ActedNvml(counter=counter)
    machine = RecordedMachine(system="Linux", architecture="x86_64", modules={"pynvml": nvml})
    sensors = find_sensors(machine)
    found = {channel.quantity: channel for channel in sensors.channels}
    assert found["power"].read() == 700.0
    assert found["temperature"].read() == 61.0
    assert found["clock"].read() == 1.98e9
    assert found["use"].read() == pytest.approx(0.87)
    assert [channel.quantity for channel in sensors.channels if channel.counted] == ["energy" if counter else "power"]
    sensors.close()
    assert nvml.open == 0


class ActedAmdSmi:
    """Two cards as `amdsmi` shows them: what a card does not say is N/A."""

    class AmdSmiException(Exception):  # noqa: N818 - AMD's name
        pass

    def __init__(self, *, counter):
        self.counter, self.open = counter, 0

    def amdsmi_init(self):
        self.open += 1

    def amdsmi_shut_down(self):
        self.open -= 1

    def amdsmi_get_processor_handles(self):
        return ["first", "second"]

    def amdsmi_get_energy_count(self, _handle):
        if not self.counter:
            raise self.AmdSmiException
        return {"energy_accumulator": 2_000_000, "counter_resolution": 15.3, "timestamp": 1}

    def amdsmi_get_power_info(self, _handle):
        return {"current_socket_power": "N/A", "average_socket_power": 240, "power_limit": 560_000_000}

    def amdsmi_get_gpu_activity(self, _handle):
        return {"gfx_activity": 50, "umc_activity": 10}


@pytest.mark.parametrize("counter", [True, False])
def test_an_amd_card_is_counted_once_by_its_library_and_not_by_its_chip_too(counter):
    smi = ActedAmdSmi(counter=counter)
    chip = {"/sys/class/hwmon/hwmon0/name": "amdgpu", "/sys/class/hwmon/hwmon0/power1_average": "240000000"}
    machine = RecordedMachine(system="Linux", architecture="x86_64", files=chip, modules={"amdsmi": smi})
    sensors = find_sensors(machine)
    counted = {(channel.unit, channel.quantity): channel.read() for channel in sensors.channels if channel.counted}
    each = ("energy", pytest.approx(30.6)) if counter else ("power", 240.0)
    assert counted == {("gpu:0", each[0]): each[1], ("gpu:1", each[0]): each[1]}
    assert {channel.name for channel in sensors.channels} == {"amd gpu 0", "amd gpu 1", "amdgpu"}
    sensors.close()
    assert smi.open == 0


def test_a_raspberry_pi_5_adds_up_the_rails_of_its_power_chip():
    text = "   3V7_WL_SW_A current(0)=0.10000000A\n   VDD_CORE_A current(7)=2.00000000A\n   EXT5V_V volt(24)=5.1V\n"
    text += "   3V7_WL_SW_V volt(8)=3.70000000V\n   VDD_CORE_V volt(15)=0.90000000V\n"
    machine = RecordedMachine(system="Linux", architecture="aarch64", commands={"vcgencmd pmic_read_adc": text})
    (channel,) = (channel for channel in find_sensors(machine).channels if channel.counted)
    assert (channel.name, channel.read()) == ("pmic", pytest.approx(0.37 + 1.8))


@pytest.mark.parametrize(("plugged", "watts"), [("No", 12.0), ("Yes", None)])
def test_a_macs_battery_measures_without_root_while_it_discharges(plugged, watts):
    amperes = 2**64 - 1000
    text = f'"ExternalConnected" = {plugged}\n "Voltage" = 12000\n "InstantAmperage" = {amperes}\n'
    command = "ioreg -rw0 -c AppleSmartBattery"
    machine = RecordedMachine(system="Darwin", architecture="arm64", commands={command: text})
    found = [channel.read() for channel in find_sensors(machine).channels if channel.name == "battery"]
    assert found == ([] if watts is None else [watts])


# ── series and energy ───────────────────────────────────────────────────────────────────────────────────────────────


def power_series(values, *, every=SECOND, quantity="power", range_j=None):
    times = tuple(index * every for index in range(len(values)))
    return Series(name="gpu", quantity=quantity, times_ns=times, values=tuple(values), counted=True, range_j=range_j)


def test_energy_is_the_area_under_the_power():
    times, joules = energy_curve(power_series([10.0, 20.0, 10.0]))
    assert joules.tolist() == [0, 15, 30]
    assert times.tolist() == [0, SECOND, 2 * SECOND]


def test_a_counter_that_began_again_had_reached_its_range():
    _, joules = energy_curve(power_series([90.0, 98.0, 3.0], quantity="energy", range_j=100.0))
    assert joules.tolist() == [0, 8, 13]


def test_a_counter_that_began_again_without_a_range_adds_nothing():
    _, joules = energy_curve(power_series([90.0, 3.0, 5.0], quantity="energy"))
    assert joules.tolist() == [0, 0, 2]


def test_a_span_has_the_energy_of_its_time_and_none_outside_the_readings():
    power = Power(series=(power_series([100.0, 100.0, 100.0]),), interval_s=1.0)
    starts, ends = np.asarray([0, SECOND // 2, -5]), np.asarray([2 * SECOND, SECOND, 5])
    joules = energy_of_spans(power, starts, ends)
    assert joules[:2].tolist() == [200, 50]
    assert np.isnan(joules[2])


def test_sampling_goes_into_statistics_and_report():
    files = {"/sys/class/hwmon/hwmon0/name": "amdgpu", "/sys/class/hwmon/hwmon0/power1_average": "50000000"}
    machine = RecordedMachine(system="Linux", architecture="x86_64", files=files)
    clock = Manual()
    sampler = Sampler(machine, clock, interval_s=0.1)
    profiler = Profiler(enabled=True, clock=clock)
    profiler._recorder._sampler = sampler
    sampler.sample()
    with profiler.span("forward"):
        for _ in range(10):
            clock.pass_ms(100)
            sampler.sample()
    clock.pass_ms(100)
    sampler.sample()
    with profiler.span("short"):
        clock.pass_ms(1)
    sampler.sample()
    assert profiler.stats("forward").energy_j == pytest.approx(50.0, rel=1e-3)
    assert profiler.stats("short").energy_j is None  # shorter than two readings: nobody can tell
    assert [span.energy_j for span in profiler.trace().spans] == [pytest.approx(50.0, rel=1e-3), None]
    report = profiler.report()
    assert "Power, heat and clocks" in report
    assert "Not measurable here: rapl" in report
    assert profiler.recording().run.power.missing["ina3221"]


def test_a_machine_without_sensors_says_what_is_not_measurable(tmp_path):
    profiler = Profiler(enabled=True, measure=Measure(power_every_s=0.01))
    with profiler.span("forward"):
        pass
    profiler.close()
    assert "Power, heat and clocks" in profiler.report()


def test_the_thread_reads_until_it_is_stopped():
    machine = RecordedMachine(system="Linux", architecture="x86_64", files={"/proc/stat": "cpu 1 0 1 8 0 0 0 0\n"})
    rounds = iter([False, False, True])
    sampler = Sampler(machine, Manual(), interval_s=0.1, wait=lambda _: next(rounds))
    sampler.start()
    sampler.stop()
    (series,) = sampler.power().series
    assert len(series.values) == 4  # at the start, twice after waiting, and at the end
    assert uses(sampler.power())[0].quantity == "use"


def test_a_long_run_keeps_every_second_reading(monkeypatch):
    monkeypatch.setattr("inferometer.measure.spans.energy._READINGS_AT_MOST", 10)
    machine = RecordedMachine(system="Linux", architecture="x86_64", files={"/proc/stat": "cpu 1 0 1 8 0 0 0 0\n"})
    sampler = Sampler(machine, Manual(), interval_s=0.1)
    for _ in range(25):
        sampler.sample()
    assert len(sampler.power().series[0].values) <= 10
    assert sampler.interval_s > 0.1


def test_cpu_use_is_what_was_not_idle_since_the_last_reading():
    files = {"/proc/stat": "cpu 100 0 0 100 0 0 0 0\n"}
    machine = RecordedMachine(system="Linux", architecture="x86_64", files=files)
    (channel,) = find_sensors(machine).channels
    files["/proc/stat"] = "cpu 175 0 0 125 0 0 0 0\n"
    assert channel.read() == pytest.approx(0.75)


@pytest.mark.parametrize("every", [0, -1.0, float("nan")])
def test_an_interval_is_more_than_nothing(every):
    with pytest.raises(DomainError, match="power_every_s"):
        Measure(power_every_s=every)
