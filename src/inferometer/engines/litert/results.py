"""LiteRT's (TensorFlow Lite's) benchmark_model with `--enable_op_profiling=true`: its log, or its CSV.

Shape: tensorflow/core/util/stats_calculator.cc and lite/profiling/profile_summary_formatter.cc write it. After
"Operator-wise Profiling Info for Regular Benchmark Runs:" comes a table "Run Order" with a row for each node: its
type, first and average time in milliseconds **of one call**, percentages, and how often it is called in a run. Older
versions have a column `start`. `--op_profiling_output_mode=csv` (earlier `--profiling_output_csv_file`) separates by
commas. A delegate's node spans its own kernels, which follow under "Delegate internal"; the percentages count both,
so they are not used. The log also tells the time of the whole inference.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from inferometer.core.errors import FormatError
from inferometer.core.profile import ModelFacts, OpTime, Phase, Profile
from inferometer.engines.results.assemble import Draft, finish, remainder, sum_of
from inferometer.engines.results.base import Document
from inferometer.engines.results.fields import milliseconds, number, optional, size, whole
from inferometer.engines.results.words import kind_of, unit_of_delegate

_RUNS = "Operator-wise Profiling Info for Regular Benchmark Run"
_INITIALISATION = "Profiling Info for Benchmark Initialization"
_ORDER = "Run Order"
_INSIDE = "Delegate internal"
_BODY = re.compile(r"Subgraph \(index: \d+\) profile")
_RULE = "====="
_TYPE, _AVERAGE, _CALLS, _NAME = "node type", "avg ms", "times called", "name"
_TIMINGS = re.compile(r"(Init|First inference|Inference \(avg\)):\s*([^,\s]+)")
_GRAPH = re.compile(r"Graph: \[(.+?)\]")
_THREADS = re.compile(r"(?:Num threads|#threads used for CPU inference): \[(\d{1,4})\]")
_MEMORY = re.compile(r"Overall peak memory (?:footprint|usage) \(MB\).*?: ?([^\s]+)")
_MIB = 1 << 20  # what it calls MB: kilobytes of getrusage over 1024
_US = 1e6


@dataclass(slots=True, kw_only=True)
class _Tables:
    """The rows of the tables by where they stand."""

    loading: list[OpTime] = field(default_factory=list)
    nodes: list[OpTime] = field(default_factory=list)
    inside: list[OpTime] = field(default_factory=list)
    bodies: int = 0


class LiteRtBenchmark:
    name = "litert"
    title = "LiteRT benchmark_model"

    def matches(self, document: Document) -> bool:
        if document.json is not None or document.records:
            return False
        return _RUNS.encode() in document.data or (
            _ORDER.encode() in document.data and b"node type" in document.data and b"times called" in document.data
        )

    def read(self, document: Document) -> tuple[Profile, ...]:
        text = document.text
        tables = _tables(text.splitlines())
        if not tables.nodes:
            raise FormatError(
                "It holds no table of ops in their run order.", remedy="Run with --enable_op_profiling=true."
            )
        draft = Draft(tool=self.title, runtime="litert")
        if match := _GRAPH.search(text):
            path = match[1]
            name = path.replace("\\", "/").rpartition("/")[2]
            draft.model = ModelFacts(name=name.removesuffix(".tflite") or path, source=path)
        if match := _THREADS.search(text):
            draft.threads = whole(match[1], "the number of threads")
        if match := _MEMORY.search(text):
            draft.headline["peak_memory_bytes"] = size(
                optional(match[1], "the peak memory"), "the peak memory", unit=_MIB
            )
        timings = {name: number(value, f"`{name}`") / _US for name, value in _TIMINGS.findall(text)}
        load = timings.get("Init", sum_of(tables.loading) if tables.loading else None)
        if load is not None:
            draft.phases.append(Phase(name="load", time_s=load, ops=tuple(tables.loading)))
        if "First inference" in timings:
            draft.phases.append(Phase(name="first_run", time_s=timings["First inference"]))
        wall_s = timings.get("Inference (avg)")
        ops = _opened(tables, draft.notes)
        if tables.bodies:
            draft.notes.append("ops in the bodies of control flow are inside their node's time and are not listed")
        if wall_s is None:
            draft.notes.append("the time is the sum of the ops: the file holds no time of the whole run")
        forward = Phase(
            name="forward",
            time_s=sum_of(ops) if wall_s is None else wall_s,
            statistic="mean",
            ops=ops,
            unattributed_s=None if wall_s is None else remainder(wall_s, ops, draft.notes),
        )
        draft.phases.append(forward)
        return (finish(draft, document),)


def _tables(lines: Sequence[str]) -> _Tables:
    tables = _Tables()
    rows = tables.nodes
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if _RUNS in line:
            rows = tables.nodes
        elif _INITIALISATION in line:
            rows = tables.loading
        elif _INSIDE in line:
            rows = tables.inside if rows is not tables.loading else []
        elif _BODY.search(line):
            tables.bodies += rows is not tables.loading
            rows = []
        elif _RULE in line and _ORDER in line and at < len(lines):
            head = _columns(lines[at])
            table = list(_block(lines, at + 1))
            rows += [_op(cells, head, number) for number, cells in _cells(table, head, first=at + 2)]
            at += 1 + len(table)
    return tables


def _block(lines: Sequence[str], start: int) -> Iterator[str]:
    for line in lines[start:]:
        if not line.strip() or _RULE in line:
            return
        yield line


def _columns(head: str) -> list[str]:
    """The names of the columns, in the words of the text form."""
    columns = re.findall(r"\[([^\]]+)\]", head) or head.split(",")
    names = [name.strip().casefold().replace("avg_ms", _AVERAGE) for name in columns]
    if not {_TYPE, _AVERAGE, _CALLS, _NAME} <= set(names):
        raise FormatError(f"Its table of ops has the columns {', '.join(names)}; {_AVERAGE} and {_CALLS} are needed.")
    return names


def _cells(table: Sequence[str], head: Sequence[str], *, first: int) -> Iterator[tuple[int, list[str]]]:
    """The cells of each row. The type of a kernel may hold commas: what is too much belongs to it."""
    for offset, line in enumerate(table):
        cells = [cell.strip() for cell in line.split("\t")]
        cells = cells[1:] if not cells[0] else cells
        if len(cells) < len(head):
            cells = [cell.strip() for cell in re.split(r"\s{2,}", line.strip())]
        if len(cells) < len(head):
            cells = [cell.strip() for cell in line.split(",")]
        if len(cells) < len(head):
            raise FormatError(f"Line {first + offset} is no row of the table of ops: {line.strip()[:60]!r}.")
        extra = len(cells) - len(head)
        yield first + offset, [", ".join(cells[: extra + 1]), *cells[extra + 1 :]]


def _op(cells: Sequence[str], head: Sequence[str], line: int) -> OpTime:
    row = dict(zip(head, cells, strict=True))
    calls = whole(row[_CALLS], f"`{_CALLS}` in line {line}") or 0
    return OpTime(
        name=row[_NAME] or f"{row[_TYPE]} in line {line}",
        kind=kind_of(row[_TYPE]),
        time_s=milliseconds(row[_AVERAGE], f"`{_AVERAGE}` in line {line}") * max(calls, 1),
        count=max(calls, 1),
        unit=unit_of_delegate(row[_TYPE]),
        kernel=row[_TYPE],
    )


def _opened(tables: _Tables, notes: list[str]) -> tuple[OpTime, ...]:
    """The nodes, a delegate's replaced by the kernels inside it and what they leave of its time."""
    delegates = [op for op in tables.nodes if "delegate" in (op.kernel or "").casefold()]
    if not tables.inside or not delegates:
        return tuple(tables.nodes)
    unit = delegates[0].unit if len({op.unit for op in delegates}) == 1 else None
    inside = [_with_unit(op, unit) for op in tables.inside]
    left = sum_of(delegates) - sum_of(inside)
    if left > 0:
        inside.append(
            OpTime(name="delegate overhead", kind="control", time_s=left, unit=unit, kernel=delegates[0].kernel)
        )
    if len(delegates) > 1:
        notes.append("the kernels of all delegate nodes stand together at the place of the first")
    ops: list[OpTime] = []
    for op in tables.nodes:
        if op is delegates[0]:
            ops += inside
        elif op not in delegates:
            ops.append(op)
    return tuple(ops)


def _with_unit(op: OpTime, unit: str | None) -> OpTime:
    return OpTime(name=op.name, kind=op.kind, time_s=op.time_s, count=op.count, kernel=op.kernel, unit=unit)


importer = LiteRtBenchmark()
