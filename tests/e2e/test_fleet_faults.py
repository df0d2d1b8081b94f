"""Faults of processes, done to real ones: agents and runners as a user starts them.

`benchmarks/fleet_faults.py` does more of them, on PostgreSQL.
"""

import os
import signal

import pytest

from fakes.fleet_processes import Process, agent_process, hub_here
from fakes.places import LONG, one_layer, packed
from fakes.waiting import until
from inferometer.core.job import FINAL
from inferometer.hub.places import device_side
from inferometer.hub.places.base import resolve
from inferometer.hub.places.hub_client import API, HubAddress, HubClient
from inferometer.store import open_store


class Lab:
    """A hub and what is asked of it."""

    def __init__(self, folder, url, token=None):
        self.folder, self.url, self.root = folder, url, folder / "device"
        self.client = HubClient(HubAddress(url=url, token=token))

    def submit(self, plan):
        work = packed(one_layer(self.folder), plan)
        place = resolve(f"hub:box?url={self.url}")
        return place, place.submit(work.job, work.files)

    def until(self, handle, holds):
        def held():
            row = self.client.get(f"{API}/jobs/{handle.folder}")
            return row if holds(row) else None

        return until(held, "what is waited for of a job")

    def told(self, handle):
        return "\n".join(event["text"] or "" for event in self.client.get(f"{API}/jobs/{handle.folder}/events"))

    def runner(self):
        (folder,) = (self.root / "jobs").glob("hub-*")
        return folder


@pytest.fixture
def lab(tmp_path, roofs):
    with hub_here(tmp_path) as url:
        yield Lab(tmp_path, url)


def gone(folder):
    return not device_side.is_alive(str(folder))


def test_an_agent_that_is_stopped_and_killed_half_a_second_later_cancels_nothing(lab):
    with agent_process(lab.url, "box", lab.root) as first:
        _, handle = lab.submit(LONG)
        lab.until(handle, lambda row: row["state"] == "running")
        runner = lab.runner()
        os.kill(int((runner / "runner.pid").read_bytes()), signal.SIGSTOP)  # so that it is killed before it has stopped
        first.terminate()
        until((runner / "cancel").exists, "asking the runner to stop")
        assert b"switched off" in (lab.root / "agents" / "box" / "lease.json").read_bytes()
        first.kill()
        os.kill(int((runner / "runner.pid").read_bytes()), signal.SIGCONT)
        until(lambda: gone(runner), "the runner's end")  # it was asked to stop, and does
    with agent_process(lab.url, "box", lab.root):
        until(lambda: "It is switched off." in lab.told(handle), "giving the job back")
        row = lab.until(handle, lambda row: row["state"] in {"preparing", "running"})
        assert row["attempts"] == 1
        lab.client.post(f"{API}/jobs/{row['id']}/cancel")
        assert lab.until(handle, lambda row: row["state"] in FINAL)["state"] == "cancelled"  # now somebody did


def test_a_runner_that_is_stopped_with_its_machine_is_tried_again(lab):
    with agent_process(lab.url, "box", lab.root):
        _, handle = lab.submit(LONG)
        lab.until(handle, lambda row: row["state"] == "running")
        os.kill(int((lab.runner() / "runner.pid").read_bytes()), signal.SIGTERM)
        row = lab.until(handle, lambda row: row["state"] in {"queued", *FINAL})
        assert (row["state"], row["run"]) == ("queued", None)
        assert "nobody had cancelled it" in row["reason"]


def test_a_token_that_is_revoked_in_mid_job_ends_runner_and_agent_and_gives_the_job_back(tmp_path, roofs):
    with open_store(tmp_path / "runs.db") as store:
        store.create_user("ada")
        store.create_project("default", owner="ada")
        agents = store.create_token("ada", scopes=["agent"], project="default")
        writes = store.create_token("ada", scopes=["write"])
        with hub_here(tmp_path, tokens=True) as url, pytest.MonkeyPatch.context() as settings:
            settings.setenv("INFEROMETER_TOKEN", writes.text)
            lab = Lab(tmp_path, url, writes.text)
            fixed = ("--no-guard", "--no-reference", "--token", agents.text)
            agent = Process("hub", "agent", "--hub", url, "--name", "box", "--root", lab.root, *fixed)
            agent.until("takes jobs from")
            _, handle = lab.submit(LONG)
            lab.until(handle, lambda row: row["state"] == "running")
            runner = lab.runner()
            store.revoke_token(agents.token.id)
            row = lab.until(handle, lambda row: row["state"] == "queued")
            assert row["reason"] == "The token of its agent does not hold any more."
            assert agent.wait() == 77
            assert gone(runner)
            agent.until("does not let this agent in any more")
            agent.stop()
