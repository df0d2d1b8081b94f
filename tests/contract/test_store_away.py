"""A PostgreSQL that goes away under a hub: everybody is told in their own way, and it all comes back by itself."""

import json
import threading
import urllib.error
import urllib.request
from collections import Counter
from contextlib import contextmanager

import pytest

from fakes.fleet import DEVICES
from inferometer.core.codec import encode
from inferometer.hub.web.guard.rules import Rules
from inferometer.hub.web.serving import hub_in_thread
from inferometer.store import open_store
from inferometer.store.queue.fleet import Fleet
from unit.store import postgres
from unit.store.profiles import profile

pytestmark = pytest.mark.slow
RULES = Rules(tokens=True, per_s=1e6, burst=10**6, agents_per_s=1e6, agents_burst=10**6, poll_s=0.05)
PAGES = ("/", "/runs/last", "/projects/phones", "/live", "/fleet")
CALLS = ("/api/v1/runs", "/api/v1/runs/last", "/api/v1/live?once=1", "/api/v1/fleet/devices", "/api/v1/health")


class Client:
    """Asks a hub, and counts what it is told."""

    def __init__(self, url, token):
        self.url, self.token = url, token
        self.told, self.wrong, self.lock = Counter(), [], threading.Lock()

    def ask(self, path, data=None):
        kind = "text/html" if not path.startswith("/api/") else "application/json"
        headers = {"authorization": f"Bearer {self.token}", "accept": kind, "content-type": "application/json"}
        request = urllib.request.Request(self.url + path, data=data, headers=headers)  # noqa: S310 - our own hub
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
                status, fields, body = answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                status, fields, body = error.code, error.headers, error.read()
        self._note(path, status, fields, body)
        return status

    def _note(self, path, status, fields, body):
        why = None
        if status == 503:
            if fields.get("retry-after") is None:
                why = "no Retry-After"
            elif path.startswith("/api/") and "error" not in json.loads(body):
                why = "no error in its JSON"
            elif not path.startswith("/api/") and b"<html" not in body:
                why = "no page"
        elif status >= 500:
            why = body[:200]
        with self.lock:
            self.told[status] += 1
            if why is not None:
                self.wrong.append((path, status, why))

    def until(self, status, paths):
        """Ask until each path is answered with the status, or one was answered as it should not be."""
        for path in paths:
            while self.ask(path) != status:
                assert self.wrong == []


@pytest.fixture
def server():
    with postgres.server() as found:
        yield found


@contextmanager
def load(work, threads=4):
    """`work` again and again in several threads; what it raises fails the test."""
    over, raised = threading.Event(), []

    def repeat():
        try:
            while not over.is_set():
                work()
        except Exception as error:  # noqa: BLE001 - told below
            raised.append(error)

    running = [threading.Thread(target=repeat) for _ in range(threads)]
    for thread in running:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in running:
            thread.join()
    assert raised == []


def test_pages_the_api_and_agents_hear_of_it_and_all_recovers_by_itself(server, tmp_path):
    with open_store(server.url(server.database()), artifacts=tmp_path / "artifacts") as store:
        store.add(profile(1), "phones")
        Fleet.of(store).register(DEVICES[0])
        token = store.create_token(store.create_user("ada").name, scopes=("admin", "write", "agent")).text
        with hub_in_thread(store, RULES) as url:
            client = Client(url, token)
            client.until(200, (*PAGES, *CALLS))
            beat = json.dumps({"device": "pi"}).encode()

            def everything():
                for path in (*PAGES, *CALLS):
                    client.ask(path)
                client.ask("/api/v1/fleet/agent/beat", beat)
                client.ask("/api/v1/profiles?project=phones", encode(profile(2)))

            with load(everything):
                for _ in range(2):
                    server.run.stop()
                    client.until(503, (*PAGES, *CALLS))
                    server.run.start()
                    client.until(200, (*PAGES, *CALLS))
    assert client.wrong == []
    assert set(client.told) <= {200, 201, 503}, client.told


def test_a_live_stream_ends_with_the_reason(server, tmp_path):
    with open_store(server.url(server.database()), artifacts=tmp_path / "artifacts") as store:
        store.begin("phones")
        with hub_in_thread(store, Rules(poll_s=0.05)) as url:
            with urllib.request.urlopen(f"{url}/api/v1/live", timeout=60) as stream:  # noqa: S310 - our own hub
                assert stream.readline() == b"event: runs\n"
                server.run.stop()
                rest = stream.read()  # to its end, and no error on the way
            assert rest.rstrip().rpartition(b"event: ")[2].startswith(b"end\ndata: {")
            server.run.start()
            with urllib.request.urlopen(f"{url}/api/v1/live", timeout=60) as stream:  # noqa: S310
                assert stream.readline() == b"event: runs\n"
