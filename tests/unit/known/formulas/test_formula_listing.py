"""Formulas as records: what lists, documents and the calculator are made of."""

import json
import subprocess
import sys

import pytest

from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.known.formulas import quantities
from inferometer.known.formulas.listing import calculation_record, formula_document, formula_records
from inferometer.known.formulas.registry import SECTIONS, all_formulas, find_formula, quantity_of

COUNTS = {
    "Count", "CountOrNone", "Several", "UpToAMillion", "UpToAMillionOrNone", "WholeNumber", "WholeBits", "Tokens",
    "TokensOrNone", "SeveralTokens",
}  # fmt: skip


def test_a_section_lists_its_own_formulas_and_none_lists_all():
    listed = {section: [record["name"] for record in formula_records(section)] for section in SECTIONS}
    assert all(listed.values())
    assert [name for names in listed.values() for name in names] == [record["name"] for record in formula_records()]
    assert {record["section"] for record in formula_records("queueing")} == {"queueing"}
    with pytest.raises(UnknownNameError, match="queueing"):
        formula_records("queuing")


def test_everything_about_a_formula_is_plain_enough_for_json():
    for formula in all_formulas().values():
        document = formula_document(formula)
        assert json.loads(json.dumps(document)) == document
        assert document["inputs"].keys() >= document["example"].keys()


def test_a_calculation_says_its_number_and_what_a_person_reads():
    record = calculation_record("transfer_time", ["bytes=50 GB", "bandwidth=400 Gb/s"])
    assert (record["value"], record["unit"], record["text"]) == (1.0, "s", "1 s")
    swept = calculation_record("kv_cache_bytes", ["bytes_per_token=32 KiB", "tokens=1,4"])
    assert swept["value"] == [32_768, 131_072]
    assert swept["text"].splitlines()[0].startswith("32768 B  (")


@pytest.mark.parametrize(
    ("assignments", "says"),
    [(["bytes"], "not an assignment"), (["=3"], "not an assignment"), (["bytes="], "not an assignment"),
     (["bytes=1", "bytes=2"], "given twice: '1' and '2'")],
)  # fmt: skip
def test_what_is_no_assignment_is_said(assignments, says):
    with pytest.raises(DomainError, match=says):
        calculation_record("transfer_time", assignments)


def test_what_is_counted_is_whole_and_nothing_else_is():
    named = {name: quantity_of(hint) for name, hint in vars(quantities).items() if quantity_of(hint) is not None}
    assert {name for name, quantity in named.items() if quantity.whole} == COUNTS
    layers = {"parameters": 7e9, "layers": 2, "attention_width": 3, "context": 4}
    assert find_formula("forward_flops_per_token").function(**layers) == 2 * 7e9 + 4 * 2 * 3 * 4
    for name in ("layers", "attention_width"):
        with pytest.raises(DomainError, match=name):
            find_formula("forward_flops_per_token").function(**{**layers, name: 1.5})


def test_a_result_is_said_in_words_or_in_its_unit():
    said = {
        ("realtime_feasible", "inference_time=28ms", "fps=30"): "yes",
        ("realtime_feasible", "inference_time=40ms", "fps=30"): "no",
        ("bound_class", "intensity=1", "peak=989TFLOP/s", "bandwidth=3.35TB/s"): "memory",
        ("speedup", "before=3s", "after=2s"): "1.5",
        ("tpot", "e2e=2s,3s", "ttft=1s", "tokens=11"): "0.1 s  (100 ms)\n0.2 s  (200 ms)",
    }
    assert {words: calculation_record(words[0], words[1:])["text"] for words in said} == said


def test_a_process_that_names_one_formula_knows_all():
    code = "from inferometer.known.formulas.registry import all_formulas; print(*all_formulas())"
    known = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert known == [*all_formulas()]
