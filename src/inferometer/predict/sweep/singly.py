"""Rows predicted one by one, where the plan or the steps change from row to row: the long way, a millisecond each.

That is so for prompts read in chunks, drafts, diffusion models that read a prompt, and graphs whose memory is no
polynomial of the sizes.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import DomainError
from inferometer.predict.applicable import meaningful
from inferometer.predict.precision import counted_precision
from inferometer.predict.sweep.table import SweepTable, table_of

if TYPE_CHECKING:
    from inferometer.core.workload import Workload
    from inferometer.predict.question import Question
    from inferometer.predict.sweep.grid import Sizes


def one_by_one(question: Question, sizes: Sizes, *, details: bool) -> SweepTable:
    rows = product(sizes.batch, sizes.prompt, sizes.generate, sizes.context)
    asked = (
        replace(question.workload, batch=batch, prompt=prompt, generate=generate, context=context)
        for batch, prompt, generate, context in rows
    )
    return table_of([_row(replace(question, workload=each), details=details) for each in asked], details=details)


def _row(question: Question, *, details: bool) -> dict[str, Any]:
    try:
        # Lists of sizes are for all models of a sweep: what means nothing to this one is left out.
        profile = replace(question, workload=meaningful(question.workload, question.graph)).answer()
    except DomainError as error:
        workload = replace(question.workload, precision=question.basis().precision)
        return {**_inputs(question, workload), "reason": str(error)}
    row = {**_inputs(question, profile.workload), **asdict(profile.summary)}
    if not details:
        return row
    bounds = {f"{phase.name}_bound": phase.bound for phase in profile.phases}
    streams = {f"{phase.name}_{name}_s": time_s for phase in profile.phases for name, time_s in phase.streams.items()}
    return row | bounds | streams


def _inputs(question: Question, workload: Workload) -> dict[str, Any]:
    precision, parallel = counted_precision(question.graph, workload.precision), workload.parallel
    return {
        "model": question.graph.name,
        "device": question.device.name,
        "runtime": question.runtime_name,
        "threads": question.options.threads,
        **asdict(precision),
        **asdict(parallel),
        **{name: getattr(workload, name) for name in ("image", "batch", "prompt", "generate", "context")},
    }
