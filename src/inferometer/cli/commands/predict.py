"""`inferometer predict`."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import inf
from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.options import (
    field_options,
    format_option,
    print_card,
    print_document,
    print_documents,
    print_table,
    print_view,
    refuse_given,
    split_lists,
)
from inferometer.core.errors import DomainError, FormatError, InferometerError
from inferometer.predict.fields import FIELDS, fields_that
from inferometer.predict.flags import parse_sizes
from inferometer.understand.view.table import Column, ReportTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from inferometer.predict.question import Question

Case = tuple[str, str, str | None]  # a model, a device, the format of the weights


@click.command("predict")
@click.argument("models", nargs=-1, required=True, metavar="MODEL …")
@click.option(
    "--on", "devices", multiple=True, callback=split_lists, required=True, metavar="DEVICE",
    help="The device; several are compared.",
)  # fmt: skip
@field_options(FIELDS, several={"weights"})
@click.option("--why", is_flag=True, help="Print each op with the source of its time instead of the phases.")
@click.option("--fit", is_flag=True, help="Only what fits into memory: the largest batch, context, fewest devices.")
@format_option
def command(
    models: tuple[str, ...],
    devices: tuple[str, ...],
    weights: tuple[str, ...],
    users: int | None,
    tokens_per_user: float | None,
    what_if: tuple[str, ...],
    edgeprofiler: bool,
    why: bool,
    fit: bool,
    form: str,
    **asked: Any,
) -> None:
    """Predict how fast a model will run on a device, without running anything.

    \b
    inferometer predict llama-3.2-1b --on nvidia-h200 --prompt 2048 --generate 128
    inferometer predict llama-3.1-8b --on nvidia-l4,raspberry-pi-5 --weights bf16,q4_0
    inferometer predict llama-3.1-70b --on nvidia-h200 --tp 4 --draft llama-3.2-1b --acceptance 0.8
    inferometer predict qwen3-32b --on nvidia-h100-sxm --weights f8e4m3 --users 64 --tokens-per-user 30
    inferometer predict ocr.onnx --on raspberry-pi-5 --size height=48 --size width=320
    inferometer predict resnet50 --on nvidia-t4 --batch 8 --what-if weights=i8 --what-if "memory.bandwidth*=2"
    inferometer predict llama-3.1-8b --on nvidia-l40s --runtime vllm --context 2048 --why
    inferometer predict llama-3.3-70b --on nvidia-h100-sxm --weights f8e4m3 --tp 2 --fit

    MODEL is a catalog name, a package's network (timm:resnet50), a file, or a folder with a config.json. DEVICE is a
    catalog name or a TOML file. Several models, devices or formats are compared in one table; --on and --weights may be
    repeated, or take a list with commas. The files of a folder that is no model itself are ranked, the fastest first.

    --fit: of the memory that the driver shows, a serving engine uses its share (vLLM: gpu_memory_utilization), less
    weights, a step at its limits, the process's own and captured graphs; the rest is the KV cache.
    """
    from inferometer.api import ask
    from inferometer.formats.resolve import files_in

    if edgeprofiler:
        print_edgeprofiler(models, devices, weights, asked["prompt"], form)
        return
    asked["sizes"] = parse_sizes(asked["sizes"])

    def question_of(case: Case) -> Question:
        model, device, stored = case
        return ask(model, on=device, weights=stored, **asked)

    files = tuple(file for model in models for file in files_in(model))
    cases: list[Case] = list(product(files, devices, weights or (None,)))
    if tokens_per_user is not None and users is None:
        raise DomainError(
            "--tokens-per-user is what each of the --users should see.", remedy="Say how many: --users N."
        )
    if why and (users is not None or what_if or len(cases) > 1):
        raise DomainError(
            "--why prints the ops of one prediction: one model, one device, one format, no --users and no --what-if.",
            remedy="Ask about one at a time.",
        )
    if fit:
        _print_fits([question_of(case) for case in cases], form)
        return
    if users is not None:
        _print_serving([question_of(case) for case in cases], users, tokens_per_user, form)
        return
    if len(cases) > 1 and what_if:
        raise DomainError("--what-if takes one model, one device and one format.", remedy="Ask about one at a time.")
    if len(cases) > 1:
        _print_comparison(cases, question_of, form, ranked=files != models)
    elif what_if:
        _print_gains(question_of(cases[0]), what_if, form)
    else:
        _print_prediction(question_of(cases[0]), form, why=why)


def _print_prediction(question: Question, form: str, *, why: bool) -> None:
    """The answer, and beside it what others measured under the same conditions. JSON and CSV always say why."""
    from inferometer.understand.view.predictions import prediction_rows, prediction_view

    profile = question.answer()
    if form == "csv":
        print_table(prediction_rows(profile), form)
        return
    from inferometer.predict.published import published_beside
    from inferometer.understand.view.published import beside_facts, prediction_document

    if form == "json":
        print_document(prediction_document(question, profile))
        return
    besides = published_beside(question, profile)
    facts = beside_facts(besides, model=profile.model.name, device=profile.device.name)
    view = prediction_view(profile, why=why)
    print_view(replace(view, card=replace(view.card, facts=(*view.card.facts, *facts))), form)


def _print_serving(questions: list[Question], users: int, tokens_per_user: float | None, form: str) -> None:
    """The steady state of many users; one card, or one row each where several are compared."""
    from inferometer.predict.published import served_beside
    from inferometer.predict.served.question import serving_answer
    from inferometer.understand.view.published import beside_documents, beside_facts
    from inferometer.understand.view.serving import serving_card, serving_table

    answers = [serving_answer(question, users, tokens_per_user) for question in questions]
    if form == "json":
        found = [{**answer.document(), "published": beside_documents(served_beside(answer))} for answer in answers]
        print_documents(found)
    elif len(answers) == 1 and form != "csv":
        (answer,) = answers
        card = serving_card(answer)
        facts = beside_facts(served_beside(answer), model=answer.model, device=answer.device)
        print_card(replace(card, facts=(*card.facts, *facts)), form)
    else:
        print_table(serving_table(answers), form)


_OF_MEMORY = {field.keyword or name for name, field in fields_that(door="fit").items()}


def _print_fits(questions: list[Question], form: str) -> None:
    """What each would take of the memory: one card, or a row each."""
    from inferometer.predict.fitting import memory_fit
    from inferometer.understand.view.serving import fit_card

    others = {field.keyword or name for name, field in FIELDS.items()} - _OF_MEMORY
    refuse_given(others | {"why"}, "What fits into memory does not depend on {}.", "Leave it out, or leave out --fit.")
    fits = [memory_fit(question) for question in questions]
    documents = [found.document() for found in fits]
    if form == "json":
        print_documents(documents)
    elif form == "csv" or len(fits) > 1:
        named = [{"model": each.graph.name, "device": each.device.name} for each in questions if len(fits) > 1]
        rows = tuple({**name, **row} for name, row in zip(named or [{}], documents, strict=True))
        print_table(ReportTable(columns=tuple(map(_memory_column, rows[0])), rows=rows), form)
    else:
        workload, graph = questions[0].workload, questions[0].graph
        formats = workload.precision.weights or graph.precision or ""
        plan = f"tp {workload.parallel.tp}" if workload.parallel.tp > 1 else "one device"
        title, subtitle = (
            f"{graph.name} on {questions[0].device.title}",
            f"{questions[0].runtime_name} · {formats} · {plan}",
        )
        print_card(fit_card(documents[0], title=title, subtitle=subtitle, notes=fits[0].notes), form)


def _memory_column(name: str) -> Column:
    words = name.removesuffix("_bytes").replace("_", " ")
    return Column(key=name, heading=words, label=name, unit="B" if "bytes" in name else None, exact="bytes" not in name)


def _print_comparison(
    cases: list[Case], question_of: Callable[[Case], Question], form: str, *, ranked: bool = False
) -> None:
    """One row for each case, the fastest first if `ranked`. What is impossible has the reason instead of numbers."""
    from inferometer.core.codec import document
    from inferometer.understand.view.predictions import comparison_table, summary_row

    rows: list[dict[str, Any]] = []
    documents: list[dict[str, Any]] = []
    for model, device, stored in cases:
        named = {"model": model, "device": device, "weights": stored}
        try:
            profile = question_of((model, device, stored)).answer()
        except (DomainError, FormatError) as error:
            rows.append({**named, "error": str(error)})
            documents.append({**named, "error": str(error)})
            continue
        documents.append(document(profile))
        rows.append(summary_row(profile))
    if ranked:
        order = sorted(range(len(rows)), key=lambda place: _seconds(rows[place]))
        rows, documents = [rows[place] for place in order], [documents[place] for place in order]
    if form == "json":
        print_document(documents)
    else:
        print_table(comparison_table(rows, ends=form == "csv"), form)
    if all("error" in row for row in rows):
        raise InferometerError("None of these can be predicted.")


def _seconds(row: dict[str, Any]) -> float:
    """What a row is ranked by: its pass, else its token; without either it comes last."""
    return float(row.get("latency_s") or row.get("tpot_s") or row.get("ttft_s") or inf)


def _print_gains(question: Question, changes: tuple[str, ...], form: str) -> None:
    from inferometer.api import gains
    from inferometer.understand.view.predictions import gain_table

    rows = gains(question, changes)
    if form == "json":
        print_document(rows)
        return
    print_table(gain_table(rows), form)


# `inferometer predict --edgeprofiler`: EdgeProfiler's own answer instead of ours.

_KNOWN = {"models", "devices", "weights", "prompt", "form", "edgeprofiler"}


def print_edgeprofiler(
    models: tuple[str, ...], devices: tuple[str, ...], weights: tuple[str, ...], prompt: int | None, form: str
) -> None:
    from inferometer.understand.accuracy.edgeprofiler import edgeprofiler_rows
    from inferometer.understand.view.predictions import edge_table

    others = {str(parameter.name) for parameter in click.get_current_context().command.params} - _KNOWN
    remedy = "It takes models, --on, --weights (f32, f16, i8) and --prompt; ours takes all of them."
    refuse_given(others, "EdgeProfiler has no {}.", remedy)  # its six integers have no place for more
    rows = edgeprofiler_rows(models, devices, weights, prompt)
    if form == "json":
        print_document(rows)
    else:
        print_table(edge_table(rows), form)
