"""Profilers of CPUs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from inferometer.core.errors import FormatError
from inferometer.core.frozen import frozen
from inferometer.core.machine import COUNTERS
from inferometer.core.profile import ModelFacts, OpTime, Phase, Profile
from inferometer.engines.results.assemble import Draft, finish, sum_of
from inferometer.engines.results.base import Document
from inferometer.engines.results.fields import number, text
from inferometer.engines.results.tables import UNITS, TableRow, has_table, ops_by_name, plain_number, table_rows
from inferometer.engines.results.words import kind_of

_HEAD = re.compile(r"^ Performance counter stats for '?(.*?)'?(?: \((\d{1,6}) runs\))?:\s*$", re.MULTILINE)
_EVENT = re.compile(r"^\s+(<not (?:supported|counted)>|[\d.,]+)\s+(?:(msec|ns|Joules|[KMG]?iB)\s+)?([\w.:/=-]+)")
_SECONDS = re.compile(r"^\s+([\d.,]+)(?: \+- [\d.,]+)? seconds (time elapsed|user|sys)\b")
_KNOWN = frozenset({"task-clock", "cpu-clock", "cycles", "instructions", "duration_time", "page-faults"})
_ABSENT = "<not "
_UTILISED = "CPUs utilized"


@frozen
class _Reading:
    event: str
    value: str
    unit: str
    line: int
    metric: tuple[str, str] = ("", "")  # value and unit


class PerfStat:
    """Linux's `perf stat`: its text, its `-x,` output and its `-j` output.

    Shape: tools/perf/Documentation/perf-stat.txt, and as perf 6.1 prints it. The text has a line for each event with
    its count, then the seconds that passed, and those of user and kernel; with `-r N` they are means with their
    variation. `-x` separates value, unit, event, (variation,) run time of the counter, the share of the time that it
    ran, and a metric; it has no line for the time that passed, which is then the event `duration_time`, or the task
    clock over "CPUs utilized".
    """

    name = "perf-stat"
    title = "perf stat"

    def matches(self, document: Document) -> bool:
        if document.records:
            return all(isinstance(row, dict) and {"counter-value", "event"} <= row.keys() for row in document.records)
        return bool(_HEAD.search(document.text)) or _separated(document.text) is not None

    def read(self, document: Document) -> tuple[Profile, ...]:
        draft = Draft(tool=self.title)
        if document.records:
            readings = [
                _Reading(
                    event=text(row.get("event")) or "", value=text(row.get("counter-value")) or "", line=index,
                    unit=text(row.get("unit")) or "",
                    metric=(text(row.get("metric-value")) or "", text(row.get("metric-unit")) or ""),
                )
                for index, row in enumerate(document.records, start=1)
            ]  # fmt: skip
            elapsed = _elapsed(readings, draft)
        elif heading := _HEAD.search(document.text):
            readings, seconds = _printed(document.text)
            elapsed = seconds.get("time elapsed")
            draft.command = heading[1]
            draft.model = ModelFacts(name=heading[1] or document.path.stem)
            draft.host |= {f"{name}_s": seconds[name] for name in ("user", "sys") if name in seconds}
            if heading[2]:
                draft.host["runs"] = int(heading[2])
        else:
            readings = list(_fields(document.text))
            elapsed = _elapsed(readings, draft)
        if elapsed is None:
            raise FormatError(
                "It does not tell how long the command ran.",
                remedy="Count that too: `perf stat -x, -e duration_time,cycles,instructions … COMMAND`.",
            )
        draft.phases.append(Phase(name="run", time_s=elapsed, statistic="mean", counters=_counters(readings, draft)))
        return (finish(draft, document),)


def _counters(readings: Sequence[_Reading], draft: Draft) -> dict[str, float]:
    """The counts that we have names for; others stand in the environment under perf's own."""
    counts: dict[str, float] = {}
    absent = []
    for reading in readings:
        if reading.value.startswith(_ABSENT):
            absent.append(reading.event)
            continue
        name = re.sub(r":[a-zA-Z]+$", "", reading.event)
        plain = re.sub(r"^.*/(.+)/$", r"\1", name).replace("-", "_").removeprefix("cpu_")
        value = plain_number(reading.value, f"`{reading.event}` in line {reading.line}")
        if plain in COUNTERS:
            counts[plain] = counts.get(plain, 0.0) + value  # a hybrid processor counts each kind of core
        elif reading.unit in UNITS:
            draft.host[f"{plain}_s"] = value * UNITS[reading.unit]
        else:
            draft.host[plain] = value
    if absent:
        draft.notes.append(f"not counted there: {', '.join(absent)}")
    return counts


def _printed(whole: str) -> tuple[list[_Reading], dict[str, float]]:
    readings, seconds = [], {}
    for index, line in enumerate(whole.splitlines(), start=1):
        if match := _SECONDS.match(line):
            seconds[match[2]] = plain_number(match[1], f"the seconds in line {index}")
        elif match := _EVENT.match(line):
            readings.append(_Reading(event=match[3], value=match[1], unit=match[2] or "", line=index))
    return readings, seconds


def _separated(whole: str) -> tuple[str, int] | None:
    """What separates the fields, and which of them is the event: the third, or a later one with -I or -A."""
    lines = [line for line in whole.splitlines()[:50] if line.strip() and not line.startswith("#")]
    for line in lines:
        for mark in (",", ";", "\t", "|"):
            fields = line.split(mark)
            place = next((at for at, cell in enumerate(fields[:6]) if cell.partition(":")[0] in _KNOWN), None)
            if place is not None and place >= 2 and len(fields) > place + 2:
                return mark, place
    return None


def _fields(whole: str) -> Iterator[_Reading]:
    found = _separated(whole)
    if found is None:
        return
    mark, place = found
    if place != 2:
        raise FormatError(
            "It has counts of intervals or of single processors.", remedy="Run perf stat without -I, -A and --per-…."
        )
    for index, line in enumerate(whole.splitlines(), start=1):
        cells = [cell.strip() for cell in line.split(mark)]
        if line.startswith("#") or len(cells) < 5 or not cells[2]:
            continue
        metric = next(((value, unit) for value, unit in pairwise(cells) if unit == _UTILISED), ("", ""))
        yield _Reading(event=cells[2], value=cells[0], unit=cells[1], line=index, metric=metric)


def _elapsed(readings: Sequence[_Reading], draft: Draft) -> float | None:
    by_event: Mapping[str, _Reading] = {reading.event.partition(":")[0]: reading for reading in readings}
    lasted = by_event.get("duration_time")
    if lasted is not None and not lasted.value.startswith(_ABSENT):
        return plain_number(lasted.value, f"`duration_time` in line {lasted.line}") * UNITS.get(lasted.unit, 1e-9)
    clock = by_event.get("task-clock")
    if clock is None or clock.metric[1] != _UTILISED or clock.value.startswith(_ABSENT):
        return None
    used = number(clock.metric[0], f"`{_UTILISED}` in line {clock.line}")
    if not used:
        return None
    draft.notes.append("the time is the task clock over the CPUs utilized, which perf rounds")
    return plain_number(clock.value, f"`task-clock` in line {clock.line}") * UNITS.get(clock.unit, 1e-3) / used


perf_stat = PerfStat()


_TIME = "CPU Time"
_OWN = "CPU Time:Self"  # of a report with callers, where the plain column counts what is called too
_GROUPS = ("Function", "Module", "Function Stack", "Source Function", "Task Type", "Thread", "Process")
_TOTAL = re.compile(r"\s*\[?Total\]?\s*", re.IGNORECASE)


class Vtune:
    """Intel VTune Profiler: `vtune -report hotspots -format csv`.

    Shape: the VTune Profiler User Guide, "csv-delimiter" and "Save and Format Command Line Reports". The first column
    is what the report is grouped by (`Function`, `Module`, `Thread`, …), `CPU Time` has seconds of all threads
    together. Any delimiter may be asked for; commas, tabs, semicolons and bars are read.
    """

    name = "vtune"
    title = "Intel VTune Profiler"

    def matches(self, document: Document) -> bool:
        if document.json is not None or document.records or _TIME.encode() not in document.data:
            return False
        return _columns(document.text) is not None

    def read(self, document: Document) -> tuple[Profile, ...]:
        columns = _columns(document.text)
        if columns is None:
            raise FormatError("It has no column `CPU Time`.", remedy="Write it with `vtune -report hotspots`.")
        group, time = columns
        rows = [row for row in table_rows(document.text, columns) if not _TOTAL.fullmatch(row.cells[group])]
        ops = ops_by_name([_op(row, group, time) for row in rows])
        if not ops:
            raise FormatError("It holds no row.")
        draft = Draft(tool=self.title, host={"grouped_by": group})
        draft.phases.append(Phase(name="run", time_s=sum_of(ops), statistic="sum", ops=ops))
        draft.headline["latency_s"] = None
        draft.notes.append("times are CPU seconds of all threads together, not the time that passed")
        return (finish(draft, document),)


def _columns(text: str) -> tuple[str, str] | None:
    pairs = ((group, time) for time in (_OWN, _TIME) for group in _GROUPS)
    return next((pair for pair in pairs if has_table(text, pair)), None)


def _op(row: TableRow, group: str, column: str) -> OpTime:
    value = row.cells[column]
    if value.endswith("%"):
        raise FormatError(
            f"`{column}` in line {row.line} is a share of the whole ({value}), not a time.",
            remedy="Report seconds: leave out `-column` with percentages, or `-report-knob show-as=percent`.",
        )
    name = row.cells[group].strip() or f"row in line {row.line}"
    return OpTime(
        name=name, kind=kind_of(name), kernel=name, unit="cpu", provider=row.cells.get("Module") or None,
        time_s=plain_number(value.removesuffix("s"), f"`{column}` in line {row.line}"),
    )  # fmt: skip


vtune = Vtune()
