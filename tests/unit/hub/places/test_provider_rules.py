"""Rules of places one by one: bounds of versions, patience, wheels, copies that broke off, what a hub is asked."""

import hashlib
import zipfile
from io import BytesIO
from types import SimpleNamespace

import pytest

from inferometer.core.codec import document, encode
from inferometer.core.errors import DomainError, FormatError, InferometerError, PlaceError, UnknownNameError
from inferometer.core.job import Job, JobEvent, JobFile, JobModel, JobResult
from inferometer.hub.places import hub as hubs
from inferometer.hub.places import requirements
from inferometer.hub.places.artifacts import ArtifactFolder, FileHashes, chunks_from
from inferometer.hub.places.base import parse_address
from inferometer.hub.places.bundle import _closure, _plain_name
from inferometer.hub.places.following import Patience
from inferometer.hub.places.hub_client import HubAddress, HubAwayError, HubClient, HubRefusalError
from inferometer.hub.places.local import run_at
from inferometer.hub.places.requirements import Need, local_path
from inferometer.hub.places.wheels import WheelTarget, our_wheel, parse_target, target_of

JOB = Job(id="j", verb="profile", model=JobModel(name="resnet50"))


# What must be there


@pytest.mark.parametrize(
    ("version", "bounds", "fits"),
    [
        ("1.26.4", "numpy>=1.26,<3", True),
        ("1.26", "numpy>=1.26", True),
        ("1.25.9", "numpy>=1.26", False),
        ("3.0", "numpy>=1.26,<3", False),
        ("2.9.9", "numpy>=1.26,<3", True),
        ("1.10", "numpy>=1.9", True),
        ("2.9.1+cu130", "torch>=2.9,<2.10", True),
        ("5", "numpy", True),
        (None, "numpy", False),
    ],
)
def test_a_version_is_within_its_bounds(version, bounds, fits):
    need = Need(names=("numpy", "other"), install=(bounds.replace("torch", "numpy"),))
    assert need.is_met({"numpy": version}) is fits
    assert need.is_met({"numpy": version, "other": "0.1"})  # another one that is good enough, of any version


def test_requirements_are_those_of_our_own_metadata(monkeypatch):
    lines = [
        "numpy>=1.26", "click (>=8)", "tomli>=2; python_version < '3.12'", "onnx>=1.16 ; extra == 'onnx'",
        "onnxruntime>=1.20; (sys_platform == 'linux') and extra == 'onnxruntime'", "psutil[x]>=5",
    ]  # fmt: skip
    monkeypatch.setattr(requirements, "distribution", lambda _name: SimpleNamespace(requires=lines))
    base, extras = requirements._declared()
    assert base == {
        "numpy": "numpy>=1.26", "click": "click>=8", "tomli": "tomli>=2; python_version < '3.12'",
        "psutil": "psutil>=5",
    }  # fmt: skip
    assert extras["onnx"] == {"onnx": "onnx>=1.16"}
    assert extras["onnxruntime"] == {"onnxruntime": "onnxruntime>=1.20; sys_platform == 'linux'"}
    asked = Job(
        id="j", verb="profile", model=JobModel(name="resnet50"), runtime="onnxruntime", options={"against": "litert"}
    )
    needs = requirements.needs_of(asked, {}, leave=("numpy",))
    assert [need.names[0] for need in needs][:3] == ["numpy", "tomli", "psutil"]  # a runner has no command line
    assert needs[0].install == ()
    assert requirements.engines_for(asked, {}) == (("onnxruntime",), ("litert",))
    assert needs[3].names[0] == "onnxruntime"
    assert needs[3].install == ("onnxruntime>=1.20; sys_platform == 'linux'",)


def test_a_model_is_a_file_a_folder_or_a_name(tmp_path):
    def model(entry, *paths):
        files = tuple(JobFile(path=path, sha256=f"{place}" * 64, size_bytes=1) for place, path in enumerate(paths))
        return Job(id="j", verb="profile", model=JobModel(name="m", entry=entry, files=files))

    where = {"0" * 64: tmp_path / "net" / "deep" / "config.json"}
    assert local_path(model("net.onnx", "net.onnx"), {"0" * 64: tmp_path / "net.onnx"}) == str(tmp_path / "net.onnx")
    assert local_path(model("net", "net/deep/config.json", "net/model.safetensors"), where) == str(tmp_path / "net")
    assert local_path(JOB, {}) == "resnet50"


# Patience


def test_a_place_that_is_away_is_asked_again_until_patience_ends(monkeypatch):
    told, slept, again = [], [], []
    monkeypatch.setattr("inferometer.core.notices.tell", told.append)

    def asking(failures, patience_s):
        told.clear(), slept.clear(), again.clear()
        left = iter(range(failures))

        def ask():
            if next(left, None) is not None:
                raise HubAwayError("It is away.")
            return "there"

        patience = Patience(title="The hub", seconds=patience_s, sleep=slept.append)
        return patience.ask(ask, away=HubAwayError, says=lambda lost: lost.message, again=lambda: again.append(1))

    assert asking(0, 0.0) == "there"
    assert (told, slept) == ([], [])
    assert asking(7, 100.0) == "there"
    assert (told, slept, len(again)) == (["It is away."], [0.5, 1.0, 2.0, 5.0, 10.0, 10.0, 10.0], 7)
    with pytest.raises(PlaceError, match=r"within 3.5 s. It is away"):
        asking(99, 3.5)
    assert slept == [0.5, 1.0, 2.0]
    with pytest.raises(HubRefusalError):
        Patience(title="t", seconds=9, sleep=slept.append).ask(refuse, away=HubAwayError, says=str)


def refuse():
    raise HubRefusalError(403, "No.")


# Wheels


@pytest.mark.parametrize(
    ("target", "platforms"),
    [
        ("win-amd64-cp311", ("win_amd64",)),
        ("win-arm64-cp312", ("win_arm64",)),
        ("macos-arm64-cp312", ("macosx_15_0_arm64", "macosx_15_0_universal2", "macosx_14_0_arm64")),
        ("linux-x86_64-cp312", ("manylinux_2_31_x86_64", "manylinux_2_30_x86_64")),
    ],
)
def test_a_target_takes_these_platforms_the_newest_first(target, platforms):
    assert parse_target(target).platforms[: len(platforms)] == platforms


def test_linux_takes_every_older_library():
    found = WheelTarget(system="linux", machine="aarch64", python=(3, 11), glibc=7).platforms
    assert found == (
        "manylinux_2_7_aarch64", "manylinux_2_6_aarch64", "manylinux_2_5_aarch64", "manylinux2014_aarch64",
        "manylinux2010_aarch64", "manylinux1_aarch64", "linux_aarch64",
    )  # fmt: skip
    assert len(parse_target("macos-x86_64-cp311").platforms) == 10


def test_targets_are_read_from_text_and_from_what_a_device_says():
    assert str(parse_target("linux-amd64-cp311")) == "linux-x86_64-cp311"
    assert parse_target("linux-arm64-cp313") == WheelTarget(system="linux", machine="aarch64", python=(3, 13))
    for wrong in ("linux-x86_64", "linux-x86_64-cp310", "bsd-x86_64-cp312", "linux-x86_64-cp312-extra"):
        with pytest.raises(DomainError):
            parse_target(wrong)
    facts = {"system": "linux", "machine": "AMD64", "python": [3, 12, 1], "libc": ["glibc", "2.39"]}
    assert target_of(facts) == WheelTarget(system="linux", machine="x86_64", python=(3, 12), glibc=39)
    assert target_of({**facts, "libc": ["musl", "1.2"]}).glibc == 31
    assert target_of({**facts, "system": "darwin"}).system == "macos"
    for wrong in ({"system": "aix"}, {"python": "3.12"}, {"libc": None}):
        with pytest.raises(InferometerError):
            target_of({**facts, **wrong})


def test_our_wheel_lists_every_file_with_its_hash():
    with zipfile.ZipFile(BytesIO(our_wheel())) as archive:
        names = archive.namelist()
        record = next(name for name in names if name.endswith("/RECORD"))
        lines = archive.read(record).decode().splitlines()
        listed = dict(line.split(",", 1) for line in lines)
        assert {*listed} == {*names}
        assert listed[record] == ","
        data = archive.read("inferometer/version.py")
    digest = listed["inferometer/version.py"].removeprefix("sha256=").split(",")
    assert digest[1] == str(len(data))
    assert len(digest[0]) == 43
    assert not any("__pycache__" in name for name in names)


def test_a_bundle_for_here_has_what_is_installed_and_all_that_needs(monkeypatch):
    known = {
        "a": ["b>=1", "c; extra == 'x'", "d; python_version < '3'"],
        "b": ["A_b", "e"],
        "a-b": None,
        "e": [],
        "c": [],
    }

    def distribution(name):
        if name not in known:
            from importlib.metadata import PackageNotFoundError

            raise PackageNotFoundError(name)
        return SimpleNamespace(requires=known[name])

    monkeypatch.setattr("inferometer.hub.places.bundle.distribution", distribution)
    assert {*_closure(["A>=2"], frozenset())} == {"a", "b", "a-b", "e"}
    assert {*_closure(["a", "zz"], frozenset({"b", "zz"}))} == {"a"}
    with pytest.raises(PlaceError, match="zz>=1 is not installed"):
        _closure(["a", "zz>=1"], frozenset())
    assert _plain_name("Some_Name[x]>=1") == "some-name"


# Copies


def test_a_copy_goes_on_where_it_broke_off_and_takes_nothing_twice(tmp_path):
    data = b"0123456789"
    sha256 = hashlib.sha256(data).hexdigest()
    folder = ArtifactFolder(root=tmp_path / "there")
    assert (folder.missing([sha256, sha256]), folder.arrived(sha256)) == ((sha256,), 0)
    assert folder.append(sha256, 0, data[:4], most=10) == 4
    assert folder.append(sha256, 2, data[2:6], most=10) == 6  # two of them were there
    assert folder.append(sha256, 0, data[:3], most=10) == 6
    for offset, more in ((7, b"789"), (6, b"67890")):
        with pytest.raises(DomainError):
            folder.append(sha256, offset, more, most=10)
    source = tmp_path / "source"
    source.write_bytes(data)
    told = []
    folder.add(source, JobFile(path="x", sha256=sha256, size_bytes=10), tell=told.append)
    assert (told, folder.path(sha256).read_bytes(), folder.missing([sha256])) == ([10], data, ())
    folder.add(tmp_path / "nowhere", JobFile(path="x", sha256=sha256, size_bytes=10))  # it is there already
    empty = hashlib.sha256(b"").hexdigest()
    (tmp_path / "empty").write_bytes(b"")
    folder.add(tmp_path / "empty", JobFile(path="x", sha256=empty, size_bytes=0))
    assert folder.path(empty).read_bytes() == b""
    folder.append("0" * 64, 0, b"wrong", most=5)
    with pytest.raises(FormatError, match="another hash"):
        folder.seal("0" * 64)
    assert list(chunks_from(source, 3, 4)) == [b"3456", b"789"]


def test_a_hash_is_remembered_as_long_as_the_file_is_the_same(tmp_path, monkeypatch):
    path, memory, read = tmp_path / "m", tmp_path / "hashes.json", []
    path.write_bytes(b"abc")
    monkeypatch.setattr("inferometer.hub.places.artifacts.hash_file", lambda given: read.append(given) or "a" * 64)
    hashes = FileHashes(memory)
    assert hashes.file(path, "named") == JobFile(path="named", sha256="a" * 64, size_bytes=3)
    hashes.file(path, "again")
    hashes.remember()
    FileHashes(memory).file(path, "later")
    assert len(read) == 1
    path.write_bytes(b"abcd")
    FileHashes(memory).file(path, "changed")
    assert len(read) == 2
    memory.write_text("[]")
    FileHashes(memory).file(path, "forgotten")
    assert len(read) == 3


# Running a job


class Place:
    resumes, waits, title = True, False, "a place"

    def __init__(self, *events, interrupted=False):
        self.given, self.interrupted, self.calls = events, interrupted, []

    def submit(self, job, _files):
        self.calls.append(job.id)
        return "handle"

    def events(self, _handle, _after):
        if self.interrupted:
            self.interrupted = False
            raise KeyboardInterrupt
        yield from self.given

    def cancel(self, _handle):
        self.calls.append("cancel")

    def fetch(self, _handle):
        return JobResult(job=JOB, ended="done")


def event(number, **more):
    return JobEvent(job="j", number=number, at=0.0, **more)


def test_a_job_is_given_watched_and_fetched(monkeypatch):
    told, steps = [], []
    monkeypatch.setattr("inferometer.core.notices.tell", told.append)
    work = SimpleNamespace(job=JOB, files={})
    done = event(4, kind="state", state="done")
    place = Place(event(1, kind="notice", text="hello"), event(2, kind="progress", stage="s", done=3, share=0.5), done)
    assert run_at(place, work, progress=steps.append).ended == "done"
    assert told == ["hello"]
    assert [(step.stage, step.done, step.share) for step in steps] == [("s", 3, 0.5)]
    assert run_at(Place(event(1, kind="state", state="queued")), work) is None  # somebody carries it
    stopped = Place(done, interrupted=True)
    assert run_at(stopped, work).ended == "done"
    assert stopped.calls == ["j", "cancel"]
    once = Place(done)
    once.resumes = False
    run_at(once, work)
    assert once.calls[0] != "j"  # another job each time, where one is not picked up


# A hub


class Client:
    """Stands for a hub: answers by path, and keeps what was asked."""

    url = "http://hub"

    def __init__(self, **answers):
        self.answers, self.asked = answers, []

    def post(self, path, value=None):
        self.asked.append((path.removeprefix("/api/v1/fleet/"), value))
        return self.answers[path.rpartition("/")[2]]

    def get(self, path, **_query):
        return self.answers[path.rpartition("/")[2]]

    def call(self, _method, path, *, query=None, timeout_s=None):  # noqa: ARG002 - the client's signature
        self.asked.append((path.rpartition("/")[2], query))
        found = self.answers[path.rpartition("/")[2]]
        return found.pop(0) if isinstance(found, list) else found


def place_of(text, **answers):
    place = hubs.HubPlace(parse_address(text), sleep=lambda _s: None)
    place._client = Client(**answers)
    return place


@pytest.fixture
def told(monkeypatch):
    heard = []
    monkeypatch.setattr("inferometer.core.notices.tell", heard.append)
    return heard


def test_an_address_of_a_hub_names_a_device_or_what_it_has(told):
    row = {"id": "7", "link": "/jobs/7", "state": "queued", "device": None}
    place = place_of("hub:any?unit=npu&project=p&priority=-3&name=n&tags=a,,b&patience=5s", jobs=row)
    assert place.title == "a device of the hub with unit=npu"
    assert place.submit(JOB, {}).folder == "7"
    assert place._client.asked == [
        ("jobs", {"job": document(JOB), "device": None, "labels": {"unit": "npu"}, "project": "p", "priority": -3,
                  "name": "n", "tags": ("a", "b")})
    ]  # fmt: skip
    assert told == ["Job 7: http://hub/jobs/7"]
    named = place_of("hub:pi", jobs={**row, "state": "running", "device": "pi"})
    assert named.title == "pi of the hub"
    named.submit(JOB, {})
    assert named._client.asked[0][1]["device"] == "pi"
    assert named._client.asked[0][1]["project"] == "default"
    assert told[-1].endswith("(running on pi: picked up where it is)")
    assert place_of("hub:any").title == "a device of the hub"
    for wrong in ("hub:", "hub://host", "hub:each", "hub:pi?priority=x"):
        with pytest.raises(DomainError):
            place_of(wrong)


def test_only_files_that_the_hub_lacks_are_sent(told, monkeypatch):
    sent = []
    monkeypatch.setattr(hubs, "upload", lambda _client, path, file, have, _tell: sent.append((path, file.sha256, have)))
    files = tuple(JobFile(path=f"m-{place}.gguf", sha256=f"{place}" * 64, size_bytes=60_000_000) for place in range(2))
    job = Job(id="j", verb="profile", model=JobModel(name="m", entry="m-0.gguf", files=files))
    missing = {"1" * 64: 9_999_999}
    row = {"id": "7", "link": "/jobs/7", "state": "queued", "device": None}
    place = place_of("hub:pi", jobs=row, missing={"missing": missing})
    place.submit(job, {file.sha256: file.path for file in files})
    assert sent == [("m-1.gguf", "1" * 64, 9_999_999)]
    assert told[0].startswith("Sending 50")  # what is there of it is not sent again
    missing["1" * 64] = 10_000_000
    place.submit(job, {file.sha256: file.path for file in files})
    assert not any(text.startswith("Sending") for text in told[1:])  # 50 MB are no trouble


def test_events_of_a_hub_come_once_and_from_where_the_last_ended(told):
    pages = [
        [event(1, kind="state", state="running")],
        [],
        [event(2, kind="progress"), event(3, kind="state", state="done")],
    ]
    encoded = [b"[" + b",".join(encode(one) for one in page) + b"]" for page in pages]
    row = {"expected_s": 90.0, "expected_from": "a prediction"}
    place = place_of("hub:pi", events=encoded, **{"7": row})
    handle = SimpleNamespace(folder="7", job="j")
    assert [one.number for one in place.events(handle, 0)] == [1, 2, 3]
    assert [query["after"] for name, query in place._client.asked if name == "events"] == [0, 1, 1]
    assert [text for text in told if text.startswith("Expected")] == ["Expected to take 90 s (a prediction)."]


def test_each_is_every_device_that_fits_is_ready_and_there(monkeypatch):
    devices = [
        {"name": "a", "labels": {"unit": ["GPU", "cpu"], "runtime": ["litert"]}, "state": "ready", "away": False},
        {"name": "b", "labels": {"unit": ["gpu"], "runtime": ["other"]}, "state": "ready", "away": False},
        {"name": "c", "labels": {"unit": ["gpu"], "runtime": ["litert"]}, "state": "paused", "away": False},
        {"name": "d", "labels": {"unit": ["gpu"], "runtime": ["litert"]}, "state": "ready", "away": True},
        {"name": "e", "labels": {"runtime": ["litert"]}, "state": "ready", "away": False},
    ]
    monkeypatch.setattr(hubs.HubPlace, "devices", lambda _self: devices)
    address = parse_address("hub:each?unit=gpu&project=p")
    assert hubs.each_of(address, "litert") == ("hub:a?unit=gpu&project=p",)
    assert hubs.each_of(address) == ("hub:a?unit=gpu&project=p", "hub:b?unit=gpu&project=p")
    assert hubs.each_of(parse_address("hub:each")) == ("hub:a", "hub:b", "hub:e")
    with pytest.raises(DomainError, match="runtime=none and unit=gpu"):
        hubs.each_of(address, "none")


def test_a_client_keeps_the_path_of_its_hub_and_its_token_to_itself():
    opens = {"token": "secret"}
    client = HubClient(HubAddress(url="hub:99/base/", **opens))
    assert (client.url, client.in_the_clear) == ("http://hub:99/base", True)
    assert client._path("/x", {"a": [1, 2], "b": None, "c": "d e"}) == "/base/x?a=1&a=2&c=d%20e"
    assert client._headers() == {"authorization": "Bearer secret"}
    assert not HubClient(HubAddress(url="http://localhost", **opens)).in_the_clear
    assert not HubClient(HubAddress(url="http://hub")).in_the_clear
    for wrong in ("ftp://hub", "http://", "http://u@hub"):
        with pytest.raises(DomainError):
            HubClient(HubAddress(url=wrong))


def test_an_option_that_is_not_known_is_refused():
    address = parse_address("bundle:x.zip?target=here&leav=a")
    with pytest.raises(UnknownNameError, match="Did you mean leave"):
        address.require_options("target", "leave")
    parse_address("bundle:x.zip?leave=").require_options("leave")
