from dataclasses import replace
from pathlib import Path

import pytest

from fakes.recorded_machine import load_machine
from inferometer.core.device import is_local
from inferometer.core.errors import UnknownNameError
from inferometer.known import device
from inferometer.known.machine.detect import detect_host
from inferometer.known.machine.detect.host import Gpu
from inferometer.known.machine.local import device_of_host, local_device, row_for_gpu

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


@pytest.mark.parametrize(
    ("name", "best"),
    [
        ("cloud-vm-h200", "nvidia-h200"), ("workstation-rtx4090", "nvidia-rtx-4090"), ("windows-pc", "nvidia-rtx-4090"),
        ("jetson-agx-orin", "nvidia-jetson-agx-orin-64gb"), ("macbook-m4-max", "apple-m4-max-gpu"),
        ("laptop-i7-1260p", "local"), ("raspberry-pi-5", "local"), ("aws-graviton2", "local"),
    ],
)  # fmt: skip
def test_local_is_the_best_unit_of_the_machine_and_each_by_name(name, best):
    host = detect_host(load_machine(HOSTS / name))
    assert local_device(host=host).name == best
    assert local_device("local:cpu", host).unit == "cpu"
    if host.gpus:
        assert local_device("local:gpu", host).unit == "gpu"
    with pytest.raises(UnknownNameError, match="local:cpu"):
        local_device("local:npu", host)
    with pytest.raises(UnknownNameError, match="unit of this machine"):
        local_device("local:gpu:7", host)


GIB = 2**30


@pytest.mark.parametrize(
    ("said", "gib", "row"),
    [  # as nvidia-smi and rocm-smi name them
        ("NVIDIA H100 80GB HBM3", 79.6, "nvidia-h100-sxm"), ("NVIDIA H100 PCIe", 79.6, "nvidia-h100-pcie"),
        ("NVIDIA H100 NVL", 93.6, "nvidia-h100-nvl"), ("NVIDIA H200 NVL", 140.4, "nvidia-h200-nvl"),
        ("NVIDIA A100-SXM4-80GB", 80, "nvidia-a100-80gb"), ("NVIDIA A100-SXM4-40GB", 40, "nvidia-a100-40gb"),
        ("NVIDIA A100 80GB PCIe", 80, "nvidia-a100-pcie-80gb"), ("Tesla T4", 15, "nvidia-t4"),
        ("NVIDIA L4", 22.5, "nvidia-l4"),
        ("NVIDIA L40", 45, "nvidia-l40"), ("NVIDIA L40S", 45, "nvidia-l40s"),
        ("Tesla V100-SXM2-16GB", 16, "nvidia-v100-sxm2"),
        ("Tesla V100-SXM2-32GB", 32, "nvidia-v100-sxm2-32gb"), ("NVIDIA A10G", 22.5, "nvidia-a10g"),
        ("NVIDIA GeForce RTX 4070 Ti", 12, "nvidia-rtx-4070-ti"), ("NVIDIA GeForce RTX 4070 Ti", 24, None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16, "nvidia-rtx-4090-laptop"), ("NVIDIA GeForce RTX 9999", 16, None),
        ("NVIDIA GeForce RTX 3060", 12, "nvidia-rtx-3060"), ("NVIDIA GeForce RTX 3060", 8, None),
        ("NVIDIA RTX 6000 Ada Generation", 48, "nvidia-rtx-6000-ada"), ("AMD Instinct MI300X", 192, "amd-mi300x"),
        ("AMD Radeon RX 7900 XTX", 24, "amd-radeon-7900-xtx"),
    ],
)  # fmt: skip
def test_a_card_is_the_row_of_its_name_and_memory_and_of_no_sibling(said, gib, row):
    gpu = Gpu(name=said, vendor="NVIDIA", memory_bytes=int(gib * GIB), shared_memory=False, source="nvml")
    assert row_for_gpu(gpu) == row


def test_a_card_without_a_row_is_a_gpu_without_peaks():
    gpu = Gpu(name="NVIDIA GB99", vendor="NVIDIA", memory_bytes=120 * GIB, shared_memory=False, source="nvml")
    host = replace(detect_host(load_machine(HOSTS / "cloud-vm-h200")), gpus=(gpu,))
    made = local_device(host=host)
    assert (made.name, made.title, made.unit, made.peaks) == ("local:gpu", "NVIDIA GB99", "gpu", {})
    assert is_local(made.name)
    assert not is_local("localhost")
