"""A job in a file: what goes into it, for which device it is, and what is said of one that does not fit."""

import json
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from inferometer.core.codec import decode, encode
from inferometer.core.errors import DomainError, FormatError, InferometerError, PlaceError, SchemaError
from inferometer.core.job import Job, JobModel, JobResult
from inferometer.hub.places import bundle as bundles
from inferometer.hub.places import device_side, wheels
from inferometer.hub.places.base import parse_address
from inferometer.hub.places.bundle import BundlePlace, read_result
from inferometer.hub.places.requirements import Need, engines_for, local_path, needs_of
from inferometer.hub.places.wheels import download_wheels, our_wheel, parse_target, target_of

ALL = ("msgspec", "numpy", "psutil", "onnxruntime", "onnx")
JOB = Job(id="j1", verb="profile", model=JobModel(name="resnet50"), runtime="onnxruntime")


@pytest.fixture
def wheel(monkeypatch):
    """A small one in place of ours: packing six hundred files takes a second."""
    monkeypatch.setattr(bundles, "our_wheel", lambda: b"our wheel")


def facts_in(path):
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("bundle.json"))


def test_our_wheel_is_the_same_each_time_and_announces_our_plug_ins(tmp_path):
    data = our_wheel()
    (tmp_path / "ours.whl").write_bytes(data)
    device_side.unpack_wheel(tmp_path / "ours.whl", tmp_path / "to")
    code = "from inferometer.core.plugins import listed; print(*(p.name for p in listed('inferometer.providers')))"
    ran = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {str(tmp_path / 'to')!r}); {code}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert {"local", "ssh", "bundle"} <= set(ran.stdout.split())


def test_a_bundle_without_packages_runs_anywhere_and_says_what_it_expects(tmp_path, wheel):
    BundlePlace(tmp_path / "job.zip", leave=ALL).submit(JOB, {})
    facts = facts_in(tmp_path / "job.zip")
    assert (facts["python"], facts["system"], facts["wheels"]) == (None, None, [])
    assert ["numpy"] in facts["expects"]
    assert any("onnxruntime" in names for names in facts["expects"])
    assert [path.name for path in tmp_path.iterdir()] == ["job.zip"], "nothing half-written is left"


@pytest.mark.parametrize(
    ("words", "expected"), [("leave=numpy,", [["numpy"]]), ("leave=", []), ("leave=,numpy,,click", [["numpy"]])]
)
def test_a_bundle_expects_what_its_address_leaves_out_and_nothing_else(tmp_path, wheel, monkeypatch, words, expected):
    needs = (Need(names=("msgspec",), install=()), Need(names=("numpy",), install=()))
    monkeypatch.setattr(bundles, "needs_of", lambda *_: needs)
    place = bundles.provider.open(parse_address(f"bundle:{tmp_path / 'job.zip'}?{words}"))
    place.submit(JOB, {})
    assert facts_in(tmp_path / "job.zip")["expects"] == expected


def test_the_packages_of_this_machine_go_along_with_what_they_need(tmp_path, wheel, monkeypatch):
    monkeypatch.setattr(bundles, "needs_of", lambda *_: (Need(names=("msgspec",), install=("msgspec>=0.19",)),))
    BundlePlace(tmp_path / "job.zip").submit(JOB, {})
    facts = facts_in(tmp_path / "job.zip")
    assert facts["python"] == list(sys.version_info[:2])
    assert facts["system"].startswith(sys.platform)
    root = tmp_path / "root"
    with zipfile.ZipFile(tmp_path / "job.zip") as archive:
        device_side._unpack_bundle(archive, root)
    folder = Path(device_side.unpack(str(root), "env/x", facts["wheels"]))
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); import msgspec; print(msgspec.__version__)"
    ran = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == version("msgspec")
    absent = (Need(names=("no-such-package",), install=("no-such-package>=1",)),)
    monkeypatch.setattr(bundles, "needs_of", lambda *_: absent)
    with pytest.raises(PlaceError, match="not installed here"):
        BundlePlace(tmp_path / "job.zip").submit(JOB, {})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"python": [3, 99]}, "Run it with python3.99"),
        ({"system": "plan9 mips"}, "another --target"),
        ({"expects": [["no-such-package", "nor-this"]]}, "expects no-such-package or nor-this"),
        ({}, None),
    ],
)
def test_a_bundle_for_another_device_says_so(change, says):
    refusal = device_side._unfit({"python": None, "system": None, "expects": [], **change})
    assert (refusal is None) if says is None else says in refusal


def test_a_damaged_bundle_is_an_error(tmp_path):
    with zipfile.ZipFile(tmp_path / "job.zip", "w") as archive:
        archive.writestr(f"artifacts/{'a' * 64}", "not what it says")
    with zipfile.ZipFile(tmp_path / "job.zip") as archive, pytest.raises(OSError, match="damaged"):
        device_side._unpack_bundle(archive, tmp_path / "root")


def test_a_bundle_that_cannot_be_unpacked_says_where_it_may_write(tmp_path, capsys):
    (tmp_path / "job.zip").write_bytes(b"PK cut off")
    assert device_side.run_bundle(tmp_path / "job.zip", []) == 2
    assert "job.zip: " in capsys.readouterr().err
    BundlePlace(tmp_path / "job.zip", leave=ALL).submit(JOB, {})
    (tmp_path / "file").write_text("")
    assert device_side.run_bundle(tmp_path / "job.zip", ["-o", str(tmp_path / "file" / "result.json")]) == 2
    assert "-o FILE" in capsys.readouterr().err


def test_a_bundle_unpacks_beside_its_result_and_leaves_nothing_there(tmp_path, wheel, monkeypatch):
    BundlePlace(tmp_path / "job.zip", leave=ALL).submit(JOB, {})
    used = []

    def run(root, *_):
        used.append(root.parent)
        assert any((root / "artifacts").iterdir())
        return 0

    monkeypatch.setattr(device_side, "_run_unpacked", run)
    assert device_side.run_bundle(tmp_path / "job.zip", ["-o", str(tmp_path / "out" / "result.json")]) == 0
    assert used == [tmp_path / "out"]
    assert not [*(tmp_path / "out").iterdir()]


def test_the_result_of_another_job_is_not_taken_for_this_one(tmp_path, wheel):
    place = BundlePlace(tmp_path / "job.zip", leave=ALL)
    handle = place.submit(JOB, {})
    assert [event.state for event in place.events(handle)] == ["queued"]
    (tmp_path / "result.json").write_bytes(encode(JobResult(job=Job(id="j2", verb="calibrate"), ended="done")))
    assert [event.state for event in place.events(handle)] == ["queued"]
    with pytest.raises(PlaceError, match=r"python job\.zip"):
        place.fetch(handle)


def test_what_is_no_result_is_said(tmp_path):
    with pytest.raises(FormatError, match="cannot be read"):
        read_result(tmp_path / "none.json")
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(SchemaError, match=r"python job\.zip|should have"):
        read_result(tmp_path / "x.json")
    (tmp_path / "file").write_text("")
    with pytest.raises(PlaceError, match="cannot be written"):
        BundlePlace(tmp_path / "file" / "job.zip", leave=ALL).submit(JOB, {})


@pytest.mark.parametrize(
    ("text", "first", "python"),
    [
        ("linux-x86_64-cp312", "manylinux_2_31_x86_64", (3, 12)),
        ("linux-aarch64-cp311", "manylinux_2_31_aarch64", (3, 11)),
        ("linux-arm64-cp311", "manylinux_2_31_aarch64", (3, 11)),
        ("macos-arm64-cp313", "macosx_15_0_arm64", (3, 13)),
        ("win-amd64-cp311", "win_amd64", (3, 11)),
    ],
)
def test_a_target_names_the_wheels_it_takes(text, first, python):
    target = parse_target(text)
    assert (target.platforms[0], target.python) == (first, python)


@pytest.mark.parametrize("text", ["linux", "linux-x86_64-cp310", "linux-x86_64-py3", "beos-x86_64-cp312", ""])
def test_a_target_that_is_none_is_an_error(text):
    with pytest.raises(DomainError, match=r"linux-x86_64-cp312|3\.11"):
        parse_target(text)


def test_a_device_is_the_target_that_it_says():
    facts = {"system": "linux", "machine": "aarch64", "python": [3, 11, 2], "libc": ["glibc", "2.36"]}
    assert str(target_of(facts)) == "linux-aarch64-cp311"
    assert target_of(facts).platforms[0] == "manylinux_2_36_aarch64"
    with pytest.raises(InferometerError, match="sunos"):
        target_of({**facts, "system": "sunos"})


def test_wheels_are_fetched_once_and_pips_words_are_passed_on(tmp_path, monkeypatch):
    calls = []

    def pip(command, **_):
        calls.append(command)
        fails = "broken" in command
        if not fails:
            Path(command[command.index("--dest") + 1], "x-1-py3-none-any.whl").write_bytes(b"")
        return subprocess.CompletedProcess(command, int(fails), "", "ERROR: No matching distribution found for broken")

    monkeypatch.setattr(wheels.subprocess, "run", pip)
    target = parse_target("linux-x86_64-cp312")
    for _ in range(2):
        assert download_wheels(["x"], target, tmp_path / "a") == (tmp_path / "a" / "x-1-py3-none-any.whl",)
    assert len(calls) == 1
    monkeypatch.setattr(wheels, "cache_folder", lambda: tmp_path)
    kept = [download_wheels(wanted, target)[0].parent for wanted in (["x", "y"], ["y", "x"], ["x"])]
    assert (kept[0] == kept[1], kept[0] == kept[2]) == (True, False)  # by what is wanted, in any order
    assert {folder.parent for folder in kept} == {tmp_path / "wheels"}
    assert {"--only-binary", "manylinux2014_x86_64", "cp312", "3.12"} <= set(calls[0])
    with pytest.raises(InferometerError, match="No matching distribution found for broken"):
        download_wheels(["broken"], target, tmp_path / "b")


def test_what_a_job_needs_follows_from_its_engine():
    needs = {need.names[0]: need for need in needs_of(JOB, {})}
    assert {"msgspec", "numpy", "psutil", "onnxruntime"} == set(needs), "click is the command line's"
    assert needs["onnxruntime"].is_met({"onnxruntime": None, "onnxruntime-gpu": "1.22"})
    assert not needs["numpy"].is_met({"numpy": "1.21.5"})
    assert not needs["numpy"].is_met({"numpy": "3.0"})
    assert needs["numpy"].is_met({"numpy": "2.3.1"})
    free = Job(id="j", verb="profile", model=JobModel(name="resnet50"))
    assert engines_for(free, {})[0][0] == "onnxruntime"
    assert engines_for(Job(id="j", verb="calibrate"), {}) == (("onnxruntime",),)
    assert local_path(Job(id="j", verb="calibrate"), {}) == ""
    assert local_path(free, {}) == "resnet50"
    left = needs_of(Job(id="j", verb="profile", model=JobModel(name="resnet50"), runtime="torch-eager"), {}, ["torch"])
    assert not any(text.startswith("torch>") or text == "torch" for need in left for text in need.install)


def test_a_folder_is_found_again_from_its_files(tmp_path):
    from inferometer.hub.places.artifacts import FileHashes, model_files

    (tmp_path / "net" / "sub").mkdir(parents=True)
    (tmp_path / "net" / "sub" / "a.json").write_text("{}")
    found = model_files(str(tmp_path / "net"), hashes=FileHashes(tmp_path / "h"))
    job = Job(id="j", verb="profile", model=found.model)
    assert local_path(job, found.paths) == str(tmp_path / "net")
    assert decode(encode(job), Job) == job
