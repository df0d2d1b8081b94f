"""NVIDIA's driver library, by the few calls that sensors need: it is there wherever the driver is.

Stands in for the package `nvidia-ml-py` where that is not installed: the same names, the same meaning.
"""

import ctypes
import sys
from functools import cache

_SUCCESS = 0


class NVMLError(Exception):
    """A call that the driver refused, with its code; or there is no driver."""


@cache
def _library() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1")
    except OSError as error:
        raise NVMLError(str(error)) from None


class _Rates(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


def _call(name: str, *arguments: object) -> None:
    code = getattr(_library(), name)(*arguments)
    if code != _SUCCESS:
        raise NVMLError(code)


def _number(name: str, *arguments: object, kind: type[ctypes.c_uint] | type[ctypes.c_ulonglong] = ctypes.c_uint) -> int:
    value = kind()
    _call(name, *arguments, ctypes.byref(value))
    return int(value.value)


# ruff: noqa: N802 - NVML's own names
def nvmlInit() -> None:
    _call("nvmlInit_v2")


def nvmlShutdown() -> None:
    _call("nvmlShutdown")


def nvmlDeviceGetCount() -> int:
    return _number("nvmlDeviceGetCount_v2")


def nvmlDeviceGetHandleByIndex(index: int) -> ctypes.c_void_p:
    handle = ctypes.c_void_p()
    _call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
    return handle


def nvmlDeviceGetTotalEnergyConsumption(handle: ctypes.c_void_p) -> int:
    """Millijoules since the driver was loaded."""
    return _number("nvmlDeviceGetTotalEnergyConsumption", handle, kind=ctypes.c_ulonglong)


def nvmlDeviceGetPowerUsage(handle: ctypes.c_void_p) -> int:
    return _number("nvmlDeviceGetPowerUsage", handle)


def nvmlDeviceGetTemperature(handle: ctypes.c_void_p, sensor: int) -> int:
    return _number("nvmlDeviceGetTemperature", handle, ctypes.c_uint(sensor))


def nvmlDeviceGetClockInfo(handle: ctypes.c_void_p, which: int) -> int:
    return _number("nvmlDeviceGetClockInfo", handle, ctypes.c_uint(which))


def nvmlDeviceGetUtilizationRates(handle: ctypes.c_void_p) -> _Rates:
    rates = _Rates()
    _call("nvmlDeviceGetUtilizationRates", handle, ctypes.byref(rates))
    return rates
