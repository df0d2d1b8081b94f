"""`inferometer predict`."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.options import format_option, print_card, print_document, print_table, print_text, say
from inferometer.errors import DomainError, InferometerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from inferometer.asking.question import Question
    from inferometer.core.profile import Profile
    from inferometer.cost.options import EnergyCosts, Speculative

Case = tuple[str, str, str | None]  # a model, a device, the format of the weights


@click.command("predict")
@click.argument("models", nargs=-1, required=True, metavar="MODEL …")
@click.option("--on", "devices", multiple=True, required=True, metavar="DEVICE", help="Several may be given.")
@click.option("--runtime", metavar="NAME", help="Whose overheads to count.  [default: by the kind of device]")
@click.option("--weights", multiple=True, metavar="FORMAT", help="Several may be given.  [default: the model's]")
@click.option("--activations", metavar="FORMAT")
@click.option("--kv", metavar="FORMAT")
@click.option("--batch", default=1, show_default=True, metavar="N")
@click.option("--prompt", type=int, metavar="N")
@click.option("--generate", type=int, metavar="N")
@click.option("--context", type=int, metavar="N", help="One decode step with N tokens in the cache.")
@click.option("--image", type=int, metavar="N")
@click.option("--tp", default=1, metavar="N", help="Devices that share each layer.")
@click.option("--pp", default=1, metavar="N", help="Devices that share the layers.")
@click.option("--ep", default=1, metavar="N", help="Devices that share the experts.")
@click.option("--dp", default=1, metavar="N", help="Replicas.")
@click.option("--priors", is_flag=True, help="Without the calibration of the device, where there is one.")
@click.option("--chunk", type=int, metavar="N", help="Read the prompt in pieces of N tokens.")
@click.option("--cached-prefix", default=0, metavar="N", help="Tokens of the prompt that are in the cache already.")
@click.option("--draft", metavar="MODEL", help="Speculative decoding: the model that proposes tokens.")
@click.option("--draft-length", default=4, show_default=True, metavar="N", help="Tokens it proposes at a time.")
@click.option("--acceptance", default=0.7, show_default=True, metavar="P", help="Share of them that is accepted.")
@click.option("--prefill-on", metavar="DEVICE", help="Read the prompt on another device and send the cache over.")
@click.option("--link", metavar="NAME", help="Between devices, as `inferometer devices show` names links.")
@click.option("--joules-per-flop", metavar="J", help="Count energy by the operation, not by power: 1pJ.")
@click.option("--joules-per-byte", metavar="J", help="The same for a byte moved: 20pJ.")
@click.option("--battery", metavar="ENERGY", help="How long a battery lasts: 15Wh.")
@click.option("--per-second", default=1.0, show_default=True, metavar="R", help="Requests a second, for --battery.")
@click.option("--what-if", "changes", multiple=True, metavar="CHANGE", help="weights=q4_0, memory.bandwidth*=2, …")
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

    MODEL is a name of the catalog, a file or a folder with a config.json; DEVICE a name of the catalog or a TOML file.
    Several models, devices or formats print a comparison.
    """
    from inferometer.catalog import link as link_named
    from inferometer.cost.options import Battery, Options
    from inferometer.units import parse_quantity
    from inferometer.verbs import ask

    options = Options(
        chunk=chunk,
        cached_prefix=cached_prefix,
        speculative=_speculative(draft, draft_length, acceptance),
        energy=_energy(joules_per_flop, joules_per_byte),
        battery=None if battery is None else Battery(capacity_j=parse_quantity(battery, "J"), per_s=per_second),
        link=None if link is None else link_named(link),
    )

    def put(case: Case) -> Question:
        model, device, stored = case
        return ask(
            model, on=device, runtime=runtime, weights=stored, activations=activations, kv=kv, batch=batch,
            prompt=prompt, generate=generate, context=context, image=image, tp=tp, pp=pp, ep=ep, dp=dp,
            calibrated=not priors, prefill_on=prefill_on, options=options,
        )  # fmt: skip

    cases: list[Case] = list(product(models, devices, weights or (None,)))
    if len(cases) > 1 and changes:
        raise DomainError("--what-if takes one model, one device and one format.")
    if len(cases) > 1:
        _compare(cases, put, form)
    elif changes:
        _what_if(put(cases[0]), changes, form)
    else:
        _show(put(cases[0]).answer(), form)


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
        raise DomainError("Energy by the operation needs both prices.", remedy="Give --joules-per-flop and -byte.")
    from inferometer.cost.options import EnergyCosts
    from inferometer.units import parse_quantity

    return EnergyCosts(joules_per_flop=parse_quantity(per_flop, "J"), joules_per_byte=parse_quantity(per_byte, "J"))


def _show(profile: Profile, form: str) -> None:
    if form == "json":
        from inferometer.core.codec import document

        print_document(document(profile))
        return
    from inferometer.report.predictions import op_table, phase_table, prediction_card

    if form == "csv":
        print_table(op_table(profile, most=None), form)
        return
    print_card(prediction_card(profile), form)
    print_text("")
    print_table(phase_table(profile), form)
    print_text("")
    print_table(op_table(profile), form)


def _compare(cases: list[Case], put: Callable[[Case], Question], form: str) -> None:
    """Each case by itself: one that cannot be is a row that says why."""
    from inferometer.core.codec import document
    from inferometer.report.predictions import comparison_table, summary_row

    rows: list[dict[str, Any]] = []
    documents: list[dict[str, Any]] = []
    for model, device, stored in cases:
        named = {"model": model, "device": device, "weights": stored}
        try:
            profile = put((model, device, stored)).answer()
        except DomainError as error:
            rows.append({**named, "error": str(error)})
            documents.append({**named, "error": str(error)})
            continue
        documents.append(document(profile))
        rows.append(summary_row(profile))
    if form == "json":
        print_document(documents)
    else:
        print_table(comparison_table(rows), form)
    if all("error" in row for row in rows):
        raise InferometerError("None of these can be predicted.")


def _what_if(question: Question, changes: tuple[str, ...], form: str) -> None:
    from inferometer.report.predictions import gain_table
    from inferometer.verbs import gains

    rows = gains(question, changes)
    if form == "json":
        print_document(rows)
        return
    if form == "table":
        say("Times are of a decode step, or of the forward pass.")
    print_table(gain_table(rows), form)
