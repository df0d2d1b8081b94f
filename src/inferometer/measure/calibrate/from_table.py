"""Calibrating a device that is not at hand: from a table of published whole-model times, or from the atlas."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from inferometer.known import device as device_named
from inferometer.known.atlas.reading import read_atlas
from inferometer.known.atlas.shipped import load
from inferometer.measure.calibrate.published import PublishedFit, calibration_from
from inferometer.predict.basis.files import own_folder, write_calibration
from inferometer.predict.published_rows import impossible

if TYPE_CHECKING:
    from inferometer.known.atlas.measurement import PublishedMeasurement, SetAside

ATLAS = "atlas"


def calibrate_from(source: str | Path, *, device: str, runtime: str, dtype: str | None = None) -> PublishedFit:
    """Fit a calibration of a device with a runtime from a CSV file in a form of the atlas, or from the `atlas` itself.

    `dtype` is the format of the activations; by default the one with the most rows. `save_fit` keeps it for `predict`.
    """
    name = device_named(device).name
    rows: tuple[PublishedMeasurement, ...]
    set_aside: tuple[SetAside, ...] = ()
    if str(source) == ATLAS:
        rows = tuple(load().where(device=name).rows())
    else:
        reading = read_atlas(Path(source))
        rows, set_aside = tuple(reading.table.rows()), reading.set_aside
    return calibration_from(rows, device=name, runtime=runtime, dtype=dtype, set_aside=set_aside, impossible=impossible)


def save_fit(fit: PublishedFit, out: Path | None = None) -> Path:
    """Write the calibration where `predict` finds it, or to a file or a folder."""
    return write_calibration(fit.calibration, out or own_folder())
