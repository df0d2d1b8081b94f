"""`inferometer predict`."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from inferometer.cli.options import (
    format_option,
    print_card,
    print_document,
    print_profiles,
    print_table,
    print_text,
    say,
)
from inferometer.errors import DomainError, InferometerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from inferometer.asking.question import Question
    from inferometer.core.profile import Profile
    from inferometer.cost.options import EnergyCosts, Speculative

Case = tuple[str, str, str | None]  # a model, a device, the format of the weights


@click.command("predict")
@click.argument("models", nargs=-1, required=True, metavar="MODEL …")
@click.option("--on", "devices", multiple=True, required=True, metavar="DEVICE", help="The device; may be repeated.")
@click.option("--runtime", metavar="NAME", help="The engine.  [default: depends on the model and device]")
@click.option(
    "--weights", multiple=True, metavar="FORMAT", help="Of the weights; may be repeated.  [default: the model's]"
)
@click.option("--activations", metavar="FORMAT", help="Of the activations.  [default: the model's]")
@click.option("--kv", metavar="FORMAT", help="Of the KV cache.  [default: the activations']")
@click.option("--batch", default=1, metavar="N", help="Inputs or sequences at once.")
@click.option("--prompt", type=int, metavar="N", help="Prompt length in tokens.  [default: 512]")
@click.option("--generate", type=int, metavar="N", help="Tokens to generate.  [default: 128]")
@click.option("--context", type=int, metavar="N", help="Predict a single decode step with N tokens in the cache.")
@click.option("--image", type=int, metavar="N", help="Side of the input image, in pixels.  [default: the model's]")
@click.option("--tp", default=1, metavar="N", help="Tensor parallelism: devices that share each layer.")
@click.option("--pp", default=1, metavar="N", help="Pipeline parallelism: devices that split the layers.")
@click.option("--ep", default=1, metavar="N", help="Expert parallelism: devices that split the experts.")
@click.option("--dp", default=1, metavar="N", help="Data parallelism: replicas of the model.")
@click.option("--priors", is_flag=True, help="Ignore calibrations: use the datasheet and class priors.")
@click.option("--chunk", type=int, metavar="N", help="Chunked prefill: read the prompt N tokens at a time.")
@click.option("--cached-prefix", default=0, metavar="N", help="Prompt tokens already in the cache.")
@click.option("--draft", metavar="MODEL", help="Speculative decoding: the model that drafts tokens.")
@click.option("--draft-length", default=4, metavar="N", help="Tokens drafted at a time.")
@click.option("--acceptance", default=0.7, metavar="P", help="Probability that a drafted token is accepted.")
@click.option("--prefill-on", metavar="DEVICE", help="Read the prompt on another device, which sends its cache over.")
@click.option("--link", metavar="NAME", help="The link between devices, by its catalog name.")
@click.option("--joules-per-flop", metavar="J", help="Count energy by the operation, such as 1pJ.")
@click.option("--joules-per-byte", metavar="J", help="Energy of a byte moved, such as 20pJ.")
@click.option("--battery", metavar="ENERGY", help="Predict how long this battery lasts, such as 15Wh.")
@click.option("--per-second", default=1.0, metavar="R", help="Requests per second, for --battery.")
@click.option("--what-if", "changes", multiple=True, metavar="CHANGE", help="What a change would gain: weights=i4 …")
@format_option
def command(
    models: tuple[str, ...],
    devices: tuple[str, ...],
    runtime: str | None,
    weights: tuple[str, ...],
    activations: str | None,
    kv: str | None,
    batch: int,
    prompt: int | None,
    generate: int | None,
    context: int | None,
    image: int | None,
    tp: int,
    pp: int,
    ep: int,
    dp: int,
    priors: bool,
    chunk: int | None,
    cached_prefix: int,
    draft: str | None,
    draft_length: int,
    acceptance: float,
    prefill_on: str | None,
    link: str | None,
    joules_per_flop: str | None,
    joules_per_byte: str | None,
    battery: str | None,
    per_second: float,
    changes: tuple[str, ...],
    form: str,
) -> None:
    """Predict how fast a model will run on a device, without running anything.

    \b
    inferometer predict llama-3.2-1b --on nvidia-h200 --prompt 2048 --generate 128
    inferometer predict llama-3.1-8b --on nvidia-l4 --on raspberry-pi-5 --weights bf16 --weights q4_0
    inferometer predict llama-3.1-70b --on nvidia-h200 --tp 4 --draft llama-3.2-1b --acceptance 0.8
    inferometer predict resnet50 --on nvidia-t4 --batch 8 --what-if weights=i8 --what-if "memory.bandwidth*=2"

    MODEL is a catalog name, a file, or a folder with a config.json. DEVICE is a catalog name or a TOML file. Several
    models, devices or formats are compared in one table.
    """
    from inferometer.catalog import link as link_named
    from inferometer.cost.options import Battery, Options
    from inferometer.units import parse_quantity
    from inferometer.verbs import ask

    _require_companions(click.get_current_context())
    options = Options(
        chunk=chunk,
        cached_prefix=cached_prefix,
        speculative=_speculative(draft, draft_length, acceptance),
        energy=_energy(joules_per_flop, joules_per_byte),
        battery=None if battery is None else Battery(capacity_j=parse_quantity(battery, "J"), per_s=per_second),
        link=None if link is None else link_named(link),
    )

    def question_of(case: Case) -> Question:
        model, device, stored = case
        return ask(
            model, on=device, runtime=runtime, weights=stored, activations=activations, kv=kv, batch=batch,
            prompt=prompt, generate=generate, context=context, image=image, tp=tp, pp=pp, ep=ep, dp=dp,
            calibrated=not priors, prefill_on=prefill_on, options=options,
        )  # fmt: skip

    cases: list[Case] = list(product(models, devices, weights or (None,)))
    if len(cases) > 1 and changes:
        raise DomainError("--what-if takes one model, one device and one format.", remedy="Ask about one at a time.")
    if len(cases) > 1:
        _print_comparison(cases, question_of, form)
    elif changes:
        _print_gains(question_of(cases[0]), changes, form)
    else:
        _print_prediction(question_of(cases[0]).answer(), form)


_COMPANIONS = {  # an option, and those of which one has to be given with it: without them it would be ignored
    "draft_length": ("draft",), "acceptance": ("draft",), "per_second": ("battery",),
    "link": ("tp", "pp", "ep", "dp", "prefill_on"),
}  # fmt: skip


def _require_companions(context: click.Context) -> None:
    given = {name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    for name, others in _COMPANIONS.items():
        if name in given and given.isdisjoint(others):
            option, wanted = (name.replace("_", "-"), [f"--{other.replace('_', '-')}" for other in others])
            raise DomainError(
                f"--{option} changes nothing without {' or '.join(wanted)}.", remedy="Add it, or leave it out."
            )


def _speculative(draft: str | None, length: int, acceptance: float) -> Speculative | None:
    if draft is None:
        return None
    from inferometer.asking.ask import model_graph
    from inferometer.cost.options import Speculative

    return Speculative(draft=model_graph(draft), length=length, acceptance=acceptance)


def _energy(per_flop: str | None, per_byte: str | None) -> EnergyCosts | None:
    if per_flop is None and per_byte is None:
        return None
    if per_flop is None or per_byte is None:
        raise DomainError("--joules-per-flop and --joules-per-byte go together.", remedy="Give both.")
    from inferometer.cost.options import EnergyCosts
    from inferometer.units import parse_quantity

    return EnergyCosts(joules_per_flop=parse_quantity(per_flop, "J"), joules_per_byte=parse_quantity(per_byte, "J"))


def _print_prediction(profile: Profile, form: str) -> None:
    if form == "json":
        print_profiles([profile])
        return
    from inferometer.report.predictions import op_table, phase_table, prediction_card, prediction_rows

    if form == "csv":
        print_table(prediction_rows(profile), form)
        return
    print_card(prediction_card(profile), form)
    print_text("")
    print_table(phase_table(profile), form)
    print_text("")
    print_table(op_table(profile), form)


def _print_comparison(cases: list[Case], question_of: Callable[[Case], Question], form: str) -> None:
    """One row for each case; a case that is impossible has the reason instead of numbers."""
    from inferometer.core.codec import document
    from inferometer.report.predictions import comparison_table, summary_row

    rows: list[dict[str, Any]] = []
    documents: list[dict[str, Any]] = []
    for model, device, stored in cases:
        named = {"model": model, "device": device, "weights": stored}
        try:
            profile = question_of((model, device, stored)).answer()
        except DomainError as error:
            rows.append({**named, "error": str(error)})
            documents.append({**named, "error": str(error)})
            continue
        documents.append(document(profile))
        rows.append(summary_row(profile))
    if form == "json":
        print_document(documents)
    else:
        print_table(comparison_table(rows, ends=form == "csv"), form)
    if all("error" in row for row in rows):
        raise InferometerError("None of these can be predicted.")


def _print_gains(question: Question, changes: tuple[str, ...], form: str) -> None:
    from inferometer.report.predictions import gain_table
    from inferometer.verbs import gains

    rows = gains(question, changes)
    if form == "json":
        print_document(rows)
        return
    if form == "table":
        say("Times are for one decode step, or for the forward pass.")
    print_table(gain_table(rows), form)
