"""Nsight Compute: `ncu --csv`, of the page `details` or `raw`.

Shape: the CLI guide of NVIDIA Nsight Compute. The page `details` (and `--metrics`) has a row for each metric of each
launch: `ID`, `Kernel Name`, `Metric Name`, `Metric Unit`, `Metric Value`. The page `raw` has a row for each launch and
a column for each metric, and a row of units below the head. Messages that begin with `==PROF==` may stand before it.

The time of a launch is `gpu__time_duration.sum` (`Duration` on the page `details`). Bytes are those that went between
the GPU and its memory, where `dram__bytes_read.sum` and `dram__bytes_write.sum` were both collected.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from inferometer.core.errors import FormatError
from inferometer.core.profile import OpTime, Phase, Profile
from inferometer.engines.results.assemble import Draft, finish, sum_of
from inferometer.engines.results.base import Document
from inferometer.engines.results.tables import UNITS, TableRow, has_table, ops_by_name, plain_number, table_rows
from inferometer.engines.results.words import kind_of

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
        ops = ops_by_name([_op(launch) for launch in launches])
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


def _op(launch: _Launch) -> OpTime:
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


importer = NsightCompute()
