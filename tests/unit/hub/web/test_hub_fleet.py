"""The fleet over HTTP: what agents and submitters say to a real hub, over a real socket."""

import hashlib
import json
import os
import threading
import time
from dataclasses import replace

import pytest
from markupsafe import escape
from sqlalchemy import select, update

from fakes.fleet import a_job, a_result, proof_of
from fakes.waiting import until
from inferometer.core.codec import document, encode
from inferometer.core.job import JobFile, JobModel
from inferometer.hub.fleet import desk
from inferometer.hub.fleet.desk import FleetDesk
from inferometer.hub.fleet.forecasting import Forecaster
from inferometer.hub.web.guard.rules import Rules
from inferometer.store.queue.fleet import Fleet
from inferometer.store.queue.values import LeaseCheck
from inferometer.store.tables import fleet_devices, fleet_jobs, runs
from unit.hub.web.samples import ENDING, HOSTILE, emptied, hub, network

DATA = bytes(range(256)) * 40
SHA = hashlib.sha256(DATA).hexdigest()
MODEL = JobModel(name="net", entry="net.onnx", files=(JobFile(path="net.onnx", sha256=SHA, size_bytes=len(DATA)),))
MADE = bytes(range(200)) * 10
MADE_SHA = hashlib.sha256(MADE).hexdigest()
API = "/api/v1/fleet"


def registration(name="pi", **labels):
    known = {"unit": ["cpu"], "runtime": ["onnxruntime"], **labels}
    return {
        "name": name,
        "protocol": 1,
        "labels": known,
        "facts": {"machine": {"cpu": "A76"}},
        "version": "1",
        "now": time.time(),
    }


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with hub(tmp_path_factory.mktemp("hub"), poll_most_s=60.0) as found:
        yield found


@pytest.fixture
def here(shared):
    store, client = shared
    return emptied(store), client


def said(response, status=200):
    assert response.status_code == status, response.text
    return response.json()


def sent(client, data=DATA, piece=4096):
    sha256 = hashlib.sha256(data).hexdigest()
    for offset in range(0, len(data), piece):
        place = f"{API}/artifacts/{sha256}?offset={offset}&size={len(data)}"
        state = said(client.put(place, content=data[offset : offset + piece]))
    return state


def submit(client, status=201, seed=1, **asked):
    job = a_job(seed, model=MODEL)
    return said(client.post(f"{API}/jobs", json={"job": document(job), **asked}), status)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model": {"name": "/etc/passwd"}}, "is a path, and the job brings no file of it"),
        ({"model": {"name": "no-such-model"}}, "no model of the catalog"),
        ({"reference": {"name": "etc"}}, "no model of the catalog"),
        ({"options": {"providers": ["files/evil.so"]}}, "names the provider 'files/evil.so'"),
        ({"options": {"invented": 1}}, "asks for 'invented'"),
        ({"runtime": "openvino", "options": {"options": {"CACHE_DIR": "x"}}}, "that a job may set named 'CACHE_DIR'"),
    ],
)
def test_a_job_with_a_path_or_an_unknown_option_is_refused_where_it_is_submitted(here, change, says):
    _, client = here
    plain = {**document(a_job(1, model=JobModel(name="resnet50"))), **change}
    refused = client.post(f"{API}/jobs", json={"job": plain})
    assert 400 <= refused.status_code < 500
    assert says in refused.json()["error"]
    assert said(client.get(f"{API}/jobs")) == []


def test_a_job_goes_from_its_submitter_to_an_agent_and_back(here):
    store, client = here
    said(client.post(f"{API}/agent/register", json=registration()))
    files = [{"sha256": SHA, "size_bytes": len(DATA)}]
    assert said(client.post(f"{API}/artifacts/missing", json=files)) == {"missing": {SHA: 0}}
    assert "is not here" in submit(client, 400)["error"]
    assert sent(client) == {"arrived": len(DATA), "complete": True}
    assert said(client.post(f"{API}/artifacts/missing", json=files)) == {"missing": {}}
    row = submit(client, project="phones")
    assert submit(client, 200, project="phones")["id"] == row["id"]
    lease = said(client.post(f"{API}/agent/poll", json={"device": "pi"}))
    assert (lease["id"], lease["job"]["id"]) == (row["id"], "profile-1")
    half = client.get(f"{API}/agent/artifacts/{SHA}?device=pi", headers={"range": "bytes=5000-"})
    assert (half.status_code, half.content) == (206, DATA[5000:])
    work, held = f"{API}/agent/jobs/{row['id']}", {"device": "pi", "lease": lease["lease"]}
    event = {"schema": "inferometer.job-event/1", "job": "profile-1", "number": 1, "at": 0.0, "kind": "state",
             "state": "running"}  # fmt: skip
    told = {**held, "now": 10.0, "events": [{"count": 1, "event": event}]}
    assert said(client.post(f"{work}/events", json=told))["written"] == 1
    assert said(client.post(f"{API}/jobs/{row['id']}/cancel"))["cancelling"]
    assert said(client.post(f"{API}/agent/beat", json={**held, "job": row["id"]}))["cancel"]
    assert said(client.get(f"{API}/jobs/{row['id']}/result"), 409)["error"].endswith("it is running.")
    result = a_result(a_job(model=MODEL), network(), ended="stopped")
    brought = {**held, "result": document(result), "reference": {"before_s": 1.0, "after_s": 1.01}}
    assert [said(client.post(f"{work}/result", json=brought))["again"] for _ in range(2)] == [False, True]
    ended = said(client.get(f"{API}/jobs/{row['id']}"))
    assert ended["state"] == "cancelled"
    assert store.get(ended["run"]).profile == network()
    assert said(client.get(f"{API}/jobs/{row['id']}/result")) == json.loads(encode(result))
    events = said(client.get(f"{API}/jobs/{row['id']}/events"))
    assert [event["state"] or event["text"] for event in events] == [
        "queued", "preparing", "running", "Cancelled by local.", "cancelled",
    ]  # fmt: skip
    assert abs(events[2]["at"] - time.time()) < 3600  # the agent's clock stood in 1970
    assert client.get(f"{API}/agent/artifacts/{SHA}?device=pi").status_code == 404  # its job has ended


def test_the_hub_drops_old_uploads_by_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(desk, "_TIDY_S", 0.0)
    with hub(tmp_path) as (store, client):
        said(client.put(f"{API}/artifacts/{SHA}?offset=0&size={len(DATA)}", content=DATA[:10]))
        parts = list((FleetDesk(store, Rules()).root / "incoming").iterdir())
        assert len(parts) == 2
        for part in parts:
            os.utime(part, (0, 0))
        until = time.monotonic() + 30
        while any(part.exists() for part in parts) and time.monotonic() < until:
            client.get(f"{API}/jobs")
        assert not any(part.exists() for part in parts)


def test_an_agent_that_waits_is_served_when_a_job_comes(here, monkeypatch):
    _, client = here
    waits, got = threading.Event(), []

    class Seen(desk._Waiter):
        def __init__(self, *given):
            super().__init__(*given)
            waits.set()

    monkeypatch.setattr(desk, "_Waiter", Seen)
    said(client.post(f"{API}/agent/register", json=registration()))
    sent(client)
    agent = threading.Thread(
        target=lambda: got.append(said(client.post(f"{API}/agent/poll", json={"device": "pi", "wait_s": 60})))
    )
    agent.start()
    assert waits.wait(60)
    row = submit(client)
    agent.join()
    assert got[0]["id"] == row["id"]  # when its wait is over it is told that there is none
    assert said(client.post(f"{API}/agent/poll", json={"device": "pi"}))["lease"] == got[0]["lease"]


def test_a_file_that_is_not_what_its_name_says_is_thrown_away(here):
    _, client = here
    wrong = client.put(f"{API}/artifacts/{SHA}?offset=0&size={len(DATA)}", content=DATA[::-1])
    assert "another hash" in said(wrong, 400)["error"]
    gap = client.put(f"{API}/artifacts/{SHA}?offset=99&size={len(DATA)}", content=DATA[99:])
    assert "from byte 0 on" in said(gap, 400)["remedy"]
    assert client.put(f"{API}/artifacts/{SHA}?offset=0&size=5", content=b"123456").status_code == 400
    assert sent(client)["complete"]
    assert sent(client)["complete"]


def test_what_nobody_can_take_is_refused(here):
    _, client = here
    sent(client)
    assert "No device is registered" in submit(client, 400)["error"]
    said(client.post(f"{API}/agent/register", json=registration()))
    assert "unit=npu" in submit(client, 400, labels={"unit": "npu"})["error"]
    assert "'pie'" in submit(client, 404, device="pie")["error"]
    newer = {**registration(), "protocol": 99}
    assert "newer than the hub" in said(client.post(f"{API}/agent/register", json=newer), 400)["error"]


def test_a_token_of_an_agent_opens_what_an_agent_needs_and_nothing_else(tmp_path):
    with hub(tmp_path, tokens=True) as (store, client):
        for user in ("ada", "bob"):
            store.create_user(user)
        for project in ("phones", "default"):
            store.create_project(project, owner="bob")
        agent, writer, other = (
            {"authorization": f"Bearer {store.create_token(user, scopes=[scope], project=project).text}"}
            for user, scope, project in (("ada", "agent", "phones"), ("bob", "write", None), ("bob", "agent", None))
        )
        poll = f"{API}/agent/poll"
        said(client.post(f"{API}/agent/register", json=registration(), headers=agent))
        for path in ("/api/v1/runs", f"{API}/jobs", f"{API}/devices", "/"):
            assert client.get(path, headers=agent).status_code == 403
        assert client.put(f"{API}/artifacts/{SHA}?offset=0&size=1", headers=agent).status_code == 403
        assert client.post(poll, json={"device": "pi"}, headers=writer).status_code == 403
        assert client.post(poll, json={"device": "pi"}, headers=other).status_code == 403
        assert client.post(poll, json={"device": "pi"}).status_code == 401
        client.headers.update(writer)
        sent(client)
        assert "works for this project" in submit(client, 400, project="secret")["error"]
        store.create_project("secret", owner="bob")  # which a job that is refused does not
        Fleet.of(store).share("pi", "secret")
        secret, open_ = submit(client, project="secret"), submit(client, project="phones", seed=2)
        assert client.get(f"{API}/agent/artifacts/{SHA}?device=pi", headers=agent).status_code == 404
        lease = said(client.post(poll, json={"device": "pi"}, headers=agent))
        assert lease["id"] == open_["id"]  # not the older one, of another project
        assert client.get(f"{API}/agent/artifacts/{SHA}?device=pi", headers=agent).content == DATA
        assert (secret["user"], secret["state"]) == ("bob", "queued")
        elsewhere = store.create_token("ada", scopes=["agent"], project="default").text
        of_default = {"authorization": f"Bearer {elsewhere}"}
        for asks in (
            client.get(f"{API}/agent/artifacts/{SHA}?device=pi", headers=of_default),
            client.post(poll, json={"device": "pi"}, headers=of_default),
        ):
            assert "has a job of another project than default" in said(asks, 403)["error"]
        token = next(token for token in store.tokens("ada") if token.project == "phones")
        store.revoke_token(token.id)
        assert client.post(poll, json={"device": "pi"}, headers=agent).status_code == 401


def test_a_device_is_taken_out_and_put_back(here):
    store, client = here
    said(client.post(f"{API}/agent/register", json=registration()))
    sent(client)
    submit(client)
    out = said(client.patch(f"{API}/devices/pi", json={"state": "maintenance", "reason": "A new fan."}))
    assert (out["state"], out["reason"], out["away"], out["trust"]["grade"]) == (
        "maintenance", "A new fan. (local)", False, "ungraded",
    )  # fmt: skip
    assert said(client.post(f"{API}/agent/poll", json={"device": "pi"})) == {"job": None}
    said(client.patch(f"{API}/devices/pi", json={"state": "ready"}))
    assert said(client.post(f"{API}/agent/poll", json={"device": "pi"}))["job"]
    assert "is measuring job" in said(client.delete(f"{API}/devices/pi"), 400)["error"]
    Fleet.of(store).look_after()


def test_the_pages_tell_what_happens_and_escape_what_agents_say(here):
    store, client = here
    hostile = {**registration(), "version": HOSTILE, "facts": {"machine": {HOSTILE: ENDING}}}
    hostile["facts"]["calibrations"] = [{"sha256": HOSTILE, "runtime": HOSTILE}]
    said(client.post(f"{API}/agent/register", json=hostile))
    sent(client)
    fleet = Fleet.of(store)
    for seed in range(6):
        row = submit(client, seed=seed, name=f"{HOSTILE} {seed}")
        lease = fleet.lease("pi")
        check = LeaseCheck(before_s=1.0, after_s=1.0 + seed / 50, moved=seed == 5)
        fleet.finish(row["id"], lease.id, a_result(a_job(seed, model=MODEL), network()), check)
    waits = submit(client, seed=7)
    jobs = (f"/fleet/jobs/{row['id']}", f"/fleet/jobs/{waits['id']}")
    pages = {path: client.get(path) for path in ("/fleet", "/fleet/queue", "/fleet/devices/pi", *jobs)}
    assert {page.status_code for page in pages.values()} == {200}
    assert not any("<img" in page.text or "</script><script>" in page.text for page in pages.values())
    assert "reference moved" in pages["/fleet/queue"].text
    assert "The reference moved by more than 5% within 1 of them" in pages["/fleet/devices/pi"].text
    assert f'href="/fleet/jobs/{row["id"]}#again"' in client.get(f"/runs/{fleet.job(row['id']).run}").text
    assert client.get("/fleet/devices/nowhere").status_code == client.get("/fleet/jobs/nowhere").status_code == 404
    again = said(client.post(f"{API}/jobs/{row['id']}/again", json={"device": "pi"}), 201)
    assert (again["id"] != row["id"], again["wanted"]["device"]) == (True, "pi")


def held(client, **asked):
    """A device with a job: the job's row, where an agent speaks of it, and what it says of itself."""
    said(client.post(f"{API}/agent/register", json=registration()))
    sent(client)
    row = submit(client, **asked)
    lease = said(client.post(f"{API}/agent/poll", json={"device": "pi"}))
    return row, f"{API}/agent/jobs/{row['id']}", {"device": "pi", "lease": lease["lease"]}


def test_fifty_profiles_of_another_model_are_set_aside_and_no_run_of_anybody(here):
    store, client = here
    row, work, agent = held(client)
    lies = a_result(a_job(model=MODEL), *[network(name="another") for _ in range(50)])
    heard = said(client.post(f"{work}/result", json={**agent, "result": document(lies)}))
    assert heard == {"stored": False, "again": False, "doubt": "It has 50 profiles, and the job asks for 1."}
    assert said(client.get(f"{API}/jobs/{row['id']}"))["state"] == "queued"
    with store.database.reading() as connection:
        assert connection.execute(select(runs.c.id)).all() == []
    device = said(client.get(f"{API}/devices/pi"))
    assert (device["faults"], device["failures"], device["fails_often"]) == (1, 1, False)
    page = client.get("/fleet/devices/pi").text
    assert "It has 50 profiles, and the job asks for 1. <span" in page
    assert "The answer is set aside." in page


def a_prepared(name="net-i8.onnx", **proof):
    job = replace(a_job(model=MODEL), verb="prepare")
    made = JobFile(path=name, sha256=MADE_SHA, size_bytes=len(MADE))
    return job, replace(a_result(job, network()), made=(made,), prepared=proof_of(name, **proof))


def test_a_prepared_model_comes_with_its_proof_and_is_its_run_s_to_take_away(here):
    store, client = here
    job, result = a_prepared()
    row, work, agent = held(client, job=document(job))
    brought = {**agent, "result": document(result)}
    for offset in (0, 1000):  # piece by piece, before the result that names it
        piece = {**agent, "offset": offset, "size": len(MADE)}
        assert client.put(f"{work}/files/{MADE_SHA}", params=piece, content=MADE[offset:][:1000]).is_success
    assert said(client.post(f"{work}/result", json=brought))["stored"]
    run = said(client.get(f"{API}/jobs/{row['id']}"))["run"]
    assert {file.name for file in store.get(run).artifacts} == {"net-i8.onnx", "prepared.json"}
    assert client.get(f"/runs/{run}/files/net-i8.onnx").content == MADE
    page = client.get(f"/runs/{run}").text
    assert "Prepared as i8 for onnxruntime" in page
    assert f'href="/runs/{run}/files/net-i8.onnx"' in page
    link = said(client.post("/api/v1/links", json={"runs": [run]}), 201)["link"]
    shared = client.get(f"/shared/{link.rpartition('/')[2]}").text
    assert "Prepared as i8" in shared
    assert "files/net-i8.onnx" not in shared


@pytest.mark.parametrize(
    ("name", "doubt"), [("net-i8.onnx", "has not brought it"), ("prepared.json", "calls one of its own")]
)
def test_a_file_that_nobody_brought_or_that_would_be_the_hub_s_own_is_not_taken(here, name, doubt):
    _, client = here
    job, result = a_prepared(name)
    _, work, agent = held(client, job=document(job))
    assert doubt in said(client.post(f"{work}/result", json={**agent, "result": document(result)}))["doubt"]


def test_only_the_device_that_has_the_job_brings_files_and_none_that_is_too_large(here):
    _, client = here
    job, _ = a_prepared()
    _, work, agent = held(client, job=document(job))
    piece = {"offset": 0, "size": len(MADE)}
    other = client.put(f"{work}/files/{MADE_SHA}", params={**agent, "lease": "x", **piece}, content=MADE)
    assert other.status_code == 409
    large = client.put(f"{work}/files/{MADE_SHA}", params={**agent, "offset": 0, "size": 10**12}, content=MADE)
    assert (large.status_code, "at most" in large.json()["error"]) == (413, True)


def test_an_answer_that_is_refused_says_so_in_one_sentence_and_disturbs_nothing(here):
    _, client = here
    row, work, agent = held(client)
    said(client.post(f"{API}/agent/register", json=registration("box")))
    result = {"result": document(a_result(a_job(model=MODEL), network()))}
    wrong = client.post(f"{work}/result", json={**agent, "device": "box", **result})
    assert "is not leased under" in said(wrong, 409)["error"]
    assert client.post(f"{API}/agent/jobs/{'0' * 12}/result", json={**agent, **result}).status_code == 404
    assert said(client.post(f"{work}/result", json={**agent, **result}))["stored"]
    again = document(a_result(a_job(model=MODEL), network(seed=2)))
    assert (
        "has its answer already" in said(client.post(f"{work}/result", json={**agent, "result": again}), 409)["error"]
    )
    assert said(client.get(f"{API}/jobs/{row['id']}"))["state"] == "done"
    assert "lease" not in said(client.get(f"{API}/jobs/{row['id']}"))  # nobody else can speak for the device


def test_older_clients_read_failed_where_a_job_is_inconclusive(here):
    store, client = here
    row, _, agent = held(client)
    Fleet.of(store).lack_file(SHA, row["id"])
    path = f"{API}/jobs/{row['id']}/events"
    assert said(client.get(path))[-1]["state"] == "failed"
    assert said(client.get(path, params={"inconclusive": "true"}))[-1]["state"] == "inconclusive"
    assert said(client.get(f"{API}/jobs/{row['id']}/result"))["ended"] == "lost"
    assert [job["id"] for job in said(client.get(f"{API}/jobs?state=inconclusive"))] == [row["id"]]
    queue = client.get("/fleet/queue").text
    assert ">inconclusive<" in queue
    assert str(escape(said(client.get(f"{API}/jobs/{row['id']}"))["reason"])) in queue  # why stands beside it
    assert client.post(f"{API}/agent/beat", json={**agent, "job": row["id"]}).status_code == 409


def test_a_copy_of_the_hub_that_is_damaged_is_thrown_away_and_asked_for_again(here):
    store, client = here
    row, work, agent = held(client)
    complaint = {**agent, "sha256": SHA}
    assert said(client.post(f"{work}/damaged", json=complaint)) == {"damaged": False}
    assert client.post(f"{work}/damaged", json={**agent, "sha256": "0" * 64}).status_code == 404
    copy = FleetDesk(store, Rules()).artifacts.path(SHA)
    copy.write_bytes(DATA[:100] + b"sixsix" + DATA[106:])
    assert said(client.post(f"{work}/damaged", json=complaint)) == {"damaged": True}
    ended = said(client.get(f"{API}/jobs/{row['id']}"))
    assert (ended["state"], copy.exists()) == ("inconclusive", False)
    assert ended["reason"] == "The hub's copy of net.onnx was damaged or lost, and is thrown away."
    files = [{"sha256": SHA, "size_bytes": len(DATA)}]
    assert said(client.post(f"{API}/artifacts/missing", json=files)) == {"missing": {SHA: 0}}
    sent(client)
    assert submit(client)["id"] != row["id"]


def test_a_device_that_fails_often_is_asked_for_its_reference_first(here):
    store, client = here
    said(client.post(f"{API}/agent/register", json={**registration(), "probes": True}))
    sent(client)
    fleet = Fleet.of(store)
    for seed in (1, 2):
        row = submit(client, seed=seed)
        fleet.give_back(row["id"], fleet.lease("pi").id, "The disk is full.", counts=True)
        fleet.cancel(row["id"])
    submit(client, seed=3)
    poll = {"device": "pi", "wait_s": 1}
    assert said(client.post(f"{API}/agent/poll", json=poll)) == {"job": None, "probe": True}
    assert "fails often" in client.get("/fleet").text
    assert "before it gets another job it runs its reference" in client.get("/fleet/devices/pi").text
    assert said(client.post(f"{API}/agent/probe", json={"device": "pi", "reference_s": 0.1}))["state"] == "ready"
    assert said(client.post(f"{API}/agent/poll", json=poll))["job"]["id"] == "profile-3"


def test_a_job_that_hangs_is_seen_to(here):
    store, client = here
    row, work, agent = held(client)
    running = {"schema": "inferometer.job-event/1", "job": "profile-1", "number": 1, "at": 0.0, "kind": "state",
               "state": "running"}  # fmt: skip
    said(client.post(f"{work}/events", json={**agent, "now": 1.0, "events": [{"count": 1, "event": running}]}))
    fleet = Fleet.of(store)
    fleet.expect(row["id"], 5.0, "a test")
    earlier = update(fleet_jobs).values(
        leased_us=fleet_jobs.c.leased_us - 10**9, heard_us=fleet_jobs.c.heard_us - 10**9
    )
    store.database.write(lambda connection: connection.execute(earlier))
    fleet.look_after()
    assert said(client.get(f"{API}/jobs/{row['id']}"))["late"]
    for page in ("/fleet/queue", f"/fleet/jobs/{row['id']}"):
        text = client.get(page).text
        assert ">late<" in text
        assert "nothing new for 17 min" in text
    assert 'class="stuck"' in client.get("/fleet/queue").text


def test_a_token_that_is_revoked_in_mid_job_gives_the_job_back_within_seconds(tmp_path):
    with hub(tmp_path, tokens=True) as (store, client):
        store.create_user("ada")
        made = store.create_token("ada", scopes=["agent"])
        agent = {"authorization": f"Bearer {made.text}"}
        client.headers.update({"authorization": f"Bearer {store.create_token('ada', scopes=['write']).text}"})
        said(client.post(f"{API}/agent/register", json=registration(), headers=agent))
        store.create_project("default", owner="ada")
        Fleet.of(store).share("pi", "default")
        sent(client)
        row = submit(client)
        said(client.post(f"{API}/agent/poll", json={"device": "pi"}, headers=agent))
        store.revoke_token(made.token.id)
        until(lambda: said(client.get(f"{API}/jobs/{row['id']}"))["state"] == "queued", "giving the job back")
        found = said(client.get(f"{API}/jobs/{row['id']}"))
        assert found["reason"] == "The token of its agent does not hold any more."


def test_a_job_whose_device_is_silent_looks_it(here):
    store, client = here
    held(client)
    assert "device is silent</span>" not in client.get("/fleet/queue").text
    earlier = update(fleet_devices).values(heartbeat_us=fleet_devices.c.heartbeat_us - 10**9)
    store.database.write(lambda connection: connection.execute(earlier))
    queue = client.get("/fleet/queue").text
    assert "device is silent</span>" in queue
    assert 'class="stuck"' in queue


def test_a_job_that_waits_says_how_many_come_first(here, monkeypatch):
    _, client = here
    monkeypatch.setattr(Forecaster, "ask", lambda *_: None)  # what is expected is said below
    row, _, _ = held(client)
    Fleet.of(here[0]).expect(row["id"], 1000.0, "a test")
    waiting = [submit(client, seed=seed) for seed in (2, 3)]
    for job in waiting:
        Fleet.of(here[0]).expect(job["id"], 5.0, "a test")
    places = [said(client.get(f"{API}/jobs/{job['id']}")) for job in waiting]
    assert [place["ahead"] for place in places] == [0, 1]
    assert places[1]["begins_s"] == pytest.approx(places[0]["begins_s"] + 5.0, abs=1.0)
    assert "ahead" not in said(client.get(f"{API}/jobs/{row['id']}"))  # it waits no more
