"""NVIDIA AIPerf's `profile_export_aiperf.json` (and GenAI-Perf's, whose shape it keeps).

Shape: ai-dynamo/aiperf, src/aiperf/common/models/export_models.py, schema 1.0 to 1.4: each metric is an object with
its `unit` and the statistics `avg`, `p1` … `p99`, `min`, `max`, `std`. `inter_token_latency` is (request latency −
time to first token) / (output tokens − 1). Times of single requests are in other files.
"""

from collections.abc import Mapping
from typing import Any

from inferometer.core.errors import FormatError
from inferometer.core.profile import ModelFacts, Profile
from inferometer.core.served import Distribution, LevelFigures
from inferometer.core.units import counted
from inferometer.engines.results.assemble import Draft, facts, finish
from inferometer.engines.results.base import Document
from inferometer.engines.results.fields import mapping, milliseconds, number, optional, positive, text, whole
from inferometer.engines.results.serving import Measure, Offered, add_level, add_requests, add_sizes, distribution

_METRICS = ("request_throughput", "request_latency", "time_to_first_token", "output_token_throughput")
_DIGITS = {"s": 0, "sec": 0, "seconds": 0, "ms": 3, "us": 6, "µs": 6, "ns": 9}
_STATISTICS = (("avg", "mean"), ("p50", "median"))


class AiPerf:
    name = "aiperf"
    title = "AIPerf"

    def matches(self, document: Document) -> bool:
        known = [mapping(document.keys.get(name)) for name in _METRICS]
        return sum("unit" in metric for metric in known) >= 2

    def read(self, document: Document) -> tuple[Profile, ...]:
        export = document.keys
        draft = Draft(
            tool="AIPerf", version=text(export.get("aiperf_version")), measured_at=text(export.get("start_time"))
        )
        config = mapping(export.get("input_config"))
        endpoint = mapping(config.get("endpoint"))
        names = endpoint.get("model_names") or config.get("model_names")
        name = text(names[0]) if isinstance(names, list) and names else text(names)
        if name:
            draft.model = ModelFacts(name=name)
        draft.host |= facts(mapping(config.get("loadgen")), "concurrency", "request_rate", "request_count")
        add_requests(
            draft,
            first=_measure(export, "time_to_first_token"),
            step=_measure(export, "inter_token_latency"),
            whole=_measure(export, "request_latency"),
        )
        draft.headline["tokens_per_s"] = _average(export, "output_token_throughput")
        add_sizes(
            draft,
            prompt=_average(export, "input_sequence_length"),
            generate=_average(export, "output_sequence_length"),
            arrival=_rate(mapping(export.get("input_config"))),
        )
        failed = _average(export, "error_request_count")
        if failed:
            draft.notes.append(f"the times leave out {counted(round(failed), 'failed request')}")
        add_level(draft, _offered(mapping(export.get("input_config"))), _figures(export))
        return (finish(draft, document),)


def _measure(export: Mapping[str, Any], name: str) -> Measure | None:
    metric = mapping(export.get(name))
    unit = text(metric.get("unit")) or ""
    for key, statistic in _STATISTICS:
        what = f"`{key}` of `{name}`"
        if positive(metric.get(key), what) is None:
            continue
        if unit not in _DIGITS:
            raise FormatError(f"`{name}` is in {unit!r}; a unit of time is needed: {', '.join(_DIGITS)}.")
        return Measure(value_s=milliseconds(metric[key], what, digits=_DIGITS[unit]), statistic=statistic)
    return None


def _offered(config: Mapping[str, Any]) -> Offered:
    places = mapping(config.get("loadgen")).get("concurrency")
    return Offered(rate_per_s=_rate(config) or None, concurrency=whole(places, "`concurrency`") or None)


def _figures(export: Mapping[str, Any]) -> LevelFigures:
    good, bad = (round(_average(export, name) or 0) for name in ("request_count", "error_request_count"))
    return LevelFigures(
        requests=good + bad,
        completed=good,
        errors={"failed": bad} if bad else {},
        counted=good,
        window_s=_average(export, "benchmark_duration"),
        requests_per_s=_average(export, "request_throughput"),
        output_tokens_per_s=_average(export, "output_token_throughput"),
        goodput_per_s=_average(export, "goodput"),
        ttft_s=_stated(export, "time_to_first_token"),
        tpot_s=_stated(export, "inter_token_latency"),  # its own name for what is TPOT here
        e2e_s=_stated(export, "request_latency"),
    )


def _stated(export: Mapping[str, Any], name: str) -> Distribution | None:
    metric = mapping(export.get(name))
    digits = _DIGITS.get(text(metric.get("unit")) or "")
    if digits is None:
        return None
    keys = {"avg": "mean", "min": "min", "max": "max", **{share: share for share in ("p50", "p90", "p95", "p99")}}
    return distribution({
        ours: None if (value := metric.get(key)) is None else milliseconds(value, f"`{key}`", digits=digits) or None
        for key, ours in keys.items()
    })  # fmt: skip


def _average(export: Mapping[str, Any], name: str) -> float | None:
    return optional(mapping(export.get(name)).get("avg"), f"`avg` of `{name}`")


def _rate(config: Mapping[str, Any]) -> float | None:
    rate = mapping(config.get("loadgen")).get("request_rate")
    return number(rate, "`request_rate`") if isinstance(rate, int | float) and not isinstance(rate, bool) else None


importer = AiPerf()
