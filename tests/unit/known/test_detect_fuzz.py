"""No text breaks a parser: missing, cut short or garbage, the answer is a value."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes.recorded_machine import RecordedMachine, load_machine
from inferometer.known.machine.detect import detect_host, fields, gpus, limits, linux, macos
from inferometer.known.machine.detect import windows as windows_module
from inferometer.known.machine.health import judge, overall, take
from inferometer.known.machine.health import linux as health_linux
from inferometer.known.machine.health.linux import parse_get_throttled, parse_kernel_log
from inferometer.known.machine.health.portable import parse_pmset_therm

HOSTS = Path(__file__).parents[2] / "data" / "hosts"
NAMES = sorted(folder.name for folder in HOSTS.iterdir() if folder.is_dir())
ALPHABET = st.characters(codec="utf-8")
WORDS = st.sampled_from(
    "0 1 -1 max 0x41 99999999999999999999999 1e308 nan : = , - / % kB MemTotal processor flags some avg10= cpu cpu0 "
    "Tcp: ( ) [ ] { } \n \t \0 - cgroup / .. Pages free [ 1.5] NVRM: Xid Level true null ±".split(" ")
)
TEXT = st.one_of(st.none(), st.text(ALPHABET, max_size=200), st.lists(WORDS, max_size=40).map(" ".join))

PARSERS = [
    fields.whole,
    fields.number,
    fields.kib,
    fields.size_bytes,
    fields.cpu_list,
    fields.blocks,
    fields.decoded,
    linux.parse_cpuinfo,
    linux.parse_meminfo,
    linux.parse_os_release,
    limits.parse_cgroup,
    limits.parse_cgroup_mounts,
    gpus.parse_cuda_version,
    gpus.parse_l4t_release,
    lambda text: gpus.parse_nvidia_smi(text, ("a", "b")),
    macos.parse_vm_stat,
    macos.parse_swap_usage,
    lambda text: macos.parse_sw_vers(text, text),
    windows_module.parse_cim,
    health_linux.parse_loadavg,
    health_linux.parse_stat,
    health_linux.parse_pressure,
    health_linux.parse_process,
    lambda text: health_linux.parse_vmstat(text, 4096),
    health_linux.parse_net_dev,
    health_linux.parse_snmp,
    health_linux.parse_diskstats,
    lambda text: parse_kernel_log(text, 100.0),
    parse_get_throttled,
    parse_pmset_therm,
]


@pytest.mark.parametrize("parse", PARSERS, ids=lambda parse: parse.__name__)
@given(text=TEXT)
def test_any_text_is_a_value(parse, text):
    parse(text)


@given(data=st.data(), name=st.sampled_from(NAMES))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_machine_whose_files_are_garbage_is_still_a_host_and_can_be_examined(data, name):
    machine = load_machine(HOSTS / name)
    garbage = data.draw(st.lists(st.text(ALPHABET, max_size=80), min_size=1, max_size=8))
    hurt = data.draw(st.sets(st.sampled_from(sorted(machine.files) or ["/none"]), max_size=30))
    hurt_commands = data.draw(st.sets(st.sampled_from(sorted(machine.commands) or ["none"]), max_size=4))
    files = {path: garbage[index % len(garbage)] for index, path in enumerate(sorted(hurt))}
    commands = {command: garbage[index % len(garbage)] for index, command in enumerate(sorted(hurt_commands))}
    broken = RecordedMachine(
        system=machine.system,
        architecture=machine.architecture,
        files={**machine.files, **files},
        commands={**machine.commands, **commands},
        room=machine.room,
    )
    found = detect_host(broken)
    ticks = iter((0.0, 0.5))
    checks = judge(take(broken, found, sleep=lambda _: None, clock=lambda: next(ticks)))
    assert all(check.found for check in checks)
    overall(checks)
