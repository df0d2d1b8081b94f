"""Shells complete commands and names, quickly, and one command has them do it."""

import os
import shutil
import subprocess
import sys
import time

import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from inferometer.cli.commands.completion import command
from inferometer.cli.run import cli
from inferometer.core.profile import DeviceFacts, Headline, ModelFacts, Phase, Profile
from inferometer.core.workload import Workload
from inferometer.known import devices, models
from inferometer.known.files import names_of
from inferometer.store.store import open_store

HEAVY = {"torch", "numpy", "sqlalchemy", "onnxruntime", "openvino", "fastapi", "msgspec", "psutil"}


@pytest.fixture
def offered(monkeypatch):
    monkeypatch.setenv("_INFEROMETER_COMPLETE", "bash_complete")
    completion = BashComplete(cli, {}, "inferometer", "_INFEROMETER_COMPLETE")

    def names(*words):
        return [item.value for item in completion.get_completions(list(words[:-1]), words[-1]) if item.type == "plain"]

    return names


def test_the_names_found_without_a_parser_are_all_there_are():
    assert sorted(names_of("devices")) == sorted(devices())
    assert sorted(names_of("models")) == sorted(models())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("expl",), "explain"),
        (("predict", "llama-3.2"), "llama-3.2-1b"),
        (("predict", "llama-3.2-1b", "--on", "raspberry-pi-5"), "raspberry-pi-5"),
        (("predict", "llama-3.2-1b", "--runtime", "onnx"), "onnxruntime"),
        (("predict", "llama-3.2-1b", "--weights", "q4"), "q4_0"),
        (("sweep", "--on", "nvidia-l4,nvidia-h2"), "nvidia-l4,nvidia-h200"),
        (("profile", "mobilenet"), "mobilenet-v3-large"),
        (("profile", "resnet50", "--no-g"), "--no-guard"),
        (("devices", "show", "apple-m4"), "apple-m4-gpu"),
        (("formulas", "calc", "ring"), "ring_allreduce"),
        (("compare", "last", "last"), "last~1"),
    ],
)
def test_a_line_is_completed_by_what_may_follow(offered, words, expected):
    assert expected in offered(*words)


def test_stored_runs_are_offered_by_name_and_id(offered, tmp_path, monkeypatch):
    monkeypatch.setenv("INFEROMETER_STORE", str(tmp_path / "runs.db"))
    assert offered("explain", "") == ["last", "last~1"]
    with open_store(tmp_path / "runs.db") as store:
        run = store.add(_profile(), project="default", name="before")
    assert {"last", "before", run} <= set(offered("explain", ""))
    assert offered("export", "bef") == ["before"]


def _profile():
    return Profile(
        kind="measured",
        model=ModelFacts(name="tiny"),
        device=DeviceFacts(name="local"),
        workload=Workload(),
        phases=(Phase(name="forward", time_s=1.0),),
        summary=Headline(latency_s=1.0),
    )


def test_completing_imports_nothing_heavy(tmp_path):
    code = "import sys\nfrom inferometer.cli import main\ntry: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    environment = {
        **os.environ,  # noqa: TID251 - the child's
        "_INFEROMETER_COMPLETE": "bash_complete",
        "COMP_WORDS": "inferometer explain ",
        "COMP_CWORD": "2",
        "INFEROMETER_STORE": str(tmp_path / "runs.db"),
    }
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert "plain,last" in done.stdout
    assert {name.partition(".")[0] for name in done.stderr.split()}.isdisjoint(HEAVY)


@pytest.mark.parametrize(("shell", "start"), [("bash", ".bashrc"), ("zsh", ".zshrc"), ("fish", None)])
def test_installing_is_done_once(shell, start, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.setenv("INFEROMETER_DATA", str(tmp_path / "data"))
    if start:
        (tmp_path / start).write_text("export MINE=1\n")
    for _ in range(2):
        assert CliRunner().invoke(command, [shell, "--install"], catch_exceptions=False).exit_code == 0
    if start:
        lines = (tmp_path / start).read_text().splitlines()
        assert lines[0] == "export MINE=1"
        assert len(lines) == 2
        assert "_INFEROMETER_COMPLETE" in (tmp_path / "data" / f"completion.{shell}").read_text()
    else:
        assert (tmp_path / ".config" / "fish" / "completions" / "inferometer.fish").is_file()


@pytest.mark.skipif(shutil.which("bash") is None or sys.platform == "win32", reason="needs bash")
def test_bash_itself_completes_a_device(tmp_path):
    shim = tmp_path / "inferometer"
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m inferometer "$@"\n')
    shim.chmod(0o755)
    script = CliRunner().invoke(command, ["bash"]).output
    asked = "COMP_WORDS=(inferometer predict x --on nvidia-h200); COMP_CWORD=4; compopt() { :; }"
    lines = [script, asked, "_inferometer_completion inferometer", 'printf "%s\\n" "${COMPREPLY[@]}"']
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}  # noqa: TID251 - the child's
    done = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, text=True, env=environment, check=True)
    assert "nvidia-h200-nvl" in done.stdout.split()


@pytest.fixture
def at_home(tmp_path, monkeypatch):
    """A home of its own where a completion is installed and `inferometer` is on the path; gives its environment."""
    (tmp_path / "bin").mkdir()
    shim = tmp_path / "bin" / "inferometer"
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m inferometer "$@"\n')
    shim.chmod(0o755)
    for name, value in {"HOME": tmp_path, "ZDOTDIR": tmp_path, "INFEROMETER_DATA": tmp_path / "data"}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{shim.parent}:{os.environ['PATH']}")  # noqa: TID251 - the child's

    def install(shell):
        assert CliRunner().invoke(command, [shell, "--install"], catch_exceptions=False).exit_code == 0

    return install


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_fish_itself_completes_commands_and_devices(at_home):
    at_home("fish")
    asked = 'complete -C "inferometer expl"; complete -C "inferometer predict x --on nvidia-h200"'
    done = subprocess.run(["fish", "-c", asked], capture_output=True, text=True, check=True)
    offered = [line.split("\t")[0] for line in done.stdout.splitlines()]
    assert {"explain", "nvidia-h200-nvl"} <= set(offered), done


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh")
def test_zsh_itself_completes_a_device_at_its_prompt(at_home):
    at_home("zsh")
    screen = typed(["zsh", "-i"], "inferometer predict x --on nvidia-h200-n\t", until="nvidia-h200-nvl")
    assert "nvidia-h200-nvl" in screen


def typed(shell, keys, until, seconds=240):
    """What a terminal shows after these keys, as far as the text that is waited for."""
    import pty
    import select

    child, terminal = pty.fork()
    if child == 0:
        os.execvp(shell[0], shell)  # noqa: S606 - a shell, by its name
    shown, sent, ends = "", False, time.monotonic() + seconds
    while until not in shown and time.monotonic() < ends:
        ready, _, _ = select.select([terminal], [], [], 1.0)
        if ready:
            shown += os.read(terminal, 65536).decode(errors="replace")
        elif shown and not sent:  # it has said what it says at its start, and waits
            sent = bool(os.write(terminal, keys.encode()))
    os.close(terminal)
    os.waitpid(child, 0)
    return shown


def test_a_shell_that_is_not_known_is_told_what_to_do(monkeypatch):
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    done = CliRunner().invoke(command, [])
    assert "tcsh" in str(done.exception)
