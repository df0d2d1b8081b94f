"""Rules of the store one by one, on SQLite: what lists show, what is searched, who is dead, what is sent next."""

import shutil
import sqlite3
from dataclasses import replace
from types import SimpleNamespace

import pytest
from sqlalchemy.exc import IntegrityError, OperationalError

from inferometer.core.errors import DomainError, FormatError, UnknownNameError
from inferometer.core.machine import MachineFacts
from inferometer.core.profile import (
    DeviceFacts,
    Environment,
    Headline,
    ModelFacts,
    Profile,
    Verification,
)
from inferometer.core.workload import Parallel, Precision, Workload
from inferometer.store import Filter, StoreError, exchange, files, finding, headline, names, open_store
from inferometer.store.engine import passing, store_error
from inferometer.store.errors import ConflictError
from inferometer.store.exchange import _columns, _metric, _micros, _whole
from inferometer.store.finding import iso, seconds
from inferometer.store.location import Location, without_password
from inferometer.store.opened import Owner
from inferometer.store.recording import _well, hub_link, recording
from inferometer.store.values import HOLDERS, SCOPES, RunRow, Token, sort_column
from unit.store.profiles import profile

NOW = 1_760_000_000.0


@pytest.fixture
def store(tmp_path, template):
    shutil.copy(template, tmp_path / "runs.db")
    now = iter(range(int(NOW), int(NOW) + 10_000))
    with open_store(tmp_path / "runs.db", clock=lambda: float(next(now))) as opened:
        yield opened


# What lists show of a profile

WHOLE = Profile(
    kind="measured",
    model=ModelFacts(name="m\x00odel", weight_formats={"q4_0": 0.9, "f16": 0.06, "f32": 0.04}),
    device=DeviceFacts(name="d"),
    phases=(),
    runtime="r",
    workload=Workload(
        batch=3, prompt=16, generate=4, context=None, arrival_per_s=2.5, parallel=Parallel(tp=2, dp=4),
        precision=Precision(activations="bf16"),
    ),
    sizes={"z": 1, "a": 2},
    summary=Headline(latency_s=1.0, ttft_s=2.0, tpot_s=3.0, tokens_per_s=4.0, peak_memory_bytes=2**63),
    environment=Environment(threads=7, disturbed=True, machine=MachineFacts(id="0123456789ab", name="pi")),
    verification=Verification(status="failed"),
)  # fmt: skip


def test_a_list_shows_what_names_a_run_and_what_was_measured():
    assert headline.columns_of(WHOLE) == {
        "profile_kind": "measured", "model": "model", "device": "d", "runtime": "r", "machine": "pi",
        "machine_id": "0123456789ab", "batch": 3, "precision": "q4_0+f16/bf16", "threads": 7,
        "workload": "batch=3 prompt=16 generate=4 arrival_per_s=2.5 a=2 z=1 tp=2 dp=4", "disturbed": True,
        "verified": False, "peak_memory_bytes": None, "latency_s": 1.0, "ttft_s": 2.0, "tpot_s": 3.0,
        "tokens_per_s": 4.0,
    }  # fmt: skip
    largest = replace(WHOLE, summary=Headline(peak_memory_bytes=2**63 - 1), environment=None)
    found = headline.columns_of(largest)
    assert found["peak_memory_bytes"] == 2**63 - 1
    assert [found[name] for name in ("machine", "machine_id", "threads", "disturbed")] == [None] * 4


@pytest.mark.parametrize(
    ("stored", "asked", "shown"),
    [
        ({}, {}, None),
        ({}, {"weights": "i8"}, "i8"),
        ({}, {"activations": "f16"}, "f16"),
        ({}, {"weights": "f16", "activations": "f16"}, "f16"),
        ({"f16": 1.0}, {"weights": "i8"}, "f16"),  # what is in the file, not what was asked for
        ({"q4_0": 0.95, "f32": 0.05}, {}, "q4_0+f32"),
        ({"q4_0": 0.951, "f32": 0.049}, {"activations": "f32"}, "q4_0/f32"),
    ],
)
def test_a_format_is_that_of_the_weights_and_of_the_arithmetic(stored, asked, shown):
    given = replace(
        WHOLE, model=ModelFacts(name="m", weight_formats=stored), workload=Workload(precision=Precision(**asked))
    )
    assert headline.precision_of(given) == shown


def test_a_search_looks_in_all_that_names_a_run():
    assert headline.words_of("ID", None, "Model", tags=("Z", "a")) == "id\nmodel\nz\na"


def test_a_profile_is_packed_and_comes_back_or_is_called_damaged(monkeypatch):
    data, size = headline.packed(profile())
    assert headline.unpacked(data, run="r") == profile()
    assert len(data) < size
    for wrong in (data[:-9], b"nonsense"):
        with pytest.raises(StoreError, match="profile of run r"):
            headline.unpacked(wrong, run="r")
    monkeypatch.setattr(headline, "MOST_BYTES", size - 1)
    with pytest.raises(StoreError, match="longer than"):
        headline.unpacked(data, run="r")


# Names


@pytest.mark.parametrize(
    ("kind", "most"), [("project", 100), ("tag", 100), ("kind", 50), ("user", 100), ("run", 200), ("file", 200)]
)
def test_a_name_has_one_letter_to_so_many(kind, most):
    assert names.valid_name(kind, f" {'a' * most} ") == "a" * most
    for wrong in ("", " ", "a" * (most + 1)):
        with pytest.raises(DomainError):
            names.valid_name(kind, wrong)


@pytest.mark.parametrize(
    ("kind", "wrong", "right"),
    [
        ("project", "a/b", "a,b"), ("project", "a\\b", "a:b"), ("tag", "a,b", "a/b"), ("tag", "-a", "a-"),
        ("tag", "+a", "a+"), ("tag", "~a", "a~"), ("tag", "a b", "a_b"), ("file", "a\\b", "a/b"),
        ("file", "a:b", "a,b"), ("file", "..", "..."), ("run", "a\x1b", "a b"),
    ],
)  # fmt: skip
def test_a_name_may_not_hold_what_means_something_where_it_stands(kind, wrong, right):
    assert names.valid_name(kind, right) == right
    with pytest.raises(DomainError):
        names.valid_name(kind, wrong)


def test_text_from_elsewhere_is_cut_and_cleaned():
    assert names.clean("a\x00b\n\tc\x1b") == "ab\n\tc"
    assert (names.clean("abc", most=2), names.clean(None)) == ("ab", None)


# Finding


def test_times_are_micros_inside_and_seconds_outside():
    assert (seconds(None), seconds(1_500_000), iso(1_500_000)) == (None, 1.5, "1970-01-01T00:00:01.500000+00:00")
    row = RunRow(id="x", project="p", status="finished", kind="k", created=1.0, started=2.0, ended=5.5)
    assert (row.seconds, replace(row, started=None).seconds, replace(row, ended=None).seconds) == (3.5, None, None)


def test_every_filter_leaves_out_what_it_does_not_name(store):
    """One run that a filter keeps and one that differs in that alone, for every field."""
    machine = MachineFacts(id="0123456789ab", name="pi")
    given = {"model": "m", "device": "d", "machine": machine}
    one = store.add(profile(**given), "p", name="first", tags=["t", "kept"], kind="k", author="a")
    base = store.row(one)
    wanted = {
        "project": "p", "tags": ("t",), "model": "m", "device": "d", "runtime": "onnxruntime", "machine": "pi",
        "author": "a", "kind": "k", "status": ("finished",), "since": base.created, "until": base.created + 1,
        "words": "FIRST kept",
    }  # fmt: skip
    for name, value in wanted.items():
        assert [row.id for row in store.list(Filter(**{name: value})).rows] == [one], name
    other = store.add(profile(model="x", device="y"), "q", name="second", kind="o", author="b")
    for name, value in wanted.items():
        if name not in {"runtime", "status", "since"}:
            assert [row.id for row in store.list(Filter(**{name: value})).rows] == [one], name
    assert store.count(Filter(runtime="onnxruntime")) == 2
    assert store.count(Filter(since=base.created)) == 2
    assert store.count(Filter(since=store.row(other).created)) == 1
    store.begin("p")
    assert store.count(Filter(status=("running",))) == 1


def test_a_page_of_just_as_many_as_there_are_is_the_last(store):
    runs = [store.add(profile(number)) for number in range(1, 4)]
    page = store.list(limit=3)
    assert ([row.id for row in page.rows], page.after) == (runs[::-1], None)
    first = store.list(limit=2)
    assert first.after is not None
    assert store.list(limit=2, after=first.after).after is None
    assert len(store.list(limit=finding.MOST_ROWS).rows) == 3
    for wrong in (0, finding.MOST_ROWS + 1):
        with pytest.raises(DomainError):
            store.list(limit=wrong)


def test_a_mark_is_of_its_own_order():
    for value in (None, 3, 2.5):
        assert finding._cursor(finding._mark("-latency", value, "0123456789ab"), "-latency") == (value, "0123456789ab")
    assert finding._cursor(finding._mark("name", "x", "0123456789ab"), "name") == ("x", "0123456789ab")
    for sort, value, run in (
        ("latency", 3, "0123456789ab"), ("-latency", "x", "0123456789ab"), ("-latency", True, "0123456789ab"),
        ("-latency", float("inf"), "0123456789ab"), ("-latency", 2**63, "0123456789ab"), ("-latency", 3, "u"),
        ("-latency", 3, 5), ("-latency", [3], "0123456789ab"),
    ):  # fmt: skip
        with pytest.raises(DomainError):
            finding._cursor(finding._mark(sort, value, run), "-latency")
    for value in (3, "a\x00"):
        with pytest.raises(DomainError):
            finding._cursor(finding._mark("name", value, "0123456789ab"), "name")


def test_what_a_list_is_sorted_by_falls_with_a_minus():
    assert (sort_column("-latency"), sort_column("created")) == (("latency_s", True), ("created_us", False))


def test_a_part_of_an_id_is_its_begin_or_its_end_and_no_middle(store):
    run = store.add(profile(), name="named")
    assert store.resolve(run[:6]) == store.resolve(run[6:]) == run
    with pytest.raises(UnknownNameError):
        store.resolve(run[3:9])


def test_known_names_are_each_once_and_in_order(store):
    for model in ("b", "a", "b"):
        store.add(profile(model=model), tags=[model])
    store.begin()
    assert store.known("model") == store.known("tag") == ("a", "b")


def test_a_device_is_known_from_its_first_run_to_its_last(store):
    first, last = (store.row(store.add(profile(device="d"))) for _ in range(2))
    (device,) = store.devices()
    assert (device.name, device.title) == ("d", "D")
    assert first.created <= device.first < last.created <= device.last


# Who is dead

HERE = Owner(host="here", boot="b", space="s", pid=1, born="1")


@pytest.mark.parametrize(
    ("owner", "silent_s", "words"),
    [
        ({"host": None}, 1e6, None),
        ({"boot": "before"}, 0, "ended without a word"),
        ({"host": "there"}, exchange.STALE_S, None),
        ({"host": "there"}, exchange.STALE_S + 1, "no sign of life for a day"),
        ({"space": "container"}, exchange.STALE_S + 1, "no sign of life for a day"),
        ({"host": "there", "heartbeat_us": None}, 0, "no sign of life for a day"),
    ],
)
def test_a_run_is_dead_where_its_process_is_seen_to_be_or_silent_for_a_day(owner, silent_s, words):
    now = int(NOW * 1e6)
    given = {"host": "here", "boot": "b", "space": "s", "pid": 1, "born": "1", "heartbeat_us": now - silent_s * 1e6}
    found = exchange._reason(SimpleNamespace(**{**given, **owner}), HERE, now)
    assert found is None if words is None else words in found


def test_a_dead_run_ended_when_it_last_gave_a_sign_and_one_that_ended_meanwhile_stays(store):
    dead, ended = store.begin(), store.begin()
    store.add_metrics(dead, {"x": 1.0})
    store.finish(ended, profile())
    marked = store.database.write(lambda connection: exchange._marked(connection, {dead: "why", ended: "why"}))
    assert marked == (dead,)
    row = store.row(dead)
    assert (row.status, row.reason, store.row(ended).status) == ("killed", "why", "finished")
    assert row.ended > row.started


# What is to be sent


def test_a_run_is_sent_before_those_below_it_and_once(store):
    parent = store.add(profile())
    child = store.begin(parent=parent)
    store.finish(child, profile(2))
    other = store.add(profile(3))
    for run in (other, parent):
        store.queue_push(run, "hub", "p")
    waiting = store.waiting_pushes("hub")
    assert [push.run for push in waiting] == [other, parent, child]
    assert store.waiting_pushes("elsewhere") == ()
    store.note_push(waiting[0])
    store.note_push(waiting[1], reason="no", refused=True)
    store.note_push(waiting[2], reason="later")
    (left,) = store.waiting_pushes("hub")
    assert (left.run, left.reason, left.project) == (child, "later", "p")
    store.queue_push(parent, "hub", "q")
    again = store.waiting_pushes("hub")
    assert [(push.run, push.reason, push.project) for push in again] == [(parent, None, "q"), (child, None, "q")]


# Files


def test_only_files_that_are_where_their_hash_says_are_listed(tmp_path):
    kept = files.keep(tmp_path, b"a")
    (tmp_path / "zz").mkdir()
    for name in (kept.sha256, "short"):
        (tmp_path / "zz" / name).write_bytes(b"")
    assert list(files.all_of(tmp_path)) == [kept.sha256]
    assert files.keep(tmp_path, b"four", most=4).size_bytes == 4


def test_a_file_is_dropped_from_its_grace_on(tmp_path):
    kept = files.keep(tmp_path, b"a")
    born = files.path_of(tmp_path, kept.sha256).stat().st_mtime
    assert not files.drop(tmp_path, kept.sha256, grace_s=5.0, now=born + 4.9)
    assert files.drop(tmp_path, kept.sha256, grace_s=5.0, now=born + 5.0)


# From one store to another


def test_a_run_that_came_back_changed_is_no_copy(store, tmp_path):
    run = store.begin(parameters={"a": "1"})
    store.add_metrics(run, {"x": 1.0}, step=3)
    store.finish(run, profile())
    path = store.export(run, tmp_path / "run.zip")
    assert store.take_in(path) == (run, False)
    store.rename(run, "another name")
    store.tag(run, "t")
    assert store.take_in(path) == (run, False)  # what may be changed is
    other, is_new = store.take_in(path, new_id=True)
    assert is_new
    assert other != run
    assert [(metric.step, metric.value) for metric in store.metrics(other)] == [(3, 1.0)]
    store.add_metrics(run, {"x": 2.0}, step=3)
    with pytest.raises(ConflictError, match="other metrics"):
        store.take_in(path)


def test_what_is_no_whole_run_is_refused():
    run = SimpleNamespace(id="0123456789ab", status="finished", created="2026-01-02T03:04:05")
    assert _whole(run) is run
    for wrong in ({"id": "0123456789a"}, {"id": "0123456789aB"}, {"status": "running"}, {"status": "pending"}):
        with pytest.raises(FormatError):
            _whole(SimpleNamespace(**{**vars(run), **wrong}))
    story = SimpleNamespace(reason="why", started=1.5, ended=None)
    found = _columns(run, story)
    assert found == {
        "status": "finished", "reason": "why", "created_us": 1_767_323_045_000_000, "started_us": 1_500_000,
        "ended_us": None,
    }  # fmt: skip
    moved = SimpleNamespace(**{**vars(run), "created": "2026-01-02T04:04:05+01:00"})
    assert _columns(moved, story)["created_us"] == found["created_us"]
    assert _micros(0.0) == 0
    for wrong in (-0.1, 1e11):
        with pytest.raises(FormatError):
            _micros(wrong)
    metric = SimpleNamespace(name="x", step=2**63 - 1, value=1.0, at=None)
    assert _metric("r", metric, 7)["at_us"] == 7
    assert _metric("r", SimpleNamespace(**{**vars(metric), "at": 0.0, "step": -(2**63)}), 7)["at_us"] == 0
    for step in (2**63, -(2**63) - 1):
        with pytest.raises(FormatError):
            _metric("r", SimpleNamespace(**{**vars(metric), "step": step}), 7)


# Rights, errors, addresses


def test_who_has_a_scope_has_those_below_it_and_no_more():
    allowed = {scope: {asked for asked in SCOPES if token(scopes=(scope,)).allows(asked)} for scope in SCOPES}
    assert allowed == {
        "read": {"read"}, "write": {"read", "write"}, "admin": {"read", "write", "admin", "agent"}, "agent": {"agent"},
    }  # fmt: skip
    assert {*HOLDERS} == {*SCOPES}


def token(**more):
    return Token(**{"id": "i", "user": "u", "name": "n", "scopes": ("read",), "created": 0.0, **more})


def test_a_token_holds_until_its_end_and_not_at_it():
    assert token().holds(1e12)
    assert [token(expires=5.0).holds(now) for now in (4.9, 5.0, 5.1)] == [True, False, False]
    assert not token(revoked=1.0).holds(0.0)


def failed(kind=OperationalError, *, name="", state=None, text="words"):
    original = sqlite3.OperationalError(text)
    original.sqlite_errorname = name
    if state is not None:
        original = type("Server", (Exception,), {"sqlstate": state})(text)
    return kind("SELECT", {}, original)


@pytest.mark.parametrize(
    ("error", "words", "is_passing"),
    [
        (failed(name="SQLITE_FULL"), "the disk is full", False),
        (failed(name="SQLITE_READONLY_DBMOVED"), "may not be written to", False),
        (failed(name="SQLITE_BUSY_SNAPSHOT"), "held by another program", True),
        (failed(name="SQLITE_LOCKED"), "reports an error", True),
        (failed(state="53100"), "server's disk is full", False),
        (failed(state="40001"), "reports an error", True),
        (failed(text="FATAL: password authentication failed"), "refuses the password", False),
        (failed(text="Connection refused"), "does not answer", False),
        (failed(text="the database is shutting down"), "lets nobody in", False),
        (failed(IntegrityError, text="UNIQUE"), "would not hold together (UNIQUE)", False),
    ],
)
def test_an_error_of_the_database_is_told_in_words(error, words, is_passing):
    told = store_error(error, Location(artifacts=None, url="postgresql://u:secret@h/d"))
    assert words in str(told)
    assert "secret" not in str(told)
    assert passing(error) is is_passing


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://u:p@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:p@ss/w@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u@h:5432/d", "postgresql://u@h:5432/d"),
        ("host=h password=p x=1&password=q&y", "host=h password=*** x=1&password=***&y"),
    ],
)
def test_a_password_is_never_shown(text, shown):
    assert without_password(text) == shown


# Recording


def test_a_link_is_where_others_reach_the_hub(monkeypatch):
    for name in ("INFEROMETER_URL", "INFEROMETER_PORT"):
        monkeypatch.delenv(name, raising=False)
    assert hub_link("r") == "http://127.0.0.1:8077/runs/r"
    monkeypatch.setenv("INFEROMETER_PORT", "99")
    assert hub_link("r") == "http://127.0.0.1:99/runs/r"
    monkeypatch.setenv("INFEROMETER_PORT", "x")
    assert hub_link("r") == "http://127.0.0.1:8077/runs/r"
    monkeypatch.setenv("INFEROMETER_URL", "https://hub/")
    assert (hub_link("r"), hub_link("r", base="http://b")) == ("https://hub/runs/r", "http://b/runs/r")


@pytest.mark.parametrize(("code", "well"), [(None, True), (0, True), (1, True), (2, False), ("text", False)])
def test_a_command_that_ends_by_a_gate_has_measured(code, well):
    assert _well(SystemExit(code)) is well


def test_a_run_ends_by_what_ended_it(store):
    def recorded(error, *, measured):
        recorder = recording(store=store)
        told = []
        recorder.then = lambda _store, run: told.append(run)
        try:
            with recorder:
                recorder.log("a line\n")
                if measured:
                    recorder.keep(profile())
                if error is not None:
                    raise error  # noqa: TRY301 - as a command does
        except BaseException as raised:  # noqa: BLE001 - what is raised is looked at
            assert raised is error
        row = None if recorder.id is None else store.row(recorder.id)
        assert told == ([] if row is None else [row.id])
        return None if row is None else (row.status, row.reason, row.latency_s)

    assert recorded(None, measured=True) == ("finished", None, 0.01)
    assert recorded(KeyboardInterrupt(), measured=True) == ("killed", "Interrupted.", 0.01)
    assert recorded(DomainError("No."), measured=False) is None
    assert recorded(DomainError("No."), measured=True) == ("failed", "No.", 0.01)
    assert recorded(ValueError("odd"), measured=False) == ("failed", "ValueError: odd", None)
    assert recorded(SystemExit(1), measured=True) == ("finished", None, 0.01)


def test_a_writer_in_whose_way_others_are_waits_longer_each_time(store, monkeypatch):
    """From five milliseconds on twice as long, up to half a second, and a half more or less."""
    pauses = []
    database = replace(store.database, pause=pauses.append)
    monkeypatch.setattr("inferometer.store.engine.random.uniform", lambda low, high: (low + high) / 2)
    left = iter(range(9))

    def work(_connection):
        if next(left, None) is not None:
            raise failed(name="SQLITE_BUSY")
        return "done"

    assert database.write(work) == "done"
    assert pauses == pytest.approx([0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5])


def test_an_archive_is_written_into_a_folder_that_is_not_there_yet(store, tmp_path):
    path = store.export(store.add(profile()), tmp_path / "a" / "b" / "run.zip")
    assert path.is_file()
