"""Sessions: what a browser holds, how it ends, and which pages may write with it."""

import io
import logging
import time

import httpx
import pytest

from inferometer.hub.web.guard.rules import Rules
from inferometer.hub.web.guard.security import COOKIE
from inferometer.hub.web.serving import hub_in_thread
from inferometer.store import open_store
from inferometer.store.visitors import IDLE_S, LONGEST_S
from unit.hub.web.samples import hub

PAGE = {"accept": "text/html"}


@pytest.fixture
def clock():
    return [time.time()]


@pytest.fixture
def here(tmp_path, clock):
    """A hub over a store whose clock is ours."""
    with (
        open_store(tmp_path / "runs.db", clock=lambda: clock[0]) as store,
        hub_in_thread(store, Rules(tokens=True)) as address,
        httpx.Client(base_url=address, timeout=120, verify=False) as client,  # noqa: S501 - no TLS, whose roots take a while
    ):
        store.create_user("ann")
        yield store, client


def signed_in(store, client, **token):
    secret = store.create_token("ann", scopes=("write",), **token)
    assert client.post("/sign-in", data={"token": secret.text}).status_code == 303
    assert client.get("/live").status_code == 200
    return secret


def test_signing_out_ends_the_session_at_the_hub(here):
    store, client = here
    signed_in(store, client)
    kept = client.cookies[COOKIE]
    assert client.post("/sign-out").status_code == 303
    assert COOKIE not in client.cookies
    assert client.get("/live", headers={"cookie": f"{COOKIE}={kept}"}).status_code == 401  # whoever has copied it
    assert store.sessions("ann") == ()


def test_a_cookie_is_taken_back_as_it_was_given(here):
    """By the same name and attributes: a browser takes them for two otherwise."""
    store, client = here
    secret = store.create_token("ann", scopes=("write",))
    given, taken = (
        client.post(path, data=data).headers["set-cookie"]
        for path, data in (("/sign-in", {"token": secret.text}), ("/sign-out", {}))
    )

    def attributes(cookie):
        name, *rest = cookie.lower().split("; ")
        return name.partition("=")[0], {each for each in rest if not each.startswith(("max-age", "expires"))}

    assert attributes(given) == attributes(taken)
    assert "max-age=0" in taken.lower()


def test_a_cookie_is_no_token_and_a_token_no_cookie(here):
    store, client = here
    secret = signed_in(store, client)
    kept = client.cookies[COOKIE]
    client.cookies.clear()
    assert client.get("/live", headers={"authorization": f"Bearer {kept}"}).status_code == 401
    assert client.get("/live", headers={"cookie": f"{COOKIE}={secret.text}"}).status_code == 401
    assert client.get("/live", headers={"cookie": f"inferometer_token={secret.text}"}).status_code == 401
    assert client.get("/live", headers={"cookie": f"{COOKIE}={kept}"}).status_code == 200


def test_a_session_ends_with_its_token(here):
    store, client = here
    secret = signed_in(store, client)
    store.revoke_token(secret.token.id)
    assert client.get("/live").status_code == 401
    assert store.sessions("ann") == ()
    led = client.get("/live", headers=PAGE)
    assert "ended=1" in led.headers["location"]


def test_a_session_that_nobody_uses_ends_after_half_a_day(here, clock):
    store, client = here
    signed_in(store, client)
    for _ in range(3):
        clock[0] += IDLE_S - 60
        store.create_user(f"u{clock[0]}")  # somebody writes: what is known of visitors is looked up again
        assert client.get("/live").status_code == 200
    clock[0] += IDLE_S + 1
    store.create_user("another")
    assert client.get("/live").status_code == 401


def test_a_session_ends_after_a_month_however_much_it_is_used(here, clock):
    store, client = here
    signed_in(store, client)
    for _ in range(int(LONGEST_S / IDLE_S) * 2 - 1):
        clock[0] += IDLE_S / 2
        assert store.visitor(session=client.cookies[COOKIE]) is not None
    clock[0] += IDLE_S / 2
    assert store.visitor(session=client.cookies[COOKIE]) is None


def test_a_session_is_kept_as_a_hash_and_says_where_it_is_from(here):
    store, client = here
    signed_in(store, client)
    (session,) = store.sessions("ann")
    assert (session.address, session.browser.startswith("python-httpx")) == ("127.0.0.1", True)
    assert client.cookies[COOKIE].encode() not in store.location.file.read_bytes()


def test_a_removed_user_is_out(here):
    store, client = here
    signed_in(store, client)
    store.delete_user("ann")
    assert client.get("/live").status_code == 401


def test_over_https_the_cookie_is_the_hosts_own(tmp_path):
    with hub(tmp_path, tokens=True, url="https://bench.example") as (store, client):
        store.create_user("ann")
        text = store.create_token("ann").text
        proxied = {"host": "bench.example", "origin": "https://bench.example"}
        found = client.post("/sign-in", data={"token": text}, headers=proxied)
        cookie = found.headers["set-cookie"]
        assert cookie.startswith(f"__Host-{COOKIE}=")
        assert {"Secure", "HttpOnly", "SameSite=lax", "Path=/"} <= set(cookie.split("; "))
        assert "Domain" not in cookie
        name, _, kept = cookie.partition(";")[0].partition("=")
        there = {"host": "bench.example"}
        assert client.get("/live", headers={**there, "cookie": f"{name}={kept}"}).status_code == 200
        planted = {**there, "cookie": f"{COOKIE}={kept}"}  # as a neighbour under bench.example could set it
        assert client.get("/live", headers=planted).status_code == 401


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://{host}", 201), ("https://{host}", 403), ("http://{name}", 403), ("http://{name}:1", 403),
        ("null", 403), ("https", 403), ("//{host}", 403), ("ftp://{host}", 403), ("http://x@{host}.evil.example", 403),
        ("http://bench.example", 403), ("https://bench.example", 403),
    ],
)  # fmt: skip
def test_a_write_comes_from_our_own_scheme_host_and_port(tmp_path, origin, status):
    with hub(tmp_path, url="https://bench.example") as (_, client):
        origin = origin.format(host=client.base_url.netloc.decode(), name=client.base_url.host)
        assert client.post("/api/v1/projects", json={"name": "x"}, headers={"origin": origin}).status_code == status


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("https://bench.example", 201), ("https://bench.example:443", 201), ("http://bench.example", 403),
        ("https://bench.example:8443", 403), ("https://evil.bench.example", 403), ("null", 403),
    ],
)  # fmt: skip
def test_behind_a_proxy_it_is_the_address_that_the_hub_was_told(tmp_path, origin, status):
    with hub(tmp_path, url="https://bench.example") as (_, client):
        headers = {"origin": origin, "host": "bench.example"}
        assert client.post("/api/v1/projects", json={"name": "x"}, headers=headers).status_code == status


def test_a_hub_in_a_program_leaves_its_handlers_of_logging_and_their_streams_open(tmp_path):
    class Closing(logging.StreamHandler):
        """As absl's, which closes the stream that was the process's stderr when it was made."""

        def close(self):
            self.stream.close()
            super().close()

    heard = io.StringIO()
    handler = Closing(heard)
    with open_store(tmp_path / "runs.db") as store, hub_in_thread(store, Rules()):
        assert not heard.closed
    handler.close()
