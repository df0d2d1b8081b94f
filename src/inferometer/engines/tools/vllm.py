"""The result of `vllm bench serve --save-result`, plain or with `--save-detailed`, or several with `--append-result`.

Shape: vllm-project/vllm, vllm/benchmarks/serve.py: one object with `duration`, `completed`, totals and throughputs,
and `mean_`, `median_`, `std_` and `p99_` of ttft, tpot, itl and e2el in milliseconds, as `--percentile-metrics`
asked. Detailed results also list each request's `ttfts`, `itls` and `errors`, in seconds. `--append-result` writes
one object a line. Each object is a profile.
"""

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

_HOST = ("backend", "endpoint_type", "label", "num_prompts", "request_rate", "burstiness", "max_concurrency")
_STATISTICS = ("mean", "median")
_OURS = {"mean": "mean", "median": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}
_LATENCIES = (("ttft", "ttft"), ("tpot", "tpot"), ("itl", "itl"))
SGLANG = frozenset({"mean_e2e_latency_ms", "total_output_tokens_retokenized"})  # what only SGLang's client writes

Result = Mapping[str, Any]


class VllmBench:
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
        return tuple(finish(_draft(result), document) for result in results)


def _draft(result: Result) -> Draft:
    draft = Draft(tool="vllm bench serve", measured_at=text(result.get("date")), host=facts(result, *_HOST))
    if model := text(result.get("model_id")):
        draft.model = ModelFacts(name=model)
    firsts, steps = each_request(result)
    add_requests(
        draft,
        first=measured(result, "ttft", firsts),
        step=measured(result, "tpot", steps) or measured(result, "itl", None),
        whole=measured(result, "e2el", None),
    )
    draft.headline["tokens_per_s"] = optional(result.get("output_throughput"), "`output_throughput`")
    completed = positive(result.get("completed"), "`completed`")
    add_sizes(
        draft,
        prompt=mean_of(result, "total_input_tokens", completed),
        generate=mean_of(result, "total_output_tokens", completed),
        arrival=_rate(result.get("request_rate")),
    )
    failed = positive(result.get("failed"), "`failed`")
    add_level(draft, offered_of(result), figures_of(result, "e2el"))
    if failed:
        draft.notes.append(f"the times leave out {counted(round(failed), 'failed request')}")
    return draft


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
        **{f"{name}_s": _stated(result, key) for name, key in (*_LATENCIES, ("e2e", latency))},  # type: ignore[arg-type] # four distributions
    )


def _stated(result: Result, name: str) -> Distribution | None:
    return distribution({
        ours: optional_ms(result.get(f"{theirs}_{name}_ms"), f"`{theirs}_{name}_ms`") for theirs, ours in _OURS.items()
    })  # fmt: skip


importer = VllmBench()
