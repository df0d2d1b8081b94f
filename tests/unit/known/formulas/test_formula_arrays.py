"""One implementation for a number and for an array: every formula, element by element."""

import math

import numpy as np

from fakes.every import every
from inferometer.core.errors import DomainError
from inferometer.known.formulas.registry import all_formulas

FACTORS = (1.0, 0.97, 1.01)


def variants(formula):
    """The example, and the example with its arguments moved a little where the formula allows it."""
    found = []
    for factor in FACTORS:
        moved = {name: nudged(formula.inputs[name], value, factor) for name, value in formula.example.items()}
        try:
            formula.function(**moved)
        except DomainError:
            moved = dict(formula.example)
        found.append(moved)
    return found


def nudged(quantity, value, factor):
    if quantity.choices or quantity.whole:
        return value
    return [item * factor for item in value] if quantity.sequence else value * factor


def stacked(formula, cases):
    """Arrays over the cases; a sequence argument keeps its own values along the last axis. Words stay words."""
    return {
        name: cases[0][name] if formula.inputs[name].choices else np.array([case[name] for case in cases])
        for name in formula.example
    }


def same(one, other):
    if isinstance(one, str | bool):
        return one == other
    return math.isclose(one, other, rel_tol=1e-12, abs_tol=1e-300)


@every(all_formulas().values(), name=lambda formula: formula.name)
def test_an_array_gives_what_its_elements_give(formula):
    cases = variants(formula)
    result = formula.function(**stacked(formula, cases))
    assert isinstance(result, np.ndarray)
    assert result.shape == (len(cases),)
    assert all(same(formula.function(**case), item) for case, item in zip(cases, result.tolist(), strict=True))


@every(all_formulas().values(), name=lambda formula: formula.name)
def test_sweeping_one_argument_keeps_the_others(formula):
    for name, quantity in formula.inputs.items():
        if name in formula.example and not quantity.choices:
            swept = np.array([formula.example[name]] * 2)
            result = formula.function(**{**formula.example, name: swept})
            assert result.shape == (2,)
            assert all(same(formula.function(**formula.example), item) for item in result.tolist())


def test_percentiles_of_rows_at_several_ranks():
    samples = np.arange(12.0).reshape(3, 4)
    for name in ("percentile_nearest_rank", "percentile_linear"):
        percentile = all_formulas()[name].function
        table = percentile(samples=samples, p=np.array([[0.25], [0.5]]))
        assert table.shape == (2, 3)
        assert table[1, 2] == percentile(samples=samples[2], p=0.5)
    ranks = [percentile(samples=samples[0], p=p) for p in (0.1, 0.9)]
    assert percentile(samples=samples[0], p=np.array([0.1, 0.9])).tolist() == ranks


def test_a_million_configurations_in_one_call():
    contexts = np.arange(1, 1_000_001)
    total = all_formulas()["kv_cache_bytes"].function(bytes_per_token=32_768, tokens=contexts)
    assert total[-1] == 32_768e6
