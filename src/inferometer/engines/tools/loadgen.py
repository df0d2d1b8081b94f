"""MLPerf LoadGen's `mlperf_log_summary.txt`.

Shape: mlcommons/inference, loadgen/results.cc: `name : value` lines under rulers. Times are nanoseconds: of queries
(`Mean latency (ns)`, `99.00 percentile latency (ns)`), of first tokens and of output tokens where tokens are counted.
The scenario decides which rate it states; of Offline, where all samples are sent at once, the time of one says little.
"""

import re
from collections.abc import Mapping

from inferometer.core.errors import FormatError
from inferometer.core.profile import ModelFacts, Profile
from inferometer.core.served import Distribution, LevelFigures
from inferometer.engines.results.assemble import Draft, finish
from inferometer.engines.results.base import Document
from inferometer.engines.results.fields import milliseconds, positive, text
from inferometer.engines.results.serving import Measure, Offered, add_level, add_requests, distribution

_TITLE = b"MLPerf Results Summary"
_LINE = re.compile(r"^\s*(.+?)\s*:\s+(.+?)\s*$", re.MULTILINE)
_OURS = {"min": "min", "max": "max", "mean": "mean", "50.00 percentile": "p50", "90.00 percentile": "p90",
         "95.00 percentile": "p95", "99.00 percentile": "p99"}  # fmt: skip
_NS = 9  # digits from a nanosecond to a second


class LoadGen:
    name = "loadgen"
    title = "MLPerf LoadGen"

    def matches(self, document: Document) -> bool:
        return _TITLE in document.data[:4096]

    def read(self, document: Document) -> tuple[Profile, ...]:
        lines = {name.lower(): value for name, value in _LINE.findall(document.text)}
        if "scenario" not in lines:
            raise FormatError("It names no scenario.", remedy="Give the whole mlperf_log_summary.txt.")
        return (finish(_draft(lines), document),)


def _draft(lines: Mapping[str, str]) -> Draft:
    draft = Draft(tool="MLPerf LoadGen", host={key: lines[key] for key in ("scenario", "mode") if key in lines})
    if name := text(lines.get("sut name")):
        draft.model = ModelFacts(name=name)
    e2e, ttft, tpot = (_stated(lines, of) for of in ("latency", "first token latency", "time to output token"))
    add_requests(draft, first=_measure(ttft), step=_measure(tpot), whole=_measure(e2e))
    tokens = _rate(lines, "completed tokens per second", "tokens per second")
    draft.headline["tokens_per_s"] = tokens
    valid = text(lines.get("result is"))
    draft.notes.append(f"LoadGen calls the result {valid or 'neither valid nor invalid'}")
    offered = _rate(lines, "scheduled samples per second")
    figures = LevelFigures(
        requests=0,
        completed=0,
        requests_per_s=_rate(lines, "completed samples per second", "samples per second"),
        offered_per_s=offered,
        output_tokens_per_s=tokens,
        ttft_s=ttft,
        tpot_s=tpot,
        e2e_s=e2e,
    )
    single = (text(lines.get("scenario")) or "").lower() == "singlestream"
    add_level(draft, Offered(rate_per_s=offered, concurrency=1 if single else None), figures)
    return draft


def _rate(lines: Mapping[str, str], *names: str) -> float | None:
    return next((positive(lines[name], f"`{name}`") for name in names if name in lines), None)


def _stated(lines: Mapping[str, str], of: str) -> Distribution | None:
    known = {}
    for theirs, ours in _OURS.items():
        value = lines.get(f"{theirs} {of} (ns)")
        known[ours] = None if value is None else milliseconds(value, f"`{theirs} {of}`", digits=_NS) or None
    return distribution(known)


def _measure(stated: Distribution | None) -> Measure | None:
    if stated is None:
        return None
    for name, words in (("mean", "mean"), ("p50", "median")):
        value = getattr(stated, name)
        if value is not None:
            return Measure(value_s=value, statistic=words)
    return None


importer = LoadGen()
