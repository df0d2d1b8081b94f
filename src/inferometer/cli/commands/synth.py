"""`inferometer synth`."""

from pathlib import Path

import click

from inferometer.cli.options import SEED, OutputFile, format_option, print_document, print_table
from inferometer.predict.flags import parse_sizes


@click.command("synth")
@click.argument("model")
@click.option(
    "-o",
    "--out",
    type=OutputFile(folders=True),
    required=True,
    metavar="FILE",
    help="A .onnx, .gguf, .tflite or .safetensors file, or a folder.",
)
@click.option("--weights", default="f32", metavar="FORMAT", help="Number format: f16, bf16, q8_0, q4_0, q4_k …")
@click.option("--seed", type=SEED, default=0, help="The same seed gives the same weights.")
@click.option("--size", "sizes", multiple=True, metavar="NAME=N", help="Fix a size that the file would leave open.")
@click.option("--part", metavar="NAME", help="Only this part of a model that has several, such as encoder.")
@click.option("--overwrite", is_flag=True, help="Overwrite an existing file.")
@format_option
def command(
    model: str,
    out: Path,
    weights: str,
    seed: int,
    sizes: tuple[str, ...],
    part: str | None,
    overwrite: bool,
    form: str,
) -> None:
    """Make a runnable model file with random weights in the exact shapes.

    \b
    inferometer synth resnet50 -o resnet50.onnx
    inferometer synth mobilenet-v2 -o mobilenet.tflite
    inferometer synth llama-3.2-1b -o llama.gguf --weights q4_0
    inferometer synth whisper-small -o encoder.onnx --part encoder

    MODEL is a catalog name, a folder with a config.json, or a model file. The new file has the model's shapes, size and
    speed; its outputs are noise.
    """
    from inferometer.formats.synth import synthesise
    from inferometer.understand.view.listings import synthesis_table

    synthesis = synthesise(
        model, out, weights=weights, seed=seed, sizes=parse_sizes(sizes), part=part, overwrite=overwrite
    )
    if form == "json":
        print_document(
            {
                "path": str(synthesis.path),
                "paths": [str(path) for path in synthesis.paths],
                "format": synthesis.format,
                "weights": synthesis.weights,
                "bytes": synthesis.nbytes,
                "parameters": synthesis.parameters,
                "seed": synthesis.seed,
                "note": synthesis.note,
            }
        )
    else:
        print_table(synthesis_table(synthesis), form)
