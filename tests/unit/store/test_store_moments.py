"""Runs, tokens, sessions, links and the audit log at given moments, on SQLite: what holds at its end and what does not.

The clock stands still until it is moved, so that every time is known.
"""

from dataclasses import replace

import pytest
from sqlalchemy import select

from fakes.fleet import DEVICES, submitted
from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.core.profile import DeviceFacts
from inferometer.store import Attachment, Filter, StoreError, open_store
from inferometer.store.audit import AuditFilter, Deed
from inferometer.store.opened import Owner
from inferometer.store.queue.fleet import Fleet
from inferometer.store.retention import Deletion, Retention
from inferometer.store.tables import runs
from inferometer.store.values import ROLES, Visitor
from unit.store.conftest import START
from unit.store.profiles import profile

A_MOMENT = 0.001
HOUR, DAY = 3600.0, 86_400.0
HERE = Owner(host="here", boot="b", space="s", pid=7, born="1")


@pytest.fixture(autouse=True)
def ada(store):
    return store.create_user("ada")


def times(store, run):
    row = store.row(run)
    return row.created, row.started, row.ended


# Runs


def test_a_run_has_the_times_at_which_it_was_made_begun_and_ended(store, clock):
    waits, begun, added = store.begin(status="pending"), store.begin(), store.add(profile())
    assert [times(store, run) for run in (waits, begun, added)] == [
        (START, None, None), (START, START, None), (START, START, START),
    ]  # fmt: skip
    clock.now += 5
    store.start(waits)
    with pytest.raises(StoreError, match="not pending"):
        store.start(waits)
    clock.now += 5
    store.finish(waits, profile())
    store.fail(begun, "why")
    never = store.begin(status="pending")
    clock.now += 5
    store.kill(never, "nobody began it")
    assert [times(store, run) for run in (waits, begun, never)] == [
        (START, START + 5, START + 10), (START, START, START + 10), (START + 10, START + 15, START + 15),
    ]  # fmt: skip
    assert (store.row(waits).seconds, store.row(begun).reason) == (5.0, "why")
    with pytest.raises(DomainError, match="not as finished"):
        store.begin(status="finished")


def test_every_sign_of_life_of_a_run_is_the_moment_it_is_given(store, clock):
    run = store.begin()

    def heard():
        with store.database.reading() as connection:
            return connection.execute(select(runs.c.heartbeat_us).where(runs.c.id == run)).scalar_one() / 1e6

    for say in (lambda: store.beat(run), lambda: store.add_metrics(run, {"x": 1.0})):
        clock.now += 7
        say()
        assert heard() == clock.now
    assert [(metric.step, metric.at) for metric in store.metrics(run)] == [(0, clock.now)]


def test_a_run_belongs_to_the_process_that_began_it(store, clock):
    seen = {}

    def row(run):
        with store.database.reading() as connection:
            return connection.execute(select(runs).where(runs.c.id == run)).mappings().one()

    with open_store(store.location.file, clock=clock, owner=lambda: HERE) as other:
        seen["begun"], seen["started"] = other.begin(), store.begin(status="pending")
        other.start(seen["started"])
    for run in seen.values():
        found = row(run)
        assert Owner(**{name: found[name] for name in ("host", "boot", "space", "pid", "born")}) == HERE


def test_steps_of_metrics_go_on_from_the_last_of_those_given(store):
    run, other = store.begin(), store.begin()
    assert store.add_metrics(run, {"a": 1.0}) == 0
    assert store.add_metrics(run, {"a": 2.0}, step=7) == 7
    assert store.add_metrics(run, {"b": 3.0}) == 0
    assert store.add_metrics(run, {"a": 4, "b": 5.0}) == 8
    assert store.add_metrics(other, {"a": 6.0}) == 0
    assert store.add_metrics(run, {"a": 9.0}, step=7) == 7  # over what it had
    found = [(metric.name, metric.step, metric.value) for metric in store.metrics(run)]
    assert found == [("a", 0, 1.0), ("a", 7, 9.0), ("a", 8, 4.0), ("b", 0, 3.0), ("b", 8, 5.0)]
    assert [metric.step for metric in store.metrics(run, "b")] == [0, 8]
    with pytest.raises(DomainError, match="not a finite number"):
        store.add_series(run, "a", {1: 1.0, 2: float("nan")})
    assert len(store.metrics(run)) == 5


def test_a_search_finds_a_run_by_all_that_names_it_and_no_more_by_what_did(store):
    machineless = replace(profile(model="net", device="board"), runtime="ort")
    run = store.begin(name="first", tags=["old"], author="ada", subject={"model": "asked", "runtime": "wanted"})

    def found(*words):
        return [store.count(Filter(words=word)) for word in words]

    assert found("first", "OLD", "ada", "asked", "wanted", run, "net") == [1, 1, 1, 1, 1, 1, 0]
    store.finish(run, machineless)
    assert found("first", "old", "ada", "net", "board", "ort", "asked") == [1, 1, 1, 1, 1, 1, 0]
    store.retag(run, add=["new", "more"], remove=["old"])
    store.rename(run, "second")
    assert found("first", "old", "second", "new", "ada", "board ort more") == [0, 0, 1, 1, 1, 1]
    store.rename(run, None)
    assert (found("second", "net"), store.row(run).tags) == ([0, 1], ("more", "new"))


def test_a_note_is_kept_cut_and_taken_away(store):
    run = store.add(profile())
    for text, kept in ((" why ", "why"), ("x" * 5000, "x" * 4000), ("  ", None), ("again", "again"), (None, None)):
        store.note(run, text)
        assert store.row(run).note == kept


def test_a_run_that_moves_is_counted_where_it_is(store, clock):
    first = store.add(profile(), "phones")
    clock.now += 5
    second = store.add(profile(2), "phones")
    store.move(first, "cars")
    cars, phones = store.projects()
    assert [(found.name, found.runs, found.last, found.created) for found in (cars, phones)] == [
        ("cars", 1, START, START + 5), ("phones", 1, START + 5, START),
    ]  # fmt: skip
    assert store.get(first).project == "cars"
    store.delete(second, second[-8:])
    assert (store.project("phones").runs, store.project("phones").last) == (0, None)


def test_what_is_known_of_a_device_spans_its_runs_and_keeps_its_title(store, clock):
    store.add(profile(device="d"))
    clock.now += 5
    store.add(replace(profile(), device=DeviceFacts(name="d")))
    (device,) = store.devices()
    assert (device.title, device.first, device.last) == ("D", START, START + 5)


@pytest.mark.parametrize(("typed", "place"), [("last", 3), ("last~1", 2), ("last~3", 0)])
def test_last_counts_back_over_runs_that_finished_alone(store, typed, place):
    made = [store.add(profile(number)) for number in range(1, 5)]
    store.add(profile(9), parent=made[0])
    store.begin()
    assert store.resolve(typed) == sorted(made)[place]
    with pytest.raises(DomainError, match="There is no last~4: 4 runs have finished"):
        store.resolve("last~4")


@pytest.mark.parametrize(("count", "shown"), [(5, False), (6, True)])
def test_a_name_of_many_runs_shows_some_of_them(store, count, shown):
    for number in range(1, count + 1):
        store.add(profile(number), name="same")
    with pytest.raises(DomainError) as refused:
        store.resolve("same")
    assert ("…" in str(refused.value)) is shown
    assert str(refused.value).count(",") == 4


def test_an_imported_run_keeps_its_times_author_and_note_and_is_admitted_where_it_goes(store, tmp_path, clock):
    run = store.begin("phones", author="ada", kind="bench")
    clock.now += 5
    store.finish(run, profile(), attachments=[Attachment(name="f", source=b"1")])
    store.note(run, "look")
    file = store.export(run, tmp_path / "run.zip")
    asked = []

    def admit(into, project):
        asked.append(project)
        return into

    twin, _ = store.take_in(file, new_id=True, admit=admit)
    other, _ = store.take_in(file, new_id=True, project="cars", author="bob", admit=admit)
    assert asked == ["phones", "cars"]
    for made, author in ((twin, "ada"), (other, "bob")):
        row = store.row(made)
        assert (row.created, row.started, row.ended) == (START, START, START + 5)
        assert (row.author, row.note, row.kind, row.status) == (author, "look", "bench", "finished")
        assert [artifact.size_bytes for artifact in store.get_artifacts(made)] == [1]


# Tokens, sessions and links


def test_a_token_that_ends_lets_nobody_in_at_its_end(store, clock):
    secret = store.create_token("ada", scopes=["write"], lasts_s=60)
    assert (secret.token.created, secret.token.expires, secret.token.used) == (START, START + 60, None)
    clock.now += 60 - A_MOMENT
    assert store.visitor(token=secret.text).until == START + 60
    clock.now += A_MOMENT
    assert (store.admitted(secret.text), store.visitor(token=secret.text)) == (None, None)


def test_the_use_of_a_token_is_written_down_once_a_minute(store, clock):
    secret = store.create_token("ada")
    for later_s, noted in ((0, START), (60, START), (60 + A_MOMENT, START + 60 + A_MOMENT)):
        clock.now = START + later_s
        assert store.admitted(secret.text).id == secret.token.id
        assert store.tokens("ada")[0].used == pytest.approx(noted, abs=1e-6)
    store.admitted(secret.text, "write")  # it has not that scope: that is no use of it
    assert store.admitted(secret.text, "write") is None


def test_a_token_is_revoked_when_it_first_was(store, clock):
    secret = store.create_token("ada")
    store.revoke_token(secret.token.id)
    clock.now += 5
    store.revoke_token(secret.token.id)
    assert store.tokens()[0].revoked == START


def test_a_session_ends_after_half_a_day_without_use_and_after_a_month_with_it(store, clock):
    text = store.begin_session("ada", address="a" * 101, browser="b" * 301)
    clock.now = START + 12 * HOUR - A_MOMENT
    visitor = store.visitor(session=text)
    assert (visitor.until, visitor.noted, visitor.scopes) == (START + 12 * HOUR, START, ("read", "write"))
    (row,) = store.sessions("ada")
    assert (row.created, row.used) == (START, pytest.approx(clock.now, abs=1e-6))
    assert (len(row.address), len(row.browser), row.token) == (100, 300, None)
    while clock.now < START + 30 * DAY - 12 * HOUR:
        clock.now += 11 * HOUR
        assert store.visitor(session=text) is not None
    clock.now = START + 30 * DAY - A_MOMENT
    assert store.visitor(session=text).until == START + 30 * DAY
    clock.now += A_MOMENT
    assert (store.visitor(session=text), store.visitor_again(visitor), store.sessions("ada")) == (None, None, ())
    idle = store.begin_session("ada")
    clock.now += 12 * HOUR
    assert store.visitor(session=idle) is None


def test_the_use_of_a_session_is_written_down_every_five_minutes(store, clock):
    text = store.begin_session("ada")
    for later_s, noted in ((300, START), (300 + A_MOMENT, START + 300 + A_MOMENT)):
        clock.now = START + later_s
        store.visitor(session=text)
        assert store.sessions("ada")[0].used == pytest.approx(noted, abs=1e-6)


def test_a_session_ends_with_its_token_if_that_is_sooner(store, clock):
    store.create_project("p", owner="ada")
    secret = store.create_token("ada", scopes=["read"], lasts_s=60, project="p")
    text = store.begin_session("ada", token=secret.token.id)
    visitor = store.visitor(session=text)
    assert (visitor.until, visitor.token, visitor.project, visitor.roles) == (
        START + 60, secret.token.id, "p", {"p": "reader"},
    )  # fmt: skip
    clock.now += 60
    assert (store.visitor(session=text), store.visitor_again(visitor)) == (None, None)
    long = store.begin_session("ada", token=store.create_token("ada", lasts_s=90 * DAY).token.id)
    assert store.visitor(session=long).until == clock.now + 12 * HOUR


def test_a_session_is_ended_by_its_owner_or_by_anybody_who_may(store, clock):
    store.create_user("bob")
    text = store.begin_session("ada")
    (row,) = store.sessions("ada")
    with pytest.raises(UnknownNameError):
        store.end_session(row.id, user="bob")
    assert store.visitor(session=text) is not None
    store.end_session(row.id, user="ada")
    assert store.visitor(session=text) is None
    other = store.begin_session("bob")
    store.end_session(store.sessions("bob")[0].id)
    assert store.visitor(session=other) is None


@pytest.mark.parametrize(
    ("scopes", "project", "roles"),
    [
        (("read",), None, {"p": "reader", "q": "reader", "open": "reader"}),
        (("write",), None, {"p": "owner", "q": "writer", "open": "reader"}),
        (("write",), "q", {"q": "writer"}),
        (("agent",), None, {}),
        (("admin",), None, None),
        (("admin",), "p", {"p": "owner"}),
    ],
)
def test_a_role_is_no_more_than_the_token_allows(store, scopes, project, roles):
    for name, role in (("p", "owner"), ("q", "writer")):
        store.create_project(name)
        store.set_member(name, "ada", role)
    store.create_project("hidden"), store.create_project("open")
    store.change_project("open", open=True)
    visitor = store.visitor(token=store.create_token("ada", scopes=scopes, project=project).text)
    assert visitor.roles == roles
    assert (visitor.sight is None, visitor.sees_all) == (roles is None, roles is None)
    if roles is not None:
        seen = store.seen_with(visitor.sight)
        assert {found.name for found in seen.projects()} == set(roles)
    assert store.visitor_again(visitor) == replace(visitor, noted=START)


def test_a_role_may_what_those_before_it_may():
    for held in ROLES:
        visitor = Visitor(user="u", scopes=("write",), roles={"p": held})
        assert [visitor.may(role, "p") for role in ROLES] == [
            ROLES.index(role) <= ROLES.index(held) for role in ROLES
        ]  # fmt: skip
        assert not visitor.may("reader", "q")
    assert Visitor(user="u", scopes=("admin",), roles=None).may("owner", "q")


def test_a_project_keeps_an_owner(store):
    store.create_user("bob")
    store.create_project("p", owner="ada")
    for wrong in (lambda: store.set_member("p", "ada", "writer"), lambda: store.remove_member("p", "ada")):
        with pytest.raises(DomainError, match="only owner"):
            wrong()
    store.set_member("p", "bob", "writer")
    with pytest.raises(DomainError, match="only owner"):
        store.remove_member("p", "ada")
    store.set_member("p", "bob", "owner")
    store.set_member("p", "ada", "reader")
    assert [(member.user, member.role, member.since) for member in store.members("p")] == [
        ("ada", "reader", START), ("bob", "owner", START),
    ]  # fmt: skip
    store.remove_member("p", "ada")
    with pytest.raises(UnknownNameError):
        store.remove_member("p", "ada")
    with pytest.raises(UnknownNameError):
        store.set_member("p", "bob", "king")


@pytest.mark.parametrize("key", ["writer_priority", "owner_priority"])
def test_the_priorities_of_members_have_limits(store, key):
    store.create_project("p")
    for wrong in (-101, 101):
        with pytest.raises(DomainError, match="from -100 to 100"):
            store.change_project("p", **{key: wrong})
    for right in (-100, 100):
        store.change_project("p", **{key: right})
        assert getattr(store.project("p"), key) == right


def test_a_link_opens_until_its_end_for_as_long_as_its_maker_sees_every_run(store, clock):
    store.create_project("p", owner="ada")
    first, second = store.add(profile(), "p"), store.add(profile(2), "p")
    text = store.create_link([first, second], user="ada", lasts_s=60)
    link = store.opened_link(text)
    assert (link.runs, link.user, link.created, link.expires) == ((first, second), "ada", START, START + 60)
    clock.now += 60 - A_MOMENT
    assert store.opened_link(text) == link
    assert store.links() == (link,)
    clock.now += A_MOMENT
    assert (store.opened_link(text), store.links()) == (None, ())
    anybody = store.create_link([first], user=None, lasts_s=60)
    mine = store.create_link([first, second], user="ada", lasts_s=60)
    assert [len(store.links(user=user)) for user in ("ada", "bob")] == [1, 0]
    assert len(store.links(user="bob", projects=frozenset({"p"}))) == 2
    store.delete(second)
    assert (store.opened_link(mine), store.opened_link(anybody).runs) == (None, (first,))
    store.revoke_link(store.opened_link(anybody).id)
    assert store.opened_link(anybody) is None


def test_an_administrators_link_shows_what_she_sees_by_a_token_that_holds(store, clock):
    hidden = store.add(profile(), "hidden")
    text = store.create_link([hidden], user="ada", lasts_s=600)
    assert store.opened_link(text) is None
    store.create_token("ada", scopes=["admin"], project="hidden")  # for one project only
    assert store.opened_link(text) is None
    store.create_token("ada", scopes=["admin"], lasts_s=60)
    assert store.opened_link(text).runs == (hidden,)
    clock.now += 60
    assert store.opened_link(text) is None


@pytest.mark.parametrize(
    ("identity", "joins", "name"),
    [
        (("id", "1", "ada@x.org"), False, "Ada@x.org"),  # she was invited by this address
        (("id", "2", "bob@x.org"), False, None),
        (("id", "2", "bob@x.org"), True, "bob@x.org"),
        (("id", "2", None), True, None),
    ],
)
def test_who_comes_through_a_provider_is_who_was_invited_or_who_may_join(store, identity, joins, name):
    store.create_user("Ada@x.org")
    assert store.identified(*identity, joins=joins) == name
    if name is not None:
        assert store.identified(*identity[:2], None, joins=False) == name  # known from now on
        assert store.identified("id", "9", identity[2], joins=True) is None  # another has the address
        assert store.identified("other", identity[1], None, joins=False) is None
        assert {user.name: user.email for user in store.users()}[name] == identity[2]


# The audit log


def test_an_entry_keeps_the_beginning_of_texts_that_are_too_long(store):
    """Who asks may write anything into them; what was done is not refused for it."""
    most = {"user": 100, "project": 100, "subject": 500, "detail": 2000, "address": 100}
    texts = {name: f"{name}{'é' * 3000}" for name in most}
    run = store.add(profile(), "p")
    store.doing(Deed(action="person.change", **texts)).tag(run, "t")
    (entry,) = store.audit()
    assert {name: getattr(entry, name) for name in most} == {name: texts[name][:size] for name, size in most.items()}


def test_entries_are_told_newest_first_and_narrowed_by_all_that_is_asked(store, clock):
    made = Deed(user="ada", action="run.add", project="p", subject=lambda runs: runs[0], address="1.2.3.4")
    store.doing(made).add(profile(), "p")
    clock.now += 1
    run = store.doing(replace(made, user="bob", project="q")).add(profile(), "q")
    clock.now += 1
    store.doing(Deed(user="ada", action="run.tag", subject=run)).tag(run, "t")  # its project is where the run is
    entries = store.audit()
    assert [(entry.at, entry.user, entry.action, entry.project) for entry in entries] == [
        (START + 2, "ada", "run.tag", "q"), (START + 1, "bob", "run.add", "q"), (START, "ada", "run.add", "p"),
    ]  # fmt: skip
    assert [entry.subject for entry in entries[:2]] == [run, run]

    def found(**wanted):
        return [entry.at - START for entry in store.audit(AuditFilter(**wanted))]

    assert (found(user="ada"), found(action="run.add"), found(user="ada", action="run.add")) == ([2, 0], [1, 0], [0])
    assert (found(projects=frozenset({"q"})), found(since=START + 1), found(before=entries[0].number)) == (
        [2, 1], [2, 1], [1, 0],
    )  # fmt: skip
    assert [entry.at - START for entry in store.audit(limit=1)] == [2]
    clock.now = START + 10
    assert store.forget_audit(older_s=9.0) == 1
    assert found() == [2, 1]


# What is kept


@pytest.mark.parametrize("rule", ["runs", "artifacts", "jobs"])
def test_what_is_just_as_old_as_its_rule_stays_and_a_moment_later_goes(store, clock, rule):
    file = Attachment(name="f", source=b"1")
    run = store.add(profile(), "p", attachments=[file])
    fleet = Fleet.of(store)
    fleet.register(DEVICES[0])
    fleet.cancel(submitted(fleet, project="p"))
    store.set_retention(Retention(project="p", **{f"{rule}_s": 60.0}))
    clock.now += 60
    assert store.apply_retention() == ()
    clock.now += A_MOMENT
    gone = (Deletion(project="p", rule=rule, count=1, at=pytest.approx(clock.now, abs=1e-6)),)
    assert store.apply_retention(dry_run=True) == gone
    assert store.apply_retention() == store.deletions() == gone
    left = (store.count(), len(store.get_artifacts(run)) if rule != "runs" else None, len(fleet.jobs()))
    assert left == {"runs": (0, None, 1), "artifacts": (1, 0, 1), "jobs": (1, 1, 0)}[rule]


def test_deletions_are_told_the_latest_first_and_a_link_keeps_a_run_up_to_its_end(store, clock):
    runs_ = [store.add(profile(number), "p") for number in (1, 2)]
    store.create_link(runs_[:1], user=None, lasts_s=100)
    store.set_retention(Retention(project="p", runs_s=10.0))
    clock.now += 100 - A_MOMENT
    assert [gone.count for gone in store.apply_retention()] == [1]
    assert store.apply_retention() == ()
    clock.now += A_MOMENT
    assert [gone.count for gone in store.apply_retention()] == [1]
    assert [gone.at for gone in store.deletions()] == [START + 100, pytest.approx(START + 100 - A_MOMENT, abs=1e-6)]
    assert len(store.deletions(most=1)) == 1
