"""The result of `python -m sglang.bench_serving --output-file FILE.jsonl`: one object a line, one line a run.

Shape: sgl-project/sglang, python/sglang/bench_serving.py: like vLLM's client, which it was made from, with the time of
a request as `…_e2e_latency_ms`, `input_throughput`, the mean number of requests in flight as `concurrency`, and the
tokens counted again from the text as `total_output_tokens_retokenized`. `--output-details` adds each request's times.
"""

from collections.abc import Mapping
from typing import Any

from inferometer.core.profile import Profile
from inferometer.engines.results.assemble import Draft, facts, finish
from inferometer.engines.results.base import Document
from inferometer.engines.results.fields import listed, optional, positive, text
from inferometer.engines.results.serving import add_level, add_requests, add_sizes
from inferometer.engines.tools.vllm import SGLANG, each_request, figures_of, mean_of, measured, offered_of

_HOST = ("backend", "tag", "dataset_name", "request_rate", "max_concurrency", "random_range_ratio", "accept_length")


class SglangBench:
    name = "sglang"
    title = "SGLang bench_serving"

    def matches(self, document: Document) -> bool:
        return bool(document.records) and all(
            isinstance(result, dict) and {"duration", "completed"} <= result.keys() and bool(result.keys() & SGLANG)
            for result in document.records
        )

    def read(self, document: Document) -> tuple[Profile, ...]:
        return tuple(finish(_draft(result), document) for result in listed(list(document.records), "the file"))


def _draft(result: Mapping[str, Any]) -> Draft:
    draft = Draft(tool="SGLang bench_serving", host=facts(result, *_HOST))
    if (backend := text(result.get("backend"))) and backend.startswith("sglang"):
        draft.runtime = "sglang"
    firsts, steps = each_request(result)
    add_requests(
        draft,
        first=measured(result, "ttft", firsts),
        step=measured(result, "tpot", steps) or measured(result, "itl", None),
        whole=measured(result, "e2e_latency", None),
    )
    draft.headline["tokens_per_s"] = optional(result.get("output_throughput"), "`output_throughput`")
    completed = positive(result.get("completed"), "`completed`")
    offered = offered_of(result)
    add_sizes(
        draft,
        prompt=mean_of(result, "total_input_tokens", completed),
        generate=mean_of(result, "total_output_tokens", completed),
        arrival=offered.rate_per_s,
    )
    add_level(draft, offered, figures_of(result, "e2e_latency"))
    return draft


importer = SglangBench()
