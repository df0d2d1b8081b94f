"""The seam: this machine, and machines written to a folder and read back."""

import sys
from collections import Counter

import pytest

from fakes.recorded_machine import MachineRecorder, RecordedMachine, load_machine, parse_entries, render_entries
from inferometer.core.errors import FormatError
from inferometer.known.machine.detect import Host, LocalMachine, detect_host


def test_this_machine_is_detected():
    found = detect_host()
    assert isinstance(found, Host)
    assert found.python == ".".join(map(str, sys.version_info[:3]))
    assert found.cpu.architecture is not None


def test_no_file_of_this_machine_is_read_many_times():
    """benchmarks/start_up.py has the time that detecting takes."""
    read = Counter()

    class Counting(LocalMachine):
        def read(self, path, *more):
            read[path] += 1
            return super().read(path, *more)

        def run(self, *_):
            return None

        def module(self, _):
            return None

    detect_host(Counting())
    assert max(read.values()) <= 2, read.most_common(5)


def test_what_is_not_there_is_none_and_not_an_error(tmp_path):
    machine = LocalMachine()
    assert machine.read(str(tmp_path / "missing")) is None
    assert machine.read(str(tmp_path)) is None
    assert machine.read("bad\0path") is None
    assert machine.names(str(tmp_path / "missing")) == ()
    assert machine.run("no-such-program-anywhere") is None
    assert machine.which("no-such-program-anywhere") is None
    assert machine.module("no_such_module_anywhere") is None
    assert machine.installed("no-such-distribution-anywhere") is None


def test_a_program_that_fails_has_said_nothing():
    assert LocalMachine().run(sys.executable, "-c", "print('x'); raise SystemExit(3)") is None
    assert LocalMachine().run(sys.executable, "-c", "print('x')").strip() == "x"


def test_bytes_that_are_not_text_are_read_anyway(tmp_path):
    (tmp_path / "raw").write_bytes(b"model\xff\x00name")
    assert LocalMachine().read(str(tmp_path / "raw")) == "model\ufffd\0name"


def test_this_machine_knows_itself():
    machine = LocalMachine()
    assert machine.module("psutil") is not None
    assert machine.installed("psutil")
    assert [disk.name for disk in machine.disks()] == ["working folder", "temporary folder"]
    assert machine.page_bytes >= 4096
    assert machine.pid


def test_a_recording_answers_like_the_machine_it_was_made_from(tmp_path):
    machine = RecordedMachine(
        system="Linux",
        architecture="x86_64",
        python="3.12.1",
        affinity_cpus=4,
        privileged=False,
        files={"/proc/cpuinfo": "processor : 0\nmodel name : A\n", "/proc/meminfo": "MemTotal: 8 kB\n"},
        bare=frozenset({"/sys/class/powercap/intel-rapl:0/energy_uj"}),
        commands={"nvidia-smi": "x\n"},
    )
    recorder = MachineRecorder(machine)
    found = detect_host(recorder)
    recorder.save(tmp_path / "copy")
    copy = load_machine(tmp_path / "copy")
    assert detect_host(copy) == found == detect_host(machine)
    assert copy.read("/proc/cpuinfo") == "processor : 0\nmodel name : A\n"
    assert "intel-rapl:0" in copy.names("/sys/class/powercap")


def test_a_recording_leaves_out_what_it_is_told_to(tmp_path):
    recorder = MachineRecorder(RecordedMachine(system="Linux", architecture="x86_64", files={"/a/b": "1", "/c": "2"}))
    recorder.read("/a/b")
    recorder.read("/c")
    recorder.save(tmp_path, leave_out=["/a"])
    assert dict(load_machine(tmp_path).files) == {"/c": "2\n"}


def test_entries_are_read_as_they_were_written():
    entries = {"/a": "one\ntwo\n", "/empty": "", "nvidia-smi --x": "1, 2\n"}
    assert parse_entries(render_entries(entries)) == entries


def test_a_folder_that_is_no_recording_is_an_error_that_says_so(tmp_path):
    with pytest.raises(FormatError, match=r"is not a recorded machine"):
        load_machine(tmp_path)
