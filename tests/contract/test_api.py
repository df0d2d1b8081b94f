"""The API against its own description: fuzzed, and the promises that a client relies on asked one by one."""

import json

import pytest

from inferometer.core.codec import document, encode
from inferometer.hub.web.api.routes import create_api
from inferometer.hub.web.guard.rules import Rules
from inferometer.store import Filter
from unit.hub.web.samples import decoder, hub, network

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    with hub(tmp_path_factory.mktemp("hub"), per_s=1e6, burst=10**6, port=8077) as (store, client):
        store.add(network(), "phones", name="first", tags=("nightly",))
        store.add(decoder(), "phones", name="second")
        yield store, client


@pytest.fixture
def client(here):
    return here[1]


def test_the_description_names_every_path_with_its_errors(client):
    described = client.get("/api/v1/openapi.json").json()
    assert described["openapi"].startswith("3.")
    assert described["servers"] == [{"url": "/api/v1"}]
    assert set(described["paths"]) == {
        "/runs", "/runs/{run}", "/runs/{run}/profile", "/runs/{run}/metrics", "/runs/import", "/profiles",
        "/profiles/batch", "/projects", "/compare", "/devices", "/devices/{name}", "/models", "/models/{name}/controls",
        "/catalog",
        "/catalog/{table}", "/catalog/{table}/{name}", "/formulas", "/formulas/{name}", "/formulas/{name}/calculate",
        "/predict", "/sweeps", "/atlas", "/health", "/tokens", "/tokens/{token}", "/sessions", "/sessions/{session}",
        "/projects/{project}", "/projects/{project}/members", "/projects/{project}/members/{user}", "/links",
        "/links/{link}", "/audit", "/projects/{project}/retention", "/fleet/devices/{name}/projects/{project}",
        "/fleet/devices", "/fleet/devices/{name}", "/fleet/jobs", "/fleet/jobs/{job}", "/fleet/jobs/{job}/document",
        "/fleet/jobs/{job}/again", "/fleet/jobs/{job}/cancel", "/fleet/jobs/{job}/events", "/fleet/jobs/{job}/result",
        "/fleet/artifacts/missing", "/fleet/artifacts/{sha256}", "/fleet/agent/register", "/fleet/agent/poll",
        "/fleet/agent/beat", "/fleet/agent/artifacts/{sha256}", "/fleet/agent/jobs/{job}/events",
        "/fleet/agent/jobs/{job}/result", "/fleet/agent/jobs/{job}/return", "/fleet/agent/jobs/{job}/damaged",
        "/fleet/agent/probe", "/fleet/models/chosen", "/fleet/models/fetched", "/fleet/preview", "/fleet/here",
        "/fleet/start/{verb}", "/fleet/agent/jobs/{job}/files/{sha256}",
    }  # fmt: skip
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            assert {"400", "404", "429"} <= set(operation["responses"]), (method, path)
    assert {"RunRow", "Page", "Project", "Problem"} <= set(described["components"]["schemas"])


def test_the_atlas_comes_by_columns_with_links_and_predictions(client):
    asked = {"model": "resnet101", "device": "nvidia-rtx-4090", "runtime": "torch-eager", "limit": 3, "predict": True}
    found = client.get("/api/v1/atlas", params=asked).json()
    assert (found["rows"], len(found["seconds"])) == (3, 3)
    assert found["total"] == 12
    assert all(value > 0 for value in (*found["seconds"], *found["predicted_s"]))
    links = found["texts"]["link"]
    assert all(links["values"][code].startswith("https://") for code in links["codes"])
    wrong = client.get("/api/v1/atlas", params={"device": "rasbery"})
    assert wrong.status_code == 404
    assert "Raspberry" in wrong.json()["remedy"]


def test_links_lead_to_where_the_hub_was_asked(here):
    store, client = here
    run = store.add(network())
    assert client.get(f"/api/v1/runs/{run}").json()["link"] == f"{str(client.base_url).rstrip('/')}/runs/{run}"


def test_a_profile_goes_in_and_comes_out_the_same(client):
    sent = client.post(
        "/api/v1/profiles", params={"project": "new", "name": "sent", "tag": ["a", "b"]}, content=encode(network()),
        headers=JSON,
    )  # fmt: skip
    assert sent.status_code == 201
    run = sent.json()["id"]
    assert sent.json()["link"] == f"{client.base_url}/runs/{run}".replace("//runs", "/runs")
    assert sent.headers["location"] == f"/api/v1/runs/{run}"
    assert client.get(f"/api/v1/runs/{run}/profile").json() == json.loads(encode(network()))
    found = client.get(f"/api/v1/runs/{run}").json()
    assert (found["project"], found["name"], found["tags"], found["status"]) == ("new", "sent", ["a", "b"], "finished")


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"not json", b'{"schema": "inferometer.profile/99"}', b'{"schema": "inferometer.run/1"}',
     json.dumps({**document(network()), "kind": "guessed"}).encode(),
     json.dumps({**document(network()), "phases": [{"name": "x", "time_s": "fast"}]}).encode()],
    ids=["empty", "bare", "no json", "newer", "another", "kind", "number"],
)  # fmt: skip
def test_what_is_no_profile_is_told_why_and_not_kept(here, body):
    store, client = here
    before = store.count()
    sent = client.post("/api/v1/profiles", content=body, headers=JSON)
    assert sent.status_code in {400, 422}
    assert sent.json()["error"]
    assert store.count() == before


def test_many_profiles_come_in_at_once_or_not_at_all(here):
    store, client = here
    lines = [encode(network(3, seed=number)) for number in range(5)]
    asked = {"params": {"project": "many", "tag": ["nightly"]}, "headers": {"content-type": "application/x-ndjson"}}
    sent = client.post("/api/v1/profiles/batch", content=b"\n".join([*lines, b""]), **asked)
    assert sent.status_code == 201
    made = [each["id"] for each in sent.json()]
    assert [store.get(run).profile for run in made] == [network(3, seed=number) for number in range(5)]
    assert {store.row(run).tags for run in made} == {("nightly",)}
    broken = client.post("/api/v1/profiles/batch", content=b"\n".join([lines[0], b"{}", lines[1]]), **asked)
    assert broken.status_code == 422
    assert broken.json()["error"].startswith("Line 2: ")
    assert store.count(Filter(project="many")) == 5
    assert client.post("/api/v1/profiles/batch", content=b"\n", **asked).status_code == 400
    assert client.post("/api/v1/profiles/batch", content=lines[0], headers=JSON).status_code == 415


def test_pages_of_a_list_meet_without_gap_or_overlap(here):
    store, client = here
    for number in range(25):
        store.add(network(1, seed=number), "paged", name=f"{number}")
    seen, after = [], None
    while True:
        asked = {"project": "paged", "limit": 10, "sort": "latency", **({"after": after} if after else {})}
        page = client.get("/api/v1/runs", params=asked).json()
        seen += page["rows"]
        after = page["after"]
        if after is None:
            break
    assert len({row["id"] for row in seen}) == len(seen) == 25
    assert [row["latency_s"] for row in seen] == sorted(row["latency_s"] for row in seen)


def test_an_answer_that_is_known_is_not_sent_again(client):
    first = client.get("/api/v1/devices")
    again = client.get("/api/v1/devices", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert (
        client.get("/api/v1/devices", headers={"if-none-match": '"other", W/' + first.headers["etag"]}).status_code
        == 304
    )
    assert client.get("/api/v1/devices", headers={"if-none-match": '"other"'}).status_code == 200
    before = client.get("/api/v1/projects").headers["etag"]
    client.post("/api/v1/projects", json={"name": "changes the list"})
    assert client.get("/api/v1/projects").headers["etag"] != before


def test_a_run_can_be_named_tagged_and_deleted_only_whole(here):
    store, client = here
    run = store.add(network(2), "changed")
    changed = client.patch(f"/api/v1/runs/{run}", json={"name": "new", "add_tags": ["good"]}).json()
    assert (changed["name"], changed["tags"]) == ("new", ["good"])
    assert client.patch(f"/api/v1/runs/{run}", json={"remove_tags": ["good"]}).json()["tags"] == []
    assert client.patch(f"/api/v1/runs/{run}", json={"status": "failed"}).status_code == 422
    assert client.delete(f"/api/v1/runs/{run[:8]}").status_code in {400, 404}
    assert client.delete("/api/v1/runs/last").status_code in {400, 404}
    assert client.delete(f"/api/v1/runs/{run}").status_code == 204
    assert client.get(f"/api/v1/runs/{run}").status_code == 404


def test_a_prediction_is_that_of_the_library(client):
    from inferometer import predict

    asked = {"model": "resnet50", "devices": ["nvidia-t4", "nvidia-l4"], "batch": 4, "ops": True}
    found = client.post("/api/v1/predict", json=asked).json()["answers"]
    assert [answer["device"] for answer in found] == asked["devices"]
    ours = predict("resnet50", on="nvidia-t4", batch=4)
    assert found[0]["summary"]["latency_s"] == ours.summary.latency_s
    assert len(found[0]["phases"][-1]["ops"]) == len(ours.phases[-1].ops)
    assert found[0]["fit"]["fits"] is True


def test_what_cannot_be_on_a_known_device_is_an_answer_of_its_own(client):
    asked = {"model": "llama-3.2-1b", "devices": ["nvidia-t4"], "weights": "no-such-format"}
    (answer,) = client.post("/api/v1/predict", json=asked).json()["answers"]
    assert "no-such-format" in answer["error"]


def test_a_sweep_has_a_row_for_each_combination_and_a_limit(client):
    asked = {"models": ["resnet50"], "devices": ["nvidia-t4", "nvidia-l4"], "batch": [1, 2, 4]}
    found = client.post("/api/v1/sweeps", json=asked).json()
    assert found["rows"] == 6
    assert all(len(column) == 6 for column in found["columns"].values())
    many = {**asked, "batch": list(range(1, 65)), "prompt": list(range(1, 65)), "generate": list(range(1, 65))}
    assert client.post("/api/v1/sweeps", json=many).status_code == 413


def test_a_formula_is_calculated_with_units(client):
    asked = {"inputs": {"peak": "990 TFLOP/s", "bandwidth": "3.35 TB/s"}}
    found = client.post("/api/v1/formulas/ridge_point/calculate", json=asked).json()
    assert found["value"] == pytest.approx(990e12 / 3.35e12)
    wrong = client.post("/api/v1/formulas/ridge_point/calculate", json={"inputs": {"peak": "5 W", "bandwidth": "1"}})
    assert wrong.status_code == 400
    assert "5 W" in wrong.json()["error"]


def test_runs_are_compared(client):
    found = client.get("/api/v1/compare", params={"run": ["first", "second"]}).json()["comparisons"]
    assert found[0]["verdict"] in {"faster", "slower", "same", "undecided"}
    assert client.get("/api/v1/compare", params={"run": ["first"]}).status_code == 422


# What is no JSON: in the hub's own tests.
BY_HAND = {
    "/runs/import", "/profiles/batch", "/fleet/artifacts/{sha256}", "/fleet/agent/jobs/{job}/files/{sha256}"
}  # fmt: skip
SHARES = 18


@pytest.fixture(scope="module")
def described():
    """Made when it is asked for: describing all of it takes longer than collecting the tests of ten modules."""
    return create_api(None, Rules()).openapi()


@pytest.fixture(scope="module")
def schema(described):
    return pytest.importorskip("schemathesis", reason="pip install schemathesis").openapi.from_dict(described)


@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_no_request_of_the_described_shape_breaks_it(here, described, schema, share):
    """Statuses, types and bodies are those described, and nothing is ever an error of the server."""
    from hypothesis import HealthCheck, given, settings
    from schemathesis.checks import CHECKS, load_all_checks

    load_all_checks()
    checks = CHECKS.get_by_names(
        ["not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance"]
    )
    address = str(here[1].base_url).rstrip("/") + "/api/v1"
    operations = [(path, method) for path, methods in described["paths"].items() for method in methods]
    for path, method in [each for each in operations if each[0] not in BY_HAND][share::SHARES]:

        @given(case=schema[path][method].as_strategy())
        @settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
        def fuzz(case):
            case.call_and_validate(base_url=address, checks=checks)

        fuzz()
