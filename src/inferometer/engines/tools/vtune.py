"""Intel VTune Profiler: `vtune -report hotspots -format csv`.

Shape: the VTune Profiler User Guide, "csv-delimiter" and "Save and Format Command Line Reports". The first column is
what the report is grouped by (`Function`, `Module`, `Thread`, …), `CPU Time` has seconds of all threads together. Any
delimiter may be asked for; commas, tabs, semicolons and bars are read.
"""

import re

from inferometer.core.errors import FormatError
from inferometer.core.profile import OpTime, Phase, Profile
from inferometer.engines.results.assemble import Draft, finish, sum_of
from inferometer.engines.results.base import Document
from inferometer.engines.results.tables import TableRow, has_table, ops_by_name, plain_number, table_rows
from inferometer.engines.results.words import kind_of

_TIME = "CPU Time"
_OWN = "CPU Time:Self"  # of a report with callers, where the plain column counts what is called too
_GROUPS = ("Function", "Module", "Function Stack", "Source Function", "Task Type", "Thread", "Process")
_TOTAL = re.compile(r"\s*\[?Total\]?\s*", re.IGNORECASE)


class Vtune:
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


importer = Vtune()
