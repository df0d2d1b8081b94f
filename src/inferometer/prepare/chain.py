"""The way from a model's format to the one a target runs: the fewest steps, with those that only help put between."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from inferometer.core.dtype import dtype
from inferometer.errors import DomainError, FormatError, UnknownNameError
from inferometer.prepare.steps import COMPILED, FOLDERS, STEPS, SUFFIXES, Step

if TYPE_CHECKING:
    from collections.abc import Iterable

    from inferometer.core.engine import EngineDescriptor

PLAIN = "none"  # `--quantise none`, and what a step leaves that quantises nothing


def quantised_name(asked: str) -> str:
    """A user's name for a format (`INT8`, `int4-weights`) as the steps have it."""
    head, dash, how = asked.casefold().partition("-")
    try:
        return f"{dtype(head).name}{dash}{how}"
    except UnknownNameError:
        return asked.casefold()


def format_meant(asked: str, source: str, engine: EngineDescriptor) -> str:
    """`i4` where the engine has one way to it alone, such as `i4-weights`: that one. Else what was asked for."""
    formats = formats_for(source, engine)
    alike = [name for name in formats if name.partition("-")[0] == asked]
    return alike[0] if asked not in formats and len(alike) == 1 else asked


def usable(engine: EngineDescriptor, steps: Iterable[Step] = STEPS) -> tuple[Step, ...]:
    """The steps that may be used for an engine."""
    return tuple(step for step in steps if not step.runtimes or engine.name in step.runtimes)


def formats_for(source: str, engine: EngineDescriptor) -> tuple[str, ...]:
    """What the model can be quantised to for an engine, by the names that `--quantise` takes."""
    names = dict.fromkeys(step.quantises for step in usable(engine) if step.quantises)
    return tuple(name for name in names if name and _way(source, engine, name, None) is not None)


def chain_for(
    source: str, engine: EngineDescriptor, *, quantise: str | None, goal: str | None = None
) -> tuple[Step, ...]:
    """The steps in order. `goal` is the format of the file to be written, if its name says it.

    Where nothing is asked for, the numbers stay as they are; a converter that always chooses a format takes its first.
    """
    wanted = (PLAIN, *formats_for(source, engine)) if quantise is None else (quantise,)
    ways = (_way(source, engine, name, goal) for name in wanted)
    way = next((found for found in ways if found is not None), None)
    if way is None:
        raise _no_way(source, engine, quantise, goal)
    return _with_helpers(source, way, engine)


def _way(source: str, engine: EngineDescriptor, wanted: str, goal: str | None) -> tuple[Step, ...] | None:
    """The fewest steps by breadth first: a state is a format, and what the model has been quantised to."""
    ways = [step for step in usable(engine) if step.place == "way" and step.quantises in {None, wanted}]
    for end in (goal,) if goal else goals_of(engine):
        start = (source, PLAIN)
        seen: set[tuple[str, str]] = {start}
        waiting: deque[tuple[tuple[str, str], tuple[Step, ...]]] = deque([(start, ())])
        while waiting:
            (form, stored), taken = waiting.popleft()
            if (form, stored) == (end, wanted):
                return taken
            for step in ways:
                state = (step.gives, step.quantises or stored)
                if form in step.takes and state not in seen:
                    seen.add(state)
                    waiting.append((state, (*taken, step)))
    return None


def goals_of(engine: EngineDescriptor) -> tuple[str, ...]:
    """The formats to prepare, compiled ones and an engine's own first. `.ort` is made only for a file called so."""
    forms = (form for form in engine.opens if form in SUFFIXES.keys() | FOLDERS.keys() and form != "ort")
    return tuple(sorted(forms, key=lambda form: form not in COMPILED))


def _with_helpers(source: str, way: tuple[Step, ...], engine: EngineDescriptor) -> tuple[Step, ...]:
    """With the optional steps: `first` ones as soon as their format is there, `last` ones at the end."""
    helpers = [step for step in usable(engine) if step.optional]
    chain: list[Step] = []
    done: set[str] = set()
    form = source
    for step in (*way, None):
        for helper in helpers:
            if helper.place == "first" and form in helper.takes and helper.name not in done:
                done.add(helper.name)
                chain.append(helper)
        if step is not None:
            chain.append(step)
            form = step.gives
    chain += [helper for helper in helpers if helper.place == "last" and form in helper.takes]
    return tuple(chain)


def _no_way(source: str, engine: EngineDescriptor, wanted: str | None, goal: str | None) -> DomainError | FormatError:
    formats = formats_for(source, engine)
    if wanted is not None and wanted not in formats:
        return DomainError(
            f"A model in the format {source} cannot be quantised to {wanted} for {engine.title} here.",
            remedy=f"It can be quantised to {', '.join(formats)}." if formats else "Choose another runtime.",
        )
    takes = sorted({form for step in usable(engine) for form in step.takes if step.gives in (goal, *engine.opens)})
    return FormatError(
        f"No tool here makes a file in the format {goal or ' or '.join(engine.opens)} for {engine.title} of a model in "
        f"the format {source}.",
        remedy=f"Give a model in one of the formats {', '.join(takes)}." if takes else "Choose another runtime.",
    )
