"""GuideLLM's `benchmarks.json`.

Shape: vllm-project/guidellm, src/guidellm/benchmark/schemas/generative (report.py, metrics.py): `benchmarks`, one for
each rate or concurrency that was tried, each with `metrics`, whose distributions are given for successful, incomplete,
errored and all requests; only the successful are taken. Its time per output token counts the first token too, so the
inter-token latency, which does not, is the decode step here; its mean is weighted by tokens. `requests` holds the
requests that were kept. Each benchmark is a profile.
"""

from collections.abc import Mapping
from typing import Any

from inferometer.core.profile import ModelFacts, Profile
from inferometer.core.served import Distribution, LevelFigures
from inferometer.engines.results.assemble import Draft, finish
from inferometer.engines.results.base import Document
from inferometer.engines.results.fields import listed, mapping, milliseconds, optional_ms, positive, text, whole
from inferometer.engines.results.serving import Measure, Offered, add_level, add_requests, add_sizes, distribution


class GuideLlm:
    name = "guidellm"
    title = "GuideLLM"

    def matches(self, document: Document) -> bool:
        benchmarks = document.keys.get("benchmarks")
        if not isinstance(benchmarks, list) or not benchmarks:
            return False
        metrics = mapping(mapping(benchmarks[0]).get("metrics"))
        return "time_to_first_token_ms" in metrics or "request_latency" in metrics

    def read(self, document: Document) -> tuple[Profile, ...]:
        args = mapping(document.keys.get("args"))
        version = text(mapping(document.keys.get("metadata")).get("guidellm_version"))
        benchmarks = listed(document.keys["benchmarks"], "`benchmarks`")
        return tuple(finish(_draft(entry, args, version), document) for entry in benchmarks)


def _draft(benchmark: Mapping[str, Any], args: Mapping[str, Any], version: str | None) -> Draft:
    metrics = mapping(benchmark.get("metrics"))
    draft = Draft(tool="GuideLLM", version=version)
    config = mapping(benchmark.get("config")) or mapping(benchmark.get("args"))
    if model := text(args.get("model")) or text(mapping(config.get("backend")).get("model")):
        draft.model = ModelFacts(name=model)
    strategy = mapping(config.get("strategy"))
    for key in ("type_", "streams", "rate", "max_concurrency"):
        if value := text(strategy.get(key)):
            draft.host[f"strategy {key.rstrip('_')}"] = value
    kept = mapping(benchmark.get("requests")).get("successful")
    requests = list(listed(kept, "`requests`")) if isinstance(kept, list) else []
    first = _measure(metrics, "time_to_first_token_ms", "mean", requests)
    step = _measure(metrics, "inter_token_latency_ms", "mean weighted by tokens", requests)
    latency_s = _mean(metrics, "request_latency")  # in seconds, unlike the others
    latency = None if latency_s is None else Measure(value_s=latency_s, statistic="mean")
    add_requests(draft, first=first, step=step, whole=latency)
    draft.headline["tokens_per_s"] = _mean(metrics, "output_tokens_per_second")
    rate = strategy.get("rate")
    rate_per_s = positive(rate, "`rate`") if isinstance(rate, int | float) else None
    add_sizes(
        draft,
        prompt=_mean(metrics, "prompt_token_count"),
        generate=_mean(metrics, "output_token_count"),
        arrival=rate_per_s,
    )
    streams = whole(strategy.get("streams") or strategy.get("max_concurrency"), "`streams`")
    single = text(strategy.get("type_")) == "synchronous"
    offered = Offered(rate_per_s=rate_per_s, concurrency=streams or (1 if single else None))
    add_level(draft, offered, _figures(metrics))
    return draft


def _figures(metrics: Mapping[str, Any]) -> LevelFigures:
    totals = mapping(metrics.get("request_totals"))
    good, bad = (whole(totals.get(name), f"`{name}`") or 0 for name in ("successful", "errored"))
    return LevelFigures(
        requests=good + bad,
        completed=good,
        errors={"failed": bad} if bad else {},
        counted=good,
        requests_per_s=_mean(metrics, "requests_per_second"),
        output_tokens_per_s=_mean(metrics, "output_tokens_per_second"),
        in_flight=_mean(metrics, "request_concurrency"),
        ttft_s=_stated(metrics, "time_to_first_token_ms", 3),
        itl_s=_stated(metrics, "inter_token_latency_ms", 3),
        e2e_s=_stated(metrics, "request_latency", 0),
    )


def _stated(metrics: Mapping[str, Any], name: str, digits: int) -> Distribution | None:
    found = _successful(metrics, name)
    shares = mapping(found.get("percentiles"))
    values = {"mean": found.get("mean"), "p50": found.get("median"), "min": found.get("min"), "max": found.get("max")}
    values |= {ours: shares.get(ours) for ours in ("p90", "p95", "p99")}
    return distribution({
        ours: None if value is None else milliseconds(value, f"{ours} of `{name}`", digits=digits) or None
        for ours, value in values.items()
    })  # fmt: skip


def _successful(metrics: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return mapping(mapping(metrics.get(name)).get("successful"))


def _mean(metrics: Mapping[str, Any], name: str) -> float | None:
    return positive(_successful(metrics, name).get("mean"), f"the mean of `{name}`")


def _measure(
    metrics: Mapping[str, Any], name: str, statistic: str, requests: list[Mapping[str, Any]]
) -> Measure | None:
    value = optional_ms(_successful(metrics, name).get("mean"), f"the mean of `{name}`")
    if value is None:
        return None
    each = tuple(sample for request in requests if (sample := optional_ms(request.get(name), f"`{name}` of a request")))
    return Measure(value_s=value, statistic=statistic, samples_s=each or None)


importer = GuideLlm()
