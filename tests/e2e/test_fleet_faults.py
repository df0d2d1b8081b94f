"""Faults of processes, done to real ones: a hub, agents and runners as a user starts them.

`benchmarks/fleet_faults.py` does more of them, on PostgreSQL.
"""

import os
import signal
import time

import pytest

from fakes.fleet_processes import Process, agent_process, hub_process
from fakes.places import LONG, one_layer, packed
from inferometer.core.job import FINAL
from inferometer.providers import device_side
from inferometer.providers.base import resolve
from inferometer.providers.hub_client import API, HubAddress, HubClient
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

    def until(self, handle, holds, seconds=60):
        for _ in range(int(seconds / 0.1)):
            row = self.client.get(f"{API}/jobs/{handle.folder}")
            if holds(row):
                return row
            time.sleep(0.1)
        raise AssertionError(row)

    def runner(self):
        (folder,) = (self.root / "jobs").glob("hub-*")
        return folder


@pytest.fixture
def lab(tmp_path):
    with hub_process(tmp_path) as url:
        yield Lab(tmp_path, url)


def gone(folder):
    return not device_side.is_alive(str(folder))


def wait_for(holds, seconds=30):
    for _ in range(int(seconds / 0.05)):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("it did not happen")


def test_an_agent_that_is_stopped_and_killed_half_a_second_later_cancels_nothing(lab):
    with agent_process(lab.url, "box", lab.root) as first:
        _, handle = lab.submit(LONG)
        lab.until(handle, lambda row: row["state"] == "running")
        runner = lab.runner()
        os.kill(int((runner / "runner.pid").read_bytes()), signal.SIGSTOP)  # so that it is killed before it has stopped
        first.terminate()
        wait_for(lambda: b"switched off" in (lab.root / "agents" / "box" / "lease.json").read_bytes())
        first.kill()
        os.kill(int((runner / "runner.pid").read_bytes()), signal.SIGCONT)
        wait_for(lambda: gone(runner))  # it was asked to stop, and does
    with agent_process(lab.url, "box", lab.root):
        row = lab.until(handle, lambda row: row["attempts"] == 1 and row["state"] in {"preparing", "running"})
        texts = [event["text"] or "" for event in lab.client.get(f"{API}/jobs/{handle.folder}/events")]
        assert any("It is switched off." in text for text in texts)
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


def test_a_token_that_is_revoked_in_mid_job_ends_runner_and_agent_and_gives_the_job_back(tmp_path):
    with open_store(tmp_path / "runs.db") as store:
        store.create_user("ada")
        store.create_project("default", owner="ada")
        agents = store.create_token("ada", scopes=["agent"], project="default")
        writes = store.create_token("ada", scopes=["write"])
        with hub_process(tmp_path, "--require-token") as url, pytest.MonkeyPatch.context() as settings:
            settings.setenv("INFEROMETER_TOKEN", writes.text)
            lab = Lab(tmp_path, url, writes.text)
            fixed = ("--no-guard", "--no-reference", "--token", agents.text)
            agent = Process("agent", "--hub", url, "--name", "box", "--root", lab.root, *fixed)
            agent.until("takes jobs from")
            _, handle = lab.submit(LONG)
            lab.until(handle, lambda row: row["state"] == "running")
            runner = lab.runner()
            store.revoke_token(agents.token.id)
            row = lab.until(handle, lambda row: row["state"] == "queued", seconds=15)
            assert row["reason"] == "The token of its agent does not hold any more."
            assert agent.wait() == 77
            assert gone(runner)
            agent.until("does not let this agent in any more")
            agent.stop()
