"""Sweeps: the cross product of models, devices, runtimes, formats and sizes, predicted at once.

`sweep` gives Rows in memory; `stream` writes them to a file as they come.
Both are the same prediction as `predict`, row for row; where a row cannot be, it says why.
"""

from typing import TYPE_CHECKING

from inferometer.core.lazy import attributes

if TYPE_CHECKING:
    from inferometer.predict.sweep.begun import begun_study
    from inferometer.predict.sweep.columns import COLUMNS, DETAILS
    from inferometer.predict.sweep.engines import ENGINES
    from inferometer.predict.sweep.grid import AXES, Study, study_of
    from inferometer.predict.sweep.read import Saved, read_rows
    from inferometer.predict.sweep.rows import Condition, Rows, RowSource, parse_condition
    from inferometer.predict.sweep.run import run_study, sweep
    from inferometer.predict.sweep.spec import Spec, parse_axis, parse_spec
    from inferometer.predict.sweep.write import Progress, Written, journal_of, stream

__all__ = [
    "AXES", "COLUMNS", "DETAILS", "ENGINES", "Condition", "Progress", "RowSource", "Rows", "Saved", "Spec", "Study",
    "Written", "begun_study", "journal_of", "parse_axis", "parse_condition", "parse_spec", "read_rows", "run_study",
    "stream", "study_of", "sweep",
]  # fmt: skip

__getattr__ = attributes(__name__, {
    "inferometer.predict.sweep.begun": ("begun_study",),
    "inferometer.predict.sweep.columns": ("COLUMNS", "DETAILS"),
    "inferometer.predict.sweep.engines": ("ENGINES",),
    "inferometer.predict.sweep.grid": ("AXES", "Study", "study_of"),
    "inferometer.predict.sweep.read": ("Saved", "read_rows"),
    "inferometer.predict.sweep.rows": ("Condition", "Rows", "RowSource", "parse_condition"),
    "inferometer.predict.sweep.run": ("run_study", "sweep"),
    "inferometer.predict.sweep.spec": ("Spec", "parse_axis", "parse_spec"),
    "inferometer.predict.sweep.write": ("Progress", "Written", "journal_of", "stream"),
})  # fmt: skip
