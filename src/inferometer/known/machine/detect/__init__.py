"""What machine this is: `detect_host()`.

Each system has a module of pure parsers (text → values); `Machine` is the only edge, so that a folder of recorded
files can stand for a machine. Unknown is None, never a guess, and nothing raises because a file is missing or garbage.
"""

from inferometer.known.machine.detect.host import Cpu, Host, HostLimits, MemoryFacts, OperatingSystem
from inferometer.known.machine.detect.isa import architecture_name
from inferometer.known.machine.detect.machine import Disk, LocalMachine, Machine

__all__ = ["Disk", "Host", "LocalMachine", "Machine", "detect_host"]


def detect_host(machine: Machine | None = None) -> Host:
    """The machine this runs on, or the one given."""
    machine = machine or LocalMachine()
    if machine.system == "Linux":
        from inferometer.known.machine.detect.linux import linux_host  # noqa: PLC0415 - one system of three is needed

        return linux_host(machine)
    if machine.system == "Darwin":
        from inferometer.known.machine.detect.macos import macos_host  # noqa: PLC0415 - as above

        return macos_host(machine)
    if machine.system == "Windows":
        from inferometer.known.machine.detect.windows import windows_host  # noqa: PLC0415 - as above

        return windows_host(machine)
    return _unknown(machine)


def _unknown(machine: Machine) -> Host:
    """A system that cannot be asked: only what Python itself knows."""
    return Host(
        board=None,
        cpu=Cpu(architecture=architecture_name(machine.architecture)),
        memory=MemoryFacts(),
        gpus=(),
        os=OperatingSystem(name=machine.system or None),
        python=machine.python,
        limits=HostLimits(affinity_cpus=machine.affinity()),
        sensors=(),
    )
