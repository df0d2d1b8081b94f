"""A file of published measurements judged: every row asked of what predicts it, and how far the answers are off.

Rows of serving engines are asked of their rules, all others of the priors; nothing of the file enters any fit but where
`from_models` says so.
"""

from __future__ import annotations

from collections import Counter
from math import log
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import InferometerError
from inferometer.core.frozen import frozen
from inferometer.known.atlas.measurement import SetAside
from inferometer.known.atlas.reading import read_atlas
from inferometer.known.serving_costs import fitted_on
from inferometer.measure.calibrate.priors.cases import has_device, is_described
from inferometer.measure.calibrate.priors.judged import FEW, JudgedFile, JudgedRow, how_far, judge_rows, way_of
from inferometer.understand.accuracy.served_rows import is_served, not_served, predict_served, served_case

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from inferometer.known.atlas.measurement import PublishedMeasurement

_WORDS = {"median": "median_error", "p90": "p90_error", "bias": "bias", "coverage": "covers", "width": "width"}


@frozen
class JudgedSet:
    """One file: `unmapped` are its rows whose model, device or engine nobody here knows by that name."""

    name: str
    file: JudgedFile
    unmapped: int
    set_aside: tuple[SetAside, ...] = ()

    @property
    def asked(self) -> int:
        return self.file.rows - sum(self.file.left.values())


def judge_atlas(path: Path, *, from_models: int | None = None) -> JudgedSet:
    """The rows of a file in any form of the atlas.

    With `from_models` every device is first calibrated from so many of its models, and the others are judged. What
    serving engines take beside their kernels is no device's own, so their rows are judged as they are.
    """
    reading = read_atlas(path)
    rows = list(reading.table.rows())
    served, left = judge_served(row for row in rows if is_served(row))
    others = judge_rows((row for row in rows if not is_served(row)), from_models=from_models)
    return JudgedSet(
        name=path.name.partition(".csv")[0],
        file=JudgedFile(judged=(*others.judged, *served), rows=len(rows), left=dict(Counter(others.left) + left)),
        unmapped=sum(row.model is None or not has_device(row) or not is_described(row.engine) for row in rows),
        set_aside=reading.set_aside,
    )


def judge_served(rows: Iterable[PublishedMeasurement]) -> tuple[list[JudgedRow], Counter[str]]:
    """Rows of serving engines, and why others cannot be asked."""
    judged: list[JudgedRow] = []
    left: Counter[str] = Counter()
    for row in rows:
        reason = not_served(row)
        if reason is None:
            try:
                judged.append(_judged(row))
            except InferometerError as error:
                reason = f"{row.model} on {row.count} {row.device}: {error}".partition("\n")[0]
        if reason is not None:
            left[reason] += 1
    return judged, left


def _judged(row: PublishedMeasurement) -> JudgedRow:
    case = served_case(row)
    if case is None or row.device is None or row.model is None:
        raise ValueError("a row without a question was asked")
    figure, engine = predict_served(case), case.question.runtime_name
    devices, models = fitted_on(engine)
    return JudgedRow(
        dataset=row.dataset,
        unit=row.unit or "gpu",
        engine=engine,
        quantity=row.quantity,
        way=way_of(row.device in devices, row.model in models),
        device=row.device,
        model=row.model,
        residual=log(row.seconds / figure.seconds),
        half=log(figure.high_s / figure.seconds),
    )


def accuracy_document(sets: Sequence[JudgedSet]) -> dict[str, Any]:
    """A set for each file, and in it a group for each device, engine, quantity and way of being predicted."""
    return {"schema": "inferometer.accuracy/1", "sets": [_set_document(judged) for judged in sets]}


def _set_document(judged: JudgedSet) -> dict[str, Any]:
    rows = judged.file.judged
    as_they_are = [row for row in rows if row.way != FEW] or list(rows)
    groups: dict[tuple[str, ...], list[JudgedRow]] = {}
    for row in rows:
        groups.setdefault((row.device, row.engine, row.quantity, row.way), []).append(row)
    return {
        "name": judged.name,
        "rows": judged.file.rows,
        **_figures(as_they_are),
        "unmapped": judged.unmapped,
        "set_aside": len(judged.set_aside),
        "left": dict(judged.file.left),
        "by": [
            {
                "device": device, "runtime": engine, "quantity": quantity, "way": way,
                "models": len({row.model for row in members}), **_figures(members),
            }
            for (device, engine, quantity, way), members in sorted(groups.items())
        ],
    }  # fmt: skip


def _figures(rows: Sequence[JudgedRow]) -> dict[str, Any]:
    figures: Mapping[str, float | None] = how_far(rows) if rows else dict.fromkeys(_WORDS)
    return {"n": len(rows), **{word: figures[name] for name, word in _WORDS.items()}}
