"""`inferometer explain`."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.options import format_option, print_document, print_table, print_text, say
from inferometer.cli.storing import open_chosen, store_option
from inferometer.core.finding import CODES
from inferometer.errors import DomainError, InferometerError, SchemaError

if TYPE_CHECKING:
    from inferometer.core.profile import Profile
    from inferometer.explain.explanation import Explanation
    from inferometer.explain.trying import Trial
    from inferometer.measure.run import MeasureRequest


@click.command("explain")
@click.argument("what", metavar="RUN|FILE|CODE")
@click.option("--on", "device", metavar="DEVICE", help="The device it ran on.  [default: as the profile says]")
@click.option("--try", "trying", is_flag=True, help="Measure what the engine can change on the spot.")
@store_option
@format_option
def command(what: str, device: str | None, trying: bool, store: str | None, form: str) -> None:
    """Explain a profile: where the time goes, what bounds it, what to do, and what that would gain.

    Where a prediction stands beside a measurement, it says which ops carry the difference, and whether the device, the
    runtime or the model seems at fault.

    \b
    inferometer profile resnet50 -o resnet50.json && inferometer explain resnet50.json
    inferometer explain last --try
    inferometer predict llama-3.1-8b --on nvidia-h200 --format json > p.json && inferometer explain p.json
    inferometer explain onnxruntime_profile.json --on nvidia-l4
    inferometer explain memory.bound

    RUN is a stored run (its id, a part of it, its name, or `last`). FILE is a saved profile, or a result of another
    tool that `inferometer import` knows. CODE is a finding's: its page says what it is and how sure.

    Gains are the cost model's, with their interval. With --try the changes that the engine can make on the spot
    (threads, batch, graph optimisation, precision, provider) are measured here, the baseline before and after them.
    """
    if what in CODES:
        _about(what, form)
        return
    profiles = _profiles(what, store)
    if trying and len(profiles) > 1:
        raise DomainError(f"{what} holds {len(profiles)} results, and --try takes one.")
    from inferometer.verbs import explained

    documents = []
    for profile in profiles:
        found = explained(profile, on=device, name=what)
        documents.append(_document(found, _tried(found) if trying else ()))
    _show(documents, form)


def _about(code: str, form: str) -> None:
    from dataclasses import asdict

    from inferometer.explain.pages import finding_page
    from inferometer.report.explanations import page_text

    plain = asdict(finding_page(code))
    if form == "json":
        print_document(plain)
    else:
        print_text(page_text(plain, form))


def _profiles(what: str, store: str | None) -> tuple[Profile, ...]:
    """A file where there is one of that name, else a run."""
    path = Path(what)
    if path.is_file():
        return _from_file(path)
    if path.suffix or "/" in what or "\\" in what:
        raise InferometerError(f"There is no file {what}.", remedy="Save one with `inferometer profile MODEL -o FILE`.")
    with open_chosen(store) as runs:
        run = runs.get(what)
    if run.profile is None:
        raise DomainError(f"Run {run.id} is {run.status} and has no profile.", remedy="Measure it again.")
    return (run.profile,)


def _from_file(path: Path) -> tuple[Profile, ...]:
    from inferometer.bench.files import load_profile
    from inferometer.importers.detect import import_file

    try:
        return (load_profile(path),)
    except SchemaError:
        if b'"inferometer.' in path.read_bytes()[:200]:
            raise  # one of ours that does not hold: its own error says more than that no importer knows it
    return import_file(path)


def _tried(found: Explanation) -> tuple[Trial, ...]:
    from inferometer.cli.measuring import progress_bar
    from inferometer.explain.trying import require_ours, try_changes
    from inferometer.measure.child import runtime_named
    from inferometer.measure.run import measure_model

    require_ours(found.profile)
    asked = _asked(found.profile)
    runtime = runtime_named(asked.runtime or "")

    def measure(order: MeasureRequest) -> Profile:
        say(f"Measuring {_words(order, asked)} …")
        with progress_bar() as progress:
            return measure_model(order, progress=progress).profile

    return try_changes(found.findings, asked, measure=measure, can=runtime.capabilities)


def _words(order: MeasureRequest, base: MeasureRequest) -> str:
    """What is measured, by what is different."""
    names = ("threads", "optimisation", "precision", "weights", "unit", "providers", "runtime")
    told = [f"{name}={getattr(order, name)}" for name in names if getattr(order, name) != getattr(base, name)]
    if order.workload.batch != base.workload.batch:
        told.append(f"batch={order.workload.batch}")
    return ", ".join(told) or "the baseline"


def _asked(profile: Profile) -> MeasureRequest:
    """The question as it was put on the command line, where that is known; else as the profile tells."""
    from inferometer.explain.trying import same_request

    again = same_request(profile)
    command_line = profile.provenance.command if profile.provenance else None
    try:
        given = _from_command(command_line or "")
    except (click.ClickException, InferometerError, ValueError):
        given = None
    if given is None:
        return again
    lengths = {name: getattr(profile.workload, name) for name in ("batch", "prompt", "generate", "context", "image")}
    runtime, threads = given.runtime or again.runtime, given.threads or again.threads
    # A path that was meant from another folder is found where the profile says.
    model = given.model if given.model == again.model or Path(given.model).exists() else again.model
    workload = replace(given.workload, **lengths)
    return replace(given, model=model, cases=(), workload=workload, runtime=runtime, threads=threads)


def _from_command(line: str) -> MeasureRequest | None:
    from inferometer.cli.measuring import measurement_from
    from inferometer.cli.profile import command as profile_command

    words = shlex.split(line)
    if "profile" not in words:
        return None
    context = profile_command.make_context("profile", words[words.index("profile") + 1 :])
    options: Any = context.params
    return measurement_from(options["model"], options, words=options["words"])


def _document(found: Explanation, trials: tuple[Trial, ...]) -> dict[str, Any]:
    from inferometer.explain.explanation import explanation_document
    from inferometer.explain.trying import trial_document

    plain = explanation_document(found) | {"residual": _residual(found.profile)}
    if not trials:
        return plain
    left = [line for line in plain["next"] if not line.endswith("--try")]
    return {**plain, "next": left, "tried": trial_document(trials)}


def _residual(profile: Profile) -> list[dict[str, Any]]:
    """What a measurement says of the prediction beside it, by phase; nothing where there is none."""
    from dataclasses import asdict

    from inferometer.explain.residual import explain_residual

    if profile.kind != "measured" or not any(phase.predicted_s and phase.ops for phase in profile.phases):
        return []
    return [asdict(story) for story in explain_residual(profile)]


def _show(documents: list[dict[str, Any]], form: str) -> None:
    from inferometer.report.explanations import explanation_page, findings_table

    if form == "json":
        print_document(documents[0] if len(documents) == 1 else documents)
        return
    if form == "csv":
        rows = [{"model": plain["model"], **finding} for plain in documents for finding in plain["findings"]]
        print_table(findings_table(rows), form)
        return
    for number, plain in enumerate(documents):
        if number:
            print_text("")
        print_text(explanation_page(plain, form))
