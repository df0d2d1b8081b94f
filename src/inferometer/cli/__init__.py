"""The command line: one file per command, loaded when it is used.

The front page (`inferometer --help`) is printed from the table below without importing anything else: people and shells
ask for it most often, so it should be instant.
"""

import sys

__all__ = ["COMMANDS", "front_page", "main"]

COMMANDS: dict[str, str] = {
    "accuracy": "Show how far predictions are from measurements, and how often their intervals hold.",
    "atlas": "Show what others have measured: published times with their sources.",
    "bench": "Measure a command, alone or in turns with another.",
    "bundle": "Measure on a device that nothing reaches: a job in one file, and the file it brings back.",
    "calibrate": "Measure what this machine reaches, so that predictions for it come true.",
    "can-i-run": "Say which quantised forms of a model fit here and how fast they are, before a download.",
    "catalog": "List links, cloud instances, grids, PUE, the memory hierarchy or number formats.",
    "compare": "Compare stored runs or saved results: faster, slower, same, or no difference shown, with the reason.",
    "completion": "Let bash, zsh or fish complete commands, and the names of devices, models and runs.",
    "demo": "Measure a real architecture on this machine, with its prediction beside it.",
    "devices": "List devices, or show one: peaks, memory, power, price, each with its source.",
    "doctor": "Check in one minute whether this machine is fit to measure on.",
    "explain": "Explain where the time of a run goes, what bounds it, and what to change.",
    "export": "Save a run as a page, Markdown, CSV, JSON, a trace, a chart or whole, or send it to a team's hub.",
    "formulas": "List performance formulas, show one, or calculate with units.",
    "hub": "Show runs, predictions and devices as web pages; let this device take jobs, or programs ask.",
    "import": "Take in another tool's results, a saved run, or what a bundle brought back.",
    "load": "Load a service with requests and measure what its users would see.",
    "models": "List models, or show the layers, work and memory of one.",
    "plan": "Find the cheapest, greenest or smallest way to serve a model within objectives.",
    "predict": "Predict how fast a model will run on a device, without running anything.",
    "prepare": "Make the file that an engine runs, proven step by step; or one in exact shapes with random weights.",
    "profile": "Measure how fast a model runs here: every layer and every token, on the real runtime.",
    "runs": "List stored runs and their projects; show, tag, watch, rename or delete them.",
    "runtimes": "List the engines that can run a model, and what each still needs.",
    "schema": "Print the JSON Schema of what `--format json` prints.",
    "simulate": "Simulate a service under load by the engine's own scheduling rules, or serve one without a GPU.",
    "sweep": "Predict every combination of models, devices, formats and sizes.",
    "traffic": "Show a trace of requests, turn another tool's into ours, or make up the calls of agents.",
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
  --help     Show this page; `inferometer COMMAND --help` explains a command.
"""


def _completing() -> bool:
    from inferometer.core.settings import completing  # a shell that completes gives no arguments

    return completing()


def main() -> None:
    """The entry point. It prints the bare front page itself and leaves everything else to click."""
    # Built in, and there at once: the module of Python around it takes its time.
    import _signal as signal  # type: ignore[import-not-found]

    interrupt = signal.getsignal(signal.SIGINT)  # a shell may have it ignored, which stays so
    at_once = signal.SIG_DFL if interrupt is signal.default_int_handler else interrupt
    signal.signal(signal.SIGINT, at_once)  # while nothing is done that may be kept, Ctrl-C ends without a traceback
    from inferometer.cli.encoding import open_closed_streams, print_readably

    open_closed_streams()
    print_readably()
    arguments = sys.argv[1:]
    if arguments in (["--help"], ["-h"]) or (not arguments and not _completing()):
        sys.exit(_print_whole(front_page()))
    from inferometer.cli.said_before import listening, mark_of, said

    mark = mark_of(arguments) if arguments else None
    text = said(mark) if mark else None
    if text is not None:
        sys.exit(_print_whole(text))
    import gc
    from contextlib import nullcontext

    from inferometer.cli.run import interrupted_again, run

    sys.unraisablehook = interrupted_again
    gc.set_threshold(100_000)  # values live as long as the command: to look for garbage among them takes a tenth of it
    with listening() if mark else nullcontext() as keep:
        signal.signal(signal.SIGINT, interrupt)
        code = run(arguments)
        signal.signal(signal.SIGINT, at_once)
        if keep and mark and code == 0:
            keep(mark)
    gc.freeze()  # at its end Python looks twice for garbage in all that was imported: a seventh of a prediction
    sys.exit(code)


def _print_whole(text: str) -> int:
    """The exit code: nobody needs to read it, but a disk that is full is told."""
    from inferometer.cli.encoding import output_failure, write_message, write_out

    write_out(text)
    reason = output_failure()
    if reason:
        write_message(f"inferometer: The output could not be written: {reason}.\n")
    return 2 if reason else 0
