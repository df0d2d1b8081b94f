"""A CSV file of any known form → a table, and the lines set aside.

The form is recognised by the columns, not by the file's name, so a file with other devices and models reads as well.
"""

from importlib import import_module
from pathlib import Path

from inferometer.core.errors import FormatError, InferometerError
from inferometer.core.frozen import frozen
from inferometer.known.atlas.form import CsvLine, LineError, PublishedForm, open_csv
from inferometer.known.atlas.measurement import PublishedMeasurement, SetAside
from inferometer.known.atlas.table import AtlasTable, table_of

# The forms, the ones with the most telling columns first; our own tidy form is the last.
_MODULES = (
    "timm", "qai_hub", "ncnn", "openvino", "llamacpp", "mlperf", "npus", "ultralytics", "servers", "boards", "world",
    "tidy",
)  # fmt: skip


@frozen
class AtlasReading:
    """What a file gave: its form, the measurements, and the lines that were not taken."""

    form: str
    table: AtlasTable
    set_aside: tuple[SetAside, ...] = ()


def forms() -> tuple[PublishedForm, ...]:
    modules = (import_module(f"inferometer.known.atlas.sources.{name}") for name in _MODULES)
    return tuple(form for module in modules for form in module.FORMS)


def form_of(columns: frozenset[str]) -> PublishedForm | None:
    return next((form for form in forms() if form.columns <= columns), None)


def read_atlas(path: Path) -> AtlasReading:
    """Every measurement in a file. A line that is wrong or repeated is set aside with the reason."""
    header, lines = open_csv(path)
    form = form_of(frozenset(header))
    if form is None:
        tidy = forms()[-1]
        missing = sorted(tidy.columns - set(header))
        raise FormatError(
            f"{path} has none of the known forms: its columns are {', '.join(header[:12])}.",
            remedy=f"For our own form it lacks {', '.join(missing)}; docs/atlas.md describes it.",
        )
    rows: list[PublishedMeasurement] = []
    set_aside: list[SetAside] = []
    seen: dict[tuple[object, ...], int] = {}
    for line in lines:
        try:
            taken = _taken(form, line)
            before = seen.setdefault(tuple(map(_figure_key, taken)), line.number)
            if before != line.number:
                raise LineError(f"the same figures as line {before}.")
            rows += taken
        except InferometerError as error:
            set_aside.append(SetAside(file=path.name, line=line.number, reason=str(error)))
    return AtlasReading(form=form.name, table=table_of(rows), set_aside=tuple(set_aside))


def _taken(form: PublishedForm, line: CsvLine) -> tuple[PublishedMeasurement, ...]:
    """A line's measurements, all of them checked: a line is taken whole or not at all."""
    rows = tuple(form.read(line))
    if not rows:
        raise LineError("it holds no figure.")
    for row in rows:
        seconds = row.seconds  # a wrong unit says so here
        if not 0 < seconds < _LONGEST_S:
            raise LineError(f"{row.figure:g} {row.figure_unit} would be {seconds:g} s, which cannot be.")
    return rows


_LONGEST_S = 30 * 24 * 3600.0  # nobody waits a month for one step

_ELSEWHERE = frozenset({"line", "date", "place", "file", "precision_published"})


def _figure_key(row: PublishedMeasurement) -> tuple[object, ...]:
    """What two rows share if they are one figure published twice: everything but where, when and in which words."""
    values = (getattr(row, name) for name in row.__slots__ if name not in _ELSEWHERE)  # type: ignore[attr-defined] # `frozen` gives slots
    return tuple(tuple(sorted(value.items())) if isinstance(value, dict) else value for value in values)
