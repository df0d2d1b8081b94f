"""A machine is the same machine after a reboot and a change of name, and no two are one."""

from dataclasses import replace
from pathlib import Path

import pytest

from fakes.recorded_machine import RecordedMachine, load_machine
from inferometer.core import settings
from inferometer.core.errors import InferometerError
from inferometer.core.machine import MachineFacts, short_name
from inferometer.known.machine.detect import detect_host
from inferometer.known.machine.detect.identity import accelerators, machine_facts, machine_id, this_machine

HOSTS = Path(__file__).parents[2] / "data" / "hosts"
NUMBER = "3d1219c7c4c5404aaa1f6d2a48adfda4"


def recorded(name, node="box", **files):
    machine = load_machine(HOSTS / name)
    return replace(machine, node=node, files={**machine.files, **files})


def id_of(machine):
    return machine_id(machine, detect_host(machine))


def test_every_recorded_machine_has_an_id_of_its_own():
    names = sorted(folder.name for folder in HOSTS.iterdir() if folder.is_dir())
    assert len({id_of(recorded(name, name)) for name in names}) == len(names)


@pytest.mark.parametrize("name", ["cloud-vm-xeon", "raspberry-pi-5"])
def test_an_installed_system_is_known_by_its_own_number_whatever_else_changes(name):
    files = {"/etc/machine-id": f"{NUMBER}\n"}
    before = recorded(name, "box", **files)
    meminfo = before.files["/proc/meminfo"].replace("MemTotal:", "MemTotal:  1")
    after = recorded(name, "renamed.local", **files, **{"/proc/meminfo": meminfo})
    assert id_of(before) == id_of(after)
    assert id_of(before) != id_of(recorded(name, "box", **{"/etc/machine-id": NUMBER[::-1]}))
    assert id_of(before) not in NUMBER  # the number itself leaves no machine


def test_a_container_is_not_known_by_the_number_of_its_image():
    """All containers of an image have its machine-id; the hardware below tells them apart."""
    files = {"/etc/machine-id": NUMBER}
    one = recorded("container-cgroup-v1", **files)
    cpuinfo = one.files["/proc/cpuinfo"].replace("model name", "model name : Another CPU\nold name")
    assert id_of(one) != id_of(recorded("container-cgroup-v1", **files, **{"/proc/cpuinfo": cpuinfo}))
    assert id_of(one) == id_of(replace(one, node="a1b2c3d4e5f6"))  # each start has another host name
    serial = {"/sys/class/dmi/id/product_uuid": "4c4c4544-0042-3510-8052-b4c04f564432"}
    assert id_of(recorded("container-cgroup-v1", **files, **serial)) != id_of(one)


def test_without_any_number_hardware_and_host_name_stand_for_it():
    machine = recorded("aws-graviton2")
    assert id_of(machine) == id_of(recorded("aws-graviton2"))
    assert id_of(machine) != id_of(replace(machine, node="other"))


@pytest.mark.parametrize("blank", ["", "0000-0000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "To be filled by O.E.M."])
def test_a_number_that_nobody_filled_in_is_none(blank):
    files = {"/etc/machine-id": "", "/sys/class/dmi/id/product_uuid": blank}
    assert id_of(recorded("aws-graviton2", **files)) == id_of(recorded("aws-graviton2"))


@pytest.mark.parametrize(
    ("system", "command", "text"),
    [
        ("Darwin", "ioreg -rd1 -c IOPlatformExpertDevice", '  "IOPlatformUUID" = "{}"\n'),
        (
            "Windows",
            r"reg query HKLM\SOFTWARE\Microsoft\Cryptography /v MachineGuid",
            "  MachineGuid  REG_SZ  {}\n",
        ),
    ],
)
def test_each_system_has_a_number(system, command, text):
    def machine(number):
        return RecordedMachine(system=system, architecture="arm64", commands={command: text.format(number)})

    assert id_of(machine("A-1")) == id_of(replace(machine("A-1"), node="x")) != id_of(machine("A-2"))


def test_a_run_says_what_its_machine_is():
    jetson = recorded("jetson-agx-orin", "orin.local")
    facts = machine_facts(jetson, detect_host(jetson))
    assert (facts.name, facts.board) == ("orin", "NVIDIA Jetson AGX Orin Developer Kit")
    assert (facts.cpu, facts.physical_cores, facts.gpus) == ("Cortex-A78AE", 12, ("Orin integrated GPU (Ampere)",))
    assert facts.memory_bytes is not None
    assert facts.title() == "orin · Cortex-A78AE · 12 cores"
    assert facts.title("Orin integrated GPU (Ampere)") == "orin · Orin integrated GPU (Ampere)"


def test_a_container_shows_what_it_may_use():
    box = recorded("container-cgroup-v1")
    assert machine_facts(box, detect_host(box)).cores == "1.5 of 8 CPUs"


@pytest.mark.parametrize(
    ("product", "short"),
    [
        ("Intel(R) Xeon(R) Platinum 8592+", "Intel Xeon Platinum 8592+"),
        ("Intel(R) Core(TM) i7-8700 CPU @ 3.20GHz", "Intel Core i7-8700"),
        ("AMD Ryzen 7 7700X 8-Core Processor", "AMD Ryzen 7 7700X"),
        ("Intel(R) Xeon(R) Processor", "Intel Xeon"),
        ("Cortex-A76", "Cortex-A76"),
        (None, None),
    ],
)
def test_a_processor_is_named_without_its_marks(product, short):
    assert short_name(product) == short


def test_accelerators_are_known_by_their_driver():
    files = {"/sys/class/accel/accel0/device/uevent": "DRIVER=intel_vpu\nPCI_ID=8086:7D1D\n"}
    machine = RecordedMachine(system="Linux", architecture="x86_64", files=files, bare=frozenset({"/dev/hailo0"}))
    assert accelerators(machine) == ("Intel NPU", "Hailo")


def test_the_user_names_the_machine_in_the_environment_or_in_a_file(monkeypatch, tmp_path):
    file = tmp_path / "config.toml"
    monkeypatch.setenv("INFEROMETER_CONFIG", str(file))
    monkeypatch.delenv("INFEROMETER_MACHINE", raising=False)
    own = this_machine()
    file.write_text('machine = "lab box"\n')
    assert this_machine() == replace(own, name="lab box")  # the id stays
    monkeypatch.setenv("INFEROMETER_MACHINE", "bench 3")
    assert this_machine().name == "bench 3"


@pytest.mark.parametrize(("text", "said"), [("machine = 3", "not text"), ("colour = 1", "no setting"), ("x", "read")])
def test_a_configuration_file_that_is_wrong_is_told(monkeypatch, tmp_path, text, said):
    file = tmp_path / "config.toml"
    file.write_text(text)
    monkeypatch.setenv("INFEROMETER_CONFIG", str(file))
    monkeypatch.delenv("INFEROMETER_MACHINE", raising=False)
    with pytest.raises(InferometerError, match=said):
        settings.machine_name()


def test_a_machine_without_a_name_goes_by_its_id():
    assert MachineFacts(id="abc").title() == "abc"
