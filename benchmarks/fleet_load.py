"""Many agents at one hub: none of their jobs lost or doubled, how long a job waits for a free device, memory.

    python benchmarks/fleet_load.py --agents 1000 --jobs 10000 --postgres
    python benchmarks/fleet_load.py --agents 100 --jobs 1000

The hub is a process of its own; agents and submitters are tasks of this one, which speak its protocol and measure
nothing. Half of the jobs are submitted before the agents come (the queue is full); the rest come at a steady pace that
the agents can keep up with. Dispatch is the time from the moment a job is in the queue and a device is free for it,
until the device has it: it is read in the steady half.
"""

import argparse
import asyncio
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil
from sqlalchemy import func, select

from inferometer.core.codec import decode, document
from inferometer.core.job import Job, JobModel, JobResult
from inferometer.hub.web.guard.rules import Rules
from inferometer.hub.web.serving import listen
from inferometer.hub.web.serving import serve as serve_hub
from inferometer.known import device as catalog_device
from inferometer.store import open_store
from inferometer.store.queue.fleet import Fleet
from inferometer.store.tables import fleet_results

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

API = "/api/v1/fleet"
SUBMITTERS = 20
HUB = str(Path(__file__))  # what is started as the hub: this file, or one that watches it closer
KINDS = ("raspberry-pi-5", "nvidia-t4", "jetson-orin-nano-8gb")


def job_document(number):
    return document(Job(id=f"profile-{number}", verb="profile", model=JobModel(name="resnet50"), runtime="onnxruntime"))


def result_document(job):
    """A refusal: nothing was measured, and the hub takes no answer for done that has no profile."""
    return document(JobResult(job=decode(json.dumps(job), Job), ended="refused"))


class Connection:
    """A connection that is kept, with as little around it as will do: what is measured is the hub, and not this."""

    def __init__(self, address):
        self.host, self.port = address.rpartition("/")[2].split(":")
        self.reader = self.writer = None

    async def post(self, path, value):
        """The status and the document."""
        body = json.dumps(value).encode()
        head = f"POST {API}{path} HTTP/1.1\r\nhost: {self.host}\r\ncontent-type: application/json\r\n"
        try:
            if self.writer is None:
                self.reader, self.writer = await asyncio.open_connection(self.host, int(self.port))
            self.writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            answered = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(answered.partition("content-length:")[2].partition("\r\n")[0])
            data = await self.reader.readexactly(length)
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            raise
        return int(answered.split()[1]), json.loads(data)

    def close(self):
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None


class Load:
    def __init__(self, address, agents, jobs, seconds):
        self.address, self.agents, self.jobs, self.seconds = address, agents, jobs, seconds
        self.submitters = asyncio.Queue()
        for _ in range(SUBMITTERS):
            self.submitters.put_nowait(Connection(address))
        self.submitted, self.taken, self.done = {}, Counter(), Counter()
        self.dispatch, self.free_since, self.steady_after = [], {}, None
        self.errors, self.registered = Counter(), 0
        self.begun, self.began = asyncio.Event(), time.monotonic()

    async def post(self, connection, path, value):
        while True:
            try:
                status, answer = await connection.post(path, value)
            except (OSError, asyncio.IncompleteReadError) as error:
                self.errors[type(error).__name__] += 1
            else:
                if status < 300:
                    return answer
                if status not in {429, 503}:
                    raise RuntimeError(f"{path}: {status} {answer}")
                self.errors[status] += 1
            await asyncio.sleep(0.5)

    async def submit(self, number):
        asked = {"job": job_document(number), "project": f"p{number % 5}", "priority": number % 3}
        connection = await self.submitters.get()
        row = await self.post(connection, "/jobs", asked)
        self.submitted[row["id"]] = time.monotonic()
        self.submitters.put_nowait(connection)

    async def register(self, connection, name):
        """As a device of one of three kinds, with the figures that jobs are predicted by."""
        kind = KINDS[int(name.rpartition("-")[2]) % len(KINDS)]
        labels = {"runtime": ["onnxruntime"], "unit": ["cpu"]}
        facts = {"machine": {"cpu": kind}, "device": document(catalog_device(kind)), "runtimes": {"onnxruntime": "1"}}
        said = {"name": name, "protocol": 1, "labels": labels, "facts": facts, "now": time.time()}
        await self.post(connection, "/agent/register", said)

    async def agent(self, name):
        draw = random.Random(name)  # noqa: S311 - how long a job takes
        connection = Connection(self.address)
        await self.register(connection, name)
        self.registered += 1
        await self.begun.wait()
        self.free_since[name] = time.monotonic()
        while len(self.done) < self.jobs:
            lease = await self.post(connection, "/agent/poll", {"device": name, "wait_s": 25})
            if lease["job"] is None:
                continue
            now = time.monotonic()
            job, held = lease["id"], {"device": name, "lease": lease["lease"]}
            self.taken[job] += 1
            came = self.submitted.get(job, now)
            if self.steady_after is not None and came >= self.steady_after:
                self.dispatch.append(now - max(came, self.free_since[name]))
            await asyncio.sleep(self.seconds * draw.uniform(0.5, 1.5))
            await self.post(connection, f"/agent/jobs/{job}/result", {**held, "result": result_document(lease["job"])})
            self.done[job] += 1
            self.free_since[name] = time.monotonic()

    async def run(self, pace):
        half = self.jobs // 2
        agents = [asyncio.create_task(self.agent(f"agent-{number}")) for number in range(self.agents)]
        await self.at_rest()
        self.say(f"{self.agents} agents are registered")
        await asyncio.gather(*(self.submit(number) for number in range(half)))
        self.say(f"{half} jobs wait")
        self.begun.set()
        while len(self.done) < half:
            ended = [agent for agent in agents if agent.done()]
            if ended:
                ended[0].result()  # raises what it died of
            await asyncio.sleep(0.5)
        self.say("they are done; the rest comes at a steady pace")
        self.steady_after = time.monotonic()
        submits = []
        for number in range(half, self.jobs):
            await asyncio.sleep(max(self.steady_after + (number - half) / pace - time.monotonic(), 0))
            submits.append(asyncio.create_task(self.submit(number)))
        await asyncio.gather(*submits)
        await asyncio.wait(agents, timeout=600)
        for agent in agents:
            agent.cancel()

    async def at_rest(self):
        """Until every agent is registered."""
        while self.registered < self.agents:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.1)

    def say(self, text):
        print(f"{time.monotonic() - self.began:4.0f} s  {text}", flush=True)


@contextlib.contextmanager
def store_place(postgres, folder):
    if not postgres:
        yield str(folder / "runs.db")
        return
    from unit.store.postgres import server  # noqa: PLC0415 - of the tests, found by the path above

    with server() as found:
        yield found.url(found.database())


@contextlib.contextmanager
def hub_process(place, folder):
    command = [sys.executable, HUB, "--serve", place]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder)
    try:
        yield process.stdout.readline().strip(), psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(30)


def serve(place):
    """A hub with its usual rules, but for the pace of one address: all agents come from this machine."""
    with open_store(place) as store, listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        rules = Rules(port=port, per_s=1e6, burst=10**6)
        serve_hub(store, rules, listening, ready=lambda: print(f"http://127.0.0.1:{port}", flush=True))


async def watched(process, readings):
    while True:
        with contextlib.suppress(psutil.Error):
            readings.append((time.monotonic(), process.memory_info().rss))
        await asyncio.sleep(2)


async def loaded(load, pace, process, readings):
    watching = asyncio.create_task(watched(process, readings))
    await load.run(pace)
    watching.cancel()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--pace", type=float, default=20.0, help="jobs a second in the steady half")
    parser.add_argument("--seconds", type=float, default=2.0, help="that a job takes")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        serve(asked.serve)
        return
    folder = Path(tempfile.mkdtemp(prefix="ifm-load-"))
    readings = []
    with store_place(asked.postgres, folder) as place, hub_process(place, folder) as (address, process):
        began = time.monotonic()
        load = Load(address, asked.agents, asked.jobs, asked.seconds)
        asyncio.run(loaded(load, asked.pace, process, readings))
        took = time.monotonic() - began
        cpu = process.cpu_times()
        report(load, took, readings, cpu.user + cpu.system)
        stored(place, asked.jobs)


def report(load, took, readings, cpu_s):
    waits = sorted(load.dispatch)
    middle = [rss for at, rss in readings if load.steady_after is None or at >= load.steady_after]
    print(f"{load.agents} agents, {load.jobs} jobs in {took:.0f} s; hub CPU {cpu_s:.0f} s")
    print(f"taken {len(load.taken)}, twice {sum(count > 1 for count in load.taken.values())}; "
          f"done {len(load.done)}, twice {sum(count > 1 for count in load.done.values())}")  # fmt: skip
    if waits:
        p50, p95 = waits[len(waits) // 2], waits[int(0.95 * len(waits))]
        print(f"dispatch at steady state: median {p50:.3f} s, p95 {p95:.3f} s, worst {waits[-1]:.3f} s ({len(waits)})")
    if middle:
        print(f"hub memory at steady state: {middle[0] / 1e6:.0f} MB at first, {middle[-1] / 1e6:.0f} MB at the end, "
              f"{max(middle) / 1e6:.0f} MB at most")  # fmt: skip
    print(f"asked again: {dict(load.errors) or 'never'}")


def stored(place, jobs):
    with open_store(place) as store:
        with store.database.reading() as connection:
            results = connection.execute(select(func.count()).select_from(fleet_results)).scalar_one()
        counts = Fleet.of(store).counts()
    print(f"in the store: {counts}, {results} results; lost {jobs - counts.get('failed', 0)}")


if __name__ == "__main__":
    main()
