"""The way from a model's format to the one a target runs: the fewest steps, with those that only help put between."""

from collections import deque
from collections.abc import Sequence

from inferometer.core.dtypes import dtype
from inferometer.core.engine import EngineDescriptor
from inferometer.core.errors import DomainError, FormatError, UnknownNameError
from inferometer.known.engines import engines
from inferometer.measure.prepare.steps import COMPILED, FOLDERS, STEPS, SUFFIXES, PrepareStep

PLAIN = "none"  # `--quantise none`, and what a step leaves that quantises nothing


def quantised_name(asked: str) -> str:
    """A user's name for a format (`INT8`, `int4-weights`) as the steps have it."""
    head, dash, how = asked.casefold().partition("-")
    try:
        return f"{dtype(head).name}{dash}{how}"
    except UnknownNameError:
        return asked.casefold()


def format_meant(asked: str, source: str, engine: EngineDescriptor, *, generates: bool = False) -> str:
    """`i4` where the engine has one way to it alone, such as `i4-weights`: that one. Else what was asked for."""
    formats = formats_for(source, engine, generates=generates)
    alike = [name for name in formats if name.partition("-")[0] == asked]
    return alike[0] if asked not in formats and len(alike) == 1 else asked


def usable(engine: EngineDescriptor, *, generates: bool = False) -> tuple[PrepareStep, ...]:
    """The steps that may be used for an engine and a model that makes tokens, or takes and gives arrays."""
    fit = (step for step in STEPS if not step.runtimes or engine.name in step.runtimes)
    return tuple(step for step in fit if not (generates and step.of_arrays))


def formats_for(source: str, engine: EngineDescriptor, *, generates: bool = False) -> tuple[str, ...]:
    """What the model can be quantised to for an engine, by the names that `--quantise` takes."""
    steps = usable(engine, generates=generates)
    names = dict.fromkeys(step.quantises for step in steps)
    return tuple(name for name in names if name and _way(source, steps, name, goals_of(engine)) is not None)


def chain_for(
    source: str, engine: EngineDescriptor, *, quantise: str | None, goal: str | None = None, generates: bool = False
) -> tuple[PrepareStep, ...]:
    """The steps in order. `goal` is the format of the file to be written, if its name says it.

    Where nothing is asked for, the numbers stay as they are; a converter that always chooses a format takes its first.
    """
    steps, formats = usable(engine, generates=generates), formats_for(source, engine, generates=generates)
    goals = (goal,) if goal else goals_of(engine)
    ways = (_way(source, steps, name, goals) for name in ((PLAIN, *formats) if quantise is None else (quantise,)))
    way = next((found for found in ways if found is not None), None)
    if way is not None:
        # with the optional steps: `first` ones as soon as their format is there, `last` ones at the end
        helpers = [step for step in steps if step.optional]
        chain: list[PrepareStep] = []
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
    if quantise is not None and quantise not in formats:
        raise _no_format(source, engine, quantise, formats, generates=generates)
    if goal is not None and (quantise is not None or formats):
        raise _other_file(source, engine, quantise, goal, generates=generates)
    takes = sorted({form for step in steps for form in step.takes if step.gives in (goal, *engine.opens)})
    raise FormatError(
        f"No tool here makes a file in the format {goal or ' or '.join(engine.opens)} for {engine.title} of a model in "
        f"the format {source}.",
        remedy=f"Give a model in one of the formats {', '.join(takes)}." if takes else "Choose another runtime.",
    )


def _way(
    source: str, steps: Sequence[PrepareStep], wanted: str, goals: Sequence[str]
) -> tuple[PrepareStep, ...] | None:
    """The fewest steps by breadth first: a state is a format, and what the model has been quantised to."""
    ways = [step for step in steps if step.place == "way" and step.quantises in {None, wanted}]
    for end in goals:
        start = (source, PLAIN)
        seen: set[tuple[str, str]] = {start}
        waiting: deque[tuple[tuple[str, str], tuple[PrepareStep, ...]]] = deque([(start, ())])
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


def _no_format(
    source: str, engine: EngineDescriptor, wanted: str, formats: Sequence[str], *, generates: bool
) -> DomainError:
    """With the formats that there are, and the engines that the wanted one can be made for."""
    others = [
        other.name
        for other in engines().values()
        if other.opens and other is not engine and wanted in formats_for(source, other, generates=generates)
    ]
    remedies = [f"It can be quantised to {', '.join(formats)}."] if formats else []
    remedies += [f"{wanted} can be made for {', '.join(others)}."] if others else []
    return DomainError(
        f"A model in the format {source} cannot be quantised to {wanted} for {engine.title} here.",
        remedy=" ".join(remedies) or "Choose another runtime.",
    )


def _other_file(
    source: str, engine: EngineDescriptor, quantise: str | None, goal: str, *, generates: bool
) -> FormatError:
    """The tools make it for this engine, but not in the kind of file that was named."""
    chain = chain_for(source, engine, quantise=quantise, generates=generates)
    gives = chain[-1].gives if chain else source
    kind = f"a file that ends in {SUFFIXES[gives]}" if gives in SUFFIXES else "a folder"
    what = f"quantised to {quantise} " if quantise else ""
    return FormatError(
        f"The tools here make no {goal} {what}for {engine.title} of a model in the format {source}.",
        remedy=f"Name {kind}.",
    )
