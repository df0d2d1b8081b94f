"""The command that carries advice out: `inferometer prepare`, for findings that ask for smaller numbers."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from inferometer.asking.change import parse_change
from inferometer.catalog.engines import known_engine
from inferometer.catalog.files import row_named
from inferometer.errors import InferometerError
from inferometer.prepare.chain import chain_for, formats_for
from inferometer.prepare.source import starting_format
from inferometer.prepare.steps import SUFFIXES
from inferometer.settings import cache_folder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from inferometer.core.engine import EngineDescriptor
    from inferometer.core.finding import Finding
    from inferometer.core.profile import Profile

_HOW = ("", "-weights", "-dynamic")  # the ways of storing a format, the one that computes in it first


def quantise_for(model: str, runtime: str | None, text: str) -> str | None:
    """What `--quantise` is to be so that a change is made (`weights=i8`); None if no tool here makes it."""
    change, engine = parse_change(text), None if runtime is None else known_engine(runtime)
    if change.key not in {"weights", "precision"} or engine is None:
        return None
    try:
        form, generates = starting_format(model, engine)
    except InferometerError:
        return None
    known = formats_for(form, engine, generates=generates)
    return next((name for how in _HOW if (name := f"{change.value}{how}") in known), None)


def prepare_command(profile: Profile, findings: Iterable[Finding]) -> str | None:
    """The command for the first finding that a tool can act on, with the gain that is predicted for it."""
    model = _model(profile)
    engine = None if profile.runtime is None else known_engine(profile.runtime)
    if model is None or engine is None:
        return None
    for finding in findings:
        for change in finding.changes:
            quantise = quantise_for(model, profile.runtime, change)
            if quantise is None:
                continue
            command = _command(model, engine, quantise)
            first = change == finding.changes[0] and finding.gain is not None
            return f"{command}  # predicted gain {finding.gain:.2g} ×{_interval(finding)}" if first else command
    return None


def _model(profile: Profile) -> str | None:
    """The user's file; the catalog's name where the file was made here of random numbers."""
    source = profile.model.source
    made = source is None or cache_folder() in Path(source).parents
    return profile.model.name if made and row_named("models", profile.model.name) is not None else source


def _command(model: str, engine: EngineDescriptor, quantise: str) -> str:
    form, generates = starting_format(model, engine)
    gives = chain_for(form, engine, quantise=quantise, generates=generates)[-1].gives
    stem = Path(model).name.removesuffix(Path(model).suffix) if Path(model).is_file() else Path(model).name
    name = f"{stem}-{quantise}{SUFFIXES.get(gives, '')}"
    return f"inferometer prepare {shlex.quote(model)} --for {engine.name} --quantise {quantise} -o {shlex.quote(name)}"


def _interval(finding: Finding) -> str:
    if finding.gain_low is None or finding.gain_high is None:
        return ""
    return f" ({finding.gain_low:.2g} to {finding.gain_high:.2g})"
