"""`inferometer can-i-run`."""

import click

from inferometer.cli.options import Whole, format_option, print_card, print_document, print_table, print_text


@click.command("can-i-run")
@click.argument("model", metavar="MODEL")
@click.option("--on", "device", default="local", metavar="DEVICE,…", help="The device; several GPUs share the layers.")
@click.option("--host", metavar="DEVICE", help="The CPU beside a GPU, for what does not fit.  [default: local's own]")
@click.option("--runtime", metavar="NAME", help="The engine.  [default: llamacpp, where the device has it]")
@click.option("--context", type=Whole(2, 1 << 27), help="Tokens to have room for.  [default: 4096]")
@format_option
def command(model: str, device: str, host: str | None, runtime: str | None, context: int | None, form: str) -> None:
    """Say which quantised forms of a language model fit here, and how fast each is, before anything is downloaded.

    \b
    inferometer can-i-run llama-3.1-8b
    inferometer can-i-run meta-llama/Llama-3.1-70B-Instruct --on nvidia-rtx-4090 --host amd-ryzen-ai-9-365-cpu
    inferometer can-i-run qwen3-30b-a3b --on nvidia-rtx-4060-ti --context 16384
    inferometer can-i-run llama-3.3-70b --on nvidia-rtx-4090,nvidia-rtx-3060

    MODEL is a catalog name, the id or address under which it is published, or a folder with a config.json. For a form
    that does not fit into a GPU, the flags of llama.cpp place experts, then layers, on the CPU beside it; with --host
    the speed of that is predicted too. Over several GPUs, equal or not, the split that takes the least time is searched
    for (--tensor-split, in the order of --on). Tokens/s are of one conversation, after a prompt of 512 tokens.
    """
    from inferometer.predict.placing import can_i_run
    from inferometer.understand.view.serving import runnable_card, runnable_table

    answer = can_i_run(model, on=device, host=host, runtime=runtime, context=context)
    if form == "json":
        print_document(answer.document())
        return
    if form == "table":
        print_card(runnable_card(answer), form)
        print_text("")
    print_table(runnable_table(answer), form)
