"""Published names → rows: most of every table is mapped, the checked ones rightly, and what no rule names is None."""

import csv
from pathlib import Path

import pytest

from fakes.every import every
from inferometer.core.device import Device
from inferometer.core.errors import UnknownNameError
from inferometer.known import device, devices
from inferometer.known.hardware import core_aliases
from inferometer.known.names import match_device
from inferometer.known.names.match import phrases
from inferometer.known.names.words import name_table
from inferometer.predict.ask import model_graph

NAMES = (
    Path(__file__).parents[2] / "data" / "atlas_device_names.csv"
)  # device names of published tables, and nothing else

# Where less than this share of a table's rows is mapped, its names say no device: "Intel Xeon CPU", a model's column.
LEAST = {"mlperf_tiny_v12": 0.75, "phone_llm_small": 0.86}


def of_tables():
    with NAMES.open(encoding="utf-8", newline="") as file:
        tables = {}
        for row in csv.DictReader(file):
            tables.setdefault(row["file"], []).append((row["name"], row["unit"] or None, int(row["rows"])))
    return tables


@pytest.mark.parametrize(
    ("table", "names"), of_tables().items(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_nine_rows_in_ten_of_every_table_have_a_device_and_of_the_right_unit(table, names):
    mapped = {name: match_device(name, unit) for name, unit, _ in names}
    share = sum(rows for name, _, rows in names if mapped[name]) / sum(rows for _, _, rows in names)
    assert share >= LEAST.get(table, 0.9), [name for name, found in mapped.items() if found is None]
    for name, unit, _ in names:
        found = match_device(name, unit)
        if found and unit:
            made = device(found.device) if isinstance(found.device, str) else found.device
            assert made.unit == unit or (unit, made.unit) == ("npu", "tpu"), name


CHECKED = """
Samsung Galaxy S24 | npu | qualcomm-snapdragon-8-gen-3-npu
Samsung Galaxy S25 | gpu | qualcomm-snapdragon-8-elite-gpu
Samsung Galaxy S22 Ultra 5G | npu | qualcomm-snapdragon-8-gen-1-npu
Google Pixel 7 | npu | google-tensor-g2-tpu
Xiaomi 14 | cpu | qualcomm-snapdragon-8-gen-3-cpu
iPhone 16 Pro | cpu | apple-a18-pro-cpu
iPhone 5S (Apple A7 1.3GHz x 2) | gpu | apple-a7-gpu
OnePlus 12 (see README) | cpu | qualcomm-snapdragon-8-gen-3-cpu
QCS8550 (Proxy) | npu | qualcomm-snapdragon-8-gen-2-npu
QCS8275 (Proxy) | npu | qualcomm-dragonwing-iq-8275-npu
Arduino VENTUNO Q | npu | qualcomm-dragonwing-iq-8275-npu
Dragonwing Q-8750 | npu | qualcomm-snapdragon-8-elite-npu
Dragonwing Q-7790 | npu | qualcomm-snapdragon-7-gen-4-npu
Dragonwing RB3 Gen 2 Vision Kit | npu | qualcomm-qcs6490-npu
Dragonwing IQ-9075 EVK | npu | qualcomm-dragonwing-iq-9075-npu
SA8775P ADP | npu | qualcomm-sa8775p-npu
Snapdragon X2 Elite CRD | cpu | qualcomm-snapdragon-x2-elite-cpu
Snapdragon X Plus 8-Core CRD | npu | qualcomm-snapdragon-x-plus-8-core-npu
Snapdragon X Plus CRD | npu | qualcomm-snapdragon-x-plus-npu
Snapdragon 8 Elite Gen 5 QRD | npu | qualcomm-snapdragon-8-elite-gen-5-npu
SD8SG3 | npu | qualcomm-snapdragon-8s-gen-3-npu
Qualcomm SM8150-AC Snapdragon 855+ (Kyro485 2.96 GHz + 2.42 GHz x 3) | cpu | qualcomm-snapdragon-855-plus-cpu
Qualcomm SM8550-AB Snapdragon 8 Gen 2 (Kyro 3.20 GHz + 2.8 GHz x 2 + Adreno 740) | gpu | qualcomm-snapdragon-8-gen-2-gpu
MediaTek Dimensity 9300 (MT6989) (Cortex-X4 3.25 GHz + 2.85 GHz x 3) | cpu | mediatek-dimensity-9300-cpu
Kirin 970 (Cortex-A73 2.4GHz x 4 + Cortex-A53 1.8GHz x 4) | gpu | hisilicon-kirin-970-gpu
Rockchip RK3588 (Quad Core A76 2.4GHz + Quad Core A55 1.8GHz) | cpu | rockchip-rk3588-cpu
RK3588 @single_core | npu | rockchip-rk3588-npu
Orange Pi 5 (RK3588S) | npu | rockchip-rk3588-npu
RV1103 RV1106 | npu | rockchip-rv1106-npu
Khadas VIM3, Amlogic A311D (Cortex-A73 2.2GHz x 4 + Cortex-A53 1.8GHz x 2) | cpu | amlogic-a311d-cpu
Raspberry Pi 3 Model B+ Broadcom BCM2837B0, Cortex-A53 (ARMv8) (1.4GHz x 4) | cpu | raspberry-pi-3b-plus
Raspberry Pi 5 | cpu | raspberry-pi-5
Raspberry Pi 4 | gpu | raspberry-pi-4-gpu
Pi 5 - 8GB (AMD RX 7600) | gpu | amd-radeon-7600
Pi 500+ - 16GB | cpu | raspberry-pi-5-16gb
HAILO10H | – | hailo-10h
HAILO15M | – | hailo-15m
NVIDIA Jetson Orin Nano Super Developer Kit | – | nvidia-jetson-orin-nano-super
Jetson Orin NX 16GB (DeepStream) | – | nvidia-jetson-orin-nx-16gb
NVIDIA Jetson AGX Xavier (Carmel 2.2 GHz x 8 + Volta Tensor Cores 64) | cpu | nvidia-jetson-agx-xavier-cpu
NVIDIA RTX3090 (GA102 SM x 82 + Tensor Core 328) | gpu | nvidia-rtx-3090
nVIDIA RTX2060 of Notebook | gpu | nvidia-rtx-2060-laptop
NVIDIA GeForce RTX 3060 Ti of Desktop[2023-10-12] | gpu | nvidia-rtx-3060-ti
NVIDIA RTX PRO 6000 Blackwell Max-Q | – | nvidia-rtx-pro-6000-blackwell-max-q
RTXPRO6000 | – | nvidia-rtx-pro-6000-blackwell
rtx_pro_6000_server | – | nvidia-rtx-pro-6000-server
NVIDIA A100-PCIe-80GB | – | nvidia-a100-pcie-80gb
A100 SXM 80GB | gpu | nvidia-a100-80gb
H100 80GB HBM3 | – | nvidia-h100-sxm
NVIDIA H100-NVL-94GB | – | nvidia-h100-nvl
H200 141GB HBM3 | – | nvidia-h200
NVIDIA H200-NVL-141GB | – | nvidia-h200-nvl
NVIDIA GH200 Grace Hopper Superchip 144GB | – | nvidia-gh200-144gb
GH200 480GB | – | nvidia-gh200-96gb
NVIDIA GB10 (DGX Spark) | gpu | nvidia-gb10
AMD RYZEN AI MAX+ 395 w/ Radeon 8060S / AMD Radeon Graphics | gpu | amd-ryzen-ai-max-395-gpu
AMD Instinct MI300X-NPS1-SPX-192GB-750W | – | amd-mi300x
AMD MI250 | – | amd-mi250
Intel PVC GPU | – | intel-max-1550
Habana Gaudi2 | – | intel-gaudi-2
Intel® Core™ Ultra 7 processor 268V NPU-only | – | intel-core-ultra-7-268v-npu
Intel® Core™ i7-1185GRE iGPU-only | – | intel-core-i7-1185gre-gpu
7-258V | gpu | intel-core-ultra-7-258v-gpu
Intel® Xeon® Platinum 8480+ CPU-only | – | intel-xeon-8480plus
Intel® Xeon® W1290P CPU-only | – | intel-xeon-w-1290p
Intel® Processor N100 iGPU-only | – | intel-n100-gpu
Intel Core i5-12400F | cpu | intel-core-i5-12400-cpu
Intel Arc 140V | gpu | intel-core-ultra-7-258v-gpu
Apple M2 Ultra | gpu | apple-m2-ultra-gpu
MacBook Air (13-inch, M3, 2024) | cpu | apple-m3-cpu
M1 Max 32‑Core GPU 64GB | gpu | apple-m1-max-gpu
Microsoft Azure Standard D64ps v6 Instance | cpu | azure-d64ps-v6
HUAWEI KunPeng 920 3211K (x24 cores) | cpu | huawei-kunpeng-920-3211k
TPU v6 | – | google-tpu-v6e
SambaNova SN40L | – | sambanova-sn40l
QUALCOMM Cloud AI 100 DM.2e | – | qualcomm-cloud-ai-100-dm2e
"""


@every(CHECKED.strip().splitlines())
def test_names_checked_by_hand(line):
    name, unit, row = line.split(" | ")
    assert match_device(name, None if unit == "–" else unit) == (row, 1)
    assert device(row).name == row


@pytest.mark.parametrize(
    ("name", "row", "count"),
    [
        ("4090 24GB * 8", "nvidia-rtx-4090", 8), ("8x NVIDIA H100 80GB", "nvidia-h100-sxm", 8),
        ("A100 PCIe 80GB * 4", "nvidia-a100-pcie-80gb", 4), ("NVIDIA L4 (x16)", "nvidia-l4", 16),
    ],
)  # fmt: skip
def test_several_of_a_device_are_counted(name, row, count):
    assert match_device(name, "gpu") == (row, count)


@pytest.mark.parametrize(
    "name",
    [
        "nothing at all", "", "基准测试", "Xeon Gold 9999", "NVIDIA GeForce RTX 9999",
        "Framework Mainboard Cluster (512GB)",
        "AMD Instinct MI300X 192GB HBM3 (x32), AMD Instinct MI325X 256GB HBM3e (x16)", "4-bit per-channel",
    ],
)  # fmt: skip
def test_what_no_rule_names_has_no_device(name):
    assert match_device(name) is None


def test_a_card_is_no_cpu():
    assert match_device("NVIDIA RTX A6000", "cpu") is None
    assert match_device("RTX 4090 (Cortex-A53 1.0GHz x 4)", "gpu").device == "nvidia-rtx-4090"


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("Z7_Lite 7020 XC7Z020CLG400-2 (Cortex-A9 766MHz x 2)", [("cortex-a9", 2, 0.766e9)]),
        (
            "Some Board (Cortex-A55 1.9GHz x 4 + Cortex-A76 2.3GHz x 4)",
            [("cortex-a76", 4, 2.3e9), ("cortex-a55", 4, 1.9e9)],
        ),
        (
            "Unknown SoC (Kyro485 2.9 GHz + 2.4 GHz x 3 + 1.80 GHz x 4)",
            [("cortex-a76", 1, 2.9e9), ("cortex-a76", 3, 2.4e9), ("cortex-a55", 4, 1.8e9)],
        ),
        ("A board (Quad Core A55 1.8GHz)", [("cortex-a55", 4, 1.8e9)]),
        ("A workstation (Zen2 3.7 GHz ~ 4.5 GHz x 32)", [("zen2", 32, 4.5e9)]),
        ("AWS c7g.16xlarge", [("neoverse-v1", 64, 2.6e9)]),
        ("m6i.2xlarge", [("ice-lake-server", 4, 3.5e9)]),
        ("Microsoft Azure Standard D32as v6 Instance", [("zen4", 16, 3.7e9)]),
    ],
)
def test_a_name_that_describes_its_cores_is_a_device_of_them(name, groups):
    made, count = match_device(name, "cpu")
    assert isinstance(made, Device)
    assert count == 1
    assert [(group.core, group.count, group.clock_hz) for group in made.core_groups] == groups
    assert made.peaks["f32"].value == sum(group.peak("f32") for group in made.core_groups)
    assert made.memories == ()


def test_a_board_at_another_clock_has_its_cores_and_the_rows_memory():
    slow = match_device("Radxa Zero 3W, Cortex-A55 (ARMv82) (1.416 GHz x 4)", "cpu").device
    fast = match_device("Raspberry Pi 5 Broadcom BCM2712 Overclock to 2.9Ghz", "cpu").device
    assert slow.clock_hz.value == 1.416e9
    assert slow.memories == device("rockchip-rk3566-cpu").memories
    assert fast.peaks["f32"].value == pytest.approx(4 * 2.9e9 * 16)
    assert fast.memories == device("raspberry-pi-5").memories


def test_gpu_cores_in_a_name_scale_the_row():
    made = match_device("M1 7‑Core GPU 8GB", "gpu").device
    assert made.cores.value == 7
    assert made.peaks["f32"].value == pytest.approx(device("apple-m1-gpu").peaks["f32"].value * 7 / 8)


def test_cpu_and_gpu_together_have_the_peaks_of_both():
    made = match_device("Intel® Core™ i7-1185G7 CPU+iGPU").device
    cpu, gpu = device("intel-core-i7-1185g7-cpu"), device("intel-core-i7-1185g7-gpu")
    assert made.peaks["f32"].value == cpu.peaks["f32"].value + gpu.peaks["f32"].value
    assert made.memories == gpu.memories


def test_a_name_of_both_needs_a_chip_of_both():
    assert match_device("NVIDIA GeForce RTX 4090 CPU+GPU") is None


def test_every_target_of_the_table_is_in_the_catalog_and_every_core_of_an_instance_too():
    assert phrases()  # building it checks the targets
    designs = set(core_aliases().values())
    assert all(family["core"] in designs for family in name_table().instances.values())


def test_a_device_asked_for_by_such_a_name_is_told_and_not_taken():
    with pytest.raises(UnknownNameError, match=r"In the catalog that is .*-rk3588-cpu or .*-gpu or .*-npu"):
        device("rk3588")  # a part of a chip's own name may be any of its units
    with pytest.raises(UnknownNameError, match="Did you mean"):
        device("nvidia-h2000")


def test_a_users_row_is_found_by_its_name(tmp_path, monkeypatch):
    (tmp_path / "mine.toml").write_text(
        '[sources.s]\ntitle = "Own sheet"\ndate = "2026"\n[devices.maker-warp-9000]\ntitle = "Warp"\n'
        'vendor="Maker"\nunit="npu"\nsource="s"\n',
        encoding="utf-8",
    )
    monkeypatch.setenv("INFEROMETER_CATALOG", str(tmp_path))
    assert match_device("Maker Warp 9000 Developer Kit") == ("maker-warp-9000", 1)


# names that people type


@pytest.mark.parametrize(
    ("typed", "row"),
    [
        ("iphone-16", "apple-a18-ane"), ("Galaxy S24", "qualcomm-snapdragon-8-gen-3-npu"),
        ("pixel-9", "google-tensor-g4-tpu"), ("iphone-16-gpu", "apple-a18-gpu"),
        ("pixel-9-cpu", "google-tensor-g4-cpu"),
        ("iphone-11", "apple-a13-gpu"), ("nvidia-gh200", "nvidia-gh200-96gb"), ("nvidia-dgx-spark", "nvidia-gb10"),
        ("amd-ryzen-7-7840u-gpu", "amd-ryzen-7-7840hs-gpu"), ("raspberry-pi-5", "raspberry-pi-5"),
    ],
)  # fmt: skip
def test_a_phone_is_a_unit_of_its_chip_and_a_machine_has_the_name_that_people_use(typed, row):
    assert device(typed).name == row


BOARDS = sorted(name for name in devices() for unit in ("gpu", "npu") if f"{name}-{unit}" in devices())


@every(BOARDS)
def test_a_board_is_not_taken_for_one_of_its_units(name):
    meant = match_device(name.replace("-", " "))
    assert meant is not None
    assert meant.device == name


PHONES = [
    name for name in name_table().devices if name.split()[0] in {"iphone", "pixel", "galaxy", "oneplus", "xiaomi"}
]


@every(PHONES)
def test_every_phone_of_the_table_is_a_device_of_the_catalog(name):
    assert device(name.replace(" ", "-")).name in devices()


def test_a_phone_that_nobody_wrote_down_is_no_other_phone():
    for typed in ("iphone-99", "galaxy", "iphone-16-tpu"):
        with pytest.raises(UnknownNameError):
            device(typed)


@pytest.mark.parametrize(
    ("typed", "parameters"),
    [
        ("bge-m3", 567_754_752), ("multilingual-e5-large", 559_890_432), ("e5-large-v2", 335_141_888),
        ("whisper-turbo", 808_878_080), ("qwen2.5-vl-7b", 8_292_166_656), ("qwen2-7b", 7_615_616_512),
        ("qwen2-72b", 72_706_203_648), ("qwen2.5-coder-32b", 32_763_876_352), ("olmoe-1b-7b", 6_919_161_856),
        ("llama-4-maverick", 400_711_848_960), ("flux.1-dev", 16_836_324_931),
    ],
)  # fmt: skip
def test_models_that_people_name_are_there_with_the_parameters_of_their_checkpoints(typed, parameters):
    assert model_graph(typed).parameters == parameters
