"""An explanation as a page: headline, where the time goes, the roofline in a line, findings, what to run next.

It is drawn from the explanation's document, so that a stored or imported one looks the same.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from inferometer.core.units import format_quantity
from inferometer.understand.view.render import render
from inferometer.understand.view.table import Bars, Column, ReportTable, columns, filled
from inferometer.understand.view.terminal import draw_heading

_MOST_ROWS = 8
_MOST_KINDS = 3  # of a difference from the prediction
_WORTH_SHOWING = 5e-4  # a smaller remainder rounds to 0.0 %
_MARKS = {"critical": "✗", "warning": "!", "info": "·"}
_SHARES = columns(
    Column(key="name", heading="what"),
    "count", "time_s",
    Column(key="part", heading="share"),
    "predicted_s", "floor_s", "flops", "bytes",
)  # fmt: skip
_FINDINGS = columns(
    Column(key="code", heading="finding"),
    "severity",
    Column(key="title", heading="what"),
    "phase",
    Column(key="stake_s", heading="at stake", unit="s"),
    Column(key="gain", heading="gain", unit="1"),
    Column(key="gain_low", heading="low", unit="1"),
    Column(key="gain_high", heading="high", unit="1"),
    Column(key="gain_of", heading="of"),
    Column(key="changes", heading="change"),
    Column(key="advice", heading="what to do"),
)
_TRIALS = columns(
    "change",
    Column(key="code", heading="for"),
    Column(key="predicted_text", heading="predicted", label="predicted"),
    Column(key="obtained_text", heading="obtained", label="obtained"),
    "before_s",
    "after_s",
    "verdict",
    Column(key="why_text", heading="why", label="reason"),
)
_BY = {
    "phase": "A request by phase", "kind": "{} by kind of op", "bound": "{} by what bounds it", "layer": "{} by layer",
    "block": "{} by block", "unit": "{} by unit", "host": "{} by host and device", "parts": "{} by step of the engine",
}  # fmt: skip
_SHOWN = ("kind", "bound", "layer", "unit", "host", "parts")
_ENDINGS = (
    ("_bytes_per_s", "B/s"), ("_flop_per_byte", "FLOP/B"), ("_flop_per_s", "FLOP/s"), ("_bytes", "B"), ("bytes", "B"),
    ("_s", "s"),
)  # fmt: skip
_FLAGS = ("disturbed",)
_PERCENT = ("share", "utilisation", "waste", "variation")


def explanation_page(plain: Mapping[str, Any], form: str = "table") -> str:
    """The whole page, for a terminal or as Markdown."""
    title = f"{plain['model']} on {plain['device']}"
    sizes = ", ".join(f"{name} {value}" for name, value in plain["workload"].items())
    subtitle = " · ".join(filter(None, (plain["kind"], plain["runtime"], sizes)))
    parts = [f"# {title}\n\n{subtitle}\n" if form == "md" else draw_heading(title, subtitle), plain["headline"], ""]
    for table in shown_tables(plain):
        parts += [*_headed(share_table(table), form), ""]
    parts += [*_section("Roofline", form), *_listed(roofline_lines(plain["roofline"]), form), ""]
    parts += _section("What was noticed", form)
    for number, finding in enumerate(plain["findings"], start=1):
        parts += finding_lines(finding, number, form)
    if not plain["findings"]:
        parts.append("Nothing that stands out.")
    if plain.get("residual"):
        parts += ["", *_section("Against the prediction", form), *_listed(residual_lines(plain["residual"]), form)]
    if plain.get("tried"):
        parts += ["", *_headed(trial_table(plain["tried"]), form)]
    if plain["next"]:
        parts += ["", *_section("Next", form), *_listed([f"$ {line}" for line in plain["next"]], form)]
    if plain["notes"]:
        parts += ["", *_listed(plain["notes"], form)]
    return "\n".join(parts)


def residual_lines(stories: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence for each phase; if its prediction is off, also the kinds of op that cause most of the difference."""
    lines = []
    for story in stories:
        lines.append(story["sentence"])
        if story["blame"] != "none":
            lines += [_gap_line(kind) for kind in story["kinds"][:_MOST_KINDS]]
    return lines


def _gap_line(kind: Mapping[str, Any]) -> str:
    measured, predicted = (format_quantity(kind[key], "s", digits=3) for key in ("measured_s", "predicted_s"))
    return f"  {kind['kind']}: {measured}, predicted {predicted}, {abs(kind['share']):.0%} of the difference"


def _section(title: str, form: str) -> list[str]:
    return [f"## {title}", ""] if form == "md" else [draw_heading(title)]


def _headed(table: ReportTable, form: str) -> list[str]:
    """The table; in Markdown, its title and note are printed around it."""
    if form != "md":
        return [render(table, "table")]
    return [f"## {table.title}", "", render(table, "md"), *(["", table.note] if table.note else [])]


def _listed(lines: Sequence[str], form: str) -> list[str]:
    return [f"- {line}" if form == "md" else line for line in lines]


def shown_tables(plain: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The request, if it has several phases; then the longest phase, split in each way that has several rows."""
    tables = plain["attribution"]
    request = next((table for table in tables if table["by"] == "phase"), None)
    if request is not None and len(request["rows"]) > 1:
        yield request
    split = {table["phase"] for table in tables if table["phase"] is not None}
    ranked = [row["name"] for row in (request["rows"] if request else ()) if row["name"] in split]
    main = ranked[0] if ranked else next(iter(sorted(split)), None)
    for by in _SHOWN:
        table = next((table for table in tables if table["by"] == by and table["phase"] == main), None)
        if table is not None and len(table["rows"]) > 1:
            yield table


def share_table(table: Mapping[str, Any], most: int = _MOST_ROWS) -> ReportTable:
    """The largest rows, the others together, the remainder, and the total, so that a reader can check the sum."""
    total_s, rows = table["whole_s"], [dict(row) for row in table["rows"] if row["time_s"] > 0]
    if len(rows) > most + 1:  # one more row is as short as "1 others"
        others = rows[most:]
        sums = {key: sum(row[key] for row in others) for key in ("time_s", "count")}
        rows = [*rows[:most], {"name": f"{len(others)} others", **sums}]  # never 1, see above
    if abs(table["remainder_s"]) >= _WORTH_SHOWING * total_s:
        rows.append({"name": table["remainder"], "time_s": table["remainder_s"]})
    rows.append({"name": "together", "time_s": total_s})
    for row in rows:
        row["part"] = f"{row['time_s'] / total_s:.1%}" if total_s > 0 else None
    phase = table["phase"] or ""
    title = _BY[table["by"]].format(phase[:1].upper() + phase[1:])
    return ReportTable(columns=filled(_SHARES, rows), rows=tuple(rows), title=title, bars=Bars(length="time_s"))


def roofline_lines(roof: Mapping[str, Any]) -> list[str]:
    """The peak, the bandwidth and their ridge, and a line for each phase whose work is known."""
    lines = []
    peak, memory = roof["peak"], roof["memory"]
    if peak and memory:
        lines.append(
            f"{peak['level']} {format_quantity(peak['value'], 'FLOP/s', digits=3)} ({peak['origin']}), "
            f"{memory['level']} {format_quantity(memory['value'], 'B/s', digits=3)} ({memory['origin']}): "
            f"the ridge is at {roof['ridge_flop_per_byte']:.3g} FLOP a byte."
        )
    for phase in roof["phases"]:
        known = [(name, share) for name, share in phase["regimes"].items() if name != "unknown" and share >= 0.005]
        if not known:
            continue
        shares = ", ".join(f"{share:.0%} {name}" for name, share in sorted(known, key=lambda pair: -pair[1]))
        lines.append(f"{phase['name']}: {_reached(phase)}{shares}.")
    return lines or ["There is no roofline: the device's peak and bandwidth, or the work of the ops, are unknown."]


def _reached(phase: Mapping[str, Any]) -> str:
    if phase["intensity"] is None:
        return ""
    parts = [f"{phase['intensity']:.3g} FLOP a byte"]
    if phase["flop_per_s"] is not None:
        parts.append(f"reaches {format_quantity(phase['flop_per_s'], 'FLOP/s', digits=3)}")
    if phase["attainable_flop_per_s"] is not None:
        parts.append(f"of {format_quantity(phase['attainable_flop_per_s'], 'FLOP/s', digits=3)} attainable")
    if phase["efficiency"] is not None:
        parts.append(f"({phase['efficiency']:.0%})")
    return f"{' '.join([parts[0] + ',', *parts[1:]]) if len(parts) > 1 else parts[0]}; "


def finding_lines(finding: Mapping[str, Any], number: int, form: str = "table") -> list[str]:
    """One finding: what it is, the evidence, what to do, and what that would gain."""
    mark, code = _MARKS[finding["severity"]], finding["code"]
    details = [evidence_text(finding["evidence"])] if finding["evidence"] else []
    if finding["advice"]:
        details.append(f"→ {finding['advice']}")
    if gain := _gain_text(finding):
        details.append(gain)
    if form == "md":
        return [
            f"{number}. **{finding['title']}** (`{code}`, {finding['severity']})",
            *(f"   - {line}" for line in details),
        ]
    return [f"{number}. {mark} {finding['title']}  [{code}]", *(f"     {line}" for line in details)]


def _gain_text(finding: Mapping[str, Any]) -> str | None:
    if finding["gain"] is None:
        limit = finding["evidence"].get("speedup_at_most")
        return f"gain: at most {limit:.2f} ×" if limit else None
    between = ""
    if finding["gain_low"] is not None and finding["gain_high"] is not None:
        between = f" ({finding['gain_low']:.2f} to {finding['gain_high']:.2f})"
    change = f" with {finding['changes'][0]}" if finding["changes"] else ""
    what = {"throughput": "the throughput"}.get(finding["gain_of"] or "", "as fast")
    return f"gain: {finding['gain']:.2f} × {what}{between}{change}, predicted"


def evidence_text(numbers: Mapping[str, float]) -> str:
    """Numbers with the units that their names end with."""
    return ", ".join(f"{_words(name)} {_number(name, value)}" for name, value in numbers.items())


def _words(name: str) -> str:
    for ending, _ in _ENDINGS:
        if name.endswith(ending) and name != ending:
            name = name.removesuffix(ending)
            break
    return name.replace("_", " ").strip()


def _number(name: str, value: float) -> str:
    if name in _FLAGS:
        return "yes" if value else "no"
    if name.endswith(_PERCENT) or name.startswith(_PERCENT):
        return f"{value:.1%}"
    for ending, unit in _ENDINGS:
        if name.endswith(ending):
            return f"{value:.3g} FLOP/B" if unit == "FLOP/B" else format_quantity(value, unit, digits=3)
    return f"{value:.4g}"


def findings_table(findings: Sequence[Mapping[str, Any]]) -> ReportTable:
    return ReportTable(columns=_FINDINGS, rows=tuple(findings))


def trial_table(tried: Sequence[Mapping[str, Any]]) -> ReportTable:
    """Predicted against measured gains; a change that was not tried has the reason."""
    rows = []
    for trial in tried:
        inside = {True: "as predicted; ", False: "not as predicted; ", None: ""}[trial["as_predicted"]]
        rows.append({
            **trial,
            "predicted_text": _times(trial["predicted"], trial["predicted_low"], trial["predicted_high"]),
            "obtained_text": _times(trial["obtained"], trial["low"], trial["high"]),
            "verdict": trial["verdict"] or "not tried",
            "why_text": trial["why"] or f"{inside}{trial['reason']}",
        })  # fmt: skip
    return ReportTable(
        columns=_TRIALS, rows=tuple(rows), title="Tried here", note="Times are for one item of the batch."
    )


def _times(value: float | None, low: float | None, high: float | None) -> str | None:
    if value is None:
        return None
    return f"{value:.2f} ×" if low is None or high is None else f"{value:.2f} × ({low:.2f} – {high:.2f})"


def page_text(page: Mapping[str, str], form: str = "table") -> str:
    """The page about one finding: what it is, the evidence, why, what to do, how sure."""
    headings = {"evidence": "Evidence", "why": "Why", "do": "What to do", "sure": "How sure"}
    if form == "md":
        return "\n\n".join(
            [f"## `{page['code']}`", page["what"], *(f"**{title}.** {page[key]}" for key, title in headings.items())]
        )
    parts = [draw_heading(page["code"]), page["what"]]
    for key, title in headings.items():
        parts += ["", draw_heading(title), page[key]]
    return "\n".join(parts)
