"""Machines that answer oddly: half a line, a number where text belongs, a limit met to the byte; and names of parts."""

import json
from dataclasses import replace

import pytest

from fakes.recorded_machine import RecordedMachine
from inferometer.core.device import CoreGroup, Device, Sourced
from inferometer.core.errors import UnknownNameError
from inferometer.known.machine.detect import detect_host
from inferometer.known.machine.detect.fields import cpu_list, kib, number, pairs, size_bytes, whole
from inferometer.known.machine.detect.host import Gpu
from inferometer.known.machine.detect.identity import machine_facts
from inferometer.known.machine.detect.macos import parse_sw_vers, parse_swap_usage, parse_vm_stat
from inferometer.known.machine.detect.sensors import nvidia_sensor
from inferometer.known.machine.detect.windows import COMMAND
from inferometer.known.machine.local import _caches, _near, local_device
from inferometer.known.names import match, match_device, words

MIB, GIB = 2**20, 2**30


# Fields, to the last character that they may have.


def test_numbers_end_where_they_may():
    assert (whole("9" * 20), whole("9" * 21), whole("0x" + "f" * 16), whole("0x" + "f" * 17)) == (
        10**20 - 1, None, 2**64 - 1, 0,
    )  # fmt: skip
    assert (number("1" * 40), number("1" * 41)) == (float("1" * 40), None)
    assert (size_bytes("9" * 15), size_bytes("9" * 16), size_bytes("2 TiB"), size_bytes("2mb")) == (
        10**15 - 1, None, 2 * 2**40, 2 * MIB,
    )  # fmt: skip
    assert (kib("0 kB"), kib("-0 kB"), kib("x")) == (0, 0, None)
    assert (cpu_list("-1"), cpu_list("0"), cpu_list("65535"), cpu_list("65536")) == ((), (0,), (65535,), ())
    assert cpu_list("2-2,1-x,x-1,-1-3,4") == (2, 4)
    assert pairs("a=1=2\n =3\nb\n", "=") == {"a": "1=2"}


# Macs.


def mac(displays=(), sysctl="", **commands):
    told = {"sysctl -a": sysctl, "system_profiler SPDisplaysDataType -json": json.dumps(
        {"SPDisplaysDataType": list(displays)}), **commands}  # fmt: skip
    return detect_host(RecordedMachine(system="Darwin", architecture="x86_64", commands=told))


def test_a_macs_cards_are_apples_by_either_name_and_others_have_their_own_memory():
    host = mac(
        [
            {"sppci_model": "Apple M9", "sppci_cores": "40"},
            {"_name": "Radeon", "spdisplays_vendor": "AMD (0x1002)", "spdisplays_vram": "8 GB"},
            {"sppci_model": 7, "_name": "", "spdisplays_vendor": ["x"], "_spdisplays_vram": "1536 MB"},
            {"sppci_model": "X Apple", "spdisplays_vendor": "sppci_vendor_Apple"},
            {"sppci_model": "Not an Apple", "spdisplays_vendor": "sppci_vendor_intel"},
        ],
        "hw.memsize: 16\n",
    )
    assert [(gpu.name, gpu.vendor, gpu.memory_bytes, gpu.shared_memory, gpu.cores) for gpu in host.gpus] == [
        ("Apple M9", "Apple", 16, True, 40), ("Radeon", "AMD", 8 * GIB, None, None),
        (None, None, 1536 * MIB, None, None), ("X Apple", "Apple", 16, True, None),
        ("Not an Apple", "intel", None, None, None),
    ]  # fmt: skip
    facts = machine_facts(RecordedMachine(system="Darwin", architecture="x86_64"), host)
    assert facts.gpus == ("Apple M9", "Radeon", "X Apple", "Not an Apple"), "those with a name"


def test_an_intel_mac_has_one_set_of_caches_and_its_clocks():
    sysctl = """machdep.cpu.brand_string: Intel(R) Core(TM) i9
machdep.cpu.vendor: GenuineIntel
hw.physicalcpu: 8
hw.logicalcpu: 16
hw.packages: 1
hw.cpufrequency: 2300000000
hw.cpufrequency_max: 4800000000
hw.l1dcachesize: 32768
hw.l1icachesize: 0
hw.l3cachesize: 16777216
hw.nperflevels: 0
"""
    cpu = mac(sysctl=sysctl).cpu
    assert (cpu.vendor, cpu.architecture, cpu.physical_cores, cpu.logical_cores, cpu.sockets) == (
        "Intel", "x86-64", 8, 16, 1,
    )  # fmt: skip
    assert (cpu.base_hz, cpu.max_hz, cpu.groups, cpu.performance_cores) == (2.3e9, 4.8e9, (), None)
    assert [(cache.level, cache.kind, cache.size_bytes, cache.total_bytes) for cache in cpu.caches] == [
        (1, "data", 32768, None), (3, "unified", 16777216, None),
    ]  # fmt: skip


def test_a_macs_levels_of_performance_have_caches_of_their_own():
    sysctl = """hw.optional.arm64: 1
hw.nperflevels: 1
hw.perflevel0.name: Performance
hw.perflevel0.physicalcpu: 5
hw.perflevel0.logicalcpu: 5
hw.perflevel0.l1dcachesize: 100
hw.perflevel0.l2cachesize: 1000
hw.perflevel0.cpusperl2: 2
"""
    cpu = mac(sysctl=sysctl).cpu
    assert (cpu.vendor, cpu.architecture, cpu.performance_cores) == ("Apple", "arm64", None), "one level is no kind"
    assert [(cache.level, cache.shared_by, cache.count, cache.total_bytes) for cache in cpu.caches] == [
        (1, 1, 5, 500), (2, 2, 3, 3000),
    ]  # fmt: skip
    many = mac(sysctl="hw.optional.arm64: 1\nhw.nperflevels: 99\n").cpu
    assert len(many.groups) == 8


def test_what_a_mac_says_of_its_memory_and_system():
    stat = "Mach Virtual Memory Statistics: (page size of 100 bytes)\nPages free: 1.\nPages inactive: 20.\n"
    assert parse_vm_stat(stat) == 2100
    assert parse_vm_stat(f"{stat}Pages speculative: 300.\n") == 32100
    assert parse_vm_stat("Pages free: 1.\nPages inactive: 20.\n") is parse_vm_stat(stat[:70]) is None
    assert parse_swap_usage("total = 2.00G  used = 512.00M  free = 1.50K") == (2 * GIB, 1536)
    assert parse_swap_usage("total = 2048.00M") == (2 * GIB, None)
    version = "ProductName: macOS\nProductVersion: 15.1\nBuildVersion: 24B\n"
    assert (parse_sw_vers(version, "24").version, parse_sw_vers(version, "24").kernel) == ("15.1 (24B)", "Darwin 24")
    assert (parse_sw_vers("ProductVersion: 15.1\n", None).version, parse_sw_vers(None, "").kernel) == ("15.1", None)
    for text, virtual in (("1", True), ("0", False), ("", None)):
        assert mac(sysctl=f"kern.hv_vmm_present: {text}\n").limits.virtualised is virtual


@pytest.mark.parametrize(
    ("commands", "privileged", "why"),
    [({}, True, "there is no powermetrics here"),
     ({"powermetrics -n 1": ""}, False, "powermetrics needs root: run with sudo"),
     ({"powermetrics -n 1": ""}, True, None)],
)  # fmt: skip
def test_a_macs_power_is_read_by_root(commands, privileged, why):
    machine = RecordedMachine(system="Darwin", architecture="arm64", commands=commands, privileged=privileged)
    power, battery = detect_host(machine).sensors
    assert (power.why, power.available, battery.why) == (why, why is None, "there is no battery")


# Windows.


def windows(**classes):
    told = {" ".join(COMMAND): "\ufeff" + json.dumps(classes)}
    return detect_host(RecordedMachine(system="Windows", architecture="AMD64", commands=told))


def test_windows_counts_every_socket_and_adds_up_caches():
    socket = {"Name": " A CPU ", "Manufacturer": "GenuineIntel", "NumberOfCores": 4, "NumberOfLogicalProcessors": 8,
              "MaxClockSpeed": 3000, "L2CacheSize": 10, "L3CacheSize": 20}  # fmt: skip
    host = windows(processor=[socket, {**socket, "NumberOfCores": None, "L3CacheSize": 5}])
    cpu = host.cpu
    assert (cpu.model, cpu.physical_cores, cpu.logical_cores, cpu.sockets, cpu.base_hz) == ("A CPU", 4, 16, 2, 3e9)
    assert [(cache.level, cache.kind, cache.total_bytes) for cache in cpu.caches] == [
        (2, "unified", 20 * 1024), (3, "unified", 25 * 1024),
    ]  # fmt: skip
    rows = [{"Level": 3, "CacheType": 4, "InstalledSize": 7}, {"Level": 3, "CacheType": 4, "InstalledSize": 5},
            {"Level": 3, "CacheType": 3, "InstalledSize": 2}, {"Level": 9, "CacheType": 4, "InstalledSize": 5},
            {"Level": 4, "CacheType": 9, "InstalledSize": 5},
            {"Level": 4, "CacheType": 5, "InstalledSize": 0}]  # fmt: skip
    told = windows(processor=socket, cache=rows).cpu
    assert [(cache.level, cache.kind, cache.total_bytes) for cache in told.caches] == [
        (1, "data", 12 * 1024), (1, "instruction", 2 * 1024),
    ]  # fmt: skip
    assert told.sockets == 1, "a list of one is the row itself"
    bare = windows().cpu
    assert (bare.sockets, bare.base_hz, bare.groups, bare.caches) == (None, None, (), ())


def test_windows_memory_is_the_machines_or_what_the_system_sees():
    memory = windows(
        system=[{"TotalPhysicalMemory": 5000}], os=[{"TotalVisibleMemorySize": 4, "FreePhysicalMemory": 3}],
        pagefile=[{"AllocatedBaseSize": 8, "CurrentUsage": 1}, {"AllocatedBaseSize": 4, "CurrentUsage": 2}],
    ).memory  # fmt: skip
    assert (memory.total_bytes, memory.available_bytes, memory.swap_total_bytes, memory.swap_free_bytes) == (
        5000, 3 * 1024, 12 * MIB, 9 * MIB,
    )  # fmt: skip
    seen = windows(os=[{"TotalVisibleMemorySize": 4}], pagefile=[{"AllocatedBaseSize": 1, "CurrentUsage": 2}]).memory
    assert (seen.total_bytes, seen.available_bytes, seen.swap_free_bytes) == (4096, None, 0)
    odd = windows(system=[{"TotalPhysicalMemory": True}], os=[{"TotalVisibleMemorySize": -4}]).memory
    assert (odd.total_bytes, odd.swap_total_bytes, odd.swap_free_bytes) == (None, None, None)


def test_windows_cards_have_the_registrys_size_where_32_bits_are_too_few():
    video = [{"Name": name, "AdapterCompatibility": vendor, "AdapterRAM": ram, "DriverVersion": "1"}
             for name, vendor, ram in (("big", "Advanced Micro Devices, Inc.", 0xFFF00000), ("edge", "X", 0xFFEFFFFF),
                                       ("full", "Intel Corporation", 0xFFF00000), ("none", None, 0))]  # fmt: skip
    host = windows(video=video, registry=[{"DriverDesc": "big", "MemorySize": 16 * GIB}])
    assert [(gpu.name, gpu.vendor, gpu.memory_bytes, gpu.driver) for gpu in host.gpus] == [
        ("big", "AMD", 16 * GIB, "1"), ("edge", "X", 0xFFEFFFFF, "1"), ("full", "Intel", None, "1"),
        ("none", None, None, "1"),
    ]  # fmt: skip


def test_what_windows_says_of_its_system_and_hypervisor():
    host = windows(system=[{"Manufacturer": "M", "Model": 5, "HypervisorPresent": False}],
                   os=[{"Caption": "Microsoft Windows 11", "Version": "10", "BuildNumber": "22"}])  # fmt: skip
    assert (host.board, host.os.name, host.os.version, host.os.kernel) == ("M", "Windows 11", "10", "22")
    assert host.limits.virtualised is False
    assert windows(system=[{"HypervisorPresent": True}]).limits.virtualised is None, "a PC may run one itself"
    assert windows().os.name == "Windows"


# Power, and the row of a card.


def test_nvidias_power_is_that_of_cards_whose_driver_gives_it():
    card = Gpu(name=None, vendor="NVIDIA", source="nvml", power_limit_w=300.0)
    silent, other = replace(card, power_limit_w=None), replace(card, source="cim")
    assert nvidia_sensor([card, silent, replace(card, name="L4")]).domains == ("GPU", "L4")
    assert nvidia_sensor([silent]).why == "the NVIDIA driver gives no power readings here"
    for nobody in ([other], [replace(card, vendor="AMD")], []):
        assert nvidia_sensor(nobody).why == "no NVIDIA GPU whose driver answers"


@pytest.mark.parametrize(
    ("size", "memory", "shared", "near"),
    [(100, 86, False, True), (100, 85, False, False), (100, 114, False, True), (100, 115, False, False),
     (100, 1, True, True), (100, 115, True, False), (None, 1, False, True), (100, None, False, True),
     (100, 85, None, False)],
)  # fmt: skip
def test_a_cards_memory_is_about_the_rows(size, memory, shared, near):
    assert _near(size, Gpu(memory_bytes=memory, shared_memory=shared, source="x")) is near


def test_units_of_a_machine_with_several_cards_are_numbered():
    bare = detect_host(RecordedMachine(system="Linux", architecture="x86_64"))
    cards = tuple(
        Gpu(name=f"Unheard {n}", vendor="X", memory_bytes=n * GIB, shared_memory=False, max_hz=1e9, power_limit_w=5.0,
            source="x") for n in (1, 2)
    )  # fmt: skip
    host = replace(bare, gpus=cards)
    assert [local_device(name, host).title for name in ("local", "local:gpu", "local:gpu:1")] == [
        "Unheard 1", "Unheard 1", "Unheard 2",
    ]  # fmt: skip
    second = local_device("local:gpu:1", host)
    assert (second.name, second.memory.capacity_bytes.value, second.clock_hz.value, second.power_w.value) == (
        "local:gpu:1", 2 * GIB, 1e9, 5.0,
    )  # fmt: skip
    with pytest.raises(UnknownNameError, match=r"local, local:cpu, local:gpu:0, local:gpu:1\."):
        local_device("local:gpu:2", host)
    with pytest.raises(UnknownNameError, match=r"Known: local, local:cpu, local:gpu\."):
        local_device("local:npu", replace(bare, gpus=cards[:1]))
    display = replace(cards[0], shared_memory=None)
    assert local_device(host=replace(bare, gpus=(display,))).unit == "cpu", "a display adapter is no default"
    assert _caches(bare) == {}


def test_sensors_of_linux_are_told_once_for_each_channel():
    """A monitor may have an input and an average of one channel, and several channels in one folder."""
    chip = "/sys/class/hwmon/hwmon0"
    files = {
        f"{chip}/name": "nct", f"{chip}/power1_input": "1", f"{chip}/power1_average": "1",
        f"{chip}/power1_label": "PKG", f"{chip}/power2_input": "2",
        "/sys/class/hwmon/hwmon1/name": "ina3221", f"{chip}/power3_cap": "9",
        **{f"/sys/class/hwmon/hwmon1/{name}": text for name, text in (
            ("in1_label", "VDD"), ("in1_input", "5"), ("curr1_input", "6"), ("in2_label", "NC"), ("in2_input", "5"),
            ("curr2_input", "6"), ("in3_label", "HALF"), ("in3_input", "5"))},
        "/sys/class/power_supply/BAT0/type": "Battery", "/sys/class/power_supply/BAT0/power_now": "1",
        "/sys/class/power_supply/BAT1/type": "Battery", "/sys/class/power_supply/BAT1/current_now": "1",
        "/sys/class/power_supply/BAT2/type": "Battery", "/sys/class/power_supply/BAT2/current_now": "1",
        "/sys/class/power_supply/BAT2/voltage_now": "1", "/sys/class/power_supply/AC/type": "Mains",
        "/sys/class/power_supply/AC/power_now": "1", "/sys/class/powercap/intel-rapl:0/name": "package-0",
        "/sys/class/powercap/intel-rapl:0/energy_uj": "5", "/sys/class/powercap/intel-rapl:0:1/name": "dram",
        "/sys/class/powercap/intel-rapl:1/energy_uj": "5", "/sys/class/powercap/intel-rapl-mmio:0/name": "x",
    }  # fmt: skip
    found = {row.name: (row.domains, row.why) for row in detect_host(
        RecordedMachine(system="Linux", architecture="x86_64", files=files)).sensors}  # fmt: skip
    assert found["hwmon"] == (("nct PKG", "nct"), None)
    assert found["ina3221"] == (("VDD",), None)
    assert found["battery"] == (("BAT0", "BAT2"), None)
    assert found["rapl"] == (("package-0", "intel-rapl:1"), None), "those that may be read"
    assert found["pmic"][1] == "not a Raspberry Pi 5"


# Names.


@pytest.mark.parametrize(
    ("name", "count"),
    [("8x H100", 8), ("1x H100", 1), ("1x box, H100 x 4", 4), ("H100 x 4096", 4096), ("H100 x 4097", 1),
     ("RTX 4090 24GB * 4", 4),
     ("A100 (x2)", 2), ("P40 (10x 24GB)", 10), ("Cortex-A76 2.4GHz x 4", 1), ("H100", 1)],
)  # fmt: skip
def test_how_many_a_name_speaks_of(name, count):
    assert words.count_in(name) == count


@pytest.mark.parametrize(
    ("part", "count"),
    [("a76 x 4", 4), ("4× a76", 1), ("a76 ×2 octa-core", 2), ("quad core a53", 4), ("single-core", 1), ("6-core", 6),
     ("12 cores", 12), ("a53", 1)],
)  # fmt: skip
def test_how_many_cores_a_part_lists(part, count):
    assert match._count_in(part) == count


@pytest.mark.parametrize(
    ("part", "clock", "core"),
    [("kryo 485", 1.9e9, "cortex-a55"), ("kryo 485", 2.0e9, "cortex-a76"), ("kryo 260", 1.8e9, "cortex-a53"),
     ("kryo 260", 2.2e9, "cortex-a73"), ("kryo", 1.5e9, "kryo"), ("kryo 780", 3.0e9, "cortex-a78"),
     ("cortex-a72", 1.5e9, "cortex-a72"), ("neoverse n1", 2.5e9, "neoverse-n1"), ("x925 big", 3.0e9, "cortex-x925"),
     ("nothing known", 1e9, None)],
)  # fmt: skip
def test_a_part_names_its_core(part, clock, core):
    assert match._core_in(part, clock) == core


def test_a_part_without_a_core_goes_on_with_the_one_before():
    assert [*match._segments("kryo 485 2.8ghz + 2.4 ghz x 3 + 1.8ghz x 4 + cores")] == [
        ("cortex-a76", 1, 2.8e9), ("cortex-a76", 3, 2.4e9), ("cortex-a55", 4, 1.8e9),
    ]  # fmt: skip
    assert [*match._segments("cortex-a53 1.2 ghz ~ 1500mhz + 600mhz")] == [
        ("cortex-a53", 1, 1.5e9), ("cortex-a53", 1, 0.6e9),
    ]  # fmt: skip
    assert [*match._segments("2.4ghz x 4")] == []


@pytest.mark.parametrize(
    ("name", "threads"),
    [
        ("c6g.medium", 1),
        ("c6g.large", 2),
        ("c6g.xlarge", 4),
        ("c6g.4xlarge", 16),
        ("c6g.metal", None),
        ("t2.micro", None),
    ],
)
def test_an_instance_has_as_many_threads_as_its_size_says(name, threads):
    found = match.described_instance(name)
    assert (None if found is None else found.cores.value) == threads, "Graviton has a thread a core"


@pytest.mark.parametrize(
    ("name", "row"),
    [("Rack 4090 unit", None), ("NVIDIA 4090", "nvidia-rtx-4090"), ("4090", "nvidia-rtx-4090"), ("Board 3060 v2", None),
     ("GeForce 4070", "nvidia-rtx-4070"), ("AMD 7600", "amd-radeon-7600")],
)  # fmt: skip
def test_a_bare_number_counts_beside_its_maker_or_alone(name, row):
    found = match_device(name, "gpu")
    assert (found and found.device) == row


def told(value, **more):
    return Sourced(value=value, origin="datasheet", source="s", date="2026", **more)


def chip(name, unit, peaks, cores=10, clock=1e9):
    group = CoreGroup(core="c", count=cores, clock_hz=clock, ops_per_cycle={"f32": 2.0})
    return Device(
        name=name, title=name.upper(), vendor="v", unit=unit, aliases=("also",), cores=told(cores),
        clock_hz=told(clock), peaks={key: told(value) for key, value in peaks.items()}, core_groups=(group, group),
        notes="old",
    )  # fmt: skip


def test_cpu_and_gpu_together_add_what_both_compute():
    both = match._together(chip("c", "cpu", {"f32": 1e12, "f64": 9.0}), chip("g", "gpu", {"f32": 2.5e12, "i8": 9.0}))
    assert both.peaks == {"f32": told(3.5e12, note="CPU 1e+12 + GPU 2.5e+12")}
    assert (both.name, both.title, both.unit) == ("c+gpu", "C and GPU together", "gpu")
    assert (both.core_groups, both.cores, both.clock_hz, both.aliases) == ((), None, None, ())
    assert both.notes == "CPU and GPU share the work; the peaks are the sum of both."


def test_fewer_cores_have_their_share_of_every_peak():
    few = match._with_cores(chip("g", "gpu", {"f32": 40.0, "i8": 80.0}), 4)
    assert {name: peak.value for name, peak in few.peaks.items()} == {"f32": 16.0, "i8": 32.0}
    assert (few.name, few.cores.value, [group.count for group in few.core_groups]) == ("g-4-cores", 4, [4])
    assert (few.notes, few.aliases) == ("The row has 10 cores; the published name says 4.", ())


def test_a_raised_clock_raises_every_peak_of_a_cpu():
    raised = match.overclocked(chip("c", "cpu", {"f32": 40.0}, clock=2e9), "C (overclocked to 2.5 GHz)")
    assert (raised.name, raised.peaks["f32"].value, raised.clock_hz.value) == ("c-at-2.5ghz", 50.0, 2.5e9)
    assert [group.clock_hz for group in raised.core_groups] == [2.5e9, 2.5e9]
    assert raised.notes == "Overclocked to 2.5 GHz, as its published name says."
    assert match.overclocked(chip("g", "gpu", {}), "G (overclocked to 2.5 GHz)") is None
    assert match.overclocked(chip("c", "cpu", {}), "C at 2.5 GHz") is None


def test_described_cores_are_listed_by_what_one_of_them_does():
    made = match.described_cores("Cortex-A55 2.0GHz x 4 + Cortex-A76 2.4GHz x 2")
    assert [(group.core, group.count, group.clock_hz) for group in made.core_groups] == [
        ("cortex-a76", 2, 2.4e9), ("cortex-a55", 4, 2.0e9),
    ]  # fmt: skip
    assert made.name == "described-2x-cortex-a76-2.4ghz-4x-cortex-a55-2ghz"
    assert (made.family, made.cores.value, made.clock_hz.value) == ("cortex-a76", 6, 2.4e9)
    assert made.peaks["f32"].value == sum(group.peak("f32") for group in made.core_groups)
