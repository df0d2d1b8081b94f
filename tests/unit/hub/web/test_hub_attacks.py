"""What somebody with some rights may try for more of them, each against a real hub."""

import json
from urllib.parse import quote

import pytest

from fakes.fleet import a_job
from inferometer.core.codec import document
from inferometer.core.errors import UnknownNameError
from inferometer.store.queue import ending
from inferometer.store.queue.values import NewJob, Wanted
from unit.hub.web.samples import hub
from unit.hub.web.world import DATA, MODEL, SHA, World, registration

API, FLEET = "/api/v1", "/api/v1/fleet"
AGENT = f"{FLEET}/agent"
JSON = {"content-type": "application/json"}
LABELS = {"unit": ["cpu"], "runtime": ["onnxruntime"]}


@pytest.fixture
def world(tmp_path):
    """A hub for each test: what an attack leaves behind would be in the way of the next."""
    with hub(tmp_path, tokens=True, sign_ins=10**6, burst=10**6) as (store, client):
        made = World(store, client)
        assert made.ask("writer", "PUT", f"{FLEET}/artifacts/{SHA}?offset=0&size={len(DATA)}", content=DATA).is_success
        yield made


def registered(world, who, name, **more):
    return world.ask(who, "POST", f"{AGENT}/register", json={**registration(name), "labels": LABELS, **more})


def polled(world, who, device, wait_s=0.0):
    return world.ask(who, "POST", f"{AGENT}/poll", json={"device": device, "wait_s": wait_s})


def model_for(world, who, device):
    return world.ask(who, "GET", f"{AGENT}/artifacts/{SHA}?device={device}").status_code


def told(world, job, lease, counts, **said):
    event = {"schema": "inferometer.job-event/1", "job": "x", "number": 1, "at": 0.0, "kind": "notice", **said}
    events = [{"count": count, "event": event} for count in counts]
    body = {"device": "pi", "lease": lease, "now": 1.0, "events": events}
    return world.ask("agent", "POST", f"{AGENT}/jobs/{job}/events", json=body)


def test_a_device_that_is_taken_out_of_a_project_while_it_runs_a_job_has_neither_job_nor_model(world):
    job, lease = world.lease()
    assert model_for(world, "agent", "pi") == 200
    world.fleet.share("lab", "phones")
    assert world.ask("owner", "DELETE", f"{FLEET}/devices/pi/projects/phones").status_code == 204
    assert model_for(world, "agent", "pi") == 404
    assert polled(world, "agent", "pi").json() == {"job": None}
    assert told(world, job, lease, [1]).status_code == 409
    brought = {"device": "pi", "lease": lease, "result": world.result(job)}
    assert world.ask("agent", "POST", f"{AGENT}/jobs/{job}/result", json=brought).status_code == 409
    assert world.fleet.job(job).run is None
    assert world.fleet.device("pi").failures == 0  # nobody's fault
    world.given()


def test_a_token_that_is_revoked_while_its_agent_waits_gets_no_job(world):
    """Who waits was let in before: what counts is whether the token holds when a job is given away."""
    secret = world.store.create_token("agent", scopes=("agent",), project="phones")
    world.tokens["ending"] = secret.text
    assert registered(world, "ending", "waits").status_code == 200
    wanted = Wanted(device="waits")
    job, _ = world.fleet.submit(NewJob(job=a_job(50, model=MODEL), wanted=wanted, project="phones"))
    world.store.revoke_token(secret.token.id)
    assert world.fleet.lease_all({"waits": None}) == {}
    assert world.fleet.job(job.id).state == "queued"
    assert registered(world, "agent", "waits").status_code == 200  # it comes back with another one
    assert world.fleet.lease("waits").row.id == job.id


def test_somebody_who_leaves_a_project_takes_no_agent_along(world):
    """Their token for it ends, their devices leave it, and what those had goes back; a device of another stays."""
    name = world.new_member()
    world.tokens[name] = world.store.create_token(name, scopes=("write",)).text
    made = world.ask(name, "POST", f"{API}/tokens", json={"scopes": ["agent"], "project": "phones", "days": 1})
    world.tokens["limited"], world.tokens["free"] = (
        made.json()["text"], world.store.create_token(name, scopes=("agent",)).text,
    )  # fmt: skip
    for who, device in (("limited", "first"), ("free", "second")):
        assert registered(world, who, device).status_code == 200
    assert world.ask(name, "PUT", f"{FLEET}/devices/second/projects/phones").status_code == 204
    jobs = [
        world.fleet.submit(NewJob(job=a_job(n, model=MODEL), wanted=Wanted(device=device), project="phones"))[0].id
        for n, device in enumerate(("first", "second"))
    ]
    for who, device in (("limited", "first"), ("free", "second")):
        assert polled(world, who, device).json()["job"] is not None
        assert model_for(world, who, device) == 200
    assert world.ask("owner", "DELETE", f"{API}/projects/phones/members/{quote(name)}").status_code == 204
    assert (model_for(world, "limited", "first"), model_for(world, "free", "second")) == (401, 404)
    assert (polled(world, "limited", "first").status_code, polled(world, "free", "second").json()) == (
        401,
        {"job": None},
    )
    assert {world.fleet.job(job).state for job in jobs} == {"failed"}  # no other device was what they asked for
    assert world.fleet.projects_of("pi") == ("phones",)


def test_an_administrators_token_for_one_project_takes_over_no_device(world):
    world.tokens["some"] = world.store.create_token("outsider", scopes=("admin",), project="cars").text
    taken = registered(world, "some", "pi")
    assert taken.status_code == 400
    assert "agent" not in taken.json()["error"]  # nor whose it is
    assert world.fleet.device("pi").user == "agent"


def test_an_agent_that_never_stops_telling_fills_no_disk(world, monkeypatch):
    monkeypatch.setattr(ending, "_MOST_EVENTS", 50)
    job, lease = world.lease()
    for first in range(1, 200, 20):
        answer = told(world, job, lease, range(first, first + 20), text="x" * 10_000)
        assert answer.json()["written"] == first + 19  # it is heard, and need not say it again
    events = world.fleet.events(job)
    assert len(events) == 50
    assert max(len(event.text or "") for event in events) <= 4000


@pytest.mark.parametrize("state", ["done", "failed", "cancelled", "inconclusive"])
def test_an_agent_ends_no_job_by_an_event(world, state):
    job, lease = world.lease()
    assert told(world, job, lease, [1], kind="state", state=state).status_code == 200
    assert world.fleet.job(job).state == "preparing"
    assert not any(event.final for event in world.fleet.events(job))


def test_no_project_is_called_what_browsers_take_for_a_way_up(world):
    for name in (".", "..", "...", "phones\u200b", "phones\u202e", "a/b", " phones "):
        sent = {"content": json.dumps({"name": name}), "headers": JSON}
        assert world.ask("outsider", "POST", f"{API}/projects", **sent).status_code == 400, name


@pytest.mark.parametrize(
    "change",
    [
        {"workload": {"batch": -1}}, {"seconds_at_most": -5}, {"plan": {"runs": 10**18}}, {"id": "../../x"}, {"id": ""},
        {"command": ["sh"]}, {"verb": "exec"}, {"model": None}, {"options": {"a": json.loads("[" * 900 + "]" * 900)}},
        {"inputs": {"x": {"path": "../../etc/passwd", "sha256": SHA, "size_bytes": 1}}},
    ],
)  # fmt: skip
def test_a_job_with_a_field_that_cannot_be_is_refused_in_words(world, change):
    plain = {**document(a_job(1, model=MODEL)), **change}
    body = json.dumps({"job": plain, "project": "phones", "device": "pi"})
    refused = world.ask("writer", "POST", f"{FLEET}/jobs", content=body, headers=JSON)
    assert refused.status_code in {400, 422}
    assert refused.json()["error"]


def test_no_address_leads_around_the_guard(world):
    link = world.link()
    for path in (
        "/shared/%2e%2e/api/v1/runs", "/static/%2e%2e/%2e%2e/api.py", "/static/..%2f..%2fapi.py", "//api/v1/runs",
        "/shared/..%2fapi%2fv1%2fruns", f"/shared/{link}/..%2f..%2fruns", f"/shared/{link[:-1]}", f"/shared/{link}%00",
        "/sign-in/../api/v1/runs", "/api/v1/health/../runs", "/api/v1/health/x",
    ):  # fmt: skip
        assert world.client.get(path).status_code in {400, 401, 404}, path
    for to in (
        "/\t/evil.example",
        "/\\evil.example",
        "//evil.example",
        "https://evil.example",
        "/x\r\nset-cookie: a=b",
    ):
        given = {"token": world.tokens["reader"], "to": to}
        answer = world.client.post("/sign-in", data=given, follow_redirects=False)
        assert answer.headers["location"].startswith("/")
        assert not answer.headers["location"].startswith(("//", "/\\", "/\t"))
        assert "a=b" not in answer.headers.get("set-cookie", "")


def test_a_credential_is_good_for_one_way_in_and_makes_none_that_may_more(world):
    session = world.store.begin_session("owner")
    assert world.client.get(f"{API}/runs", headers={"authorization": f"Bearer {session}"}).status_code == 401
    cookie = {"cookie": f"inferometer_session={world.tokens['owner']}"}
    assert world.client.get(f"{API}/runs", headers=cookie).status_code == 401
    world.tokens["reads"] = world.store.create_token("owner", scopes=("read",)).text
    for who, body in (
        ("reads", {"scopes": ["agent"], "project": "phones", "days": 1}), ("reads", {"scopes": ["write"], "days": 1}),
        ("reads", {"scopes": ["read"], "user": "admin"}), ("reads", {"scopes": ["admin"]}),
        ("writer", {"scopes": ["agent"]}), ("writer", {"scopes": ["agent"], "project": "cars"}),
        ("writer", {"scopes": ["read"], "project": "cars"}),
    ):  # fmt: skip
        assert world.ask(who, "POST", f"{API}/tokens", json=body).status_code in {403, 404}, body


def test_a_link_ends_where_its_maker_does_not_see_the_run(world):
    name = world.new_member()
    world.tokens[name] = world.store.create_token(name, scopes=("write",)).text
    run = world.run(name)
    made = world.ask(name, "POST", f"{API}/links", json={"runs": [run]}).json()["link"]
    path = made[made.index("/shared/") :]
    assert world.client.get(path).status_code == 200
    assert world.ask("outsider", "DELETE", f"{API}/links/{world.store.links()[0].id}").status_code == 404
    world.store.move(run, "cars")
    assert world.client.get(path).status_code == 404
    world.store.move(run, "phones")
    world.store.remove_member("phones", name)
    assert world.client.get(path).status_code == 404


def test_a_job_goes_to_no_device_of_another_project(world):
    job = world.job()
    world.tokens["theirs"] = world.store.create_token("outsider", scopes=("agent",), project="cars").text
    assert registered(world, "theirs", "evil").status_code == 200
    assert world.ask("writer", "POST", f"{FLEET}/jobs/{job}/again", json={"device": "evil"}).status_code == 404
    for who in ("outsider", "writer"):  # who may not write there, and whose it is not
        assert world.ask(who, "PUT", f"{FLEET}/devices/evil/projects/phones").status_code == 404
    with pytest.raises(UnknownNameError):
        world.fleet.submit(NewJob(job=a_job(99, model=MODEL), wanted=Wanted(device="evil"), project="phones"))


@pytest.mark.parametrize(
    "change", [{"ended": "done", "profiles": []}, {"job": {"id": "x"}}, {"profiles": [1]}, {"log": "\x1b[2J" * 10**6}]
)
def test_an_answer_that_cannot_be_is_no_run(world, change):
    world.fleet.set_state("pi", "ready")  # whatever it has brought before
    job, lease = world.lease()
    body = {"device": "pi", "lease": lease, "result": {**world.result(job), **change}}
    answer = world.ask("agent", "POST", f"{AGENT}/jobs/{job}/result", json=body)
    assert answer.status_code == 422 or answer.json()["stored"] is False
    assert world.fleet.job(job).run is None
