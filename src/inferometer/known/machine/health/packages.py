"""The installed packages that decide what a measurement means, looked up without importing one of them."""

from inferometer.known.engines import engines
from inferometer.known.machine.detect.machine import Machine

_BESIDE = ("inferometer", "numpy", "psutil", "nvidia-ml-py")
_UNDESCRIBED = ("tflite-runtime", "llama-cpp-python", "mlx")  # engines that no descriptor names


def engine_packages() -> tuple[str, ...]:
    """Distributions that are engines, plug-ins' too."""
    described = (package for each in engines().values() for package in each.packages)
    return tuple(dict.fromkeys((*described, *_UNDESCRIBED)))


def installed_packages(machine: Machine) -> dict[str, str]:
    """Name → version of those that are there."""
    versions = {name: machine.installed(name) for name in (*_BESIDE, *engine_packages())}
    return {name: version for name, version in versions.items() if version is not None}
