"""cgroups, containers and hypervisors."""

import pytest

from fakes.recorded_machine import RecordedMachine
from inferometer.known.machine.detect import detect_host
from inferometer.known.machine.detect.limits import find_cgroup, parse_cgroup, parse_cgroup_mounts


def limits(files: dict[str, str], architecture: str = "x86_64"):
    return detect_host(RecordedMachine(system="Linux", architecture=architecture, files=files)).limits


def test_controllers_and_their_paths():
    assert parse_cgroup("9:cpu,cpuacct:/docker/a\n0::/x:y\ngarbage") == {
        "cpu": "/docker/a",
        "cpuacct": "/docker/a",
        "": "/x:y",
    }


def test_mounts_and_their_roots():
    first = "1 2 0:3 /docker/a /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct"
    second = "4 5 0:6 / /sys/fs/cgroup rw - cgroup2 x rw"
    found = parse_cgroup_mounts(f"{first}\n{second}")
    assert found["cpu"] == ("/docker/a", "/sys/fs/cgroup/cpu,cpuacct")
    assert found[""] == ("/", "/sys/fs/cgroup")


def test_the_tightest_limit_of_the_process_and_the_groups_above_counts():
    files = {
        "/proc/self/cgroup": "0::/a/b\n",
        "/sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
        "/sys/fs/cgroup/a/cpu.max": "150000 100000\n",
        "/sys/fs/cgroup/a/memory.max": "1000000\n",
        "/sys/fs/cgroup/a/b/memory.max": "max\n",
        "/sys/fs/cgroup/a/b/cpuset.cpus.effective": "0-1\n",
    }
    found = limits(files)
    assert (found.quota_cpus, found.memory_bytes, found.cpuset_cpus) == (1.5, 1000000, 2)


def test_in_a_container_the_mount_shows_only_what_lies_below_its_root():
    files = {
        "/proc/self/cgroup": "4:memory:/kubepods/pod1/c1\n2:cpu:/kubepods/pod1/c1\n",
        "/proc/self/mountinfo": "9 8 0:1 /kubepods/pod1/c1 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": "2147483648\n",
    }
    machine = RecordedMachine(system="Linux", architecture="x86_64", files=files)
    assert find_cgroup(machine).memory == ("/sys/fs/cgroup/memory",)
    assert limits(files).memory_bytes == 2**31
    assert limits(files).container == "kubernetes"


def test_a_group_outside_of_what_is_mounted_falls_back_to_the_mount():
    files = {
        "/proc/self/cgroup": "0::/../../other\n",
        "/sys/fs/cgroup/cpu.max": "50000 100000\n",
    }
    assert limits(files).quota_cpus == 0.5


@pytest.mark.parametrize("text", ["-1\n", "0\n", "9223372036854771712\n", "max\n", ""])
def test_no_limit_is_none(text):
    files = {
        "/proc/self/cgroup": "4:memory:/\n2:cpu:/\n",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": text,
        "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": text,
        "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
    }
    found = limits(files)
    assert found.memory_bytes is None
    assert found.quota_cpus is None or text.startswith("9")


@pytest.mark.parametrize(
    ("files", "engine"),
    [
        ({"/.dockerenv": ""}, "docker"),
        ({"/run/.containerenv": ""}, "podman"),
        ({"/run/systemd/container": "systemd-nspawn\n"}, "systemd-nspawn"),
        ({"/proc/1/cgroup": "1:name=systemd:/lxc/box\n"}, "lxc"),
        ({}, None),
        ({"/.dockerenv": "", "/proc/2/comm": "kthreadd\n"}, None),  # a microVM made from an image
    ],
)
def test_the_marks_that_container_engines_leave(files, engine):
    assert limits(files).container == engine


@pytest.mark.parametrize(
    ("files", "virtual", "kind"),
    [
        ({"/proc/cpuinfo": "processor : 0\nflags : fpu sse\n"}, False, None),
        ({"/proc/cpuinfo": "processor : 0\nflags : fpu hypervisor\n"}, True, None),
        (
            {
                "/proc/cpuinfo": "processor : 0\nflags : fpu hypervisor\n",
                "/sys/class/dmi/id/sys_vendor": "QEMU\n",
            },
            True,
            "QEMU",
        ),
        ({"/sys/class/dmi/id/product_name": "VMware Virtual Platform\n"}, True, "VMware"),
        ({"/proc/sys/kernel/osrelease": "5.15.153.1-microsoft-standard-WSL2\n"}, True, "WSL"),
        ({"/sys/hypervisor/type": "xen\n"}, True, "Xen"),
        ({}, None, None),
    ],
)
def test_hypervisors_by_what_they_leave(files, virtual, kind):
    found = limits(files)
    assert (found.virtualised, found.hypervisor) == (virtual, kind)


@pytest.mark.parametrize(
    ("path", "root", "folders"),
    [
        ("/", "/", ("/m",)),
        ("/a/b", "/", ("/m/a/b", "/m/a", "/m")),
        ("/docker/c/x", "/docker/c", ("/m/x", "/m")),
        ("/docker/c", "/docker/c", ("/m",)),
        ("/other/c", "/docker/c", ("/m",)),
        ("/a/../b", "/", ("/m",)),
    ],
)
def test_the_folders_of_a_group_go_up_to_the_mount(path, root, folders):
    files = {"/proc/self/cgroup": f"0::{path}\n", "/proc/self/mountinfo": f"4 5 0:6 {root} /m rw - cgroup2 x rw\n"}
    machine = RecordedMachine(system="Linux", architecture="x86_64", files=files)
    assert find_cgroup(machine).cpu == find_cgroup(machine).memory == folders


@pytest.mark.parametrize(
    ("quota", "period", "cpus"), [("150000", "100000", 1.5), ("-1", "100000", None), ("0", "1", None), ("5", "0", None)]
)
def test_a_quota_of_either_version_is_time_over_period(quota, period, cpus):
    newer = {"/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/cpu.max": f"{quota} {period}\n"}
    older = {
        "/proc/self/cgroup": "2:cpu:/\n4:memory:/\n", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": quota,
        "/sys/fs/cgroup/cpu/cpu.cfs_period_us": period,
    }  # fmt: skip
    assert limits(newer).quota_cpus == limits(older).quota_cpus == cpus
