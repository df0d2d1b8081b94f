"""How true predictions are: measured cases predicted as a user would, and the errors counted.

A case whose model was used to fit its calibration is predicted by one that was fitted again without that model; where
that cannot be, it is `seen` and counted apart. The error of a case is |predicted / measured − 1|, its bias the
logarithm of the ratio, and an interval covers it where the measured time lies inside.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, log
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.accuracy.cases import Case, Peer, case_graph, family_of, step_of_case
from inferometer.asking.ask import ask
from inferometer.asking.calibrations import by_weights, choose_calibration
from inferometer.asking.files import SHIPPED
from inferometer.calibrate.fitting.assemble import Subject, whole_steps
from inferometer.calibrate.fitting.bounds import bounded, unbounded
from inferometer.calibrate.fitting.steps import whole_fit
from inferometer.catalog import device as device_named
from inferometer.catalog.engines import require_effects
from inferometer.errors import DomainError, InferometerError

if TYPE_CHECKING:
    from pathlib import Path

    from inferometer.core.calibration import Calibration
    from inferometer.core.profile import Profile

Standing = dict[str, Any]
_MOSTLY = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A case and its prediction. `how` is `held out`, `left out` (its model was, in a refit), `seen` or `priors`.

    A case that class priors were made from is `seen` where its time comes mostly from them.
    """

    case: Case
    time_s: float
    low_s: float
    high_s: float
    how: str
    by_kind: Mapping[str, float] = field(default_factory=dict)

    @property
    def error(self) -> float:
        return abs(self.time_s / self.case.seconds - 1)

    @property
    def bias(self) -> float:
        return log(self.time_s / self.case.seconds)

    @property
    def covered(self) -> bool:
        return self.low_s <= self.case.seconds <= self.high_s

    @property
    def width(self) -> float:
        """Of the interval, over the prediction."""
        return (self.high_s - self.low_s) / self.time_s


def judge(
    cases: Sequence[Case],
    *,
    priors: bool = False,
    folders: Sequence[Path] = (),
    shipped: Path | None = SHIPPED,
    watch: Callable[[int, int], None] | None = None,
) -> tuple[tuple[Judged, ...], tuple[str, ...]]:
    """Every case predicted, and why some could not be. `priors` takes the datasheet and class priors alone."""
    kept: dict[Any, Calibration | None] = {}
    found, refused = [], []
    for number, case in enumerate(cases):
        if watch is not None:
            watch(number, len(cases))
        try:
            calibration, how = (None, "priors") if priors else _calibration(case, cases, kept, (folders, shipped))
            found.append(_judged(case, calibration, how))
        except InferometerError as error:
            refused.append(f"{case.model} on {case.device}, {case.phase}: {error.message}")
    return tuple(found), tuple(dict.fromkeys(refused))


def _calibration(
    case: Case, cases: Sequence[Case], kept: dict[Any, Calibration | None], places: tuple[Any, Any]
) -> tuple[Calibration | None, str]:
    key = _key(case)
    if key not in kept:
        kept[key] = choose_calibration(*key, folders=places[0], shipped=places[1]).calibration
    whole = kept[key]
    if whole is None:
        return None, "priors"
    if case.model not in whole.fitted_on:
        return whole, "held out"
    without = (*key, case.model)
    if without not in kept:
        train = [each for each in cases if _key(each) == key and each.role == "train"]
        kept[without] = without_model(whole, train, case.model)
    refit = kept[without]
    return (whole, "seen") if refit is None else (refit, "left out")


def _key(case: Case) -> tuple[str, str, str]:
    """The device, the runtime and the format that a calibration is looked for by."""
    stored = case.weights if by_weights(case.runtime) else None
    return case.device, case.runtime, stored or case.dtype


def without_model(calibration: Calibration, train: Sequence[Case], model: str) -> Calibration | None:
    """The calibration fitted again from the steps of the other models; None where there are none of them."""
    others = [case for case in train if case.model != model]
    alone = {
        name.removeprefix("alone."): value.value
        for name, value in calibration.overheads.items()
        if name.startswith("alone.")
    }
    if not others or not alone:
        return None
    subject = Subject(
        device=device_named(calibration.device),
        runtime=require_effects(calibration.runtime),
        dtype=calibration.dtype,
        created=calibration.created,
    )
    kept = {name: value for name, value in calibration.residuals.items() if not name.startswith("step")}
    bare = replace(unbounded(calibration), residuals=kept)
    steps = whole_steps(subject, bare, [step_of_case(case) for case in others])
    return bounded(whole_fit(steps, alone).applied_to(bare, source="refit", date=calibration.created[:10]))


def _judged(case: Case, calibration: Calibration | None, how: str) -> Judged:
    profile = ask_like(case, calibration)
    phase = profile.phase(case.phase)
    if phase is None or phase.low_s is None or phase.high_s is None:
        raise DomainError(f"The prediction has no phase {case.phase}.")
    kinds: dict[str, float] = defaultdict(float)
    guessed = 0.0
    for op in phase.ops:
        kinds[op.kind] += op.time_s
        guessed += op.time_s if op.origin != "calibrated" else 0.0
    if how in {"held out", "priors"} and "priors" in case.used_for and guessed > _MOSTLY * phase.time_s:
        how = "seen"
    return Judged(case=case, time_s=phase.time_s, low_s=phase.low_s, high_s=phase.high_s, how=how, by_kind=kinds)


def ask_like(case: Case, calibration: Calibration | None) -> Profile:
    """The prediction that a user of `predict` gets, with this calibration or none."""
    question = ask(
        case_graph(case.model), on=case.device, runtime=case.runtime, calibration=calibration, calibrated=False,
        **case.asked,
    )  # fmt: skip
    return question.answer()


def by_group(judged: Sequence[Judged], group: Callable[[Judged], tuple[str, ...]]) -> dict[tuple[str, ...], Standing]:
    """Errors counted in groups, in the order of their names."""
    groups: dict[tuple[str, ...], list[Judged]] = defaultdict(list)
    for each in judged:
        groups[group(each)].append(each)
    return {name: standing(groups[name]) for name in sorted(groups)}


def standing(judged: Sequence[Judged]) -> Standing:
    """n, median and 90th percentile of the error, bias, coverage and median relative width of the 80 % intervals."""
    if not judged:
        return {"n": 0}
    errors = np.array([each.error for each in judged])
    return {
        "n": len(judged),
        "median": float(np.median(errors)),
        "p90": float(np.quantile(errors, 0.9)),
        "bias": exp(float(np.mean([each.bias for each in judged]))) - 1,
        "covered": float(np.mean([each.covered for each in judged])),
        "width": float(np.median([each.width for each in judged])),
    }


def peer_errors(judged: Sequence[Judged], peers: Sequence[Peer]) -> list[Standing]:
    """Each peer's errors on the cases that it has, and ours on those same cases."""
    ours: dict[Any, list[Judged]] = defaultdict(list)
    for each in judged:
        ours[each.case.key].append(each)
    groups: dict[tuple[str, str, str], list[tuple[float, Judged]]] = defaultdict(list)
    for peer in peers:
        for each in ours.get(peer.key, ()):
            groups[peer.peer, each.case.phase, each.case.runtime].append((peer.seconds, each))
    found = []
    for (name, phase, runtime), pairs in sorted(groups.items()):
        theirs = np.array([abs(seconds / each.case.seconds - 1) for seconds, each in pairs])
        found.append(
            {
                "peer": name,
                "phase": phase,
                "runtime": runtime,
                "n": len(pairs),
                "median": float(np.median(theirs)),
                "p90": float(np.quantile(theirs, 0.9)),
                "ours": float(np.median([each.error for _, each in pairs])),
            }
        )
    return found


def groups_of(what: str) -> Callable[[Judged], tuple[str, ...]]:
    """How cases are grouped: by phase and runtime, by `family`, by `model`, or by the kind of op that is longest."""
    if what == "family":
        return lambda each: (family_of(each.case.model), each.case.runtime)
    if what == "model":
        return lambda each: (each.case.model, each.case.runtime)
    if what == "op":
        return lambda each: (max(each.by_kind, key=lambda kind: each.by_kind[kind]), each.case.runtime)
    return lambda each: (each.case.device, each.case.runtime, each.case.phase, each.case.weights or each.case.dtype)


def chart_rows(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """Cases as the chart takes them."""
    return [
        {
            "model": each.case.model,
            "runtime": each.case.runtime,
            "phase": each.case.phase,
            "batch": each.case.batch,
            "length": each.case.prompt or each.case.context or each.case.image,
            "measured_s": each.case.seconds,
            "predicted_s": each.time_s,
            "low_s": each.low_s,
            "high_s": each.high_s,
        }
        for each in judged
    ]
