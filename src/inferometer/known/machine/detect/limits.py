"""What this process may use of a Linux machine: cgroups, containers, hypervisors, affinity."""

import re
from collections.abc import Iterable, Mapping
from typing import Literal

from inferometer.core.frozen import frozen
from inferometer.known.machine.detect.fields import cpu_list, lines_of, number, stripped, whole
from inferometer.known.machine.detect.host import HostLimits
from inferometer.known.machine.detect.machine import Machine

_NO_LIMIT_BYTES = 2**60  # cgroup v1 writes "no limit" as the largest number of pages there can be

# First words of DMI's product and vendor → hypervisor. As in systemd's virt.c; EC2 and Google also rent bare metal.
_DMI = (
    ("KVM", "KVM"), ("QEMU", "QEMU"), ("VMware", "VMware"), ("VMW", "VMware"), ("innotek GmbH", "VirtualBox"),
    ("VirtualBox", "VirtualBox"), ("Oracle Corporation VirtualBox", "VirtualBox"), ("Xen", "Xen"),
    ("HVM domU", "Xen"), ("Bochs", "Bochs"), ("Parallels", "Parallels"), ("BHYVE", "bhyve"), ("OpenStack", "KVM"),
    ("Virtual Machine", "Hyper-V"), ("Apple Virtualization", "Apple"), ("Google Compute Engine", "KVM"),
)  # fmt: skip
_DMI_FILES = ("product_name", "sys_vendor", "board_vendor", "bios_vendor")

# A word in the cgroup path of process 1 → the container engine.
_ENGINES = (
    ("kubepods", "kubernetes"), ("docker", "docker"), ("libpod", "podman"), ("containerd", "containerd"),
    ("lxc", "lxc"), ("machine.slice/systemd-nspawn", "systemd-nspawn"),
)  # fmt: skip


@frozen
class Cgroup:
    """Where this process's limits are written: a folder a controller, the process's own first, then its parents."""

    version: Literal[1, 2] | None
    cpu: tuple[str, ...] = ()
    cpuset: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()


def linux_limits(machine: Machine, flags: str | None) -> HostLimits:
    cgroup = find_cgroup(machine)
    virtualised, hypervisor = _hypervisor(machine, flags)
    name = "memory.max" if cgroup.version == 2 else "memory.limit_in_bytes"
    limits = (whole(machine.read(f"{folder}/{name}")) for folder in cgroup.memory)
    return HostLimits(
        affinity_cpus=machine.affinity(),
        cpuset_cpus=_cpuset(machine, cgroup),
        quota_cpus=_smallest(_quota(machine, folder, cgroup.version) for folder in cgroup.cpu),
        memory_bytes=min(
            (limit for limit in limits if limit is not None and 0 < limit < _NO_LIMIT_BYTES), default=None
        ),
        cgroup_version=cgroup.version,
        container=_container(machine),
        virtualised=virtualised,
        hypervisor=hypervisor,
    )


def parse_cgroup(text: str | None) -> dict[str, str]:
    """/proc/self/cgroup: controller → path. The unified hierarchy of version 2 has the empty name."""
    paths: dict[str, str] = {}
    for line in lines_of(text):
        parts = line.split(":", 2)
        if len(parts) == 3 and parts[2].startswith("/"):
            for controller in parts[1].split(","):
                paths[controller] = parts[2]
    return paths


def parse_cgroup_mounts(text: str | None) -> dict[str, tuple[str, str]]:
    """/proc/self/mountinfo: controller → (root within the hierarchy, mount point); version 2 has the empty name."""
    mounts: dict[str, tuple[str, str]] = {}
    for line in lines_of(text):
        before, mark, after = line.partition(" - ")
        fields, kinds = before.split(" "), after.split(" ")
        if not mark or len(fields) < 5 or len(kinds) < 3:
            continue
        if kinds[0] == "cgroup2":
            mounts[""] = (fields[3], fields[4])
        elif kinds[0] == "cgroup":
            mounts |= dict.fromkeys(kinds[2].split(","), (fields[3], fields[4]))
    return mounts


def find_cgroup(machine: Machine) -> Cgroup:
    paths = parse_cgroup(machine.read("/proc/self/cgroup"))
    mounts = parse_cgroup_mounts(machine.read("/proc/self/mountinfo"))
    first = {"cpu", "memory"} & paths.keys()
    if first:
        folders = {
            name: _folders(name, paths, mounts, f"/sys/fs/cgroup/{name}") for name in ("cpu", "cpuset", "memory")
        }
        return Cgroup(version=1, **folders)
    if "" in paths:
        unified = _folders("", paths, mounts, "/sys/fs/cgroup")
        return Cgroup(version=2, cpu=unified, cpuset=unified, memory=unified)
    return Cgroup(version=None)


def _folders(name: str, paths: Mapping[str, str], mounts: Mapping[str, tuple[str, str]], usual: str) -> tuple[str, ...]:
    """The process's cgroup folder and those above it, up to the mount point.

    In a container the mount shows only the part below its root, and the path may still be the host's.
    """
    if name not in paths:
        return ()
    root, mount = mounts.get(name, ("/", usual))
    path = paths[name]
    inside = path[len(root) :] if root != "/" and path.startswith(root) else path
    if ".." in inside.split("/") or (root != "/" and not path.startswith(root)):
        inside = ""  # the process's group lies outside what is mounted: the mount point is the nearest known
    parts = [part for part in inside.split("/") if part][:32]
    return tuple("/".join((mount, *parts[:depth])) for depth in range(len(parts), -1, -1))


def _smallest(values: Iterable[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)


def _quota(machine: Machine, folder: str, version: int | None) -> float | None:
    if version == 2:
        quota, _, period = (stripped(machine.read(f"{folder}/cpu.max")) or "").partition(" ")
    else:
        quota = machine.read(f"{folder}/cpu.cfs_quota_us") or ""
        period = machine.read(f"{folder}/cpu.cfs_period_us") or ""
    time, every = number(quota), number(period)
    return time / every if time is not None and every is not None and time > 0 and every > 0 else None


def _cpuset(machine: Machine, cgroup: Cgroup) -> int | None:
    names = ("cpuset.cpus.effective",) if cgroup.version == 2 else ("cpuset.effective_cpus", "cpuset.cpus")
    for folder in cgroup.cpuset:
        for name in names:
            if cpus := cpu_list(machine.read(f"{folder}/{name}")):
                return len(cpus)
    return None


def _container(machine: Machine) -> str | None:
    """The engine that started this, by the marks it leaves.

    A microVM made from a container image keeps the mark files; it differs in that kernel threads are visible.
    """
    if stripped(machine.read("/proc/2/comm")) == "kthreadd":
        return None
    if machine.read("/.dockerenv") is not None:
        return "docker"
    if machine.read("/run/.containerenv") is not None:
        return "podman"
    if engine_name := stripped(machine.read("/run/systemd/container")):
        return engine_name
    text = f"{machine.read('/proc/1/cgroup') or ''}\n{machine.read('/proc/self/cgroup') or ''}"
    return next((engine for word, engine in _ENGINES if word in text), None)


def _hypervisor(machine: Machine, flags: str | None) -> tuple[bool | None, str | None]:
    """(virtualised, by what). A PC without the hypervisor flag is real; an ARM board without a hint is unknown."""
    names = [stripped(machine.read(f"/sys/class/dmi/id/{name}")) for name in _DMI_FILES]
    kernel_says = stripped(machine.read("/sys/hypervisor/type"))
    tree = stripped(machine.read("/proc/device-tree/hypervisor/compatible"))
    if "microsoft" in (machine.read("/proc/sys/kernel/osrelease") or "").lower():
        return True, "WSL"
    kind = hypervisor_of_dmi(names) or ("Xen" if kernel_says == "xen" else kernel_says) or tree
    if flags is not None:
        return "hypervisor" in flags.split(), kind if "hypervisor" in flags.split() else None
    if kind is None and any(name and re.match(r"Amazon EC2", name) for name in names):
        # On EC2 the product name is the instance type, and `.metal` types have no hypervisor.
        metal = any(name and ".metal" in name for name in names)
        return (False, None) if metal else (True, "Amazon Nitro")
    return (True, kind) if kind else (None, None)


def hypervisor_of_dmi(names: Iterable[str | None]) -> str | None:
    """The hypervisor that the product or vendor name gives away."""
    return next((kind for name in names if name for start, kind in _DMI if name.startswith(start)), None)
