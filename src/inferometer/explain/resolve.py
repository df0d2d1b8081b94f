"""What a profile is of: the graph behind its model's name, and the device behind its device's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from inferometer.catalog import device as device_named
from inferometer.catalog.files import row_named
from inferometer.errors import InferometerError
from inferometer.readers.resolve import read

if TYPE_CHECKING:
    from collections.abc import Callable

    from inferometer.core.device import Device
    from inferometer.core.graph import Graph
    from inferometer.core.profile import Profile

__all__ = ["device_of", "graph_of"]

_LOCAL = "local"


def graph_of(profile: Profile) -> tuple[Graph | None, str | None]:
    """The model's graph, and why there is none.

    The catalog may know the name and the file may still be there. The one whose layers the profile's ops are named
    after is the one that was measured; of two that know as many, the file.
    """
    found: list[Graph] = []
    problems: list[str] = []
    for source in dict.fromkeys(filter(None, (_file(profile), _row(profile)))):
        try:
            found.append(read(source))
        except InferometerError as error:
            problems.append(str(error))
    if not found:
        why = problems[0] if problems else f"the catalog has no {profile.model.name!r}, and its file is not here"
        return None, f"Gains are not priced: {why.rstrip('.')}."
    return max(found, key=lambda graph: _known(profile, graph)), None


def _file(profile: Profile) -> str | None:
    source = profile.model.source
    return source if source and Path(source).exists() else None


def _row(profile: Profile) -> str | None:
    return profile.model.name if row_named("models", profile.model.name) is not None else None


def _known(profile: Profile, graph: Graph) -> int:
    """How many of the profile's ops the graph has."""
    names = {
        block.full_name(op.name, repetition) for block, op in graph.ops() for repetition in range(block.count)
    }  # fmt: skip
    return sum(op.name in names for phase in profile.phases for op in phase.ops)


def device_of(
    profile: Profile, on: str | None = None, *, ceilings: Callable[[Device], Device] | None = None
) -> tuple[Device | None, str | None]:
    """The device the profile is of, and why it is not known. `on` names it; `ceilings` measures this machine's roof.

    A profile of a machine that calls itself local is explained with this machine's roof only where it has the name of
    this one.
    """
    if on is not None and on != _LOCAL:
        return device_named(on), None
    name = profile.device.name
    if on is None and name != _LOCAL:
        try:
            return device_named(name), None
        except InferometerError:
            return None, f"The catalog has no device {name!r}: `--on DEVICE` says which it is."
    here = device_named(_LOCAL)
    if on is None and profile.device.title not in {None, here.title}:
        return None, f"It was measured on another machine ({profile.device.title}): `--on DEVICE` says which it is."
    return (ceilings(here) if ceilings else here), None
