"""`inferometer completion`."""

from pathlib import Path

import click

from inferometer.cli.options import print_data, say
from inferometer.core.errors import DomainError, InferometerError
from inferometer.core.settings import data_folder, login_shell

_SHELLS = ("bash", "zsh", "fish")
_MARK = "# inferometer completion"
# zsh completes only after compinit; many a .zshrc calls it, and a second call is cheap.
_START = {"zsh": "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }\n"}


@click.command("completion")
@click.argument("shell", type=click.Choice(_SHELLS), required=False)
@click.option("--install", is_flag=True, help="Write the script where the shell looks for it, and have it loaded.")
def command(shell: str | None, install: bool) -> None:
    """Let a shell complete commands, options, and the names of devices, models, runtimes, formats and stored runs.

    \b
    inferometer completion --install          # for your login shell
    inferometer completion fish --install
    inferometer completion bash               # prints the script

    For bash and zsh, --install writes the script into the data folder and adds one line to .bashrc or .zshrc, once.
    For fish it writes ~/.config/fish/completions/inferometer.fish. Open a new shell afterwards.
    """
    chosen = shell or _login_shell()
    from click.shell_completion import get_completion_class

    from inferometer.cli.run import cli

    made = get_completion_class(chosen)
    if made is None:
        raise DomainError(f"{chosen} cannot be completed.")
    script = _START.get(chosen, "") + made(cli, {}, "inferometer", "_INFEROMETER_COMPLETE").source().strip()
    if not install:
        print_data(script)
        return
    for line in _install(chosen, script):
        say(line)


def _login_shell() -> str:
    shell = login_shell()
    if shell not in _SHELLS:
        raise DomainError(
            f"Your shell is {shell or 'not known'}, and bash, zsh and fish can be completed.",
            remedy="Name one: `inferometer completion bash --install`.",
        )
    return shell


def _install(shell: str, script: str) -> list[str]:
    """Write the script, and the line that loads it; says what was done."""
    home = Path.home()
    if shell == "fish":
        path = home / ".config" / "fish" / "completions" / "inferometer.fish"
        _write(path, f"{script}\n")
        return [f"Wrote {path}. New fish shells complete inferometer."]
    path, start = data_folder() / f"completion.{shell}", home / f".{shell}rc"
    _write(path, f"{script}\n")
    line = f'[ -r "{path}" ] && . "{path}"  {_MARK}'
    known = start.read_text(encoding="utf-8", errors="replace") if start.is_file() else ""
    if line in known.splitlines():
        return [f"Wrote {path}; {start} loads it already. New {shell} shells complete inferometer."]
    kept = [text for text in known.splitlines() if not text.endswith(_MARK)]  # one of another data folder
    _write(start, "\n".join([*kept, line]) + "\n")
    return [f"Wrote {path}, and a line into {start} that loads it. New {shell} shells complete inferometer."]


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InferometerError(
            f"{path} cannot be written: {error.strerror or error}.",
            remedy="Print the script instead, with `inferometer completion SHELL`, and load it yourself.",
        ) from None
