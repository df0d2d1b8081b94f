"""Run a command, and complete one in a shell. Every error is printed in this one place."""

import _thread
import errno
import importlib
import keyword
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import click
from click.shell_completion import CompletionItem

from inferometer.cli import COMMANDS, front_page, old_spellings
from inferometer.cli.encoding import lead_nowhere, output_failure, write_message
from inferometer.core import notices, settings
from inferometer.core.errors import InferometerError, UnknownNameError
from inferometer.version import __version__

# Ctrl-C and SIGTERM: at whatever moment they come, a command ends, and leaves nothing half-written.

# Besides Ctrl-C: what a service manager sends, and what a terminal does whose window or connection is closed.
_ENDINGS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


def interrupted_again(unraisable: Any) -> None:
    """Python drops an exception in a callback, such as a weak reference's; Ctrl-C is meant at that moment too."""
    if unraisable.exc_type is KeyboardInterrupt:
        _thread.interrupt_main()
    else:
        sys.__unraisablehook__(unraisable)


@contextmanager
def interrupted_by_signals() -> Iterator[Callable[[], signal.Signals | None]]:
    """SIGTERM would end the process at once, with runs and files half-written and children that go on.

    It interrupts instead, as Ctrl-C does, so that whatever Ctrl-C keeps is kept; so does SIGHUP, but for whoever had it
    ignored (`nohup`). Yields which of them came.
    """
    came: signal.Signals | None = None

    def interrupt(number: int, _: FrameType | None) -> None:
        nonlocal came
        came = signal.Signals(number)
        if came is not signal.SIGTERM:
            for terminal in terminals:  # it is gone, and whatever is written there now is an error
                lead_nowhere(terminal)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    terminals = [stream for stream in (sys.stdout, sys.stderr) if stream.isatty()]
    before = {ending: signal.getsignal(ending) for ending in _ENDINGS}
    heard = [ending for ending in _ENDINGS if ending is signal.SIGTERM or before[ending] is signal.SIG_DFL]
    for ending in heard:
        signal.signal(ending, interrupt)
    try:
        yield lambda: came
    finally:
        for ending in heard:
            signal.signal(ending, before[ending])


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})  # what writing to a full disk ends with
_UNWRITTEN = "The output could not be written: {}."


class _Commands(click.Group):
    """A group whose commands are modules of the same name, imported when used."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, old_spellings.modern(args))

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if cmd_name not in COMMANDS:
            raise UnknownNameError("command", cmd_name, COMMANDS, listing="`inferometer --help` lists them.")
        module = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name.replace("-", "_")
        command: click.Command = importlib.import_module(f"inferometer.cli.commands.{module}").command
        if settings.completing():
            offer_names(command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands with their summaries, none of which is imported for it."""
        options = click.Command.shell_complete(self, ctx, incomplete)
        items = [
            CompletionItem(name, help=summary) for name, summary in COMMANDS.items() if name.startswith(incomplete)
        ]
        return [*items, *options]

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        formatter.write(front_page())


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(__version__, prog_name="inferometer")
@click.option("--debug", is_flag=True, help="Show the traceback behind an error.")
def cli(debug: bool) -> None:
    """Predict, measure and explain how fast a model runs on a device."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code: 0 for success, 1 for a failed check, 2 for an error."""
    ours, separator, theirs = _split(list(arguments))
    debug = settings.debug() or "--debug" in ours
    plain = [argument for argument in ours if argument != "--debug"] + separator + theirs
    notices.listener.set(_print_notice)
    output_failure()  # of a command before, where one process runs several
    with interrupted_by_signals() as ended_by:
        return _ended_with(plain, ended_by, debug=debug)


def _ended_with(arguments: list[str], ended_by: Callable[[], signal.Signals | None], *, debug: bool) -> int:
    try:
        result: Any = cli.main(args=arguments, prog_name="inferometer", standalone_mode=False)
    except InferometerError as error:
        return _print_error(_noted(str(error), error), error.exit_code, debug=debug)
    except click.ClickException as error:
        return _print_misuse(error, debug=debug)
    except (KeyboardInterrupt, click.Abort) as error:
        ending = ended_by()
        words = "Interrupted." if ending is None else f"Ended by {ending.name}."
        said = _noted(words, error.__cause__ or error)  # click's Abort has none of the interrupt's notes
        return _print_error(said, 128 + (ending or signal.SIGINT), debug=debug)  # as shells give it
    except (BrokenPipeError, SystemExit) as error:
        if isinstance(error, SystemExit) and error.code != 1:
            raise
        lead_nowhere(sys.stdout)  # its reader has closed it (`| head`); where click meets that first, it ends with 1
        return 0
    except OSError as error:
        if error.errno not in _FULL:
            raise
        lead_nowhere(sys.stdout)
        return _print_error(_UNWRITTEN.format(error.strerror), 2, debug=debug)
    code = result if isinstance(result, int) else 0
    reason = output_failure()
    return code if reason is None else _print_error(_UNWRITTEN.format(reason), code or 2, debug=False)


def _split(arguments: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Our arguments, the `--`, and the command that follows it, which is the user's."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at : at + 1], arguments[at + 1 :]


def _noted(message: str, error: BaseException) -> str:
    """The message with what was added on its way, such as where a measurement was saved that the store refused."""
    return "\n".join([message, *getattr(error, "__notes__", ())])


def _visible(message: str) -> str:
    from inferometer.understand.view.terminal import visible

    return visible(message)


def _print_error(message: str, code: int, *, debug: bool) -> int:
    if debug:
        import traceback

        traceback.print_exc()
    write_message(f"inferometer: {_visible(message)}\n")
    return code


def _print_misuse(error: click.ClickException, *, debug: bool) -> int:
    message = error.format_message()
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        write_message(f"{message}\n")  # a group's page, as --help prints it
        return 2
    context = error.ctx if isinstance(error, click.UsageError) else None
    usage = f"{message} `{context.command_path} --help` explains it." if context else message
    return _print_error(usage, error.exit_code if error.exit_code == 1 else 2, debug=debug)


def _print_notice(message: str) -> None:
    """On stderr, also where nobody watches: a log should say why a prediction took a second."""
    write_message(f"inferometer: {_visible(message)}\n")


# What a shell offers for a parameter: names of devices, models, runtimes, runs, formats.
#
# Which names a parameter takes follows from what it is called, which is the same in every command. A name costs a look
# into a few files: nothing is parsed, no engine and no database is imported.

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
