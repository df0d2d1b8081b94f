"""The commands as a user runs them: what they say in this process; streams, signals and environments in their own."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import click
import pytest

from inferometer.cli import COMMANDS, front_page
from inferometer.cli.commands import demo
from inferometer.cli.options import require_writable
from inferometer.cli.run import cli
from inferometer.core.errors import InferometerError
from inferometer.measure.bench.plan import Plan
from inferometer.measure.run import model as measuring


def inferometer(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "inferometer", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=240,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **environment},  # noqa: TID251 - a child needs PATH
    )


def test_the_front_page_needs_no_arguments():
    for arguments in ([], ["--help"], ["-h"]):
        result = inferometer(*arguments)
        assert result.returncode == 0
        assert result.stdout == front_page()
    assert inferometer("--debug", "--help").stdout.rstrip("\n") == front_page().rstrip("\n")


@pytest.mark.slow
def test_the_demo_measures_and_predicts(answered, monkeypatch, own_data):
    pytest.importorskip("onnxruntime")
    plan = Plan(runs=3, seconds=0.0, warmup=1)
    monkeypatch.setattr(measuring, "MeasureRequest", partial(measuring.MeasureRequest, plan=plan))
    monkeypatch.setattr(demo, "_MEASURED", "squeezenet1.1")  # nothing else of it depends on the model
    result = answered("demo", "--no-guard")
    assert result.returncode == 0, result.stderr
    assert re.search(r"latency .* median of \d+", result.stdout)
    assert re.search(r"Bound by (compute|memory)", result.stdout)
    for words in ("measured", "unattributed", "nvidia-h200"):
        assert words in result.stdout
    assert "squeezenet1.1 on onnxruntime" in result.stderr


def _every_command(group, path=()):
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from _every_command(command, (*path, name))


WRITTEN = {"-o", "--out", "--output", "--save-against", "--drawing", "--trace", "--chart"}
FILES = [
    ((*path, option.opts[0]), option)
    for path, command in _every_command(cli)
    for option in command.params
    # `export --chart` names a chart, `--output 128` a number of tokens, and some traces are files to read
    if WRITTEN & set(option.opts) and option.metavar not in {"NAME", "LENGTH"} and "Replay" not in (option.help or "")
]


@pytest.mark.parametrize(("path", "option"), FILES, ids=lambda part: " ".join(part) if isinstance(part, tuple) else "")
def test_the_place_of_every_output_is_tried_before_anything_is_done(path, option, tmp_path):
    (tmp_path / "a file").touch()
    for place, why in ((tmp_path / "a file" / "x.json", "is a file, and not a folder"), ("/dev/null", "not a file")):
        if Path(place).exists() or why != "not a file":
            with pytest.raises(InferometerError, match=why):
                option.type.convert(str(place), option, None)
    if not option.type.there:
        assert option.type.convert(str(tmp_path / "new" / "x.json"), option, None) == tmp_path / "new" / "x.json"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a file"]


def test_a_folder_is_no_file_and_a_folder_that_takes_nothing_is_told(tmp_path, monkeypatch):
    def read_only(**_):
        raise OSError(30, "Read-only file system")

    with pytest.raises(InferometerError, match="is a folder"):
        require_writable(tmp_path)
    require_writable(tmp_path, folders=True)
    monkeypatch.setattr("tempfile.TemporaryFile", read_only)
    with pytest.raises(InferometerError, match=r"cannot be written: Read-only file system\. Choose another"):
        require_writable(tmp_path / "x.json")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_that_begins_as_the_front_page_says(answered, command):
    result = answered(command, "--help")
    assert result.returncode == 0
    assert result.stdout.startswith(f"Usage: inferometer {command}")


def test_the_version_is_the_packages():
    from inferometer import __version__

    assert inferometer("--version").stdout.strip() == f"inferometer, version {__version__}"


def test_ring_allreduce_with_units(answered):
    result = answered("formulas", "calc", "ring_allreduce", "n=8", "bytes=1GB", "bandwidth=50GB/s", "latency=5us")
    assert result.returncode == 0
    assert result.stdout.startswith("0.03507 s")


def test_a_device_as_json_has_a_source_for_every_number(answered):
    result = answered("devices", "show", "nvidia-h200", "--format", "json")
    document = json.loads(result.stdout)
    assert document["schema"] == "inferometer.device/1"
    assert document["name"] == "nvidia-h200"
    assert document["memories"][0]["bandwidth_bytes_per_s"]["value"] == 4.8e12
    for peak in document["peaks"].values():
        assert peak["value"] > 0
        assert peak["source"]
        assert peak["date"]
        assert peak["origin"] == "datasheet"


@pytest.mark.installed  # as runtimes and doctor are
@pytest.mark.parametrize("form", ["table", "json", "csv", "md"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("devices",),
        ("devices", "show", "raspberry-pi-5"),
        ("models",),
        ("models", "show", "llama-3.2-1b"),
        ("formulas",),
        ("formulas", "show", "ring_allreduce"),
        ("formulas", "calc", "clock_period", "frequency=3.2GHz,1GHz"),
        ("runtimes",),
        ("doctor", "--interval", "50ms"),
        ("predict", "llama-3.2-1b", "--on", "nvidia-h200"),
        ("predict", "resnet50", "--on", "nvidia-t4", "--batch", "8"),
        ("predict", "llama-3.2-1b", "--on", "nvidia-h200", "--on", "nvidia-l4", "--weights", "q4_0"),
        ("predict", "llama-3.2-1b", "--on", "nvidia-h200", "--what-if", "weights=q4_0", "--what-if", "batch=8"),
    ],
    ids=" ".join,
)
def test_every_answer_has_every_form(answered, arguments, form):
    result = answered(*arguments, "--format", form)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()
    if form == "json":
        json.loads(result.stdout)


@pytest.mark.parametrize(
    ("arguments", "found", "do"),
    [
        (("devices", "show", "nvidia-h2000"), "no device named 'nvidia-h2000'", "nvidia-h200"),
        (("devices", "show", "rasberry-pi-5"), "no device named 'rasberry-pi-5'", "raspberry-pi-5"),
        (("devices", "shwo"), "no devices subcommand named 'shwo'", "show"),
        (("devices", "--where", "memry>=8GB"), "no field named 'memry'", "memory"),
        (("devices", "--where", "memory>=8GBs"), "'8GBs' cannot be read", "Accepted"),
        (("devices", "--where", "memory>=80"), "'80' has no unit", "Accepted: '24 GiB'"),
        (
            ("predict", "resnet50", "--on", "H100"),
            "no device named 'H100'",
            "In the catalog that is nvidia-h100-sxm",
        ),
        (
            ("predict", "resnet50", "--on", "nvidia-t4", "--per-second", "3"),
            "has no battery in its row",
            "--battery",
        ),
        (
            ("predict", "resnet50", "--on", "nvidia-t4", "--acceptance", "0.5"),
            "are of a draft, and none is given",
            "--draft",
        ),
        (
            ("predict", "resnet50", "--on", "nvidia-t4", "--link", "infiniband-ndr"),
            "Nothing crosses a link",
            "tp, pp, ep",
        ),
        (("accuracy", "--runtime", "torch-compil"), "no runtime with measured cases", "torch-compile"),
        (("devices", "--format", "xml"), "'xml' is not one of", "--help"),
        (("devices", "show"), "Missing argument", "--help"),
        (("devices", "show", "nowhere.toml"), "nowhere.toml: cannot be read", "No such file"),
        (("models", "show", "llama-3.2-1bb"), "no model named 'llama-3.2-1bb'", "llama-3.2-1b"),
        (("formulas", "--section", "lmm"), "no section named 'lmm'", "llm"),
        (("formulas", "show", "ring_alreduce"), "no formula named", "ring_allreduce"),
        (("formulas", "calc", "ring_allreduce", "n=8"), "bytes, bandwidth", "ring_allreduce("),
        (("formulas", "calc", "ring_allreduce", "n"), "'n' is not an assignment", "KEY=VALUE"),
        (("formulas", "calc", "clock_period", "frequency=1GHz", "frequency=2GHz"), "given twice", "1GHz"),
        (("formulas", "calc", "clock_period", "frequency=0"), "greater than 0", "clock_period"),
        (("formulas", "calc", "clock_period", "frequency=3 Ghz"), "'3 Ghz' cannot be read", "Accepted"),
        (("models", "show", "llama-3.2-1b", "--size", "x"), "'x' is not a size", "NAME=N"),
        (("models", "show", "nowhere.onnx"), "no file or folder", "Check the path"),
        (("predict", "llama-3.2-1b"), "Missing option '--on'", "--help"),
        (("predict", "llama-3.2-1b", "--on", "nvidia-h2000"), "no device named", "nvidia-h200"),
        (("predict", "llama-3.2-1b", "--on", "nvidia-h200", "--batch", "0"), "batch must be", "1 or more"),
        (("predict", "llama-3.2-1b", "--on", "nvidia-h200", "--runtime", "onnx"), "onnx", "onnxruntime"),
        (("frobnicate",), "no command named 'frobnicate'", "--help"),
        (("device",), "no command named 'device'", "devices"),
        (("--frob", "devices"), "No such option", "--help"),
    ],
    ids=lambda part: part if isinstance(part, str) else " ".join(part),
)
def test_a_mistake_is_one_sentence_on_stderr_and_exit_2(answered, arguments, found, do):
    result = answered(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("inferometer: ")
    assert found in result.stderr
    assert do in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_debug_shows_the_traceback():
    for result in (
        inferometer("--debug", "devices", "show", "nvidia-h2000"),
        inferometer("devices", "show", "nvidia-h2000", INFEROMETER_DEBUG="1"),
    ):
        assert result.returncode == 2
        assert "Traceback" in result.stderr
        assert "no device named" in result.stderr


def test_a_malformed_row_of_the_users_is_told_with_its_place(tmp_path):
    (tmp_path / "mine.toml").write_text(
        '[devices.box]\ntitle = "Box"\nvendor = "V"\nunit = "gpu"\npeaks = { f32 = "1 TF" }\n'
    )
    result = inferometer("devices", INFEROMETER_CATALOG=str(tmp_path))
    assert result.returncode == 2
    assert result.stderr.startswith("inferometer: mine.toml: devices.box.peaks.f32: ")


def test_words_in_a_pipe_are_plain():
    assert "\x1b" not in inferometer("devices").stdout


@pytest.mark.parametrize("line", ["--help", "devices --format csv", "devices --help", "formulas"])
def test_a_pipe_that_nobody_reads_any_more_is_no_error(line):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "inferometer", *line.split()]
    result = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=240, check=False)
    os.close(writer)
    assert (result.returncode, result.stderr) == (0, "")


def test_the_prediction_document_is_the_contracts(answered):
    result = answered(
        "predict", "llama-3.2-1b", "--on", "nvidia-h200", "--runtime", "torch-compile", "--prompt", "2048",
        "--generate", "128", "--format", "json",
    )  # fmt: skip
    document = json.loads(result.stdout)
    assert document["schema"] == "inferometer.profile/1"
    assert document["kind"] == "predicted"
    assert document["model"]["parameters"] == document["model"]["active_parameters"] == 1_235_814_400
    assert document["model"]["weight_bytes"] == 2_471_628_800
    assert document["model"]["kv_bytes_per_token"] == 32_768
    assert document["device"]["name"] == "nvidia-h200"
    assert document["runtime"] == "torch-compile"
    assert {key: document["workload"][key] for key in ("batch", "prompt", "generate", "context")} == {
        "batch": 1, "prompt": 2048, "generate": 128, "context": None,
    }  # fmt: skip
    assert document["precision"] == {"weights": "bf16", "activations": "bf16", "kv": "bf16"}
    phases = {phase["name"]: phase for phase in document["phases"]}
    assert {"load", "prefill", "decode"} <= set(phases)
    for name in ("prefill", "decode"):
        phase = phases[name]
        assert phase["floor_s"] <= phase["low_s"] <= phase["time_s"] <= phase["high_s"]
        total = sum(op["time_s"] for op in phase["ops"]) + (phase["unattributed_s"] or 0)
        assert total == pytest.approx(phase["time_s"], rel=1e-6)
        for op in phase["ops"]:
            assert {"name", "kind", "block", "count", "unit", "time_s", "flops", "bytes", "bound", "origin"} <= set(op)
            assert op["time_s"] >= op["floor_s"]
    assert {"ttft_s", "tpot_s", "e2e_s", "tokens_per_s", "peak_memory_bytes", "fits", "top_unit"} <= set(
        document["summary"]
    )


def test_a_prediction_as_csv_has_its_headline_and_plain_numbers(answered):
    printed = answered("predict", "llama-3.2-1b", "--on", "nvidia-h200", "--format", "csv").stdout
    rows = list(csv.DictReader(printed.splitlines()))
    document = json.loads(answered("predict", "llama-3.2-1b", "--on", "nvidia-h200", "--format", "json").stdout)
    headline = {row["name"]: row for row in rows if row["part"] == "headline"}
    for name in ("ttft_s", "tpot_s", "tokens_per_s", "peak_memory_bytes"):
        assert float(headline[name]["value"]) == document["summary"][name]
    assert float(headline["tpot_s"]["low"]) == document["summary"]["tpot_low_s"]
    assert {row["phase"] for row in rows if row["part"] == "op"} == {"prefill", "decode"}
    shares = [float(row["share"]) for row in rows if row["part"] == "op" and row["phase"] == "decode"]
    decode = next(phase for phase in document["phases"] if phase["name"] == "decode")
    in_ops = sum(op["time_s"] for op in decode["ops"]) / decode["time_s"]
    assert sum(shares) == pytest.approx(in_ops, rel=1e-3)  # the rest is the engine's own, between its steps


def test_filters_keep_what_they_say(answered):
    result = answered("devices", "--where", "unit=gpu", "--where", "memory>=141GB", "--format", "json")
    devices = json.loads(result.stdout)
    assert {"nvidia-h200"} <= {device["name"] for device in devices}
    assert all(device["unit"] == "gpu" and device["memory_bytes"] >= 141e9 for device in devices)


def test_an_answer_nobody_fits_is_empty_not_an_error(answered):
    result = answered("devices", "--where", "memory>=1EB", "--format", "json")
    assert (result.returncode, json.loads(result.stdout)) == (0, [])


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_ctrl_c_is_said_in_a_word():
    process = subprocess.Popen(
        [sys.executable, "-m", "inferometer", "doctor", "--interval", "30s"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "30 s" in process.stderr.readline()  # it is watching now
    process.send_signal(signal.SIGINT)
    _, words = process.communicate(timeout=240)
    # A shell shows 130 for both: Python ends by the signal itself where that came while a string was executed.
    assert process.returncode in {130, -signal.SIGINT}
    assert words.strip().endswith("Interrupted.")
    assert "Traceback" not in words
