"""`inferometer fit`."""

from __future__ import annotations

from typing import Any

import click

from inferometer.cli.options import field_options, format_option, print_card, print_document, print_table
from inferometer.predict.fields import fields_that
from inferometer.predict.flags import parse_sizes


@click.command("fit")
@click.argument("model", metavar="MODEL")
@click.option("--on", "device", required=True, metavar="DEVICE", help="The device.")
@field_options(fields_that(door="fit"))
@format_option
def command(model: str, device: str, form: str, **asked: Any) -> None:
    """Say what fits into a device's memory: the largest batch, the longest context, the fewest devices.

    \b
    inferometer fit llama-3.3-70b --on nvidia-h100-sxm --weights f8e4m3 --tp 2
    inferometer fit llama-3.1-8b --on nvidia-l4 --batch 64 --prompt 1024

    Of the memory that the driver shows, a serving engine uses its share (vLLM: gpu_memory_utilization), less weights, a
    step at its limits, the process's own and captured graphs; the rest is the KV cache.
    """
    from inferometer.api import ask
    from inferometer.predict.fitting import memory_fit
    from inferometer.understand.view.serving import fit_card
    from inferometer.understand.view.table import Column, ReportTable

    asked["sizes"] = parse_sizes(asked["sizes"])
    question = ask(model, on=device, **asked)
    found = memory_fit(question)
    if form == "json":
        print_document(found.document())
    elif form == "csv":
        row = found.document()
        print_table(ReportTable(columns=tuple(Column(key=key, heading=key) for key in row), rows=(row,)), form)
    else:
        workload = question.workload
        formats = workload.precision.weights or question.graph.precision or ""
        plan = f"tp {workload.parallel.tp}" if workload.parallel.tp > 1 else "one device"
        title = f"{question.graph.name} on {question.device.title}"
        subtitle = f"{question.runtime_name} · {formats} · {plan}"
        print_card(fit_card(found.document(), title=title, subtitle=subtitle, notes=found.notes), form)
