"""`inferometer sweep` as a user runs it: files, questions, a Ctrl-C, a kill, and a Dask cluster."""

import csv
import importlib.util
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest

from inferometer import plan, predict, sweep
from inferometer.cli.commands.sweep import _write
from inferometer.predict.sweep import engines, read_rows

HAS_DASK = importlib.util.find_spec("distributed") is not None
HAS_CHARTS = importlib.util.find_spec("vl_convert") is not None
ASKED = (
    "--models", "llama-3.2-1b,llama-3.1-8b", "--on", "nvidia-h200,nvidia-l4", "--weights", "bf16,q4_0",
    "--batch", "1-4*2", "--prompt", "128", "--context", "1024,200000", "--runtime", "ideal",
)  # fmt: skip
# 32,768 rows a device: two chunks.
LONG = (
    "--models", "llama-3.2-1b", "--on", "nvidia-h200,nvidia-l4,nvidia-a100-80gb", "--batch", "1-8",
    "--prompt", "1-64", "--context", "1-64",
)  # fmt: skip
# The command, which waits when its first chunk is kept, until it is interrupted or killed.
WAITING = """
import sys, threading
from inferometer.cli import main
from inferometer.predict.sweep.write import Journal

def kept(journal, add=Journal.add, **chunk):
    add(journal, **chunk)
    print("kept", flush=True)
    threading.Event().wait()

if __name__ == "__main__":
    Journal.add = kept
    main()
"""


def command(*arguments):
    return [sys.executable, "-m", "inferometer", "sweep", *map(str, arguments)]


@pytest.fixture
def inferometer(answered):
    return lambda *arguments: answered("sweep", *map(str, arguments))


def test_a_sweep_prints_its_rows(inferometer):
    result = inferometer(*ASKED, "--rows", "3")
    assert result.returncode == 0, result.stderr
    assert "each token" in result.stdout
    assert "window of 131072 tokens" in result.stdout
    assert "45 more rows" in result.stdout
    said = [
        line for line in result.stderr.splitlines() if "reading the measured kernels" not in line
    ]  # once, then kept
    assert not said


def test_rows_as_json_and_csv_are_all_of_them(inferometer):
    rows = json.loads(inferometer(*ASKED, "--format", "json").stdout)
    lines = [*csv.DictReader(inferometer(*ASKED, "--format", "csv").stdout.splitlines())]
    assert len(rows) == len(lines) == 48
    assert rows[0]["tpot_s"] == float(lines[0]["tpot_s"])
    assert rows[1]["tpot_s"] is None
    asked = {"weights": "bf16", "batch": 1, "prompt": 128, "context": 1024}
    for given, calibrated in (((), True), (("--priors",), False)):
        row = json.loads(inferometer(*ASKED, *given, "--format", "json").stdout)[0]
        found = predict("llama-3.2-1b", on="nvidia-h200", runtime="ideal", **asked, calibrated=calibrated).summary
        assert row["tpot_s"] == pytest.approx(found.tpot_s, rel=1e-12)
        assert row["ttft_s"] == pytest.approx(found.ttft_s, rel=1e-12)


def test_details_are_columns_that_are_asked_for(inferometer):
    rows = json.loads(inferometer(*ASKED, "--details", "--format", "json").stdout)
    assert rows[0]["tpot_low_s"] < rows[0]["tpot_s"] < rows[0]["tpot_high_s"]
    assert rows[0]["decode_bound"] == "memory"
    shown = inferometer(*ASKED, "--details", "--rows", "1").stdout
    assert "bound by" in shown
    found = inferometer(*ASKED, "--cheapest", "tpot_high_s<=20ms", "--format", "json")  # asks for them by itself
    assert json.loads(found.stdout)[0]["tpot_high_s"] <= 0.02


def test_a_spec_is_a_sweep_and_options_stand_above_it(inferometer, tmp_path):
    spec = tmp_path / "grid.toml"
    spec.write_text('models = ["llama-3.2-1b"]\ndevices = ["nvidia-h200"]\nbatch = "1-8*2"\ncontext = [128]\n')
    assert len(json.loads(inferometer(spec, "--format", "json").stdout)) == 4
    assert len(json.loads(inferometer(spec, "--batch", "1,2", "--format", "json").stdout)) == 2
    priors = json.loads(inferometer(spec, "--priors", "--format", "json").stdout)
    spec.write_text(f"priors = true\n{spec.read_text()}")
    assert json.loads(inferometer(spec, "--format", "json").stdout) == priors


def test_rows_go_to_a_file_and_are_asked_about_later(inferometer, tmp_path):
    path = tmp_path / "rows.csv"
    result = inferometer(*ASKED, "--out", path)
    assert result.returncode == 0
    assert result.stdout == ""
    assert "Wrote 48 rows" in result.stderr
    assert "24 of them are impossible" in result.stderr
    assert [*tmp_path.iterdir()] == [path]
    front = json.loads(inferometer(path, "--pareto", "tpot_s,usd_per_million_tokens", "--format", "json").stdout)
    times = [row["tpot_s"] for row in front]
    assert times == sorted(times)
    cheapest = inferometer(path, "--cheapest", "tpot_s<=20ms", "--format", "json")
    assert json.loads(cheapest.stdout)[0]["tpot_s"] <= 0.02
    shown = inferometer(path, "--rows", "2")
    assert "46 more rows" in shown.stdout


def test_a_file_may_be_sqlite(inferometer, tmp_path):
    path = tmp_path / "rows.sqlite"
    assert inferometer(*ASKED, "--out", path, "--pareto", "tpot_s,energy_j").returncode == 0
    assert len(read_rows(path)) == 48


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--models", "llama-3.2-1b"), "needs devices"),
        (("--models", "llama-3.2-1c", "--on", "nvidia-h200"), "Did you mean llama-3.2-1b"),
        (("--models", "llama-3.2-1b", "--on", "nvidia-h201"), "no device named"),
        (("--models", "llama-3.2-1b", "--on", "nvidia-h200", "--batch", "4-1"), "does not rise"),
        (("--models", "llama-3.2-1b", "--on", "nvidia-h200", "--batch", ","), "list of batch is empty"),
        (("--models", "llama-3.2-1b", "--on", "nvidia-h200", "--weights", "q4_zero"), "number format"),
        (("--models", "llama-3.2-1b", "--on", "nvidia-h200", "--runtime", "torch-compiled"), "no runtime named"),
        ((*ASKED, "--pareto", "tpott_s"), "Did you mean tpot_s"),
        ((*ASKED, "--cheapest", "tpot_s"), "cannot be read"),
        ((*ASKED, "--cheapest", "tpot_s<1ns"), "No row that fits into memory meets"),
        ((*ASKED, "--engine", "spark"), "no engine"),
        ((*ASKED, "--out", "rows.txt"), "does not say what to write"),
        ((*ASKED, "--resume"), "--resume needs --out"),
        ((*ASKED, "--chart", "x.json"), "Add --pareto"),
        ((*ASKED, "--chart", "x.gif", "--pareto", "tpot_s,energy_j"), "does not say what to draw"),
        ((*ASKED, "--heatmap", "batch,context,tpot_s"), "Add --chart"),
        (("missing.toml",), "cannot be read"),
        (("missing.csv",), "no file"),
    ],
)
def test_what_cannot_be_is_said_and_exits_with_2(inferometer, arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = inferometer(*arguments)
    assert result.returncode == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert [*tmp_path.iterdir()] == []


def test_a_spec_with_an_unknown_key_suggests(inferometer, tmp_path):
    spec = tmp_path / "grid.toml"
    spec.write_text('models = ["llama-3.2-1b"]\ndevice = ["nvidia-h200"]\n')
    result = inferometer(spec)
    assert result.returncode == 2
    assert "Did you mean devices" in result.stderr


@pytest.fixture
def waiting(tmp_path_factory):
    """The command in a process of its own, which has kept a chunk and waits."""
    script = tmp_path_factory.mktemp("waiting") / "script.py"
    script.write_text(WAITING, encoding="utf-8")

    @contextmanager
    def waiting(*arguments):
        words = [sys.executable, script, "sweep", *map(str, arguments)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(words, **pipes, start_new_session=True) as child:
            assert child.stdout.readline() == "kept\n", child.stderr.read()
            yield child

    return waiting


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise there")
@pytest.mark.parametrize("engine", ["local", "local:2"])
def test_ctrl_c_keeps_what_was_written_and_says_how_to_go_on(inferometer, waiting, tmp_path, engine):
    path = tmp_path / "rows.csv"
    with waiting(*LONG, "--out", path, "--engine", engine) as child:
        os.killpg(child.pid, signal.SIGINT)  # a terminal tells every process of the group
        words = child.stderr.read()
    assert child.returncode == 130
    assert "--resume" in words
    assert "Traceback" not in words
    assert not path.exists()
    result = inferometer(*LONG, "--out", path, "--resume")
    assert result.returncode == 0, result.stderr
    assert "of them from an earlier run" in result.stderr
    with path.open(encoding="utf-8") as file:
        assert sum(1 for _ in file) == 1 + 3 * 8 * 64 * 64
    assert [*tmp_path.iterdir()] == [path]


def test_ctrl_c_before_a_row_was_kept_promises_none(monkeypatch, tmp_path, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("inferometer.predict.sweep.stream", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _write(None, tmp_path / "rows.csv", "local", resume=False)
    assert "begins again" in (words := capsys.readouterr().err)
    assert "--resume" not in words


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="it has no such terminals")
def test_a_terminal_sees_how_far_it_is_and_a_pipe_does_not(tmp_path):
    import pty

    master, slave = pty.openpty()
    child = subprocess.Popen(command(*LONG, "--out", tmp_path / "rows.csv"), stderr=slave)
    os.close(slave)
    seen = b""
    with child:
        try:
            while data := os.read(master, 4096):
                seen += data
        except OSError:  # Linux's way to say that the other end is closed
            pass
        finally:
            os.close(master)
    assert child.returncode == 0
    assert "of 98,304 rows" in seen.decode()
    assert "rows/s" in seen.decode()
    assert " left" in seen.decode()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_sweep_that_was_killed_goes_on_and_is_the_same(inferometer, waiting, tmp_path):
    whole, path = tmp_path / "whole.csv", tmp_path / "rows.csv"
    assert inferometer(*LONG, "--out", whole).returncode == 0
    with waiting(*LONG, "--out", path) as child:
        child.kill()
    assert inferometer(*LONG, "--out", path).returncode == 2  # an unfinished one is not overwritten unasked
    assert inferometer(*LONG, "--out", path, "--resume").returncode == 0
    assert path.read_bytes() == whole.read_bytes()


CLUSTER = """
import sys
from distributed import LocalCluster

if __name__ == "__main__":
    asked = dict(n_workers=2, threads_per_worker=2, processes=False, protocol="tcp", dashboard_address=None)
    with LocalCluster(**asked) as cluster:
        print(cluster.scheduler_address.removeprefix("tcp://"), flush=True)
        sys.stdin.read()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A scheduler and two workers, in a process of their own, which are sent what they compute."""
    if not HAS_DASK:
        pytest.skip("dask.distributed is not installed: pip install 'inferometer[dask]' runs this test")
    script = tmp_path_factory.mktemp("dask") / "cluster.py"
    script.write_text(CLUSTER, encoding="utf-8")
    child = subprocess.Popen([sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with child:
        yield child.stdout.readline().strip()
        child.stdin.close()


@pytest.mark.slow
def test_a_dask_cluster_gives_identical_rows(inferometer, cluster, tmp_path):
    here, there = tmp_path / "here.csv", tmp_path / "there.csv"
    assert inferometer(*LONG, "--out", here).returncode == 0
    result = inferometer(*LONG, "--out", there, "--engine", f"dask://{cluster}")
    assert result.returncode == 0, result.stderr
    assert there.read_bytes() == here.read_bytes()


@pytest.mark.slow
def test_a_dask_cluster_gives_identical_rows_in_python(cluster):
    asked = {
        "models": ["llama-3.2-1b", "qwen3-30b-a3b", "t5-small", "resnet50"], "devices": ["nvidia-h200", "nvidia-t4"],
        "weights": [None, "q4_0"], "batch": [1, 2, 4], "prompt": [64, 512], "tp": [1, 2],
    }  # fmt: skip
    here, there = sweep(**asked), sweep(**asked, engine=f"dask://{cluster}")
    assert len(here) == len(there) == 192
    for name in here.columns:
        assert np.array_equal(here[name], there[name], equal_nan=here[name].dtype == float), name


@pytest.mark.slow
def test_a_plan_is_the_same_on_a_dask_cluster(cluster):
    asked = {"model": "llama-3.2-1b", "rate": 40.0, "slo": "tpot_p95<=60ms", "devices": ["nvidia-l4"], "tp": (1,)}
    here, there = plan(**asked), plan(**asked, engine=f"dask://{cluster}")
    assert here.plans
    for one, other in zip(here.plans, there.plans, strict=True):
        assert (one.weights, one.tp, one.replicas) == (other.weights, other.tp, other.replicas)
        assert one.tpot_s == pytest.approx(other.tpot_s, rel=1e-6)


@pytest.mark.skipif(not HAS_DASK, reason="dask.distributed is not installed: pip install 'inferometer[dask]'")
def test_a_scheduler_that_is_not_there_is_said(inferometer, monkeypatch):
    monkeypatch.setattr(engines, "_ANSWER_S", 0.1)
    result = inferometer(*ASKED, "--engine", "dask://127.0.0.1:1")
    assert result.returncode == 2
    assert "No Dask scheduler answers at 127.0.0.1:1" in result.stderr


@pytest.mark.parametrize("form", ["json", "svg"])
def test_a_front_is_drawn(inferometer, tmp_path, form):
    """In the form of the file's name; what each form is made of is tested with the charts."""
    if form != "json" and not HAS_CHARTS:
        pytest.skip("vl-convert is not installed: pip install 'inferometer[charts]' runs this test")
    path = tmp_path / f"front.{form}"
    result = inferometer(*ASKED, "--pareto", "tpot_s,usd_per_million_tokens", "--chart", path)
    assert result.returncode == 0, result.stderr
    assert path.read_bytes().lstrip().startswith({"json": b"{", "svg": b"<svg"}[form])


def test_a_heat_map_is_drawn_from_a_file(inferometer, tmp_path):
    rows, chart = tmp_path / "rows.csv", tmp_path / "heat.json"
    assert inferometer(*ASKED, "--out", rows, "--heatmap", "batch,weights,tpot_s", "--chart", chart).returncode == 0
    assert "facet" in json.loads(chart.read_text(encoding="utf-8"))


def test_the_python_call_of_the_contract():
    rows = sweep(
        models=["llama-3.2-1b"], devices=["nvidia-h200", "raspberry-pi-5"], runtimes=["torch-compile", "llamacpp"],
        weights=["bf16", "q4_0"], batch=[1, 4], prompt=[128], context=[512, 1024], tp=[1, 2],
    )  # fmt: skip
    assert len(rows) == 64
    assert isinstance(rows["tpot_s"], np.ndarray)
    assert {"tpot_s", "usd_per_million_tokens", "batch", "device"} < {*rows.columns}
    assert 0 < len(rows.pareto("tpot_s", "usd_per_million_tokens")) < 64
