"""InferenceX (once InferenceMAX): the aggregated results of its nightly runs, one object or a list of them.

Shape: SemiAnalysisAI/InferenceX, utils/process_result.py: where it ran (`hw`, `framework`, `precision`, `tp`, `ep`,
`conc`, `isl`, `osl`), tokens a second and GPU (`tput_per_gpu`, `output_tput_per_gpu`), and the times of vLLM's client
in seconds (`mean_ttft`, `median_tpot`, `p99_e2el` …). Numbers of requests and errors are not in it.
"""

from collections.abc import Mapping
from typing import Any

from inferometer.core.profile import ModelFacts, Profile
from inferometer.core.served import Distribution, LevelFigures
from inferometer.core.workload import Parallel
from inferometer.engines.results.assemble import Draft, facts, finish
from inferometer.engines.results.base import Document
from inferometer.engines.results.fields import listed, optional, positive, text, whole
from inferometer.engines.results.serving import Measure, Offered, add_level, add_requests, add_sizes, distribution

_KEYS = frozenset({"hw", "conc", "framework", "tput_per_gpu"})
_HOST = ("precision", "tp", "ep", "dp_attention", "spec_decoding", "disagg", "image")
_OURS = {"mean": "mean", "median": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}
_ENGINES = {"vllm": "vllm", "sglang": "sglang", "trt": "trtllm", "trtllm": "trtllm", "tensorrt-llm": "trtllm"}

Result = Mapping[str, Any]


class InferenceX:
    name = "inferencex"
    title = "InferenceX"

    def matches(self, document: Document) -> bool:
        results = _results(document)
        return bool(results) and all(isinstance(result, dict) and result.keys() >= _KEYS for result in results)

    def read(self, document: Document) -> tuple[Profile, ...]:
        return tuple(finish(_draft(result), document) for result in listed(_results(document), "the file"))


def _results(document: Document) -> list[Any]:
    return document.json if isinstance(document.json, list) else list(document.records)


def _draft(result: Result) -> Draft:
    draft = Draft(tool="InferenceX", device=text(result.get("hw")), host=facts(result, *_HOST))
    draft.runtime = _ENGINES.get((text(result.get("framework")) or "").lower())
    if model := text(result.get("model")):
        draft.model = ModelFacts(name=model)
    sizes = {name: whole(result.get(name), f"`{name}`") or 1 for name in ("tp", "ep")}
    draft.devices = Parallel(**sizes).devices
    add_requests(draft, first=_measure(result, "ttft"), step=_measure(result, "tpot"), whole=_measure(result, "e2el"))
    per_gpu = positive(result.get("output_tput_per_gpu"), "`output_tput_per_gpu`")
    rate = None if per_gpu is None else per_gpu * draft.devices
    draft.headline["tokens_per_s"] = rate
    add_sizes(draft, prompt=_size(result, "isl"), generate=_size(result, "osl"))
    draft.notes.append(
        "tokens/s are those of a GPU times tp × pp × dp GPUs; how many requests there were is not stated"
    )
    figures = LevelFigures(
        requests=0,
        completed=0,
        output_tokens_per_s=rate,
        ttft_s=_stated(result, "ttft"),
        tpot_s=_stated(result, "tpot"),
        itl_s=_stated(result, "itl"),
        e2e_s=_stated(result, "e2el"),
    )
    add_level(draft, Offered(concurrency=whole(result.get("conc"), "`conc`") or None), figures)
    return draft


def _size(result: Result, name: str) -> float | None:
    return positive(result.get(name), f"`{name}`")


def _measure(result: Result, name: str) -> Measure | None:
    for statistic in ("mean", "median"):
        value = positive(result.get(f"{statistic}_{name}"), f"`{statistic}_{name}`")
        if value is not None:
            return Measure(value_s=value, statistic=statistic)
    return None


def _stated(result: Result, name: str) -> Distribution | None:
    return distribution({
        ours: optional(result.get(f"{theirs}_{name}"), f"`{theirs}_{name}`") for theirs, ours in _OURS.items()
    })  # fmt: skip


importer = InferenceX()
