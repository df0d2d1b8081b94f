"""Recorded machines (tests/data/hosts) are detected as what they are."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from fakes.recorded_machine import RecordedMachine, load_machine
from inferometer.known.machine.detect import Host, detect_host

HOSTS = Path(__file__).parents[2] / "data" / "hosts"
NAMES = sorted(folder.name for folder in HOSTS.iterdir() if folder.is_dir())


def host(name: str) -> Host:
    return detect_host(load_machine(HOSTS / name))


def caches(found: Host) -> list[tuple]:
    return [(cache.level, cache.kind, cache.size_bytes, cache.shared_by, cache.count) for cache in found.cpu.caches]


def sensors(found: Host) -> dict[str, bool]:
    return {sensor.name: sensor.available for sensor in found.sensors}


def test_a_raspberry_pi_5():
    pi = host("raspberry-pi-5")
    assert pi.board == "Raspberry Pi 5 Model B Rev 1.0"
    assert (pi.cpu.vendor, pi.cpu.model, pi.cpu.architecture) == ("Arm", "Cortex-A76", "arm64")
    assert (pi.cpu.physical_cores, pi.cpu.logical_cores, pi.cpu.sockets) == (4, 4, 1)
    assert pi.cpu.max_hz == 2.4e9
    assert pi.cpu.has("asimddp")
    assert pi.cpu.has("i8mm") is False
    assert caches(pi) == [
        (1, "data", 65536, 1, 4),
        (1, "instruction", 65536, 1, 4),
        (2, "unified", 524288, 1, 4),
        (3, "unified", 2097152, 4, 1),
    ]
    assert pi.os.name == "Debian GNU/Linux"
    assert pi.limits.virtualised is None  # nothing on this board says either way
    assert sensors(pi)["pmic"]
    assert pi.gpus == ()


def test_a_jetson_agx_orin():
    orin = host("jetson-agx-orin")
    assert orin.board == "NVIDIA Jetson AGX Orin Developer Kit"
    assert (orin.cpu.model, orin.cpu.physical_cores, orin.cpu.max_hz) == ("Cortex-A78AE", 12, 2.2016e9)
    assert orin.cpu.sockets is None  # three clusters stand where the package belongs
    assert (3, "unified", 2097152, 4, 3) in caches(orin)
    [gpu] = orin.gpus
    assert (gpu.name, gpu.compute_capability, gpu.shared_memory) == ("Orin integrated GPU (Ampere)", "8.7", True)
    assert (gpu.driver, gpu.cuda, gpu.max_hz) == ("L4T 36.4.3", "12.6.11", 1.3005e9)
    assert gpu.memory_bytes == orin.memory.total_bytes
    rails = next(sensor for sensor in orin.sensors if sensor.name == "ina3221")
    assert rails.domains == ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0", "VDDQ_VDD2_1V8AO")


def test_an_arm_server_in_the_cloud():
    graviton = host("aws-graviton2")
    assert graviton.board == "Amazon EC2 m6g.xlarge"
    assert (graviton.cpu.vendor, graviton.cpu.model, graviton.cpu.sockets) == ("Arm", "Neoverse-N1", 1)
    assert (graviton.limits.virtualised, graviton.limits.hypervisor) == (True, "Amazon Nitro")
    assert graviton.limits.quota_cpus is None
    assert graviton.memory.numa_nodes[0].cpus == (0, 1, 2, 3)
    assert not any(sensors(graviton).values())


def test_bare_metal_on_ec2_is_not_virtual():
    machine = load_machine(HOSTS / "aws-graviton2")
    files = {**machine.files, "/sys/class/dmi/id/product_name": "c6g.metal"}
    assert detect_host(replace(machine, files=files)).limits.virtualised is False


def test_a_workstation_with_avx_512_and_an_nvidia_gpu():
    pc = host("workstation-rtx4090")
    assert pc.board == "ASUS"  # "System Product Name" is what the maker left in
    assert pc.cpu.model == "AMD Ryzen 7 7700X 8-Core Processor"
    assert (pc.cpu.physical_cores, pc.cpu.logical_cores) == (8, 16)
    assert (pc.cpu.base_hz, pc.cpu.max_hz) == (4.5e9, 5.573e9)
    assert all(pc.cpu.has(flag) for flag in ("avx2", "fma", "f16c", "avx512f", "avx512_vnni", "avx512_bf16"))
    assert pc.cpu.has("amx_tile") is False
    assert pc.limits.virtualised is False
    nvidia, amd = pc.gpus
    assert (nvidia.name, nvidia.memory_bytes) == ("NVIDIA GeForce RTX 4090", 24564 * 2**20)
    assert (nvidia.driver, nvidia.cuda, nvidia.compute_capability) == ("550.54.14", "12.4", "8.9")
    assert (nvidia.power_limit_w, nvidia.source) == (450.0, "nvidia-smi")
    assert (amd.name, amd.vendor, amd.memory_bytes) == ("AMD GPU 0x164e", "AMD", 536870912)


def test_rapl_that_only_root_may_read_says_so():
    rapl = next(sensor for sensor in host("workstation-rtx4090").sensors if sensor.name == "rapl")
    assert not rapl.available
    assert rapl.why.startswith("/sys/class/powercap/intel-rapl:0/energy_uj is readable by root only; `sudo chmod a+r ")
    assert rapl.domains == ("package-0", "core")


def test_a_mouse_battery_is_not_the_machines():
    battery = next(sensor for sensor in host("workstation-rtx4090").sensors if sensor.name == "battery")
    assert not battery.available


def test_a_laptop_with_performance_and_efficiency_cores():
    laptop = host("laptop-i7-1260p")
    cpu = laptop.cpu
    assert (cpu.performance_cores, cpu.efficiency_cores, cpu.physical_cores, cpu.logical_cores) == (4, 8, 12, 16)
    assert [(group.kind, group.cores, group.max_hz) for group in cpu.groups] == [
        ("performance", 4, 4.7e9),
        ("efficiency", 8, 3.4e9),
    ]
    assert (2, "unified", 1310720, 2, 4) in caches(laptop)
    assert (2, "unified", 2097152, 4, 2) in caches(laptop)
    assert cpu.base_hz == 2.1e9
    assert sensors(laptop)["rapl"]
    assert sensors(laptop)["battery"]


def test_a_container_with_cgroup_v2_limits():
    container = host("container-cgroup-v2")
    assert container.limits.cgroup_version == 2
    assert (container.limits.quota_cpus, container.limits.memory_bytes) == (2.0, 4 * 2**30)
    assert container.limits.container == "docker"
    assert (container.limits.virtualised, container.limits.hypervisor) == (True, "KVM")
    assert (container.cpu.logical_cores, container.usable_cpus) == (8, 2.0)
    assert container.usable_memory_bytes == 4 * 2**30


def test_a_container_with_cgroup_v1_limits():
    container = host("container-cgroup-v1")
    assert container.limits.cgroup_version == 1
    assert (container.limits.quota_cpus, container.limits.cpuset_cpus) == (1.5, 4)
    assert container.limits.memory_bytes == 2 * 2**30
    assert container.usable_cpus == 1.5


def test_a_mac():
    mac = host("macbook-m4-max")
    assert (mac.board, mac.cpu.model, mac.cpu.vendor) == ("Mac16,6", "Apple M4 Max", "Apple")
    assert (mac.cpu.performance_cores, mac.cpu.efficiency_cores) == (12, 4)
    assert all(mac.cpu.has(flag) for flag in ("asimd", "asimddp", "i8mm", "bf16", "sme", "sme2"))
    assert mac.cpu.has("sve") is None  # sysctl does not name it
    assert (2, "unified", 16777216, 6, 2) in caches(mac)
    assert (2, "unified", 4194304, 4, 1) in caches(mac)
    assert mac.memory.available_bytes == (1523456 + 987654 + 23456) * 16384
    assert mac.memory.swap_total_bytes == 2048 * 2**20
    [gpu] = mac.gpus
    assert (gpu.name, gpu.cores, gpu.shared_memory) == ("Apple M4 Max", 40, True)
    assert (mac.os.name, mac.os.version, mac.os.kernel) == ("macOS", "15.1.1 (24B91)", "Darwin 24.1.0")
    assert not sensors(mac)["powermetrics"]


def test_python_for_intel_on_an_apple_chip_is_still_an_apple_chip():
    mac = replace(load_machine(HOSTS / "macbook-m4-max"), architecture="x86_64")
    assert detect_host(mac).cpu.architecture == "arm64"


def test_a_windows_pc():
    pc = host("windows-pc")
    assert (pc.cpu.vendor, pc.cpu.physical_cores, pc.cpu.logical_cores) == ("Intel", 24, 32)
    assert pc.cpu.base_hz == 3e9
    assert pc.cpu.max_hz is None  # Windows does not tell the turbo clock
    assert pc.cpu.flags == ("sse4_2", "avx", "avx2")
    assert pc.cpu.has("fma") is None
    assert [(cache.level, cache.total_bytes) for cache in pc.cpu.caches] == [
        (1, 896 * 1024),
        (1, 1280 * 1024),
        (2, 32768 * 1024),
        (3, 36864 * 1024),
    ]
    assert pc.gpus[0].memory_bytes == 25757220864  # the registry's number: AdapterRAM stops at 4 GiB
    assert pc.os.name == "Windows 11 Pro"
    assert pc.limits.virtualised is None  # a hypervisor is there, but it may be its own


def test_a_card_with_4_gib_or_more_and_no_registry_number_is_unknown():
    machine = load_machine(HOSTS / "windows-pc")
    [(command, text)] = machine.commands.items()
    bare = replace(machine, commands={command: text.replace("25757220864", "null")})
    assert detect_host(bare).gpus[0].memory_bytes is None


def test_a_virtual_machine_without_any_hint_of_its_board():
    vm = host("cloud-vm-xeon")
    assert vm.board is None
    assert vm.cpu.model == "Intel(R) Xeon(R) Processor"
    assert all(vm.cpu.has(flag) for flag in ("avx512_vnni", "amx_tile", "amx_int8", "amx_bf16"))
    assert (vm.limits.virtualised, vm.limits.container) == (True, None)
    assert vm.limits.memory_bytes is None  # cgroup v1 writes "no limit" as a very large number
    assert (vm.cpu.base_hz, vm.cpu.max_hz) == (None, None)


def test_a_server_gpu_in_a_virtual_machine():
    [gpu] = host("cloud-vm-h200").gpus
    assert (gpu.name, gpu.memory_bytes, gpu.compute_capability) == ("NVIDIA H200", 143771 * 2**20, "9.0")
    assert (gpu.driver, gpu.cuda, gpu.power_limit_w) == ("580.159.04", "13.0", 700.0)


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_machine_can_be_written_as_json_and_read_back(name):
    found = host(name)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Host) == found


@pytest.mark.parametrize("name", NAMES)
def test_what_is_unknown_has_a_reason_where_a_reason_has_a_place(name):
    assert all(sensor.available or sensor.why for sensor in host(name).sensors)
    assert all(not sensor.available or sensor.domains for sensor in host(name).sensors)


@pytest.mark.parametrize("name", NAMES)
def test_the_readme_says_where_each_recording_is_from(name):
    assert f"`{name}`" in (HOSTS / "README.md").read_text("utf-8")


@pytest.mark.parametrize("system", ["Linux", "Darwin", "Windows", "FreeBSD", ""])
def test_a_machine_that_answers_nothing_is_a_host_of_unknowns(system):
    found = detect_host(RecordedMachine(system=system, architecture="x86_64"))
    assert found.cpu.architecture == "x86-64"
    assert (found.cpu.model, found.cpu.logical_cores, found.memory.total_bytes) == (None, None, None)
    assert (found.usable_cpus, found.usable_memory_bytes, found.gpus) == (None, None, ())


def test_big_and_little_arm_cores_are_told_apart_by_capacity():
    block = "processor : {0}\nFeatures : asimd\nCPU implementer : 0x41\nCPU part : {1}\n\n"
    cpu = "/sys/devices/system/cpu"
    parts = ["0xd05"] * 4 + ["0xd0b"] * 4  # an RK3588
    files = {"/proc/cpuinfo": "".join(block.format(index, part) for index, part in enumerate(parts))}
    for index in range(8):
        files[f"{cpu}/cpu{index}/cpu_capacity"] = "530" if index < 4 else "1024"
        files[f"{cpu}/cpu{index}/topology/thread_siblings_list"] = str(index)
    found = detect_host(RecordedMachine(system="Linux", architecture="aarch64", files=files)).cpu
    assert found.model == "4x Cortex-A76 + 4x Cortex-A55"
    assert (found.performance_cores, found.efficiency_cores) == (4, 4)


def test_threads_of_one_core_are_counted_once_without_sysfs_too():
    block = "processor : {}\nphysical id : 0\ncore id : {}\n\n"
    text = "".join(block.format(index, index // 2) for index in range(4))
    found = detect_host(RecordedMachine(system="Linux", architecture="x86_64", files={"/proc/cpuinfo": text})).cpu
    assert (found.physical_cores, found.logical_cores) == (2, 4)
