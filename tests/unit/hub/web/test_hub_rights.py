"""Every route of the hub, asked by somebody of every kind; and each rule of who may do what."""

import hashlib
import json
from itertools import takewhile
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from fakes.fleet import a_job
from inferometer.core.codec import document
from inferometer.core.job import JobFile, JobModel
from inferometer.hub.fleet.own_agent import OwnAgent
from inferometer.hub.web.app import create_app
from inferometer.hub.web.guard.rules import OidcRules, Rules
from inferometer.store import open_store
from inferometer.store.audit import AuditFilter, Deed
from inferometer.store.engine import Database
from inferometer.store.errors import NotAllowedError
from inferometer.store.location import Location
from inferometer.store.queue.devices import Registrar
from inferometer.store.queue.fleet import Fleet
from inferometer.store.queue.values import NewDevice
from inferometer.store.retention import Retention
from inferometer.store.values import Filter
from unit.hub.web.samples import hub, network
from unit.hub.web.world import DATA, MODEL, PEOPLE, SHA, World, profile_body, registration

API = "/api/v1"
FLEET = f"{API}/fleet"
JSON = {"content-type": "application/json"}
PROVIDER = OidcRules(issuer="http://localhost:1", client_id="hub")
# The answer to nobody, an outsider, a reader, a writer, an owner, an administrator and an agent.
ALL = (200,) * 7
KNOWN = (401, 200, 200, 200, 200, 200, 403)
SEEN = (401, 404, 200, 200, 200, 200, 403)
AGENTS = (401, 403, 403, 403, 403, 200, 200)


def row(expected, path=None, **given):
    """What a route answers. `path` and what is given may be functions of the world: a fresh run, a fresh job."""
    return expected, path, given


def exported(world):
    run = world.run()
    made = world.store.export(run, world.store.location.file.with_name("run.zip"))
    world.store.delete(run)
    return made.read_bytes()


def submission(world):
    return {"job": document(a_job(next(world.numbers), model=MODEL)), "project": "phones", "device": "pi"}


def told(world, part):
    """The path, and what an agent says of a job that it has."""
    job, lease = world.lease()
    said = {
        "events": {"now": 1.0, "events": []},
        "result": {"result": world.result(job)},
        "return": {"reason": "It is switched off.", "fault": False},
        "damaged": {"sha256": SHA},
    }[part]
    return f"{FLEET}/agent/jobs/{job}/{part}", {"device": "pi", "lease": lease, **said}


MATRIX = {
    # Pages that show nothing of any project.
    **{f"GET {path}": row(KNOWN) for path in (
        "/", "/runs", "/new", "/compare", "/predict", "/devices", "/catalog/{table}", "/formulas", "/sweep",
        "/atlas", "/live", "/timeline", "/plan", "/simulate", "/can-i-run", "/fit", "/load", "/calibrate",
        "/fleet", "/fleet/queue", "/favicon.ico", f"{API}/runs",
        f"{API}/projects", f"{API}/devices", f"{API}/models", f"{API}/catalog", f"{API}/catalog/{{table}}",
        f"{API}/formulas", f"{API}/openapi.json", f"{FLEET}/devices", f"{FLEET}/jobs",
    )},
    "GET /devices/{name}": row(KNOWN, "/devices/nvidia-t4"),
    "GET /catalog": row((401, 303, 303, 303, 303, 303, 403)),
    "GET /catalog/{table}/{name}": row(KNOWN, "/catalog/pue/google"),
    "GET /formulas/{name}": row(KNOWN, "/formulas/ridge_point"),
    f"GET {API}/devices/{{name}}": row(KNOWN, f"{API}/devices/nvidia-t4"),
    f"GET {API}/models/{{name}}/controls": row(KNOWN, f"{API}/models/resnet50/controls"),
    f"GET {API}/catalog/{{table}}/{{name}}": row(KNOWN, f"{API}/catalog/pue/google"),
    f"GET {API}/formulas/{{name}}": row(KNOWN, f"{API}/formulas/ridge_point"),
    "GET /choices.json": row(KNOWN),
    f"GET {API}/atlas": row(KNOWN, f"{API}/atlas?limit=1"),
    f"POST {API}/predict": row(KNOWN, json={"model": "resnet50", "devices": ["nvidia-t4"]}),
    f"POST {API}/sweeps": row(KNOWN, json={"models": ["resnet50"], "devices": ["nvidia-t4"]}),
    f"POST {API}/formulas/{{name}}/calculate": row(
        KNOWN, f"{API}/formulas/ridge_point/calculate", json={"inputs": {"peak": "1 TFLOP/s", "bandwidth": "1 TB/s"}}
    ),
    # What is needed to sign in.
    "GET /sign-in": row(ALL),
    "POST /sign-in": row((403,) * 7, data={"token": "wrong"}),
    "POST /sign-out": row((303,) * 7),
    "GET /sign-in/provider": row((502,) * 7),  # nobody answers there
    "GET /sign-in/provider/callback": row((403,) * 7),
    "GET /static/vega.js": row(ALL),
    "GET /static/{path:path}": row(ALL, "/static/hub.css"),
    f"GET {API}/health": row(ALL),
    # Runs.
    "GET /projects/{project}": row(SEEN, "/projects/phones"),
    **{f"GET {path}": row(SEEN, lambda world, path=path: path.replace("{run}", world.run())) for path in (
        "/runs/{run}", "/runs/{run}/explanation", "/runs/{run}/dataflow.svg", "/runs/{run}/graph.json",
        f"{API}/runs/{{run}}", f"{API}/runs/{{run}}/profile", f"{API}/runs/{{run}}/metrics",
    )},
    "GET /runs/{run}/files/{name:path}": row(SEEN, lambda world: f"/runs/{world.run_with_file()}/files/x.txt"),
    "GET /runs/{run}/export/{form}": row(SEEN, lambda world: f"/runs/{world.run()}/export/json"),
    "GET /runs/{run}/layers.svg": row(SEEN, lambda world: f"/runs/{world.run()}/layers.svg"),
    "GET /runs/{run}/charts/{name}.{form}": row(SEEN, lambda world: f"/runs/{world.run()}/charts/layers.json"),
    f"GET {API}/runs/{{run}}/live": row(SEEN, lambda world: f"{API}/runs/{world.run()}/live?once=1"),
    f"GET {API}/live": row(KNOWN, f"{API}/live?once=1"),
    f"GET {API}/compare": row(SEEN, lambda world: f"{API}/compare?run={world.run()}&run={world.run()}"),
    f"POST {API}/profiles": row(
        (401, 403, 403, 201, 201, 201, 403), f"{API}/profiles?project=phones", content=profile_body(), headers=JSON
    ),
    f"POST {API}/profiles/batch": row(
        (401, 403, 403, 201, 201, 201, 403), f"{API}/profiles/batch?project=phones", content=profile_body(),
        headers={"content-type": "application/x-ndjson"},
    ),
    f"POST {API}/runs/import": row(
        (401, 403, 403, 201, 201, 201, 403), f"{API}/runs/import?project=phones", content=exported,
        headers={"content-type": "application/zip"},
    ),
    f"POST {API}/projects": row(
        (401, 201, 201, 201, 201, 201, 403), json=lambda world: {"name": f"new {next(world.numbers)}"}
    ),
    f"PATCH {API}/runs/{{run}}": row(
        (401, 404, 403, 403, 200, 200, 403), lambda world: f"{API}/runs/{world.run('somebody')}", json={"name": "x"}
    ),
    f"DELETE {API}/runs/{{run}}": row(
        (401, 404, 403, 403, 204, 204, 403), lambda world: f"{API}/runs/{world.run('somebody')}"
    ),
    # People.
    "GET /settings": row(KNOWN),
    "GET /projects/{project}/settings": row(SEEN, "/projects/phones/settings"),
    "GET /audit": row((401, 404, 403, 403, 200, 200, 403), "/audit?project=phones"),
    f"GET {API}/audit": row((401, 404, 403, 403, 200, 200, 403), f"{API}/audit?project=phones"),
    f"GET {API}/tokens": row(KNOWN),
    f"GET {API}/sessions": row(KNOWN),
    f"GET {API}/links": row(KNOWN),
    f"POST {API}/tokens": row((401, 201, 201, 201, 201, 201, 403), json={"scopes": ["write"]}),
    f"DELETE {API}/tokens/{{token}}": row(
        (401, 404, 404, 404, 404, 204, 403), lambda world: f"{API}/tokens/{world.somebodys_token()}"
    ),
    f"DELETE {API}/sessions/{{session}}": row(
        (401, 404, 404, 404, 404, 404, 403), lambda world: f"{API}/sessions/{world.somebodys_session()}"
    ),
    f"GET {API}/projects/{{project}}/members": row(SEEN, f"{API}/projects/phones/members"),
    f"PUT {API}/projects/{{project}}/members/{{user}}": row(
        (401, 404, 403, 403, 204, 204, 403), f"{API}/projects/phones/members/reader", json={"role": "reader"}
    ),
    f"DELETE {API}/projects/{{project}}/members/{{user}}": row(
        (401, 404, 403, 403, 204, 204, 403), lambda world: f"{API}/projects/phones/members/{world.new_member()}"
    ),
    f"PATCH {API}/projects/{{project}}": row(
        (401, 404, 403, 403, 200, 200, 403), f"{API}/projects/phones", json={"description": "x"}
    ),
    f"POST {API}/links": row((401, 404, 403, 201, 201, 201, 403), json=lambda world: {"runs": [world.run()]}),
    f"DELETE {API}/links/{{link}}": row(
        (401, 404, 404, 404, 204, 204, 403), lambda world: f"{API}/links/{world.somebodys_link()}"
    ),
    # Whoever has a link needs no token, and whoever has none has a wrong one.
    **{f"GET /shared/{{link}}{part}": row(
        ALL, lambda world, part=part: f"/shared/{world.link()}{part.replace('{name}', 'layers')}"
    ) for part in ("", "/explanation", "/dataflow.svg", "/graph.json", "/charts/{name}.json")},
    f"GET {API}/projects/{{project}}/retention": row(
        (401, 404, 403, 403, 200, 200, 403), f"{API}/projects/phones/retention"
    ),
    f"PUT {API}/projects/{{project}}/retention": row(
        (401, 404, 403, 403, 200, 200, 403), f"{API}/projects/phones/retention", json={"runs_s": 8.64e6}
    ),
    # The fleet.
    "GET /fleet/devices/{name}": row(SEEN, "/fleet/devices/pi"),
    "GET /fleet/jobs/{job}": row(SEEN, lambda world: f"/fleet/jobs/{world.job()}"),
    f"GET {FLEET}/devices/{{name}}": row(SEEN, f"{FLEET}/devices/pi"),
    f"PATCH {FLEET}/devices/{{name}}": row(
        (401, 404, 403, 403, 200, 200, 403), f"{FLEET}/devices/pi", json={"state": "ready"}
    ),
    f"DELETE {FLEET}/devices/{{name}}": row((401, 404, 403, 403, 403, 204, 403), f"{FLEET}/devices/lab"),
    f"PUT {FLEET}/devices/{{name}}/projects/{{project}}": row(
        (401, 404, 403, 403, 403, 204, 403), f"{FLEET}/devices/pi/projects/phones"
    ),
    f"DELETE {FLEET}/devices/{{name}}/projects/{{project}}": row(
        (401, 404, 403, 403, 204, 204, 403), lambda world: world.given() or f"{FLEET}/devices/pi/projects/phones"
    ),
    **{f"GET {FLEET}/jobs/{{job}}{part}": row(SEEN, lambda world, part=part: f"{FLEET}/jobs/{world.job()}{part}")
       for part in ("", "/document", "/events")},
    f"GET {FLEET}/jobs/{{job}}/result": row(
        (401, 404, 409, 409, 409, 409, 403), lambda world: f"{FLEET}/jobs/{world.job()}/result"
    ),
    f"POST {FLEET}/jobs": row((401, 403, 403, 201, 201, 201, 403), json=submission),
    f"POST {FLEET}/jobs/{{job}}/again": row(
        (401, 404, 403, 201, 201, 201, 403), lambda world: f"{FLEET}/jobs/{world.job()}/again", json={}
    ),
    f"POST {FLEET}/jobs/{{job}}/cancel": row(
        (401, 404, 403, 403, 200, 200, 403), lambda world: f"{FLEET}/jobs/{world.job('somebody')}/cancel"
    ),
    f"POST {FLEET}/artifacts/missing": row(KNOWN, json=[]),
    f"POST {FLEET}/models/chosen": row(KNOWN, json=[{"path": "net.gguf", "size_bytes": 4, "head": "R0dVRg=="}]),
    f"POST {FLEET}/preview": row((401, 403, 403, 404, 404, 404, 403), json={"model": "none such", "project": "phones"}),
    f"POST {FLEET}/models/fetched": row(
        (401, 400, 400, 400, 400, 400, 403), json={"url": "https://example.org/a.onnx"}
    ),
    f"POST {FLEET}/start/{{verb}}": row(
        (401, 403, 403, 200, 200, 200, 403), f"{FLEET}/start/calibrate", json={"on": "pi", "project": "phones"}
    ),
    f"PUT {FLEET}/agent/jobs/{{job}}/files/{{sha256}}": row(
        AGENTS,
        lambda world: "{}/agent/jobs/{}/files/{sha}?device=pi&lease={}&offset=0&size={size}".format(
            FLEET, *world.lease(), sha=SHA, size=len(DATA)
        ),
        content=DATA,
    ),
    f"POST {FLEET}/here": row((401, 403, 403, 403, 403, 403, 403)),
    f"PUT {FLEET}/artifacts/{{sha256}}": row(
        KNOWN, f"{FLEET}/artifacts/{SHA}?offset=0&size={len(DATA)}", content=DATA
    ),
    # What only agents do.
    f"POST {FLEET}/agent/register": row(AGENTS, json=lambda world: registration(f"d{next(world.numbers)}")),
    f"POST {FLEET}/agent/poll": row(AGENTS, json={"device": "pi"}),
    f"POST {FLEET}/agent/beat": row(AGENTS, json={"device": "pi"}),
    f"GET {FLEET}/agent/artifacts/{{sha256}}": row(
        AGENTS, lambda world: world.lease() and f"{FLEET}/agent/artifacts/{SHA}?device=pi"
    ),
    **{f"POST {FLEET}/agent/jobs/{{job}}/{part}": row(AGENTS, lambda world, part=part: told(world, part))
       for part in ("events", "result", "return", "damaged")},
    "POST /mcp": row(KNOWN, json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
                     headers={"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18"}),
    f"POST {FLEET}/agent/probe": row(AGENTS, json={"device": "pi", "reference_s": 0.1}),
}  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    limits = {"sign_ins": 10**6, "burst": 10**6}
    with hub(tmp_path_factory.mktemp("hub"), tokens=True, oidc=PROVIDER, **limits) as (store, client):
        made = World(store, client)
        for who in ("writer", "owner", "outsider"):
            assert made.ask(who, "PUT", f"{FLEET}/artifacts/{SHA}?offset=0&size={len(DATA)}", content=DATA).is_success
        yield made


def routes_of(app):
    """Every method and path that the application answers."""
    inner = app
    while not hasattr(inner, "routes"):
        inner = inner._app
    found = set()
    for route in inner.routes:
        if route.path == API:
            found |= {f"{method} {API}{each.path}" for each in _flat(route.app.api().routes) for method in each.methods}
        else:
            found |= {f"{method} {route.path}" for method in getattr(route, "methods", None) or {"GET"}}
    return {name for name in found if not name.startswith("HEAD ")}


def _flat(routes):
    """FastAPI keeps the routers that an application includes as they are."""
    for route in routes:
        yield from _flat(route.original_router.routes) if hasattr(route, "original_router") else (route,)


def test_every_route_says_who_may(tmp_path):
    with open_store(tmp_path / "runs.db") as store:
        found = routes_of(create_app(store, Rules(tokens=True, oidc=PROVIDER)))
    assert found == set(MATRIX), "a new route needs a row in MATRIX"


def request_to(world, name):
    method, _, template = name.partition(" ")
    _, path, given = MATRIX[name]
    given = {key: value(world) if callable(value) else value for key, value in given.items()}
    place = path(world) if callable(path) else path or template.replace("{table}", "links")
    if isinstance(place, tuple):
        place, given["json"] = place
    return method, place, given


@pytest.mark.parametrize("name", MATRIX)
def test_who_may(world, name):
    found = {}
    for who in PEOPLE:
        method, place, given = request_to(world, name)
        found[who] = world.ask(who, method, place, **given).status_code
    assert found == dict(zip(PEOPLE, MATRIX[name][0], strict=True))


@pytest.fixture(scope="module")
def open_world(tmp_path_factory):
    """The same at a hub that asks nobody who they are, and a request to every route: each comes as far as the store."""
    with (
        pytest.MonkeyPatch.context() as patch,
        hub(tmp_path_factory.mktemp("open"), burst=10**6, oidc=PROVIDER) as (store, client),
    ):
        patch.setattr(OwnAgent, "start", lambda *_: "here")  # no agent is to run on this machine
        made = World(store, client)
        made.tokens = dict.fromkeys(made.tokens)
        assert client.put(f"{FLEET}/artifacts/{SHA}?offset=0&size={len(DATA)}", content=DATA).is_success
        yield made, [request_to(made, name) for name in MATRIX]


SECRETS = ("db.inner.example", "hub-role", "s3cret", "/srv/hub/runs.db", "/srv/hub/runs.artifacts")
SERVER = Location(url="postgresql://hub-role:s3cret@db.inner.example/bench", artifacts=Path(SECRETS[-1]))
FILE = Location(file=Path("/srv/hub/runs.db"), artifacts=Path(SECRETS[-1]))
REFUSED = 'connection to server at "db.inner.example" failed: Connection refused. User "hub-role", /srv/hub/runs.db'


@pytest.mark.parametrize("broken", ["reading", "writing"])
@pytest.mark.parametrize("location", [FILE, SERVER], ids=["file", "server"])
def test_a_store_that_fails_says_nowhere_where_it_is(open_world, monkeypatch, caplog, broken, location):
    """Every route, while nothing can be read, or nothing written: the log has the whole, a visitor what happened."""
    open_hub, requests = open_world

    def fails(*_):
        raise OperationalError("SELECT", {}, Exception(REFUSED))

    monkeypatch.setattr(Database, "_once", fails)
    if broken == "reading":
        monkeypatch.setattr(Database, "_answering", fails)
    real = object.__getattribute__(open_hub.store.database, "location")
    object.__setattr__(open_hub.store.database, "location", location)
    try:
        answers = [
            (method, place, open_hub.client.request(method, place, **given)) for method, place, given in requests
        ]
    finally:
        object.__setattr__(open_hub.store.database, "location", real)
    told = [answer for _, _, answer in answers if answer.status_code == 503]
    assert len(told) > (60 if broken == "reading" else 20)
    for method, place, answer in answers:
        said = answer.text + str(answer.headers)
        assert answer.status_code != 500, (method, place, answer.text)
        assert not [secret for secret in (*SECRETS, str(real)) if secret in said], (method, place)
    assert sum("The store does not answer." in answer.text for answer in told) > len(told) / 2
    assert "db.inner.example" in caplog.text


def test_what_is_out_of_sight_answers_like_what_is_not_there(world):
    stranger = world.stranger()
    secret, name = world.run(), f"secret {next(world.numbers)}"
    world.store.rename(secret, name)
    for there, nowhere in (
        (f"{API}/runs/{secret}", f"{API}/runs/000000000000"),
        (f"{API}/runs/{name}", f"{API}/runs/another name"),
        (f"{API}/runs/{secret[:6]}", f"{API}/runs/000000"),
        (f"{API}/runs?project=phones", f"{API}/runs?project=nothing"),
        (f"{FLEET}/jobs/{world.job()}", f"{FLEET}/jobs/000000000000"),
        (f"{FLEET}/devices/pi", f"{FLEET}/devices/no"),
    ):
        answers = [world.ask(stranger, "GET", path) for path in (there, nowhere)]
        assert [answer.status_code for answer in answers] == [404, 404]
        mine, others = (answer.json() for answer in answers)
        assert mine["remedy"] == others["remedy"]  # no suggestion that gives it away
        assert secret not in str(mine["remedy"])


def test_lists_counts_and_suggestions_leave_out_what_is_not_mine(world):
    run, stranger = world.run(), world.stranger()
    assert world.ask(stranger, "GET", f"{API}/runs").json()["rows"] == []
    assert [each["name"] for each in world.ask(stranger, "GET", f"{API}/projects").json() if each["runs"]] == []
    assert world.ask(stranger, "GET", f"{API}/runs/last").status_code == 400
    assert "no run has finished" in world.ask(stranger, "GET", f"{API}/runs/last").json()["error"]
    assert world.ask(stranger, "GET", f"{API}/live?once=1&seen={run}").json() == {"open": [], "ended": []}
    assert world.ask(stranger, "GET", f"{FLEET}/jobs").json() == []
    for path in ("/", "/devices/nvidia-t4", "/compare", "/fleet/queue", "/fleet", "/devices?words=t4"):
        page = world.ask(stranger, "GET", path).text
        assert run not in page
        assert "phones" not in page
    assert run in world.ask("reader", "GET", "/").text


def test_a_hash_is_no_key(world):
    """Whoever knows the hash of another project's model gets neither the file nor whether it is there."""
    data = b"a model of phones"
    sha256 = hashlib.sha256(data).hexdigest()
    place, listed = f"{FLEET}/artifacts/{sha256}?offset={{}}&size={len(data)}", [{"sha256": sha256, "size_bytes": 17}]
    model = JobModel(name="m", entry="m.onnx", files=(JobFile(path="m.onnx", sha256=sha256, size_bytes=len(data)),))
    by = Registrar(user="outsider", project="cars", everyone=False)
    world.fleet.register(NewDevice(name="theirs", labels={"runtime": ("onnxruntime",)}), by)

    def submitted(who, project, device):
        job = document(a_job(next(world.numbers), model=model))
        return world.ask(who, "POST", f"{FLEET}/jobs", json={"job": job, "project": project, "device": device})

    def missing(who):
        return world.ask(who, "POST", f"{FLEET}/artifacts/missing", json=listed).json()["missing"]

    nowhere = submitted("outsider", "cars", "theirs")
    assert (nowhere.status_code, missing("outsider")) == (400, {sha256: 0})
    assert world.ask("writer", "PUT", place.format(0), content=data).json()["complete"]
    assert (missing("writer"), missing("owner"), missing("admin")) == ({}, {sha256: 0}, {})  # no job names it yet
    assert submitted("writer", "phones", "pi").status_code == 201
    assert [missing(who) for who in ("reader", "writer", "owner", "admin")] == [{}] * 4
    assert (submitted("outsider", "cars", "theirs").json(), missing("outsider")) == (nowhere.json(), {sha256: 0})
    last = world.ask("outsider", "PUT", place.format(len(data) - 1), content=data[-1:])
    assert (last.status_code, last.json()["error"][-28:]) == (400, "at byte 16, and 0 are there.")
    assert world.ask("outsider", "PUT", place.format(0), content=data[:5]).json() == {"arrived": 5, "complete": False}
    assert missing("outsider") == {sha256: 5}
    assert world.ask("outsider", "PUT", place.format(5), content=data[5:]).json()["complete"]
    assert (submitted("outsider", "cars", "theirs").status_code, missing("outsider")) == (201, {})


def test_a_cached_list_is_not_shown_to_somebody_else(world):
    run = world.run()
    for who, sees in (("reader", True), ("outsider", False), ("reader", True), ("outsider", False)):
        assert (run in world.ask(who, "GET", "/").text) is sees
        assert (run in world.ask(who, "GET", f"{API}/runs").text) is sees
    world.store.set_member("phones", "outsider", "reader")
    assert run in world.ask("outsider", "GET", "/").text  # at once
    world.store.remove_member("phones", "outsider")
    assert run not in world.ask("outsider", "GET", "/").text


def test_a_token_that_reads_makes_an_owner_a_reader(world):
    text = world.store.create_token("owner", scopes=("read",)).text
    mine = {"authorization": f"Bearer {text}"}
    assert world.client.get("/projects/phones", headers=mine).status_code == 200
    assert world.client.patch(f"{API}/runs/{world.run()}", json={"name": "x"}, headers=mine).status_code == 403


def test_a_token_for_one_project_opens_no_other(world):
    world.store.set_member("cars", "owner", "owner")
    text = world.store.create_token("owner", scopes=("write",), project="cars").text
    mine = {"authorization": f"Bearer {text}"}
    assert world.client.get("/projects/phones", headers=mine).status_code == 404
    assert world.client.post(f"{API}/projects", json={"name": "third"}, headers=mine).status_code == 403
    sent = {"content": profile_body(), "headers": {**mine, **JSON}}
    assert world.client.post(f"{API}/profiles?project=fourth", **sent).status_code == 403
    assert world.client.post(f"{API}/profiles?project=cars", **sent).status_code == 201
    world.store.remove_member("cars", "owner")


def test_an_open_project_is_read_by_everybody_and_written_by_its_writers(world):
    world.store.create_project("open", owner="owner")
    run = world.run("owner", "open")
    assert world.ask("outsider", "GET", f"/runs/{run}").status_code == 404
    world.store.change_project("open", open=True)
    assert world.ask("outsider", "GET", f"/runs/{run}").status_code == 200
    assert world.ask("outsider", "PATCH", f"{API}/runs/{run}", json={"name": "x"}).status_code == 403
    assert world.ask("nobody", "GET", f"/runs/{run}").status_code == 401
    world.store.change_project("open", open=False)


def test_whoever_makes_a_project_owns_it(world):
    sent = world.ask("outsider", "POST", f"{API}/profiles?project=mine", content=profile_body(), headers=JSON)
    assert sent.status_code == 201
    assert [(m.user, m.role) for m in world.store.members("mine")] == [("outsider", "owner")]
    assert world.ask("reader", "GET", "/projects/mine").status_code == 404
    taken = world.ask("reader", "POST", f"{API}/profiles?project=mine", content=profile_body(), headers=JSON)
    assert taken.status_code == 403


def test_what_is_refused_makes_no_project(world):
    """A job, a profile, an archive or a move to a project that is not there yet: both are done, or neither."""
    job = {**submission(world), "project": "never"}
    run = world.run("outsider", "cars")
    tag = {"add_tags": ["x"], "name": " ", "project": "never"}
    for method, path, given in (
        ("POST", f"{FLEET}/jobs", {"json": {**job, "device": "no such device"}}),
        ("POST", f"{FLEET}/jobs", {"json": {**job, "labels": {"unit": "tpu"}}}),
        ("POST", f"{FLEET}/jobs", {"json": {**job, "tags": ["a\nb"]}}),
        ("POST", f"{FLEET}/jobs", {"json": {**job, "priority": 60}}),
        ("POST", f"{API}/profiles?project=never&name=%20", {"content": profile_body(), "headers": JSON}),
        ("PATCH", f"{API}/runs/{run}", {"json": tag}),
    ):
        refused = world.ask("outsider", method, path, **given)
        assert 400 <= refused.status_code < 500, refused.text
        assert "never" not in {project.name for project in world.store.projects()}, given
    made = world.ask("outsider", "POST", f"{API}/profiles?project=never", content=profile_body(), headers=JSON)
    assert made.status_code == 201
    deeds = world.store.audit(AuditFilter(projects=frozenset({"never"})))
    assert [(deed.action, deed.user) for deed in deeds] == [("run.add", "outsider"), ("project.create", "outsider")]


def test_an_owner_says_what_a_project_keeps_and_reads_it_again(world):
    place = f"{API}/projects/phones/retention"
    nothing = {"project": "phones", "runs_s": None, "artifacts_s": None, "jobs_s": None, "keep_tags": []}
    assert world.ask("owner", "PUT", place, json={}).json() == nothing
    chosen = {"runs_s": 90 * 86400.0, "jobs_s": 86400.0, "keep_tags": ["release"]}
    assert world.ask("owner", "PUT", place, json=chosen).json() == {**nothing, **chosen}
    assert world.ask("owner", "GET", place).json() == {**nothing, **chosen}
    assert world.store.retention("phones") == Retention(
        project="phones", runs_s=90 * 86400.0, jobs_s=86400.0, keep_tags=("release",)
    )
    page = world.ask("owner", "GET", "/projects/phones/settings").text
    assert 'name="runs" type="number"' in page
    assert 'value="90"' in page
    assert "What is kept" not in world.ask("writer", "GET", "/projects/phones/settings").text
    for wrong in ({"runs_s": 0}, {"runs_s": -1}, {"runs_s": 1e300}, {"keep_tags": ["a\nb"]}, {"project": "cars"}):
        assert world.ask("owner", "PUT", place, json=wrong).status_code in {400, 422}
    assert world.store.retention("phones").jobs_s == 86400.0
    deed = world.store.audit(AuditFilter(action="project.retention"))[0]
    assert (deed.user, deed.project) == ("owner", "phones")
    assert world.ask("owner", "PUT", place, json={}).json() == nothing


def test_a_project_that_another_makes_meanwhile_is_not_written_to(world):
    deed = Deed(user="outsider", action="project.create")
    slow = world.store.founding("raced", deed)
    world.store.create_project("raced", owner="owner")
    with pytest.raises(NotAllowedError, match="outsider may not write to a project 'raced'"):
        slow.add(network(3), "raced")
    assert world.store.list(Filter(project="raced")).rows == ()
    mine = world.store.founding("own", deed)
    world.store.create_project("own", owner="outsider")  # the same user's, by another request
    assert mine.add(network(3), "own")


def test_a_run_is_moved_only_to_where_one_may_write(world):
    run = world.run("writer")
    moved = world.ask("writer", "PATCH", f"{API}/runs/{run}", json={"project": "cars"})
    assert (moved.status_code, world.store.row(run).project) == (403, "phones")
    assert world.ask("writer", "PATCH", f"{API}/runs/{run}", json={"project": "writers own"}).status_code == 200
    assert world.ask("owner", "GET", f"/runs/{run}").status_code == 404


def test_an_archive_goes_into_no_project_that_one_may_not_write_to(world):
    run = world.run()
    data = world.store.export(run, world.store.location.file.with_name("out.zip")).read_bytes()
    zipped = {"content": data, "headers": {"content-type": "application/zip"}}
    taken = world.ask("outsider", "POST", f"{API}/runs/import", **zipped)  # by the project that the archive names
    assert (taken.status_code, "another" in taken.text) == (409, False)  # the id is taken, and nothing else is said
    world.store.delete(run)
    assert world.ask("outsider", "POST", f"{API}/runs/import", **zipped).status_code == 403
    assert world.ask("outsider", "POST", f"{API}/runs/import?project=cars", **zipped).status_code == 201


@pytest.mark.parametrize(
    ("who", "priority", "status"),
    [("writer", 10, 201), ("writer", 11, 403), ("owner", 50, 201), ("owner", 51, 403), ("admin", 100, 201)],
)
def test_priorities_have_ceilings(world, who, priority, status):
    answer = world.ask(who, "POST", f"{FLEET}/jobs", json={**submission(world), "priority": priority})
    assert answer.status_code == status
    if status == 403:
        assert str(priority - 1) in answer.json()["error"]  # the ceiling is said


def test_a_projects_owner_sets_its_ceilings(world):
    world.store.change_project("phones", writer_priority=0)
    asked = {**submission(world), "priority": 1}
    assert world.ask("writer", "POST", f"{FLEET}/jobs", json=asked).status_code == 403
    world.store.change_project("phones", writer_priority=10)


def test_a_submitter_cancels_their_own_job_and_nobody_elses(world):
    assert world.ask("writer", "POST", f"{FLEET}/jobs/{world.job('writer')}/cancel").status_code == 200
    assert world.ask("writer", "POST", f"{FLEET}/jobs/{world.job('owner')}/cancel").status_code == 403


def test_only_its_submitter_says_that_a_result_was_fetched(world):
    world.lease()
    job = world.fleet.device("pi").job
    world.fleet.finish(job, world.fleet.job(job).lease, world.plain_result(job))
    assert world.ask("reader", "GET", f"{FLEET}/jobs/{job}/result?fetched=true").status_code == 200
    again = {"job": document(world.fleet.document(job)), "project": "phones", "device": "pi"}
    assert world.ask("writer", "POST", f"{FLEET}/jobs", json=again).json()["id"] == job  # it is still to be picked up


def test_a_device_gets_the_jobs_of_its_projects_and_no_others(world):
    fleet = Fleet.of(world.store)
    by = Registrar(user="agent", everyone=False)
    fleet.register(NewDevice(name="tpu", labels={"unit": ("tpu",)}, version="1"), by)
    asked = {"job": document(a_job(next(world.numbers), runtime=None)), "labels": {"unit": "tpu"}}
    asked["job"]["model"] = document(a_job(1, model=MODEL))["model"]
    for project, who in (("phones", "writer"), ("cars", "outsider")):
        refused = world.ask(who, "POST", f"{FLEET}/jobs", json={**asked, "project": project})
        assert refused.status_code == 400
        assert world.ask(who, "GET", f"{FLEET}/devices/tpu").status_code == 404
    fleet.share("tpu", "cars")
    fleet.register(NewDevice(name="tpu2", labels={"unit": ("tpu",)}, version="1"), by)
    fleet.share("tpu2", "phones")
    older = world.ask("writer", "POST", f"{FLEET}/jobs", json={**asked, "project": "phones"})
    assert older.status_code == 201  # it would fit `tpu` as well
    job = world.ask("outsider", "POST", f"{FLEET}/jobs", json={**asked, "project": "cars"}).json()["id"]
    assert fleet.lease("tpu", project="phones") is None
    assert fleet.lease("tpu").row.id == job
    assert world.ask("outsider", "GET", f"{FLEET}/devices/tpu").json()["job"] == job
    fleet.share("tpu", "phones")
    assert world.ask("writer", "GET", f"{FLEET}/devices/tpu").json()["job"] is None  # of a project out of sight
    fleet.share("tpu", "cars", shared=False)
    assert world.ask("outsider", "GET", f"{FLEET}/devices/tpu").status_code == 404


def test_a_job_whose_device_is_taken_back_ends_and_says_so(world):
    fleet = Fleet.of(world.store)
    fleet.register(NewDevice(name="fpga", labels={"unit": ("fpga",)}), Registrar(user="agent", everyone=False))
    fleet.share("fpga", "cars")
    asked = {**submission(world), "device": "fpga", "project": "cars"}
    asked["job"]["runtime"] = None
    job = world.ask("outsider", "POST", f"{FLEET}/jobs", json=asked).json()["id"]
    fleet.share("fpga", "cars", shared=False)
    assert "can take it any more" in fleet.job(job).reason


def test_a_stream_ends_with_the_right_to_see_it(world):
    run = world.store.begin("phones")
    world.store.set_member("phones", "outsider", "reader")
    with world.client.stream("GET", f"{API}/runs/{run}/live", headers=world.headers("outsider")) as stream:
        lines = stream.iter_lines()
        assert next(lines) == "event: run"
        world.store.remove_member("phones", "outsider")
        told = takewhile(lambda line: line != ": still here", lines)  # which a stream that goes on says
        last = [line for line in told if line.startswith("data: ")][-1]
    assert json.loads(last.removeprefix("data: ")) == {"reason": "This run is not there any more."}
    world.store.kill(run)


def test_a_hub_without_tokens_is_its_users_own(tmp_path):
    with hub(tmp_path) as (store, client):
        run = store.add(network(), "phones", author="ann")
        assert client.get(f"/runs/{run}").status_code == 200
        assert client.patch(f"{API}/runs/{run}", json={"project": "new"}).status_code == 200
        assert client.delete(f"{API}/runs/{run}").status_code == 204
        store.create_user("bob")
        bob = {"authorization": f"Bearer {store.create_token('bob').text}"}
        assert client.get("/projects/new", headers=bob).status_code == 200
