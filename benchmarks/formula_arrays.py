"""The formulas of `known.formulas.llm` on arrays, against a loop of scalar calls over the same numbers."""

import numpy as np
from figure import Figure, call_seconds

from inferometer.known.formulas.registry import all_formulas

SIZE = 100_000
LOOP = 2_000


def swept(formula):
    """The example with its first plain number made an array; None where every argument is a list or a word."""
    name = next(
        (n for n, v in formula.example.items() if isinstance(v, int | float) and not formula.inputs[n].sequence), None
    )
    return None if name is None else (name, formula.example[name])


def speed_up(formula):
    name, value = swept(formula)
    others = {key: item for key, item in formula.example.items() if key != name}
    whole = np.full(SIZE, value)
    one = value
    array = call_seconds(lambda: formula.function(**others, **{name: whole})) / SIZE
    loop = call_seconds(lambda: [formula.function(**others, **{name: one}) for _ in range(LOOP)]) / LOOP
    return loop / array


def figures():
    ratios = {f.name: speed_up(f) for f in all_formulas().values() if f.section == "llm" and swept(f)}
    slowest = min(ratios, key=ratios.get)
    median = float(np.median(list(ratios.values())))
    yield Figure(
        name="llm_formulas_array_over_scalar_slowest",
        value=ratios[slowest],
        unit="×",
        target="≥ 100",
        met=ratios[slowest] >= 100,
        note=f"{slowest}; median of {len(ratios)} formulas {median:.0f} ×",
    )
