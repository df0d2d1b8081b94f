"""Every command prints something readable, whatever the encoding of its output."""

import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import inferometer
from inferometer.cli import COMMANDS
from inferometer.cli.encoding import _readable, is_unicode, print_readably
from inferometer.cli.run import run

ENCODINGS = ("ascii", "latin-1", "cp1252", "cp437", "utf-8")
ANSWERS = {
    "predict": ("predict", "resnet50", "--on", "nvidia-t4"),
    "devices": ("devices", "show", "nvidia-h200"),
    "formulas": ("formulas", "show", "kv_bytes_per_token"),
    "error": ("predict", "resnet50", "--on", "nvidia-x200"),
    "sweep": ("sweep", "--models", "resnet50", "--on", "nvidia-t4,nvidia-l4"),
}


def said(encoding, *words):
    variables = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}  # noqa: TID251 - the child's own
    ran = subprocess.run([sys.executable, *words], capture_output=True, env=variables, check=False)
    return ran.returncode, ran.stdout.decode(encoding), ran.stderr.decode(encoding)


@pytest.fixture
def said_here(monkeypatch):
    """As `said`, in this process, whose output then has that encoding: starting one takes longer than to answer."""

    def said_here(encoding, *words):
        written = {name: io.BytesIO() for name in ("stdout", "stderr")}
        with monkeypatch.context() as patch:
            for name, held in written.items():
                patch.setattr(sys, name, io.TextIOWrapper(held, encoding=encoding))
            print_readably()
            code = run(words)
            for name in written:
                getattr(sys, name).flush()
            return code, *(held.getvalue().decode(encoding) for held in written.values())

    return said_here


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_answers_errors_and_help_print_in_every_encoding(encoding, said_here):
    lines = [*ANSWERS.values(), *((command, "--help") for command in COMMANDS)]
    for line in lines:
        code, out, err = said_here(encoding, *line)
        assert code == (2 if line == ANSWERS["error"] else 0), err
        assert "?" not in out.replace("hub:any?unit", "").replace("(?P<", ""), "a sign that nothing stands for"
        assert ("Did you mean" in err) == (line == ANSWERS["error"])


def test_the_front_page_prints_in_ascii():
    code, out, err = said("ascii", "-m", "inferometer", "--help")
    assert (code, err) == (0, "")
    assert "COMMAND [ARGS]..." in out


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_json_is_the_same_document_in_every_encoding(encoding, said_here):
    documents = [
        json.loads(said_here(each, *ANSWERS["predict"], "--format", "json")[1]) for each in (encoding, "utf-8")
    ]
    for document in documents:
        document["provenance"].pop("created")
    assert documents[0] == documents[1]


def test_every_sign_that_we_print_has_one_that_stands_for_it():
    """Those of the source, its tables and its rows, but for bytes of tokenisers and makers' marks."""
    folder = Path(inferometer.__file__).parent
    texts = (path.read_text(encoding="utf-8") for ending in ("py", "toml") for path in folder.rglob(f"*.{ending}"))
    signs = {sign for text in texts for sign in text if not sign.isascii()}
    assert {sign for sign in signs if _readable(sign) == "?"} <= {"¡", "®", "©"}


def test_an_encoding_nobody_knows_is_not_unicode():
    assert is_unicode("UTF-8")
    assert is_unicode("utf_8_sig")
    assert not is_unicode("no-such-encoding")
    assert not is_unicode(None)


LOST = {">&-": 0, "> /dev/full": 2, "| true": 0}  # where output goes, and what a command that went well ends with


def typed(words, lost, tmp_path):
    """Our command with its output lost, as typed into a shell: what it ended with, and what it said."""
    if "/dev/full" in lost and not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    command = shlex.join([sys.executable, "-m", "inferometer", *words])
    line = f"{{ {command} {lost if '|' not in lost else ''}; echo $? >code; }} {lost if '|' in lost else ''}"
    ran = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, cwd=tmp_path, check=False)
    return int((tmp_path / "code").read_text()), ran.stderr


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("words", [["--help"], ["devices"], ["--version"]])
def test_output_that_cannot_be_written_is_no_traceback(words, lost, tmp_path):
    code, err = typed(words, lost, tmp_path)
    assert code == LOST[lost]
    assert err == ("inferometer: The output could not be written: No space left on device.\n" if code else "")


@pytest.mark.parametrize("lost", LOST)
def test_a_run_whose_output_is_lost_is_stored_as_it_went(lost, tmp_path, said_here):
    measured = [
        "bench",
        "--runs",
        "2",
        "--warmup",
        "0",
        "--no-guard",
        "--store",
        "runs.db",
        "--",
        sys.executable,
        "-c",
        "",
    ]
    code, err = typed(measured, lost, tmp_path)
    assert (code, "Traceback" in err) == (LOST[lost], False)
    _, out, _ = said_here("utf-8", "runs", "--store", str(tmp_path / "runs.db"), "--format", "json")
    assert [run["status"] for run in json.loads(out)] == ["finished"]
