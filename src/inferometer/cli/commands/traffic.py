"""`inferometer traffic`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.options import (
    RATE,
    SEED,
    SHARE,
    TOKENS,
    OutputFile,
    Whole,
    format_option,
    print_card,
    print_document,
    say,
)

if TYPE_CHECKING:
    from inferometer.core.traffic.traces import RequestTrace

_LENGTHS = "Tokens, in the forms of `load`: 400, lognormal:400,500."


def _agent_options(function: click.decorators.FC) -> click.decorators.FC:
    option = click.option
    for made in reversed((
        option("--agents", type=Whole(1, 1_000_000), help="Make up the calls of N agents, instead of a file."),
        option("--rate", type=RATE, metavar="R", help="Agents that begin a second.  [default: 0.1]"),
        option("--system", type=Whole(0, 1 << 27), help="Tokens that all begin with.  [default: 3000]"),
        option("--task", metavar="LENGTH", help=_LENGTHS),
        option("--calls", metavar="LENGTH", help="Calls of an agent.  [default: lognormal:12,10]"),
        option("--answer", metavar="LENGTH", help="Tokens of an answer.  [default: lognormal:180,200]"),
        option("--result", metavar="LENGTH", help="Tokens that a tool finds.  [default: lognormal:700,1200]"),
        option("--tool-time", "tool_s", metavar="SECONDS", help="Until it has.  [default: lognormal:3,6]"),
        option("--delegated", type=SHARE, metavar="SHARE", help="Calls after which sub-agents work.  [default: 0.05]"),
        option("--context", type=TOKENS, help="Tokens that a talk may hold.  [default: 128000]"),
        option("--seed", type=SEED, help="The same seed makes the same agents."),
    )):  # fmt: skip
        function = made(function)
    return function


@click.command("traffic")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@_agent_options
@click.option("-o", "--out", type=OutputFile(), metavar="FILE", help="Write it as JSON lines, in our own form.")
@format_option
def command(file: Path | None, out: Path | None, form: str, **options: Any) -> None:
    """Show a trace of requests, turn another tool's into ours, or make up the calls of agents.

    \b
    inferometer traffic mooncake_conversation.jsonl.gz
    inferometer traffic sharegpt.json -o talks.jsonl
    inferometer traffic --agents 200 --rate 0.5 --calls lognormal:20,15 -o agents.jsonl

    `load`, `simulate` and `plan` take the same file as --trace. Turns of a conversation wait for each other's answers,
    conversations do not. docs/load.md has the form, and the tools whose traces are read.
    """
    trace = _trace(file, options)
    if out is not None:
        from inferometer.core.cache import write_asked_for
        from inferometer.core.traffic.traces import written_trace

        write_asked_for(out, ["\n".join([*written_trace(trace), ""]).encode()])
        say(f"Saved {out}.")
    if form == "json":
        from inferometer.core.traffic.traces import trace_document

        print_document(trace_document(trace))
    else:
        from inferometer.understand.view.load_tests import trace_card

        print_card(trace_card(trace), form)


def _trace(file: Path | None, options: dict[str, Any]) -> RequestTrace:
    from inferometer.core.traffic.demand import Agents, made_up
    from inferometer.core.traffic.lengths import parse_lengths
    from inferometer.core.traffic.traces import read_trace

    given = {name: value for name, value in options.items() if value is not None}
    if (file is None) == ("agents" not in given):
        raise click.UsageError("Name a file, or say how many agents to make up: --agents 100.")
    if file is not None:
        if given:
            raise click.UsageError(f"--{min(given).replace('_', '-')} is for --agents, and {file} is as it is.")
        return read_trace(file)
    lengths: dict[str, Any] = {
        name: parse_lengths(given.pop(name), column="input_tokens")
        for name in ("task", "calls", "answer", "result", "tool_s")
        if name in given
    }
    sessions, rate = given.pop("agents"), {"rate_per_s": given.pop("rate")} if "rate" in given else {}
    known: dict[str, Any] = {**rate, **given, **lengths}
    return made_up(Agents(sessions=sessions, **known))
