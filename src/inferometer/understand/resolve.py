"""What a profile refers to: the graph behind its model's name, and the device behind its device's name."""

from pathlib import Path

from inferometer.core.device import Device, is_local
from inferometer.core.errors import InferometerError
from inferometer.core.graph import Graph
from inferometer.core.machine import MachineFacts
from inferometer.core.profile import Profile
from inferometer.formats.networks.shipped import is_shipped
from inferometer.known import device as device_named
from inferometer.known.files import row_named
from inferometer.known.machine.detect.identity import this_machine
from inferometer.predict.ask import graphs_named


def graph_behind(profile: Profile, *, files: bool) -> tuple[Graph | None, str | None]:
    """The model's graph, or None and why.

    If there are two candidates, it is the one whose layers share more names with the profile's ops. The model's own
    file is read only with `files`: a profile from elsewhere may name any file on this machine.
    """
    name, source = profile.model.name, profile.model.source
    sources = [source] if files and source and Path(source).exists() else []
    if row_named("models", name) is not None or is_shipped(name):
        sources.append(name)
    graphs: list[Graph] = []
    problems: list[str] = []
    for place in sources:
        try:
            graphs += graphs_named(place)
        except InferometerError as error:
            problems.append(str(error))
    if not graphs:
        why = problems[0] if problems else f"the catalog has no {name!r}"
        return None, f"Gains are not priced: {why.rstrip('.')}."
    return max(graphs, key=lambda graph: _shared_layers(profile, graph)), None


def _shared_layers(profile: Profile, graph: Graph) -> int:
    names = {block.full_name(op.name, repetition) for block, op in graph.ops() for repetition in range(block.count)}
    return sum(op.name in names for phase in profile.phases for op in phase.ops)


def device_behind(profile: Profile, on: str | None = None) -> tuple[Device | None, str | None]:
    """The device of the profile, or None and why. `on` names it; otherwise it is the one the profile was judged by.

    Nothing is measured here: a machine whose roof was not stored with the run has none.
    """
    if on is not None:
        return device_named(on), None
    if profile.judged_by is not None:
        return profile.judged_by.device, None
    name = profile.device.name
    if is_local(name):
        return None, "The run has no roof of its machine: name the device with `--on DEVICE`."
    if row_named("devices", name) is None:  # never a path: a guest of the hub could then read this machine's files
        return None, f"The catalog has no device {name!r}: name one with `--on DEVICE`."
    return device_named(name), None


def other_machine(profile: Profile) -> MachineFacts | None:
    """The machine of a run that was made on another one than this; None if it is this one, or not known."""
    machine = profile.environment.machine if profile.environment else None
    return None if machine is None or machine.id == this_machine().id else machine
