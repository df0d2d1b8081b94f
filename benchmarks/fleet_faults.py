"""What a fleet goes through, done for real: processes killed, networks cut, disks full, databases restarted.

    python benchmarks/fleet_faults.py            all of them, a table at the end
    python benchmarks/fleet_faults.py agent hub  some of them
    python benchmarks/fleet_faults.py older=v0.3 an agent of that version; `older`: of the first commit that has one

A hub on PostgreSQL, agents and runners are processes; a proxy stands for the network. After each fault: the job is
done once, its result is stored once, and the page of the job says so.
"""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
from sqlalchemy import func, select

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fakes.dropping_proxy import DroppingProxy, RepeatingProxy
from fakes.fleet import a_result
from fakes.fleet_processes import Process
from fakes.places import LONG, QUICK, one_layer, packed
from inferometer.core.codec import decode, document
from inferometer.core.job import FINAL, Job
from inferometer.core.workload import Workload
from inferometer.hub.places import device_side
from inferometer.hub.places.base import resolve
from inferometer.measure.bench.plan import Plan
from inferometer.store import open_store
from inferometer.store.tables import fleet_results, runs
from unit.hub.web import samples
from unit.store import postgres

ROOT = Path(__file__).parent.parent
SOME = Plan(runs=10, seconds=6.0, warmup=1, calls=1, seconds_at_most=60.0)


@dataclass
class Lab:
    """A hub, its store and an agent; `log` is what was done and seen."""

    folder: Path
    server: postgres.Server
    database: str
    port: int = 0
    hub: Process | None = None
    agents: dict = field(default_factory=dict)
    version: str = ""  # of an older agent

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def start_hub(self):
        place = self.server.url(self.database)
        self.hub = Process("hub", "--port", self.port, "--store", place)
        address = self.hub.until(r"The hub is at http://127.0.0.1:(\d+)/")
        self.port = int(address[1])

    def start_agent(self, name="box", *, url=None, root=None, paths=(), token=None):
        """`paths` are looked in for Python's modules before all others."""
        place = root or self.folder / name
        fixed = ("--no-guard", "--no-reference", *(("--token", token) if token else ()))
        path = os.pathsep.join([*map(str, paths), os.environ.get("PYTHONPATH", "")])  # noqa: TID251 - passed on
        env = {**os.environ, "PYTHONPATH": path}  # noqa: TID251 - passed on
        agent = Process("hub", "agent", "--hub", url or self.url, "--name", name, "--root", place, *fixed, env=env)
        agent.until("takes jobs from")
        self.agents[name] = agent
        return agent

    def submit(self, plan=QUICK, on="box", model=None, more=""):
        work = packed(model or one_layer(self.folder), plan)
        place = resolve(f"hub:{on}?url={self.url}&patience=60s{more}")
        return place, place.submit(work.job, work.files)

    def set_state(self, name, state):
        httpx.patch(f"{self.url}/api/v1/fleet/devices/{name}", json={"state": state}, timeout=30).raise_for_status()

    def row(self, handle):
        return httpx.get(f"{self.url}/api/v1/fleet/jobs/{handle.folder}", timeout=30).json()

    def until(self, handle, *states, seconds=180):
        for _ in range(int(seconds / 0.2)):
            with contextlib.suppress(httpx.TransportError, KeyError, ValueError):
                row = self.row(handle)
                if row["state"] in states:
                    return row
            time.sleep(0.2)
        raise AssertionError(f"it is not {states}: {self.row(handle)}")

    def counted(self):
        with open_store(self.server.url(self.database)) as store, store.database.reading() as connection:
            return tuple(
                connection.execute(select(func.count()).select_from(table)).scalar_one()
                for table in (fleet_results, runs)
            )

    def events(self, handle):
        return httpx.get(f"{self.url}/api/v1/fleet/jobs/{handle.folder}/events", timeout=30).json()

    def device(self, name):
        return httpx.get(f"{self.url}/api/v1/fleet/devices/{name}", timeout=30).json()

    def page(self, handle):
        return httpx.get(f"{self.url}/fleet/jobs/{handle.folder}", timeout=30).text

    def stop(self):
        for process in [*self.agents.values(), self.hub]:
            if process is not None:
                process.stop()


def require(holds, seen="it does not hold"):
    if not holds:
        raise RuntimeError(seen)


def ended_once(lab, handle, state="done"):
    """What must hold after every fault."""
    row = lab.until(handle, *FINAL)
    require(row["state"] == state, row)
    results, stored = lab.counted()
    require((results, stored) == (1, 1 if state == "done" else stored), (results, stored))
    require(f">{state}<" in lab.page(handle))
    return row


def runner_folders(root):
    return sorted((root / "jobs").glob("hub-*"))


def agent(lab):
    """kill -9 of the agent while its job runs; started again it goes on with the same run."""
    first = lab.start_agent()
    _, handle = lab.submit(SOME)
    lab.until(handle, "running")
    folder = runner_folders(lab.folder / "box")[0]
    first.kill()
    require(device_side.is_alive(str(folder)), "the runner goes on")
    second = lab.start_agent()
    row = ended_once(lab, handle)
    require(row["attempts"] == 1)
    second.until("going on with it")
    return "the run went on without it; 1 attempt, 1 result"


def reboot(lab):
    """Agent and runner are gone at once, as when the power goes; the job is run again."""
    first = lab.start_agent()
    _, handle = lab.submit(SOME)
    lab.until(handle, "running")
    folder = runner_folders(lab.folder / "box")[0]
    first.kill()
    os.kill(int((folder / "runner.pid").read_bytes()), 9)
    lab.start_agent()
    row = ended_once(lab, handle)
    require(row["attempts"] == 2)
    return f"lost, queued again after a pause, done at attempt {row['attempts']}, 1 result"


def hub(lab):
    """kill -9 of the hub in the middle of an upload, and again while a job runs."""
    lab.start_agent()
    big = one_layer(lab.folder, name="big.onnx")
    with big.open("ab") as file:
        file.write(b"\x22" + b"\x80\x80\x80\x20" + b"\0" * (64 << 20))  # an unknown field that readers skip
    size = big.stat().st_size
    proxy = DroppingProxy(lab.url, cut_after=[1 << 50, 1 << 50, 1 << 50, 4 << 20])

    def kill_when_it_is_cut():
        for _ in range(3000):
            if proxy.cuts:
                break
            time.sleep(0.02)
        lab.hub.kill()
        lab.start_hub()

    killer = threading.Thread(target=kill_when_it_is_cut)
    killer.start()
    work = packed(big, SOME)
    handle = resolve(f"hub:box?url={proxy.address}&patience=90s").submit(work.job, work.files)
    killer.join()
    lab.until(handle, "running", *FINAL)
    lab.hub.kill()
    time.sleep(1)
    lab.start_hub()
    lab.until(handle, *FINAL)
    results, _ = lab.counted()
    require(results == 1)
    sent = hashlib.sha256(big.read_bytes()).hexdigest()[:8]
    return f"{size >> 20} MiB ({sent}) arrived whole; the job went on meanwhile; 1 result"


def network(lab):
    """Ten seconds without a network while a job runs, between agent and hub."""
    proxy = DroppingProxy(lab.url)
    lab.start_agent(url=proxy.address)
    _, handle = lab.submit(SOME)
    lab.until(handle, "running")
    proxy.cut()
    time.sleep(10)
    proxy.restore()
    row = ended_once(lab, handle)
    require(row["attempts"] == 1)
    proxy.close()
    return "the run went on; its result came afterwards; 1 attempt, 1 result"


def mounted(folder, size):
    command = [shutil.which("mount") or "mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def disk(lab):
    """The agent's disk is full (a file system of 1 MB): the job goes to another device."""
    small = lab.folder / "small"
    small.mkdir()
    if not mounted(small, "1m"):
        return "SKIPPED: no right to mount a small file system here"
    try:
        lab.start_agent("box")
        lab.set_state("box", "maintenance")
        lab.start_agent("full", root=small)
        _, handle = lab.submit(QUICK, on="any")
        for _ in range(300):
            reason = lab.row(handle)["reason"] or ""
            if "disk" in reason:
                break
            time.sleep(0.1)
        require("Its disk is full" in reason, reason)
        lab.set_state("box", "ready")
        row = lab.until(handle, *FINAL)
        require(row["state"] == "done", row)
        require(lab.counted() == (1, 1))
        return f"given back ({reason[:60]}…), done on {row['device']} at attempt {row['attempts']}"
    finally:
        for agent_process in lab.agents.values():
            agent_process.stop()
        lab.agents.clear()
        subprocess.run([shutil.which("umount") or "umount", str(small)], check=False)


def database(lab):
    """PostgreSQL is stopped and started while a job runs."""
    lab.start_agent()
    _, handle = lab.submit(SOME)
    lab.until(handle, "running")
    lab.server.run.stop()
    time.sleep(3)
    lab.server.run.start()
    row = ended_once(lab, handle)
    require(row["attempts"] == 1)
    return "hub and agent waited; 1 attempt, 1 result"


def filled(lab):
    """The agent's disk fills up while its job runs; then there is room again."""
    small = lab.folder / "small"
    small.mkdir()
    if not mounted(small, "300m"):
        return "SKIPPED: no right to mount a small file system here"
    try:
        lab.start_agent("full", root=small)
        _, handle = lab.submit(SOME, on="full")
        lab.until(handle, "running")
        ballast = small / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb") as file:
            while True:
                file.write(b"\0" * (1 << 20))
                file.flush()
        for _ in range(600):
            row = lab.row(handle)
            if row["state"] in FINAL or row["attempts"] > 1 or row["reason"]:
                break
            time.sleep(0.1)
        said = row["reason"] or row["state"]
        ballast.unlink()
        row = ended_once(lab, handle)
        return f"said: {said[:80]}; with room again done at attempt {row['attempts']}; the agent never ended"
    finally:
        for agent_process in lab.agents.values():
            agent_process.stop()
        lab.agents.clear()
        subprocess.run([shutil.which("umount") or "umount", str(small)], check=False)


def clock(lab):
    """The device's clock is 30 days ahead, for the agent and its runner."""
    ahead = lab.folder / "ahead"
    ahead.mkdir()
    (ahead / "sitecustomize.py").write_text(
        "import time\nreal = time.time\ntime.time = lambda: real() + 30 * 86_400\n", encoding="utf-8"
    )
    lab.start_agent(paths=[ahead])
    _, handle = lab.submit(QUICK)
    row = ended_once(lab, handle)
    events = lab.events(handle)
    off = max(abs(event["at"] - time.time()) for event in events)
    skew = lab.device("box")["skew_s"]
    require(off < 600 and row["ended"] - row["leased"] < 600, (off, row))
    return f"the hub knows ({skew / 86_400:.0f} days ahead); events and durations are by the hub's clock; 1 result"


def twice(lab):
    """Every request of the agent is delivered twice."""
    proxy = RepeatingProxy(lab.url)
    lab.start_agent(url=proxy.address)
    _, handle = lab.submit(SOME)
    row = ended_once(lab, handle)
    require(row["attempts"] == 1)
    events = lab.events(handle)
    numbers = [event["number"] for event in events]
    require(numbers == list(range(1, len(numbers) + 1)), numbers)
    running = sum(event["state"] == "running" for event in events)
    require(running == 1, running)
    proxy.close()
    return f"{proxy.repeated} requests twice; 1 attempt, every event once, 1 result"


def git(*arguments):
    """What git says, or nothing: this may be no clone, or one without its history."""
    command = [shutil.which("git") or "git", *arguments]
    return subprocess.run(command, capture_output=True, check=False, cwd=ROOT).stdout


def install_beside(source, project):
    """As pip would: plug-ins are found by the metadata of the version that is on the path first."""
    about = source / "inferometer-0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: inferometer\nVersion: 0\n", encoding="utf-8")
    lines = [
        line
        for group, entries in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {where}" for name, where in entries.items()))
    ]
    (about / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")


def older(lab):
    """An older agent, by default of the first version that had one, at a hub of today."""
    where = "src/inferometer/cli/agent.py"  # it stood there first
    first = git("log", "--diff-filter=A", "--format=%h", "--", where).decode().split()
    commit = lab.version or (first[-1] if first else "")
    archive = git("archive", commit, "src", "pyproject.toml") if commit else b""
    if not archive:
        return f"SKIPPED: the version {commit or 'with the first agent'} is not here"
    old = lab.folder / "old"
    old.mkdir()
    subprocess.run([shutil.which("tar") or "tar", "-x", "-C", str(old)], input=archive, check=True)
    install_beside(old / "src", tomllib.loads((old / "pyproject.toml").read_text(encoding="utf-8"))["project"])
    lab.start_agent(paths=[old / "src"])
    _, handle = lab.submit(QUICK)
    row = ended_once(lab, handle)
    return (
        f"{commit}: it registers, is told nothing that it does not know, brings its result; attempt {row['attempts']}"
    )


def cancelled(lab):
    """A job that would take minutes is cancelled while its agent is gone; then the agent comes back."""
    first = lab.start_agent()
    place, handle = lab.submit(LONG)
    lab.until(handle, "running")
    first.kill()
    place.cancel(handle)
    lab.start_agent()
    row = lab.until(handle, *FINAL)
    require(row["state"] == "cancelled")
    require(lab.counted()[0] == 1)
    return "stopped when the agent came back, with what it had measured"


def wait_for(holds, seconds=180):
    for _ in range(int(seconds / 0.1)):
        if found := holds():
            return found
        time.sleep(0.1)
    raise AssertionError("it did not happen")


def stopped(lab):
    """TERM to the agent while its job runs, KILL half a second later; then it is started again."""
    first = lab.start_agent()
    _, handle = lab.submit(SOME)
    lab.until(handle, "running")
    first.terminate()
    time.sleep(0.5)
    first.kill()
    lab.start_agent()
    row = ended_once(lab, handle)
    require(not any(event["state"] == "cancelled" for event in lab.events(handle)))
    back = any("It is switched off." in (event["text"] or "") for event in lab.events(handle))
    way = "given back by the agent that was started again" if back else "went on with its run"
    return f"{way}; done, nobody's cancel; attempt {row['attempts']}, 1 result"


def damaged(lab):
    """Six bytes of the model change at the hub while the job waits; then the same command is run again."""
    lab.start_agent()
    lab.set_state("box", "maintenance")
    place, handle = lab.submit(QUICK)
    sha256 = hashlib.sha256(one_layer(lab.folder).read_bytes()).hexdigest()
    copy = device_side.artifact_path(Path(fleet_folder(lab)), sha256)
    wait_for(copy.is_file)
    data = bytearray(copy.read_bytes())
    data[10:16] = b"sixsix"
    copy.write_bytes(data)
    lab.set_state("box", "ready")
    row = lab.until(handle, *FINAL)
    require((row["state"], copy.exists()) == ("inconclusive", False), row)
    said = place.fetch(handle)
    _, again = lab.submit(QUICK)
    require(lab.until(again, *FINAL)["state"] == "done")
    return f"inconclusive: {said.error} {said.remedy} Sent and measured again: done"


def fleet_folder(lab):
    with open_store(lab.server.url(lab.database)) as store:
        artifacts = store.location.artifacts
    return artifacts.with_name(f"{artifacts.name}.fleet")


def revoked(lab):
    """The agent's token is revoked while its job runs; another device is there."""
    with open_store(lab.server.url(lab.database)) as store:
        store.create_user("ada")
        made = store.create_token("ada", scopes=["agent"])
        first = lab.start_agent("box", token=made.text)
        _, handle = lab.submit(SOME, on="any")
        lab.until(handle, "running")
        lab.start_agent("other")
        runner = runner_folders(lab.folder / "box")[0]
        began = time.monotonic()
        store.revoke_token(made.token.id)
        lab.until(handle, "queued")
        took = time.monotonic() - began
    code = first.wait()
    require(code == 77 and not device_side.is_alive(str(runner)), code)
    row = ended_once(lab, handle)
    require(row["device"] == "other", row)
    return f"queued again after {took:.1f} s; its runner and its agent ended (exit code 77); done on another device"


def hang(lab):
    """A runner hangs (it is stopped by a signal); the job has a limit of 30 s and a forecast of less than 6 s."""
    lab.start_agent()
    _, handle = lab.submit(QUICK, more="&seconds_at_most=30s")
    (pid,) = wait_for(lambda: list((lab.folder / "box" / "jobs").glob("hub-*/runner.pid")))
    os.kill(int(pid.read_bytes()), signal.SIGSTOP)
    wait_for(lambda: lab.row(handle)["late"] or lab.row(handle)["state"] in FINAL)
    text = next(event["text"] for event in lab.events(handle) if "may hang" in (event["text"] or ""))
    require(">late<" in lab.page(handle))
    row = ended_once(lab, handle, "failed")
    require(row["attempts"] == 1 and "was killed" in row["reason"], row)
    return f"said: {text} Ended by its limit, not tried again: {row['reason']}"


def liar(lab):
    """A device answers with fifty profiles of another model at 1 ns; then with one of this model at 1 ns."""
    lab.start_agent("box")
    lab.set_state("box", "maintenance")
    said = {"name": "liar", "protocol": 1, "labels": {"runtime": ["onnxruntime"]}, "now": time.time()}
    agents = f"{lab.url}/api/v1/fleet/agent"
    httpx.post(f"{agents}/register", json=said, timeout=30).raise_for_status()
    _, handle = lab.submit(QUICK, on="any")
    doubts = []
    for count, name in ((50, "another"), (1, "net")):
        lease = wait_for(lambda: _leased(agents))
        job = decode(json.dumps(lease["job"]), Job)
        profiles = [_at_once(samples.network(name=name)) for _ in range(count)]
        brought = {"device": "liar", "lease": lease["lease"], "result": document(a_result(job, *profiles))}
        heard = httpx.post(f"{agents}/jobs/{lease['id']}/result", json=brought, timeout=120).json()
        doubts.append(heard["doubt"])
    require(lab.counted() == (0, 0), lab.counted())
    lab.set_state("box", "ready")
    row = ended_once(lab, handle)
    device = lab.device("liar")
    require(device["fails_often"] and row["device"] == "box", device)
    return f"set aside: {' '.join(doubts)} The device is marked ({device['faults']} faults); done on another, 1 run"


def _leased(agents):
    lease = httpx.post(f"{agents}/poll", json={"device": "liar", "wait_s": 5}, timeout=30).json()
    return lease if lease["job"] else None


def _at_once(profile):
    """At 1 ns, as a measurement of a batch of one."""
    load, forward = profile.phases
    forward = replace(forward, time_s=1e-9, samples_s=(1e-9,), floor_s=None)
    summary = replace(profile.summary, latency_s=1e-9)
    return replace(profile, phases=(load, forward), summary=summary, workload=Workload())


FAULTS = {
    each.__name__: each
    for each in (
        agent, stopped, hub, network, disk, filled, damaged, clock, twice, older, reboot, database, cancelled, revoked,
        hang, liar,
    )
}  # fmt: skip


def main():
    chosen = sys.argv[1:] or list(FAULTS)
    rows = []
    with postgres.server() as server:
        for word in chosen:
            name, _, version = word.partition("=")
            folder = Path(tempfile.mkdtemp(prefix=f"ifm-fault-{name}-"))
            lab = Lab(folder=folder, server=server, database=server.database(), version=version)
            began = time.monotonic()
            try:
                lab.start_hub()
                seen = FAULTS[name](lab)
            except Exception as error:  # noqa: BLE001 - the others are to be tried all the same
                seen = f"FAILED: {type(error).__name__}: {error}"[:600]
            finally:
                lab.stop()
                shutil.rmtree(folder, ignore_errors=True)
            rows.append((name, FAULTS[name].__doc__, seen, time.monotonic() - began))
            print(f"{name}: {seen}", flush=True)
    print("\n| fault | what was done | what was seen | time |\n|---|---|---|---|")
    for name, done, seen, took in rows:
        print(f"| {name} | {done} | {seen} | {took:.0f} s |")
    sys.exit(any(seen.startswith("FAILED") for _, _, seen, _ in rows))


if __name__ == "__main__":
    main()
