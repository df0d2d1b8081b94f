"""Words that commands had before. They go on working, and one line on stderr says what they are called now."""

from __future__ import annotations

from inferometer.cli.encoding import write_message
from inferometer.core.settings import completing

_COMPUTE, _TOKENS = {"--precision": "--activations"}, {"--input": "--prompt", "--output": "--generate"}
# The first word of a command, and what each of its options is called now.
_OPTIONS: dict[str, dict[str, str]] = {
    "bench": {"--output": "--out"},
    "bundle": _COMPUTE,
    "plan": _TOKENS,
    "profile": _COMPUTE,
    "runs": {"--output": "--out"},
    "simulate": _TOKENS,
    "sweep": {"--devices": "--on", "--runtimes": "--runtime"},
    "verify": {**_COMPUTE, "--against": "--verify"},
}
# Commands that are part of another one now; they are in no list, and do what they did.
MOVED = {
    "agent": "hub agent", "mcp": "hub mcp", "projects": "runs projects", "watch": "runs watch",
    "mock": "simulate --serve", "push": "export --send", "synth": "prepare",
    "fit": "predict --fit", "verify": "profile --outputs-only",
}  # fmt: skip


def modern(arguments: list[str]) -> list[str]:
    """The command line with options as they are called now; what follows `--` is the user's own."""
    words = _OPTIONS.get(arguments[0], {}) if arguments else {}
    if arguments and (now := MOVED.get(arguments[0])):
        advise(arguments[0], now)
        arguments = [*now.split(), *arguments[1:]]
        words = {**_OPTIONS.get(arguments[0], {}), **words}
    end = arguments.index("--") if "--" in arguments else len(arguments)
    found = []
    for argument in arguments[:end]:
        name, equals, value = argument.partition("=")
        if name in words:
            advise(name, words[name])
        found.append(f"{words.get(name, name)}{equals}{value}")
    return [*found, *arguments[end:]]


def advise(old: str, new: str) -> None:
    if not completing():  # a shell that completes would print it into the line
        write_message(f"inferometer: {old} is called {new} now.\n")
