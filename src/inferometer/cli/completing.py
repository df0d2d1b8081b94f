"""What a shell offers for a parameter: names of devices, models, runtimes, runs, formats.

Which names a parameter takes follows from what it is called, which is the same in every command. A name costs a look
into a few files: nothing is parsed, no engine and no database is imported.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from inferometer.core.errors import InferometerError

Names = Callable[[click.Context], Iterable[str]]
_MOST = 400  # more than that nobody reads, and a shell would ask first


def _catalog(kind: str) -> Names:
    def names(_: click.Context) -> list[str]:
        from inferometer.known.files import names_of

        return names_of(kind)

    return names


def _devices(context: click.Context) -> list[str]:
    return ["local", *_catalog("devices")(context)]


def _runtimes(context: click.Context) -> list[str]:
    from inferometer.core.plugins import listed

    return [*_catalog("engines")(context), *(plugin.name for plugin in listed("inferometer.runtimes"))]


def _runs(context: click.Context) -> list[str]:
    from inferometer.store.glance import run_names

    return ["last", "last~1", *run_names(context.params.get("store"))]


def _projects(context: click.Context) -> list[str]:
    from inferometer.store.glance import project_names

    return project_names(context.params.get("store"))


def _formulas(_: click.Context) -> list[str]:
    from inferometer.known.formulas.registry import all_formulas

    return list(all_formulas())


_MODELS, _DTYPES = _catalog("models"), _catalog("dtypes")
# By the long name of an option, and by the name of an argument; `command name` where a name alone does not say it.
_OPTIONS: Mapping[str, Names] = {
    "--on": _devices, "--device": _devices, "--prefill-on": _devices,
    "--runtime": _runtimes, "--for": _runtimes,
    "--model": _MODELS, "--models": _MODELS, "--draft": _MODELS,
    "--weights": _DTYPES, "--activations": _DTYPES, "--kv": _DTYPES,
    "--project": _projects, "--link": _catalog("links"), "--instance": _catalog("instances"),
    "--grid": _catalog("grids"), "--pue": _catalog("pue"),
}  # fmt: skip
_ARGUMENTS: Mapping[str, Names] = {
    "model": _MODELS, "models": _MODELS, "run": _runs, "runs": _runs, "results": _runs, "what": _runs,
    "devices name": _devices, "formulas name": _formulas, "projects name": _projects,
}  # fmt: skip
_FILES = {"model", "models", "run", "results", "what", "--on", "--device"}  # which may be a file, too


def offer_names(command: click.Command, group: str | None = None) -> None:
    """Let each parameter of a command, or of a group's commands, offer the names that it takes."""
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            offer_names(inner, group or command.name)
    for parameter in command.params:
        key = _key(parameter, group)
        names = _OPTIONS.get(key) or _ARGUMENTS.get(key)
        if names is not None:
            setattr(parameter, "shell_complete", _completion(names, files=key in _FILES))  # noqa: B010 - a method of one instance


def _key(parameter: click.Parameter, group: str | None) -> str:
    if isinstance(parameter, click.Option):
        return next((name for name in parameter.opts if name.startswith("--")), "")
    qualified = f"{group} {parameter.name}"
    return qualified if qualified in _ARGUMENTS else str(parameter.name)


def _completion(names: Names, *, files: bool) -> Callable[[click.Context, str], list[CompletionItem]]:
    def complete(context: click.Context, incomplete: str) -> list[CompletionItem]:
        begun, comma, last = incomplete.rpartition(",")  # `--on a,b`
        try:
            found = [name for name in dict.fromkeys(names(context)) if name.startswith(last)][:_MOST]
        except InferometerError:
            found = []  # a broken catalog is told by the command, not in the middle of a line
        # A file comes first: click's scripts then fall back to files where no name fits.
        first: list[Any] = [CompletionItem(incomplete, type="file")] if files else []
        return [*first, *(CompletionItem(f"{begun}{comma}{name}") for name in found)]

    return complete
