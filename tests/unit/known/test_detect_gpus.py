"""GPUs by NVML, by nvidia-smi, by sysfs."""

from dataclasses import replace
from types import SimpleNamespace

from fakes.recorded_machine import RecordedMachine
from inferometer.known.machine.detect import detect_host
from inferometer.known.machine.detect.gpus import (
    GPU_FIELDS,
    nvidia_gpus,
    parse_cuda_version,
    parse_l4t_release,
    parse_nvidia_smi,
)

LINUX = RecordedMachine(system="Linux", architecture="x86_64")


class NvmlError(Exception):
    pass


class FakeNvml:
    """NVML with one GPU; `silent` functions answer "not supported", as Jetsons and old drivers do."""

    NVMLError = NvmlError

    def __init__(self, *silent: str, driver: bool = True) -> None:
        self.silent, self.driver, self.calls = set(silent), driver, []

    def __getattr__(self, name: str):
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def call(*_):
            self.calls.append(name)
            if name in self.silent or not self.driver:
                raise NvmlError(name)
            return ANSWERS[name]

        if name not in ANSWERS:
            raise AttributeError(name)
        return call


ANSWERS = {
    "nvmlInit": None,
    "nvmlShutdown": None,
    "nvmlDeviceGetCount": 1,
    "nvmlDeviceGetHandleByIndex": "handle",
    "nvmlDeviceGetName": b"NVIDIA L4",
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=24 * 2**30, used=2**30),
    "nvmlDeviceGetCudaComputeCapability": (8, 9),
    "nvmlDeviceGetPowerManagementLimit": 72000,
    "nvmlDeviceGetMaxClockInfo": 2040,
    "nvmlSystemGetCudaDriverVersion": 12040,
    "nvmlSystemGetDriverVersion": "550.54.14",
}


def with_nvml(nvml) -> RecordedMachine:
    return replace(LINUX, modules={"pynvml": nvml})


def test_nvml_tells_everything():
    nvml = FakeNvml()
    [gpu] = nvidia_gpus(with_nvml(nvml))
    assert (gpu.name, gpu.memory_bytes, gpu.compute_capability) == ("NVIDIA L4", 24 * 2**30, "8.9")
    assert (gpu.driver, gpu.cuda) == ("550.54.14", "12.4")
    assert (gpu.power_limit_w, gpu.max_hz, gpu.source) == (72.0, 2.04e9, "nvml")
    assert nvml.calls[-1] == "nvmlShutdown"


def test_what_a_gpu_does_not_support_is_none():
    nvml = FakeNvml("nvmlDeviceGetPowerManagementLimit", "nvmlDeviceGetMemoryInfo")
    [gpu] = nvidia_gpus(with_nvml(nvml))
    assert (gpu.power_limit_w, gpu.memory_bytes, gpu.shared_memory) == (None, None, None)


def test_a_module_without_a_driver_finds_nothing():
    assert nvidia_gpus(with_nvml(FakeNvml(driver=False))) == ()


def test_without_nvml_and_nvidia_smi_there_is_nothing_to_ask():
    assert nvidia_gpus(LINUX) == ()


def test_an_older_nvidia_smi_is_asked_for_less():
    fields = ",".join(GPU_FIELDS[1])
    asked = f"nvidia-smi --query-gpu={fields} --format=csv,noheader,nounits"
    machine = replace(LINUX, commands={asked: "Tesla K80, 11441, 450.51, 149.00, 875\n"})
    [gpu] = nvidia_gpus(machine)
    assert (gpu.name, gpu.compute_capability, gpu.power_limit_w, gpu.cuda) == ("Tesla K80", None, 149.0, None)


def test_fields_that_a_gpu_does_not_support_are_left_out():
    rows = parse_nvidia_smi("Orin (nvgpu), [N/A], 540.4.0, [Not Supported]\n", ("name", "memory", "driver", "power"))
    assert rows == [{"name": "Orin (nvgpu)", "driver": "540.4.0"}]


def test_lines_of_another_shape_are_no_gpus():
    assert parse_nvidia_smi("NVIDIA-SMI has failed because it couldn't communicate\n", ("name", "memory")) == []


def test_the_cuda_version_stands_in_the_head():
    assert parse_cuda_version("| NVIDIA-SMI 580.1  Driver Version: 580.1  CUDA Version: 13.0 |") == "13.0"
    assert parse_cuda_version("CUDA UMD Version : 13.1") == "13.1"
    assert parse_cuda_version("CUDA Version: N/A") is None


def test_l4t_release():
    assert parse_l4t_release("# R35 (release), REVISION: 5.0, GCID: 35550185") == "L4T 35.5.0"
    assert parse_l4t_release("garbage") is None


def test_amd_cards_come_from_sysfs_with_rocm_smis_names():
    card = "/sys/class/drm/card1/device"
    files = {
        f"{card}/vendor": "0x1002\n",
        f"{card}/device": "0x744c\n",
        f"{card}/mem_info_vram_total": "25753026560\n",
        f"{card}/hwmon/hwmon3/power1_cap": "303000000\n",
        "/sys/class/drm/card1-DP-1/status": "connected\n",
        "/sys/module/amdgpu/version": "6.8.5\n",
    }
    [plain] = detect_host(replace(LINUX, files=files)).gpus
    assert (plain.name, plain.memory_bytes, plain.power_limit_w) == ("AMD GPU 0x744c", 25753026560, 303.0)
    named = replace(
        LINUX,
        files=files,
        commands={"rocm-smi --showproductname --json": '{"card0": {"Card Series": "Radeon RX 7900 XTX"}}'},
    )
    assert detect_host(named).gpus[0].name == "Radeon RX 7900 XTX"


def test_an_nvidia_card_without_its_driver_is_still_seen():
    files = {"/sys/class/drm/card0/device/vendor": "0x10de\n", "/sys/class/drm/card0/device/device": "0x2684\n"}
    [gpu] = detect_host(replace(LINUX, files=files)).gpus
    assert (gpu.name, gpu.driver, gpu.memory_bytes) == ("NVIDIA GPU 0x2684", None, None)
