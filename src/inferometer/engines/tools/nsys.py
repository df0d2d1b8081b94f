"""Nsight Systems: `nsys stats --format csv`, the reports `cuda_gpu_kern_sum` and `cuda_gpu_mem_time_sum`.

Shape: the Post-Collection Analysis Guide of NVIDIA Nsight Systems. Each report is a table; several may stand in one
file, each after a line `** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):` and progress messages. A row is a kernel with
the time of all its `Instances`, in nanoseconds unless `--timeunit` says otherwise; a row of the second report is a kind
of copy. Older versions call the reports gpukernsum and gpumemtimesum and have the same columns.
"""

from inferometer.core.errors import FormatError
from inferometer.core.profile import OpTime, Phase, Profile
from inferometer.engines.results.assemble import Draft, finish, sum_of
from inferometer.engines.results.base import Document
from inferometer.engines.results.fields import whole
from inferometer.engines.results.tables import TableRow, has_table, ops_by_name, seconds_column, table_rows
from inferometer.engines.results.words import kind_of

_KERNELS = ("Time (%)", "Instances", "Name")
_COPIES = ("Time (%)", "Count", "Operation")
_CALLS = ("Time (%)", "Num Calls", "Name")


class NsightSystems:
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
                *(_op(row, "Name", "Instances") for row in table_rows(text, _KERNELS)),
                *(_op(row, "Operation", "Count") for row in table_rows(text, _COPIES)),
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


def _op(row: TableRow, name: str, count: str) -> OpTime:
    column = seconds_column(row.cells, "Total Time")
    if column is None:
        raise FormatError(f"The table above line {row.line} has no column `Total Time (ns)`.")
    called = row.cells[name] or f"kernel in line {row.line}"
    instances = whole(row.number(count), f"`{count}` in line {row.line}") or 1
    return OpTime(
        name=called, kind=kind_of(called), kernel=called, unit="gpu", count=instances,
        time_s=row.number(column[0]) * column[1],
    )  # fmt: skip


importer = NsightSystems()
