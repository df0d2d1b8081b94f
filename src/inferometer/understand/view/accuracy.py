"""How accurate predictions are, as tables, a chart and a page, from plain rows."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from inferometer.core.frozen import frozen
from inferometer.known import device
from inferometer.measure.calibrate.priors.judged import JudgedSteps
from inferometer.understand.accuracy.cases import CASES, read_cases, read_peers
from inferometer.understand.accuracy.judge import Judged, by_group, error_summary, groups_of, judge_cases, peer_errors
from inferometer.understand.view.charts.render import COLOURS, QUIET, spec
from inferometer.understand.view.render import render
from inferometer.understand.view.table import Column, ReportTable

_SHARES = ("median", "p90", "bias", "covered", "width", "ours")
_STANDING = (
    Column(key="n", heading="n", exact=True),
    Column(key="median", heading="median error"),
    Column(key="p90", heading="90 % below"),
    Column(key="bias", heading="bias"),
    Column(key="covered", heading="80 % interval covers"),
    Column(key="width", heading="its width"),
)


def standing_table(
    groups: Mapping[tuple[str, ...], Mapping[str, Any]],
    headings: Sequence[str],
    *,
    title: str | None = None,
    text: bool = True,
) -> ReportTable:
    """A row for each group. `text` writes shares as per cent; else they stay numbers, for programs."""
    columns = tuple(Column(key=name, heading=name) for name in headings)
    rows = tuple(
        dict(zip(headings, names, strict=True)) | (_worded(standing) if text else dict(standing))
        for names, standing in groups.items()
    )
    return ReportTable(title=title, columns=(*columns, *_STANDING), rows=rows)


def peer_table(rows: Sequence[Mapping[str, Any]], *, text: bool = True) -> ReportTable:
    columns = (
        Column(key="peer", heading="tool"),
        Column(key="phase", heading="phase"),
        Column(key="runtime", heading="measured with"),
        Column(key="n", heading="n", exact=True),
        Column(key="median", heading="median error"),
        Column(key="p90", heading="90 % below"),
        Column(key="ours", heading="Inferometer, same cases"),
    )
    made = tuple(_worded(row) if text else dict(row) for row in rows)
    return ReportTable(title="Other tools on the same cases", columns=columns, rows=made)


def published_table(groups: Sequence[Any], *, text: bool = True) -> ReportTable:
    """Published steps by dataset, unit, engine, quantity and the way they were left out."""
    names = ("dataset", "unit", "engine", "quantity", "way", "steps", "devices", "models")
    shares = {
        "median": "median error", "p90": "90 % below", "bias": "bias", "coverage": "80 % interval covers",
        "width": "its width", "roofline": "a roofline's error",
    }  # fmt: skip
    counts = {"steps", "devices", "models"}
    columns = (
        *(Column(key=name, heading=name, exact=name in counts) for name in names),
        *(Column(key=name, heading=heading) for name, heading in shares.items()),
    )
    rows = []
    for group in groups:
        row = {name: getattr(group, name) for name in (*names, *shares)}
        if text:
            row |= {name: _share(row[name], signed=name == "bias") for name in shares}
        rows.append(row)
    return ReportTable(title="Published measurements", columns=columns, rows=tuple(rows))


def _share(value: float | None, *, signed: bool) -> str | None:
    return None if value is None else f"{value:+.1%}" if signed else f"{value:.1%}"


def target_table(rows: Sequence[Mapping[str, Any]], *, text: bool = True) -> ReportTable:
    """What is aimed at beside what is reached."""
    columns = (
        Column(key="what", heading="what"),
        *_STANDING,
        Column(key="aim", heading="aim: median, 90 %, coverage"),
        Column(key="met", heading="met"),
    )
    made = tuple((_worded(row) if text else dict(row)) | {"aim": row.get("aim"), "met": row.get("met")} for row in rows)
    return ReportTable(title="Aims", columns=columns, rows=made)


def _worded(shares: Mapping[str, Any]) -> dict[str, Any]:
    words = dict(shares)
    for name in _SHARES:
        if isinstance(words.get(name), float):
            words[name] = f"{words[name]:+.1%}" if name == "bias" else f"{words[name]:.1%}"
    return words


def accuracy_chart(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Each case a dot with its interval, on logarithmic axes; on the line the prediction is right.

    A row has measured_s, predicted_s, low_s, high_s, runtime, phase and what names it.
    """
    ends = [row[name] for row in rows for name in ("measured_s", "low_s", "high_s")]
    least, most = (min(ends), max(ends)) if ends else (1e-3, 1.0)
    scale = {"type": "log", "domain": [least / 1.2, most * 1.2]}
    seconds = {"type": "quantitative", "scale": scale, "axis": {"format": "~s", "grid": True}}
    colour = {"field": "group", "type": "nominal", "scale": {"range": list(COLOURS)}, "title": None}
    names = ("model", "runtime", "phase", "batch", "length", "measured_s", "predicted_s", "low_s", "high_s")
    values = [{**row, "group": f"{row['runtime']} {row['phase']}"} for row in rows]
    dots = {
        "mark": {"type": "point", "filled": True, "size": 26},
        "encoding": {
            "y": {"field": "predicted_s", "title": "predicted, seconds", **seconds},
            "color": colour,
            "tooltip": [{"field": name} for name in names],
        },
    }
    bars = {
        "mark": {"type": "rule", "opacity": 0.35},
        "encoding": {"y": {"field": "low_s", **seconds}, "y2": {"field": "high_s"}, "color": colour},
    }
    line = {
        "data": {"values": [{"x": end, "y": end} for end in scale["domain"]]},
        "mark": {"type": "line", "color": QUIET, "strokeDash": [4, 3]},
        "encoding": {"x": {"field": "x", **seconds}, "y": {"field": "y", **seconds}},
    }
    shown = {"data": {"values": values}, "layer": [bars, dots]}
    shown["encoding"] = {"x": {"field": "measured_s", "title": "measured, seconds", **seconds}}
    body = {"width": 560, "height": 520, "layer": [line, shown]}
    subtitle = f"{len(rows)} cases with their 80 % intervals"
    return spec(title="Predicted against measured", subtitle=subtitle, body=body)


def accuracy_page(sections: Sequence[tuple[str, str, ReportTable]]) -> str:
    """The page docs/accuracy.md: for each section a heading, a paragraph and a table."""
    parts = ["# How true predictions are", _INTRODUCTION]
    for heading, words, table in sections:
        parts += [f"## {heading}", words, render(table, "md")]
    return "\n\n".join(part for part in parts if part) + "\n"


_INTRODUCTION = """\
Every case is a measured time that `inferometer predict` is asked for, with the calibration that is shipped for its
device and runtime. The error is |predicted / measured − 1|; *bias* is its direction; an interval *covers* a case whose
measured time lies between low and high, which eight in ten should; *width* is the median of (high − low) / predicted.
A case is **held out** where nothing of its model was used to fit anything, **left out** where its calibration was
fitted again without any case of its model, **seen** where neither holds, and **priors** where no calibration is used.
No number was fitted to a held-out case; but how factors are bounded, and on CPUs which reading of several passes stands
for a case or a probe, was chosen with these cases in sight, so their errors are somewhat kinder than those of models
that nobody has looked at. CPU cases are one thread of a shared virtual machine: a case in its slowest pass takes a
quarter more than in its fastest.
`inferometer accuracy` prints these tables. [Known misses](known-misses.md) has what is still off by more than 2 ×."""


# The accuracy page's sections as plain rows for the report, and the results of devices left out.

# How accurate predictions should be, and whether they are: an aim for each group of cases.
#
# An aim is met if the errors' median and 90th percentile are low enough, and if the intervals cover neither too few
# cases nor too many: intervals that always hold are too wide.


@frozen
class Aim:
    what: str
    median: float
    p90: float | None
    holds: Callable[[Judged], bool]
    covered: tuple[float, float] = (0.75, 0.90)


def _gpu(runtime: str, phase: str) -> Callable[[Judged], bool]:
    return lambda judged: (
        (judged.case.device, judged.case.runtime, judged.case.phase) == ("nvidia-h200", runtime, phase)
    )


def _cpu(runtime: str) -> Callable[[Judged], bool]:
    """Cases with a calibration: a datasheet alone has an aim of its own."""
    return lambda judged: (
        judged.case.runtime == runtime and judged.how != "priors" and device(judged.case.device).unit == "cpu"
    )


AIMS = (
    Aim(what="H200, torch-compile, decode", median=0.05, p90=0.15, holds=_gpu("torch-compile", "decode")),
    Aim(what="H200, torch-compile, prefill", median=0.06, p90=0.15, holds=_gpu("torch-compile", "prefill")),
    Aim(what="H200, vision and BERT forward, graph", median=0.10, p90=0.25, holds=_gpu("torch-graph", "forward")),
    Aim(what="CPU, ONNX Runtime", median=0.08, p90=0.20, holds=_cpu("onnxruntime")),
    Aim(what="CPU, llama.cpp", median=0.08, p90=0.20, holds=_cpu("llamacpp")),
)


def against_aims(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """Each aim that has cases, with what is reached. Cases that a fit or a prior has seen do not count."""
    unseen = [prediction for prediction in judged if prediction.how != "seen"]
    rows = [_row(aim, [prediction for prediction in unseen if aim.holds(prediction)]) for aim in AIMS]
    return [row for row in rows if row["n"]]


def _row(aim: Aim, judged: Sequence[Judged]) -> dict[str, Any]:
    row = error_summary(judged)
    if not row["n"]:
        return {"what": aim.what, **row}
    least, most = aim.covered
    near = f"≤ {aim.median:.0%}" + ("" if aim.p90 is None else f", ≤ {aim.p90:.0%}")
    met = row["median"] <= aim.median and (aim.p90 is None or row["p90"] <= aim.p90)
    met = met and least <= row["covered"] <= most
    return {"what": aim.what, **row, "aim": f"{near}, {least:.0%} to {most:.0%} covered", "met": met}


@frozen
class AccuracyFindings:
    """Everything that the page shows."""

    judged: tuple[Judged, ...]
    priors: tuple[Judged, ...]
    aims: list[dict[str, Any]]
    by_phase: dict[tuple[str, ...], dict[str, Any]]
    by_family: dict[tuple[str, ...], dict[str, Any]]
    by_op: dict[tuple[str, ...], dict[str, Any]]
    priors_by_phase: dict[tuple[str, ...], dict[str, Any]]
    peers: list[dict[str, Any]]


def accuracy_findings() -> AccuracyFindings:
    """All shipped cases, predicted with the shipped calibrations and with priors alone."""
    cases = read_cases()
    return findings_of(judge_cases(cases)[0], judge_cases(cases, priors=True)[0])


def findings_of(judged: tuple[Judged, ...], alone: tuple[Judged, ...]) -> AccuracyFindings:
    """What predictions with the shipped calibrations say, and those with priors `alone`."""

    def grouped(what: str, cases_judged: tuple[Judged, ...]) -> dict[tuple[str, ...], dict[str, Any]]:
        names = groups_of(what)
        return by_group(cases_judged, lambda prediction: (*names(prediction), prediction.how))

    return AccuracyFindings(
        judged=judged,
        priors=alone,
        aims=against_aims(judged),
        by_phase=grouped("phase", judged),
        by_family=grouped("family", judged),
        by_op=grouped("op", judged),
        priors_by_phase=grouped("phase", alone),
        peers=peer_errors(judged, read_peers()),
    )


# What the fit of the priors is off by on published steps that were left out of it: read from its committed results.

RESULTS = (CASES / "published-left-out.json", CASES / "published-tokens-left-out.json")


@cache
def left_out_results() -> tuple[JudgedSteps, ...]:
    """As `python -m workshop.priors.fit` wrote them: one row a group and way of leaving out."""
    read = (msgspec.json.decode(path.read_bytes(), type=tuple[JudgedSteps, ...]) for path in RESULTS)
    return tuple(group for groups in read for group in groups)
