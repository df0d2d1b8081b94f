from pathlib import Path

import pytest

from fakes.recorded_machine import load_machine
from inferometer.catalog import device
from inferometer.catalog.detect import detect_host
from inferometer.catalog.local import device_of_host

HOSTS = Path(__file__).parents[2] / "data" / "hosts"
MACHINES = sorted(folder.name for folder in HOSTS.iterdir() if folder.is_dir())


@pytest.mark.parametrize("name", MACHINES)
def test_every_recorded_machine_is_a_device_with_memory_and_without_invented_peaks(name):
    made = device_of_host(detect_host(load_machine(HOSTS / name)), date="2026-01-01")
    assert made.peaks == {}
    assert made.memory.capacity_bytes.value > 0
    assert made.memory.bandwidth_bytes_per_s is None
    levels = [memory.level for memory in made.memories]
    assert len(levels) == len(set(levels))


def test_local_is_this_machine():
    assert device("local").memory.capacity_bytes.origin == "measured"
