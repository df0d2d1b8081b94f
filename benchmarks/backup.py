"""A hub with 10,000 runs, backed up, checked and restored while runs come in: counts, seconds and peak memory.

    python benchmarks/backup.py                     on SQLite
    python benchmarks/backup.py postgresql://…      on an empty PostgreSQL database

Each step is the command that an operator types, in a process of its own, whose peak memory the system reports.
"""

import http.client
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import store as store_benchmark

from inferometer.core.codec import encode
from inferometer.store import Attachment, open_store
from inferometer.store.backup import Backup

RUNS, BATCH = 10_000, 250
COMMAND = [sys.executable, "-m", "inferometer", "hub"]


def fill(place):
    """Runs with profiles of a hundred ops, and a file for one in a hundred."""
    with open_store(place) as opened:
        for first in range(0, RUNS, BATCH):
            opened.add_all([store_benchmark.profile(number) for number in range(first, first + BATCH)], "filled")
        for number in range(RUNS // 100):
            run = opened.begin("with files")
            trace = Attachment(name="trace.json", source=os.urandom(100_000), media_type="application/json")
            opened.finish(run, store_benchmark.profile(number), attachments=[trace])


def timed(*words):
    """What a command said, its seconds and its peak memory in bytes."""
    start = time.perf_counter()
    with subprocess.Popen([*COMMAND, *words], stderr=subprocess.PIPE, text=True) as process:
        said = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(said)
    took = time.perf_counter() - start
    print(f"{words[0]}: {took:.1f} s, {usage.ru_utime + usage.ru_stime:.1f} s of CPU, {usage.ru_maxrss / 1000:.0f} MB")
    print(f"  {said.strip()}")


def write(port, over, written):
    """Sends profiles to the hub, one after the other."""
    document = encode(store_benchmark.profile(1))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    while not over.is_set():
        connection.request("POST", "/api/v1/profiles?project=live", document, {"content-type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        if answer.status != 201:
            raise SystemExit(f"The hub answered {answer.status}.")
        written.append(time.perf_counter())


def main(place=None):
    with tempfile.TemporaryDirectory() as folder:
        place = place or f"{folder}/runs.db"
        fill(place)
        print(f"{RUNS + RUNS // 100:,} runs are in {Path(place).name}; load {os.getloadavg()[0]:.1f}")
        hub = subprocess.Popen([*COMMAND, "--port", "0", "--store", place], stderr=subprocess.PIPE, text=True)
        over, written = threading.Event(), []
        port = int(re.search(r":(\d+)/", hub.stderr.readline())[1])
        writer = threading.Thread(target=write, args=(port, over, written))
        writer.start()
        try:
            timed("backup", f"{folder}/hub.zip", "--store", place)
            during = len(written)
            timed("restore", f"{folder}/hub.zip", "--check")
        finally:
            over.set()
            writer.join()
            hub.terminate()
            hub.wait()
        timed("restore", f"{folder}/hub.zip", "--store", f"{folder}/new.db")
        timed("backup", f"{folder}/again.zip", "--store", f"{folder}/new.db")
        with Backup(Path(folder, "hub.zip")) as first, Backup(Path(folder, "again.zip")) as second:
            same = first.manifest.tables == second.manifest.tables
            size = Path(folder, "hub.zip").stat().st_size
            print(
                f"{during} runs came in during the backup, which has {first.manifest.rows('runs'):,} and {size:,} bytes"
            )
            print(f"restored and backed up again, every table has the same hash: {same}")


if __name__ == "__main__":
    main(*sys.argv[1:])
