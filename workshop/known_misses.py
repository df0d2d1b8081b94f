"""What is answered to the questions that others published a figure of, and the page of those that are missed."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from inferometer.core.profile import Phase
from inferometer.known import device
from inferometer.known.atlas.measurement import PublishedMeasurement
from inferometer.known.atlas.shipped import load
from inferometer.known.engines import known_engine
from inferometer.predict.published_rows import impossible, predicted_phase

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


MISS = 2.0  # times too long, or too short
MODELS = 10  # of each device, engine and phase: all of them take an hour
SEED = 1
OFTEN = 0.2  # of the figures of a device or a model: fewer misses are single bad figures, theirs or ours
_PAGE = """\
<!-- Written by `make sanity`; edit workshop/known_misses.py instead. -->
# Known misses

What `inferometer predict` answers is held to what others published, and to properties. This page has what is still off
by more than 2 ×: look here before you trust an answer for such a device or model.

Of {asked:,} published figures (of each device, engine and phase up to {models} models or formats that can be asked)
{covered:.1%} lie within the interval of the answer, and {missed:,} ({share:.1%}) are off by more than 2 ×. They are no
blind test: most of them were in the fit. [How true predictions are](accuracy.md) has what a device or a model gets that
was left out of it. Set aside, beside what cannot be asked:
{aside}.

## By engine

{by_engine}

## Devices that are missed

Where a fifth of a device's figures, and two at least, are off by more than 2 ×.

{by_device}

## Models that are missed

Where a fifth of a model's figures with an engine, and two at least, are off by more than 2 ×.

{by_model}

## Properties

{questions:,} questions (a model, a device, an engine) were drawn from the whole catalog: {held}. The properties are: no
op takes more than 20 × its floor unless somebody says why; a larger batch, prompt, context or image takes no less time;
times lie within their intervals and above their floors; the parts of the memory add up; 8-bit integers are not slower
than f32 where the device computes them faster; Python, a sweep and the command give one answer; the default engine is
one that the device's owners run, or the answer says that none is known.

Ops beyond 20 × their floor, and why:

{explained}
- attention of any unit, in engines that copy their cache for it; and whatever was timed on the device itself.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedAnswer:
    """What somebody published, and what is answered to the same question."""

    row: PublishedMeasurement
    phase: Phase

    @property
    def ratio(self) -> float:
        return self.phase.time_s / self.row.seconds

    @property
    def covered(self) -> bool:
        low, high = self.phase.low_s, self.phase.high_s
        return low is not None and high is not None and low <= self.row.seconds <= high

    @property
    def missed(self) -> bool:
        return not 1 / MISS <= self.ratio <= MISS


def published_answers(aside: Counter[str]) -> list[PublishedAnswer]:
    """Of each device, engine and phase a few models and formats; of each of those one figure, drawn by lot.

    What is `aside` is counted by its reason: figures that are of no question, or that nothing can reach.
    """
    rows = [row for row in load().rows() if row.device and row.model and known_engine(row.engine or "")]
    random.Random(SEED).shuffle(rows)  # noqa: S311 - a sample, no secret
    asked: Counter[tuple[Any, ...]] = Counter()
    answers = []
    for row in {(row.device, row.model, row.engine, row.weights, row.quantity): row for row in rows}.values():
        key = (row.device, row.engine, row.quantity)
        phase = predicted_phase(row) if asked[key] < MODELS else None
        if phase is None:
            continue
        missed = not 1 / MISS <= phase.time_s / row.seconds <= MISS
        if not (row.weights or row.activations):
            aside["no number format is stated"] += 1
        elif missed and impossible(row) is not None:
            aside["faster than the device can be"] += 1
        else:
            asked[key] += 1
            answers.append(PublishedAnswer(row=row, phase=phase))
    return answers


def known_misses_page(
    questions: int, violations: Mapping[str, int], explained: Mapping[tuple[str, str, str], str]
) -> str:
    """The page, with what the properties found beside it, so that a user finds a miss before it finds the user."""
    aside: Counter[str] = Counter()
    answers = published_answers(aside)
    missed = sum(answer.missed for answer in answers)
    why = (
        f"- {kind} of {unit.upper()}s, {f'by `{rung}`' if rung != '*' else 'whoever says so'}: {reason}."
        for (unit, kind, rung), reason in explained.items()
    )
    return _PAGE.format(
        asked=len(answers),
        models=MODELS,
        covered=sum(answer.covered for answer in answers) / len(answers),
        missed=missed,
        share=missed / len(answers),
        aside=", ".join(f"{many} figures ({reason})" for reason, many in aside.most_common()) or "none",
        by_engine=_table("unit", _grouped(answers, "unit")),
        by_device=_table("device", _often(_grouped(answers, "device"))),
        by_model=_table("model", _often(_grouped(answers, "model"))),
        questions=questions,
        held=", ".join(f"{many} against *{kind}*" for kind, many in violations.items()) or "every property held",
        explained="\n".join(why),
    )


Groups = dict[tuple[str, ...], list[PublishedAnswer]]


def _grouped(answers: Sequence[PublishedAnswer], by: str) -> Groups:
    """By the unit, the device or the model; the engine; and the phase."""
    groups: Groups = defaultdict(list)
    for answer in answers:
        row = answer.row
        name = device(row.device or "").unit if by == "unit" else getattr(row, by)
        groups[name, row.engine or "", row.quantity].append(answer)
    return dict(sorted(groups.items()))


def _often(groups: Groups) -> Groups:
    """Groups of which many are missed, the most first."""
    missed = {key: sum(answer.missed for answer in group) for key, group in groups.items()}
    often = [key for key, group in groups.items() if missed[key] >= max(2, OFTEN * len(group))]
    return {key: groups[key] for key in sorted(often, key=lambda key: (-missed[key] / len(groups[key]), key))}


def _table(first: str, groups: Groups) -> str:
    return "\n".join(_lines(first, groups))


def _lines(first: str, groups: Groups) -> Iterator[str]:
    yield f"| {first} | runtime | phase | figures | off by 2 × | predicted / published | within its interval |"
    yield "| --- | --- | --- | ---: | ---: | ---: | ---: |"
    for key, group in groups.items():
        missed, covered = sum(answer.missed for answer in group), sum(answer.covered for answer in group)
        middle = median(answer.ratio for answer in group)
        yield f"| {' | '.join(key)} | {len(group)} | {missed} | {middle:.2f} | {covered / len(group):.0%} |"
