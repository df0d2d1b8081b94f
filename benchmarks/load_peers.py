"""GuideLLM and AIPerf on the scripted server of `load_client.py`, as their own users run them.

`python benchmarks/load_client.py --peer-python VENV/bin/python` takes the programs beside that interpreter: they need
packages that this project has no use for. Both get the load that ours gets, one after the other in the same run, and a
tokeniser of single words, since nothing is downloaded. Requests a second are by their own report; CPU is of all their
processes, with their start, which ours is measured without: the note says what it was.
"""

import json
import resource
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
from figure import Figure

_LIMIT_S = 240
WORDS = "words"  # the folder of the tokeniser
CLOSED = {"places": 64, "requests": 600, "tokens": 16}
OPEN = {"rate": 50, "requests": 250, "tokens": 16}
_TOKENISER = """
import sys
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
words = ["[UNK]", *(f"w{number}" for number in range(2000))]
made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
made.pre_tokenizer = pre_tokenizers.Whitespace()
PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]").save_pretrained(sys.argv[1])
"""


def aiperf(program, url, folder, asked):
    """(requests/s, tokens/s, late) of a load; late are seconds after the schedule of an even rate."""
    how = (
        ("--request-rate", str(asked["rate"]), "--arrival-pattern", "constant")
        if "rate" in asked
        else ("--concurrency", str(asked["places"]))
    )
    out = folder / "aiperf"
    words = (
        "profile", "--model", "scripted", "--url", url, "--endpoint-type", "chat", "--streaming", *how,
        "--request-count", str(asked["requests"]), "--prompt-input-tokens-mean", "32",
        "--prompt-output-tokens-mean", str(asked["tokens"]),
        "--tokenizer", str(folder / WORDS), "--ui", "none", "--output-artifact-dir", str(out), "--workers-max", "1",
    )  # fmt: skip
    _ran([str(program), *words], folder)
    report = json.loads(next(out.rglob("profile_export_aiperf.json")).read_text())
    starts = []
    for file in out.rglob("profile_export.jsonl"):
        rows = (json.loads(line) for line in file.read_text().splitlines())
        starts = sorted(row["metadata"]["request_start_ns"] * 1e-9 for row in rows)
    late = np.array(starts) - np.arange(len(starts)) / asked["rate"] if "rate" in asked and starts else np.array([])
    return (
        report["request_throughput"]["avg"], report["output_token_throughput"]["avg"],
        late - late.min() if len(late) else None,
    )  # fmt: skip


def guidellm(program, url, folder, asked):
    how = f"kind=constant,rate={asked['rate']}" if "rate" in asked else f"kind=concurrent,streams={asked['places']}"
    out = folder / "guidellm.json"
    words = (
        "run", "--backend", f"kind=openai_http,target={url},model=scripted", "--profile", how,
        "--constraint", f"kind=max_requests,count={asked['requests']}",
        "--tokenizer", f"kind=hf_auto,model={folder / WORDS}",
        "--data", f"kind=synthetic_text,prompt_tokens=32,output_tokens={asked['tokens']}",
        "--output", f"kind=json,path={out}", "--disable-console",
    )  # fmt: skip
    _ran([str(program), *words], folder)
    report = json.loads(out.read_text())["benchmarks"][0]
    metrics = report["metrics"]
    late = [
        row["info"]["timings"]["request_start"] - row["info"]["timings"]["targeted_start"]
        for row in report["requests"]["successful"]
    ]
    return (
        metrics["requests_per_second"]["successful"]["mean"], metrics["output_tokens_per_second"]["successful"]["mean"],
        np.array(late),
    )  # fmt: skip


PEERS = {"AIPerf": ("aiperf", aiperf), "GuideLLM": ("guidellm", guidellm)}


def _ran(command, folder):
    alone = ["env", "PYTHONPATH=", f"HOME={folder}", *command]
    done = subprocess.run(alone, capture_output=True, text=True, timeout=_LIMIT_S, cwd=folder, check=False)
    if done.returncode:
        raise RuntimeError((done.stderr or done.stdout).strip().splitlines()[-1][:300])


def peer_figures(python, url, *, ours_per_s):
    """What each peer beside an interpreter reports of the same load; `ours_per_s` is of the same load by the wall."""
    for name, (program, run) in PEERS.items():
        path = Path(python).parent / program
        if path.exists():
            with tempfile.TemporaryDirectory() as made:
                yield from _of(name, partial(run, path, url, Path(made)), python, Path(made), ours_per_s)


def _of(name, run, python, folder, ours_per_s):
    subprocess.run([python, "-c", _TOKENISER, str(folder / WORDS)], capture_output=True, check=True)
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    try:
        per_s, tokens_per_s, _ = run(CLOSED)
        after, took = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - begun
        late = run(OPEN)[2]
    except (RuntimeError, OSError, KeyError, StopIteration, subprocess.TimeoutExpired) as error:
        yield Figure(name=f"load: {name}", value=float("nan"), unit="", target="", met=True, note=f"failed: {error}")
        return
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    yield Figure(
        name=f"load: {name}, {CLOSED['places']} places", value=per_s, unit="requests/s of wall",
        target=f"< ours, {ours_per_s:.4g}", met=per_s < ours_per_s,
        note=f"{tokens_per_s:.4g} tokens/s; {cpu:.3g} s of CPU, {took:.3g} s in all, for {CLOSED['requests']} requests",
    )  # fmt: skip
    if late is not None and len(late):
        middle, high = 1e3 * np.quantile(late, (0.5, 0.99))
        yield Figure(
            name=f"load: {name}, send delay p99 at {OPEN['rate']} requests/s", value=high, unit="ms", target="",
            met=True, note=f"p50 {middle:.3g} ms",
        )  # fmt: skip
