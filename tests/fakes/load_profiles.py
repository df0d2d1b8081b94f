"""A load test of a scripted service, played in virtual time: eight places, so it has a knee at about nine a second."""

from functools import cache

import numpy as np

from fakes.scripted_server import HEAD, Send, Wait, chunk, ending, event, plain
from fakes.virtual_time import VirtualPool, virtually
from inferometer.core.served import parse_objective
from inferometer.core.traffic.arrivals import Arrivals
from inferometer.core.traffic.lengths import Lengths
from inferometer.serving.load.apis import Endpoint, parse_address
from inferometer.serving.load.local import Here
from inferometer.serving.load.plan import LoadPlan, LoadStep, demand_of
from inferometer.serving.load.play import RoundPlan
from inferometer.serving.load.profile import Facts, profile_of
from inferometer.serving.load.prompts import PromptMaker
from inferometer.serving.load.run import level_of
from inferometer.serving.load.server import ServerFacts


@cache
def sweep_profile(*, rates=(2, 4, 8, 16), requests=140, slots=8, step_s=0.1, goals=("ttft_p90<=300ms",)):
    """A profile with a level for each rate. `step_s` is the time of a token: two services differ by it."""
    plan = LoadPlan(
        url="http://scripted:8000", model="scripted", requests=requests,
        steps=tuple(LoadStep(arrivals=Arrivals(rate_per_s=rate)) for rate in rates),
        prompt=Lengths(kind="fixed", mean=32), generate=Lengths(kind="fixed", mean=8),
        objectives=tuple(map(parse_objective, goals)),
    )  # fmt: skip
    return virtually(_played(plan, slots, step_s))


async def _played(plan, slots, step_s):
    rng = np.random.default_rng(3)
    free = [0.0] * slots

    def script(asked):
        place = min(range(slots), key=free.__getitem__)
        begin, tokens = max(free[place], asked.at), int(asked.body["max_tokens"])
        each = step_s * (1 + 0.1 * rng.random())
        free[place] = begin + each * tokens
        if asked.index % 70 == 69:
            yield Send, plain(503, b"busy")
            return
        yield Wait, begin - asked.at + each
        yield Send, HEAD + chunk(event("t"))
        for _ in range(tokens - 1):
            yield Wait, each
            yield Send, chunk(event("t"))
        yield Send, chunk(ending(32, tokens)) + b"0\r\n\r\n"

    endpoint = Endpoint(address=parse_address(plan.url), api="chat", model="scripted")
    here = Here(endpoint=endpoint, maker=PromptMaker(), pool=VirtualPool(script))
    levels = []
    for number, step in enumerate(plan.steps):
        free[:] = [0.0] * slots
        played = await here.play(RoundPlan(demand=demand_of(plan, step, number=number)))
        levels.append(level_of(step.name, [played], rate_per_s=step.arrivals.rate_per_s))
    return profile_of(plan, Facts(endpoint=endpoint, server=ServerFacts(), maker=here.maker), tuple(levels))
