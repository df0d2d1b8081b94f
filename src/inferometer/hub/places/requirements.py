"""What a job needs where it runs: our own package, the few that it imports, and an engine.

The requirements are those of our package's own metadata: `pyproject.toml` is the one place where they stand.
"""

import re
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from inferometer.core.errors import InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.graph import is_generative
from inferometer.core.job import Job
from inferometer.core.plugins import load_all
from inferometer.formats.resolve import read
from inferometer.hub.places.base import LocalFiles
from inferometer.known import device as device_named
from inferometer.known.engines import engine, ranked_engines
from inferometer.measure.run.model_file import can_open

_REQUIREMENT = re.compile(r"^\s*([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?\s*\(?([^;)]*)\)?\s*(?:;(.*))?$")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([\w-]+)['"]""")
_BOUND = re.compile(r"(>=|<)\s*([\d.]+)")
_ONLY_HERE = frozenset({"click"})  # the command line's: a runner has none
_DESK = "local:cpu"


@frozen
class Need:
    """One of several distributions, each good enough; `install` are the requirements to fetch where none is there."""

    names: tuple[str, ...]
    install: tuple[str, ...]

    def is_met(self, installed: Mapping[str, str | None]) -> bool:
        return any(_fits(installed.get(name), self._bounds(name)) for name in self.names)

    def _bounds(self, name: str) -> str:
        return next((text for text in self.install if _name_of(text) == name), "")


def _name_of(text: str) -> str:
    match = _REQUIREMENT.match(text)
    return match[1] if match else text


def _fits(installed: str | None, requirement: str) -> bool:
    """Whether a version is within the bounds. Only numbers are compared: ours are of that kind."""
    if installed is None:
        return False
    have = _numbers(installed)
    return all((have >= _numbers(limit)) == (sign == ">=") for sign, limit in _BOUND.findall(requirement))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


def needs_of(job: Job, files: LocalFiles, leave: Iterable[str] = ()) -> tuple[Need, ...]:
    """What must be there for a job. What is named in `leave` is not fetched: the device has it, or the job says so."""
    base, extras = _declared()
    left = frozenset(leave)
    needs = [
        Need(names=(name,), install=() if name in left else (text,))
        for name, text in base.items()
        if name not in _ONLY_HERE
    ]
    for names in engines_for(job, files):
        packages = tuple(package for name in names for package in engine(name).packages[:1])
        others = tuple(package for name in names for package in engine(name).packages[1:])
        wanted = extras.get(engine(names[0]).extra or "", {})
        install = tuple(text for name, text in wanted.items() if name not in left)
        needs.append(Need(names=(*packages, *others), install=install))
    return tuple(needs)


def engines_for(job: Job, files: LocalFiles) -> tuple[tuple[str, ...], ...]:
    """For each engine that a job uses, the ones that would do, the likeliest first: one if the job names it."""
    against = job.options.get("against")
    named = [(job.runtime,)] if job.runtime else [_candidates(job, files)]
    return tuple(names for names in (*named, *([(str(against),)] if against else [])) if names)


def _candidates(job: Job, files: LocalFiles) -> tuple[str, ...]:
    """As `profile` chooses on a desk's processor, among the engines that open such a model."""
    desk = device_named(_DESK)
    if job.model is None:
        return ranked_engines(desk, makes_tokens=False)[:1]
    graph = read(local_path(job, files))
    loaded, _ = load_all("inferometer.runtimes")
    ranked = ranked_engines(desk, makes_tokens=is_generative(graph), format=graph.metadata.get("format"))
    return tuple(name for name in ranked if name in loaded and can_open(loaded[name], graph))


def local_path(job: Job, files: LocalFiles) -> str:
    """Where the model of a job is on this machine: a path, or the catalog's name."""
    model = job.model
    if model is None or not model.files:
        return model.name if model else ""
    first = model.files[0]
    path = files[first.sha256]
    if first.path == model.entry:
        return str(path)
    inside = Path(first.path).relative_to(model.entry)  # a folder: go up from the file to it
    return str(path.parents[len(inside.parts) - 1])


def _declared() -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Our requirements by name, and those of each extra."""
    try:
        lines = distribution("inferometer").requires or []
    except PackageNotFoundError:
        raise InferometerError(
            "Inferometer runs from its sources and is not installed, so that what it needs elsewhere is not known.",
            remedy="Install it: pip install -e . in its folder.",
        ) from None
    base: dict[str, str] = {}
    extras: dict[str, dict[str, str]] = {}
    for line in lines:
        match = _REQUIREMENT.match(line)
        if match is None:
            continue
        name, bounds, marker = match[1], match[2].strip(), (match[3] or "").strip()
        extra = _EXTRA.search(marker)
        rest = re.sub(r"\s*\band\b\s*$|^\s*\band\b\s*", "", _EXTRA.sub("", marker)).strip(" ()")
        text = f"{name}{bounds}" + (f"; {rest}" if rest else "")
        if extra is None:
            base[name] = text
        else:
            extras.setdefault(extra[1], {})[name] = text
    return base, extras
