"""A hub with two projects and somebody of every kind, for tests of who may do what."""

import hashlib
import time
from dataclasses import dataclass, field
from itertools import count

import httpx

from fakes.fleet import a_job, a_result
from inferometer.core.codec import document, encode
from inferometer.core.job import JobFile, JobModel
from inferometer.store import Attachment
from inferometer.store.queue.devices import Registrar
from inferometer.store.queue.fleet import Fleet
from inferometer.store.queue.values import NewDevice, NewJob, Wanted
from unit.hub.web.samples import network

PEOPLE = ("nobody", "outsider", "reader", "writer", "owner", "admin", "agent")
DATA = bytes(range(256)) * 4
SHA = hashlib.sha256(DATA).hexdigest()
MODEL = JobModel(name="net", entry="net.onnx", files=(JobFile(path="net.onnx", sha256=SHA, size_bytes=len(DATA)),))


@dataclass
class World:
    """Everything is in `phones`. An outsider owns `cars`. The tokens of people have the scope write."""

    store: object
    client: httpx.Client
    tokens: dict = field(default_factory=dict)
    numbers: object = field(default_factory=count)

    def __post_init__(self):
        for project in ("phones", "cars"):
            self.store.create_project(project)
        for name in PEOPLE[1:]:
            self.store.create_user(name)
            scope = {"admin": "admin", "agent": "agent"}.get(name, "write")
            only = "phones" if name == "agent" else None
            self.tokens[name] = self.store.create_token(name, scopes=(scope,), project=only).text
        for name in ("reader", "writer", "owner"):
            self.store.set_member("phones", name, name)
        self.store.set_member("cars", "outsider", "owner")
        self.fleet = Fleet.of(self.store)
        by = Registrar(user="agent", project="phones", everyone=False)
        labels = {"unit": ("cpu",), "runtime": ("onnxruntime",)}
        self.fleet.register(NewDevice(name="pi", labels=labels, version="1"), by)
        self.fleet.register(NewDevice(name="lab", labels={"unit": ("npu",)}, version="1"), by)
        self.run()

    def headers(self, who):
        return {} if who == "nobody" else {"authorization": f"Bearer {self.tokens[who]}"}

    def ask(self, who, method, path, **given):
        headers = {**self.headers(who), **given.pop("headers", {})}
        return self.client.request(method, path, headers=headers, **given)

    def run(self, author="writer", project="phones"):
        return self.store.add(network(3, seed=next(self.numbers)), project, author=author)

    def run_with_file(self):
        return self.store.add(network(3), "phones", attachments=[Attachment(name="x.txt", source=b"text")])

    def link(self):
        return self.store.create_link([self.run()], user="writer", lasts_s=1000)

    def somebodys_link(self):
        self.somebody()
        self.store.set_member("phones", "somebody", "writer")
        self.store.create_link([self.run()], user="somebody", lasts_s=1000)
        return next(link.id for link in self.store.links() if link.user == "somebody")

    def somebody(self):
        if "somebody" not in {user.name for user in self.store.users()}:
            self.store.create_user("somebody")
        return "somebody"

    def somebodys_token(self):
        return self.store.create_token(self.somebody()).token.id

    def somebodys_session(self):
        self.store.begin_session(self.somebody())
        return self.store.sessions("somebody")[0].id

    def new_member(self):
        name = f"member {next(self.numbers)}"
        self.store.create_user(name)
        self.store.set_member("phones", name, "writer")
        return name

    def stranger(self):
        """Somebody new, who is in no project."""
        name = f"stranger {next(self.numbers)}"
        self.store.create_user(name)
        self.tokens[name] = self.store.create_token(name, scopes=("write",)).text
        return name

    def job(self, user="writer", project="phones"):
        new = NewJob(job=a_job(next(self.numbers), model=MODEL), wanted=Wanted(device="pi"), project=project, user=user)
        return self.fleet.submit(new)[0].id

    def lease(self):
        """A job that `pi` has: its id and its lease. What it had before is given back."""
        held = self.fleet.device("pi").job
        if held is not None:
            self.fleet.give_back(held, self.fleet.job(held).lease, "for the test", counts=False)
            self.fleet.cancel(held)
        for waiting in self.fleet.jobs(states=("queued",), limit=1000):
            self.fleet.cancel(waiting.id)
        self.job()
        lease = self.fleet.lease("pi")
        return lease.row.id, lease.id

    def given(self):
        """`pi` works for phones, whoever has taken it back."""
        self.fleet.share("pi", "phones")

    def plain_result(self, job):
        return a_result(self.fleet.document(job))

    def result(self, job):
        return document(self.plain_result(job))


def profile_body():
    return encode(network(2))


def registration(name):
    return {"name": name, "protocol": 1, "labels": {"unit": ["cpu"]}, "version": "1", "now": time.time()}
