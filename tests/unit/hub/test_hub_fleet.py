"""The fleet over HTTP: what agents and submitters say to a real hub, over a real socket."""

import hashlib
import json
import threading
import time

import pytest

from fakes.fleet import a_job, a_result
from inferometer.core.codec import document, encode
from inferometer.core.job import JobFile, JobModel
from inferometer.store.queue.fleet import Fleet
from inferometer.store.queue.values import Check
from unit.hub.samples import ENDING, HOSTILE, emptied, hub, network

DATA = bytes(range(256)) * 40
SHA = hashlib.sha256(DATA).hexdigest()
MODEL = JobModel(name="net", entry="net.onnx", files=(JobFile(path="net.onnx", sha256=SHA, size_bytes=len(DATA)),))
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
    with hub(tmp_path_factory.mktemp("hub"), poll_most_s=2.0) as found:
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
    assert abs(events[2]["at"] - time.time()) < 60  # the agent's clock stood in 1970
    assert client.get(f"{API}/agent/artifacts/{SHA}?device=pi").status_code == 404  # its job has ended


def test_an_agent_that_waits_is_served_when_a_job_comes(here):
    _, client = here
    said(client.post(f"{API}/agent/register", json=registration()))
    sent(client)
    got = []
    agent = threading.Thread(
        target=lambda: got.append(said(client.post(f"{API}/agent/poll", json={"device": "pi", "wait_s": 10})))
    )
    agent.start()
    time.sleep(0.2)
    row, began = submit(client), time.monotonic()
    agent.join(9)
    assert got[0]["id"] == row["id"]
    assert time.monotonic() - began < 9  # and not when its wait of 10 s is over
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
    Fleet.of(store).expire()


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
        check = Check(before_s=1.0, after_s=1.0 + seed / 50, moved=seed == 5)
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
