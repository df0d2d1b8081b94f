"""The guard and the caches of the hub without a socket: who is let in, what is refused at which size, what is kept.

Requests are made by hand and clocks stand still: every limit is tried at its last allowed value and at the next.
"""

import asyncio
from types import SimpleNamespace

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from inferometer.core.errors import DomainError
from inferometer.core.profile import Run
from inferometer.hub.web import caches
from inferometer.hub.web.answers import HubError, answer, headers_of, status_of
from inferometer.hub.web.guard import security
from inferometer.hub.web.guard.people import (
    may_cancel,
    may_change,
    may_control,
    owned_projects,
    require_change,
    require_priority,
)
from inferometer.hub.web.guard.rules import Rules, bracketed
from inferometer.hub.web.guard.security import RequestGuard, own_address
from inferometer.store.errors import ConflictError, LeaseLostError, StoreError
from inferometer.store.values import Project, RunRow, Visitor
from unit.hub.web.samples import network

TOKEN, OTHER = "ifm_" + "a" * 43, "ifm_" + "b" * 43
COOKIE = "ifs_" + "c" * 43


class Store:
    """Lets in whoever `visitors` names; counts how often it is asked."""

    def __init__(self, **visitors):
        self.visitors, self.asked, self.written = visitors, [], 1
        self.location = SimpleNamespace(file="runs.db")

    def mark(self):
        return self.written

    def visitor(self, *, token="", session=""):
        self.asked.append(token or session)
        return self.visitors.get(token or session)


def visitor(number=1, **more):
    return Visitor(**{"user": "ann", "scopes": ("write",), "token": f"t{number}", "roles": {}, **more})


def scope_of(method="GET", path="/", query="", client="1.2.3.4", **headers):
    given = {"host": "localhost", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return {
        "type": "http", "method": method, "path": path, "query_string": query.encode(), "scheme": "http",
        "headers": [(name.encode(), value.encode()) for name, value in given.items()], "client": (client, 1),
    }  # fmt: skip


def asked(app, body=b"", pieces=1, **request):
    """The status, the headers and the body of an answer, of a request that is made by hand."""
    messages, size = [], max(1, -(-len(body) // pieces))
    parts = [body[at : at + size] for at in range(0, len(body), size)] or [b""]

    async def receive():
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message):
        messages.append(message)

    asyncio.run(app(scope_of(**request), receive, send))
    headers = {name.decode(): value.decode() for name, value in messages[0]["headers"]}
    return messages[0]["status"], headers, b"".join(message.get("body", b"") for message in messages)


async def reading(scope, receive, send):
    """An application that reads all of a request, and says how much that was and who asked."""
    request = Request(scope, receive)
    who = scope.get(security.VISITOR)
    text = f"{len(await request.body())} {who.user if who else None}"
    await PlainTextResponse(text)(scope, receive, send)


def guard(store=None, **rules):
    return RequestGuard(reading, store or Store(), Rules(**rules))


# What is refused unread


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ({}, 200),
        ({"host": "localhost:99"}, 200),
        ({"host": "LOCALHOST"}, 200),
        ({"host": "[::1]:8077"}, 200),
        ({"host": "[::1]"}, 200),
        ({"host": "other"}, 421),
        ({"host": "localhost.other"}, 421),
        ({"method": "POST", "origin": "http://localhost"}, 200),
        ({"method": "POST", "origin": "http://localhost:80"}, 200),
        ({"method": "POST", "origin": "https://localhost"}, 403),
        ({"method": "POST", "origin": "http://localhost:81"}, 403),
        ({"method": "POST", "origin": "null"}, 403),
        ({"method": "GET", "origin": "http://evil"}, 200),
        ({"method": "POST", "sec_fetch_site": "same-origin"}, 200),
        ({"method": "POST", "sec_fetch_site": "same-site"}, 403),
        ({"path": "/a\0"}, 400),
        ({"query": "a=%00"}, 400),
        ({"content_encoding": "identity"}, 200),
        ({"content_encoding": "gzip"}, 415),
        ({"content_length": "x"}, 413),
        ({"content_length": "-1"}, 413),
    ],
)
def test_what_is_refused_before_it_is_read(request_, status):
    assert asked(guard(), **request_)[0] == status


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("/api/v1/profiles", 20), ("/api/v1/profiles/batch", 20), ("/api/v1/runs/import", 30),
        ("/api/v1/fleet/artifacts/x", 40), ("/api/v1/fleet/agent/jobs/x/result", 20),
        ("/api/v1/fleet/agent/jobs/x/events", 10), ("/api/v1/profiles/x", 10), ("/x/result", 10), ("/", 10),
    ],
)  # fmt: skip
def test_each_address_takes_so_many_bytes_by_its_word_and_by_its_body(path, most):
    app = guard(body_bytes=10, document_bytes=20, archive_bytes=30, chunk_bytes=40)
    for size, status in ((most, 200), (most + 1, 413)):
        assert asked(app, method="POST", path=path, content_length=str(size))[0] == status
    assert asked(app, b"x" * most, pieces=3, method="POST", path=path)[2] == f"{most} None".encode()
    with pytest.raises(security._TooLargeError) as large:
        asked(app, b"x" * (most + 1), pieces=3, method="POST", path=path)
    assert large.value.status_code == 413


def test_every_answer_has_the_headers_and_only_scripts_are_kept():
    for path, kept in (("/", "no-store"), ("/static/hub.js", "no-cache"), ("/a\0", "no-store")):
        _, headers, _ = asked(guard(), path=path)
        assert headers["content-security-policy"] == security.POLICY
        assert (headers["cache-control"], headers["x-frame-options"]) == (kept, "DENY")


@pytest.mark.parametrize(
    ("host", "url", "address"),
    [
        ("hub.example", None, "http://hub.example"),
        ("hub.example", "https://hub.example/", "https://hub.example/"),
        ("hub.example:443", "https://hub.example/", "https://hub.example/"),
        ("hub.example:444", "https://hub.example/", "http://hub.example:444"),
        ("localhost", "https://hub.example/", "http://localhost"),
    ],
)
def test_the_hub_is_where_the_browser_has_it(host, url, address):
    assert own_address(Request(scope_of(host=host)), Rules(url=url)) == address


def test_names_that_a_hub_has():
    own = {"localhost", "127.0.0.1", "[::1]"}
    assert Rules(host="0.0.0.0", names=("Hub",), url="https://Public.Example:8/x").hosts == {  # noqa: S104
        *own, "hub", "public.example",
    }  # fmt: skip
    assert Rules(host="fe80::1").hosts == {*own, "[fe80::1]"}
    assert [bracketed(host) for host in ("a", "::1", "[::1]")] == ["a", "[::1]", "[::1]"]
    assert [Rules(host=host).everywhere for host in ("::", "", "127.0.0.1")] == [True, True, False]


# How often, and who


def test_whoever_asks_too_often_is_told_how_long_to_wait_and_nobody_else_is(monkeypatch):
    store = Store(**{TOKEN: visitor(), OTHER: visitor(2)})
    app = guard(store, per_s=0.5, burst=2, agents_per_s=1.0, agents_burst=1, tokens=True)
    now = [0.0]
    for limit in (app._requests, app._agents, app._wrong_tokens):
        monkeypatch.setattr(limit, "_clock", lambda: now[0])

    def status(text, path="/x"):
        code, headers, _ = asked(app, path=path, authorization=f"Bearer {text}")
        return code, headers.get("retry-after")

    assert [status(TOKEN) for _ in range(3)] == [(200, None), (200, None), (429, "2")]
    assert status(OTHER) == (200, None)
    agent = visitor(3, scopes=("agent",))
    store.visitors[TOKEN] = agent
    app._held.clear()
    assert [status(TOKEN, f"{security.AGENTS}poll") for _ in range(2)] == [(200, None), (429, "1")]
    now[0] = 1.0
    assert status(TOKEN, f"{security.AGENTS}poll") == (200, None)


def test_wrong_tokens_are_counted_by_address_and_requests_without_one_too():
    app = guard(Store(), tokens=True, sign_ins=2, per_s=0.01, burst=1)
    wrong = {"path": "/api/v1/runs", "authorization": f"Bearer {TOKEN}"}
    assert [asked(app, **wrong)[0] for _ in range(3)] == [401, 401, 429]
    assert asked(app, **wrong, client="5.6.7.8")[0] == 401
    assert [asked(app, path="/api/v1/runs")[0] for _ in range(2)] == [401, 429]
    assert asked(app, path="/sign-in", method="POST")[0] == 200  # it counts for itself
    assert asked(app, path="/sign-in")[0] == 429


@pytest.mark.parametrize(
    ("method", "path", "wanted"),
    [
        ("GET", "/runs/x", "read"), ("HEAD", "/", "read"), ("OPTIONS", "/", "read"),
        ("POST", "/api/v1/predict", "read"),
        ("POST", "/api/v1/sweeps", "read"), ("POST", "/api/v1/formulas/x/calculate", "read"),
        ("POST", "/api/v1/formulas/x/y/calculate", "write"), ("POST", "/api/v1/predict/x", "write"),
        ("DELETE", "/api/v1/sessions/x", "read"), ("POST", "/api/v1/tokens", "read"),
        ("DELETE", "/api/v1/tokens/x", "read"), ("DELETE", "/api/v1/tokens/x/y", "write"),
        ("DELETE", "/api/v1/runs/x", "write"), ("PATCH", "/api/v1/runs/x", "write"),
        ("POST", "/api/v1/fleet/agent/poll", "agent"), ("GET", "/api/v1/fleet/agent/artifacts/x", "agent"),
        ("POST", "/api/v1/fleet/agents", "write"),
    ],
)  # fmt: skip
def test_what_scope_a_request_needs(method, path, wanted):
    assert security._scope(Request(scope_of(method=method, path=path))) == wanted
    for scope in ("read", "write", "agent", "admin"):
        app = guard(Store(**{TOKEN: visitor(scopes=(scope,))}), tokens=True)
        allowed = visitor(scopes=(scope,)).allows(wanted)
        assert asked(app, method=method, path=path, authorization=f"Bearer {TOKEN}")[0] == (200 if allowed else 403)


@pytest.mark.parametrize(
    ("headers", "known"),
    [
        ({}, None),
        ({"authorization": f"Bearer {TOKEN}"}, "ann"),
        ({"authorization": f"bearer  {TOKEN} "}, "ann"),
        ({"authorization": TOKEN}, "ann"),
        ({"authorization": f"Basic {TOKEN}"}, "wrong"),
        ({"authorization": f"Bearer {TOKEN}x"}, "wrong"),
        ({"authorization": f"Bearer {COOKIE}"}, "wrong"),
        ({"cookie": f"inferometer_session={COOKIE}"}, "bob"),
        ({"cookie": f"x=1; inferometer_session={COOKIE}", "authorization": f"Bearer {TOKEN}"}, "ann"),
        ({"cookie": f"inferometer_session={TOKEN}"}, "wrong"),
        ({"cookie": f"__Host-inferometer_session={COOKIE}"}, None),
    ],
)
def test_who_is_known_by_what_they_send(headers, known):
    store = Store(**{TOKEN: visitor(), COOKIE: visitor(user="bob", token=None, session="s")})
    status, sent, body = asked(guard(store, tokens=True), path="/x", **headers)
    if known in {None, "wrong"}:
        assert (status, sent["www-authenticate"]) == (401, "Bearer")
        assert (b"not valid" in body) is (known == "wrong")
    else:
        assert (status, body) == (200, f"0 {known}".encode())


def test_people_are_led_to_the_sign_in_and_back():
    app = guard(Store(), tokens=True)
    page = {"path": "/runs/a b", "query": "x=1&y=2", "accept": "text/html"}
    assert asked(app, **page)[1]["location"] == "/sign-in?to=/runs/a%2520b%3Fx%3D1%26y%3D2"
    ended = asked(app, **page, authorization=f"Bearer {TOKEN}")
    assert (ended[0], ended[1]["location"]) == (303, "/sign-in?to=/runs/a%2520b%3Fx%3D1%26y%3D2&ended=1")
    assert asked(app, path="/", accept="text/html")[1]["location"] == "/sign-in?to=/"
    assert asked(app, method="POST", path="/", accept="text/html")[0] == 401


def test_a_hub_without_tokens_still_knows_and_refuses_those_that_are_sent():
    store = Store(**{TOKEN: visitor()})
    app = guard(store)
    assert asked(app, path="/x")[2] == b"0 None"
    assert asked(app, path="/x", authorization=f"Bearer {TOKEN}")[2] == b"0 ann"
    assert asked(app, path="/x", authorization=f"Bearer {OTHER}")[0] == 401
    assert asked(app, path="/x", cookie=f"inferometer_session={COOKIE}")[0] == 200
    for path in ("/static/x", "/sign-in", "/api/v1/health", "/shared/x"):
        assert asked(guard(Store(), tokens=True), path=path)[2] == b"0 nobody"


def test_who_was_let_in_is_asked_again_after_a_write_after_a_minute_at_the_end_and_as_an_agent(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(security.time, "time", lambda: now[0])
    store = Store(**{TOKEN: visitor(scopes=("admin",), until=1100.0, noted=1000.0)})
    app = guard(store, tokens=True)

    def looks(path="/x"):
        before = len(store.asked)
        assert asked(app, path=path, authorization=f"Bearer {TOKEN}")[0] == 200
        return len(store.asked) - before

    assert [looks(), looks()] == [1, 0]
    store.written += 1
    assert [looks(), looks()] == [1, 0]
    assert [looks(f"{security.AGENTS}poll") for _ in range(2)] == [1, 1]
    assert [looks(), looks()] == [1, 0]  # the mark was not known then
    now[0] += 59.9
    assert looks() == 0
    now[0] += 0.1
    assert looks() == 1
    store.visitors[TOKEN] = visitor(scopes=("admin",), until=1100.0, noted=1090.0)
    assert [looks(), looks()] == [1, 0]
    now[0] = 1099.9
    assert looks() == 0
    now[0] = 1100.0
    assert looks() == 1
    store.visitors.clear()
    store.written += 1
    assert asked(app, path="/x", authorization=f"Bearer {TOKEN}")[0] == 401
    assert app._held == {}


def test_a_session_counts_as_noted_when_it_was_looked_up_and_few_are_remembered(monkeypatch):
    monkeypatch.setattr(security, "_MOST_HELD", 2)
    monkeypatch.setattr(security.time, "time", lambda: 1000.0)
    texts = ["ifs_" + letter * 43 for letter in "abc"]
    store = Store(**{text: visitor(token=None, session=text, noted=0.0) for text in texts})
    app = guard(store, tokens=True)
    for text in (texts[0], texts[0], texts[1], texts[2], texts[1], texts[0]):
        assert asked(app, path="/x", cookie=f"inferometer_session={text}")[0] == 200
    assert [text[4] for text in store.asked] == ["a", "b", "c", "a"]


# What is kept


class App:
    """Counts its answers; each is another one."""

    def __init__(self, status=200):
        self.status, self.count = status, 0

    async def __call__(self, scope, receive, send):
        self.count += 1
        await asyncio.sleep(0)
        await PlainTextResponse(f"answer {self.count}", self.status)(scope, receive, send)


def cache(app, clock=lambda: 0.0, reap=lambda: None, marks=None):
    marks = [1] if marks is None else marks

    async def now():
        return marks[0]

    return caches.ListCache(app, SimpleNamespace(now=now), reap, clock)


@pytest.mark.parametrize(
    ("request_", "made"),
    [
        ({"path": "/"}, 1), ({"path": "/api/v1/runs"}, 1), ({"path": "/projects/x"}, 1), ({"path": "/runs/x"}, 2),
        ({"path": "/", "method": "POST"}, 2), ({"path": "/", "if_none_match": "x"}, 2), ({"path": "/projects"}, 2),
    ],
)  # fmt: skip
def test_lists_are_made_once_and_nothing_else_is_kept(request_, made):
    app = App()
    kept = cache(app)
    assert [asked(kept, **request_)[0] for _ in range(2)] == [200, 200]
    assert app.count == made


def test_a_list_is_made_anew_for_whatever_makes_it_another():
    app, marks = App(), [1]
    kept = cache(app, marks=marks)
    who = [
        visitor(),
        visitor(user="bob"),
        visitor(scopes=("read",)),
        visitor(roles={"p": "owner"}),
        visitor(roles=None),
    ]

    def made(scope_visitor=None, **request):
        async def with_visitor(scope, receive, send):
            await kept({**scope, security.VISITOR: scope_visitor}, receive, send)

        before = app.count
        asked(with_visitor, **{"path": "/", **request})
        return app.count - before

    different = [{}, {"query": "a=1"}, {"accept_encoding": "gzip"}, {"path": "/projects/x"}]
    different += [{"scope_visitor": each} for each in who]
    assert [made(**each) for each in different] == [1] * len(different)
    assert [made(**each) for each in different] == [0] * len(different)
    marks[0] = 2
    assert [made(**each) for each in different] == [1] * len(different)
    marks[0] = None  # nobody can tell whether it changed
    assert [made(), made()] == [1, 1]


def test_an_error_is_not_kept_and_the_longest_unused_go_first(monkeypatch):
    failing = App(status=503)
    kept = cache(failing)
    assert [asked(kept, path="/")[0] for _ in range(2)] == [503, 503]
    assert failing.count == 2
    monkeypatch.setattr(caches, "_MOST_BYTES", 16)  # of two answers of eight bytes
    app = App()
    kept = cache(app)
    for path in ("/projects/a", "/projects/b", "/projects/a", "/projects/c", "/projects/a", "/projects/b"):
        asked(kept, path=path)
    assert app.count == 4  # a, b, c, and b again
    assert kept._bytes == 16


def test_whoever_asks_while_a_list_is_made_waits_for_it_and_shares_what_goes_wrong():
    class Slow(App):
        async def __call__(self, scope, receive, send):
            self.count += 1
            await asyncio.sleep(0.01)
            if self.status == 500:
                raise ValueError("broken")
            await PlainTextResponse("x")(scope, receive, send)

    async def many(kept):
        kept._looked = 0.0  # nobody has to look for dead runs first

        async def send(_message):
            pass

        asking = [kept(scope_of(path="/"), None, send) for _ in range(5)]
        return await asyncio.gather(*asking, return_exceptions=True)

    good, bad = Slow(), Slow(status=500)
    assert asyncio.run(many(cache(good))) == [None] * 5
    assert [type(error) for error in asyncio.run(many(cache(bad)))] == [ValueError] * 5
    assert (good.count, bad.count) == (1, 1)


def test_dead_runs_are_looked_for_every_two_seconds_however_many_ask():
    now, reaped = [0.0], []
    kept = cache(App(), clock=lambda: now[0], reap=lambda: reaped.append(now[0]))
    for moment in (0.0, 0.0, 2.0, 2.1, 4.1, 4.2):
        now[0] = moment
        asked(kept, path="/")
    assert reaped == [0.0, 2.1, 4.2]

    def away():
        raise StoreError("It is away.")

    assert asked(cache(App(), reap=away), path="/")[0] == 200


class Runs:
    """A store of runs: each with a profile of so many layers."""

    def __init__(self, **layers):
        self.profiles = {name: network(count) for name, count in layers.items()}
        self.read, self.ended, self.changes = [], 5.0, {}

    def row(self, name):
        made = {"id": name, "project": "p", "status": "finished", "kind": "k", "created": 1.0, "ended": self.ended}
        return RunRow(**{**made, **self.changes})

    def get(self, name):
        self.read.append(name)
        return Run(id=name, project="old", status="running", created="", profile=self.profiles.get(name))


def test_a_run_is_read_once_and_what_may_change_comes_from_the_store():
    store = Runs(a=1)
    kept = caches.RunCache(store)
    assert kept.get("a")[0].project == "p"
    store.changes = {"project": "q", "name": "n", "tags": ("t",), "status": "killed"}
    run, row = kept.get("a")
    assert (run.project, run.name, run.tags, run.status, row.project) == ("q", "n", ("t",), "killed", "q")
    assert store.read == ["a"]
    store.ended = 6.0  # it was taken for dead, and ended after all
    kept.get("a")
    assert store.read == ["a", "a"]
    seen = SimpleNamespace(row=lambda _name: (_ for _ in ()).throw(DomainError("Not for you.")))
    with pytest.raises(DomainError):
        kept.get("a", seen)


def test_runs_that_go_on_or_have_no_profile_are_read_each_time():
    for store in (Runs(a=1), Runs()):
        store.ended = None if store.profiles else 5.0
        kept = caches.RunCache(store)
        kept.get("a"), kept.get("a")
        assert store.read == ["a", "a"]


def test_so_many_runs_are_kept_and_so_many_layers_but_always_the_last(monkeypatch):
    monkeypatch.setattr(caches, "_MOST", 3)
    monkeypatch.setattr(caches, "_MOST_OPS", 10)
    store = Runs(a=2, b=2, c=2, d=2, e=8, f=11)
    kept = caches.RunCache(store)

    def after(name):
        kept.get(name)
        return [key[0] for key in kept._runs]

    assert [after(name) for name in "abcdef"] == [
        ["a"], ["a", "b"], ["a", "b", "c"], ["b", "c", "d"], ["d", "e"], ["f"],
    ]  # fmt: skip


def test_an_explanation_is_made_once_for_each_end_of_a_run(monkeypatch):
    made = []
    monkeypatch.setattr(
        "inferometer.hub.web.pages.run.page_explanation", lambda _profile, name: made.append(name) or name
    )
    monkeypatch.setattr(caches, "_MOST", 1)
    store = Runs(a=1, b=1)
    kept = caches.RunCache(store)
    assert kept.cached_explanation(store.row("a")) is None
    assert [kept.explanation(name)[1] for name in ("a", "a", "b", "a")] == ["a", "a", "b", "a"]
    assert made == ["a", "b", "a"]
    assert kept.cached_explanation(store.row("a")) == "a"


def test_an_answer_that_is_known_is_not_sent_again():
    def status(method="GET", code=200, **headers):
        return answer(Request(scope_of(method=method, **headers)), {"a": 1}, status=code).status_code

    tag = answer(Request(scope_of()), {"a": 1}).headers["etag"]
    assert answer(Request(scope_of()), b'{"a":1}').headers["etag"] == tag
    assert answer(Request(scope_of()), {"a": 2}).headers["etag"] != tag
    assert [status(if_none_match=known) for known in (tag, f"W/{tag}", f'"x", {tag}', "*")] == [304] * 4
    assert [status(), status(if_none_match='"x"'), status("POST", if_none_match=tag)] == [200] * 3
    assert status(code=201, if_none_match=tag) == 201


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (HubError(418, ""), 418),
        (ConflictError(""), 409),
        (LeaseLostError(""), 409),
        (StoreError(""), 503),
        (DomainError(""), 400),
    ],
)
def test_an_error_has_its_status_and_only_an_absent_store_is_asked_again(error, status):
    assert status_of(error) == status
    assert headers_of(error) == ({"retry-after": "5"} if status == 503 else {})


# Who may


def by(**who):
    return Request({**scope_of(), security.VISITOR: None if not who else visitor(**who)})


ROLES = [(None, None), ("reader", "p"), ("writer", "p"), ("owner", "p"), ("owner", "q")]


def people(user):
    """Requests of nobody in particular, and of a user in each role."""
    made = [by()]
    return made + [by(user=user, roles={project: role}) for role, project in ROLES[1:]]


@pytest.mark.parametrize(
    ("user", "author", "changes", "deletes"),
    [
        ("ann", "ann", "1-11-", "1-11-"),
        ("bob", "ann", "1--1-", "1--1-"),
        ("ann", None, "1-11-", "1--1-"),
    ],
)
def test_who_may_change_and_delete_a_run(user, author, changes, deletes):
    row = RunRow(id="r", project="p", status="finished", kind="k", created=1.0, author=author)

    def allowed(request, **how):
        try:
            require_change(request, row, **how)
        except HubError as error:
            assert error.status == 403
            return "-"
        return "1"

    assert "".join(map(allowed, people(user))) == changes
    assert "".join("1" if may_change(request, row) else "-" for request in people(user)) == changes
    assert "".join(allowed(request, deleting=True) for request in people(user)) == deletes


def test_who_may_cancel_a_job_and_control_a_device():
    job = SimpleNamespace(project="p", user="ann")
    cancels = ["".join("1" if may_cancel(r, job) else "-" for r in people(user)) for user in ("ann", "bob")]
    assert cancels == ["1-11-", "1--1-"]
    device = SimpleNamespace(user="ann")
    found = ["".join("1" if may_control(r, device, ("p",)) else "-" for r in people(user)) for user in ("ann", "bob")]
    assert found == ["11111", "1--1-"]
    assert not may_control(by(scopes=("read",)), device, ("p",))
    assert may_control(by(roles=None, scopes=("admin",), user="bob"), device, ())
    assert owned_projects(by(roles={"p": "owner", "q": "writer", "r": "owner"})) == {"p", "r"}
    assert owned_projects(by()) == owned_projects(by(roles=None)) == frozenset()


@pytest.mark.parametrize(("role", "ceiling"), [("writer", 10), ("owner", 50)])
def test_a_priority_may_be_as_high_as_the_ceiling_of_a_role(role, ceiling):
    store = SimpleNamespace(project=lambda name: Project(name=name, created=0.0))
    asking = by(roles={"p": role})
    require_priority(asking, store, "p", ceiling)
    with pytest.raises(HubError, match=f"{ceiling} at most, and {ceiling + 1}"):
        require_priority(asking, store, "p", ceiling + 1)
    require_priority(by(), store, "p", 100)
    require_priority(by(roles=None), store, "p", 100)
    require_priority(by(roles={"q": "writer"}), None, "p", 50)  # it is made by this job, and is theirs
    with pytest.raises(HubError, match="An owner's jobs in p have a priority of 50 at most, and 51"):
        require_priority(by(roles={"q": "writer"}), None, "p", 51)
