"""What our sessions of language models cost over the engine's own bare loop, in turns on one model.

    python benchmarks/language_engines.py ctranslate2=FOLDER onnxruntime-genai=FOLDER openvino-genai=FOLDER

Folders are made by `inferometer prepare CHECKPOINT --for ENGINE -o FOLDER`. Each generation of ours, from its first
start to its last end, is followed by one of the engine's loop with the same prompt and length; the ratio is that of the
first deciles, because what disturbs only ever adds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from inferometer.engines.base import Request, Target
from inferometer.measure.run.child import runtime_named


def ours(session: Any, request: Request) -> float:
    events = list(session.generate(request))
    return float(events[-1].end_ns - events[0].start_ns) * 1e-9


def ctranslate2_loop(folder: Path, request: Request, threads: int) -> Callable[[], float]:
    import ctranslate2  # noqa: PLC0415 - of the engines that are asked for alone

    generator = ctranslate2.Generator(str(folder), intra_threads=threads, inter_threads=1)
    vocabulary = json.loads((folder / "vocabulary.json").read_text(encoding="utf-8"))
    prompt = [[vocabulary[token] for token in request.prompt]]

    def run() -> float:
        start = time.perf_counter()
        generator.generate_batch(
            prompt, max_length=request.generate, sampling_topk=1, include_prompt_in_result=False, end_token=[]
        )
        return time.perf_counter() - start

    return run


def genai_loop(folder: Path, request: Request, threads: int) -> Callable[[], float]:
    import onnxruntime_genai  # noqa: PLC0415 - as above

    config = onnxruntime_genai.Config(str(folder))
    config.overlay(f'{{"model":{{"decoder":{{"session_options":{{"intra_op_num_threads":{threads}}}}}}}}}')
    model = onnxruntime_genai.Model(config)
    length = len(request.prompt) + request.generate

    def run() -> float:
        chosen = onnxruntime_genai.GeneratorParams(model)
        chosen.set_search_options(max_length=length, min_length=length, do_sample=False)
        generator = onnxruntime_genai.Generator(model, chosen)
        start = time.perf_counter()
        generator.append_tokens(list(request.prompt))
        while not generator.is_done():  # the loop of the engine's own examples: each token is read
            generator.generate_next_token()
            generator.get_next_tokens()[0]
        return time.perf_counter() - start

    return run


def openvino_loop(folder: Path, request: Request, threads: int) -> Callable[[], float]:
    import openvino  # noqa: PLC0415 - as above
    import openvino_genai  # noqa: PLC0415 - as above

    pipeline = openvino_genai.LLMPipeline(
        str(folder), "CPU", ATTENTION_BACKEND="SDPA", INFERENCE_NUM_THREADS=threads, PERFORMANCE_HINT="LATENCY"
    )
    chosen = pipeline.get_generation_config()
    chosen.max_new_tokens, chosen.do_sample, chosen.ignore_eos = request.generate, False, True
    if chosen.eos_token_id < 0:
        chosen.eos_token_id, chosen.stop_token_ids = 0, {0}
    ids = openvino.Tensor(np.array([request.prompt], np.int64))

    def run() -> float:
        start = time.perf_counter()
        pipeline.generate(ids, chosen)
        return time.perf_counter() - start

    return run


LOOPS = {"ctranslate2": ctranslate2_loop, "onnxruntime-genai": genai_loop, "openvino-genai": openvino_loop}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="ENGINE=FOLDER")
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--generate", type=int, default=16)
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--threads", type=int, default=1)
    told = parser.parse_args(arguments)
    request = Request(prompt=tuple(range(100, 100 + told.prompt)), generate=told.generate)
    for model in told.models:
        engine, _, place = model.partition("=")
        target = Target(path=Path(place), format=engine, text=True, threads=told.threads)
        bare = LOOPS[engine](Path(place), request, told.threads)
        with closing(runtime_named(engine).open(target)) as session:
            mine, theirs = [], []
            for turn in range(told.turns + 2):
                pair = (ours(session, request), bare()) if turn % 2 else (bare(), ours(session, request))[::-1]
                if turn >= 2:
                    mine.append(pair[0])
                    theirs.append(pair[1])
        low = [statistics.quantiles(times, n=10)[0] for times in (mine, theirs)]
        print(f"{engine}: {low[0] / low[1]:.4f} of its bare loop ({low[0] * 1e3:.1f} over {low[1] * 1e3:.1f} ms)")


if __name__ == "__main__":
    main(sys.argv[1:])
