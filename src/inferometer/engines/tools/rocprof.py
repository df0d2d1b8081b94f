"""AMD's rocprof and rocprofv3: their CSV of kernels, as a trace or as statistics.

Shape: rocprofiler-sdk, "Using rocprofv3", and rocprof's own. `kernel_trace.csv` has a row for each launch with
`Kernel_Name`, `Start_Timestamp` and `End_Timestamp` in nanoseconds; rocprof's `results.csv` calls them `KernelName`,
`BeginNs` and `EndNs`. `kernel_stats.csv` (rocprof: `results.stats.csv`) has a row for each kernel with `Calls` and
`TotalDurationNs`. The statistics of API calls (`hip_api_stats.csv`, `results.hip_stats.csv`) have the same columns;
those are calls of the host, and are refused.
"""

import re
from collections.abc import Sequence

from inferometer.core.errors import FormatError
from inferometer.core.profile import OpTime, Phase, Profile
from inferometer.engines.results.assemble import Draft, finish, remainder, sum_of
from inferometer.engines.results.base import Document
from inferometer.engines.results.fields import whole
from inferometer.engines.results.tables import TableRow, has_table, ops_by_name, table_rows
from inferometer.engines.results.words import kind_of

_STATISTICS = ("Name", "Calls", "TotalDurationNs")
_TRACES = (("Kernel_Name", "Start_Timestamp", "End_Timestamp"), ("KernelName", "BeginNs", "EndNs"))
_CALL = re.compile(r"(?:__)?(?:hip[A-Z]|hsa_|rocr_|ncclGet)\w*|__hip\w+")
_NS = 1e-9


class Rocprof:
    name = "rocprof"
    title = "rocprof"

    def matches(self, document: Document) -> bool:
        if document.json is not None or document.records:
            return False
        return any(has_table(document.text, columns) for columns in (_STATISTICS, *_TRACES))

    def read(self, document: Document) -> tuple[Profile, ...]:
        text = document.text
        draft = Draft(tool=self.title)
        trace = next((columns for columns in _TRACES if has_table(text, columns)), None)
        phase = _statistics(text, draft) if trace is None else _trace(text, trace, draft)
        draft.phases.append(phase)
        draft.headline["latency_s"] = None
        return (finish(draft, document),)


def _statistics(text: str, draft: Draft) -> Phase:
    rows = list(table_rows(text, _STATISTICS))
    if rows and all(_CALL.fullmatch(row.cells["Name"]) for row in rows):
        raise FormatError(
            "It lists the host's calls of the HIP or HSA API, not kernels.",
            remedy="Import the kernels: `rocprofv3 --kernel-trace --stats --output-format csv` writes them.",
        )
    ops = ops_by_name([_op(row, "Name", row.number("TotalDurationNs"), row.number("Calls")) for row in rows])
    draft.notes.append(
        "the time is the sum of the kernels of the whole recording: nothing tells how many passes it holds"
    )
    return _phase(ops, sum_of(ops))


def _trace(text: str, columns: Sequence[str], draft: Draft) -> Phase:
    name, start, end = columns
    ops, starts, ends = [], [], []
    for row in table_rows(text, columns):
        began, ended = row.number(start), row.number(end)
        if ended < began:
            raise FormatError(f"The kernel in line {row.line} ends before it begins.")
        ops.append(_op(row, name, ended - began, 1))
        starts.append(began)
        ends.append(ended)
    whole_s = (max(ends) - min(starts)) * _NS if ops else 0.0
    draft.notes.append("the time is from the first kernel's start to the last one's end, over the whole recording")
    merged = ops_by_name(ops)
    phase = _phase(merged, whole_s)
    return Phase(
        name=phase.name, time_s=whole_s, statistic="sum", ops=merged,
        unattributed_s=remainder(whole_s, merged, draft.notes),
    )  # fmt: skip


def _phase(ops: tuple[OpTime, ...], time_s: float) -> Phase:
    if not ops:
        raise FormatError(
            "It holds no kernel.", remedy="Run `rocprofv3 --kernel-trace --output-format csv -- COMMAND`."
        )
    return Phase(name="run", time_s=time_s, statistic="sum", ops=ops)


def _op(row: TableRow, column: str, nanoseconds: float, calls: float) -> OpTime:
    name = row.cells[column].removesuffix(".kd").removesuffix(" [clone .kd]") or f"kernel in line {row.line}"
    count = whole(calls, f"`Calls` in line {row.line}") or 1
    return OpTime(name=name, kind=kind_of(name), kernel=name, unit="gpu", count=count, time_s=nanoseconds * _NS)


importer = Rocprof()
