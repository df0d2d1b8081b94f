"""Every row of the reference against its function.

`formulas.json` has 151 rows with a worked example and its answer, in the row's own unit. The functions work in SI base
units. `SCALE` is the only bridge: what a function's result is multiplied by to be in the row's unit.
"""

import json
import math
from pathlib import Path

import pytest

from fakes.every import every
from inferometer.core.units import parse_unit
from inferometer.known.formulas.registry import all_formulas

ROWS = json.loads((Path(__file__).parent / "formulas.json").read_text(encoding="utf-8"))
PERCENT = 100.0  # a ratio of 0.5 is 50 %

SCALE = {
    "1.4.2 FLOP efficiency": PERCENT,
    "1.5 GMAC": 1e-9,  # MAC → GMAC
    "2.1 SM occupancy": PERCENT,
    "2.2 Warp execution efficiency": PERCENT,
    "2.3 Tensor-core utilization": PERCENT,
    "2.4 Bandwidth utilization": PERCENT,
    "2.7 MXU / systolic utilization": PERCENT,
    "7.1 Device utilization": PERCENT,
    "7.2 Unit utilization": PERCENT,
    "8.3 MFU": PERCENT,
    "8.3 HFU": PERCENT,
    "9.3 Availability": PERCENT,
    "9.4 Batch fill rate": PERCENT,
    "9.5 Accuracy retention": PERCENT,
    "14.3 Checkpoint overhead": PERCENT,
    "15.2 TOPS": 1e-12,  # OP/s → TOPS
    "15.2 TOPS/W": 1e-12,  # OP/J → TOPS/W
    "15.4 Frame budget": 1e3,  # s → ms
    "17.4 Electricity OpEx": 8760.0,  # USD/h → USD a year
    "17.5 Total energy": 1 / 3.6e6,  # J → kWh
}
PROPORTIONAL = "11.6 All-to-all (source)"  # the one row without an answer: it says "proportional"


def name_of(row):
    return f"{row['section']} {row['metric']}"


def formula_of(row):
    return next(formula for formula in all_formulas().values() if formula.row == name_of(row))


def test_every_row_is_one_function_and_every_function_is_a_row():
    assert len(ROWS) == 151
    assert sorted(name_of(row) for row in ROWS) == sorted(formula.row for formula in all_formulas().values())


def test_the_scale_table_names_rows_and_covers_every_percentage():
    assert set(SCALE) <= {name_of(row) for row in ROWS}
    assert {name_of(row) for row in ROWS if row["units"] == "%"} == {row for row, s in SCALE.items() if s == PERCENT}


@every([row for row in ROWS if name_of(row) != PROPORTIONAL], name=name_of)
def test_the_example_gives_the_answer_of_the_reference(row):
    formula = formula_of(row)
    result = formula.function(**formula.example)
    if isinstance(row["answer"], str | bool):
        assert result == row["answer"]
    else:
        assert math.isclose(result * SCALE.get(name_of(row), 1.0), row["answer"], rel_tol=1e-9)


@every(all_formulas().values(), name=lambda formula: formula.name)
def test_the_answer_a_formula_states_is_the_one_it_gives(formula):
    result = formula.function(**formula.example)
    if isinstance(formula.answer, str | bool):
        assert result == formula.answer
    else:
        assert math.isclose(result, formula.answer, rel_tol=1e-9)


@pytest.mark.parametrize(
    ("argument", "factor"),
    [("tokens", 2), ("hidden", 2), ("experts_per_token", 2), ("experts", 0.5), ("bandwidth", 0.5)],
)
def test_the_proportional_row_follows_each_argument(argument, factor):
    (row,) = (row for row in ROWS if name_of(row) == PROPORTIONAL)
    formula = formula_of(row)
    doubled = {**formula.example, argument: 2 * formula.example[argument]}
    assert math.isclose(formula.function(**doubled), factor * formula.function(**formula.example), rel_tol=1e-9)


def test_the_right_all_to_all_does_not_depend_on_experts_and_counts_devices():
    assert "experts" not in all_formulas()["all_to_all"].inputs
    assert "devices" in all_formulas()["all_to_all"].inputs


@every(all_formulas().values(), name=lambda formula: formula.name)
def test_every_unit_can_be_read_from_text(formula):
    for unit in {formula.unit, *(quantity.unit for quantity in formula.inputs.values())} - {"label", "truth"}:
        assert parse_unit(unit)


@every(all_formulas().values(), name=lambda formula: formula.name)
def test_every_formula_says_what_it_is_why_it_holds_and_what_it_ignores(formula):
    summary, blank, *rest = formula.doc.splitlines()
    assert summary.endswith(".")
    assert not blank
    for heading in ("Derivation:", "Units:", "Ignores:"):
        assert sum(line.startswith(heading) for line in rest) == 1
    assert formula.source


# Values that are known from elsewhere, with their sources.


def test_zero_saves_less_than_its_limit_on_eight_devices():
    """Rajbhandari et al. 2020: 4× and 8× are limits for many devices."""
    zero1, zero2 = all_formulas()["zero1_bytes"].function, all_formulas()["zero2_bytes"].function
    assert round(16 / zero1(parameters=1, devices=8), 2) == 2.91
    assert round(16 / zero2(parameters=1, devices=8), 2) == 4.27


def test_kv_bytes_of_published_models_in_bf16():
    """config.json of each: layers, KV heads, head size."""
    kv = all_formulas()["kv_bytes_per_token"].function
    assert kv(layers=16, kv_heads=8, head_dim=64) == 32_768  # Llama-3.2-1B
    assert kv(layers=80, kv_heads=8, head_dim=128) == 327_680  # Llama-3-70B


def test_edgeprofilers_energy_at_three_precisions():
    """EdgeProfiler, L=24 H=2048 I=8192 V=50257 S=1024: 6.0689, 3.0358 and 1.5192 J at 4, 2 and 1 bytes."""
    energy = all_formulas()["edgeprofiler_energy"].function
    found = [energy(flops=2_617_688_064, bytes=1_516_572_672 * size) for size in (4, 2, 1)]
    assert [round(joules, 4) for joules in found] == [6.0689, 3.0358, 1.5192]
