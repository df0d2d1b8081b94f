"""The catalog holds what it promises, and the figures people get wrong are right."""

from itertools import pairwise
from math import log2

import pytest

from fakes.every import every
from inferometer.core.device import Sourced
from inferometer.core.dtypes import DTYPES
from inferometer.known import device, devices, dtype_facts, grids, instances, link, links, memory_levels, models, pues

REQUIRED = """
nvidia-jetson-orin-nano-super nvidia-jetson-orin-nx-16gb nvidia-jetson-agx-orin-64gb nvidia-jetson-agx-thor
nvidia-rtx-3090 nvidia-rtx-4090 nvidia-rtx-5090 nvidia-t4 nvidia-l4 nvidia-l40s nvidia-a10g nvidia-a100-40gb
nvidia-a100-80gb nvidia-h100-pcie nvidia-h100-sxm nvidia-h200 nvidia-b200 nvidia-gb200
amd-mi250x amd-mi300x amd-mi325x amd-radeon-7900-xtx amd-ryzen-ai-9-hx-370-cpu amd-ryzen-ai-9-hx-370-gpu
amd-ryzen-ai-9-hx-370-npu amd-ryzen-ai-max-395-cpu amd-ryzen-ai-max-395-gpu amd-ryzen-ai-max-395-npu
intel-core-ultra-7-155h-cpu intel-core-ultra-7-155h-gpu intel-core-ultra-7-155h-npu intel-core-ultra-7-258v-npu
intel-xeon-8480plus intel-gaudi-3 intel-arc-b580
apple-m1-gpu apple-m1-ane apple-m2-gpu apple-m3-gpu apple-m4-gpu apple-m4-pro-gpu apple-m4-max-gpu apple-m4-ane
apple-a17-pro-ane apple-a18-pro-ane
qualcomm-snapdragon-8-gen-2-cpu qualcomm-snapdragon-8-gen-2-gpu qualcomm-snapdragon-8-gen-2-npu
qualcomm-snapdragon-8-gen-3-cpu qualcomm-snapdragon-8-gen-3-gpu qualcomm-snapdragon-8-gen-3-npu
qualcomm-snapdragon-8-elite-cpu qualcomm-snapdragon-8-elite-gpu qualcomm-snapdragon-8-elite-npu
qualcomm-snapdragon-x-elite-cpu qualcomm-snapdragon-x-elite-gpu qualcomm-snapdragon-x-elite-npu
google-coral-edge-tpu google-tpu-v4 google-tpu-v5e google-tpu-v5p google-tpu-v6e google-tensor-g3-cpu
hailo-8l hailo-8 hailo-10h rockchip-rk3588-cpu rockchip-rk3588-npu raspberry-pi-4 raspberry-pi-5 raspberry-pi-zero-2
ampere-altra-q80-30 aws-graviton2 aws-graviton3 aws-graviton4 aws-inferentia2 aws-trainium2
""".split()


@every(REQUIRED)
def test_the_device_is_in_the_catalog(name):
    assert device(name).name == name


def test_there_are_enough_rows_of_each_kind():
    assert len(devices()) >= 1000
    assert len(models()) >= 60
    assert len(instances()) >= 20
    assert len(grids()) >= 25
    assert len(links()) >= 20
    assert len(pues()) >= 4
    assert {"l1", "l2", "l3"} <= set(memory_levels())
    assert {"f32", "tf32", "bf16", "f16", "f8e4m3", "f8e5m2", "i8", "i4"} <= set(dtype_facts())


@pytest.mark.parametrize(
    ("name", "bandwidth", "why"),
    [
        ("nvidia-h200", 4.8e12, "NVIDIA's datasheet"),
        ("nvidia-h100-sxm", 3.35e12, "NVIDIA's datasheet"),
        ("raspberry-pi-4", 12.8e9, "32 bits of LPDDR4-3200; seed 002 says 19"),
        ("raspberry-pi-5", 17.1e9, "32 bits of LPDDR4X-4267"),
        ("nvidia-jetson-orin-nano-super", 102e9, "128 bits of LPDDR5 at 3200 MHz"),
    ],
)
def test_main_memory_moves_what_the_bus_allows(name, bandwidth, why):
    assert device(name).memory.bandwidth_bytes_per_s.value == pytest.approx(bandwidth, rel=0.01), why


@pytest.mark.parametrize(
    ("name", "dtype", "peak"),
    [
        ("nvidia-h100-sxm", "bf16", 989.4e12),  # the datasheet's 1979 is sparse
        ("nvidia-h200", "bf16", 989.4e12),
        ("nvidia-a100-80gb", "bf16", 312e12),
        ("nvidia-l4", "bf16", 121e12),
        ("nvidia-rtx-4090", "f16", 165.2e12),  # with FP32 accumulation, dense
        ("google-coral-edge-tpu", "i8", 4e12),
        ("hailo-8l", "i8", 13e12),
    ],
)
def test_peaks_are_dense(name, dtype, peak):
    assert device(name).peak(dtype).value == pytest.approx(peak, rel=0.005)


@pytest.mark.parametrize(
    ("name", "capacity", "bandwidth", "f16"),
    [
        ("amd-mi250", 64e9, 1638.4e9, 181e12),
        ("amd-mi250-gcd", 64e9, 1638.4e9, 181e12),  # what others call it
        ("amd-mi250x", 64e9, 1638.4e9, 191.5e12),
        ("nvidia-a16", 16e9, 200e9, 17.4e12),
        ("nvidia-gb200", 186e9, 8e12, 2500e12),
    ],
)
def test_a_module_of_several_gpus_is_the_one_that_a_process_sees(name, capacity, bandwidth, f16):
    one = device(name)
    assert one.memory.capacity_bytes.value == pytest.approx(capacity, rel=0.08)
    assert one.memory.bandwidth_bytes_per_s.value == pytest.approx(bandwidth, rel=0.01)
    assert one.peak("f16").value == pytest.approx(f16, rel=0.01)


def test_links_are_one_way():
    assert link("nvlink-4").bandwidth_bytes_per_s.value == 450e9  # the vendor prints 900, both ways
    assert link("nvlink-5").bandwidth_bytes_per_s.value == 900e9
    assert link("pcie-5-x16").bandwidth_bytes_per_s.value == pytest.approx(16 * 32e9 * 128 / 130 / 8)
    assert link("infiniband-ndr").bandwidth_bytes_per_s.value == 50e9


def sourced_numbers(value):
    """Every `Sourced` inside a value."""
    if isinstance(value, Sourced):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from sourced_numbers(part)
    elif isinstance(value, tuple):
        for part in value:
            yield from sourced_numbers(part)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from sourced_numbers(getattr(value, name))


EVERY_ROW = [
    *devices().values(), *links().values(), *instances().values(), *grids().values(), *pues().values(),
    *memory_levels().values(), *models().values(), *dtype_facts().values(),
]  # fmt: skip


def test_every_number_says_who_said_it_and_when():
    for row in EVERY_ROW:
        for number in sourced_numbers(row):
            assert len(number.source) > 5, row.name
            assert number.date[:4].isdecimal(), row.name
            assert 1960 <= int(number.date[:4]) <= 2026, row.name
            assert number.value >= 0, row.name


def test_no_devices_figures_contradict_each_other():
    for row in devices().values():
        peaks = {name: peak.value for name, peak in row.peaks.items()}
        for wide, narrow in (
            ("f64", "f32"),
            ("f32", "bf16"),
            ("f32", "f16"),
            ("bf16", "i8"),
            ("f16", "i8"),
            ("i8", "i4"),
        ):
            if wide in peaks and narrow in peaks:
                assert peaks[narrow] >= peaks[wide] * 0.5, f"{row.name}: {narrow} is far below {wide}"
        bandwidths = [memory.bandwidth_bytes_per_s.value for memory in row.memories if memory.bandwidth_bytes_per_s]
        assert bandwidths == sorted(bandwidths), f"{row.name}: a nearer memory is not slower"
        assert set(peaks) <= set(DTYPES)
        if row.power_w and row.idle_w:
            assert row.idle_w.value < row.power_w.value, row.name


PLAUSIBLE = {  # least and most bytes per second of main memory, by kind of device
    "microcontroller": (1e7, 2e9), "phone": (4e9, 1e11), "board": (2e9, 2e10), "embedded": (1e9, 3e11),
    "automotive": (3e10, 1e11), "laptop": (1e10, 1e12), "desktop": (2e10, 2e12), "workstation": (5e10, 2e12),
    "server": (3e10, 1e13),
}  # fmt: skip


def test_the_figures_of_every_device_lie_where_such_devices_lie():
    for row in devices().values():
        bandwidth = row.memory.bandwidth_bytes_per_s if row.memory else None
        if bandwidth:
            least, most = PLAUSIBLE[row.kind]
            assert least <= bandwidth.value <= most, f"{row.name}: {bandwidth.value:.3g} B/s"
        if row.memory and row.memory.usable_bytes and row.memory.capacity_bytes:
            share = row.memory.usable_bytes.value / row.memory.capacity_bytes.value
            assert 0.7 < share < 1.08, f"{row.name}: {share:.2f} of its label is usable"  # a label's GB may be GiB
        if row.unit == "cpu" and row.cores and "f32" in row.peaks:
            least = 1e8 if row.kind == "microcontroller" else 1e9
            assert least <= row.peaks["f32"].value / row.cores.value <= 4e11, f"{row.name}: f32 a core"


def test_groups_of_cores_add_up_to_the_row_and_have_the_fastest_first():
    for row in devices().values():
        groups = row.core_groups
        if "f32" in row.peaks and groups and "f32" in groups[0].ops_per_cycle:
            total = sum(group.peak("f32") for group in groups)
            assert row.peaks["f32"].value == pytest.approx(total, rel=0.02), row.name
            speeds = [group.peak("f32", 1) for group in groups]
            # 10 %: Amlogic's S922X clocks its little cores higher than its big ones
            assert all(near * 1.1 >= far for near, far in pairwise(speeds)), row.name
        if groups and row.unit == "cpu":
            assert row.cores.value >= sum(group.count for group in groups), row.name


@every(instances().values(), name=lambda row: row.name)
def test_an_instance_has_a_device_of_the_catalog(row):
    assert device(row.device).name == row.device
    if row.usd_per_hour:
        assert 0.001 < row.usd_per_hour.value < 1000


def test_the_carbon_of_grids_lies_where_grids_lie():
    for row in grids().values():
        assert 0 < row.carbon_g_per_kwh.value < 1500


EXACT_PARAMETERS = {
    "tinyllama-1.1b": 1_100_048_384, "llama-3.2-1b": 1_235_814_400, "gemma-3-1b": 999_885_952,
    "deepseek-r1-distill-qwen-1.5b": 1_777_088_000, "llama-3.2-3b": 3_212_749_824, "llama-3.1-8b": 8_030_261_248,
    "mistral-7b": 7_241_732_096, "qwen2.5-0.5b": 494_032_768, "qwen2.5-7b": 7_615_616_512, "phi-3-mini": 3_821_079_552,
    "llama-2-13b": 13_015_864_320, "qwen3-30b-a3b": 30_532_122_624,
}  # fmt: skip


@pytest.mark.parametrize(("name", "parameters"), EXACT_PARAMETERS.items())
def test_published_parameter_counts_are_exact(name, parameters):
    from inferometer.known import model

    assert model(name).parameters.value == parameters


# dense or sparse, with or without boost: peaks against cores × clock × what a core does in a cycle

# Rows whose peaks of some formats are at another clock than the one they state, and by how much.
OTHER_CLOCKS = {
    "nvidia-h100-sxm": 1.083, "nvidia-h100-pcie": 1.083, "nvidia-h200": 1.084,  # vectors at 1.98 GHz, tensor cores 1.83
    "nvidia-gb10": 1.052,  # a petaflop in print; the multiprocessors and the clock give 0.95
}  # fmt: skip


def accelerators_with_cores():
    return {
        name: row for name, row in devices().items() if row.unit != "cpu" and row.cores is not None and row.clock_hz
    }


@every(accelerators_with_cores())
def test_a_core_does_a_power_of_two_of_operations_in_a_cycle(name):
    """A sparse figure taken for a dense one passes this; see the ratios between formats below for that."""
    row = devices()[name]
    for format_, peak in row.peaks.items():
        if peak.origin == "prior" or (name == "nvidia-h800-sxm" and format_ in {"f64", "f32"}):
            continue  # a class's round figure; what export rules left
        each = peak.value / (row.cores.value * row.clock_hz.value)
        engines = (1,) if row.vendor == "NVIDIA" else (1, 3, 7, 21)  # Arm's: 3 engines, or pipes of 14
        nearest = min((of * 2 ** round(log2(each / of)) for of in engines), key=lambda ops: abs(log2(each / ops)))
        assert 0.97 < each / nearest < max(1.03, OTHER_CLOCKS.get(name, 0) + 0.005), (format_, each)


WIDER = (("tf32", "f32"), ("bf16", "tf32"), ("f16", "f32"), ("f8e4m3", "bf16"), ("i8", "f16"), ("i4", "i8"))


@every(devices())
def test_fewer_bits_are_never_slower_nor_faster_than_tensor_cores_make_them(name):
    peaks = devices()[name].peaks
    for narrow, wide in WIDER:
        if narrow in peaks and wide in peaks:
            assert 0.97 < peaks[narrow].value / peaks[wide].value <= 33, (narrow, wide)


@pytest.mark.parametrize(
    ("name", "format_", "tera"),
    [
        ("nvidia-l40", "bf16", 181.05), ("nvidia-l40", "i8", 362), ("nvidia-l40", "tf32", 90.5),
        ("nvidia-l20", "bf16", 119.5), ("nvidia-l20", "i8", 239), ("nvidia-l40s", "bf16", 362.05),
        ("nvidia-l4", "bf16", 121), ("nvidia-h800-sxm", "f64", 1), ("nvidia-h800-sxm", "f32", 67),
        ("nvidia-h100-sxm", "bf16", 989.4), ("nvidia-h200", "f8e4m3", 1979), ("nvidia-a100-80gb", "bf16", 312),
    ],
)  # fmt: skip
def test_dense_peaks_are_those_of_the_data_sheets(name, format_, tera):
    assert device(name).peaks[format_].value == pytest.approx(tera * 1e12, rel=0.011)
