"""Models on their way to the hub: quota, expiry, limits, and several who send at once."""

import hashlib
import shutil
import threading
import time

import pytest

from inferometer.errors import DomainError
from inferometer.hub import uploads as uploads_module
from inferometer.hub.failures import HubError
from inferometer.hub.uploads import UNFINISHED_EACH, UNFINISHED_S, Uploads

QUOTA = 10_000


def named(data):
    return hashlib.sha256(data).hexdigest()


def a_file(number, size=1000):
    return bytes([number]) * size


@pytest.fixture
def in_use():
    return set()


@pytest.fixture
def clock():
    """Seconds that the hub is ahead of the files' own times."""
    return [0.0]


@pytest.fixture
def hub(tmp_path, in_use, clock, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=10**12)
    monkeypatch.setattr(uploads_module.shutil, "disk_usage", lambda _root: usage)
    return Uploads(tmp_path, QUOTA, lambda: in_use, clock=lambda: time.time() + clock[0])


def begun(hub, data, user="ada"):
    """The first half of a file."""
    return hub.receive(named(data), 0, len(data), data[: len(data) // 2], user=user)


def finished(hub, data, user="ada"):
    at = len(data) // 2
    return hub.receive(named(data), at, len(data), data[at:], user=user)


def test_a_file_arrives_piece_by_piece_and_leaves_no_note(hub, tmp_path):
    data = a_file(1)
    assert (begun(hub, data), finished(hub, data)) == (500, 1000)
    assert [path.read_bytes() for path in (tmp_path / "artifacts").glob("??/*")] == [data]
    assert list((tmp_path / "incoming").iterdir()) == []


def test_what_is_under_way_counts_in_full(hub):
    begun(hub, a_file(1, 6000))
    with pytest.raises(HubError, match="uploads under way") as refused:
        begun(hub, a_file(2, 6000))
    assert refused.value.status == 413
    finished(hub, a_file(1, 6000))


def test_room_is_looked_for_with_every_piece(hub, in_use, tmp_path):
    """What was free when an upload began may be taken by its second half: by a file that came another way."""
    begun(hub, a_file(1, 6000))
    other = named(b"other")
    (tmp_path / "artifacts" / other[:2]).mkdir(parents=True)
    (tmp_path / "artifacts" / other[:2] / other).write_bytes(a_file(3, 5000))
    in_use.add(other)
    with pytest.raises(HubError, match="take the 10"):
        finished(hub, a_file(1, 6000))
    in_use.clear()
    assert finished(hub, a_file(1, 6000)) == 6000  # the longest unused one went


def test_the_disk_is_looked_at_with_every_piece(hub, tmp_path, monkeypatch):
    begun(hub, a_file(1))
    full = shutil.disk_usage(tmp_path)._replace(free=1)
    monkeypatch.setattr(uploads_module.shutil, "disk_usage", lambda _root: full)
    with pytest.raises(HubError, match="1 B free"):
        finished(hub, a_file(1))


def test_an_upload_that_nobody_goes_on_with_is_dropped_after_a_day(hub, clock, tmp_path):
    begun(hub, a_file(1, 6000))
    clock[0] = UNFINISHED_S - 60
    with pytest.raises(HubError):
        begun(hub, a_file(2, 6000))
    clock[0] = UNFINISHED_S + 60
    begun(hub, a_file(2, 6000))
    assert {path.stem for path in (tmp_path / "incoming").iterdir()} == {named(a_file(2, 6000))}


def test_one_person_has_a_limited_number_of_unfinished_uploads_and_others_go_on(hub):
    for number in range(UNFINISHED_EACH):
        begun(hub, a_file(number, 10))
    with pytest.raises(HubError, match="ada has 32 uploads") as refused:
        begun(hub, a_file(99, 10))
    assert refused.value.status == 429
    begun(hub, a_file(99, 10), user="bo")
    finished(hub, a_file(0, 10))
    begun(hub, a_file(98, 10))


def test_a_size_that_changes_between_pieces_is_refused_and_from_the_beginning_it_is_another_upload(hub):
    data = a_file(1)
    hub.receive(named(data), 0, 900, data[:400], user="ada")
    with pytest.raises(DomainError, match="begun with 900 bytes, and now it is said to have 1,000"):
        hub.receive(named(data), 400, 1000, data[400:], user="ada")
    assert hub.receive(named(data), 0, 1000, data, user="ada") == 1000


def test_a_file_with_another_hash_is_thrown_away_with_its_note(hub, tmp_path):
    with pytest.raises(Exception, match="another hash"):
        hub.receive(named(b"x"), 0, 1, b"y", user="ada")
    assert list((tmp_path / "incoming").iterdir()) == []


def test_several_who_send_the_same_file_at_once_make_one(hub, tmp_path):
    data, answers = a_file(1, 5000), []

    def send():
        at = 0
        while at < len(data):
            at = hub.receive(named(data), at, len(data), data[at : at + 97], user="ada")
        answers.append(at)

    threads = [threading.Thread(target=send) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [5000] * 6
    assert [path.read_bytes() for path in (tmp_path / "artifacts").glob("??/*")] == [data]


def test_several_who_begin_at_once_do_not_take_the_same_room(hub):
    refused = []

    def begin(number):
        try:
            begun(hub, a_file(number, 4000))
        except HubError:
            refused.append(number)

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 6
