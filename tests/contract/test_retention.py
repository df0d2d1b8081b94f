"""What projects keep: rules, what they spare, and the lines that deletions leave, on SQLite and PostgreSQL."""

import asyncio
import os
from dataclasses import replace

import pytest
from sqlalchemy import func, select, update

from fakes.fleet import DEVICES, submitted
from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.hub.web.app import retain_daily
from inferometer.store import Attachment, Filter, StoreError, open_store
from inferometer.store import retention as retaining
from inferometer.store.queue.fleet import Fleet
from inferometer.store.retention import Retention
from inferometer.store.tables import fleet_jobs, metadata, runs
from unit.store import postgres
from unit.store.profiles import profile

DAY = 86_400.0
RULES = Retention(project="phones", runs_s=365 * DAY, artifacts_s=90 * DAY, jobs_s=30 * DAY, keep_tags=("release",))


class Clock:
    def __init__(self):
        self.now = 1_760_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def place(request, tmp_path_factory):
    if request.param == "sqlite":
        return str(tmp_path_factory.mktemp("kept") / "runs.db")
    return request.getfixturevalue("postgres_server").new_store()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(place, clock, tmp_path):
    with open_store(place, artifacts=tmp_path / "artifacts", clock=clock) as opened:
        opened.database.write(lambda connection: postgres.emptied(connection, metadata.sorted_tables))
        yield opened


def added(store, clock, *, days_ago, tags=(), **known):
    """A run with a file, of that age."""
    clock.now -= days_ago * DAY
    name = " ".join([f"{days_ago} days", *tags])
    file = Attachment(name="trace.json", source=name.encode())
    run = store.add(profile(1), known.pop("project", "phones"), name=name, tags=tags, attachments=[file])
    clock.now += days_ago * DAY
    return run


def names(store, **chosen):
    return {row.name for row in store.list(Filter(**chosen)).rows}


def counts(deletions):
    return {(gone.project, gone.rule): gone.count for gone in deletions}


def test_what_is_older_than_its_rule_goes_and_leaves_a_line(store, clock):
    old, middle, new = (added(store, clock, days_ago=days) for days in (400, 100, 10))
    store.set_retention(RULES)
    expected = {("phones", "runs"): 1, ("phones", "artifacts"): 1}
    assert counts(store.apply_retention()) == expected
    assert names(store) == {"100 days", "10 days"}
    assert [len(store.get(run).artifacts) for run in (middle, new)] == [0, 1]
    assert counts(store.deletions()) == expected
    with pytest.raises(UnknownNameError):
        store.get(old)
    assert store.apply_retention() == ()
    assert len(store.deletions()) == 2


def test_a_dry_run_says_what_would_go_and_deletes_nothing(store, clock):
    for days in (400, 500, 100):
        added(store, clock, days_ago=days)
    store.set_retention(RULES)
    assert counts(store.apply_retention(dry_run=True)) == {("phones", "runs"): 2, ("phones", "artifacts"): 3}
    assert len(names(store)) == 3
    assert store.deletions() == ()


@pytest.mark.parametrize("tag", ["baseline", "pinned", "release"])
def test_a_run_that_is_kept_stays_with_its_files_and_what_it_belongs_to(store, clock, tag):
    kept = added(store, clock, days_ago=400, tags=[tag])
    above, top = (added(store, clock, days_ago=500 + days) for days in (1, 2))
    added(store, clock, days_ago=450)

    def chain(connection):
        for run, parent in ((kept, above), (above, top)):
            connection.execute(update(runs).where(runs.c.id == run).values(parent=parent))

    store.database.write(chain)
    store.set_retention(RULES)
    store.apply_retention()
    assert names(store) == {f"400 days {tag}", "501 days", "502 days"}
    assert len(store.get(kept).artifacts) == 1


def test_runs_that_have_not_ended_and_other_projects_stay(store, clock):
    clock.now -= 400 * DAY
    running = store.begin("phones")
    clock.now += 400 * DAY
    added(store, clock, days_ago=400, project="boards")
    store.set_retention(RULES)
    assert store.apply_retention() == ()
    assert store.row(running).status == "running"
    assert names(store, project="boards") == {"400 days"}


def test_a_file_that_another_run_names_stays_on_the_disk(store, clock, tmp_path):
    file = Attachment(name="trace.json", source=b"shared")
    clock.now -= 400 * DAY
    store.add(profile(1), "phones", attachments=[file])
    store.add(profile(1), "phones", attachments=[Attachment(name="own", source=b"own")])
    clock.now += 400 * DAY
    other = store.add(profile(2), "boards", attachments=[file])
    for path in (tmp_path / "artifacts").glob("??/*"):
        os.utime(path, (0, 0))  # not of the last minutes, which are spared
    store.set_retention(RULES)
    store.apply_retention()
    assert store.artifact(other, "trace.json").read_bytes() == b"shared"
    assert len(list((tmp_path / "artifacts").glob("??/*"))) == 1


def test_jobs_go_when_they_ended_long_ago_and_no_other(store, clock):
    fleet = Fleet.of(store)
    fleet.register(DEVICES[0])
    clock.now -= 40 * DAY
    ended, waits = (submitted(fleet, seed, project="phones") for seed in (1, 2))
    fleet.cancel(ended, by="ada")
    clock.now += 40 * DAY
    store.set_retention(RULES)
    assert counts(store.apply_retention()) == {("phones", "jobs"): 1}
    with store.database.reading() as connection:
        assert connection.execute(select(fleet_jobs.c.id)).scalars().all() == [waits]


def test_many_go_a_few_at_a_time_under_one_line(store, clock, monkeypatch):
    monkeypatch.setattr(retaining, "_AT_ONCE", 2)
    for days in range(400, 405):
        added(store, clock, days_ago=days)
    store.set_retention(replace(RULES, artifacts_s=None))
    assert counts(store.apply_retention()) == {("phones", "runs"): 5}
    assert [gone.count for gone in store.deletions()] == [5]
    with store.database.reading() as connection:
        assert connection.execute(select(func.count()).select_from(runs)).scalar_one() == 0


def test_rules_are_set_anew_and_taken_back(store, clock):
    added(store, clock, days_ago=400)
    store.set_retention(RULES)
    store.set_retention(replace(RULES, runs_s=None, keep_tags=("b", "a", "a")))
    assert store.retentions() == (replace(RULES, runs_s=None, keep_tags=("a", "b")),)
    store.set_retention(Retention(project="phones"))
    assert store.retentions() == ()
    assert store.apply_retention() == ()


def test_a_rule_of_no_time_or_of_an_unknown_project_is_refused(store, clock):
    added(store, clock, days_ago=1)
    with pytest.raises(DomainError, match="cannot be kept for 0 s"):
        store.set_retention(replace(RULES, runs_s=0.0))
    with pytest.raises(UnknownNameError):
        store.set_retention(replace(RULES, project="phnes"))


def test_a_hub_applies_the_rules_soon_after_its_start_and_then_once_a_day():
    """Also on the day after one on which the store was away."""
    applied, pauses = [], []

    class Away:
        def apply_retention(self):
            applied.append(True)
            raise StoreError("The store is away.")

    async def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 4:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(retain_daily(Away(), pause))
    assert (len(applied), pauses[1:]) == (3, [DAY] * 3)
    assert pauses[0] < DAY / 24


def test_a_run_that_is_shared_stays_as_long_as_its_link_holds(store, clock):
    shared, _ = added(store, clock, days_ago=400, tags=("shared",)), added(store, clock, days_ago=400)
    store.set_retention(RULES)
    store.create_link([shared], user=None, lasts_s=7 * DAY)
    store.apply_retention()
    assert names(store) == {"400 days shared"}
    clock.now += 8 * DAY
    store.apply_retention()
    assert names(store) == set()
