"""Tools that ask a server, or a system under test, as its users would."""

import re
from collections.abc import Mapping
from typing import Any

from inferometer.core.errors import FormatError
from inferometer.core.profile import ModelFacts, Profile
from inferometer.core.served import Distribution, LevelFigures
from inferometer.core.units import counted
from inferometer.engines.results.assemble import Draft, facts, finish
from inferometer.engines.results.base import Document
from inferometer.engines.results.fields import (
    listed,
    mapping,
    milliseconds,
    number,
    optional,
    optional_ms,
    positive,
    text,
    whole,
)
from inferometer.engines.results.serving import Measure, Offered, add_level, add_requests, add_sizes, distribution


class GuideLlm:
    """GuideLLM's `benchmarks.json`.

    Shape: vllm-project/guidellm, src/guidellm/benchmark/schemas/generative (report.py, metrics.py): `benchmarks`, one
    for each rate or concurrency that was tried, each with `metrics`, whose distributions are given for successful,
    incomplete, errored and all requests; only the successful are taken. Its time per output token counts the first
    token too, so the inter-token latency, which does not, is the decode step here; its mean is weighted by tokens.
    `requests` holds the requests that were kept. Each benchmark is a profile.
    """

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
        return tuple(finish(_guidellm_draft(entry, args, version), document) for entry in benchmarks)


def _guidellm_draft(benchmark: Mapping[str, Any], args: Mapping[str, Any], version: str | None) -> Draft:
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
    first = _guidellm_measure(metrics, "time_to_first_token_ms", "mean", requests)
    step = _guidellm_measure(metrics, "inter_token_latency_ms", "mean weighted by tokens", requests)
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
    add_level(draft, offered, _guidellm_figures(metrics))
    return draft


def _guidellm_figures(metrics: Mapping[str, Any]) -> LevelFigures:
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
        ttft_s=_guidellm_stated(metrics, "time_to_first_token_ms", 3),
        itl_s=_guidellm_stated(metrics, "inter_token_latency_ms", 3),
        e2e_s=_guidellm_stated(metrics, "request_latency", 0),
    )


def _guidellm_stated(metrics: Mapping[str, Any], name: str, digits: int) -> Distribution | None:
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


def _guidellm_measure(
    metrics: Mapping[str, Any], name: str, statistic: str, requests: list[Mapping[str, Any]]
) -> Measure | None:
    value = optional_ms(_successful(metrics, name).get("mean"), f"the mean of `{name}`")
    if value is None:
        return None
    each = tuple(sample for request in requests if (sample := optional_ms(request.get(name), f"`{name}` of a request")))
    return Measure(value_s=value, statistic=statistic, samples_s=each or None)


guidellm = GuideLlm()


_METRICS = ("request_throughput", "request_latency", "time_to_first_token", "output_token_throughput")
_DIGITS = {"s": 0, "sec": 0, "seconds": 0, "ms": 3, "us": 6, "µs": 6, "ns": 9}
_STATISTICS = (("avg", "mean"), ("p50", "median"))


class AiPerf:
    """NVIDIA AIPerf's `profile_export_aiperf.json` (and GenAI-Perf's, whose shape it keeps).

    Shape: ai-dynamo/aiperf, src/aiperf/common/models/export_models.py, schema 1.0 to 1.4: each metric is an object with
    its `unit` and the statistics `avg`, `p1` … `p99`, `min`, `max`, `std`. `inter_token_latency` is (request latency −
    time to first token) / (output tokens − 1). Times of single requests are in other files.
    """

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
            first=_aiperf_measure(export, "time_to_first_token"),
            step=_aiperf_measure(export, "inter_token_latency"),
            whole=_aiperf_measure(export, "request_latency"),
        )
        draft.headline["tokens_per_s"] = _average(export, "output_token_throughput")
        add_sizes(
            draft,
            prompt=_average(export, "input_sequence_length"),
            generate=_average(export, "output_sequence_length"),
            arrival=_aiperf_rate(mapping(export.get("input_config"))),
        )
        failed = _average(export, "error_request_count")
        if failed:
            draft.notes.append(f"the times leave out {counted(round(failed), 'failed request')}")
        add_level(draft, _offered(mapping(export.get("input_config"))), _aiperf_figures(export))
        return (finish(draft, document),)


def _aiperf_measure(export: Mapping[str, Any], name: str) -> Measure | None:
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
    return Offered(rate_per_s=_aiperf_rate(config) or None, concurrency=whole(places, "`concurrency`") or None)


def _aiperf_figures(export: Mapping[str, Any]) -> LevelFigures:
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
        ttft_s=_aiperf_stated(export, "time_to_first_token"),
        tpot_s=_aiperf_stated(export, "inter_token_latency"),  # its own name for what is TPOT here
        e2e_s=_aiperf_stated(export, "request_latency"),
    )


def _aiperf_stated(export: Mapping[str, Any], name: str) -> Distribution | None:
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


def _aiperf_rate(config: Mapping[str, Any]) -> float | None:
    rate = mapping(config.get("loadgen")).get("request_rate")
    return number(rate, "`request_rate`") if isinstance(rate, int | float) and not isinstance(rate, bool) else None


aiperf = AiPerf()


_TITLE = b"MLPerf Results Summary"
_LINE = re.compile(r"^\s*(.+?)\s*:\s+(.+?)\s*$", re.MULTILINE)
_OURS = {"min": "min", "max": "max", "mean": "mean", "50.00 percentile": "p50", "90.00 percentile": "p90",
         "95.00 percentile": "p95", "99.00 percentile": "p99"}  # fmt: skip
_NS = 9  # digits from a nanosecond to a second


class LoadGen:
    """MLPerf LoadGen's `mlperf_log_summary.txt`.

    Shape: mlcommons/inference, loadgen/results.cc: `name : value` lines under rulers. Times are nanoseconds: of queries
    (`Mean latency (ns)`, `99.00 percentile latency (ns)`), of first tokens and of output tokens where tokens are
    counted. The scenario decides which rate it states; of Offline, where all samples are sent at once, the time of one
    says little.
    """

    name = "loadgen"
    title = "MLPerf LoadGen"

    def matches(self, document: Document) -> bool:
        return _TITLE in document.data[:4096]

    def read(self, document: Document) -> tuple[Profile, ...]:
        lines = {name.lower(): value for name, value in _LINE.findall(document.text)}
        if "scenario" not in lines:
            raise FormatError("It names no scenario.", remedy="Give the whole mlperf_log_summary.txt.")
        draft = Draft(tool="MLPerf LoadGen", host={key: lines[key] for key in ("scenario", "mode") if key in lines})
        if name := text(lines.get("sut name")):
            draft.model = ModelFacts(name=name)
        e2e, ttft, tpot = (
            _loadgen_stated(lines, of) for of in ("latency", "first token latency", "time to output token")
        )
        add_requests(draft, first=_loadgen_measure(ttft), step=_loadgen_measure(tpot), whole=_loadgen_measure(e2e))
        tokens = _loadgen_rate(lines, "completed tokens per second", "tokens per second")
        draft.headline["tokens_per_s"] = tokens
        valid = text(lines.get("result is"))
        draft.notes.append(f"LoadGen calls the result {valid or 'neither valid nor invalid'}")
        offered = _loadgen_rate(lines, "scheduled samples per second")
        figures = LevelFigures(
            requests=0,
            completed=0,
            requests_per_s=_loadgen_rate(lines, "completed samples per second", "samples per second"),
            offered_per_s=offered,
            output_tokens_per_s=tokens,
            ttft_s=ttft,
            tpot_s=tpot,
            e2e_s=e2e,
        )
        single = (text(lines.get("scenario")) or "").lower() == "singlestream"
        add_level(draft, Offered(rate_per_s=offered, concurrency=1 if single else None), figures)
        return (finish(draft, document),)


def _loadgen_rate(lines: Mapping[str, str], *names: str) -> float | None:
    return next((positive(lines[name], f"`{name}`") for name in names if name in lines), None)


def _loadgen_stated(lines: Mapping[str, str], of: str) -> Distribution | None:
    known = {}
    for theirs, ours in _OURS.items():
        value = lines.get(f"{theirs} {of} (ns)")
        known[ours] = None if value is None else milliseconds(value, f"`{theirs} {of}`", digits=_NS) or None
    return distribution(known)


def _loadgen_measure(stated: Distribution | None) -> Measure | None:
    if stated is None:
        return None
    for name, words in (("mean", "mean"), ("p50", "median")):
        value = getattr(stated, name)
        if value is not None:
            return Measure(value_s=value, statistic=words)
    return None


loadgen = LoadGen()
