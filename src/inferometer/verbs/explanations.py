"""The verb that explains a profile as it was judged; one that never was, or is put on another device, is judged now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inferometer.explain.explanation import Explanation, explain
from inferometer.explain.judging import judge_profile
from inferometer.explain.resolve import device_behind, graph_behind

if TYPE_CHECKING:
    from inferometer.core.profile import Profile


def explained(profile: Profile, *, on: str | None = None, name: str | None = None) -> Explanation:
    """Where a profile's time goes, what bounds it, what to change and what that would gain.

    `on` is the catalog device it ran on, if that is not the one the profile was judged by.
    """
    name = name or profile.model.name
    if profile.kind == "measured" and profile.judged_by is not None and on is None:
        return explain(profile, name=name)
    from inferometer.asking.roof import roof_for  # noqa: PLC0415 - a judged profile needs none

    device, unknown = device_behind(profile, on)
    graph, unread = graph_behind(profile, files=on is not None)
    roof = roof_for(device) if device is not None and on is not None else None
    judged, notes = judge_profile(profile, device, graph=graph, roof=roof)
    return explain(judged, notes=tuple(filter(None, (unknown, unread, *notes))), name=name)
