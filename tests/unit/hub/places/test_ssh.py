"""A device over SSH, with a real sshd: what is sent, what is said, and a connection that breaks."""

import hashlib
import sys
from pathlib import Path

import pytest

import inferometer
from fakes.once import known_device
from fakes.places import LONG, one_layer, packed
from fakes.sshd import WHY_NOT, start_sshd
from inferometer.core import notices
from inferometer.core.errors import PlaceError
from inferometer.core.job import Job, JobModel
from inferometer.hub.places import following
from inferometer.hub.places import ssh as setup
from inferometer.hub.places.base import resolve

pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
pytest.importorskip("asyncssh")
CATALOG = Job(id="j1", verb="profile", model=JobModel(name="resnet50"), runtime="onnxruntime")


@pytest.fixture(scope="module")
def sshd(tmp_path_factory):
    server = start_sshd(tmp_path_factory.mktemp("sshd"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return known_device(tmp_path_factory.mktemp("device"))


def refusal_of(address, job=CATALOG, files=None):
    with resolve(address) as place, pytest.raises(PlaceError) as refused:
        place.submit(job, files or {})
    return str(refused.value)


def test_a_wrong_key_an_unknown_host_and_a_closed_port_are_told_apart(sshd, tmp_path):
    assert "ssh-copy-id" in refusal_of(sshd.address(key=sshd.folder / "stranger"))
    (tmp_path / "empty").write_text("")
    unknown = refusal_of(sshd.address(known_hosts=tmp_path / "empty"))
    assert "not among the known hosts" in unknown
    assert f"ssh -p {sshd.port} " in unknown
    other = (sshd.folder / "known_hosts").read_text().split()
    stranger = (sshd.folder / "stranger.pub").read_text().split()
    (tmp_path / "changed").write_text(f"{other[0]} {stranger[0]} {stranger[1]}\n")
    assert "known hosts" in refusal_of(sshd.address(known_hosts=tmp_path / "changed"))
    assert "cannot be reached: " in refusal_of("ssh://127.0.0.1:1")
    assert "no host of that name" in refusal_of("ssh://no-such-host.invalid")
    assert "there is no such file" in refusal_of(sshd.address(key=tmp_path / "none"))


def test_a_device_without_a_python_that_will_do_says_what_it_has(sshd, tmp_path, root):
    assert "/no/such/python is not one" in refusal_of(sshd.address(python="/no/such/python", root=root))
    old = tmp_path / "python-old"
    old.write_text("#!/bin/sh\necho 3.9\n")
    old.chmod(0o755)
    said = refusal_of(sshd.address(python=old, root=root))
    assert "It has Python 3.9." in said
    assert "?python=PATH" in said


def test_a_full_or_forbidden_disk_is_said_before_anything_is_sent(sshd, monkeypatch, tmp_path, root):
    with monkeypatch.context() as patch:
        patch.setattr(setup, "_SPARE_BYTES", 10**18)
        said = refusal_of(sshd.address(python=sys.executable, root=root))
    assert "too little room" in said
    assert "?root=FOLDER" in said
    (tmp_path / "file").write_text("")
    assert "?root=FOLDER" in refusal_of(sshd.address(python=sys.executable, root=tmp_path / "file"))


def test_a_misspelt_option_of_the_address_is_an_error():
    from inferometer.core.errors import UnknownNameError

    with pytest.raises(UnknownNameError, match="Did you mean python"):
        resolve("ssh://host?pyton=x")


def test_an_alias_of_the_configuration_and_a_jump_host_lead_there(sshd, tmp_path, root):
    config = tmp_path / "config"
    common = f"  IdentityFile {sshd.folder}/user\n  UserKnownHostsFile {sshd.folder}/known_hosts\n"
    config.write_text(
        f"Host board\n  HostName 127.0.0.1\n  Port {sshd.port}\n{common}"
        f"Host behind\n  HostName 127.0.0.1\n  Port {sshd.port}\n  ProxyJump board\n{common}"
    )
    for alias in ("board", "behind"):
        with resolve(f"ssh://{alias}?config={config}&python={sys.executable}&root={root}") as place:
            assert place.connection.call("look_around", root=str(root), packages=[], hashes=[], keys=[])["python"]


def test_a_file_is_sent_once_and_from_where_it_broke_off(sshd, root, tmp_path):
    data = bytes(range(256)) * 1000
    (tmp_path / "net.tflite").write_bytes(data)
    sha256 = hashlib.sha256(data).hexdigest()
    sent = []

    def place_and_send():
        with resolve(sshd.address(root=root, python=sys.executable)) as place:
            connection = place.connection
            facts = connection.call("look_around", root=str(root), packages=[], hashes=[sha256], keys=[])
            plain = connection.send
            connection.send = lambda source, to, at, tell: (sent.append(at), plain(source, to, at, tell))
            setup._Device(connection, facts).send(tmp_path / "net.tflite", sha256)

    (root / "incoming").mkdir(exist_ok=True)
    (root / "incoming" / f"{sha256}.part").write_bytes(data[:1000])
    place_and_send()
    assert sent == [1000]
    assert (root / "artifacts" / sha256[:2] / sha256).read_bytes() == data
    place_and_send()
    assert sent == [1000], "it is there already"
    (root / "artifacts" / sha256[:2] / sha256).unlink()
    (root / "incoming" / f"{sha256}.part").write_bytes(b"something else")
    place_and_send()
    assert sent == [1000, 14, 0], "what was there was not of this file: it is sent again, whole"
    assert (root / "artifacts" / sha256[:2] / sha256).read_bytes() == data


def test_a_new_device_gets_our_code_and_no_other_time(sshd, tmp_path, monkeypatch):
    sent, send = [], setup._Device.send
    monkeypatch.setattr(setup._Device, "send", lambda *given: (sent.append(given[1].name), send(*given)))
    with resolve(sshd.address(root=tmp_path / "new", python=sys.executable)) as place:
        first, second = (setup.set_up(place.connection, str(tmp_path / "new"), CATALOG, {}) for _ in range(2))
    assert first == second
    assert sent == ["inferometer.whl"]
    ours, there = Path(inferometer.__file__).parent, Path(first.paths[0]) / "inferometer"
    assert {path.relative_to(there) for path in there.rglob("*.*")} == {
        path.relative_to(ours) for path in ours.rglob("*.*") if path.suffix != ".pyc"
    }


@pytest.mark.slow
def test_a_lost_connection_costs_nothing_and_the_same_job_is_picked_up(sshd, root, tmp_path, monkeypatch):
    monkeypatch.setattr(setup, "_LOOK_S", 0.05)
    monkeypatch.setattr(following, "_WAITS_S", (0.05,))
    work = packed(one_layer(tmp_path), LONG)  # it is not over before the connection is lost, however slow all this is
    told = []
    address = sshd.address(root=root, python=sys.executable, patience="0.1s")
    with notices.told_to(told.append), resolve(address) as place:
        handle = place.submit(work.job, work.files)
        events = place.events(handle)
        assert next(events).state == "running"
        sshd.drop_connections()
        assert next(events).number == 2, "the events go on"
        assert any("is lost; the job goes on there" in line for line in told)
        sshd.stop()
        with pytest.raises(PlaceError, match="the same command picks it up"):
            list(events)
    sshd.start()
    with notices.told_to(told.append), resolve(address) as place:
        again = place.submit(work.job, work.files)
        assert again == handle
        assert any("picked up" in line for line in told)
        for event in place.events(again):
            if event.stage == "runs" and event.share:
                place.cancel(again)
        assert event.state == "cancelled"
        result = place.fetch(again)
        assert result.profiles[0].phases[-1].samples_s
        assert not Path(handle.folder).exists()
        with pytest.raises(PlaceError, match="fetched before"):
            place.fetch(again)
