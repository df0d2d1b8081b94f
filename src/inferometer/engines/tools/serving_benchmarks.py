"""What serving engines bring to measure themselves, and tables made with it."""

from collections.abc import Mapping
from typing import Any

from inferometer.core.profile import ModelFacts, Profile
from inferometer.core.served import Distribution, LevelFigures
from inferometer.core.units import counted
from inferometer.engines.results.assemble import Draft, facts, finish
from inferometer.engines.results.base import Document
from inferometer.engines.results.fields import listed, number, numbers, optional, optional_ms, positive, text, whole
from inferometer.engines.results.serving import (
    Measure,
    Offered,
    add_level,
    add_requests,
    add_sizes,
    distribution,
    per_step,
)

_VLLM_HOST = ("backend", "endpoint_type", "label", "num_prompts", "request_rate", "burstiness", "max_concurrency")
_STATISTICS = ("mean", "median")
_OURS = {"mean": "mean", "median": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}
_LATENCIES = (("ttft", "ttft"), ("tpot", "tpot"), ("itl", "itl"))
SGLANG = frozenset({"mean_e2e_latency_ms", "total_output_tokens_retokenized"})  # what only SGLang's client writes

Result = Mapping[str, Any]


class VllmBench:
    """What `vllm bench serve --save-result` writes, plain, with `--save-detailed` or with `--append-result`.

    Shape: vllm-project/vllm, vllm/benchmarks/serve.py: one object with `duration`, `completed`, totals and throughputs,
    and `mean_`, `median_`, `std_` and `p99_` of ttft, tpot, itl and e2el in milliseconds, as `--percentile-metrics`
    asked. Detailed results also list each request's `ttfts`, `itls` and `errors`, in seconds. `--append-result` writes
    one object a line. Each object is a profile.
    """

    name = "vllm"
    title = "vllm bench serve"

    def matches(self, document: Document) -> bool:
        return bool(document.records) and all(
            isinstance(result, dict)
            and {"duration", "completed", "request_throughput"} <= result.keys()
            and not result.keys() & SGLANG
            for result in document.records
        )

    def read(self, document: Document) -> tuple[Profile, ...]:
        results = listed(list(document.records), "the file")
        return tuple(finish(_vllm_draft(result), document) for result in results)


def _vllm_draft(result: Result) -> Draft:
    draft = Draft(tool="vllm bench serve", measured_at=text(result.get("date")), host=facts(result, *_VLLM_HOST))
    if model := text(result.get("model_id")):
        draft.model = ModelFacts(name=model)
    _add_run(draft, result, "e2el")
    if failed := positive(result.get("failed"), "`failed`"):
        draft.notes.append(f"the times leave out {counted(round(failed), 'failed request')}")
    return draft


def _add_run(draft: Draft, result: Result, latency: str) -> None:
    """What both clients write under the same names, but for `latency`, the time of a request."""
    firsts, steps = each_request(result)
    add_requests(
        draft,
        first=measured(result, "ttft", firsts),
        step=measured(result, "tpot", steps) or measured(result, "itl", None),
        whole=measured(result, latency, None),
    )
    draft.headline["tokens_per_s"] = optional(result.get("output_throughput"), "`output_throughput`")
    completed, offered = positive(result.get("completed"), "`completed`"), offered_of(result)
    add_sizes(
        draft,
        prompt=mean_of(result, "total_input_tokens", completed),
        generate=mean_of(result, "total_output_tokens", completed),
        arrival=offered.rate_per_s,
    )
    add_level(draft, offered, figures_of(result, latency))


def measured(result: Result, name: str, samples: tuple[float, ...] | None) -> Measure | None:
    for statistic in _STATISTICS:
        value = optional_ms(result.get(f"{statistic}_{name}_ms"), f"`{statistic}_{name}_ms`")
        if value is not None:
            return Measure(value_s=value, statistic=statistic, samples_s=samples or None)
    return None


def each_request(result: Result) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Of each request that succeeded: the time to its first token, and the mean time to each further one."""
    firsts, gaps, errors = result.get("ttfts"), result.get("itls"), result.get("errors")
    each_first = numbers(firsts, "`ttfts`") or ()
    each_gaps = gaps if isinstance(gaps, list) else []
    failed = [bool(error) for error in errors] if isinstance(errors, list) else []
    good = [index >= len(failed) or not failed[index] for index in range(max(len(each_first), len(each_gaps)))]
    steps = [
        per_step(numbers(of_one, f"`itls`[{index}]") or ()) for index, of_one in enumerate(each_gaps) if good[index]
    ]
    return (
        tuple(time for index, time in enumerate(each_first) if good[index] and time > 0),
        tuple(step for step in steps if step),
    )


def mean_of(result: Result, name: str, completed: float | None) -> float | None:
    total = optional(result.get(name), f"`{name}`")
    return None if total is None or completed is None else total / completed


def _rate(value: Any) -> float | None:
    """As fast as possible is written "inf", and is no rate."""
    return number(value, "`request_rate`") if isinstance(value, int | float) and value != float("inf") else None


def offered_of(result: Result) -> Offered:
    return Offered(
        rate_per_s=_rate(result.get("request_rate")),
        concurrency=whole(result.get("max_concurrency"), "`max_concurrency`") or None,
    )


def figures_of(result: Result, latency: str) -> LevelFigures:
    """What it says of the whole run; `latency` is its name for the time of a request."""
    completed = whole(result.get("completed"), "`completed`") or 0
    failed = whole(result.get("failed"), "`failed`") or 0
    return LevelFigures(
        requests=completed + failed,
        completed=completed,
        errors={"failed": failed} if failed else {},
        counted=completed,
        window_s=positive(result.get("duration"), "`duration`"),
        requests_per_s=positive(result.get("request_throughput"), "`request_throughput`"),
        output_tokens_per_s=positive(result.get("output_throughput"), "`output_throughput`"),
        input_tokens_per_s=positive(result.get("input_throughput"), "`input_throughput`"),
        goodput_per_s=optional(result.get("request_goodput"), "`request_goodput`"),
        in_flight=positive(result.get("concurrency"), "`concurrency`"),
        **{f"{name}_s": _vllm_stated(result, key) for name, key in (*_LATENCIES, ("e2e", latency))},  # type: ignore[arg-type] # four distributions
    )


def _vllm_stated(result: Result, name: str) -> Distribution | None:
    return distribution({
        ours: optional_ms(result.get(f"{theirs}_{name}_ms"), f"`{theirs}_{name}_ms`") for theirs, ours in _OURS.items()
    })  # fmt: skip


vllm = VllmBench()


_SGLANG_HOST = (
    "backend", "tag", "dataset_name", "request_rate", "max_concurrency", "random_range_ratio", "accept_length",
)  # fmt: skip


class SglangBench:
    """The result of `python -m sglang.bench_serving --output-file FILE.jsonl`: one object a line, one line a run.

    Shape: sgl-project/sglang, python/sglang/bench_serving.py: like vLLM's client, which it was made from, with the time
    of a request as `…_e2e_latency_ms`, `input_throughput`, the mean number of requests in flight as `concurrency`, and
    the tokens counted again from the text as `total_output_tokens_retokenized`. `--output-details` adds each request's
    times.
    """

    name = "sglang"
    title = "SGLang bench_serving"

    def matches(self, document: Document) -> bool:
        return bool(document.records) and all(
            isinstance(result, dict) and {"duration", "completed"} <= result.keys() and bool(result.keys() & SGLANG)
            for result in document.records
        )

    def read(self, document: Document) -> tuple[Profile, ...]:
        return tuple(finish(_sglang_draft(result), document) for result in listed(list(document.records), "the file"))


def _sglang_draft(result: Mapping[str, Any]) -> Draft:
    draft = Draft(tool="SGLang bench_serving", host=facts(result, *_SGLANG_HOST))
    if (backend := text(result.get("backend"))) and backend.startswith("sglang"):
        draft.runtime = "sglang"
    _add_run(draft, result, "e2e_latency")
    return draft


sglang = SglangBench()


_KEYS = frozenset({"hw", "conc", "framework", "tput_per_gpu"})
_INFERENCEX_HOST = ("precision", "tp", "ep", "dp_attention", "spec_decoding", "disagg", "image")
_ENGINES = {"vllm": "vllm", "sglang": "sglang", "trt": "trtllm", "trtllm": "trtllm", "tensorrt-llm": "trtllm"}


class InferenceX:
    """InferenceX (once InferenceMAX): the aggregated results of its nightly runs, one object or a list of them.

    Shape: SemiAnalysisAI/InferenceX, utils/process_result.py: where it ran (`hw`, `framework`, `precision`, `tp`, `ep`,
    `conc`, `isl`, `osl`), tokens a second and GPU (`tput_per_gpu`, `output_tput_per_gpu`), and the times of vLLM's
    client in seconds (`mean_ttft`, `median_tpot`, `p99_e2el` …). Numbers of requests and errors are not in it.
    """

    name = "inferencex"
    title = "InferenceX"

    def matches(self, document: Document) -> bool:
        results = _results(document)
        return bool(results) and all(isinstance(result, dict) and result.keys() >= _KEYS for result in results)

    def read(self, document: Document) -> tuple[Profile, ...]:
        return tuple(finish(_inferencex_draft(result), document) for result in listed(_results(document), "the file"))


def _results(document: Document) -> list[Any]:
    return document.json if isinstance(document.json, list) else list(document.records)


def _inferencex_draft(result: Result) -> Draft:
    draft = Draft(tool="InferenceX", device=text(result.get("hw")), host=facts(result, *_INFERENCEX_HOST))
    draft.runtime = _ENGINES.get((text(result.get("framework")) or "").lower())
    if model := text(result.get("model")):
        draft.model = ModelFacts(name=model)
    draft.devices = whole(result.get("tp"), "`tp`") or 1  # experts are spread over the same
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
        ttft_s=_inferencex_stated(result, "ttft"),
        tpot_s=_inferencex_stated(result, "tpot"),
        itl_s=_inferencex_stated(result, "itl"),
        e2e_s=_inferencex_stated(result, "e2el"),
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


def _inferencex_stated(result: Result, name: str) -> Distribution | None:
    return distribution({
        ours: optional(result.get(f"{theirs}_{name}"), f"`{theirs}_{name}`") for theirs, ours in _OURS.items()
    })  # fmt: skip


inferencex = InferenceX()
