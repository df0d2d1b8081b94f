"""The verb: every combination of some lists, predicted, with the rows in memory."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from inferometer.predict.ask import given_fields, taking
from inferometer.predict.fields import AXES, SWEPT, require_fields
from inferometer.predict.flags import options_from
from inferometer.predict.sweep.begun import begun_study
from inferometer.predict.sweep.engines import engine_for
from inferometer.predict.sweep.grid import SHARED_ROWS, Study
from inferometer.predict.sweep.rows import Rows
from inferometer.predict.sweep.write import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from inferometer.core.calibration import Calibration
    from inferometer.core.device import Device
    from inferometer.core.graph import Graph
    from inferometer.predict.asked import Swept
    from inferometer.predict.options import Options


@taking(SWEPT)
def sweep(  # noqa: PLR0913 - the axes, and what holds for all rows
    models: str | Graph | Sequence[str | Graph],
    devices: str | Device | Sequence[str | Device],
    *,
    calibrated: bool = True,
    calibrations: Iterable[Calibration] = (),
    options: Options | None = None,
    details: bool = False,
    engine: str = "local",
    **asked: Unpack[Swept],
) -> Rows:
    """Predict the cross product of the lists given, the last one varying fastest, each row as `predict` would.

    Models and devices are names, paths or values. What is not given is left to the model and the device. The rows are
    columns of numpy arrays; one that cannot be says why. Each is answered from the calibration that `predict` would
    take, or from one of `calibrations` where one is of its device and runtime; `calibrated=False` leaves those out that
    are kept. `options`, `prefill_on` and every keyword that is no list hold for all rows, as in `predict`. `details`
    adds the low and high end of each time, what bounds each phase, and what each resource takes of it. `engine`: see
    ENGINES.
    """
    require_fields(asked, SWEPT)
    lists: Mapping[str, Any] = asked
    axes = {name: lists.get(name) for name in AXES} | {"models": models, "devices": devices}
    options = options_from(given_fields(asked, "option", "cost"), options)
    with begun_study(
        axes,
        calibrated=calibrated and not asked.get("priors"),
        calibrations=calibrations,
        options=replace(options, sizes={**options.sizes, **(asked.get("sizes") or {})}),
        prefill_on=asked.get("prefill_on"),
        details=details,
        chunk_rows=SHARED_ROWS,
    ) as study:
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
