"""GuideLLM and AIPerf on the scripted server of `load_client.py`, as their own users run them.

`python benchmarks/load_client.py --peer-python VENV/bin/python` takes the programs beside that interpreter: they need
packages that this project has no use for. Both get the load that ours gets, one after the other in the same run, and a
tokeniser of single words, since nothing is downloaded. Requests a second are by their own report; CPU is of all their
processes, with their start, which ours is measured without: the note says what it was.
"""

import json
import os
import resource
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from figure import Figure

_LIMIT_S = 240
_TOKENISER = """
import sys
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
words = ["[UNK]", *(f"w{number}" for number in range(2000))]
made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
made.pre_tokenizer = pre_tokenizers.Whitespace()
PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]").save_pretrained(sys.argv[1])
"""


def aiperf(program, url, folder, tokeniser, *, load, requests, tokens):
    """(requests/s, tokens/s, late) of a load; late are seconds after the schedule of an even rate."""
    how = (
        ("--request-rate", str(load["rate"]), "--arrival-pattern", "constant")
        if "rate" in load
        else ("--concurrency", str(load["places"]))
    )
    out = folder / "aiperf"
    words = (
        "profile", "--model", "scripted", "--url", url, "--endpoint-type", "chat", "--streaming", *how,
        "--request-count", str(requests), "--prompt-input-tokens-mean", "32", "--prompt-output-tokens-mean", str(tokens),
        "--tokenizer", str(tokeniser), "--ui", "none", "--output-artifact-dir", str(out), "--workers-max", "1",
    )  # fmt: skip
    _ran([str(program), *words], folder)
    report = json.loads(next(out.rglob("profile_export_aiperf.json")).read_text())
    starts = []
    for file in out.rglob("profile_export.jsonl"):
        rows = (json.loads(line) for line in file.read_text().splitlines())
        starts = sorted(row["metadata"]["request_start_ns"] * 1e-9 for row in rows)
    late = np.array(starts) - np.arange(len(starts)) / load["rate"] if "rate" in load and starts else np.array([])
    return (
        report["request_throughput"]["avg"], report["output_token_throughput"]["avg"],
        late - late.min() if len(late) else None,
    )  # fmt: skip


def guidellm(program, url, folder, tokeniser, *, load, requests, tokens):
    how = f"kind=constant,rate={load['rate']}" if "rate" in load else f"kind=concurrent,streams={load['places']}"
    out = folder / "guidellm.json"
    words = (
        "run", "--backend", f"kind=openai_http,target={url},model=scripted", "--profile", how,
        "--constraint", f"kind=max_requests,count={requests}", "--tokenizer", f"kind=hf_auto,model={tokeniser}",
        "--data", f"kind=synthetic_text,prompt_tokens=32,output_tokens={tokens}", "--output", f"kind=json,path={out}",
        "--disable-console",
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
    quiet = {**os.environ, "HOME": str(folder), "PYTHONPATH": ""}
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, env=quiet, cwd=folder, check=False)
    if done.returncode:
        raise RuntimeError((done.stderr or done.stdout).strip().splitlines()[-1][:300])


def figures(python, url, *, ours_per_s, places=64, requests=600, tokens=16, rate=50):
    """What each peer beside an interpreter reports of the same load; `ours_per_s` is of the same load by the wall."""
    for name, (program, run) in PEERS.items():
        path = Path(python).parent / program
        if not path.exists():
            continue
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            subprocess.run([python, "-c", _TOKENISER, str(folder / "words")], capture_output=True, check=True)
            before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            try:
                closed = run(
                    path, url, folder, folder / "words", load={"places": places}, requests=requests, tokens=tokens
                )
                after, took = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - begun
                opened = run(path, url, folder, folder / "words", load={"rate": rate}, requests=5 * rate, tokens=tokens)
            except (RuntimeError, OSError, KeyError, StopIteration, subprocess.TimeoutExpired) as error:
                yield Figure(
                    name=f"load: {name}", value=float("nan"), unit="", target="", met=True, note=f"failed: {error}"
                )
                continue
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        yield Figure(
            name=f"load: {name}, {places} places", value=closed[0], unit="requests/s of wall",
            target=f"< ours, {ours_per_s:.4g}", met=closed[0] < ours_per_s,
            note=f"{closed[1]:.4g} tokens/s; {cpu:.3g} s of CPU and {took:.3g} s in all for {requests} requests",
        )  # fmt: skip
        if opened[2] is not None and len(opened[2]):
            late = 1e3 * np.quantile(opened[2], (0.5, 0.99))
            yield Figure(
                name=f"load: {name}, send delay p99 at {rate} requests/s", value=late[1], unit="ms", target="", met=True,
                note=f"p50 {late[0]:.3g} ms",
            )  # fmt: skip
