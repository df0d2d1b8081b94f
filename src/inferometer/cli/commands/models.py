"""`inferometer models`."""

from typing import Any

import click

from inferometer.cli.options import (
    ListingGroup,
    field_options,
    format_option,
    print_card,
    print_document,
    print_table,
    print_text,
    where_option,
)
from inferometer.predict.fields import fields_that
from inferometer.predict.flags import parse_sizes


@click.group("models", cls=ListingGroup, invoke_without_command=True)
@where_option
@format_option
@click.pass_context
def command(context: click.Context, where: tuple[str, ...], form: str) -> None:
    """List models, or show one.

    \b
    inferometer models --where family=llama
    inferometer models --where "parameters<=2e9"
    inferometer models --where family=timm
    inferometer models show llama-3.2-1b

    The catalog's models are listed, and with --where family=timm (torchvision, ncnn, openvino) the networks of that
    package, or of that benchmark, whose graphs come with Inferometer: `timm:resnet50`. Other networks of timm and
    torchvision, and other sizes of image, need the package itself.

    Fields for --where: name, title, family, year, parameters, active, context, layers, hidden.
    """
    if context.invoked_subcommand is not None:
        return
    from inferometer.formats.networks.shipped import network_records
    from inferometer.known import models
    from inferometer.known.where import matching
    from inferometer.known.zoo import PREFIXES
    from inferometer.understand.view.listings import model_table
    from inferometer.understand.view.records import MODEL_FIELDS, model_record

    listed = list(map(model_record, models().values()))
    if any(prefix.rstrip(":") in condition for prefix in PREFIXES for condition in where):
        listed += [{**dict.fromkeys(MODEL_FIELDS), **record} for record in network_records()]
    records = matching(listed, where, MODEL_FIELDS)
    print_table(model_table(records), form)


@command.command("show")
@click.argument("model")
@field_options(fields_that(door="models"))
@format_option
def show(model: str, sizes: tuple[str, ...], form: str, **asked: Any) -> None:
    """Show a model's layers: what each holds, computes and moves.

    No weights are loaded. Of a file that leaves sizes open, the parameters and the open sizes are shown, and the work
    once they are given. MODEL is a catalog name, a package's network (timm:resnet50, or timm:resnet50@288 for images of
    288 pixels), a file (.onnx, .ort, .gguf, .tflite, .safetensors, .pt2, OpenVINO's .xml, ncnn's .param, .mnn, .pte),
    or a folder with a config.json.

    \b
    inferometer models show llama-3.1-8b --batch 8 --prompt 1 --context 4096
    inferometer models show model.onnx --size sequence=128
    """
    from inferometer.core.sizes import bind, with_given_sizes
    from inferometer.core.workload import Precision, Workload
    from inferometer.formats.resolve import published_parameters, read
    from inferometer.predict.memory.inventory import inventory
    from inferometer.understand.view.listings import inventory_card, inventory_document, layer_table

    precision = Precision(**{name: asked.pop(name) for name in fields_that("format")})
    graph, workload = read(model, image=asked["image"]), Workload(**asked, precision=precision)
    workload, rest = with_given_sizes(graph, workload, parse_sizes(sizes))
    binding = bind(graph, workload, rest, complete=False)
    counted = inventory(graph, binding)
    if form == "json":
        print_document(inventory_document(counted, binding.precision))
        return
    if form == "table":
        print_card(inventory_card(counted, published=published_parameters(model)), form)
        print_text("")
    print_table(layer_table(counted), form)
