"""The store keeps its promises on SQLite and on a real PostgreSQL: the same suite over both."""

import base64
import json
import random
import re
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event, func, inspect, select, text
from sqlalchemy import text as text_of

from fakes.fleet import DEVICES, submitted
from inferometer.core.errors import DomainError, SchemaError, UnknownNameError
from inferometer.core.machine import MachineFacts
from inferometer.core.profile import STATUSES, Verification
from inferometer.store import Attachment, Filter, StoreError, open_store
from inferometer.store.audit import Deed
from inferometer.store.engine import open_database
from inferometer.store.location import REVISIONS, VERSION_TABLE, locate
from inferometer.store.opened import this_process
from inferometer.store.queue.devices import Registrar
from inferometer.store.queue.fleet import Fleet
from inferometer.store.queue.values import NewDevice
from inferometer.store.recording import recording
from inferometer.store.schema import downgrade, prepare, revision_of, run_alembic
from inferometer.store.tables import artifacts, fleet_events, metadata, profiles, runs, tags
from inferometer.store.upserts import put_new
from unit.store import postgres
from unit.store.profiles import profile

NOW = 1_760_000_000.0


class Clock:
    """A second later at every look."""

    def __init__(self):
        self.now = NOW

    def __call__(self):
        self.now += 1
        return self.now


class OnSqlite:
    name = "sqlite"
    outage = "the disk is full"

    def __init__(self, folder):
        self.folder, self.count = folder, 0
        open_store(folder / "template.db").close()

    def empty(self):
        self.count += 1
        return str(self.folder / f"{self.count}" / "runs.db")

    def made(self):
        place = self.empty()
        Path(place).parent.mkdir()
        shutil.copy(self.folder / "template.db", place)
        return place

    used = made

    @contextmanager
    def gone(self, store):
        """SQLite finds no room for another page, as on a full disk: its own error, SQLITE_FULL."""

        def fill(connection, *_):
            connection.execute("PRAGMA max_page_count=1")  # it takes the pages there are for the least

        event.listen(store.database.engine, "checkout", fill)
        try:
            yield
        finally:
            event.remove(store.database.engine, "checkout", fill)
            store.database.close()  # the connections that were told


class OnPostgres:
    name = "postgresql"
    outage = "lets nobody in at the moment"

    def __init__(self, server):
        self.server, self.common = server, None

    def empty(self):
        return self.server.url(self.server.database())

    def made(self):
        return self.server.new_store()

    def used(self):
        """One database for all, emptied: making one takes longer than most tests."""
        self.common = self.common or self.made()
        with open_store(self.common) as opened:
            opened.database.write(lambda connection: postgres.emptied(connection, metadata.sorted_tables))
        return self.common

    @contextmanager
    def gone(self, store):
        """The server ends every connection to the database and lets nobody in."""
        name = store.database.engine.url.database
        self.server.sql(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        self.server.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")  # noqa: S608 - ours
        try:
            yield
        finally:
            self.server.sql(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def kind(request, tmp_path_factory):
    """Where new stores come from."""
    if request.param == "sqlite":
        return OnSqlite(tmp_path_factory.mktemp("stores"))
    return OnPostgres(request.getfixturevalue("postgres_server"))


@pytest.fixture
def place(kind):
    return kind.used()


@pytest.fixture
def store(place, tmp_path):
    with open_store(place, artifacts=tmp_path / "artifacts", clock=Clock()) as opened:
        yield opened


def rows_in(store, table):
    with store.database.reading() as connection:
        return connection.execute(select(func.count()).select_from(table)).scalar_one()


def test_what_somebody_still_reads_by_is_closed_when_they_are_done(place, tmp_path):
    store = open_store(place, artifacts=tmp_path / "artifacts")
    with store.database.reading() as connection:
        held = connection.connection.dbapi_connection
        store.close()
        assert connection.exec_driver_sql("SELECT 1").scalar() == 1
    with pytest.raises(Exception, match="closed"):
        held.execute("SELECT 1")


# A run from begin to end


def test_a_finished_run_comes_back_as_it_was_given(store):
    wanted = profile(3)
    run = store.begin("phones", name="first", tags=["b", "a", "a"], parameters={"threads": "4"}, kind="bench")
    assert store.row(run).status == "running"
    store.finish(
        run,
        wanted,
        attachments=[Attachment(name="trace.json", source=b"{}", media_type="application/json")],
        log="one line",
    )
    found = store.get(run)
    assert found.profile == wanted
    assert (found.project, found.name, found.status) == ("phones", "first", "finished")
    assert (found.tags, dict(found.parameters)) == (("a", "b"), {"threads": "4"})
    assert [(a.name, a.size_bytes, a.media_type) for a in found.artifacts] == [
        ("log.txt", 8, "text/plain"),
        ("trace.json", 2, "application/json"),
    ]
    assert store.artifact(run, "log.txt").read_bytes() == b"one line"
    row = store.row(run)
    assert (row.kind, row.model, row.device, row.runtime) == ("bench", "resnet50", "phone", "onnxruntime")
    assert (row.latency_s, row.disturbed, row.verified) == (0.03, False, None)
    assert row.created == row.started < row.ended


def test_what_one_store_wrote_another_reads(place, tmp_path):
    with open_store(place, artifacts=tmp_path) as first:
        run = first.begin(name="x")
        first.finish(run, profile())
    with open_store(place, artifacts=tmp_path) as second:
        assert second.get(run).profile == profile()


def test_a_run_is_added_whole_in_one_call(store):
    run = store.add(profile(2), "phones", name="n", tags=["t"], parameters={"a": "b"})
    found, row = store.get(run), store.row(run)
    assert (found.status, found.profile, found.tags) == ("finished", profile(2), ("t",))
    assert row.latency_s == 0.02
    assert store.list(Filter(words="RESNET50 t n")).rows == (row,)


@pytest.mark.parametrize("status", ["failed", "killed"])
def test_a_run_that_did_not_finish_keeps_what_it_had_and_why(store, status):
    run = store.begin()
    end = store.fail if status == "failed" else store.kill
    end(run, "It ran out of memory.", profile(), log="Traceback")
    found, row = store.get(run), store.row(run)
    assert (found.status, found.profile, row.reason) == (status, profile(), "It ran out of memory.")
    assert store.artifact(run, "log.txt").read_text() == "Traceback"


@pytest.mark.parametrize(("status", "shown"), [("verified", True), ("failed", False), ("unchecked", None)])
def test_a_list_shows_whether_the_outputs_were_right(store, status, shown):
    run = store.add(replace(profile(), verification=Verification(status=status)))
    assert store.row(run).verified is shown


@pytest.mark.parametrize("first", ["finish", "fail"])
def test_a_run_ends_once(store, first):
    run = store.begin()
    getattr(store, first)(run)
    with pytest.raises(StoreError, match="cannot end once more"):
        store.kill(run)
    assert store.row(run).status != "killed"


def test_a_run_taken_for_dead_may_still_finish(store):
    run = store.begin()
    store.kill(run, "taken for dead")
    store.finish(run, profile())
    row = store.row(run)
    assert (row.status, row.reason) == ("finished", None)


def test_a_pending_run_waits_until_it_is_started(store):
    run = store.begin(status="pending")
    assert store.row(run).started is None
    store.start(run)
    assert (store.row(run).status, store.row(run).started is None) == ("running", False)
    with pytest.raises(StoreError, match="not pending"):
        store.start(run)
    with pytest.raises(DomainError, match="pending or running"):
        store.begin(status="finished")


def test_runs_have_parents(store):
    parent = store.begin(name="sweep")
    child = store.begin(parent=parent[:9])
    assert store.get(child).parent == parent
    assert [row.id for row in store.list(Filter(parent=parent)).rows] == [child]
    store.delete(parent)
    assert store.get(child).parent is None
    with pytest.raises(UnknownNameError, match="no run named"):
        store.begin(parent="nowhere")


def test_metrics_are_kept_by_step(store):
    run = store.begin()
    assert [store.add_metrics(run, {"loss": value}) for value in (3.0, 2.0)] == [0, 1]
    store.add_metrics(run, {"loss": 1.5}, step=1)
    store.add_metrics(run, {"loss": 1.0, "speed": 7.0}, step=10)
    assert store.add_metrics(run, {"loss": 0.5}) == 11
    assert [(m.step, m.value) for m in store.metrics(run, "loss")] == [(0, 3.0), (1, 1.5), (10, 1.0), (11, 0.5)]
    assert [m.name for m in store.metrics(run)] == ["loss"] * 4 + ["speed"]
    for wrong in (float("nan"), float("inf")):
        with pytest.raises(DomainError, match="not a finite number"):
            store.add_metrics(run, {"loss": wrong})
    with pytest.raises(UnknownNameError):
        store.add_metrics("nowhere", {"loss": 1.0})


# Finding runs


def test_a_series_is_kept_whole_or_not_at_all(store):
    run = store.begin()
    store.add_series(run, "memory_bytes", {0: 1e6, 250: 2e6})
    store.add_series(run, "memory_bytes", {250: 3e6})
    assert [(m.step, m.value) for m in store.metrics(run, "memory_bytes")] == [(0, 1e6), (250, 3e6)]
    with pytest.raises(DomainError, match="nan"):
        store.add_series(run, "memory_bytes", {500: 1.0, 750: float("nan")})
    assert len(store.metrics(run)) == 2


def test_a_run_is_found_by_what_people_type(store):
    first, _ = store.begin(name="before"), store.begin(name="after")
    for asked in (first, first.upper(), first[:8], first[-4:], "before"):
        assert store.resolve(asked) == first
    with pytest.raises(DomainError, match="more than one run"):
        store.resolve(first[:3])
    with pytest.raises(UnknownNameError, match="no run named 'befor'") as caught:
        store.resolve("befor")
    assert "before" in caught.value.suggestions
    with pytest.raises(UnknownNameError):
        store.get("zzzz%")


def test_a_name_of_several_runs_is_no_name(store):
    store.begin(name="same")
    store.begin(name="same")
    with pytest.raises(DomainError, match="more than one run"):
        store.get("same")


def test_last_is_the_last_that_finished(store):
    finished = [store.begin() for _ in range(3)]
    for run in finished:
        store.finish(run, None)
    store.finish(store.begin(parent=finished[-1]), None)  # another length of the same measurement
    store.fail(store.begin(), "refused")
    store.begin()
    assert [store.resolve(name) for name in ("last", "last~0", "last~1", "last~2")] == [
        finished[2], finished[2], finished[1], finished[0],
    ]  # fmt: skip
    with pytest.raises(DomainError, match="no last~3: 3 runs have finished"):
        store.resolve("last~3")


def test_of_nothing_there_is_no_last(store):
    with pytest.raises(DomainError, match="no run has finished yet"):
        store.get("last")


def filled(store):
    ids = {}
    for number, (model, tag) in enumerate([("resnet50", "a"), ("llama-3.2-1b", "b"), ("resnet50", "b")], start=1):
        ids[number] = store.add(profile(number, model=model), f"p{number % 2}", name=f"run {number}", tags=[tag, "all"])
    ids[4] = store.begin("p0", name="still going", kind="bench")
    return ids


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Filter(), [4, 3, 2, 1]),
        (Filter(project="p1"), [3, 1]),
        (Filter(model="resnet50"), [3, 1]),
        (Filter(device="phone", runtime="onnxruntime"), [3, 2, 1]),
        (Filter(status=("running",)), [4]),
        (Filter(status=("running", "finished")), [4, 3, 2, 1]),
        (Filter(kind="bench"), [4]),
        (Filter(tags=("b",)), [3, 2]),
        (Filter(tags=("b", "all"), model="resnet50"), [3]),
        (Filter(tags=("none",)), []),
        (Filter(words="RESNET run"), [3, 1]),
        (Filter(words="still"), [4]),
        (Filter(words="50% _"), []),
        (Filter(words="llama b"), [2]),
    ],
)
def test_each_filter_narrows(store, wanted, found):
    ids = filled(store)
    assert [row.id for row in store.list(wanted).rows] == [ids[number] for number in found]
    assert store.count(wanted) == len(found)


def test_runs_are_found_by_the_machine_they_were_measured_on(store):
    pi, renamed = MachineFacts(id="0123456789ab", name="pi"), MachineFacts(id="0123456789ab", name="desk")
    other, old = MachineFacts(id="ba9876543210", name="pi"), None
    runs = [store.add(profile(device="local", machine=machine)) for machine in (pi, renamed, other, old)]

    def found(**wanted):
        return [runs.index(row.id) for row in reversed(store.list(Filter(**wanted)).rows)]

    assert found(machine="0123456789ab") == [0, 1]  # by its id, whatever it was called
    assert found(machine="pi") == [0, 2]
    assert (found(machine="none"), found(words="DESK"), found(device="local")) == ([], [1], [0, 1, 2, 3])
    assert [row.machine for row in store.list(sort="machine").rows] == ["desk", "pi", "pi", None]
    assert store.row(runs[3]).machine_id is None
    assert store.known("machine") == ("desk", "pi")


def test_runs_are_found_by_time(store):
    ids = filled(store)
    moment = store.row(ids[3]).created
    assert [row.id for row in store.list(Filter(since=moment)).rows] == [ids[4], ids[3]]
    assert [row.id for row in store.list(Filter(until=moment)).rows] == [ids[2], ids[1]]


def test_a_tag_of_many_runs_is_found_as_one_of_few(store, monkeypatch):
    ids = filled(store)
    monkeypatch.setattr("inferometer.store.finding._FEW", 1)
    assert [row.id for row in store.list(Filter(tags=("all",))).rows] == [ids[3], ids[2], ids[1]]
    assert [row.id for row in store.list(Filter(words="resnet50")).rows] == [ids[3], ids[1]]


def test_what_is_not_known_is_told_with_what_is(store):
    filled(store)
    with pytest.raises(UnknownNameError, match="no project named 'p2'"):
        store.list(Filter(project="p2"))
    with pytest.raises(UnknownNameError, match="no sort key named 'latencie'") as caught:
        store.list(sort="latencie")
    assert caught.value.suggestions == ("latency",)
    with pytest.raises(UnknownNameError, match="no status named 'done'"):
        store.list(Filter(status=("done",)))
    with pytest.raises(DomainError, match="1 to 1000"):
        store.list(limit=0)


@pytest.mark.parametrize("sort", ["latency", "-latency", "ttft", "-memory", "name", "-model", "created", "status"])
def test_pages_go_through_every_run_once_in_order(store, sort):
    for number in range(1, 24):
        known = {"latency_s": None} if number % 5 == 0 else {"latency_s": float(number % 7)}
        store.add(profile(number, model=f"m{number % 3}", **known, peak_memory_bytes=number), name=f"n{number % 4}")
    whole = store.list(sort=sort, limit=1000).rows
    leafed, after = [], None
    while True:
        page = store.list(sort=sort, limit=4, after=after)
        leafed += page.rows
        after = page.after
        if after is None:
            break
        assert len(page.rows) == 4
    assert leafed == list(whole)
    assert len({row.id for row in leafed}) == 23
    column = {"latency": "latency_s", "memory": "peak_memory_bytes", "ttft": "ttft_s"}.get(
        sort.lstrip("-"), sort.lstrip("-")
    )
    values = [getattr(row, column) for row in leafed]
    known = [value for value in values if value is not None]
    assert known == sorted(known, reverse=sort.startswith("-"))
    assert all(value is None for value in values[len(known) :])


def test_a_run_that_comes_between_two_pages_moves_nothing(store):
    old = [store.add(profile(n)) for n in range(1, 7)]
    first = store.list(limit=3)
    store.add(profile(9))
    second = store.list(limit=3, after=first.after)
    assert [row.id for row in (*first.rows, *second.rows)] == old[::-1]


@pytest.mark.parametrize("mark", ["", "x", "bm90IGpzb24", "WzFd", "WyItY3JlYXRlZCIsImEiLCJiIl0", "a" * 5000, "é",
    *(base64.urlsafe_b64encode(json.dumps(["-created", *rest]).encode()).decode() for rest in (
        [10**400, "574p191w9czk"], [float("nan"), "574p191w9czk"], [1e400, "574p191w9czk"], [True, "574p191w9czk"],
        [1, "574p\0"], [1, "\ud800"], [[1], "574p191w9czk"], [{}, {}],
    )),
])  # fmt: skip
def test_a_mark_that_was_tampered_with_is_refused(store, mark):
    store.add(profile())
    if mark:
        with pytest.raises(DomainError, match="mark of"):
            store.list(after=mark)
    page = store.list(after=None)
    assert len(page.rows) == 1


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)), max_size=8),
    falling=st.booleans(),
    limit=st.integers(1, 4),
)
def test_any_numbers_sort_alike_on_both(store, values, falling, limit):
    store.database.write(lambda connection: connection.execute(runs.delete()))
    for value in values:
        store.add(profile(latency_s=value))
    found, after = [], None
    while True:
        page = store.list(sort="-latency" if falling else "latency", limit=limit, after=after)
        found += [row.latency_s for row in page.rows]
        after = page.after
        if after is None:
            break
    known = sorted((value for value in values if value is not None), reverse=falling)
    assert found == known + [None] * (len(values) - len(known))


# Changing runs


def test_tags_and_names_change_and_the_search_follows(store):
    run = store.add(profile(), name="old", tags=["a"])
    store.retag(run, add=["b", "c", "b"], remove=["a", "never-there"])
    store.retag(run, remove=["c"])
    store.rename(run, "new")
    found = store.get(run)
    assert (found.tags, found.name) == (("b",), "new")
    assert store.count(Filter(words="new b resnet50")) == 1
    assert store.count(Filter(words="old")) == 0
    for wrong in ("", " ", "+a", "-a", "two words", "a,b", "a\nb", "x" * 101):
        with pytest.raises(DomainError):
            store.tag(run, wrong)
    assert store.get(run).tags == ("b",)


def test_deleting_is_all_or_nothing_and_leaves_no_rest(store, tmp_path):
    shared = Attachment(name="a", source=b"shared")
    first = store.add(profile(), attachments=[shared, Attachment(name="b", source=b"own")], tags=["t"])
    second = store.add(profile(), attachments=[shared])
    with pytest.raises(UnknownNameError):
        store.delete(first, "nowhere")
    assert store.count() == 2
    store.delete(first)
    assert [rows_in(store, table) for table in (runs, profiles, tags, artifacts)] == [1, 1, 0, 1]
    assert store.tidy(grace_s=-1) == 1  # the file of its own; it was too young to go at once
    assert store.artifact(second, "a").read_bytes() == b"shared"


def test_a_file_is_kept_once(store, tmp_path):
    big = tmp_path / "big"
    big.write_bytes(b"x" * 3_000_000)
    for _ in range(3):
        store.add(profile(), attachments=[Attachment(name="f", source=big)])
    assert len([path for path in (tmp_path / "artifacts").rglob("*") if path.is_file()]) == 1


def test_what_fails_half_way_leaves_nothing(store):
    run = store.begin(tags=["a"])

    def work(connection):
        connection.execute(runs.delete())
        raise RuntimeError

    with pytest.raises(RuntimeError):
        store.database.write(work)
    assert store.get(run).tags == ("a",)
    with pytest.raises(DomainError):
        store.finish(run, profile(), attachments=[Attachment(name="../../etc/passwd", source=b"")])
    assert store.row(run).status == "running"


def test_text_from_anywhere_is_kept_without_what_a_database_or_terminal_would_choke_on(store):
    odd = profile(model="a\x00b\x1b[31m🙂", device="<img onerror=alert(1)>")
    run = store.begin(parameters={"p": "x\x00y"})
    store.fail(run, "bad\x00 thing\x1b[2J", odd, log="nul \x00 \udcff")
    row, found = store.row(run), store.get(run)
    assert (row.model, row.device) == ("ab[31m🙂", "<img onerror=alert(1)>")
    assert row.reason == "bad thing[2J"
    assert found.profile == odd  # the document itself is as it was
    assert found.parameters == {"p": "xy"}
    for wrong in ("a/b", "a\x00b", "", "x" * 101, "\x1b[31m"):
        with pytest.raises(DomainError):
            store.begin(wrong)
    huge = store.add(profile(peak_memory_bytes=2**70))
    assert store.row(huge).peak_memory_bytes is None
    assert store.get(huge).profile.summary.peak_memory_bytes == 2**70


# Projects, devices, users


def test_projects_come_and_go(store):
    store.create_project("empty", description="for later")
    run = store.add(profile(), "phones")
    assert [(p.name, p.runs, p.description) for p in store.projects()] == [
        ("empty", 0, "for later"),
        ("phones", 1, None),
    ]
    with pytest.raises(DomainError, match="already"):
        store.create_project("empty")
    with pytest.raises(DomainError, match="already"):
        store.rename_project("empty", "phones")
    store.rename_project("phones", "mobile")
    assert store.get(run).project == "mobile"
    with pytest.raises(DomainError, match="has 1 run"):
        store.delete_project("mobile")
    store.delete_project("mobile", with_runs=True)
    store.delete_project("empty")
    assert (store.projects(), store.count()) == ((), 0)
    with pytest.raises(UnknownNameError):
        store.delete_project("empty")


def test_devices_are_remembered(store):
    store.add(profile(device="phone"))
    store.add(profile(device="board"))
    store.add(replace(profile(device="phone"), device=replace(profile().device, title=None)))
    first, second = store.devices()
    assert (first.name, second.name, second.title) == ("board", "phone", "Phone")
    assert second.last > second.first
    assert store.known("device") == ("board", "phone")


def test_a_token_lets_its_holder_in_until_it_is_revoked(store):
    store.create_user("ada")
    secret = store.create_token("ada", name="laptop", scopes=["write"])
    assert secret.text not in repr(secret)
    with store.database.reading() as connection:
        kept = str(connection.execute(text("SELECT * FROM tokens")).all())
    assert secret.text not in kept
    assert secret.text.removeprefix("ifm_") not in kept
    assert store.admitted(secret.text, "read").user == "ada"
    assert store.admitted(secret.text, "write").id == secret.token.id
    assert store.admitted(secret.text, "admin") is None
    assert store.admitted(secret.text + "x") is None
    assert store.admitted("") is None
    assert store.tokens("ada")[0].used is not None
    store.revoke_token(secret.token.id)
    assert store.admitted(secret.text) is None
    assert store.tokens()[0].revoked is not None


def test_a_visitor_sees_their_projects_and_what_they_do_is_noted(store):
    store.create_user("ada")
    for project in ("phones", "cars", "open"):
        store.create_project(project)
    store.set_member("phones", "ada", "reader")
    store.set_member("phones", "ada", "writer")
    store.change_project("open", open=True)
    mine, other = store.add(profile(), "phones"), store.add(profile(), "cars", name="secret")
    text = store.begin_session("ada", token=store.create_token("ada", scopes=("write",)).token.id)
    visitor = store.visitor(session=text)
    assert visitor.roles == {"phones": "writer", "open": "reader"}
    assert store.visitor_again(visitor).roles == visitor.roles
    seen = store.seen_with(visitor.sight)
    assert [row.id for row in seen.list().rows] == [mine]
    assert (seen.count(), [project.name for project in seen.projects()]) == (1, ["open", "phones"])
    for hidden in (other, other[-6:], "secret"):
        with pytest.raises(UnknownNameError):
            seen.resolve(hidden)
    with pytest.raises(UnknownNameError):
        seen.delete(other)
    assert seen.known("model") == store.known("model")
    assert seen.doing(Deed(user="ada", action="run.delete", subject=mine)).delete(mine) == (mine,)
    assert [(entry.user, entry.action, entry.subject) for entry in store.audit()] == [("ada", "run.delete", mine)]
    link = store.create_link([other], user="ada", lasts_s=60)
    assert store.opened_link(link) is None  # she may not see it
    store.set_member("cars", "ada", "owner")
    assert store.opened_link(link).runs == (other,)
    assert len(store.links(user="bob", projects=frozenset({"cars"}))) == 1
    with pytest.raises(StoreError, match="not changed"):
        store.database.write(lambda c: c.execute(text_of("UPDATE audit SET action = 'x'")))
    store.end_session(visitor.session)
    assert store.visitor(session=text) is None
    assert store.identified("https://id.example", "1", "new@example.org", joins=True) == "new@example.org"


def test_tokens_expire_and_go_with_their_user(store):
    store.create_user("ada")
    short, long = (store.create_token("ada", lasts_s=lasts) for lasts in (0.5, 1000))
    assert store.admitted(short.text) is None
    assert store.admitted(long.text) is not None
    for wrong in ([], ["root"], ["read", "root"]):
        with pytest.raises(UnknownNameError, match="scope"):
            store.create_token("ada", scopes=wrong)
    with pytest.raises(DomainError, match="already"):
        store.create_user("ada")
    with pytest.raises(UnknownNameError):
        store.create_token("bob")
    with pytest.raises(UnknownNameError):
        store.revoke_token("nowhere")
    store.delete_user("ada")
    assert (store.users(), store.tokens(), store.admitted(long.text)) == ((), (), None)


# Export and import


def test_a_run_goes_from_one_store_to_another_whole(store, kind, tmp_path):
    run = store.begin("phones", name="n", tags=["t"], parameters={"a": "b"}, kind="bench")
    store.add_metrics(run, {"loss": 1.0}, step=4)
    store.fail(
        run,
        "why",
        profile(),
        attachments=[Attachment(name="deep/f.bin", source=b"\x00\x01", media_type="x/y")],
        log="log",
    )
    archive = store.export(run, tmp_path / "new folder" / "run.zip")
    with open_store(kind.made(), artifacts=tmp_path / "elsewhere") as other:
        assert other.import_(archive) == run
        assert other.get(run) == store.get(run)
        assert other.row(run) == store.row(run)
        assert other.metrics(run) == store.metrics(run)
        assert other.artifact(run, "deep/f.bin").read_bytes() == b"\x00\x01"
        assert other.import_(archive) == run
        assert other.count() == 1
        twin = other.import_(archive, new_id=True, project="copies")
        assert (twin != run, other.get(twin).project, other.count()) == (True, "copies", 2)


def test_a_run_is_not_written_over_by_an_import(store, tmp_path):
    run = store.begin()
    store.kill(run)
    archive = store.export(run, tmp_path / "a.zip")
    store.finish(run, profile())
    with pytest.raises(StoreError, match="in the store already"):
        store.import_(archive)
    assert store.row(run).status == "finished"


def test_what_still_runs_is_not_exported(store, tmp_path):
    with pytest.raises(DomainError, match="when it has ended"):
        store.export(store.begin(), tmp_path / "a.zip")
    assert not list(tmp_path.glob("*.zip"))


# Processes: killed ones, and many at once

CHILD = """
import sys
from pathlib import Path
from inferometer.store import open_store
from unit.store.profiles import profile
place, artifacts, name, count = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
with open_store(place, artifacts=artifacts) as store:
    for number in range(count):
        run = store.begin(f"p{number % 3}", name=f"{name}-{number}", tags=[name])
        if count == 1:
            print(run, flush=True)
            sys.stdin.read()
        store.finish(run, profile(number + 1))
"""


def child(place, tmp_path, name, count, **options):
    arguments = [sys.executable, "-c", CHILD, place, str(tmp_path / "artifacts"), name, str(count)]
    return subprocess.Popen(arguments, cwd=Path(__file__).parents[1], **options)


def test_a_killed_process_leaves_a_run_marked_killed(store, place, tmp_path):
    with child(place, tmp_path, "victim", 1, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        run = process.stdout.readline().strip()
        assert store.row(run).status == "running"  # it lives, and is left alone
        process.send_signal(signal.SIGKILL)
        process.wait()
        row = store.row(run)
    assert (row.status, row.name) == ("killed", "victim-0")
    assert "ended without a word" in row.reason
    assert store.reap() == ()


def test_runs_of_machines_out_of_sight_are_given_up_after_a_day(place, tmp_path):
    here = this_process()
    clock = Clock()
    far = replace(here, host="elsewhere")
    with open_store(place, clock=clock, owner=lambda: far) as there:
        silent, alive = there.begin(), there.begin()
        clock.now += 80_000
        there.beat(alive)
    with open_store(place, clock=clock, owner=lambda: here) as store:
        assert store.reap() == ()
        clock.now += 20_000
        assert store.reap() == (silent,)
        assert store.row(alive).status == "running"
        assert "no sign of life" in store.row(silent).reason


def test_a_run_from_before_the_last_boot_is_dead(place):
    with open_store(place, owner=lambda: replace(this_process(), boot="before")) as there:
        run = there.begin()
    with open_store(place) as store:
        assert store.row(run).status == "killed"


def concurrently(store, tmp_path, place, *, processes, each):
    started = [child(place, tmp_path, f"w{number}", each) for number in range(processes)]
    assert [process.wait(240) for process in started] == [0] * processes
    assert store.count() == store.count(Filter(status=("finished",))) == rows_in(store, profiles) == processes * each
    assert {row.name for row in everything(store)} == {f"w{p}-{n}" for p in range(processes) for n in range(each)}


def everything(store):
    after, found = None, []
    while True:
        page = store.list(limit=1000, after=after)
        found += page.rows
        after = page.after
        if after is None:
            return found


@pytest.mark.slow
def test_writers_at_the_same_time_lose_nothing(store, place, tmp_path):
    concurrently(store, tmp_path, place, processes=2, each=30)


def test_processes_that_make_the_same_new_store_at_once_make_one(kind, tmp_path):
    place = kind.empty()
    started = [child(place, tmp_path, f"w{number}", 3) for number in range(2)]
    assert [process.wait(240) for process in started] == [0] * 2
    with open_store(place) as store:
        assert store.count() == 6


def test_a_row_that_is_there_is_not_counted_as_new(store):
    """An id that is taken is drawn again: it must be known that it was taken."""
    row = {"name": "phones", "created_us": 1}
    assert [store.database.write(lambda c: put_new(c, "projects", row)) for _ in range(2)] == [1, 0]


# The schema


def test_the_migrations_make_the_tables_that_the_code_describes(store):
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with store.database.reading() as connection:
        options = {"version_table": VERSION_TABLE, "compare_type": True}
        assert compare_metadata(MigrationContext.configure(connection, opts=options), metadata) == []
        assert revision_of(connection) == REVISIONS[-1]


def test_the_revisions_are_those_of_the_migrations(store):
    from alembic.script import ScriptDirectory

    import inferometer.store.migrations as package

    script = ScriptDirectory(str(Path(package.__file__).parent))
    assert tuple(found.revision for found in script.walk_revisions())[::-1] == REVISIONS


@pytest.mark.parametrize("back", [*REVISIONS[:-1]])
def test_down_and_up_again_keeps_the_runs(store, place, tmp_path, back):
    run = store.begin("phones", name="n", tags=["t"], parameters={"a": "b"})
    store.add_metrics(run, {"loss": 1.0})
    store.finish(run, profile(), attachments=[Attachment(name="f", source=b"1")])
    store.create_user("ada")
    before, listed = store.get(run), store.row(run)
    downgrade(store.database, back)
    with store.database.reading() as connection:
        assert revision_of(connection) == back
    with open_store(place, artifacts=tmp_path / "artifacts") as again:
        # The columns that r0006 brings are not filled for older runs.
        filled = {} if back >= "0006" else dict.fromkeys(("batch", "precision", "threads", "workload"))
        unfilled = replace(listed, **filled)
        assert (again.get(run), again.row(run)) == (before, unfilled)
        assert len(again.metrics(run)) == 1
        assert [device.name for device in again.devices()] == ["phone"]  # filled from the runs
        assert bool(again.users()) == (back >= "0002")


def shape_of(connection):
    """Of every table its columns, its keys and its indexes: what may be empty, what goes with what, what comes once."""
    seen = inspect(connection)
    keys, unique = seen.get_multi_pk_constraint(), seen.get_multi_unique_constraints()
    leading, indexes = seen.get_multi_foreign_keys(), seen.get_multi_indexes()
    return {
        name: (
            sorted((each["name"], str(each["type"]), each["nullable"], each["default"]) for each in columns),
            keys[name]["constrained_columns"],
            sorted(
                (each["constrained_columns"], each["referred_table"], each["referred_columns"], each["options"])
                for each in leading[name]
            ),
            sorted(each["column_names"] for each in unique[name]),
            sorted(
                (each["name"], each["column_names"], bool(each["unique"]), *_only_where(each)) for each in indexes[name]
            ),
        )
        for name, columns in seen.get_multi_columns().items()
        if name[-1] != VERSION_TABLE
    }


def _only_where(index):
    """The words of its condition: PostgreSQL writes the same one in several ways."""
    conditions = [value for name, value in index.get("dialect_options", {}).items() if name.endswith("_where")]
    return [re.findall(r"'\w+'|NOT NULL", str(condition)) for condition in conditions]


def test_what_migrations_made_is_what_the_code_would_make(tmp_path):
    """The second way to the same tables, down to what goes with a row that goes."""
    shapes = []
    for make in (lambda connection: run_alembic("upgrade", connection, "head"), metadata.create_all):
        with closing(open_database(locate(tmp_path / f"{len(shapes)}.db"))) as database:
            database.write(make)
            with database.reading() as connection:
                shapes.append(shape_of(connection))
    assert shapes[0] == shapes[1]


def test_on_the_way_down_the_tables_are_those_of_the_way_up(kind):
    with closing(open_database(locate(kind.empty()))) as database:

        def stepped(name, revision):
            database.write(lambda connection: run_alembic(name, connection, revision))
            with database.reading() as connection:
                return shape_of(connection)

        up = {revision: stepped("upgrade", revision) for revision in REVISIONS}
        down = {revision: stepped("downgrade", revision) for revision in REVISIONS[-2::-1]}
    assert down == {revision: up[revision] for revision in REVISIONS[:-1]}


def test_an_earlier_version_hears_of_no_state_that_it_does_not_know(store):
    fleet = Fleet.of(store)
    fleet.register(DEVICES[0])
    job = submitted(fleet)
    said = {"number": 99, "document": '{"at":1,"state":"inconclusive"}'}
    store.database.write(lambda connection: connection.execute(fleet_events.insert().values(job_id=job, **said)))
    downgrade(store.database, "0007")
    with store.database.reading() as connection:
        kept = connection.execute(text("SELECT document FROM fleet_events WHERE number = 99")).scalar_one()
    assert kept == '{"at":1,"state":"failed"}'


def test_who_held_a_token_before_there_were_members_sees_as_much_as_before(store, place):
    for project in ("phones", "cars"):
        store.create_project(project)
    held = {"ada": ("write",), "bob": ("read",), "cyd": ("admin", "agent"), "dan": ("agent",), "eve": ("write",)}
    for name, scopes in held.items():
        store.create_user(name)
        token = store.create_token(name, scopes=scopes, project="cars" if name == "eve" else None).token
    store.create_user("gone")
    store.revoke_token(store.create_token("gone", scopes=("write",)).token.id)
    Fleet.of(store).register(NewDevice(name="pi"), Registrar(user="dan", everyone=False))
    downgrade(store.database, "0006")
    with open_store(place) as again:
        roles = {project: {m.user: m.role for m in again.members(project)} for project in ("phones", "cars")}
        everyone = {"ada": "writer", "bob": "reader", "cyd": "owner"}
        assert roles == {"phones": everyone, "cars": {**everyone, "eve": "writer"}}
        assert Fleet.of(again).device("pi").everyone
        again.create_project("new")
        assert again.members("new") == ()
        assert again.tokens("eve")[0].id == token.id


def test_all_the_way_down_leaves_nothing_of_ours(store, place):
    store.add(profile())
    downgrade(store.database, "base")
    with store.database.reading() as connection:
        assert set(inspect(connection).get_table_names()) <= {VERSION_TABLE}
    with open_store(place) as again:
        assert again.count() == 0


def test_a_store_of_a_newer_version_is_refused_and_left_as_it_is(kind):
    place = kind.made()
    newer = text("UPDATE inferometer_version SET version_num = '9999'")
    with open_store(place) as store:
        store.add(profile())
        store.database.write(lambda connection: connection.execute(newer))
        with pytest.raises(SchemaError, match=r"newer version of Inferometer.* 9999"):
            open_store(place)
        assert rows_in(store, runs) == 1


def test_a_database_of_another_program_is_left_alone(kind):
    place = kind.empty()
    database = open_database(locate(place))
    database.write(lambda connection: connection.execute(text("CREATE TABLE users (mine int)")))
    with pytest.raises(StoreError, match="tables of another program by our names: users"):
        prepare(database)
    database.write(lambda connection: connection.execute(text("DROP TABLE users")))
    database.close()


def test_every_status_can_be_stored_and_sorted(store):
    for status in STATUSES:
        run = store.begin(status="pending" if status == "pending" else "running")
        if status not in {"pending", "running"}:
            {"finished": store.finish, "failed": store.fail, "killed": store.kill}[status](run)
    assert [row.status for row in store.list(sort="status").rows] == sorted(STATUSES)


# PostgreSQL's own ways to fail


def test_a_wrong_password_is_told_and_not_shown(postgres_server):
    with pytest.raises(StoreError, match="refuses the password") as caught:
        open_store(postgres_server.url(user="guarded", password="hunter2"))  # noqa: S106 - wrong on purpose
    assert "hunter2" not in str(caught.value)
    with pytest.raises(StoreError, match="has no such database"):
        open_store(postgres_server.url(database="nowhere"))


def test_a_user_who_may_not_make_tables_is_told(postgres_server):
    name = postgres_server.database()
    with pytest.raises(StoreError, match="may not be changed by this user"):
        open_store(postgres_server.url(name, user="guarded", password="right"))  # noqa: S106 - a test server's


def test_a_server_that_does_not_answer_is_told():
    pytest.importorskip("psycopg", reason=postgres.WHY)
    with pytest.raises(StoreError, match="does not answer") as caught:
        open_store("postgresql://ada:hunter2@127.0.0.1:1/runs")
    assert "hunter2" not in str(caught.value)
    assert "ada" in str(caught.value)


def test_a_connection_that_the_server_dropped_is_made_anew(postgres_server):
    with open_store(postgres_server.url(postgres_server.database())) as store:
        run = store.begin()
        for use in (lambda: store.get(run), store.begin):
            postgres_server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
                       "AND datname LIKE 't%'")  # fmt: skip
            assert use()


def test_a_measurement_is_saved_in_a_file_where_the_store_fails_in_the_middle(kind, store, tmp_path):
    noise = random.Random(0)  # noqa: S311 - so that packing does not make it small
    (phase, *others) = profile().phases
    phases = (replace(phase, samples_s=tuple(noise.random() for _ in range(5000))), *others)
    measured = replace(profile(), phases=phases)

    def measure(outage):
        with recording(store=store, folder=tmp_path) as recorder:
            outage.enter_context(kind.gone(store))
            recorder.metric("progress", 0.5)
            recorder.keep(measured)
            recorder.keep_below(measured)

    with (
        ExitStack() as outage,
        pytest.raises(StoreError, match=f"was measured and not stored: .*{kind.outage}") as caught,
    ):
        measure(outage)
    saved = sorted(tmp_path.glob("inferometer-*.json"))
    assert len(saved) == 2
    for path in saved:
        assert str(path) in str(caught.value)
        assert store.get(store.import_(path)).profile == measured


def test_a_mark_changes_with_what_anybody_writes_and_with_nothing_else(store, place, tmp_path):
    before = store.mark()
    store.list(Filter())
    assert store.mark() == before is not None
    with open_store(place, artifacts=tmp_path) as other:
        other.create_project("new")
    written = store.mark()
    assert written != before
    assert store.mark() == written


def test_documents_are_packed(store):
    run = store.add(profile())
    with store.database.reading() as connection:
        kept = connection.execute(select(profiles).where(profiles.c.run_id == run)).one()
    assert kept.size_bytes > len(kept.document)
