"""The installed packages that decide what a measurement means, looked up without importing one of them."""

from collections.abc import Mapping

from inferometer.catalog.detect.machine import Machine

__all__ = ["PACKAGES", "installed_packages"]

# Distribution name → what it is to us. Several engines come under more than one name.
PACKAGES: Mapping[str, str] = {
    "inferometer": "this program",
    "numpy": "arithmetic",
    "psutil": "readings",
    "onnxruntime": "engine",
    "onnxruntime-gpu": "engine",
    "openvino": "engine",
    "ai-edge-litert": "engine",
    "tflite-runtime": "engine",
    "torch": "engine",
    "xllamacpp": "engine",
    "llama-cpp-python": "engine",
    "vllm": "engine",
    "tensorrt": "engine",
    "mlx": "engine",
    "nvidia-ml-py": "GPU readings",
}


def installed_packages(machine: Machine) -> dict[str, str]:
    """Name → version of those that are there."""
    found = {name: machine.installed(name) for name in PACKAGES}
    return {name: version for name, version in found.items() if version is not None}
