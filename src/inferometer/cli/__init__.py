"""The command line: one file a command, loaded when it is used.

The front page (`inferometer --help`) is printed from the table below without importing anything else: it is what people
and shells ask for most often, and it should be instant.
"""

import sys

__all__ = ["COMMANDS", "front_page", "main"]

COMMANDS: dict[str, str] = {
    "accuracy": "Show how far predictions are from what was measured, and how often their intervals hold.",
    "bench": "Measure a command line, alone or in turns with another.",
    "calibrate": "Measure what this machine reaches, so that its predictions become true.",
    "compare": "Compare saved results: faster, slower, same, or undecided, with the reason.",
    "demo": "Show the main job: a real architecture measured here, with its prediction beside it.",
    "devices": "List devices, or show one: peaks, memory, power, price, each with its source.",
    "doctor": "Check in one minute whether this machine is fit to measure on.",
    "explain": "Say where the time of a run goes, what bounds it, and what to change.",
    "export": "Write a run as a page, Markdown, CSV, JSON, a trace or a drawing.",
    "formulas": "List the field's formulas, show one, or calculate with units.",
    "hub": "Serve the runs as web pages on this machine.",
    "import": "Turn another tool's result into a profile.",
    "models": "List models, or show one's layers, work, memory and coverage.",
    "predict": "Predict how fast a model will run on a device, without running anything.",
    "profile": "Measure how fast a model runs here: every layer, every token, on the real runtime.",
    "projects": "List the projects that runs stand under; create, rename or delete one.",
    "runs": "List the runs that were kept; show, tag, delete, export or import them.",
    "runtimes": "List the engines that can run a model, and what is missing for each.",
    "sweep": "Predict every combination of models, devices, formats and sizes.",
    "synth": "Make a runnable model file with random weights at the exact shapes.",
    "verify": "Check that a runtime, a format or a file gives the same outputs as a reference.",
}


def front_page() -> str:
    from inferometer.version import __version__

    width = max(map(len, COMMANDS)) + 2
    lines = "\n".join(f"  {name:<{width}}{summary}" for name, summary in COMMANDS.items())
    return f"""Usage: inferometer [--debug] COMMAND [ARGS]…

Inferometer {__version__}: predict, measure and explain how fast a model runs on a device.

Commands:
{lines}

Options:
  --debug    Show the traceback behind an error.
  --version  Show the version.
  --help     Show this page; `inferometer COMMAND --help` shows a command's.
"""


def main() -> None:
    """The entry point. Only the bare front page is answered here; everything else is click's."""
    from inferometer.cli.encoding import print_readably

    print_readably()
    arguments = sys.argv[1:]
    if arguments in ([], ["--help"], ["-h"]):
        sys.stdout.write(front_page())
        return
    from inferometer.cli.run import run

    sys.exit(run(arguments))
