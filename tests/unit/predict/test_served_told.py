"""What is answered of served models, number by number: steps, memory, users, drafts, and ranks that share experts.

`served_told.json` has the answers: `python tests/unit/predict/test_served_told.py` writes them anew (with src and
tests on the path). A change of a rule shows there as the numbers it changes: read them before committing them.
"""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from inferometer.predict.ask import ask, model_graph
from inferometer.predict.options import Hosting, Options, Speculative
from inferometer.predict.served import question as serving
from inferometer.predict.served.steady import Traffic
from inferometer.predict.served.step import PromptChunk
from unit.predict.machines import priors_alone, take_fits_away  # noqa: F401 - `priors_alone` is used by being here

TOLD = Path(__file__).parent / "served_told.json"
SIZES = {"prompt": 700, "generate": 90}
H100 = {"on": "nvidia-h100-sxm", "runtime": "vllm"}
L4 = {"on": "nvidia-l4", "runtime": "vllm"}
PRICED = Options(place=Hosting(usd_per_hour=3.0))
DRAFTED = Options(speculative=Speculative(draft=model_graph("llama-3.2-1b"), length=4, acceptance=0.7))
CASES = {  # model, users, tokens a second that each should see, and what else is asked
    "one card": ("llama-3.2-1b", 24, 30.0, L4),
    "replicas of two stages": ("llama-3.2-1b", 50, None, {**L4, "runtime": "sglang", "tp": 2, "pp": 2, "dp": 3,
                                                          "options": PRICED}),
    "answers that are reserved": ("llama-3.1-8b", 300, 12.0, {**H100, "runtime": "trtllm"}),
    "chunks after a prefix": ("llama-3.1-8b", 40, None, {**H100, "options": Options(chunk=256, cached_prefix=512)}),
    "drafts by a model": ("llama-3.1-8b", 16, None, {**H100, "tp": 2, "options": DRAFTED}),
    "an older engine": ("llama-3.1-8b", 16, None, {**H100, "options": Options(engine_version="0.6.0")}),
    "experts over ranks": ("qwen3-30b-a3b", 64, None, {**H100, "tp": 2}),
    "experts of four bits": ("gpt-oss-20b", 64, None, {**H100, "on": "nvidia-a100-80gb"}),
    "windows": ("gemma-3-4b", 64, None, L4),
    "states": ("mamba-2.8b", 64, None, L4),
}  # fmt: skip
LONG = (PromptChunk(tokens=200), PromptChunk(tokens=90_000, context=500_000))
MIXES = [  # chunks, sequences that decode, and their context
    ((), 0, 0), ((), 1, 0), ((), 3, 100.5), ((), 5000, 9e5), (LONG, 2, 10),
    ((PromptChunk(tokens=7),), 0, 0), ((PromptChunk(tokens=900, context=64),), 33, 800),
]  # fmt: skip


def answer(name):
    model, users, tokens, asked = CASES[name]
    question = ask(model, **SIZES, **asked)
    what, found = serving.served(question), serving.serving_answer(question, users, tokens)
    traffic = Traffic(**SIZES, cached=question.options.cached_prefix, drafts=what.drafts)
    memory = what.memory
    lengths = (1, 15, 1025, 30_000)
    told = {
        "answer": found.document(), "summary": asdict(found.summary), "words": repr(found),
        "saturated": [what.saturated(traffic), what.saturated(traffic, most=3)],
        "batch": what.batch_seconds(traffic, 20),
        "memory": [memory.visible_bytes, memory.usable_bytes, memory.weights_bytes, memory.activations_bytes,
                   memory.reserve_bytes, memory.kv_tokens, memory.state_bytes],
        "held": [[memory.tokens_of(n), memory.sequence_bytes(n), memory.sequences_of(n)] for n in lengths],
        "limited": [what.limited(tokens=99, sequences=7).memory.kv_bytes, what.with_memory_share(0.7).memory.kv_bytes],
        "steps": [[step.seconds(*mix) for mix in MIXES] for step in (what.step, what.step.layer())],
        "mixed": what.step.mixed_seconds(9, 50, 4, 333, chunks=3).tolist(),
        "decode": what.step.decode_seconds(4, 333).tolist(),
        "own": [what.step.launches, what.step.spread, what.step.layers, what.step.cached(3, 100.0)],
        "experts": [[grid.at(n) for n in (1, 100, 1e6)] for grid in serving.gang_seconds(question)],
    }  # fmt: skip
    return rounded(told)


def rounded(value):
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(inner) for inner in value]
    return float(f"{value:.8g}") if isinstance(value, float) else value


@pytest.mark.parametrize("name", CASES)
def test_a_service_is_answered_as_it_was(name):
    found, wanted = answer(name), json.loads(TOLD.read_text())[name]
    assert {part: found[part] for part in wanted} == pytest_approx(wanted)


def pytest_approx(value):
    if isinstance(value, dict):
        return {key: pytest_approx(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [pytest_approx(inner) for inner in value]
    return pytest.approx(value, rel=1e-6) if isinstance(value, float) else value


def test_an_engine_without_rules_of_serving_takes_its_kernels_and_nothing_beside_them():
    question = replace(ask("llama-3.2-1b", on="nvidia-l4", runtime="llamacpp"), calibrated=False)
    step, _ = serving.plain_step(question)
    kernels = step.decode_kernels(4, 333)
    assert step.decode_seconds(4, 333) == kernels == pytest.approx(step.seconds((), 4, 333))
    assert (step.spread, step.costs.tpot_spread.value, step.eager_s) == (0.35, 0.35, 0.0)
    alone = ask("llama-3.2-1b", on="nvidia-l4", runtime="llamacpp", batch=4, context=332, calibrated=False).answer()
    assert float(kernels) == pytest.approx(alone.phase("decode").time_s, rel=0.05)


if __name__ == "__main__":
    take_fits_away()
    told = {name: answer(name) for name in CASES}
    TOLD.write_text("{\n" + ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in told.items()) + "\n}\n")
