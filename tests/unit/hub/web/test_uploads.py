"""Models on their way to the hub: quota, expiry, limits, and several who send at once."""

import hashlib
import shutil
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from fakes.places import one_layer
from inferometer.core.errors import DomainError
from inferometer.hub.fleet import uploads as uploads_module
from inferometer.hub.fleet.uploads import BROUGHT_S, UNFINISHED_EACH, UNFINISHED_S, Note, Sender, Uploads
from inferometer.hub.web.answers import HubError

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


def received(hub, sha256, offset, size, data, *, user="ada"):
    return hub.receive(sha256, offset, data, Note(size=size, sender=Sender(user=user)))


def begun(hub, data, user="ada"):
    """The first half of a file."""
    return received(hub, named(data), 0, len(data), data[: len(data) // 2], user=user)


def finished(hub, data, user="ada"):
    at = len(data) // 2
    return received(hub, named(data), at, len(data), data[at:], user=user)


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
    assert {path.name[:64] for path in (tmp_path / "incoming").iterdir()} == {named(a_file(2, 6000))}


def test_an_upload_whose_first_byte_has_not_come_yet_has_its_room_and_is_dropped_after_a_day(hub, clock, tmp_path):
    """Its note is written before: between the two, others look for room."""
    begun(hub, a_file(1, 6000))
    (part,) = (path for path in (tmp_path / "incoming").iterdir() if path.suffix != ".upload")
    part.unlink()
    with pytest.raises(HubError, match="uploads under way"):
        begun(hub, a_file(2, 6000))
    clock[0] = UNFINISHED_S + 60
    begun(hub, a_file(2, 6000))
    assert {path.name[:64] for path in (tmp_path / "incoming").iterdir()} == {named(a_file(2, 6000))}


def test_the_hub_drops_it_by_itself_and_forgets_who_brought_what(hub, clock, tmp_path):
    begun(hub, a_file(1))
    received(hub, named(a_file(2)), 0, 1000, a_file(2))
    hub.tidy()
    assert len(list((tmp_path / "incoming").iterdir())) == 2  # a part and its note
    assert hub.brought(named(a_file(2)), Sender(user="ada"))
    clock[0] = max(UNFINISHED_S, BROUGHT_S) + 60
    hub.tidy()
    assert list((tmp_path / "incoming").iterdir()) == []
    assert not hub.brought(named(a_file(2)), Sender(user="ada"))
    assert len(list((tmp_path / "artifacts").glob("??/*"))) == 1


def test_nobody_goes_on_with_what_another_has_sent(hub):
    """Else the last byte, which can be guessed, would make a file somebody's who has only its hash."""
    data = a_file(1)
    received(hub, named(data), 0, 1000, data[:-1])
    assert (hub.arrived(named(data), Sender(user="ada")), hub.arrived(named(data), Sender(user="eve"))) == (999, 0)
    with pytest.raises(DomainError, match="begins at byte 999, and 0 are there"):
        received(hub, named(data), 999, 1000, data[-1:], user="eve")
    assert received(hub, named(data), 999, 1000, data[-1:]) == 1000


def test_a_file_that_is_here_is_brought_by_those_who_send_every_byte_of_it(hub, tmp_path):
    data, eve = a_file(1), Sender(user="eve")
    assert (begun(hub, data), finished(hub, data)) == (500, 1000)
    assert not hub.brought(named(data), eve)
    assert begun(hub, data, "eve") == 500
    assert not hub.brought(named(data), eve)
    with pytest.raises(Exception, match="another hash"):
        received(hub, named(data), 500, 1000, a_file(2, 500), user="eve")
    assert (begun(hub, data, "eve"), finished(hub, data, "eve")) == (500, 1000)
    assert hub.brought(named(data), eve)
    assert not hub.brought(named(data), Sender(user="eve", project="cars"))  # a token of hers for one project
    assert [path.read_bytes() for path in (tmp_path / "artifacts").glob("??/*")] == [data]


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
    received(hub, named(data), 0, 900, data[:400])
    with pytest.raises(DomainError, match="begun with 900 bytes, and now it is said to have 1,000"):
        received(hub, named(data), 400, 1000, data[400:])
    assert received(hub, named(data), 0, 1000, data) == 1000


def test_a_file_with_another_hash_is_thrown_away_with_its_note(hub, tmp_path):
    with pytest.raises(Exception, match="another hash"):
        received(hub, named(b"x"), 0, 1, b"y")
    assert list((tmp_path / "incoming").iterdir()) == []


def test_several_who_send_the_same_file_at_once_make_one(hub, tmp_path):
    data, answers = a_file(1, 5000), []

    def send():
        at = 0
        while at < len(data):
            at = received(hub, named(data), at, len(data), data[at : at + 97])
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


# From an address


@contextmanager
def elsewhere(data):
    """A server with a file; it lies about the length of one, and sends whoever wants another away."""

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(302 if "moved" in self.path else 200)
            self.send_header("location", "http://169.254.169.254/")
            self.send_header("content-length", str(len(data) + 9 * ("short" in self.path)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_said):
            """Nothing is printed."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_model_is_fetched_from_where_the_owner_allows_as_if_it_had_been_sent(hub, tmp_path):
    data = one_layer(tmp_path).read_bytes()
    with elsewhere(data) as server:
        found = hub.fetch(f"{server}/models/my%20net.onnx", [f"{server}/models"], Sender(user="ada"))
        assert (found.name, found.sha256, found.head) == ("my net.onnx", named(data), data)
        assert hub.brought(named(data), Sender(user="ada"))
        for name, says in (("moved", "answered 302"), ("short", "broke off after")):
            with pytest.raises(DomainError, match=says):
                hub.fetch(f"{server}/models/{name}.onnx", [server], Sender(user="ada"))


def test_a_model_that_is_too_large_is_not_fetched_to_its_end(hub):
    with elsewhere(bytes(QUOTA + 1)) as server, pytest.raises(HubError, match="has room for"):
        hub.fetch(f"{server}/large.onnx", [server], Sender(user="ada"))


@pytest.mark.parametrize("url", [
    "http://lab/other/m.onnx", "https://lab/models/m.onnx", "http://lab:81/models/m.onnx", "http://lab/modelsx/m.onnx",
    "http://lab/models/../secret", "http://lab/models/%2e%2e/secret", "http://me@lab/models/m.onnx", "file:///models/m",
    "http://lab.evil/models/m.onnx", "http://evil/http://lab/models/m.onnx", "ftp://lab/models/m.onnx",
])  # fmt: skip
def test_no_other_address_is_asked_for_anything(hub, url):
    with pytest.raises(DomainError, match="fetches no model"):
        hub.fetch(url, ["http://lab/models/", "ftp://lab/models"], Sender(user="ada"))
