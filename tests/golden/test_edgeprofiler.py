"""EdgeProfiler's own numbers, from its formulas as published (arXiv:2506.09061), in milliseconds, FLOP/B and joules."""

import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from inferometer import predict
from inferometer.cli.run import cli
from inferometer.core.codec import decode
from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.core.profile import Profile
from inferometer.formats.resolve import read
from inferometer.known import device
from inferometer.understand.accuracy.edgeprofiler import (
    HARDWARE,
    MODELS,
    PRECISIONS,
    EdgeHardware,
    EdgeModel,
    edge_profile,
)

SIX = {"layers": 24, "hidden": 2048, "intermediate": 8192, "vocab": 50257, "sequence": 1024}
GOLDEN = {
    "FP32": (74.7911, 532.1308, 14138.1222, 673.2439, 104.8576, 15448.3545, 0.4315, 6.0689),
    "FP16": (74.7911, 266.0654, 7069.0611, 336.6220, 52.4288, 7724.1773, 0.8630, 3.0358),
    "INT8": (74.7911, 133.0327, 3534.5306, 168.3110, 26.2144, 3862.0886, 1.7261, 1.5192),
}


@pytest.mark.parametrize("precision", GOLDEN)
def test_the_published_formulas_give_the_published_numbers(precision):
    found = edge_profile(EdgeModel(**SIX, element_bytes=PRECISIONS[precision]), "raspberry-pi-4")
    seconds = (found.compute_s, found.memory_s, found.io_s, found.h2d_s, found.network_s, found.e2e_s)
    shown = (*(round(1e3 * value, 4) for value in seconds), round(found.intensity, 4), round(found.energy_j, 4))
    assert shown == GOLDEN[precision]


def test_the_command_prints_its_table_for_its_own_models_and_machines():
    arguments = ["predict", *MODELS, *(part for name in HARDWARE for part in ("--on", name)), "--edgeprofiler"]
    rows = json.loads(CliRunner().invoke(cli, [*arguments, "--format", "json"]).stdout)
    assert len(rows) == len(MODELS) * len(HARDWARE) * len(PRECISIONS)
    keys = ("compute_s", "memory_s", "io_s", "h2d_s", "network_s", "e2e_s")
    for row in rows[:3]:  # the first model on the first machine is the golden one
        shown = (*(round(1e3 * row[key], 4) for key in keys), round(row["intensity"], 4), round(row["energy_j"], 4))
        assert shown == GOLDEN[row["precision"]]
    last = rows[-1]  # DeepSeek-r1-1.5B on the Jetson in INT8, by its formulas
    shown = tuple(round(1e3 * last[key], 2) for key in keys)
    assert shown == (10.17, 131.05, 1179.88, 89.9, 5.9, 1406.72)
    assert (round(last["parameters"] / 1e6, 1), round(last["energy_j"], 3)) == (1887.8, 2.016)


@pytest.mark.parametrize(("arguments", "words"), [
    (["tinyllama-1.1b", "--on", "raspberry-pi-4", "--batch", "2"], "EdgeProfiler has no --batch"),
    (["tinyllama-1.1b", "--on", "raspberry-pi-4", "--weights", "q4_0"], "no format 'q4_0'"),
    (["tinyllama-1.1b", "--on", "nvidia-h200"], "not known: storage, network"),
    (["resnet50", "--on", "raspberry-pi-4"], "needs hidden_size"),
])  # fmt: skip
def test_what_it_cannot_say_is_refused(arguments, words):
    assert words in str(CliRunner().invoke(cli, ["predict", *arguments, "--edgeprofiler"]).exception)


def test_the_end_to_end_time_is_the_sum_it_says():
    found = edge_profile(EdgeModel(**SIX), "raspberry-pi-4")
    assert found.e2e_s == max(found.compute_s, found.memory_s) + found.io_s + found.h2d_s + found.network_s


def test_nonsense_is_refused():
    with pytest.raises(DomainError, match="layers must be a whole number"):
        EdgeModel(**SIX | {"layers": 0})
    with pytest.raises(DomainError, match="hidden"):
        EdgeModel(**SIX | {"hidden": 2048.0})
    with pytest.raises(UnknownNameError):
        edge_profile(EdgeModel(**SIX), "raspberry-pi-6")
    with pytest.raises(DomainError, match="flops_per_s of x"):
        EdgeHardware(
            name="x", flops_per_s=float("nan"), memory_bytes_per_s=1, storage_bytes_per_s=1, transfer_bytes_per_s=1,
            network_bytes_per_s=1,
        )  # fmt: skip


PAGE = (Path(__file__).parents[2] / "docs" / "edgeprofiler.md").read_text(encoding="utf-8")
TINYLLAMA = {"layers": 22, "hidden": 2048, "intermediate": 5632, "vocab": 32000, "sequence": 1024}
LLAMA_1B = {"layers": 16, "hidden": 2048, "intermediate": 8192, "vocab": 128_256, "sequence": 1024}


@pytest.mark.parametrize("precision", GOLDEN)
def test_the_page_shows_the_golden_table(precision):
    compute, memory, io, h2d, network, e2e, intensity, joules = GOLDEN[precision]
    times = " | ".join(f"{value:.4f} ms" for value in (compute, memory, io, h2d, network, e2e))
    assert f"| {precision} | {times} | {intensity:.4f} | {joules:.4f} |" in PAGE


LINES = [line.removeprefix("$ ") for line in PAGE.splitlines() if line.startswith("$ inferometer predict")]
THEIRS = [line for line in LINES if "--edgeprofiler" in line]
COMMANDS = [line for line in LINES if line not in THEIRS]


@pytest.mark.parametrize("command", THEIRS)
def test_the_page_prints_its_table(command):
    assert CliRunner().invoke(cli, shlex.split(command)[1:]).stdout.startswith("EdgeProfiler\n")


@pytest.mark.parametrize(("precision", "command"), [*zip(GOLDEN, COMMANDS, strict=True)])
def test_the_page_says_what_the_commands_on_it_print(precision, command):
    theirs = edge_profile(EdgeModel(**TINYLLAMA, element_bytes=PRECISIONS[precision]), "raspberry-pi-4")
    result = CliRunner().invoke(cli, [*shlex.split(command)[1:], "--format", "json"])
    ours = decode(result.stdout, Profile)
    step, load = ours.phase("decode"), ours.phase("load")
    low, time, high, floor = (f"{1e3 * value:.0f}" for value in (step.low_s, step.time_s, step.high_s, step.floor_s))
    once = f"{ours.summary.ttft_s:.1f} s | {load.time_s:.1f} s"
    assert (
        f"| {precision} | {1e3 * theirs.e2e_s:.0f} ms | {time} ms | {low} … {high} ms | {floor} ms | {once} |" in PAGE
    )


def test_what_the_page_says_in_its_sentences():
    """Point by point: work, cache, bandwidths, and what EdgeProfiler's own answer is made of."""
    tiny, llama = (
        predict(model, on="raspberry-pi-4", runtime="llamacpp", weights="f32", activations="f32", kv="f32",
                prompt=1024, context=1024)
        for model in ("tinyllama-1.1b", "llama-3.2-1b")
    )  # fmt: skip
    theirs, edge = edge_profile(EdgeModel(**SIX), "raspberry-pi-4"), EdgeModel(**LLAMA_1B)
    (head,) = (op.flops for op in llama.phase("decode").ops if op.name == "lm_head")
    bandwidths = [device(name).memory.bandwidth_bytes_per_s.value / 1e9
                  for name in ("raspberry-pi-4", "raspberry-pi-5", "jetson-orin-nano-super")]  # fmt: skip
    watts = theirs.energy_j / theirs.e2e_s
    for words in (
        f"they are {(theirs.io_s + theirs.h2d_s) / theirs.e2e_s:.0%}".replace("%", " %"),
        f"Its cache is 2·L·H numbers a token: {2 * 22 * 2048 * 4:,} B",
        f"{tiny.model.kv_bytes_per_token:,} B. Eight times",
        f"leaves out {head / 2e6:.0f} million of {llama.model.parameters / 1e9:.2f} billion",
        f"{edge.flops / 1e9:.2f} GFLOP by its formula, {llama.phase('decode').flops / 1e9:.2f} GFLOP a token",
        f"Reading 1024 tokens is {tiny.phase('prefill').flops / 1e12:.2f} TFLOP",
        f"writing one is {tiny.phase('decode').flops / 1e9:.2f} GFLOP",
        "its LPDDR4 has {:.1f}; the Pi 5 has {:.1f} and the Orin Nano Super {:.0f}".format(*bandwidths),
        f"{theirs.energy_j:.2f} J for its FP32 token, which over its {theirs.e2e_s:.1f} s is {watts:.1f} W",
    ):
        assert words in PAGE, words
    assert "6 W of a Pi 4" in PAGE
    step = tiny.phase("decode")
    assert step.energy_j == pytest.approx(6.0 * step.time_s)


def test_the_page_counts_as_the_models_count():
    for model, six in (("tinyllama-1.1b", TINYLLAMA), ("llama-3.2-1b", LLAMA_1B)):
        assert f"{EdgeModel(**six).parameters:,}" in PAGE
        assert f"{read(model).parameters:,}" in PAGE
