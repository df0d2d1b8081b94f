"""`inferometer hub agent`: a device that takes jobs from a hub, one at a time, until it is stopped."""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from pathlib import Path
from typing import Any

from inferometer.core.cache import held_alone
from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.hub.agent.facts import registration
from inferometer.hub.agent.holding import SHUT_OUT, Held, Holding, Seams, ShutOutError, StoppingError
from inferometer.hub.agent.runner import alone
from inferometer.hub.places.device_side import collect_garbage
from inferometer.hub.places.hub_client import API, HubAwayError, HubClient, HubRefusalError

_POLL_S = 25.0
_WAITS_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_AGE_S, _QUOTA = 30 * 86_400.0, 50_000_000_000
_REGISTER_S = 600.0  # so often it says anew what it has: an engine may have been installed


@frozen
class AgentPlan:
    """The agent ends after `jobs` jobs; with None it goes on."""

    name: str
    root: Path
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    jobs: int | None = None
    poll_s: float = _POLL_S


class HubAgent:
    def __init__(
        self,
        client: HubClient,
        plan: AgentPlan,
        *,
        say: Callable[[str], None],
        seams: Seams | None = None,
        facts: Callable[[str, Mapping[str, Sequence[str]]], dict[str, Any]] = registration,
    ) -> None:
        self._client, self._plan, self._say, self._facts = client, plan, say, facts
        self._seams = seams or Seams()
        self._state = plan.root / "agents" / plan.name
        self._stopping = threading.Event()
        self._holding: Holding | None = None
        self.waits = False  # for a job: nothing is lost if it is interrupted then

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        self._stopping.set()
        if self._holding is not None:
            self._holding.stopping = True

    def run(self) -> int:
        """Until it is stopped; gives how many jobs it has carried out."""
        with self._only_one():
            done, registered_at = 0, float("-inf")
            self._register(first=True)
            registered_at = self._seams.clock()
            holding = Holding.found(self._client, self._plan.name, self._plan.root, self._state, self._seams)
            if holding is not None:
                self._say(f"Job {holding.held.id} was begun before: going on with it.")
            while not self._stopping.is_set():
                if holding is None:
                    if self._seams.clock() - registered_at > _REGISTER_S:
                        self._register()
                        registered_at = self._seams.clock()
                    holding = self._next()
                if holding is None:
                    continue
                self._carry_out(holding)
                holding, done = None, done + 1
                if self._plan.jobs is not None and done >= self._plan.jobs:
                    break
            return done

    @contextmanager
    def _only_one(self) -> Iterator[None]:
        """Two agents of one name and folder would take each other's jobs."""
        with held_alone(self._state / "lock") as mine:
            if not mine:
                raise DomainError(
                    f"An agent called {self._plan.name!r} runs on this machine already.",
                    remedy="Stop it, or choose another name with --name.",
                )
            yield

    def _register(self, *, first: bool = False) -> None:
        """A hub that refuses the first time is an error; one that is away is waited for."""
        said = self._facts(self._plan.name, self._plan.labels)
        for wait in self._waits():
            try:
                now = {"now": time.time(), "probes": self._seams.reference is not None}
                answer = self._client.post(f"{API}/agent/register", {**said, **now})
            except HubRefusalError as error:
                if error.status in SHUT_OUT:
                    raise ShutOutError(error.message, remedy=error.remedy) from None
                if first:
                    raise
                self._say("The hub refuses to know us any more; trying again.")
                self._pause(wait)
            except HubAwayError as error:
                self._say(f"{error.message} Trying again in {wait:g} s.")
                self._pause(wait)
            else:
                if first:
                    self._say(f"{answer['name']} takes jobs from {self._client.url}. Stop it with Ctrl-C.")
                    if answer["state"] != "ready":
                        self._say(f"It gets none at the moment: the hub has it in {answer['state']}.")
                return

    def _waits(self) -> Iterator[float]:
        yield from _WAITS_S
        while True:
            yield _WAITS_S[-1]

    def _pause(self, seconds: float) -> None:
        ends = self._seams.clock() + seconds
        while self._seams.clock() < ends:
            if self._stopping.is_set():
                raise StoppingError("The agent was stopped.")
            self._seams.sleep(min(seconds, 0.2))

    def _next(self) -> Holding | None:
        """The next job; None if there was none for a while, or the hub was away."""
        asked = {"device": self._plan.name, "wait_s": self._plan.poll_s}
        self.waits = True
        try:
            if self._stopping.is_set():
                return None
            lease = self._client.post(f"{API}/agent/poll", asked, timeout_s=self._plan.poll_s + 30.0)
        except HubRefusalError as error:
            if error.status == 404:  # the hub has forgotten us: its store is new, or somebody removed the device
                self._register()
                return None
            if error.status in SHUT_OUT:
                raise ShutOutError(error.message, remedy=error.remedy) from None
            raise
        except HubAwayError as error:
            self._say(f"{error.message} Trying again.")
            self._register()
            return None
        finally:
            self.waits = False
        if lease.get("probe"):
            self._probe()
        if lease["job"] is None:
            return None
        held = Held(id=lease["id"], lease=lease["lease"], lease_s=lease["lease_s"], job=lease["job"])
        return Holding(self._client, self._plan.name, self._plan.root, self._state, held, self._seams)

    def _probe(self) -> None:
        """The hub has seen this device fail often, and wants its reference before it gives it another job."""
        self._say("The hub asks for the reference before it gives this device another job.")
        reference_s: float | None = None
        if self._seams.reference is not None:
            with suppress(OSError, MemoryError), alone(self._plan.root / "measuring.lock", self._say, self._pause):
                reference_s = self._seams.reference()
        try:
            said = {"device": self._plan.name, "reference_s": reference_s}
            heard = self._client.post(f"{API}/agent/probe", said)
        except (HubAwayError, HubRefusalError) as error:
            self._say(f"{error.message} Trying again.")
            self._pause(_WAITS_S[0])
            return
        if heard["state"] != "ready":
            self._say(f"The hub has it in {heard['state']}: {heard['reason']}")

    def _carry_out(self, holding: Holding) -> None:
        self._holding = holding
        if self._stopping.is_set():
            holding.stopping = True
        model = holding.job.model.name if holding.job.model else ""
        self._say(f"Job {holding.held.id}: {holding.job.verb} {model}".rstrip())
        try:
            ended = holding.carry_out()
        except StoppingError:
            ended = holding.give_back()
        except ShutOutError:
            self._say(f"Job {holding.held.id}: ended here, since the hub does not let this agent in any more.")
            raise
        self._holding = None
        self._say(f"Job {holding.held.id}: {ended}.")
        keep = [file.sha256 for file in holding.job.files]
        with suppress(OSError):
            collect_garbage(str(self._plan.root), older_s=_AGE_S, quota_bytes=_QUOTA, keep=keep)


def serve_hub(agent: HubAgent) -> int:
    """Run in the foreground. The first Ctrl-C, or a signal to end, gives a job back before it ends.

    An agent without a job ends at once, and not when the hub has answered. Had the hub just given it one, its lease
    runs out and it goes to another.
    """

    def interrupt(_number: int, _frame: object) -> None:
        if agent.stopping:
            raise KeyboardInterrupt
        agent.stop()
        if agent.waits:
            raise StoppingError("The agent was stopped.")

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, interrupt)
    try:
        return agent.run()
    except StoppingError:
        return 0
