"""Profilers of GPUs."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from inferometer.core.errors import FormatError
from inferometer.core.profile import OpTime, Phase, Profile
from inferometer.engines.results.assemble import Draft, finish, remainder, sum_of
from inferometer.engines.results.base import Document
from inferometer.engines.results.fields import whole
from inferometer.engines.results.tables import (
    UNITS,
    TableRow,
    has_table,
    ops_by_name,
    plain_number,
    seconds_column,
    table_rows,
)
from inferometer.engines.results.words import kind_of

_KERNELS = ("Time (%)", "Instances", "Name")
_COPIES = ("Time (%)", "Count", "Operation")
_CALLS = ("Time (%)", "Num Calls", "Name")


class NsightSystems:
    """Nsight Systems: `nsys stats --format csv`, the reports `cuda_gpu_kern_sum` and `cuda_gpu_mem_time_sum`.

    Shape: the Post-Collection Analysis Guide of NVIDIA Nsight Systems. Each report is a table; several may stand in one
    file, each after a line `** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):` and progress messages. A row is a kernel
    with the time of all its `Instances`, in nanoseconds unless `--timeunit` says otherwise; a row of the second report
    is a kind of copy. Older versions call the reports gpukernsum and gpumemtimesum and have the same columns.
    """

    name = "nsys"
    title = "Nsight Systems"

    def matches(self, document: Document) -> bool:
        if document.json is not None or document.records or b"Total Time (" not in document.data:
            return False
        return any(has_table(document.text, columns, within=2000) for columns in (_KERNELS, _COPIES, _CALLS))

    def read(self, document: Document) -> tuple[Profile, ...]:
        text = document.text
        ops = ops_by_name(
            [
                *(_nsys_op(row, "Name", "Instances") for row in table_rows(text, _KERNELS)),
                *(_nsys_op(row, "Operation", "Count") for row in table_rows(text, _COPIES)),
            ]
        )
        if not ops:
            raise FormatError(
                "It holds no table of kernels on the GPU.",
                remedy="Write one with `nsys stats --report cuda_gpu_kern_sum --format csv REPORT.nsys-rep`.",
            )
        draft = Draft(tool=self.title)
        draft.phases.append(Phase(name="run", time_s=sum_of(ops), statistic="sum", ops=ops))
        draft.headline["latency_s"] = None
        draft.notes.append(
            "the time is the sum of all kernels and copies in the recording: nothing tells how many passes it holds"
        )
        return (finish(draft, document),)


def _nsys_op(row: TableRow, name: str, count: str) -> OpTime:
    column = seconds_column(row.cells, "Total Time")
    if column is None:
        raise FormatError(f"The table above line {row.line} has no column `Total Time (ns)`.")
    called = row.cells[name] or f"kernel in line {row.line}"
    instances = whole(row.number(count), f"`{count}` in line {row.line}") or 1
    return OpTime(
        name=called, kind=kind_of(called), kernel=called, unit="gpu", count=instances,
        time_s=row.number(column[0]) * column[1],
    )  # fmt: skip


nsys = NsightSystems()


_LONG = ("Kernel Name", "Metric Name", "Metric Unit", "Metric Value")
_WIDE = ("ID", "Kernel Name")
_TIMES = ("gpu__time_duration.sum", "gpu__time_duration.avg", "Duration")
_MOVED = ("dram__bytes_read.sum", "dram__bytes_write.sum")
_BYTES = {
    "byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9,
}  # fmt: skip


@dataclass(slots=True, kw_only=True)
class _Launch:
    kernel: str
    line: int
    device: str | None = None
    metrics: dict[str, tuple[str, str]] = field(default_factory=dict)  # value and unit, by name


class NsightCompute:
    """Nsight Compute: `ncu --csv`, of the page `details` or `raw`.

    Shape: the CLI guide of NVIDIA Nsight Compute. The page `details` (and `--metrics`) has a row for each metric of
    each launch: `ID`, `Kernel Name`, `Metric Name`, `Metric Unit`, `Metric Value`. The page `raw` has a row for each
    launch and a column for each metric, and a row of units below the head. Messages that begin with `==PROF==` may
    stand before it.

    The time of a launch is `gpu__time_duration.sum` (`Duration` on the page `details`). Bytes are those that went
    between the GPU and its memory, where `dram__bytes_read.sum` and `dram__bytes_write.sum` were both collected.
    """

    name = "ncu"
    title = "Nsight Compute"

    def matches(self, document: Document) -> bool:
        if document.json is not None or document.records or b"Kernel Name" not in document.data:
            return False
        return has_table(document.text, _LONG) or (
            any(name.encode() in document.data for name in _TIMES[:2]) and has_table(document.text, _WIDE)
        )

    def read(self, document: Document) -> tuple[Profile, ...]:
        text = document.text
        launches = _long(text) if has_table(text, _LONG) else _wide(text)
        ops = ops_by_name([_ncu_op(launch) for launch in launches])
        if not ops:
            raise FormatError("It holds no launch of a kernel.", remedy="Write it with `ncu --csv --page raw`.")
        devices = {launch.device for launch in launches if launch.device}
        draft = Draft(tool=self.title, device=devices.pop() if len(devices) == 1 else None)
        draft.phases.append(Phase(name="run", time_s=sum_of(ops), statistic="sum", ops=ops))
        draft.headline["latency_s"] = None
        draft.notes.append(
            "the time is the sum of the profiled kernels; Nsight Compute runs each alone, with the clocks fixed"
        )
        return (finish(draft, document),)


def _long(text: str) -> Sequence[_Launch]:
    launches: dict[str, _Launch] = {}
    for row in table_rows(text, _LONG):
        key = row.cells.get("ID") or row.cells["Kernel Name"]
        launch = launches.setdefault(key, _launch(row))
        launch.metrics[row.cells["Metric Name"]] = row.cells["Metric Value"], row.cells["Metric Unit"]
    return list(launches.values())


def _wide(text: str) -> Sequence[_Launch]:
    launches = []
    units: Mapping[str, str] = {}
    for row in table_rows(text, _WIDE):
        if not row.cells["ID"]:
            units = row.cells
            continue
        launch = _launch(row)
        launch.metrics = {name: (value, units.get(name, "")) for name, value in row.cells.items()}
        launches.append(launch)
    return launches


def _launch(row: TableRow) -> _Launch:
    return _Launch(
        kernel=row.cells["Kernel Name"] or f"kernel in line {row.line}",
        line=row.line,
        device=row.cells.get("Device Name") or row.cells.get("device__attribute_display_name"),
    )


def _ncu_op(launch: _Launch) -> OpTime:
    metric = next((name for name in _TIMES if name in launch.metrics), None)
    if metric is None:
        raise FormatError(
            f"The launch of {launch.kernel!r} in line {launch.line} has no time.",
            remedy="Collect it too: `ncu --csv --metrics gpu__time_duration.sum …`, or the section SpeedOfLight.",
        )
    moved = [_scaled(launch, name, _BYTES) for name in _MOVED if name in launch.metrics]
    return OpTime(
        name=launch.kernel,
        kind=kind_of(launch.kernel),
        kernel=launch.kernel,
        unit="gpu",
        time_s=_scaled(launch, metric, UNITS),
        bytes=sum(moved) if len(moved) == len(_MOVED) else None,
    )


def _scaled(launch: _Launch, metric: str, units: Mapping[str, float]) -> float:
    value, unit = launch.metrics[metric]
    if unit not in units:
        raise FormatError(
            f"`{metric}` of the launch in line {launch.line} is in {unit!r}; known units are {', '.join(units)}."
        )
    return plain_number(value, f"`{metric}` of the launch in line {launch.line}") * units[unit]


ncu = NsightCompute()


_STATISTICS = ("Name", "Calls", "TotalDurationNs")
_TRACES = (("Kernel_Name", "Start_Timestamp", "End_Timestamp"), ("KernelName", "BeginNs", "EndNs"))
_CALL = re.compile(r"(?:__)?(?:hip[A-Z]|hsa_|rocr_|ncclGet)\w*|__hip\w+")
_NS = 1e-9


class Rocprof:
    """AMD's rocprof and rocprofv3: their CSV of kernels, as a trace or as statistics.

    Shape: rocprofiler-sdk, "Using rocprofv3", and rocprof's own. `kernel_trace.csv` has a row for each launch with
    `Kernel_Name`, `Start_Timestamp` and `End_Timestamp` in nanoseconds; rocprof's `results.csv` calls them
    `KernelName`, `BeginNs` and `EndNs`. `kernel_stats.csv` (rocprof: `results.stats.csv`) has a row for each kernel
    with `Calls` and `TotalDurationNs`. The statistics of API calls (`hip_api_stats.csv`, `results.hip_stats.csv`) have
    the same columns; those are calls of the host, and are refused.
    """

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
    ops = ops_by_name([_rocprof_op(row, "Name", row.number("TotalDurationNs"), row.number("Calls")) for row in rows])
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
        ops.append(_rocprof_op(row, name, ended - began, 1))
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


def _rocprof_op(row: TableRow, column: str, nanoseconds: float, calls: float) -> OpTime:
    name = row.cells[column].removesuffix(".kd").removesuffix(" [clone .kd]") or f"kernel in line {row.line}"
    count = whole(calls, f"`Calls` in line {row.line}") or 1
    return OpTime(name=name, kind=kind_of(name), kernel=name, unit="gpu", count=count, time_s=nanoseconds * _NS)


rocprof = Rocprof()
