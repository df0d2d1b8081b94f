"""Settings of a run that published tables name and fitted levels tell apart: threads of a CPU, the layout of images."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from inferometer.predict.price.class_figures import core_count
from inferometer.predict.price.deviations import Standing, known_deviations, known_unit

if TYPE_CHECKING:
    from inferometer.core.device import Device
    from inferometer.predict.options import Options

USUAL_LAYOUT = "nchw"
LAYOUTS = (USUAL_LAYOUT, "nhwc")
_LEAST_PEAK = 1e6  # FLOP/s: seconds are divided by it, and more threads than cores must not make it 0


def threads_variant(count: int) -> str:
    """The number of threads, roughly: what is lost between them grows with each doubling."""
    # 1, 2, 3-4, 5-8, 9-16, 17+: as deviations.json has them; another cut would find no level there.
    named = (f"{most // 2 + 1}-{most}" if most > 2 else str(most) for most in (1, 2, 4, 8, 16) if count <= most)
    return f"threads={next(named, '17+')}"


def variants_asked(options: Options, device: Device) -> tuple[str, ...]:
    """The settings that a question names, where they are not the usual ones. Who names no threads has all cores."""
    asked = []
    if options.layout not in {None, USUAL_LAYOUT}:
        asked.append(f"layout={options.layout}")
    threads = options.threads or core_count(device)
    if threads is not None and device.unit == "cpu":
        asked.append(threads_variant(threads))
    return tuple(asked)


def knows_variant(standing: Standing, variant: str, *, tokens: bool) -> bool:
    """Whether published steps with this engine on such a unit ran so."""
    unit = known_unit(standing, tokens=tokens).unit
    return f"variant:{unit}:{standing.engine}:{variant}" in known_deviations(tokens=tokens).levels


def with_threads(device: Device, threads: int) -> Device:
    """A CPU that runs on `threads` of its cores: it has their peaks, and all of its memory."""
    peaks = {
        key: replace(peak, value=max(device.even_peak(key, threads), _LEAST_PEAK)) for key, peak in device.peaks.items()
    }
    return replace(device, peaks=peaks)
