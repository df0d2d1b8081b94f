"""The verb that explains: a profile's device, graph and calibration are found, and handed to `explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inferometer.asking.calibrations import choose
from inferometer.asking.roof import raised, with_ceilings
from inferometer.explain.explanation import Explanation, explain
from inferometer.explain.resolve import device_of, graph_of

if TYPE_CHECKING:
    from inferometer.core.calibration import Calibration
    from inferometer.core.device import Device
    from inferometer.core.profile import Profile

__all__ = ["explained"]


def explained(profile: Profile, *, on: str | None = None, name: str | None = None) -> Explanation:
    """Where a profile's time goes, what bounds it, what to change and what that would gain.

    `on` names the device of the catalog that it ran on, where the profile does not say.
    """
    device, unknown = device_of(profile, on, ceilings=lambda here: raised(with_ceilings(here), profile))
    graph, unread = graph_of(profile)
    calibration, said = _calibration(profile, device)
    notes = tuple(filter(None, (unknown, unread, *said)))
    return explain(profile, device, graph=graph, calibration=calibration, notes=notes, name=name or profile.model.name)


def _calibration(profile: Profile, device: Device | None) -> tuple[Calibration | None, tuple[str, ...]]:
    if device is None or profile.runtime is None:
        return None, ()
    found = choose(device.name, profile.runtime, profile.workload.precision.activations)
    return found.calibration, found.notes
