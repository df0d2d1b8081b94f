"""Limits of the hub that are numbers: room for models, clocks, what a token may outlast, what a file is saved as."""

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from starlette.datastructures import QueryParams
from starlette.requests import Request

from fakes.fleet import a_job, a_result
from inferometer.core.errors import DomainError
from inferometer.core.job import JobModel
from inferometer.hub.fleet import desk as fleet_desk
from inferometer.hub.fleet import uploads
from inferometer.hub.fleet.desk import FleetDesk
from inferometer.hub.fleet.uploads import Note, Sender, Uploads
from inferometer.hub.web.answers import HubError
from inferometer.hub.web.api.people import NewTokenRequest, _require_no_more
from inferometer.hub.web.api.runs import _limits
from inferometer.hub.web.downloads import _form
from inferometer.hub.web.guard.oidc import allowed, read_attempt
from inferometer.hub.web.guard.rules import Rules
from inferometer.hub.web.guard.security import ARRIVED, VISITOR
from inferometer.hub.web.guard.sign_in import own_path
from inferometer.hub.web.pages.catalog import _typed, predict_values, sweep_values
from inferometer.hub.web.pages.predictions import field_groups
from inferometer.store.queue.values import FleetDevice, JobRow, Wanted
from inferometer.store.values import Token, Visitor

NOW = 1_760_000_000.0
MADE_WITH = {"token": "t"}
ROOM = 1_000_000_000  # that models leave free


def asking(**who):
    visitor = Visitor(**{"user": "ada", "scopes": ("write",), "roles": {"p": "writer"}, **who}) if who else None
    return Request({"type": "http", "headers": [], "path": "/", VISITOR: visitor, ARRIVED: 100.0})


# Room for models


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Uploads with a quota of 100 bytes, and a disk with so much free."""
    free = [ROOM + 1000]
    monkeypatch.setattr(uploads.shutil, "disk_usage", lambda _root: shutil._ntuple_diskusage(1, 1, free[0]))
    made = Uploads(tmp_path, 100, lambda: kept, clock=lambda: now[0])
    kept, now = set(), [NOW]
    made.free, made.kept, made.now = free, kept, now
    return made


def receive(place, sha256, offset, size, data, *, user="ada"):
    return place.receive(sha256, offset, data, Note(size=size, sender=Sender(user=user)))


def begin(place, name, size, *, user="ada", data=b""):
    return receive(place, hashlib.sha256(name.encode()).hexdigest(), 0, size, data, user=user)


def test_a_file_may_be_as_large_as_the_quota_and_uploads_fill_it_to_the_last_byte(place):
    with pytest.raises(HubError, match="101 B is more than the 100 B"):
        begin(place, "a", 101)
    begin(place, "b", 60)
    begin(place, "c", 40)
    with pytest.raises(HubError, match="take the 100 B that this hub keeps"):
        begin(place, "d", 1)


def test_models_in_use_keep_their_room_and_others_make_it(place, tmp_path):
    data = b"x" * 60
    sha256 = hashlib.sha256(data).hexdigest()
    assert receive(place, sha256, 0, 60, data) == 60
    place.kept.add(sha256)
    begin(place, "a", 40)
    with pytest.raises(HubError, match="take the 100 B"):
        begin(place, "b", 1)
    place.kept.clear()
    begin(place, "b", 1)
    assert not list((tmp_path / "artifacts").glob("??/*"))


@pytest.mark.parametrize(("free", "fits"), [(ROOM + 50, True), (ROOM + 49, False)])
def test_the_disk_keeps_a_gigabyte_free_beside_what_is_still_to_come(place, free, fits):
    place.free[0] = free
    if fits:
        begin(place, "a", 50)
    else:
        with pytest.raises(HubError, match="too little for this file"):
            begin(place, "a", 50)


def test_what_has_arrived_needs_no_more_room(place):
    sha256 = hashlib.sha256(b"a").hexdigest()
    begin(place, "a", 50, data=b"x" * 30)
    place.free[0] = ROOM + 20
    assert receive(place, sha256, 30, 50, b"x" * 10) == 40
    place.free[0] = ROOM + 9
    with pytest.raises(HubError, match="too little"):
        receive(place, sha256, 40, 50, b"x")


def test_an_upload_is_dropped_after_a_day_and_not_at_it(place, tmp_path):
    begin(place, "a", 50)
    (note,) = (tmp_path / "incoming").glob("*.upload")
    touched = max(path.stat().st_mtime for path in (tmp_path / "incoming").iterdir())
    place.now[0] = touched + 86_400.0
    assert list(place._notes().values()) == [Note(size=50, sender=Sender(user="ada"))]
    place.now[0] += 0.01
    assert (place._notes(), note.exists()) == ({}, False)


@pytest.mark.parametrize(("count", "more"), [(31, True), (32, False)])
def test_one_person_has_so_many_unfinished_uploads(count, more):
    notes = {str(number): Note(size=1, sender=Sender(user="ada")) for number in range(count)}
    Uploads._require_few({**notes, "x": Note(size=1, sender=Sender(user="bob"))}, "bob")
    if more:
        Uploads._require_few(notes, "ada")
    else:
        with pytest.raises(HubError, match="32 are the most"):
            Uploads._require_few(notes, "ada")


def test_a_lock_is_shared_by_those_who_send_the_same_file(place):
    first, other = "0001" + "a" * 60, "0002" + "a" * 60
    assert place.alone(first) is place.alone(first)
    assert place.alone(first) is not place.alone(other)
    assert place.alone("0041" + "a" * 60) is place.alone(first)  # sixty-four of them


# The desk of the fleet


class Fleet:
    def __init__(self, row=None, device=None):
        self.row, self.known, self.lacking = row, device, []

    def now(self):
        return NOW

    def job(self, _job):
        return self.row

    def document(self, _job):
        return a_job()

    def device(self, _name, **_asked):
        return self.known

    def lack_file(self, *given):
        self.lacking.append(given)

    def files_in_use(self):
        return ()


def a_row(**more):
    known = {"id": "j", "key": "k", "project": "p", "user": "u", "verb": "profile", "state": "running"}
    return JobRow(**{**known, "wanted": Wanted(), "priority": 0, "attempts": 1, "created": 0.0, **more})


def a_device(**more):
    known = {"name": "pi", "user": "ada", "labels": {}, "facts": {}, "version": "", "state": "ready"}
    return FleetDevice(**{**known, "registered": 0.0, "heartbeat": NOW, **more})


def desk(tmp_path, **fleet):
    made = FleetDesk(SimpleNamespace(location=SimpleNamespace(artifacts=tmp_path / "kept")), Rules())
    made.__dict__["fleet"] = Fleet(**fleet)
    return made


def test_a_clock_is_compared_with_ours_when_its_word_came(tmp_path, monkeypatch):
    monkeypatch.setattr(fleet_desk.time, "monotonic", lambda: 107.0)  # it waited for seven seconds
    assert desk(tmp_path).skew_s(asking(), NOW + 3) == 10.0
    assert desk(tmp_path).skew_s(asking(), NOW - 7) == 0.0


@pytest.mark.parametrize(
    ("who", "device", "allowed_"),
    [
        ({}, {"user": "bob", "job": "j"}, True), ({"roles": None, "user": "root"}, {}, True),
        ({"user": "ada"}, {}, True),
        ({"user": "bob"}, {}, False), ({"user": "ada", "project": "p"}, {"job": "j"}, True),
        ({"user": "ada", "project": "q"}, {"job": "j"}, False), ({"user": "ada", "project": "q"}, {}, True),
    ],
)  # fmt: skip
def test_an_agent_speaks_for_its_users_devices_and_its_tokens_project(tmp_path, who, device, allowed_):
    made = desk(tmp_path, row=a_row(project="p"), device=a_device(**device))
    if allowed_:
        assert made.owned(asking(**who), "pi").name == "pi"
    else:
        with pytest.raises(HubError) as refused:
            made.owned(asking(**who), "pi")
        assert refused.value.status == 403


@pytest.mark.parametrize(
    ("row", "looked_at"),
    [({}, True), ({"lease": "other"}, False), ({"device": "other"}, False), ({"state": "done"}, False)],
)
def test_an_answer_is_looked_at_if_its_device_has_the_job(tmp_path, monkeypatch, row, looked_at):
    given = {"lease": "l", "device": "pi", **row}
    made = desk(tmp_path, row=a_row(**given), device=a_device(facts={"machine": {"id": "m1"}}))
    asked = []
    floors = {"model": "net", "floors": [{"forward": 9.0}]}
    made.__dict__["forecaster"] = SimpleNamespace(floors=lambda *given: asked.append(given) or floors)
    monkeypatch.setattr(fleet_desk, "mismatch", lambda *given: asked.append(given) and None)
    monkeypatch.setattr(fleet_desk, "too_fast", lambda _result, floors: f"too fast for {floors}")
    result = a_result(a_job())
    found = made.doubt("j", "l", "pi", result)
    assert found == ("too fast for [{'forward': 9.0}]" if looked_at else None)
    if looked_at:
        assert asked[1] == (a_job(), result, "m1", "net")


def test_a_file_is_thrown_away_only_if_our_own_copy_is_damaged_or_gone(tmp_path):
    made = desk(tmp_path)
    data = b"model"
    sha256 = hashlib.sha256(data).hexdigest()
    made.artifacts.append(sha256, 0, data, most=5)
    made.artifacts.seal(sha256)
    assert not made.damaged(sha256, "j")
    made.artifacts.path(sha256).write_bytes(b"other")
    assert made.damaged(sha256, "j")
    assert not made.artifacts.path(sha256).exists()
    assert made.damaged(sha256, "k")
    assert made.fleet.lacking == [(sha256, "j"), (sha256, "k")]
    assert made.root == tmp_path / "kept.fleet"


def test_models_without_files_are_known_by_their_name(tmp_path, monkeypatch):
    made = desk(tmp_path, row=a_row(lease="l", device="pi"), device=a_device(facts={"machine": "odd"}))
    job = replace(a_job(), model=JobModel(name="resnet50"))
    made.fleet.document = lambda _job: job
    made.__dict__["forecaster"] = SimpleNamespace(floors=lambda *_given: {})
    asked = []
    monkeypatch.setattr(fleet_desk, "mismatch", lambda *given: asked.append(given[2:]) or "why")
    assert made.doubt("j", "l", "pi", a_result(job)) == "why"
    assert asked == [(None, "resnet50")]


# People


def test_a_token_may_last_as_long_as_the_one_it_was_made_with(monkeypatch):
    day = 86_400.0
    token = Token(id="t", user="ada", name="n", scopes=("write",), created=0.0, expires=NOW + 2 * day)
    store = SimpleNamespace(tokens=lambda _user: [token], now=lambda: NOW)
    who = asking(**MADE_WITH)
    _require_no_more(who, store, NewTokenRequest(days=2.0))
    with pytest.raises(HubError, match=r"ends in 2\.0 days"):
        _require_no_more(who, store, NewTokenRequest(days=2.01))
    _require_no_more(asking(**{**MADE_WITH, "token": "other"}), store, NewTokenRequest(days=300))


@pytest.mark.parametrize(
    ("who", "wanted", "status"),
    [
        ({"roles": None}, {"user": "bob", "scopes": ["admin"]}, None), ({"user": "ada"}, {"user": "bob"}, 403),
        ({"user": "ada"}, {"user": "ada"}, None), ({"user": "ada"}, {"scopes": ["admin"]}, 403),
        ({"user": "ada"}, {"scopes": ["agent"], "project": "p"}, None), ({"user": "ada"}, {"scopes": ["agent"]}, 403),
        ({"project": "p"}, {"project": "q"}, 403), ({"project": "p"}, {}, 403),
        ({"project": "p"}, {"project": "p"}, None),
        ({"user": "ada"}, {"project": "hidden"}, 404), ({"scopes": ("read",)}, {"scopes": ["write"]}, 403),
    ],
)  # fmt: skip
def test_a_token_may_do_no_more_than_its_maker(who, wanted, status):
    store = SimpleNamespace(tokens=lambda _user: [], now=lambda: NOW)
    if status is None:
        _require_no_more(asking(**who), store, NewTokenRequest(**wanted))
    else:
        with pytest.raises(HubError) as refused:
            _require_no_more(asking(**who), store, NewTokenRequest(**wanted))
        assert refused.value.status == status
    with pytest.raises(DomainError, match="Whose token"):
        _require_no_more(asking(), store, NewTokenRequest())


@pytest.mark.parametrize(
    ("to", "path"),
    [
        ("/runs/x?a=1", "/runs/x?a=1"),
        ("//evil", "/"),
        ("/\\evil", "/"),
        ("https://evil", "/"),
        ("", "/"),
        ("runs", "/"),
    ],
)
def test_whoever_signs_in_is_led_to_a_page_of_this_hub(to, path):
    assert own_path(to) == path


@pytest.mark.parametrize(
    ("email", "allow", "is_allowed"),
    [
        ("a@x.org", ("x.org",), True), ("a@x.org", ("@X.org",), True), ("a@x.org", ("A@x.org",), True),
        ("a@y.x.org", ("x.org",), False), ("a@x.org", ("org",), False), (None, ("x.org",), False),
        ("a@x.org", (), False),
        ("b@x.org", ("a@x.org",), False),
    ],
)  # fmt: skip
def test_addresses_and_domains_that_may_join(email, allow, is_allowed):
    assert allowed(email, allow) is is_allowed


@pytest.mark.parametrize("text", ["", "nonsense", "W10", "WyJhIl0", "WyJhIiwiYiIsImMiLCIiXQ", "WyJhIiwiYiIsImMiLDFd"])
def test_a_cookie_that_was_tampered_with_is_none(text):
    assert read_attempt(text) is None


# Files and forms


@pytest.mark.parametrize(
    ("name", "chart", "form"),
    [
        ("a.html", None, "html"), ("a.TRACE.json", None, "trace.json"), ("a.json", None, "json"),
        ("trace.json", None, "trace.json"),
        ("a.svg", "layers", "svg"), ("a.png", "layers", "png"), ("a.png", None, None), ("a.html", "layers", None),
        ("a", None, None), ("a.jsonx", None, None), ("json", None, "json"),
    ],
)  # fmt: skip
def test_a_suffix_says_what_is_saved(name, chart, form):
    if form is None:
        with pytest.raises(DomainError):
            _form(Path(name), chart)
    else:
        assert _form(Path(name), chart) == form


def test_an_archive_may_hold_eight_times_what_is_sent_and_no_more_than_any():
    limits = _limits(Rules(archive_bytes=100, document_bytes=50))
    assert (limits.total_bytes, limits.document_bytes) == (800, 50)
    large = _limits(Rules(archive_bytes=10**12, document_bytes=10**12))
    assert (large.total_bytes, large.document_bytes) == (4_000_000_000, 512_000_000)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(1e9, "B", "1 GB"), (1.5, "s", "1.5 s"), (7, "", "7"), ("x", "", "x"), (True, "", "True"),
    ([1e-3, 2.0], "s", "1 ms, 2 s"),
     (0.1 + 0.2, "", "0.30000000000000004"), (1234567891, "", "1_234_567_891")],
)  # fmt: skip
def test_an_example_is_typed_as_a_person_would(value, unit, text):
    assert _typed(value, unit) == text


def test_a_form_is_filled_from_its_address_and_unknown_names_fall_back():
    found = predict_values(QueryParams("model=nothing&on=nothing&batch=4&tp="))["data"]
    assert (found["model"], [*found["chosen"]]) == ("llama-3.2-1b", ["nvidia-h200", "nvidia-l4", "raspberry-pi-5"])
    assert found["asked"] == {"batch": "4"}
    chosen = predict_values(QueryParams("model=resnet50&on=nvidia-l4&on=nothing"))["data"]
    assert (chosen["model"], chosen["chosen"]) == ("resnet50", {"nvidia-l4": "NVIDIA L4"})
    swept = sweep_values(QueryParams("models=a&models=b"))["data"]["asked"]
    assert swept == {"models": ["a", "b"], "devices": ["nvidia-h200", "nvidia-l4"]}


def test_a_field_says_what_it_is_for_with_its_default_or_an_example():
    fields = {field["name"]: field for group in field_groups() for field in group["fields"]}
    assert (fields["threads"]["hint"], fields["threads"]["help"]) == ("one per core", "Threads of a CPU.")
    assert (fields["size"]["hint"], fields["size"]["label"]) == ("frames=1500", "Other sizes")
    assert (fields["draft"]["list"], fields["users"]["list"], fields["tokens_per_user"]["label"]) == (
        "models", None, "Tokens per user",
    )  # fmt: skip
    assert all(field["help"].endswith(".") and ".." not in field["help"] for field in fields.values())
