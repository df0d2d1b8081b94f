"""When jobs should begin, against the queue itself: played by a clock, each job begins when it was foretold."""

import random

import pytest

from fakes.fleet import DEVICES, a_job, a_result
from inferometer.hub.fleet.starting import queue_place, starts_in
from inferometer.store import open_store
from inferometer.store.queue.fleet import Fleet
from inferometer.store.queue.values import NewJob, Wanted

WISHES = (Wanted(), Wanted(device="pi"), Wanted(labels={"unit": "gpu"}))


class Played:
    """A fleet whose jobs take as long as was expected: milliseconds, so that what projects used hardly fades."""

    def __init__(self, folder, chance):
        self.now, self.chance = 1_760_000_000.0, chance
        self.store = open_store(folder / "runs.db", clock=lambda: self.now)
        self.fleet = Fleet.of(self.store)
        self.held, self.began = {}, {}
        for device in DEVICES:
            self.fleet.register(device)
        for project in "abc":
            self.store.create_project(project)

    def submit(self, seed):
        new = NewJob(
            job=a_job(seed), wanted=self.chance.choice(WISHES), project=self.chance.choice("abc"),
            priority=self.chance.choice((0, 0, 1)),
        )  # fmt: skip
        job = self.fleet.submit(new)[0].id
        self.fleet.expect(job, self.chance.randrange(1, 500) / 1000, "a test")
        self.now += 0.001

    def give(self):
        for device in sorted(each.name for each in DEVICES):
            if device not in self.held and (lease := self.fleet.lease(device)) is not None:
                self.held[device] = lease, self.now + lease.row.expected_s
                self.began[lease.row.id] = self.now

    def step(self):
        """To when the next device is done, which then takes its next job."""
        device, (lease, self.now) = min(self.held.items(), key=lambda held: held[1][1])
        del self.held[device]
        self.fleet.finish(lease.row.id, lease.id, a_result(lease.job.id))
        self.give()


@pytest.mark.parametrize("seed", range(4))
def test_each_job_begins_when_it_was_foretold(tmp_path, seed):
    played = Played(tmp_path, random.Random(seed))  # noqa: S311 - jobs, no secret
    for number in range(14):
        played.submit(number)
    at_once = [job for job, start in starts_in(played.fleet).items() if not start]
    assert len(at_once) == len(DEVICES)
    assert [queue_place(played.fleet, played.fleet.job(job))["ahead"] for job in at_once] == [0, 0]
    played.give()
    for _ in range(seed):
        played.step()
    now, foretold = played.now, starts_in(played.fleet)
    assert foretold.keys() == {row.id for row in played.fleet.jobs(states=("queued",))}
    last = max(foretold, key=foretold.get)
    assert queue_place(played.fleet, played.fleet.job(last)) == {"ahead": len(foretold) - 1, "begins_s": foretold[last]}
    while played.held:
        played.step()
    assert {job: played.began[job] - now for job in foretold} == pytest.approx(foretold, abs=1e-4)
    played.store.close()
