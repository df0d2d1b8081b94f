"""`inferometer demo`."""

import click

from inferometer.cli.options import print_text

__all__ = ["command"]

_MODEL = "llama-3.2-1b"
_CASES = (("nvidia-h200", "bf16"), ("nvidia-jetson-orin-nano-super", "bf16"), ("raspberry-pi-5", "q4_0"))


@click.command("demo")
def command() -> None:
    """Show what Inferometer knows: this machine, a device, a prediction, a formula."""
    from inferometer.report.demo import demo_page
    from inferometer.verbs import predict

    profiles = [predict(_MODEL, on=device, prompt=512, generate=128, weights=weights) for device, weights in _CASES]
    print_text(demo_page(profiles))
