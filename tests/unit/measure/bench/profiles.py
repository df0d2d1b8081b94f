"""Profiles made of chosen numbers."""

import random

from inferometer.core.profile import DeviceFacts, Environment, Headline, ModelFacts, OpTime, Phase, Profile
from inferometer.core.workload import Workload


def noisy(middle, count=50, *, spread=0.01, seed=0):
    """Times around a middle, with a fixed seed."""
    generator = random.Random(seed)  # noqa: S311 - test data
    return tuple(middle * generator.lognormvariate(0, spread) for _ in range(count))


def phase(name, samples=None, *, time_s=None, ops=(), low_s=None, high_s=None):
    middle = time_s if time_s is not None else sorted(samples)[len(samples) // 2]
    return Phase(name=name, time_s=middle, samples_s=samples, ops=tuple(ops), low_s=low_s, high_s=high_s)


def op(name, time_s, low_s=None, high_s=None):
    return OpTime(name=name, kind="linear", time_s=time_s, low_s=low_s, high_s=high_s)


def profile(*phases, kind="measured", model="m", disturbed=False, reasons=(), turns=None, latency=True, **headline):
    whole = phases[0].time_s if latency and phases and phases[0].name in {"run", "forward"} else None
    return Profile(
        kind=kind,
        model=ModelFacts(name=model),
        device=DeviceFacts(name="local"),
        workload=Workload(),
        phases=tuple(phases),
        summary=Headline(latency_s=whole, **headline),
        environment=Environment(
            versions={"numpy": "2.0"},
            disturbed=disturbed,
            reasons=tuple(reasons),
            host={"bench": {"turns": turns}} if turns else {},
        ),
    )


def run_of(samples, **more):
    return profile(phase("run", samples), **more)
