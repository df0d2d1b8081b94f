"""The verb: every combination of some lists, predicted, with the rows in memory."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from inferometer.predict.ask import device_for, model_graph
from inferometer.predict.sweep.engines import engine_for
from inferometer.predict.sweep.grid import study_of
from inferometer.predict.sweep.rows import Rows
from inferometer.predict.sweep.write import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from inferometer.core.calibration import Calibration
    from inferometer.core.device import Device
    from inferometer.core.engine import RuntimeEffects
    from inferometer.core.graph import Graph
    from inferometer.predict.options import Options
    from inferometer.predict.sweep.grid import Study

_HELD_ROWS = 1 << 20  # of a part in memory: what rows share is worked out once a part

Names = str | None | Sequence[str | None]
Counts = int | None | Sequence[int | None]


def sweep(  # noqa: PLR0913 - the axes, and what holds for all rows
    models: str | Graph | Sequence[str | Graph],
    devices: str | Device | Sequence[str | Device],
    *,
    runtimes: RuntimeEffects | str | Sequence[RuntimeEffects | str | None] | None = None,
    threads: Counts = None,
    weights: Names = None,
    activations: Names = None,
    kv: Names = None,
    tp: Counts = None,
    pp: Counts = None,
    ep: Counts = None,
    dp: Counts = None,
    image: Counts = None,
    batch: Counts = None,
    prompt: Counts = None,
    generate: Counts = None,
    context: Counts = None,
    calibrated: bool = True,
    calibrations: Iterable[Calibration] = (),
    options: Options | None = None,
    prefill_on: str | Device | None = None,
    details: bool = False,
    engine: str = "local",
) -> Rows:
    """Predict the cross product of the lists given, the last one varying fastest, each row as `predict` would.

    Models and devices are names, paths or values. What is not given is left to the model and the device. The rows are
    columns of numpy arrays; one that cannot be says why. Each is answered from the calibration that `predict` would
    take, or from one of `calibrations` where one is of its device and runtime; `calibrated=False` leaves those out that
    are kept. `options` and `prefill_on` hold for all rows, as in `predict`. `details` adds the low and high end of each
    time, what bounds each phase, and what each resource takes of it. `engine`: see ENGINES.
    """
    axes: dict[str, Any] = {
        "models": [model_graph(model, image=_first(image)) for model in _listed(models)],
        "devices": [device_for(device) for device in _listed(devices)],
        "runtimes": runtimes, "threads": threads, "weights": weights, "activations": activations, "kv": kv, "tp": tp,
        "pp": pp, "ep": ep, "dp": dp, "image": image, "batch": batch, "prompt": prompt, "generate": generate,
        "context": context,
    }  # fmt: skip
    study = study_of(
        axes,
        calibrated=calibrated,
        calibrations=calibrations,
        options=options,
        prefill_on=None if prefill_on is None else device_for(prefill_on),
        details=details,
        chunk_rows=_HELD_ROWS,
    )
    return run_study(study, engine=engine)


def _first(sizes: Counts) -> int | None:
    """One of the sizes of images, if any is asked for: graphs are then read with that size left open."""
    return next((size for size in _listed(sizes) if size is not None), None)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


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
