"""Sweeps: the cross product of models, devices, runtimes, formats and sizes, predicted at once.

`sweep` gives Rows in memory, `stream` writes them to a file as they come. Both are the same prediction as
`predict`, row for row; where a row cannot be, it says why.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from inferometer.sweep.choose import Condition, parse_condition
from inferometer.sweep.columns import COLUMNS, DETAILS
from inferometer.sweep.engines import ENGINES, engine_for
from inferometer.sweep.grid import AXES, Study, study_of
from inferometer.sweep.read import Saved, read_rows
from inferometer.sweep.rows import Rows, RowSource
from inferometer.sweep.spec import Spec, parse_axis, parse_spec
from inferometer.sweep.write import Progress, Written, stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from inferometer.core.calibration import Calibration
    from inferometer.core.device import Device
    from inferometer.core.graph import Graph
    from inferometer.cost.options import Options

__all__ = [
    "AXES", "COLUMNS", "DETAILS", "ENGINES", "Condition", "Progress", "RowSource", "Rows", "Saved", "Spec", "Study",
    "Written", "parse_axis", "parse_condition", "parse_spec", "read_rows", "run_study", "stream", "study_of", "sweep",
]  # fmt: skip


_HELD_ROWS = 1 << 18  # of a part in memory, which is small tables however many rows it has


def sweep(  # noqa: PLR0913 - the axes, and what holds for all rows
    models: Graph | Sequence[Graph],
    devices: Device | Sequence[Device],
    *,
    engine: str = "local",
    calibrated: bool = True,
    calibrations: Iterable[Calibration] = (),
    options: Options | None = None,
    details: bool = False,
    **axes: Any,
) -> Rows:
    """Predict every combination: the cross product of the lists given, the last one varying fastest.

    `axes` are runtimes, weights, activations, kv, tp, pp, ep, dp, image, batch, prompt, generate, context: lists, or
    single values. What is not given is left to the model and the device, as in a prediction. `engine`: see ENGINES.
    Each row is answered from the calibration that `predict` would take, or from one of `calibrations` where one fits;
    `calibrated=False` leaves those out that are kept. `details` adds the columns DETAILS: the low and high end of each
    time, and what bounds each phase.
    """
    asked = {"models": models, "devices": devices, **axes}
    study = study_of(
        asked, calibrated=calibrated, calibrations=calibrations, options=options, details=details, chunk_rows=_HELD_ROWS
    )
    return run_study(study, engine=engine)


def run_study(
    study: Study,
    *,
    engine: str = "local",
    progress: Callable[[Progress], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Rows:
    """The rows of a study, in memory."""
    parts: list[Any] = []
    rows, start = 0, clock()
    with engine_for(engine, study) as run:
        for done in run(study.chunks(), None):
            parts += done.payload
            rows += done.rows
            if progress is not None:
                progress(Progress(done=rows, total=len(study), kept=0, seconds=clock() - start))
    return Rows(parts)
