"""What people read: no names of fields, no "1 runs", no sentence cut off."""

import re
from dataclasses import replace
from itertools import repeat

import pytest

from fakes.every import every
from inferometer.core.finding import CODES
from inferometer.core.units import counted
from inferometer.measure.bench.compare import compare
from inferometer.measure.bench.plan import Plan
from inferometer.understand.explanation import explanation_document
from inferometer.understand.findings import FINDERS, pages
from inferometer.understand.view.explanations import evidence_text, explanation_page
from inferometer.understand.view.measured import (
    comparison_markdown,
    comparison_table,
    headline,
    measurement_card,
    metric_words,
)
from inferometer.understand.view.render import render
from inferometer.understand.view.terminal import draw_card
from unit.measure.bench.profiles import noisy, op, phase, profile, run_of
from unit.measure.bench.test_bench_run import measured
from unit.understand.explain_cases import PAIRS, case_of, explain

FIELD = re.compile(r"\b[a-z0-9]+(?:_[a-z0-9]+)*_(?:s|bytes|j|g|hz|flops)\b")
ONE = re.compile(
    r"(?<![\d.,])1 (?!s\b)[a-z-]*(?:runs|ops|rows|threads|CPUs|devices|steps|layers|tokens|samples|points)\b"
)


def require_readable(text):
    assert not FIELD.findall(text), text
    assert not ONE.findall(text), text
    assert not re.search(r"\bNone\b|\{|\}|  →  $|\bnan\b", text), text


@every(CODES)
def test_every_finding_reads_as_sentences(code):
    fires, near, device = PAIRS[code]
    for found in (fires, near):
        plain = explanation_document(explain(found, device, name="file.json"))
        for form in ("table", "md"):
            require_readable(explanation_page(plain, form))
    finding = FINDERS[code](case_of(fires, device))
    assert finding.advice is None or finding.advice.endswith((".", "`"))
    require_readable(evidence_text(finding.evidence))


def test_the_pages_of_findings_are_sentences():
    for page in pages().values():
        for text in (page.what, page.evidence, page.why, page.do, page.sure):
            require_readable(text)
            assert text.endswith((".", "`)."))


def test_one_run_is_a_run():
    found = measured(repeat(1.0), Plan(warmup=1, runs=1, seconds=0.0))
    require_readable(draw_card(measurement_card(found, [99.0])))
    require_readable(draw_card(measurement_card(replace(found, discarded=1, complete=False, settled=False))))
    assert (counted(1, "run"), counted(0, "run"), counted(12345, "run")) == ("1 run", "0 runs", "12,345 runs")


@pytest.mark.parametrize("count", [1, 2, 30])
def test_a_comparison_reads_as_sentences(count):
    ops = [op(f"conv{number}", 1.0 + number) for number in range(14)]
    slower = [replace(each, time_s=2 * each.time_s) for each in ops]
    more = {"tokens_per_s": 50.0, "peak_memory_bytes": 10**9, "energy_j": 2.0}
    old = replace(run_of(noisy(1.0, count), **more), phases=(phase("decode", noisy(1.0, count), ops=ops),))
    new = replace(
        run_of(noisy(1.2, count, seed=4), **more), phases=(phase("decode", noisy(1.2, count, seed=4), ops=slower),)
    )
    found = compare(old, new)
    for text in (headline(found), render(comparison_table(found), "table"), comparison_markdown(found)):
        require_readable(text)
    assert metric_words("tokens_per_s") == "tokens/s"


def test_a_profile_with_nothing_in_it_can_be_told():
    require_readable(explanation_page(explanation_document(explain(profile(), None, name="x"))))
