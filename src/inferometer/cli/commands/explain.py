"""`inferometer explain`."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferometer.api.naming import profiles_in
from inferometer.cli.options import format_option, print_document, print_documents, print_table, print_text, say
from inferometer.cli.progress import said_if_slow
from inferometer.cli.storing import profile_named, store_option
from inferometer.core.errors import DomainError, InferometerError
from inferometer.core.finding import CODES
from inferometer.core.job import Job, JobModel

if TYPE_CHECKING:
    from inferometer.core.profile import Profile
    from inferometer.measure.run.model import MeasureRequest
    from inferometer.understand.explanation import Explanation
    from inferometer.understand.trying import Trial


@click.command("explain")
@click.argument("what", metavar="RUN|FILE|CODE")
@click.option("--on", "device", metavar="DEVICE", help="The device it ran on.  [default: as the profile says]")
@click.option("--try", "trying", is_flag=True, help="Measure the changes that this engine can make.")
@store_option
@format_option
def command(what: str, device: str | None, trying: bool, store: str | None, form: str) -> None:
    """Explain a profile: where the time goes, what bounds it, what to do, and what that would gain.

    For a measurement with a prediction beside it, it also says which ops cause the difference, and whether the device,
    the runtime or the model seems to be at fault.

    \b
    inferometer profile resnet50 -o resnet50.json && inferometer explain resnet50.json
    inferometer explain last --try
    inferometer predict llama-3.1-8b --on nvidia-h200 --format json > p.json && inferometer explain p.json
    inferometer explain onnxruntime_profile.json --on nvidia-l4
    inferometer explain memory.bound

    RUN is a stored run (its id, part of it, its name, or `last`). FILE is a saved profile, or the result of another
    tool that `inferometer import` can read. CODE is the code of a finding: it prints what the finding means and how
    sure it is.

    Gains are predictions, with their interval. With --try, the changes that this engine can make (threads, batch, graph
    optimisation, precision, provider) are measured on this machine, with the baseline before and after them.
    """
    if what in CODES:
        _print_finding_page(what, form)
        return
    with said_if_slow(f"Reading {what} …"):
        # from the file of that name if there is one, else from the stored run
        path = Path(what)
        profiles = profiles_in(path) if path.is_file() else (profile_named(what, store),)
    if trying and len(profiles) > 1:
        raise DomainError(f"{what} has {len(profiles)} results, but --try takes one.")
    from inferometer.api import explained

    documents = []
    for profile in profiles:
        with said_if_slow(f"Explaining {profile.model.name}: predicting it, and pricing what could be changed …"):
            explanation = explained(profile, on=device, name=what)
        documents.append(_document(explanation, _measured_trials(explanation) if trying else ()))
    _print_explanations(documents, form)


def _print_finding_page(code: str, form: str) -> None:
    from dataclasses import asdict

    from inferometer.understand.findings import finding_page
    from inferometer.understand.view.explanations import page_text

    plain = asdict(finding_page(code))
    if form == "json":
        print_document(plain)
    else:
        print_text(page_text(plain, form))


def _measured_trials(explanation: Explanation) -> tuple[Trial, ...]:
    from inferometer.cli.measuring import progress_recorder
    from inferometer.measure.run.child import runtime_named
    from inferometer.measure.run.model import measure_model
    from inferometer.understand.trying import require_ours, try_changes

    require_ours(explanation.profile)
    asked = _asked(explanation.profile)
    runtime = runtime_named(asked.runtime or "")

    def measure(order: MeasureRequest) -> Profile:
        say(f"Measuring {_differences(order, asked)} …")
        with progress_recorder() as progress:
            return measure_model(order, progress=progress).profile

    trials = try_changes(explanation.findings, asked, measure=measure, can=runtime.capabilities)
    if not trials:
        say("There is nothing to try: none of the findings names a change that could be measured here.")
    elif all(trial.obtained is None for trial in trials):
        say(f"None of the changes could be measured with {runtime.title}: the table says why.")
    return trials


def _differences(order: MeasureRequest, base: MeasureRequest) -> str:
    """What is measured, described by how it differs from the baseline."""
    names = ("threads", "optimisation", "precision", "weights", "unit", "providers", "runtime")
    changes = [f"{name}={getattr(order, name)}" for name in names if getattr(order, name) != getattr(base, name)]
    if order.workload.batch != base.workload.batch:
        changes.append(f"batch={order.workload.batch}")
    return ", ".join(changes) or "the baseline"


def _asked(profile: Profile) -> MeasureRequest:
    """The measurement to repeat: from its command line if the profile has it, else from the profile's own values."""
    from inferometer.understand.trying import same_request

    again = _by_names(same_request(profile))
    command_line = profile.provenance.command if profile.provenance else None
    try:
        given = _from_command(command_line or "")
    except (click.ClickException, InferometerError, ValueError):
        given = None
    if given is None:
        return again
    lengths = {name: getattr(profile.workload, name) for name in ("batch", "prompt", "generate", "context", "image")}
    runtime, threads = given.runtime or again.runtime, given.threads or again.threads
    # A relative path may have been given in another folder; the profile knows where the file is.
    model = given.model if given.model == again.model or Path(given.model).exists() else again.model
    workload = replace(given.workload, **lengths)
    return replace(given, model=model, cases=(), workload=workload, runtime=runtime, threads=threads)


def _from_command(line: str) -> MeasureRequest | None:
    from inferometer.cli.commands.profile import command as profile_command
    from inferometer.cli.measuring import measurement_from

    words = shlex.split(line)
    if "profile" not in words:
        return None
    context = profile_command.make_context("profile", words[words.index("profile") + 1 :])
    options: Any = context.params
    return _by_names(measurement_from(options["model"], options, words=options["words"]))


def _by_names(given: MeasureRequest) -> MeasureRequest:
    """The request, if a job could ask the same: the run may be somebody else's, who chose a library or a module."""
    named = {"providers": given.providers, "options": given.options}
    Job(id="again", verb="profile", model=JobModel(name="again"), runtime=given.runtime, options=named)
    return replace(given, trust=())


def _document(explanation: Explanation, trials: tuple[Trial, ...]) -> dict[str, Any]:
    from inferometer.understand.explanation import explanation_document
    from inferometer.understand.residual import residual_documents

    plain = explanation_document(explanation) | {"residual": residual_documents(explanation.profile)}
    if not trials:
        return plain
    from inferometer.understand.trying import trial_document

    suggested = [line for line in plain["next"] if not line.endswith("--try")]
    return {**plain, "next": suggested, "tried": trial_document(trials)}


def _print_explanations(documents: list[dict[str, Any]], form: str) -> None:
    from inferometer.understand.view.explanations import explanation_page, findings_table

    if form == "json":
        print_documents(documents)
        return
    if form == "csv":
        rows = [{"model": plain["model"], **finding} for plain in documents for finding in plain["findings"]]
        print_table(findings_table(rows), form)
        return
    for number, plain in enumerate(documents):
        if number:
            print_text("")
        print_text(explanation_page(plain, form))
