"""Who gets in: names, origins, tokens, sizes, pace. Every refusal is asked of a real hub over a real socket."""

import contextlib
import io
import socket
import sqlite3
import subprocess
import sys
import zipfile
from types import SimpleNamespace

import httpx
import pytest

from inferometer.core.codec import encode
from inferometer.core.errors import DomainError
from inferometer.hub.web.guard.rules import Rules, is_loopback
from inferometer.hub.web.guard.security import COOKIE, RateLimit
from inferometer.hub.web.serving import listen, require_tokens
from inferometer.store import Store, open_store
from unit.hub.web.samples import ENDING, HOSTILE, hostile, hub, network

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    with hub(tmp_path_factory.mktemp("hub"), document_bytes=200_000, body_bytes=10_000) as found:
        yield found


@pytest.fixture
def client(here):
    return here[1]


@pytest.mark.parametrize(
    "name",
    [
        "evil.example",
        "evil.example:8077",
        "127.0.0.1.evil.example",
        "",
        "[::2]",
        "localhost.",
        "evillocalhost",
        "evil.localhost:8077",
        "localhost.evil.example",
        "1127.0.0.1",
        "a[::1]",
        "localhos",
        "localhost:evil",
        "localhost:1]",
    ],
)
def test_a_name_that_is_not_ours_is_refused_whatever_it_resolves_to(client, name):
    assert client.get("/", headers={"host": name}).status_code == 421
    assert client.get("/api/v1/runs", headers={"host": name}).status_code == 421


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST:1", "127.0.0.1:99", "[::1]:5", "[::1]"])
def test_our_own_names_are_taken_with_any_port(client, name):
    assert client.get("/api/v1/health", headers={"host": name}).status_code == 200


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "https://127.0.0.1:1",
        "http://[broken",
        "file://",
        "http://evil{host}",
        "http://{host}.evil.example",
        "http://{host}0",
    ],
)
def test_a_page_of_another_origin_cannot_write(here, origin):
    store, client = here
    origin = origin.format(host=client.base_url.netloc.decode())
    before = store.count()
    found = client.post("/api/v1/profiles", content=encode(network()), headers={**JSON, "origin": origin})
    assert found.status_code == 403
    assert client.post("/api/v1/projects", json={"name": "x"}, headers={"origin": origin}).status_code == 403
    assert store.count() == before


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_the_browser_itself_calls_foreign_is_refused_without_an_origin(client, site):
    found = client.post("/api/v1/projects", json={"name": "x"}, headers={"sec-fetch-site": site})
    assert found.status_code == 403


def test_a_form_of_another_page_cannot_pass_as_json(client):
    sent = client.post("/api/v1/profiles", content=encode(network()), headers={"content-type": "text/plain"})
    assert sent.status_code == 415


def test_our_own_page_and_programs_without_pages_can_write(client):
    own = str(client.base_url).rstrip("/")
    for number, headers in enumerate(({"origin": own}, {"sec-fetch-site": "same-origin"}, {})):
        assert client.post("/api/v1/projects", json={"name": f"ours {number}"}, headers=headers).status_code == 201


def test_nothing_is_shared_with_other_origins(client):
    found = client.get("/api/v1/runs", headers={"origin": "http://evil.example"})
    assert "access-control-allow-origin" not in found.headers
    assert found.headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize("path", ["/", "/predict", "/api/v1/runs", "/static/hub.css", "/no/such/page", "/devices/nope"])
def test_every_answer_has_the_policy(client, path):
    found = client.get(path)
    policy = found.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["referrer-policy"] == "same-origin"  # with none, our forms have the origin `null`


def test_pages_have_no_inline_script_style_or_handler(here):
    store, client = here
    run = store.add(network())
    for path in (f"/runs/{run}", "/", "/predict", "/sweep", "/formulas/ridge_point", "/compare"):
        page = client.get(path).text
        assert " style=" not in page
        assert "<style" not in page
        assert " onclick=" not in page
        assert all('type="application/json"' in tag or " src=" in tag for tag in _script_tags(page))


def _script_tags(page):
    return [part.partition(">")[0] for part in page.split("<script")[1:]]


@pytest.mark.parametrize(
    "part", ["", "/explanation", "/export/html", "/export/md", "/export/svg", "/charts/layers.svg"]
)
def test_what_a_model_file_says_stays_text(here, part):
    store, client = here
    run = store.add(hostile(), name=HOSTILE)
    found = client.get(f"/runs/{run}{part}")
    assert found.status_code in {200, 400}, found.text
    assert "<img src=x" not in found.text
    assert ENDING not in found.text


def test_the_list_escapes_names_and_tags(here):
    store, client = here
    store.add(hostile(), name=HOSTILE, tags=('"><b>',))
    page = client.get("/").text
    assert HOSTILE not in page
    assert '"><b>' not in page
    assert "&lt;img" in page


@pytest.mark.parametrize("words", [HOSTILE, "a" * 5000, "\U0001f600", "'; drop table runs; --"])
def test_what_is_searched_for_is_only_searched_for(client, words):
    found = client.get("/", params={"words": words})
    assert found.status_code == 200
    assert "<img src=x" not in found.text


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2f..%2fsettings.py", "/static//etc/passwd",
        "/runs/last/files/../../../../etc/passwd", "/runs/last/files/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/runs/..%2f..%2f/files/x", "/devices/..%2f..%2fetc%2fpasswd", "/formulas/..%2fregistry",
    ],
)  # fmt: skip
def test_no_path_leads_out(client, path):
    raw = _raw(client, path)
    assert raw.startswith(b"HTTP/1.1 404")
    assert b"root:" not in raw
    assert b"import " not in raw


def _raw(client, path):
    """The request as it is written here: clients tidy paths before they send them."""
    with socket.create_connection((client.base_url.host, client.base_url.port), timeout=120) as line:
        line.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        found = b""
        while chunk := line.recv(65536):
            found += chunk
    return found


@pytest.mark.parametrize("name", ["/etc/passwd", "../../secret.onnx", "file.toml", "local", "~/x", "C:\\x.onnx"])
def test_models_and_devices_are_names_and_never_files(client, name):
    asked = {"model": name, "devices": ["nvidia-t4"]}
    assert client.post("/api/v1/predict", json=asked).status_code == 404
    asked = {"model": "resnet50", "devices": [name]}
    assert client.post("/api/v1/predict", json=asked).status_code == 404
    asked = {"models": ["resnet50"], "devices": [name]}
    assert client.post("/api/v1/sweeps", json=asked).status_code == 404


def test_a_body_too_large_is_refused_by_its_length_and_by_its_bytes(here):
    store, client = here
    before = store.count()
    large = b" " * 300_000
    assert client.post("/api/v1/profiles", content=large, headers=JSON).status_code == 413

    def piecemeal():
        for _ in range(300):
            yield b" " * 1000

    assert client.post("/api/v1/profiles", content=piecemeal(), headers=JSON).status_code == 413
    assert client.post("/api/v1/predict", content=b"[" * 20_000, headers=JSON).status_code == 413
    assert store.count() == before


@pytest.mark.parametrize("path", ["/?words=%00", "/runs/%00", "/api/v1/runs?model=a%00b", "/projects/a%00",
                                  "/api/v1/runs?after=W10", "/?after=W10", "/api/v1/runs?after=%F0%9F"])  # fmt: skip
def test_what_no_address_holds_is_refused_and_no_failure(client, path):
    assert client.get(path).status_code == 400


def test_health_tells_the_truth(tmp_path, monkeypatch):
    with hub(tmp_path, tokens=True) as (_, client):
        assert client.get("/api/v1/health").json()["status"] == "ok"
        full = SimpleNamespace(free=1000)
        monkeypatch.setattr("inferometer.store.engine.shutil.disk_usage", lambda _: full)
        assert client.get("/api/v1/health").json()["writes"] is False
        with sqlite3.connect(tmp_path / "runs.db") as plain:
            plain.execute("DROP TABLE metrics")
            plain.execute("DROP TABLE runs")
        sick = client.get("/api/v1/health")
    assert (sick.status_code, str(tmp_path) in sick.text) == (503, False)


def test_a_list_is_made_once_and_again_after_every_write(tmp_path, monkeypatch):
    made = []
    listed = Store.list
    monkeypatch.setattr(Store, "list", lambda *given, **options: made.append(1) or listed(*given, **options))
    with hub(tmp_path) as (store, client):
        store.add(network(), name="first")
        assert [client.get("/").text.count("layers.svg") for _ in range(3)] == [1, 1, 1]
        assert len(made) == 1
        store.add(network(), name="second")
        assert [client.get("/").text.count("layers.svg") for _ in range(3)] == [2, 2, 2]
        assert len(made) == 2
        assert [len(client.get("/api/v1/runs").json()["rows"]) for _ in range(2)] == [2, 2]


def test_packed_bodies_are_refused_unopened(client):
    found = client.post("/api/v1/profiles", content=b"x", headers={**JSON, "content-encoding": "gzip"})
    assert found.status_code == 415


def test_deep_nesting_is_an_answer_and_no_crash(client):
    for body in (b"[" * 100_000, b'{"a":' * 30_000, b"{", b"\xff\xfe", b"null", b'{"schema": 1}'):
        assert client.post("/api/v1/profiles", content=body, headers=JSON).status_code in {400, 422}


def archive(entries):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in entries.items():
            file.writestr(name, data)
    return made.getvalue()


@pytest.mark.parametrize(
    "entries",
    [
        {"run.json": b"0" * 1_000_000},
        {"../../evil": b"x"},
        {"/etc/cron.d/x": b"x"},
        {},
    ],
    ids=["bomb", "way up", "absolute", "empty"],
)
def test_archives_that_would_burst_or_break_out_are_refused(here, entries):
    store, client = here
    before = store.count()
    sent = client.post("/api/v1/runs/import", content=archive(entries), headers={"content-type": "application/zip"})
    assert sent.status_code in {400, 413, 422}
    assert "/tmp" not in sent.text  # noqa: S108 - where the hub unpacks is nobody's business
    assert store.count() == before


def test_a_run_goes_out_and_comes_back_as_an_archive(here, tmp_path):
    store, client = here
    run = store.add(network(), name="travels")
    store.export(run, tmp_path / "run.zip")
    store.delete(run)
    sent = client.post(
        "/api/v1/runs/import", content=(tmp_path / "run.zip").read_bytes(), headers={"content-type": "application/zip"}
    )
    assert sent.status_code == 201
    assert sent.json()["id"] == run
    assert store.get(run).name == "travels"


def test_half_open_connections_are_let_go_and_keep_nobody_out(tmp_path):
    with hub(tmp_path, header_s=1.5, waiting=30) as (_, client), contextlib.ExitStack() as opened:
        place = (client.base_url.host, client.base_url.port)
        lines = [opened.enter_context(socket.create_connection(place, timeout=120)) for _ in range(60)]
        for line in lines[::2]:
            with contextlib.suppress(OSError):
                line.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        assert client.get("/static/icon.svg").status_code == 200
        assert all(_closed(line) for line in lines)
        assert client.get("/static/icon.svg").status_code == 200


def _closed(line):
    try:
        return line.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_body_that_stops_arriving_is_not_waited_for(tmp_path):
    with hub(tmp_path, idle_s=0.3) as (store, client):
        head = b"POST /api/v1/profiles HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        with socket.create_connection((client.base_url.host, client.base_url.port), timeout=120) as line:
            line.sendall(head + b"Content-Length: 1000\r\n\r\n{")
            assert b"408" in line.recv(65536)
        assert store.count() == 0


def test_a_client_that_asks_too_often_waits_and_is_told_how_long(tmp_path):
    with hub(tmp_path, per_s=0.01, burst=3) as (_, client):
        found = [client.get("/api/v1/health") for _ in range(5)]
    assert [each.status_code for each in found] == [200, 200, 200, 429, 429]
    assert 1 < int(found[-1].headers["retry-after"]) <= 100  # less, if the five took their time


def test_a_bucket_fills_again_and_forgets_the_oldest():
    now = [0.0]
    pace = RateLimit(2.0, 4, clock=lambda: now[0])
    assert [pace.wait("a") for _ in range(4)] == [0.0] * 4
    assert pace.wait("a") == pytest.approx(0.5)
    assert pace.spent("a")
    assert pace.wait("b") == 0.0
    now[0] = 1.0
    assert [pace.wait("a"), pace.wait("a")] == [0.0, 0.0]
    assert pace.wait("a") > 0
    for number in range(5000):
        pace.wait(str(number))
    assert len(pace._buckets) <= 4096


@pytest.fixture
def guarded(tmp_path):
    with hub(tmp_path, tokens=True, sign_ins=5) as (store, client):
        store.create_user("ann")
        store.create_user("bob")
        texts = {scope: store.create_token("ann", scopes=(scope,)).text for scope in ("read", "write")}
        texts |= {scope: store.create_token("bob", scopes=(scope,)).text for scope in ("admin", "agent")}
        texts["bob"] = store.create_token("bob", scopes=("write",)).text
        yield store, client, texts


def bearer(text):
    return {"authorization": f"Bearer {text}"}


def test_with_tokens_nothing_is_shown_without_one(guarded):
    _, client, texts = guarded
    for path in ("/api/v1/runs", "/api/v1/openapi.json", "/api/v1/live", "/runs/last/export/json"):
        assert client.get(path).status_code == 401, path
    asked = client.get("/", headers={"accept": "text/html"})
    assert (asked.status_code, asked.headers["location"]) == (303, "/sign-in?to=/")
    narrowed = client.get("/?tag=a%26b&sort=name", headers={"accept": "text/html"}).headers["location"]
    assert httpx.URL(narrowed).params["to"] == "/?tag=a%26b&sort=name"
    ended = client.get("/", headers={"accept": "text/html", **bearer("guess")}).headers["location"]
    assert "signed out" in client.get(ended).text
    assert client.get("/api/v1/runs", headers=bearer(texts["read"])).status_code == 200


def test_a_token_to_read_does_not_write(guarded):
    store, client, texts = guarded
    body = encode(network())
    refused = client.post("/api/v1/profiles", content=body, headers={**JSON, **bearer(texts["read"])})
    assert (refused.status_code, store.count()) == (403, 0)  # it is known, and may not
    taken = client.post("/api/v1/profiles", content=body, headers={**JSON, **bearer(texts["write"])})
    assert (taken.status_code, store.count()) == (201, 1)


def test_a_token_to_read_may_ask_what_changes_nothing(guarded):
    _, client, texts = guarded
    given = {"inputs": {"peak": "100 TFLOP/s", "bandwidth": "1 TB/s"}}
    read = bearer(texts["read"])
    assert client.post("/api/v1/formulas/ridge_point/calculate", json=given, headers=read).status_code == 200
    asked = {"model": "resnet50", "devices": ["nvidia-t4"]}
    assert client.post("/api/v1/predict", json=asked, headers=read).status_code == 200
    assert client.post("/api/v1/sweeps", json={"models": [], "devices": []}, headers=read).status_code == 422
    assert client.post("/api/v1/predict", json=asked, headers=bearer(texts["agent"])).status_code == 403
    assert client.post("/api/v1/predict", json=asked, headers=bearer("guess")).status_code == 401


def test_only_the_owner_and_an_administrator_delete(guarded):
    store, client, texts = guarded
    headers = {**JSON, **bearer(texts["write"])}
    store.create_project("default")
    store.set_member("default", "ann", "writer")
    store.set_member("default", "bob", "writer")
    first, second = (client.post("/api/v1/profiles", content=encode(network()), headers=headers) for _ in range(2))
    assert store.row(first.json()["id"]).author == "ann"
    refused = client.delete(f"/api/v1/runs/{first.json()['id']}", headers=bearer(texts["bob"]))
    assert (refused.status_code, store.count()) == (403, 2)
    assert "ann's" in refused.json()["error"]
    assert client.delete(f"/api/v1/runs/{first.json()['id']}", headers=bearer(texts["write"])).status_code == 204
    assert client.delete(f"/api/v1/runs/{second.json()['id']}", headers=bearer(texts["admin"])).status_code == 204
    unknown = store.add(network())
    assert client.delete(f"/api/v1/runs/{unknown}", headers=bearer(texts["write"])).status_code == 403


def test_a_revoked_token_ends_at_once(guarded):
    store, client, texts = guarded
    assert client.get("/api/v1/runs", headers=bearer(texts["read"])).status_code == 200
    for token in store.tokens():
        store.revoke_token(token.id)
    assert client.get("/api/v1/runs", headers=bearer(texts["read"])).status_code == 401


def test_guessing_tokens_ends_soon(guarded):
    _, client, _ = guarded
    seen = [client.get("/api/v1/runs", headers=bearer(f"guess {n}")).status_code for n in range(8)]
    assert seen == [401] * 5 + [429] * 3
    assert client.post("/sign-in", data={"token": "guess"}).status_code == 429  # counted together


def test_whoever_guesses_shuts_out_nobody_else_at_their_address(guarded):
    _, client, texts = guarded
    for number in range(20):
        client.get("/api/v1/runs", headers=bearer(f"ifm_{number:043}"))  # well formed, and looked up
    assert client.get("/api/v1/runs", headers=bearer(texts["read"])).status_code == 200  # never seen before
    assert client.get("/sign-in").status_code == 200
    assert client.post("/sign-in", data={"token": texts["write"]}).status_code == 303


def test_a_flood_from_an_address_does_not_stop_a_token_that_holds(tmp_path):
    with hub(tmp_path, tokens=True, per_s=0.01, burst=3) as (store, client):
        store.create_user("ann")
        assert [client.get("/sign-in").status_code for _ in range(5)] == [200] * 3 + [429] * 2
        text = store.create_token("ann").text
        assert client.get("/api/v1/runs", headers=bearer(text)).status_code == 200
        assert client.post("/sign-in", data={"token": text}).status_code == 303


def test_a_form_counts_wrong_tokens(guarded):
    _, client, texts = guarded
    assert client.get("/api/v1/runs", headers=bearer(texts["read"])).status_code == 200
    seen = [client.post("/sign-in", data={"token": f"guess {n}"}).status_code for n in range(7)]
    assert seen == [403] * 5 + [429] * 2
    assert client.get("/api/v1/runs", headers=bearer(texts["read"])).status_code == 200  # the same address


def test_each_token_has_its_own_pace_and_made_up_ones_have_none(tmp_path):
    with hub(tmp_path, tokens=True, per_s=0.01, burst=4, sign_ins=100) as (store, client):
        store.create_user("ann")
        one, other = (store.create_token("ann").text for _ in range(2))
        seen = [client.get("/api/v1/live?once=1", headers=bearer(one)).status_code for _ in range(6)]
        assert seen == [200] * 4 + [429] * 2
        assert client.get("/api/v1/live?once=1", headers=bearer(other)).status_code == 200
        made_up = [client.get("/api/v1/live?once=1", headers=bearer(f"{n}")).status_code for n in range(4)]
        assert made_up == [401] * 4  # they are counted as wrong tokens, and nobody's pace suffers
        assert client.get("/api/v1/live?once=1", headers=bearer(other)).status_code == 200


def test_who_a_proxy_says_is_asking_is_believed_only_when_told(tmp_path):
    for proxies, codes in (((), [200, 200, 429]), (("127.0.0.1",), [200, 200, 200])):
        with hub(tmp_path, per_s=0.01, burst=2, proxies=proxies) as (_, client):
            asked = [client.get("/static/icon.svg", headers={"x-forwarded-for": f"10.0.0.{n}"}) for n in range(3)]
            assert [each.status_code for each in asked] == codes


def test_signing_in_sets_a_cookie_that_scripts_and_other_sites_do_not_get(guarded):
    store, client, texts = guarded
    wrong = client.post("/sign-in?to=/devices", data={"token": "no"})
    assert (wrong.status_code, COOKIE in wrong.cookies) == (403, False)
    right = client.post("/sign-in?to=/devices", data={"token": texts["read"]})
    cookie = right.headers["set-cookie"].lower()
    assert (right.status_code, right.headers["location"]) == (303, "/devices")
    assert "httponly" in cookie
    assert "samesite=lax" in cookie  # a link in a chat should open; writes are held by their origin
    assert texts["read"].lower() not in cookie
    assert client.get("/devices").status_code == 200
    kept = client.cookies[COOKIE]
    assert kept not in (store.location.file.read_bytes()).decode("latin-1")


@pytest.mark.parametrize("to", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"])
def test_signing_in_leads_nowhere_else(guarded, to):
    _, client, texts = guarded
    found = client.post("/sign-in", params={"to": to}, data={"token": texts["read"]})
    assert found.headers["location"] == "/"


@pytest.mark.parametrize(
    ("host", "only_here"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("::", False),
     ("192.168.1.4", False), ("my-host", False), ("localhost.evil.example", False), ("evillocalhost", False),
     ("LocalHost", True), ("[::1]", True), ("128.0.0.1", False), ("127.0.0.1.evil.example", False), ("", False)],
)  # fmt: skip
def test_what_is_loopback(host, only_here):
    assert is_loopback(host) is only_here


def test_a_hub_for_others_does_not_start_without_a_token(tmp_path):
    with open_store(tmp_path / "runs.db") as store:
        rules = Rules(host="0.0.0.0", tokens=True)  # noqa: S104 - nothing is listen
        with pytest.raises(DomainError, match="there is no token"):
            require_tokens(store, rules)
        store.create_user("ann")
        secret = store.create_token("ann")
        require_tokens(store, rules)
        store.revoke_token(secret.token.id)
        store.create_token("ann", lasts_s=-1)  # expired: it opens nothing either
        with pytest.raises(DomainError):
            require_tokens(store, rules)


def test_a_port_that_is_taken_is_an_error_with_a_remedy():
    with listen("127.0.0.1", 0) as first, pytest.raises(DomainError, match="--port"):
        listen("127.0.0.1", first.getsockname()[1])


def test_a_list_that_is_kept_shows_when_a_process_is_gone(tmp_path, monkeypatch):
    monkeypatch.setattr("inferometer.hub.web.caches._LOOK_S", 0.0)
    begin = (
        "import sys; from inferometer.store import open_store; open_store(sys.argv[1]).begin(); print(1, flush=True)"
    )
    with hub(tmp_path) as (_, client):
        words = [sys.executable, "-c", f"{begin}; input()", str(tmp_path / "runs.db")]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            other.stdout.readline()
            statuses = [client.get("/api/v1/runs").json()["rows"][0]["status"] for _ in range(2)]
            other.kill()
        assert statuses == ["running", "running"]
        assert client.get("/api/v1/runs").json()["rows"][0]["status"] == "killed"
