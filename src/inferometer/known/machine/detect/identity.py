"""Which machine this is: an id that stays, a name for people, and the facts that a run carries with it.

Nothing that identifies the machine elsewhere leaves it: the id is a hash, made for this program alone. It comes from
the first of these that is there:

    machine-id of the operating system (Linux), IOPlatformUUID (macOS), MachineGuid (Windows)
    the serial number of a board, in its device tree
    the mainboard's uuid and serial, which mostly only root may read
    the hardware as detected, and the host's name

In a container the machine-id is the image's, shared by all who run that image. It counts there only together with the
hardware, and after what the hardware itself says.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from inferometer.core import settings
from inferometer.core.machine import MachineFacts
from inferometer.known.machine.detect import detect_host
from inferometer.known.machine.detect.fields import stripped
from inferometer.known.machine.detect.host import Host
from inferometer.known.machine.detect.machine import LocalMachine, Machine

_LETTERS = 12
_DMI = "/sys/class/dmi/id"
_ACCEL = "/sys/class/accel"
_REGISTRY = r"HKLM\SOFTWARE\Microsoft\Cryptography"
# What firmware has in place of a number that nobody filled in.
_BLANK = re.compile(r"[0\-. ]*|f+(-f+)*|(?:default string|to be filled.*|not specified|none|system serial number|n/?a)")
# The kernel driver of an accelerator → what it drives.
_DRIVERS = {
    "intel_vpu": "Intel NPU",
    "amdxdna": "AMD XDNA NPU",
    "rocket": "Rockchip NPU",
    "ethosu": "Arm Ethos-U NPU",
    "habanalabs": "Intel Gaudi",
    "qaic": "Qualcomm Cloud AI 100",
}
_NODES = {"hailo0": "Hailo", "apex_0": "Coral Edge TPU", "rknpu": "Rockchip NPU"}


def this_machine() -> MachineFacts:
    """The machine that this process runs on, detected once."""
    return named_by_user(_detected())


@cache
def _detected() -> MachineFacts:
    machine = LocalMachine()
    return machine_facts(machine, detect_host(machine))


def named_by_user(facts: MachineFacts) -> MachineFacts:
    """The facts of this machine, under the name that its user gave it."""
    chosen = settings.machine_name()
    return facts if chosen is None else replace(facts, name=chosen)


def machine_facts(machine: Machine, host: Host) -> MachineFacts:
    """What a run says about its machine, under the host's own name."""
    cpu, limits = host.cpu, host.limits
    return MachineFacts(
        id=machine_id(machine, host),
        name=stripped((machine.node or "").removesuffix(".local")),
        board=host.board,
        cpu=cpu.model,
        architecture=cpu.architecture,
        sockets=cpu.sockets,
        physical_cores=cpu.physical_cores,
        logical_cores=cpu.logical_cores,
        usable_cpus=host.usable_cpus,
        memory_bytes=host.usable_memory_bytes,
        gpus=tuple(gpu.name for gpu in host.gpus if gpu.name),
        accelerators=accelerators(machine),
        system=" ".join(filter(None, (host.os.name, host.os.version))) or None,
        kernel=host.os.kernel,
        virtualised=limits.virtualised,
        hypervisor=limits.hypervisor,
        container=limits.container,
    )


def machine_id(machine: Machine, host: Host) -> str:
    """Twelve letters that name the machine. The host's own numbers cannot be found from them."""
    known = next(_identities(machine, host), None) or f"{_hardware(host)}\n{machine.node}"
    return hashlib.sha256(f"inferometer machine\n{known}".encode()).hexdigest()[:_LETTERS]


def _identities(machine: Machine, host: Host) -> Iterator[str]:
    installed = _number(_system_id(machine))
    contained = host.limits.container is not None
    if installed and not contained:
        yield installed
    for path in (
        "/proc/device-tree/serial-number",
        "/sys/firmware/devicetree/base/serial-number",
        f"{_DMI}/product_uuid",
        f"{_DMI}/product_serial",
        f"{_DMI}/board_serial",
    ):
        serial = _number(machine.read(path))
        if serial:
            yield serial
    if installed:
        yield f"{installed}\n{_hardware(host)}"


def _system_id(machine: Machine) -> str | None:
    """The number that the operating system was given when it was installed."""
    if machine.system == "Linux":
        return machine.read("/etc/machine-id") or machine.read("/var/lib/dbus/machine-id")
    if machine.system == "Darwin":
        pattern, text = r'"IOPlatformUUID" = "([^"]+)"', machine.run("ioreg", "-rd1", "-c", "IOPlatformExpertDevice")
    elif machine.system == "Windows":
        pattern, text = r"MachineGuid\s+REG_SZ\s+(\S+)", machine.run("reg", "query", _REGISTRY, "/v", "MachineGuid")
    else:
        return None
    match = re.search(pattern, text or "")
    return match[1] if match else None


def _number(text: str | None) -> str | None:
    """A serial number in one spelling; None where it is one that stands for nothing."""
    plain = (stripped(text) or "").lower()
    return None if _BLANK.fullmatch(plain) else plain


def _hardware(host: Host) -> str:
    """What does not change while the machine is the same. Memory is rounded: each kernel keeps another bit of it.

    GPUs are left out: they are not seen while their driver is being updated.
    """
    size = host.memory.total_bytes
    facts = (
        host.board,
        host.cpu.model,
        host.cpu.architecture,
        host.cpu.logical_cores,
        None if size is None else round(size / 2**30),
    )
    return "\n".join(map(str, facts))


def accelerators(machine: Machine) -> tuple[str, ...]:
    """NPUs and the like by name, as the kernel lists them or as their device files are called."""
    found = [_driver_name(machine, f"{_ACCEL}/{name}") for name in machine.names(_ACCEL)]
    files = machine.names("/dev") if machine.system == "Linux" else ()
    found += [title for file, title in _NODES.items() if file in files]
    return tuple(name for name in found if name)


def _driver_name(machine: Machine, folder: str) -> str | None:
    match = re.search(r"^DRIVER=(\S+)$", machine.read(f"{folder}/device/uevent") or "", re.MULTILINE)
    return _DRIVERS.get(match[1], match[1]) if match else None
