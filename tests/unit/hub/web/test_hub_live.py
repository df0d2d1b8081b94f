"""Live pages: what changes is told, once, and the stream ends with the run."""

import json

import pytest

from inferometer.hub.web.app import event
from unit.hub.web.samples import hub, network


def events(lines):
    """Server-sent events as (name, value); comments are left out."""
    name = None
    for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


@pytest.fixture
def here(tmp_path):
    with hub(tmp_path, poll_s=0.02, streams=2) as found:
        yield found


def test_a_run_is_followed_to_its_end(here):
    store, client = here
    run = store.begin(name="followed")
    seen = []
    with client.stream("GET", f"/api/v1/runs/{run}/live") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        for name, value in events(stream.iter_lines()):
            seen.append((name, value["run"]["status"], [m["value"] for m in value["metrics"]]))
            if len(seen) == 1:
                store.add_metrics(run, {"latency_s": 0.25})
            elif len(seen) == 2:
                store.finish(run, network())
    assert seen == [("run", "running", []), ("run", "running", [0.25]), ("run", "finished", [0.25])]


def test_runs_that_begin_and_end_are_told(here):
    store, client = here
    with client.stream("GET", "/api/v1/live") as stream:
        found = events(stream.iter_lines())
        assert next(found) == ("runs", {"open": [], "ended": []})
        run = store.begin(name="appears")
        _, value = next(found)
        assert [row["id"] for row in value["open"]] == [run]
        store.finish(run)
        _, value = next(found)
        assert (value["open"], [row["status"] for row in value["ended"]]) == ([], ["finished"])


def test_a_run_that_is_deleted_while_somebody_watches_does_not_end_the_stream(here):
    store, client = here
    run = store.begin(name="deleted")
    with client.stream("GET", "/api/v1/live") as stream:
        watched = events(stream.iter_lines())
        assert [row["id"] for row in next(watched)[1]["open"]] == [run]
        store.finish(run)
        store.delete(run)
        told = next(value for _, value in watched if value["open"] == value["ended"] == [])
        assert told == {"open": [], "ended": []}


def test_a_page_asks_once_and_is_told_what_ended_meanwhile(here):
    store, client = here
    run = store.begin(name="asked about")
    first = client.get("/api/v1/live?once=1")
    assert [row["id"] for row in first.json()["open"]] == [run]
    same = client.get("/api/v1/live?once=1", headers={"if-none-match": first.headers["etag"]})
    assert same.status_code == 304
    store.finish(run)
    later = client.get(f"/api/v1/live?once=1&seen={run},nonsense").json()
    assert (later["open"], [row["status"] for row in later["ended"]]) == ([], ["finished"])
    assert client.get(f"/api/v1/runs/{run}/live?once=1").json()["run"]["status"] == "finished"


def test_a_stream_ends_when_its_token_does(tmp_path):
    with hub(tmp_path, tokens=True, poll_s=0.02) as (store, client):
        store.create_user("ann")
        secret = store.create_token("ann")
        headers = {"authorization": f"Bearer {secret.text}"}
        with client.stream("GET", "/api/v1/live", headers=headers) as stream:
            watched = events(stream.iter_lines())
            assert next(watched)[0] == "runs"
            store.revoke_token(secret.token.id)
            assert [name for name, _ in watched] == ["end"]


def test_a_run_that_is_not_there_is_a_404(here):
    found = here[1].get("/api/v1/runs/nothing/live")
    assert found.status_code == 404
    assert "There is no run" in found.json()["error"]


def test_there_are_only_so_many_streams(here):
    _, client = here
    with client.stream("GET", "/api/v1/live") as one, client.stream("GET", "/api/v1/live") as two:
        kept = [events(stream.iter_lines()) for stream in (one, two)]  # one that is let go closes its stream
        assert [next(each)[0] for each in kept] == ["runs", "runs"]
        assert client.get("/api/v1/live").status_code == 503


def test_one_visitor_has_only_so_many_of_them(tmp_path):
    with (
        hub(tmp_path, poll_s=0.02, streams=9, streams_each=1) as (_, client),
        client.stream("GET", "/api/v1/live") as stream,
    ):
        kept = events(stream.iter_lines())
        assert next(kept)[0] == "runs"
        assert client.get("/api/v1/live").status_code == 503
        assert client.get("/api/v1/live?once=1").status_code == 200


def test_an_event_is_one_line_whatever_is_in_it():
    told = event("run", {"name": "a\nevent: evil\r\ndata: {}"})
    assert told.count(b"\n") == 3
    assert json.loads(told.split(b"data: ", 1)[1]) == {"name": "a\nevent: evil\r\ndata: {}"}
