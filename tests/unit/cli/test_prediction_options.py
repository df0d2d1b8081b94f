"""Every keyword of `predict` and each of its options has a flag, which changes the answer or is refused."""

import inspect
import json
import re
import shlex
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from click.testing import CliRunner

import inferometer as im
from fakes.every import every
from inferometer.cli.commands.predict import command as predict_command
from inferometer.cli.commands.sweep import command as sweep_command
from inferometer.cli.run import cli
from inferometer.core.codec import decode
from inferometer.core.device import Link
from inferometer.core.graph import Graph
from inferometer.core.profile import Profile
from inferometer.predict import options as cost_options
from inferometer.predict.ask import ask
from inferometer.predict.fields import FIELDS
from inferometer.predict.flags import FLAGS, options_from
from inferometer.predict.options import Options

LLAMA = ("llama-3.2-1b", "--on", "nvidia-l4", "--prompt", "64", "--generate", "8")
RESNET = ("resnet50", "--on", "nvidia-t4")
EAGER = ("resnet50", "--on", "nvidia-rtx-4090", "--runtime", "torch-eager")
MOE = ("qwen3-30b-a3b", "--on", "nvidia-h200", "--tp", "2", "--ep", "2", "--prompt", "64", "--generate", "8")
# The option that each flag sets, a value for it, and a question that it changes.
CASES = {
    "chunk": ("chunk", 16, LLAMA),
    "cached_prefix": ("cached_prefix", 16, LLAMA),
    "draft": ("speculative.draft", "gpt2", LLAMA),
    "draft_length": ("speculative.length", 2, (*LLAMA, "--draft", "gpt2")),
    "acceptance": ("speculative.acceptance", 0.5, (*LLAMA, "--draft", "gpt2")),
    "draft_up_to": ("speculative.up_to", "4:2", (*LLAMA, "--draft", "gpt2")),
    "link": ("link", "infiniband-ndr", MOE),
    "overlap": ("overlap", 0.5, MOE),
    "micro_batches": ("micro_batches", 2, (*LLAMA, "--pp", "2", "--batch", "4")),
    "imbalance": ("imbalance", 1.5, MOE),
    "sequence_parallel": ("sequence_parallel", True, MOE),
    "steps": ("steps", 20, ("sd-1.5-unet", "--on", "nvidia-t4")),
    "offload_layers": ("offload.layers", 2, LLAMA),
    "offload_experts": ("offload.experts", True, MOE),
    "override": ("overrides", ("lm_head=f32",), ("llama-3.1-8b", *LLAMA[1:])),
    "storage": ("storage_bytes_per_s", "1GB/s", LLAMA),
    "tokenise": ("host.tokenise_s_per_token", "2us", LLAMA),
    "sampling": ("host.sampling_s", "1ms", LLAMA),
    "detokenise": ("host.detokenise_s_per_token", "1ms", LLAMA),
    "instance": ("place.instance", "aws-g6.12xlarge", LLAMA),
    "usd_per_hour": ("place.usd_per_hour", 2.5, RESNET),
    "spot": ("place.spot", True, ("llama-3.2-1b", "--on", "nvidia-a100-80gb", *LLAMA[3:])),
    "grid": ("place.grid", "world", RESNET),
    "pue": ("place.pue", "1.5", (*RESNET, "--grid", "world")),
    "joules_per_flop": ("energy.joules_per_flop", "1pJ", (*RESNET, "--joules-per-byte", "20pJ")),
    "joules_per_byte": ("energy.joules_per_byte", "20pJ", (*RESNET, "--joules-per-flop", "1pJ")),
    "battery": ("battery.capacity_j", "15Wh", RESNET),
    "per_second": ("battery.per_s", 5.0, (*RESNET, "--battery", "15Wh")),
    "battery_efficiency": ("battery.efficiency", 0.5, (*RESNET, "--battery", "15Wh")),
    "frame_rate": ("frame_rate", 30.0, RESNET),
    "audio": ("audio_s", "40s", ("whisper-base", "--on", "nvidia-l4")),
    "layout": ("layout", "nhwc", (*EAGER, "--batch", "64")),
    "host_speed": ("host_speed", "0.5", EAGER),
    "cooling": ("cooling_w", "30W", RESNET),
}  # fmt: skip
# Keywords of `predict` whose flag has another name. `--size` comes with reading files.
NAMED = {"model": "models", "on": "devices", "calibrated": "priors"}
# Of a serving engine alone; a flag of `predict` and an axis of `sweep`; what `--host-speed 2us` sets.
BESIDE = {"sizes", "engine_version", "threads", "host_call_s"}


def option_names(kind=Options, start=""):
    """Every option, those of the tables inside with a dot."""
    hints = get_type_hints(kind, {**vars(cost_options), "Graph": Graph, "Link": Link})
    for entry in fields(kind):
        inner = next(
            (part for part in (hints[entry.name], *get_args(hints[entry.name]))
             if is_dataclass(part) and part not in {Graph, Link}),
            None,
        )  # fmt: skip
        if inner is None:
            yield f"{start}{entry.name}"
        else:
            yield from option_names(inner, f"{start}{entry.name}.")


def test_every_keyword_of_predict_has_a_flag():
    keywords = {*inspect.signature(im.predict).parameters} - {"options"}
    flags = {parameter.name for parameter in predict_command.params}
    assert {NAMED.get(name, name) for name in keywords} <= flags
    assert {*option_names()} - BESIDE == {option for option, _, _ in CASES.values()}
    assert FLAGS.keys() == CASES.keys() | {"engine_version"}
    assert FLAGS.keys() <= flags
    assert FLAGS.keys() <= {parameter.name for parameter in sweep_command.params}


@every(CASES)
def test_a_flag_sets_its_option_and_no_other(flag):
    option, value, _ = CASES[flag]
    beside = {"draft": "gpt2"} if option.startswith("speculative") else {}
    beside |= {"joules_per_flop": "3pJ", "joules_per_byte": "3pJ"} if option.startswith("energy") else {}
    before = options_from({} if flag == "draft" else beside)
    after = options_from({**beside, flag: value})
    assert read(after, option) != read(before, option)
    others = [name for name in option_names() if name.partition(".")[0] != option.partition(".")[0]]
    assert all(read(after, name) == read(before, name) for name in others)


def read(options, name):
    for part in name.split("."):
        options = getattr(options, part) if options is not None else None
    return options


def run(*arguments):
    return CliRunner().invoke(cli, [*arguments])


def answered(*arguments):
    result = run("predict", *arguments, "--priors", "--format", "json")
    assert result.exception is None, result.exception
    found = decode(result.stdout, Profile)
    return found.summary, found.phases


@every(CASES)
def test_a_flag_changes_the_answer(flag):
    _, value, question = CASES[flag]
    name = f"--{flag.replace('_', '-')}"
    given = [name] if value is True else [name, str(value[0] if isinstance(value, tuple) else value)]
    if flag in {"joules_per_flop", "joules_per_byte"}:
        assert answered(*question, *given) != answered(*question, given[0], "7pJ")
    else:
        assert answered(*question, *given) != answered(*question)


@every([flag for flag in CASES if FIELDS[flag].changes == "option"])
def test_a_what_if_asks_what_the_flag_asks(flag):
    _, value, (model, *words) = CASES[flag]
    named = {name.removeprefix("--"): text for name, text in zip(words[::2], words[1::2], strict=True)}
    keywords = {name: int(text) if text.isdecimal() else text for name, text in named.items()}
    text = value[0] if isinstance(value, tuple) else str(value).lower() if value is True else value
    changed = ask(model, **keywords).changed(f"{flag}={text}")
    assert changed.options == ask(model, **keywords, **{flag: value}).options
    assert changed.options != ask(model, **keywords).options


@pytest.mark.parametrize(("question", "given", "words"), [
    (RESNET, "--chunk 16", "Chunks are for a model that writes tokens"),
    (RESNET, "--cached-prefix 16", "A cached prefix is for"),
    (RESNET, "--draft gpt2", "A draft is for"),
    (RESNET, "--sampling 1us", "Tokenising, sampling and detokenising"),
    (RESNET, "--link infiniband-ndr", "Nothing crosses a link"),
    (RESNET, "--overlap 0.5", "Nothing is sent that could overlap"),
    (RESNET, "--imbalance 2", "experts on several devices"),
    (RESNET, "--sequence-parallel", "goes with tensor parallelism"),
    (RESNET, "--pue 1.2", "no grid is named"),
    (RESNET, "--pue 0.9 --grid world", "pue must be a number from 1 to 10"),
    (RESNET, "--usd-per-hour 2 --spot", "A price is given"),
    (RESNET, "--spot", "has a spot price"),
    (RESNET, "--acceptance 0.5", "are of a draft"),
    (RESNET, "--per-second 2", "has no battery in its row"),
    (RESNET, "--joules-per-flop 1pJ", "go together"),
    (RESNET, "--storage 3GFLOP", "--storage: '3GFLOP' is not a number of B/s"),
    (RESNET, "--override f16", "is no assignment"),
    (RESNET, "--offload-experts", "no weights that could be offloaded"),
    (LLAMA, "--frame-rate 30", "answers in one pass"),
    (LLAMA, "--audio 90s", "for a model of speech"),
    (LLAMA, "--steps 20", "those of a diffusion model"),
    (("t5-small", *LLAMA[1:]), "--chunk 16", "reads the prompt in one go"),
    (("llama-3.2-1b", "--on", "nvidia-l4", "--context", "9"), "--cached-prefix 4", "none is read"),
    ((*LLAMA[:5], "--generate", "1"), "--draft gpt2", "fewer than two tokens"),
    (LLAMA, "--draft gpt2 --draft-length 0", "A draft has 1 token or more"),
    ((*LLAMA[:5], "--generate", "0"), "--detokenise 1us", "no token is written"),
    ((*LLAMA, "--prefill-on", "nvidia-h200"), "--battery 15Wh", "two machines share a request"),
    ((*LLAMA, "--prefill-on", "nvidia-h200"), "", "link between nvidia-h200 and nvidia-l4 is not known"),
    (("resnet50", "--on", "raspberry-pi-3b-plus"), "--grid world", "The power of raspberry-pi-3b-plus is not known"),
])  # fmt: skip
def test_an_option_that_would_change_nothing_is_refused(question, given, words):
    assert words in str(run("predict", *question, *given.split()).exception)


def test_a_calibration_by_its_file_is_of_the_device_that_is_asked_about():
    folder = Path(im.__file__).parent / "known" / "data" / "calibrations"
    file = str(next(folder.glob("nvidia-h200-torch-compile-bf16-*.json")))
    asked = ("predict", "llama-3.2-1b", "--context", "64", "--on")
    assert run(*asked, "nvidia-h200", "--calibration", file, "--runtime", "torch-compile").exit_code == 0
    assert "is a calibration of nvidia-h200" in str(run(*asked, "nvidia-l4", "--calibration", file).exception)
    assert "Leave one out" in str(run(*asked, "nvidia-h200", "--calibration", file, "--priors").exception)


def test_a_sweep_takes_the_same_flags_for_all_rows_and_refuses_those_that_no_row_uses(tmp_path):
    spec = tmp_path / "grid.toml"
    spec.write_text('models = ["resnet50", "gpt2"]\ndevices = "nvidia-t4"\n[options]\nframe_rate = 10\n', "utf-8")
    row, other = json.loads(run("sweep", str(spec), "--frame-rate", "20", "--format", "json").stdout)
    assert row["frame_budget_s"] == 1 / 20
    assert row["frame_headroom"] == pytest.approx(1 - 20 * row["latency_s"])
    assert other["frame_budget_s"] is None
    assert "no row would use it" in str(run("sweep", str(spec), "--overlap", "0.5").exception)


def test_a_what_if_shows_the_phase_that_it_changes():
    result = run("predict", *LLAMA, "--what-if", "chunk=16", "--what-if", "offload_layers=2", "--format", "json")
    chunk, offload = json.loads(result.stdout)
    assert (chunk["phase"], offload["phase"]) == ("prefill", "decode")
    assert chunk["gain"] < 1 > offload["gain"]


def test_why_says_of_every_op_who_gave_its_time_and_what_share_each_source_has():
    asked = ("predict", *LLAMA, "--runtime", "vllm")
    phases = json.loads(run(*asked, "--why", "--format", "json").stdout)["phases"]
    text = run(*asked, "--why").stdout
    by_source, *by_op = text.split("Where ")
    for phase in phases[1:]:
        (ops,) = (part for part in by_op if part.startswith(f"{phase['name']} goes"))
        for op in phase["ops"]:
            assert re.search(rf"^{re.escape(op['name'])} .*{re.escape(op['rung'])}$", ops, re.MULTILINE)
            assert op["rung"] in by_source
    shares = re.findall(r"^decode .* (\d+\.\d) %$", by_source, re.MULTILINE)
    assert sum(map(float, shares)) == pytest.approx(100, abs=0.3)


@pytest.mark.parametrize("more", [("--users", "4"), ("--what-if", "batch=2"), ("--weights", "bf16", "--weights", "i8")])
def test_why_is_asked_of_one_prediction(more):
    assert "--why prints the ops of one prediction" in str(run("predict", *LLAMA, *more, "--why").exception)


def test_the_card_says_whether_frames_and_a_battery_hold():
    text = run("predict", *RESNET, "--frame-rate", "30", "--battery", "15Wh").stdout
    assert re.search(r"frame budget +33\.33 ms +holds: \d+\.\d % of it left", text)
    assert re.search(r"battery .* [\d,]+ inferences a charge", text)
    slow = run("predict", "resnet50", "--on", "raspberry-pi-4", "--frame-rate", "30", "--batch", "2").stdout
    assert re.search(r"budget of 2 frames +66\.67 ms +does not hold: \d+\.\d % over it", slow)


PAGE = (Path(__file__).parents[3] / "docs" / "predicting.md").read_text(encoding="utf-8")


def test_the_commands_on_the_page_run_and_it_names_every_flag(tmp_path, monkeypatch):
    (tmp_path / "my-board.toml").write_text(PAGE.partition("```toml\n")[2].partition("```")[0], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for line in PAGE.splitlines():
        if line.startswith("$ inferometer "):
            result = run(*shlex.split(line)[2:])
            assert result.exception is None, line
    for name in FLAGS:
        assert f"--{name.replace('_', '-')}" in PAGE, name


NCNN = """7767517
2 2
Input data 0 1 data 0={side} 1={side} 2=3
Convolution conv 1 1 data out 0=16 1=3 4=1 5=1 6=432
"""


def test_the_files_of_a_folder_are_ranked_and_one_that_cannot_be_read_comes_last(tmp_path):
    for name, side in (("large", 512), ("small", 32)):
        (tmp_path / f"{name}.param").write_text(NCNN.format(side=side), encoding="utf-8")
    (tmp_path / "broken.onnx").write_bytes(b"nothing")
    (tmp_path / "readme.txt").write_text("no model", encoding="utf-8")
    rows = json.loads(run("predict", str(tmp_path), "--on", "raspberry-pi-5", "--format", "json").stdout)
    assert [row["model"]["name"] for row in rows[:2]] == ["small", "large"]
    assert [Path(row["model"]).name for row in rows[2:]] == ["broken.onnx"]
    assert "error" in rows[2]
