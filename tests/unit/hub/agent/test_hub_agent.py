"""An agent and what may befall it, with a real hub and a runner that takes no time."""

import errno
import fcntl
import hashlib
import json
import re
import shutil
import signal
import threading
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace

import httpx
import pytest

from fakes.dropping_proxy import DroppingProxy
from fakes.fleet import a_job, a_result
from inferometer.cli.elsewhere import profile_on_each
from inferometer.core.codec import encode
from inferometer.core.errors import DomainError, PlaceError
from inferometer.core.job import JobEvent, JobFile, JobModel
from inferometer.hub.agent import holding
from inferometer.hub.agent.holding import Holding, Seams, ShutOutError
from inferometer.hub.agent.reference import cool_down, measure_reference
from inferometer.hub.agent.runner import LEASE, EventLog, _Watch
from inferometer.hub.agent.serving_hub import AgentPlan, HubAgent, serve_hub
from inferometer.hub.fleet.desk import FleetDesk
from inferometer.hub.places import device_side, hub_client
from inferometer.hub.places.artifacts import ArtifactFolder
from inferometer.hub.places.base import parse_address
from inferometer.hub.places.following import ToldLog
from inferometer.hub.places.hub import HubPlace
from inferometer.hub.places.hub_client import HubAddress, HubAwayError, HubClient, HubRefusalError
from inferometer.hub.places.requests import PackedJob
from inferometer.hub.web.guard.rules import Rules
from inferometer.measure.bench.loop import LoopProgress
from inferometer.store.queue.fleet import Fleet
from unit.hub.web.samples import emptied, hub, network

DATA = bytes(range(256)) * 4096  # a megabyte
SHA = hashlib.sha256(DATA).hexdigest()
MODEL = JobModel(name="net", entry="net.onnx", files=(JobFile(path="net.onnx", sha256=SHA, size_bytes=len(DATA)),))
JOB = a_job(model=MODEL)


def facts(name, labels):
    known = {"runtime": ["onnxruntime"], **{key: list(values) for key, values in labels.items()}}
    return {"name": name, "protocol": 1, "labels": known, "facts": {}, "version": "1", "now": 0.0}


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with hub(tmp_path_factory.mktemp("hub")) as found:
        yield found


@pytest.fixture
def here(shared, tmp_path):
    """A hub with a job in its queue, and its file."""
    store, url = emptied(shared[0]), str(shared[1].base_url).rstrip("/")
    HubClient(HubAddress(url=url)).post(f"{hub_client.API}/agent/register", {**facts("box", {}), "now": 1.0})
    model = tmp_path / "net.onnx"
    model.write_bytes(DATA)
    place = HubPlace(parse_address(f"hub:box?url={url}"))
    handle = place.submit(JOB, {SHA: model})
    return SimpleNamespace(
        store=store, fleet=Fleet.of(store), url=url, place=place, handle=handle, job=handle.folder,
        root=tmp_path / "device", model=model, said=[],
    )  # fmt: skip


@pytest.fixture
def runner(monkeypatch):
    """In place of the process: it tells of itself and leaves a result. `started` are the folders it ran in."""
    made = SimpleNamespace(started=[], alive=True, result=True)

    def run(folder, paths, settings, box):
        del paths
        made.started.append(folder)
        made.box = box
        made.settings = settings
        assert (folder / "files" / "net.onnx").read_bytes() == DATA
        job = json.loads((folder / "job.json").read_bytes())
        event = JobEvent(job=job["id"], number=1, at=1.0, kind="state", state="running")
        (folder / "events.jsonl").write_bytes(encode(event) + b"\n")
        if made.result:
            (folder / "result.json").write_bytes(encode(a_result(JOB, network())))

    monkeypatch.setattr(device_side, "run_detached", run)
    monkeypatch.setattr(device_side, "is_alive", lambda folder: made.alive and bool(folder))
    return made


def agent(here, url=None, seams=None, **plan):
    client = HubClient(HubAddress(url=url or here.url))
    chosen = AgentPlan(**{"name": "box", "root": here.root, "jobs": 1, "poll_s": 0.5, **plan})
    quiet = Seams(reference=None, sleep=lambda _seconds: None)
    return HubAgent(client, chosen, say=here.said.append, seams=seams or quiet, facts=facts)


def left(here):
    return sorted(path.name for path in here.root.rglob("*") if "hub-" in path.name or path.name == "lease.json")


def test_a_job_is_carried_out_and_nothing_is_left(here, runner):
    assert agent(here).run() == 1
    row = here.fleet.job(here.job)
    assert (row.state, row.device) == ("done", "box")
    assert here.store.get(row.run).profile == network()
    assert here.place.fetch(here.handle).job == JOB
    assert [event.state for event in here.place.events(here.handle) if event.state] == [
        "queued", "preparing", "running", "done",
    ]  # fmt: skip
    assert (left(here), runner.settings["INFEROMETER_TOKEN"]) == ([], "")


class PowerCutError(BaseException):
    """The agent is gone from one moment to the next."""


def test_an_agent_that_was_killed_goes_on_with_its_job(here, runner):
    def dies(_seconds):
        raise PowerCutError

    runner.result = False
    with pytest.raises(PowerCutError):
        agent(here, seams=Seams(reference=None, sleep=dies)).run()
    assert here.fleet.job(here.job).state == "running"
    (runner.started[0] / "result.json").write_bytes(encode(a_result(JOB, network())))  # the runner went on
    assert agent(here).run() == 1
    assert (here.fleet.job(here.job).state, len(runner.started), left(here)) == ("done", 1, [])
    assert "going on with it" in " ".join(here.said)


def test_a_result_that_is_there_is_brought_after_its_lease_if_nobody_has_the_job(here, runner):
    def dies(_seconds):
        raise PowerCutError

    runner.result = False
    with pytest.raises(PowerCutError):
        agent(here, seams=Seams(reference=None, sleep=dies)).run()
    (runner.started[0] / "result.json").write_bytes(encode(a_result(JOB, network())))
    here.fleet.give_back(here.job, here.fleet.job(here.job).lease, "as when it runs out", counts=True)
    agent(here).run()
    assert (here.fleet.job(here.job).state, len(runner.started), left(here)) == ("done", 1, [])


def test_a_device_that_was_rebooted_brings_its_job_back_into_the_queue(here, runner):
    def dies(_seconds):
        raise PowerCutError

    runner.result = False
    with pytest.raises(PowerCutError):
        agent(here, seams=Seams(reference=None, sleep=dies)).run()
    runner.alive = False  # no process outlives it
    agent(here).run()
    row = here.fleet.job(here.job)
    assert (row.state, row.attempts) == ("queued", 1)
    assert "killed, or the device was restarted" in row.reason


def test_a_job_that_another_device_has_taken_is_dropped(here, runner):
    def dies(_seconds):
        raise PowerCutError

    runner.result = False
    with pytest.raises(PowerCutError):
        agent(here, seams=Seams(reference=None, sleep=dies)).run()
    here.fleet.give_back(here.job, here.fleet.job(here.job).lease, "a test", counts=False)
    here.fleet.lease("box")
    holding = Holding.found(HubClient(HubAddress(url=here.url)), "box", here.root, here.root / "agents" / "box",
                            Seams(reference=None, sleep=lambda _s: setattr(runner, "alive", False)))  # fmt: skip
    assert holding.carry_out() == "given to another"
    assert ((runner.started[0] / "cancel").exists(), left(here)) == (False, [])


def test_a_full_disk_gives_the_job_back_and_says_so(here, runner, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=200_000_000))
    agent(here).run()
    row = here.fleet.job(here.job)
    assert (row.state, here.fleet.device("box").failures, runner.started) == ("queued", 1, [])
    assert "disk is full: 1,048,576 bytes are needed, 200,000,000 stay free, and there are 200,000,000" in row.reason


def test_what_arrived_before_needs_no_room_again(here, runner, monkeypatch):
    ArtifactFolder(root=here.root).append(SHA, 0, DATA[:-1000], most=len(DATA))
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=200_001_000))
    agent(here).run()
    assert (here.fleet.job(here.job).state, len(runner.started)) == ("done", 1)


def test_a_disk_that_fills_up_while_it_writes_gives_the_job_back(here, runner, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(device_side, "lay_out", full)
    agent(here).run()
    assert "No space left on device" in here.fleet.job(here.job).reason
    assert left(here) == []


def test_a_network_that_is_cut_loses_nothing(here, runner):
    proxy = DroppingProxy(here.url, cut_after=[1 << 40, 1 << 40, 1 << 40, 300_000, 1 << 40, 300_000])
    assert agent(here, proxy.address).run() == 1
    assert proxy.cuts >= 1
    assert (here.fleet.job(here.job).state, len(runner.started)) == ("done", 1)
    proxy.close()


def test_an_upload_that_is_cut_goes_on_where_it_was(here):
    FleetDesk(here.store, Rules()).artifacts.path(SHA).unlink()  # it is sent anew
    proxy = DroppingProxy(here.url, cut_after=[1 << 40, 1 << 40, 500_000, 1 << 40, 500_000])
    place = HubPlace(parse_address(f"hub:box?url={proxy.address}"), sleep=lambda _seconds: None)
    assert place.submit(JOB, {SHA: here.model}).folder
    assert proxy.cuts >= 1
    proxy.close()


def test_a_hub_that_is_restarted_is_waited_for(here, runner, monkeypatch):
    """It is gone when the result is ready, and comes back on the same port and store."""
    proxy = DroppingProxy(here.url)
    waits = []

    def sleep(seconds):
        waits.append(seconds)
        if len(waits) > 4:
            proxy.restore()

    original = Holding._bring_back

    def bring_back(self, result):
        proxy.cut()
        original(self, result)

    monkeypatch.setattr(Holding, "_bring_back", bring_back)
    agent(here, proxy.address, seams=Seams(reference=None, sleep=sleep)).run()
    assert (here.fleet.job(here.job).state, len(runner.started)) == ("done", 1)
    assert waits == sorted(waits)  # longer each time
    assert waits[-1] <= 30  # but not so long that a hub which is back waits for its result
    proxy.close()


def test_a_reference_that_moves_has_the_job_measured_again_and_marked(here, runner, monkeypatch):
    readings = iter([1.0, 1.2, 1.0, 1.01])
    monkeypatch.setattr(holding, "cool_down", lambda *_given, **_more: 3.0)
    agent(here, seams=Seams(guard=object, reference=lambda: next(readings), sleep=lambda _s: None)).run()
    row = here.fleet.job(here.job)
    assert (row.state, row.moved, len(runner.started)) == ("done", False, 2)
    notices = [event.text for event in here.fleet.events(here.job) if event.kind == "notice"]
    assert "The reference moved by +20.0% meanwhile: it is measured once more." in notices
    check = here.fleet.checks("box")[0]
    assert (check.after_s, check.waited_s) == (1.01, 6.0)  # before both
    assert left(here) == []


def test_one_that_moves_again_is_kept_and_inconclusive_if_no_other_device_is_there(here, runner):
    readings = iter([1.0, 1.2, 1.0, 1.3])
    agent(here, seams=Seams(reference=lambda: next(readings), sleep=lambda _s: None)).run()
    row = here.fleet.job(here.job)
    assert (row.state, row.moved, row.run is None, len(runner.started)) == ("inconclusive", True, False, 2)


def test_an_agent_that_is_stopped_gives_its_job_back(here, runner):
    runner.result = False
    made = agent(here, seams=Seams(reference=None, sleep=lambda _s: made.stop() or setattr(runner, "alive", False)))
    made.run()
    row = here.fleet.job(here.job)
    assert (row.state, row.attempts, left(here)) == ("queued", 0, [])
    assert here.fleet.device("box").failures == 0


def test_an_agent_that_waits_for_a_job_ends_at_once(here, monkeypatch):
    """It does not wait for the hub's answer, which comes when there is a job, or after half a minute."""
    here.fleet.cancel(here.job)
    handlers = {}
    monkeypatch.setattr("signal.signal", handlers.__setitem__)
    made = agent(here, poll_s=600.0)

    def post(path, value=None, **_options):
        if path.endswith("/poll"):
            handlers[signal.SIGTERM](signal.SIGTERM, None)
            pytest.fail("it waited")
        return {"name": "box", "state": "ready"}

    monkeypatch.setattr(made._client, "post", post)
    assert serve_hub(made) == 0
    assert made.stopping
    assert not made.waits


def test_one_model_on_each_device_is_one_table_and_one_comparison(here, runner, capsys):
    here.fleet.cancel(here.job)
    names, client = ("pi", "jetson", "old"), HubClient(HubAddress(url=here.url))
    for name in names:
        said = facts(name, {"unit": ["gpu"], "runtime": ["litert" if name == "old" else "onnxruntime"]})
        client.post(f"{hub_client.API}/agent/register", {**said, "now": 1.0})
    agents = [
        threading.Thread(target=agent(here, name=name, poll_s=5.0, root=here.root / name, labels={"unit": ["gpu"]}).run)
        for name in names[:2]  # the third lacks the runtime of the job
    ]
    for thread in agents:
        thread.start()
    profile_on_each(f"hub:each?unit=gpu&url={here.url}", PackedJob(job=JOB, files={SHA: here.model}), "csv")
    for thread in agents:
        thread.join()
    written = capsys.readouterr()
    assert sorted(line.split(",")[0] for line in written.out.splitlines()[1:]) == ["jetson", "pi"]
    link = re.search(r"Compared: (\S+)", written.err)[1]
    page = httpx.get(link).text
    assert "tiny-cnn on jetson" in page
    assert "tiny-cnn on pi" in page


def test_two_agents_of_one_name_are_refused(here):
    first = agent(here)
    with first._only_one(), pytest.raises(DomainError, match="runs on this machine already"):
        agent(here).run()


def test_a_device_that_the_hub_has_forgotten_registers_again(here, runner):
    made = agent(here)
    made._register(first=True)
    here.fleet.cancel(here.job)
    here.fleet.remove("box")
    assert made._next() is None
    assert here.fleet.device("box").name == "box"


@pytest.mark.parametrize(
    ("url", "says"),
    [("http://127.0.0.1:1", "No hub answers"), ("http://nowhere.invalid", "cannot be found"),
     ("ftp://x", "not the address of a hub"), ("https://u:p@x", "no user in it")],
)  # fmt: skip
def test_a_hub_that_cannot_be_reached_is_said(url, says):
    with pytest.raises((PlaceError, DomainError), match=says):
        HubClient(HubAddress(url=url)).get("/api/v1/health")


def test_a_token_that_is_wrong_is_said(tmp_path):
    with hub(tmp_path, tokens=True) as (_, client), pytest.raises(HubRefusalError, match="does not let us in"):
        HubClient(HubAddress(url=str(client.base_url), token="ifm_wrong")).get("/api/v1/fleet/devices")  # noqa: S106 - wrong


# Giving back, cancelling, being shut out


def holding_of(here, **seams):
    """The job that a killed agent left on its disk."""
    chosen = Seams(reference=None, **{"sleep": lambda _seconds: None, **seams})
    return Holding.found(HubClient(HubAddress(url=here.url)), "box", here.root, here.root / "agents" / "box", chosen)


def dies(*_given):
    raise PowerCutError


def test_an_agent_that_is_told_to_stop_and_then_killed_gives_its_job_back_later(here, runner, monkeypatch):
    """TERM, half a second later KILL: the runner has stopped, and nobody had cancelled the job."""
    runner.result = False
    made = agent(here, seams=Seams(reference=None, sleep=lambda _s: made.stop()))

    def stop(folder):
        stopped = a_result(JOB, network(), ended="stopped")
        (runner.started[0] / "result.json").write_bytes(encode(stopped))
        raise PowerCutError

    monkeypatch.setattr(device_side, "ask_to_stop", stop)
    with pytest.raises(PowerCutError):
        made.run()
    assert holding_of(here).held.giving_back == "It is switched off."
    monkeypatch.undo()
    assert holding_of(here).carry_out() == "given back"
    row = here.fleet.job(here.job)
    assert (row.state, row.attempts, row.reason, left(here)) == ("queued", 0, "It is switched off.", [])


def test_a_hub_that_is_away_when_the_agent_stops_gets_its_job_back_later(here, runner):
    runner.result, proxy = False, DroppingProxy(here.url)
    seams = Seams(reference=None, sleep=lambda _s: (proxy.cut(), made.stop(), setattr(runner, "alive", False)))
    made = agent(here, proxy.address, seams=seams)
    made.run()
    assert here.said[-1].endswith("to be given back when the agent is started again.")
    assert here.fleet.job(here.job).state == "running"
    assert holding_of(here).carry_out() == "given back"
    assert here.fleet.job(here.job).state == "queued"
    proxy.close()


def test_a_runner_that_somebody_else_stopped_is_no_cancelled_job(here, runner):
    """As when a system that shuts down ends all processes: the result says `stopped`."""
    runner.result = False
    with pytest.raises(PowerCutError):
        agent(here, seams=Seams(reference=None, sleep=dies)).run()
    (runner.started[0] / "result.json").write_bytes(encode(a_result(JOB, network(), ended="stopped")))
    agent(here).run()
    row = here.fleet.job(here.job)
    assert (row.state, row.run, row.reason) == (
        "queued", None, "Its run was stopped there, and nobody had cancelled it.",
    )  # fmt: skip


def spoilt(path):
    path.write_bytes(DATA[:1000] + b"sixsix" + DATA[1006:])


def test_a_file_that_is_damaged_at_the_hub_is_fetched_once_and_ends_the_job(here, runner):
    copy = FleetDesk(here.store, Rules()).artifacts.path(SHA)
    spoilt(copy)
    assert agent(here).run() == 1
    row = here.fleet.job(here.job)
    assert (row.state, runner.started, left(here)) == ("inconclusive", [], [])
    assert row.reason == "The hub's copy of net.onnx was damaged or lost, and is thrown away."
    assert (copy.exists(), here.fleet.device("box").failures) == (False, 0)
    assert here.place.submit(JOB, {SHA: here.model}).folder != here.job  # it sends the file again
    agent(here).run()
    assert here.fleet.jobs(limit=1)[0].state == "done"


def test_a_file_that_the_hub_has_lost_ends_the_job(here, runner):
    FleetDesk(here.store, Rules()).artifacts.path(SHA).unlink()
    agent(here).run()
    assert (here.fleet.job(here.job).state, runner.started) == ("inconclusive", [])


def test_a_file_that_arrives_damaged_three_times_is_given_back(here, runner, monkeypatch):
    """The hub's copy is as it should be: it is the way, or this disk."""
    fetched = []

    def arrives(_client, folder, file, *_more):
        fetched.append(file.path)
        folder.append(SHA, 0, DATA[::-1], most=len(DATA))
        folder.seal(SHA)

    monkeypatch.setattr(holding, "fetch", arrives)
    agent(here).run()
    row = here.fleet.job(here.job)
    assert (len(fetched), row.state, here.fleet.device("box").failures) == (3, "queued", 1)
    assert row.reason == "net.onnx arrived damaged 3 times."


def test_a_model_that_fails_because_its_file_was_damaged_here_is_given_back_and_fetched_anew(here, runner, monkeypatch):
    mine = ArtifactFolder(root=here.root)
    original = device_side.run_detached

    def run(folder, *given):
        original(folder, *given)
        spoilt(mine.path(SHA))
        (folder / "result.json").write_bytes(encode(a_result(JOB, ended="refused")))

    monkeypatch.setattr(device_side, "run_detached", run)
    agent(here).run()
    row = here.fleet.job(here.job)
    assert (row.state, row.reason) == ("queued", "net.onnx was damaged on its disk, and is thrown away.")
    assert mine.missing([SHA]) == (SHA,)


def test_a_model_that_is_refused_is_so_where_its_file_is_whole(here, runner, monkeypatch):
    original = device_side.run_detached

    def run(folder, *given):
        original(folder, *given)
        (folder / "result.json").write_bytes(encode(a_result(JOB, ended="refused")))

    monkeypatch.setattr(device_side, "run_detached", run)
    agent(here).run()
    assert here.fleet.job(here.job).state == "failed"


def noisy():
    busy = SimpleNamespace(code="cpu-busy", found="x")
    return SimpleNamespace(before=lambda: SimpleNamespace(disturbances=[busy]))


@pytest.mark.parametrize("where", ["fetching", "cooling down", "waiting for the lock"])
def test_a_job_that_is_cancelled_before_it_runs_ends_wherever_it_is(here, runner, monkeypatch, where):
    def cancel(*_given, **_more):
        here.fleet.cancel(here.job)
        clock[0] += 20  # a sign of life is due
        if where == "fetching":
            raise HubAwayError("It broke off.")

    clock = [0.0]
    seams = {"sleep": cancel, "clock": lambda: clock[0], "reference": None}
    if where == "fetching":
        monkeypatch.setattr(holding, "fetch", cancel)
    elif where == "cooling down":
        seams["guard"] = noisy
    else:
        seams["reference"] = lambda: 1.0
        here.root.mkdir(parents=True)
    with ExitStack() as stack:
        if where == "waiting for the lock":  # another job is being measured on the device
            lock = stack.enter_context((here.root / "measuring.lock").open("ab"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        agent(here, seams=Seams(**seams)).run()
    row = here.fleet.job(here.job)
    assert (row.state, row.reason) == ("cancelled", "It was cancelled before anything was measured.")
    assert (runner.started, left(here)) == ([], [])


def test_a_job_that_was_cancelled_while_its_agent_was_gone_ends_at_once(here, runner, monkeypatch):
    monkeypatch.setattr(holding, "fetch", dies)
    with pytest.raises(PowerCutError):
        agent(here).run()
    here.fleet.cancel(here.job)
    monkeypatch.setattr(holding, "fetch", lambda *_given: pytest.fail("it fetched"))
    assert agent(here).run() == 1
    assert (here.fleet.job(here.job).state, left(here)) == ("cancelled", [])


@pytest.mark.parametrize(("limit", "ends"), [(100.0, ("failed", "hung")), (None, ("cancelled", "stopped"))])
def test_a_runner_that_does_not_stop_is_killed(here, runner, monkeypatch, limit, ends):
    """One that keeps no limit any more, and one that does not hear that its job was cancelled."""
    runner.result, clock, killed = False, [0.0], []
    monkeypatch.setattr(holding.Holding, "_kill_runner", lambda _holding: killed.append(clock[0]))
    here.fleet.cancel(here.job)
    job = replace(JOB, id="limited", seconds_at_most=limit)
    handle = here.place.submit(job, {SHA: here.model})

    def later(_seconds):
        clock[0] += 5
        if limit is None:
            here.fleet.cancel(handle.folder)

    agent(here, seams=Seams(reference=None, sleep=later, clock=lambda: clock[0])).run()
    row = here.fleet.job(handle.folder)
    assert (row.state, here.fleet.result(handle.folder).ended) == ends
    assert "did not stop, and was killed" in row.reason
    assert 60 <= killed[0] <= 2 * (limit or 0) + 90


def test_a_limit_in_the_address_is_the_limit_of_the_job(here):
    place = HubPlace(parse_address(f"hub:box?url={here.url}&seconds_at_most=2min"))
    handle = place.submit(JOB, {SHA: here.model})
    document = here.fleet.document(handle.folder)
    assert (handle.folder != here.job, document.id, document.seconds_at_most) == (True, f"{JOB.id}-120s", 120.0)


def test_an_agent_that_is_shut_out_in_mid_job_ends_its_runner_and_itself(here, runner, monkeypatch):
    runner.result, killed = False, []
    monkeypatch.setattr(holding.Holding, "_kill_runner", lambda _holding: killed.append("runner"))
    original = HubClient.post

    def post(client, path, value=None, **options):
        if runner.started:
            raise HubRefusalError(401, "The hub does not let us in: this token is revoked.")
        return original(client, path, value, **options)

    monkeypatch.setattr(HubClient, "post", post)
    with pytest.raises(ShutOutError, match="revoked") as shut_out:
        agent(here).run()
    assert (shut_out.value.exit_code, killed, left(here)) == (77, ["runner"], [])
    assert "ended here, since the hub does not let this agent in any more" in here.said[-1]


def test_an_agent_whose_token_was_revoked_while_it_waited_ends_with_the_same_code(here, monkeypatch):
    made = agent(here)

    def refused(*_given, **_more):
        raise HubRefusalError(403, "This token is not for this device.")

    monkeypatch.setattr(made._client, "post", refused)
    for ask in (lambda: made._register(first=False), made._next):
        with pytest.raises(ShutOutError):
            ask()


def test_a_device_that_is_probed_runs_its_reference_and_gets_jobs_again(here, runner):
    seams = Seams(reference=lambda: 0.5, sleep=lambda _s: None)
    agent(here, seams=seams)._register(first=True)
    here.fleet.set_state("box", "quarantined")
    here.fleet.set_state("box", "ready")
    assert here.fleet.device("box").probing
    assert agent(here, seams=seams).run() == 1
    assert (here.fleet.job(here.job).state, here.fleet.device("box").probing) == ("done", False)
    assert "The hub asks for the reference before it gives this device another job." in here.said


def test_a_clock_that_is_put_back_by_thirty_days_silences_no_progress(tmp_path):
    log, month = ToldLog(tmp_path / "told.jsonl", "j"), 30 * 86_400.0
    for number, at in enumerate((month, month + 0.5, 10.0, 10.5), start=1):
        log.add(1, JobEvent(job="j", number=number, at=at, kind="progress", stage="runs", share=number / 10))
    assert [line["event"]["at"] for line in log.unsent()] == [month, 10.0]
    events = EventLog(tmp_path / "events.jsonl", "j", now=iter([month, month, 10.0, 10.0]).__next__)
    for done in (1, 2):
        events.progress(LoopProgress(stage="runs", done=done, share=0.1))
    assert len((tmp_path / "events.jsonl").read_bytes().splitlines()) == 2


# The runner's own lease, and the machine


def test_a_runner_whose_lease_nobody_renews_stops_and_is_lost(tmp_path):
    now = [100.0]
    watch = _Watch(tmp_path / "cancel", None, clock=lambda: now[0])
    assert not watch._lease_is_over()
    (tmp_path / LEASE).write_text("150.0")
    assert not watch._lease_is_over()
    now[0] = 151.0
    assert watch._lease_is_over()


def test_a_lease_is_renewed_by_every_sign_of_life(here, runner):
    runner.result = False
    clock = [1000.0]

    def later(seconds):
        clock[0] += 5
        if clock[0] > 1060:
            (runner.started[0] / "result.json").write_bytes(encode(a_result(JOB)))
            until.append(float((runner.started[0] / LEASE).read_text()))
        del seconds

    until = []
    agent(here, seams=Seams(reference=None, sleep=later, clock=lambda: clock[0])).run()
    assert 1050 + 0.8 * 300 < until[0] < 1065 + 0.9 * 300  # the runner stops before the hub's own lease is over


def test_waiting_until_a_device_is_quiet_has_an_end():
    noisy = SimpleNamespace(before=lambda: SimpleNamespace(disturbances=[SimpleNamespace(code="cpu-busy", found="x")]))
    calm = SimpleNamespace(before=lambda: SimpleNamespace(disturbances=[]))
    told, now = [], [0.0]
    options = {"clock": lambda: now[0], "sleep": lambda seconds: now.__setitem__(0, now[0] + seconds)}
    assert cool_down(calm, told.append, **options) == 0.0
    assert cool_down(noisy, told.append, most_s=10.0, **options) == pytest.approx(12.0)
    assert "Waiting until the device is quiet: x." in told
    assert "it is measured as it is" in told[-1]


def test_the_reference_takes_some_time():
    assert 0 < measure_reference(seconds=0.0) < 5
