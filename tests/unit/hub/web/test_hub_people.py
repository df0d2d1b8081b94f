"""Tokens that people make themselves, members, share links, and the log of who did what."""

import csv
import io
import re
import time

import httpx
import pytest
from click.testing import CliRunner

from inferometer.cli.commands.hub import command
from inferometer.hub.web.guard.rules import Rules
from inferometer.hub.web.serving import hub_in_thread
from inferometer.store import open_store
from inferometer.store.audit import AuditFilter, Deed
from inferometer.store.errors import StoreError
from inferometer.store.queue.devices import Registrar
from inferometer.store.queue.values import NewDevice
from unit.hub.web.samples import HOSTILE, hub, network
from unit.hub.web.world import DATA, SHA, World, profile_body

API = "/api/v1"
DAY = 86_400.0


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    limits = {"sign_ins": 10**6, "burst": 10**6}
    with hub(tmp_path_factory.mktemp("hub"), tokens=True, **limits) as (store, client):
        yield World(store, client)


def as_(text):
    return {"authorization": f"Bearer {text}"}


# Tokens


def test_a_token_may_do_no_more_than_who_makes_it(world):
    read = as_(world.store.create_token("owner", scopes=("read",)).text)
    make = f"{API}/tokens"
    assert world.client.post(make, json={"scopes": ["read"]}, headers=read).status_code == 201
    assert world.client.post(make, json={"scopes": ["write"]}, headers=read).status_code == 403
    for who, wanted in (
        ("owner", {"scopes": ["admin"]}),
        ("owner", {"scopes": ["agent"]}),  # for which project?
        ("reader", {"scopes": ["agent"], "project": "phones"}),
        ("owner", {"scopes": ["read"], "user": "writer"}),
    ):
        assert world.ask(who, "POST", make, json=wanted).status_code == 403, wanted
    assert world.ask("owner", "POST", make, json={"scopes": ["read"], "project": "cars"}).status_code == 404
    assert world.ask("writer", "POST", make, json={"scopes": ["agent"], "project": "phones"}).status_code == 201
    made = world.ask("admin", "POST", make, json={"scopes": ["admin"], "user": "writer"}).json()
    assert made["user"] == "writer"


def test_a_token_does_not_outlast_the_one_it_was_made_with(world):
    short = as_(world.store.create_token("owner", scopes=("write",), lasts_s=2 * DAY).text)
    assert world.client.post(f"{API}/tokens", json={"days": 3}, headers=short).status_code == 403
    assert world.client.post(f"{API}/tokens", json={"days": 1}, headers=short).status_code == 201


def test_a_token_for_one_project_makes_tokens_for_it_only(world):
    limited = as_(world.store.create_token("owner", scopes=("write",), project="phones").text)
    assert world.client.post(f"{API}/tokens", json={}, headers=limited).status_code == 403
    assert world.client.post(f"{API}/tokens", json={"project": "phones"}, headers=limited).status_code == 201


def test_a_new_token_is_shown_once_and_opens_the_hub(world):
    made = world.ask("owner", "POST", f"{API}/tokens", json={"name": "ci"}).json()
    assert world.client.get("/projects/phones", headers=as_(made["text"])).status_code == 200
    listed = world.ask("owner", "GET", f"{API}/tokens")
    assert made["text"] not in listed.text
    assert {token["user"] for token in listed.json()} == {"owner"}
    assert world.ask("owner", "DELETE", f"{API}/tokens/{made['id']}").status_code == 204
    assert world.client.get("/projects/phones", headers=as_(made["text"])).status_code == 401


def test_the_settings_name_my_tokens_sessions_and_roles(world):
    world.store.create_token("reader", name=HOSTILE)
    page = world.ask("reader", "GET", "/settings").text
    assert "reader of" in page
    assert HOSTILE not in page
    assert "&lt;img" in page
    members = world.ask("reader", "GET", "/projects/phones/settings").text
    assert 'id="new-member"' not in members  # only owners add
    assert 'id="new-member"' in world.ask("owner", "GET", "/projects/phones/settings").text


# Members


def test_an_owner_adds_changes_and_removes_members(world):
    place = f"{API}/projects/phones/members"
    assert world.ask("owner", "PUT", f"{place}/nobody known", json={"role": "reader"}).status_code == 404
    assert world.ask("owner", "PUT", f"{place}/new@example.org", json={"role": "reader"}).status_code == 204
    assert world.ask("owner", "PUT", f"{place}/new@example.org", json={"role": "writer"}).status_code == 204
    roles = {member["user"]: member["role"] for member in world.ask("reader", "GET", place).json()}
    assert roles["new@example.org"] == "writer"
    assert world.ask("owner", "DELETE", f"{place}/new@example.org").status_code == 204
    last = world.ask("owner", "DELETE", f"{place}/owner")
    assert (last.status_code, "only owner" in last.json()["error"]) == (400, True)
    assert world.ask("owner", "PUT", f"{place}/owner", json={"role": "reader"}).status_code == 400


def test_whoever_wants_to_leaves(world):
    name = world.new_member()
    text = world.store.create_token(name, scopes=("write",)).text
    assert world.client.delete(f"{API}/projects/phones/members/{name}", headers=as_(text)).status_code == 204
    assert world.client.get("/projects/phones", headers=as_(text)).status_code == 404


def test_an_owner_does_not_lift_their_own_ceiling(world):
    place = f"{API}/projects/phones"
    assert world.ask("owner", "PATCH", place, json={"owner_priority": 51}).status_code == 403
    assert world.ask("owner", "PATCH", place, json={"writer_priority": 20}).json()["writer_priority"] == 20
    assert world.ask("admin", "PATCH", place, json={"owner_priority": 60}).status_code == 200
    world.store.change_project("phones", writer_priority=10, owner_priority=50)


# Share links


def shared(world, *runs, who="writer", **asked):
    answer = world.ask(who, "POST", f"{API}/links", json={"runs": list(runs), **asked})
    assert answer.status_code == 201, answer.text
    return httpx.URL(answer.json()["link"]).path


def test_a_link_opens_its_run_and_nothing_else(world):
    run, other = world.run(), world.run()
    path = shared(world, run)
    found = world.client.get(path)
    assert (found.status_code, run in found.text, "Change" in found.text) == (200, True, False)
    assert found.headers["x-robots-tag"].startswith("noindex")
    assert found.headers["referrer-policy"] == "no-referrer"
    assert found.headers["cache-control"] == "no-store"
    for part in ("/explanation", "/dataflow.svg", "/graph.json", "/charts/layers.json"):
        assert f"{path}{part}" in found.text or part == "/charts/layers.json"
        assert world.client.get(path + part).status_code == 200
    for beyond in (f"/runs/{run}", f"/runs/{other}", f"{API}/runs/{run}", "/", f"{API}/projects", "/projects/phones"):
        assert world.client.get(beyond).status_code == 401
    assert world.client.get(path, params={"run": other}).text.count(other) == 0
    for beyond in ("/export/json", "/files/x", "/live", f"/../runs/{other}"):
        assert world.client.get(path + beyond).status_code in {401, 404}
    text = path.rpartition("/")[2]
    assert world.client.get(f"/runs/{run}", headers=as_(text)).status_code == 401  # it is no token
    assert text.encode() not in world.store.location.file.read_bytes()


def test_a_link_to_a_comparison_shows_it_without_ways_out(world):
    path = shared(world, world.run(), world.run())
    page = world.client.get(path)
    assert (page.status_code, 'href="/runs/' in page.text, "as baseline" in page.text) == (200, False, False)
    assert world.client.get(f"{path}/explanation").status_code == 404


def test_a_link_ends_by_time_by_hand_and_with_its_makers_right(tmp_path):
    clock = [time.time()]
    with (
        open_store(tmp_path / "runs.db", clock=lambda: clock[0]) as store,
        hub_in_thread(store, Rules(tokens=True, sign_ins=10**6)) as address,
        httpx.Client(base_url=address, timeout=120, verify=False) as client,  # noqa: S501 - no TLS, whose roots take a while
    ):
        world = World(store, client)
        run = world.run()
        path = shared(world, run)
        clock[0] += 6.9 * DAY
        assert client.get(path).status_code == 200
        clock[0] += 0.2 * DAY
        assert client.get(path).status_code == 404
        path = shared(world, run, days=30)
        (link,) = world.ask("writer", "GET", f"{API}/links").json()
        assert world.ask("reader", "GET", f"{API}/links").json() == []
        assert world.ask("owner", "DELETE", f"{API}/links/{link['id']}").status_code == 204
        assert client.get(path).status_code == 404
        path = shared(world, run)
        world.store.remove_member("phones", "writer")
        assert client.get(path).status_code == 404
        world.store.set_member("phones", "writer", "writer")
        assert client.get(path).status_code == 200
        world.store.move(run, "cars")
        assert client.get(path).status_code == 404
        by_admin = shared(world, run, who="admin")
        assert client.get(by_admin).status_code == 200
        store.delete(run)
        assert client.get(by_admin).status_code == 404


def test_guessed_links_are_slowed_and_right_ones_are_not(tmp_path):
    with hub(tmp_path, tokens=True, sign_ins=3) as (store, client):
        world = World(store, client)
        path = f"/shared/{world.link()}"
        guessed = [client.get(f"/shared/ifl_{number:043}").status_code for number in range(5)]
        assert guessed == [404] * 3 + [429] * 2
        assert client.get(path).status_code == 200


def test_a_reader_shares_nothing_and_nobody_shares_what_they_do_not_see(world):
    run = world.run()
    assert world.ask("reader", "POST", f"{API}/links", json={"runs": [run]}).status_code == 403
    assert world.ask("outsider", "POST", f"{API}/links", json={"runs": [run]}).status_code == 404


# The audit log


def test_a_devices_page_names_no_project_that_its_reader_does_not_see(world):
    owner = Registrar(user="agent", project="phones", everyone=False)
    world.fleet.register(NewDevice(name="shared", labels={"unit": ("dsp",)}, version="1"), owner)
    world.fleet.share("shared", "cars")
    shown = {}
    for who in ("reader", "outsider", "admin"):
        page = world.ask(who, "GET", "/fleet/devices/shared").text
        shown[who] = re.search(r"<th>works for</th><td>(.*?)</td>", page)[1]
    assert shown == {"reader": "phones", "outsider": "cars", "admin": "cars, phones"}


def test_every_write_is_noted_with_who_and_from_where(world):
    before = len(world.store.audit(limit=10_000))
    ask, run = world.ask, world.run("writer")
    job = {"content": profile_body(), "headers": {"content-type": "application/json"}}
    world.client.post("/sign-in", data={"token": world.tokens["writer"]})
    world.client.post("/sign-out")
    ask("writer", "POST", f"{API}/profiles?project=phones", **job)
    ask("writer", "PATCH", f"{API}/runs/{run}", json={"name": "new", "add_tags": ["good"]})
    ask("writer", "GET", f"/runs/{run}/export/csv")
    ask("writer", "DELETE", f"{API}/runs/{run}")
    shared(world, world.run())
    ask("writer", "PUT", f"{API}/fleet/artifacts/{SHA}?offset=0&size={len(DATA)}", content=DATA)
    ask("owner", "POST", f"{API}/fleet/jobs/{world.job()}/cancel")
    ask("owner", "PATCH", f"{API}/fleet/devices/pi", json={"state": "ready"})
    ask("owner", "PUT", f"{API}/projects/phones/members/reader", json={"role": "reader"})
    ask("owner", "POST", f"{API}/tokens", json={})
    ask("owner", "POST", f"{API}/projects", json={"name": "audited"})
    ask("reader", "PATCH", f"{API}/runs/{world.run()}", json={"name": "refused"})  # nothing is done, nothing noted
    entries = list(reversed(world.store.audit(limit=len(world.store.audit(limit=10_000)) - before)))
    assert [entry.action for entry in entries] == [
        "sign-in", "sign-out", "run.add", "run.change", "run.change", "run.export", "run.delete", "link.create",
        "job.cancel", "device.state", "member.set", "token.create", "project.create",
    ]  # fmt: skip
    assert {entry.address for entry in entries} == {"127.0.0.1"}
    assert all(entry.token or entry.session for entry in entries)
    change = entries[3]
    assert (change.user, change.project, change.subject, change.detail) == ("writer", "phones", run, "+good")
    assert entries[2].subject in {row.id for row in world.store.list().rows}


def test_an_entry_is_written_with_what_it_tells_of_or_not_at_all(tmp_path):
    with open_store(tmp_path / "runs.db") as store:
        doing = store.doing(Deed(user="ann", action="project.create", project="phones"))
        doing.create_project("phones")
        with pytest.raises(Exception, match="already"):
            doing.create_project("phones")
        assert len(store.audit()) == 1


def test_the_log_is_only_added_to_and_forgets_by_age(tmp_path):
    now = [1e9]
    with open_store(tmp_path / "runs.db", clock=lambda: now[0]) as store:
        store.create_project("phones")
        for day in range(3):
            now[0] = 1e9 + day * DAY
            store.doing(Deed(user="ann", action="x", project="phones")).note_deed()
        with pytest.raises(StoreError, match="not changed"):
            store.database.write(lambda c: c.exec_driver_sql("UPDATE audit SET user = 'bob'"))
        assert store.forget_audit(older_s=1.5 * DAY) == 1
        assert len(store.audit()) == 2
        store.delete_project("phones")  # its name stays, and nobody who makes one of that name reads it
        store.create_project("phones")
        assert {entry.project for entry in store.audit()} == {"phones"}
        assert store.audit(AuditFilter(projects=frozenset({"phones"}))) == ()


def test_an_owner_reads_their_projects_log_and_no_other(world):
    world.ask("outsider", "PATCH", f"{API}/projects/cars", json={"description": "secret cars"})
    mine = world.ask("owner", "GET", f"{API}/audit?limit=10000").json()
    assert {entry["project"] for entry in mine} <= {"phones", "audited"}
    assert "secret cars" not in world.ask("owner", "GET", "/audit").text
    assert "secret cars" in world.ask("admin", "GET", "/audit").text
    assert world.ask("owner", "GET", f"{API}/audit?project=cars").status_code == 404


def test_a_spreadsheet_takes_no_name_for_a_formula(world):
    run = world.run()
    world.ask("writer", "PATCH", f"{API}/runs/{run}", json={"add_tags": ["=1+2"]})
    world.ask("writer", "DELETE", f"{API}/runs/{run}")
    text = world.ask("owner", "GET", f"{API}/audit?project=phones&format=csv").text
    cells = [cell for line in csv.reader(io.StringIO(text)) for cell in line]
    assert not any(cell.startswith(("=", "+", "@")) for cell in cells)


def test_the_command_lists_and_exports_the_log(tmp_path):
    def told(*words):
        found = CliRunner().invoke(command, [*words, "--store", str(tmp_path / "runs.db")])
        assert found.exit_code == 0, found.output
        return found.stdout

    told("member", "add", "phones", "ann", "--role", "owner")
    told("token", "create", "ann")
    lines = told("audit", "--project", "phones", "--format", "csv")
    assert "member.set,phones,ann,owner" in lines
    assert "token.create" not in lines
    assert '"token.create"' in told("audit", "--format", "json", "--since", "1d")


def test_runs_of_a_local_hub_are_shared_too(tmp_path):
    with hub(tmp_path) as (store, client):
        run = store.add(network(3))
        link = client.post(f"{API}/links", json={"runs": [run]}).json()["link"]
        assert client.get(httpx.URL(link).path).status_code == 200
