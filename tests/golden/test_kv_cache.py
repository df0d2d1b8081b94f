"""What is left for the cache, beside what engines' own logs say of it (tests/golden/kv_cache.json)."""

import json
from pathlib import Path

import numpy as np
import pytest

from inferometer.predict.ask import ask
from inferometer.predict.options import Options
from inferometer.predict.served.question import served

LINES = json.loads((Path(__file__).parent / "kv_cache.json").read_text(encoding="utf-8"))["lines"]
WITHIN = 0.03  # the aim; a line that is further off has a `within` of its own, and says why


def memory_of(line):
    question = ask(
        line["model"], on=line.get("device", "nvidia-h100-sxm"), runtime=line.get("engine", "vllm"),
        tp=line.get("tp", 1), pp=line.get("pp", 1), weights=line.get("format"), calibrated=False,
        options=Options(engine_version=line["version"]),
    )  # fmt: skip
    told = served(question).limited(tokens=line.get("step_tokens"), sequences=line.get("sequences"))
    return told.with_memory_share(line["share"]).memory


def named(line):
    return f"{line.get('engine', 'vllm')}-{line['version']}-{line['model']}-{line.get('tp', 1)}-{line.get('pp', 1)}"


@pytest.mark.parametrize("line", LINES, ids=named)
def test_the_cache_is_what_the_engine_s_own_log_says(line):
    memory = memory_of(line)
    assert memory.kv_bytes / 2**30 == pytest.approx(line["kv"], rel=line.get("within", WITHIN))
    if "tokens" in line:
        assert memory.kv_tokens == pytest.approx(line["tokens"], rel=line.get("within", WITHIN))
    if "weights" in line:
        assert memory.weights_bytes / 2**30 == pytest.approx(line["weights"], rel=0.05)
    if "peak" in line:
        assert memory.activations_bytes / 2**30 == pytest.approx(line["peak"], rel=0.05, abs=0.15)


@pytest.mark.parametrize("kept", [False, True])
def test_half_of_the_lines_are_within_half_a_percent(kept):
    off = [memory_of(line).kv_bytes / 2**30 / line["kv"] - 1 for line in LINES if line.get("kept", False) == kept]
    assert len(off) > 20
    assert np.median(np.abs(off)) <= 0.005


def test_a_wider_step_and_more_sequences_leave_less_for_the_cache():
    what = served(ask("qwen3-8b", on="nvidia-h100-sxm", runtime="vllm", options=Options(engine_version="0.19")))
    few, many = what.limited(sequences=64).memory, what.limited(sequences=2048).memory
    assert few.kv_bytes > what.memory.kv_bytes > many.kv_bytes
    assert many.activations_bytes - what.memory.activations_bytes == pytest.approx(1024 * 151936 * 14.9)
    assert what.limited(tokens=65536, sequences=1).memory.kv_bytes < few.kv_bytes
    assert what.limited().memory == what.memory


def test_graphs_are_taken_off_from_the_version_on_that_counts_them():
    def reserve(version, sequences=1024):
        options = Options(engine_version=version)
        what = served(ask("llama-3.1-8b", on="nvidia-h100-sxm", runtime="vllm", options=options))
        return what.limited(sequences=sequences).memory.reserve_bytes

    # 51 sizes up to 512, whole steps and parts: 0.84 GiB by its own estimate
    assert (reserve("0.21") - reserve("0.20")) / 2**30 == pytest.approx(0.84, abs=0.01)
    # of 256 sequences 35 whole steps
    assert (reserve("0.21", 256) - reserve("0.20", 256)) / 2**30 == pytest.approx(0.84 * 86 / 102, abs=0.01)
    assert reserve("0.28") == reserve("0.20")
