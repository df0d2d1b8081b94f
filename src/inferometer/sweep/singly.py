"""Rows predicted one by one, where the plan or the steps change from row to row: the long way, a millisecond each.

That is so for prompts read in chunks, drafts, diffusion models that read a prompt, and graphs whose memory is no
polynomial of the sizes.
"""

from __future__ import annotations

from dataclasses import asdict
from itertools import product
from typing import TYPE_CHECKING, Any

from inferometer.core.workload import Workload
from inferometer.cost.headline import request_times
from inferometer.cost.precision import resolved_precision
from inferometer.cost.predict import predict_graph
from inferometer.errors import DomainError
from inferometer.sweep.table import Table, table_of

if TYPE_CHECKING:
    from inferometer.core.profile import Profile
    from inferometer.cost.headline import End
    from inferometer.cost.options import Options
    from inferometer.sweep.grid import Combination, Sizes

__all__ = ["one_by_one"]


def one_by_one(combination: Combination, sizes: Sizes, options: Options, *, details: bool) -> Table:
    rows = product(sizes.batch, sizes.prompt, sizes.generate, sizes.context)
    return table_of([_row(combination, options, row, details=details) for row in rows], details=details)


def _row(
    combination: Combination,
    options: Options,
    sizes: tuple[int, int | None, int | None, int | None],
    *,
    details: bool,
) -> dict[str, Any]:
    batch, prompt, generate, context = sizes
    workload = Workload(
        batch=batch,
        prompt=prompt,
        generate=generate,
        context=context,
        image=combination.image,
        precision=combination.precision,
        parallel=combination.parallel,
    )
    try:
        profile = predict_graph(
            combination.graph,
            combination.device,
            runtime=combination.effects,
            workload=workload,
            calibration=combination.calibration,
            options=options,
        )
    except DomainError as error:
        return {**_inputs(combination, workload), "reason": str(error)}
    found = {**_inputs(combination, profile.workload), **asdict(profile.summary)}
    return found | _details(profile, options) if details else found


def _details(profile: Profile, options: Options) -> dict[str, Any]:
    ends: dict[str, End] = {"low": "low_s", "high": "high_s"}
    times = {
        f"{name}_{word}_s": seconds
        for word, end in ends.items()
        for name, seconds in request_times(profile.phases, profile.workload, options, end).items()
    }
    return times | {f"{phase.name}_bound": phase.bound for phase in profile.phases}


def _inputs(combination: Combination, workload: Workload) -> dict[str, Any]:
    precision, parallel = resolved_precision(combination.graph, workload.precision), workload.parallel
    return {
        "model": combination.graph.name,
        "device": combination.device.name,
        "runtime": combination.effects.name,
        **asdict(precision),
        **asdict(parallel),
        **{name: getattr(workload, name) for name in ("image", "batch", "prompt", "generate", "context")},
    }
