"""`inferometer load` as a user types it: against a scripted server, against nothing, and against a real llama.cpp."""

import importlib.util
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.scripted_server import ScriptedServer, speak, whole
from fakes.waiting import until
from inferometer.core.codec import decode
from inferometer.core.profile import Profile
from inferometer.store.store import open_store

QUICK = ("--prompt", "16", "--generate", "4", "--warmup", "0")


def quick(asked):
    return speak(asked, first_s=0.02, step_s=0.002) if asked.body.get("stream") else whole(asked)


@pytest.fixture
def server():
    with ScriptedServer(quick) as opened:
        yield opened


def test_a_load_test_prints_stores_and_saves(answered, server, tmp_path):
    store, out = tmp_path / "runs.db", tmp_path / "load.json"
    done = answered(
        "load", server.url, "--concurrency", "1,2,4", "--requests", "12", *QUICK, "--slo", "ttft_p50<=5s",
        "--store", str(store), "--name", "sweep", "-o", str(out), "--header", "Authorization: Bearer secret-key",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "ttft_p50<=5s" in done.stdout
    assert "4 at once" in done.stdout
    profile = decode(out.read_bytes(), Profile)
    assert [level.name for level in profile.served.levels] == ["1 at once", "2 at once", "4 at once"]
    assert server.asked[-1].headers["authorization"] == "Bearer secret-key"
    assert b"secret-key" not in out.read_bytes()
    with open_store(store) as opened:
        run = opened.get("sweep")
        assert (run.status, opened.row("sweep").kind) == ("finished", "load")
        assert run.profile == profile
    done = answered("export", "sweep", "-o", str(tmp_path / "requests.csv"), "--store", str(store))
    assert done.returncode == 0
    assert (tmp_path / "requests.csv").read_text().startswith("level,arrival_s,input_tokens")


def test_the_json_that_other_programs_read(answered, server):
    done = answered("load", server.url, "--rate", "100", "--requests", "20", *QUICK, "--no-store", "--format", "json")
    document = json.loads(done.stdout)
    assert document["completed"] == 20
    assert document["summary"]["ttft_s"]["p50"] > 0.02
    assert document["errors"] == {}
    assert isinstance(document["client"]["bottleneck"], bool)


def test_a_test_without_an_answer_is_no_last_run(answered, tmp_path):
    store = ["--store", str(tmp_path / "runs.db")]
    done = answered("load", "http://127.0.0.1:9", "--requests", "2", *store)
    assert done.returncode == 1
    (stored,) = json.loads(answered("runs", *store, "--format", "json").stdout)
    assert stored["status"] == "failed"
    assert "no run has finished yet" in answered("runs", "show", "last", *store).stderr


def test_nothing_there_is_a_report_and_exit_code_1(answered):
    done = answered("load", "http://127.0.0.1:9", "--requests", "5", "--no-store", "--format", "json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["errors"] == {"refused": 5}
    assert done.stderr.strip().endswith("The kinds of errors above say why.")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ftp://host",), "not an http or https address"),
        (("http://host:many",), "not an address"),
        (("http://h", "--rate", "fast"), "'fast' is not a number"),
        (("http://h", "--rate", "0"), "above 0"),
        (("http://h", "--concurrency", "2.5"), "a whole number of requests"),
        (("http://h", "--rate", "1", "--concurrency", "2"), "Give one of --concurrency and --rate"),
        (("http://h", "--burstiness", "0.5"), "--arrivals gamma"),
        (("http://h", "--slo", "ttft<=soon"), "is not an objective"),
        (("http://h", "--prompt", "long"), "is not a length"),
        (("http://h", "--trace", "none.csv"), "cannot be read"),
        (("http://h", "--api", "template"), "needs --template"),
        (("http://h", "--header", "nonsense"), "is not a header"),
        (("http://h", "--requests", "0"), "not a whole number from 1 to"),
        (("http://h", "-o", "x.txt"), "does not say what to save"),
        (("http://h", "--shared-prefix", "a:b"), "whole numbers of at most 9 digits"),
    ],
)
def test_what_cannot_be_asked_is_said_before_anything_is_sent(answered, arguments, message):
    done = answered("load", *arguments, "--no-store")
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_prints_stores_and_says_so(server, tmp_path, ending):
    store, before = tmp_path / "runs.db", len(server.asked)
    command = [
        sys.executable, "-m", "inferometer", "load", server.url, "--concurrency", "2", "--requests", "5000", *QUICK,
        "--store", str(store), "--format", "json",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(lambda: len(server.asked) >= before + 30 or process.poll() is not None, "the thirtieth request")
    process.send_signal(ending)
    printed, said = process.communicate(timeout=240)
    assert process.returncode == 130, said
    document = json.loads(printed)
    assert document["interrupted"] is True
    assert document["completed"] > 10
    with open_store(store) as opened:
        run = opened.get(opened.list().rows[0].id)
    assert run.status == "killed"
    assert run.profile.served.levels[0].interrupted


@pytest.fixture(scope="module")
def llama_server(tmp_path_factory):
    """A real llama.cpp server with a tiny model of random weights."""
    if importlib.util.find_spec("xllamacpp") is None or importlib.util.find_spec("gguf") is None:
        pytest.skip("pip install 'inferometer[llamacpp]'")
    from contract.runtime_cases_llamacpp import LLAMA
    from inferometer.formats.synth import synthesise

    model = synthesise(LLAMA, tmp_path_factory.mktemp("model") / "tiny.gguf", weights="q8_0").path
    command = [sys.executable, str(Path(__file__).parents[1] / "fakes" / "llama_server.py"), str(model), "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    yield process.stdout.readline().strip()
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_real_server_is_measured(answered, llama_server):
    done = answered(
        "load", llama_server, "--api", "completions", "--concurrency", "2", "--requests", "12", "--prompt", "24",
        "--generate", "8", "--no-store", "--format", "json",
    )  # fmt: skip
    document = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert document["runtime"] == "llamacpp"
    assert (document["completed"], document["errors"]) == (12, {})
    assert document["output_tokens"] == 8
    assert document["server"]["counters"]["generated_tokens"] == 12 * 8
    assert document["counting"] == "counted in every event"
