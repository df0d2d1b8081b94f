import pickle
import subprocess
import sys
from dataclasses import replace
from typing import Annotated

import numpy as np
import pytest

from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.known.formulas import cloud, distributed, llm, parallel, quantities, registry
from inferometer.known.formulas.quantities import Bytes, Count, Quantity, Seconds, SecondsList
from inferometer.known.formulas.registry import SECTIONS, all_formulas, find_formula, formula, quantity_of


def test_naming_the_package_imports_no_numpy():
    code = "import sys, inferometer.known.formulas; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_formulas_come_in_the_order_of_the_sections():
    sections = [formula.section for formula in all_formulas().values()]
    assert sections == sorted(sections, key=list(SECTIONS).index)
    assert set(sections) == set(SECTIONS)


def test_an_unknown_formula_suggests_near_ones():
    with pytest.raises(UnknownNameError) as caught:
        find_formula("ring_all_reduce")
    assert "ring_allreduce" in caught.value.suggestions


def test_a_signature_reads_as_a_person_would_write_it():
    assert (
        str(find_formula("ring_allreduce").signature)
        == "ring_allreduce(n: number, bytes: B, bandwidth: B/s, latency: s = 0) → s"
    )
    assert str(find_formula("load_balance").signature) == "load_balance(times: list of s) → number"


def test_a_quantity_is_found_inside_other_annotations():
    assert quantity_of(Seconds | None).unit == "s"
    assert quantity_of(list[Bytes]).unit == "B"
    assert quantity_of(SecondsList).sequence
    assert quantity_of(int) is None


def test_a_scalar_call_gives_a_python_number():
    assert type(parallel.amdahl(fraction=0.9, speedup=4)) is float
    assert type(parallel.load_balance(times=[1, 2])) is float
    assert type(llm.kv_bytes_per_token(layers=80, kv_heads=8, head_dim=128)) is int
    assert type(llm.max_concurrent_sequences(memory=1e9, weights=0, kv_bytes_per_token=1, context=7)) is int
    assert type(find_formula("realtime_feasible").function(inference_time=0.02, fps=30)) is bool
    assert type(find_formula("bound_class").function(intensity=1, peak=1e12, bandwidth=1e9)) is str


def test_numpy_scalars_count_as_scalars():
    result = llm.kv_bytes_per_token(layers=np.int64(80), kv_heads=np.float32(8), head_dim=np.array(128))
    assert result == 327_680
    assert type(result) is float


def test_integer_arrays_do_not_wrap_around():
    many = np.array([2**31], dtype=np.int64)
    assert llm.kv_bytes_per_token(layers=many, kv_heads=many, head_dim=many).tolist() == [2.0**95]


def test_a_list_is_an_array():
    assert parallel.amdahl_limit(fraction=[0.5, 0.75]).tolist() == [2.0, 4.0]


def test_arguments_broadcast():
    table = parallel.gustafson(fraction=np.array([[0.5], [1.0]]), n=np.array([1, 2, 4]))
    assert table.tolist() == [[1.0, 1.5, 2.5], [1.0, 2.0, 4.0]]


def test_arrays_that_do_not_go_together_are_refused():
    with pytest.raises(DomainError, match=r"gustafson: the arrays do not go together: fraction \(2,\), n \(3,\)"):
        parallel.gustafson(fraction=np.array([0.1, 0.2]), n=np.array([1, 2, 3]))


def test_a_missing_argument_is_named_with_the_signature():
    with pytest.raises(DomainError, match=r"ring_allreduce: bytes, bandwidth are missing\.") as caught:
        distributed.ring_allreduce(n=8)
    assert "ring_allreduce(n: number, bytes: B" in caught.value.remedy


def test_an_unknown_argument_is_named_with_a_suggestion():
    with pytest.raises(DomainError, match="there is no argument 'bandwith'") as caught:
        distributed.ring_allreduce(n=8, bytes=1, bandwith=1)
    assert "Did you mean bandwidth?" in caught.value.remedy


def test_an_argument_without_its_name_is_refused():
    with pytest.raises(DomainError, match="by name"):
        parallel.amdahl_limit(0.5)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (-1.0, "must be 0 or more, and is -1.0"),
        (float("nan"), "must be finite, and is nan"),
        (float("inf"), "must be finite, and is inf"),
        ("3", "must be a number, and is '3'"),
        (None, "must be a number, and is None"),
        (True, "must be a number, and is True"),
        (1j, "must be a number, and is 1j"),
        ([], r"must not be empty, and is \[\]"),
        ([1.0, -2.0], "must be 0 or more"),
        ([[1], [1, 2]], "must be a number or an array of numbers"),
        ([1, "2"], "must be a number"),
        (10**400, "is too large a number"),
        ([10**400], "is too large a number"),
    ],
)
def test_a_value_outside_the_domain_is_refused_with_formula_argument_reason_and_value(value, why):
    with pytest.raises(DomainError, match=rf"^inference_latency: model {why}"):
        cloud.inference_latency(model=value)


def test_large_python_integers_are_numbers():
    assert cloud.inference_latency(model=[10**20]) == [1e20]
    assert cloud.inference_latency(model=10**20) == 10**20


def test_a_long_value_is_cut_in_the_message():
    with pytest.raises(DomainError) as caught:
        cloud.inference_latency(model=np.full(1000, -1.0))
    assert len(str(caught.value)) < 200


def test_a_result_too_large_for_a_float_is_refused():
    with pytest.raises(DomainError, match="not a finite number") as caught:
        distributed.ring_allreduce(n=8, bytes=1e308, bandwidth=1e-308)
    assert "check their units" in caught.value.remedy
    with pytest.raises(DomainError, match="not a finite number"):
        distributed.ring_allreduce(n=8, bytes=np.array([1.0, 1e308]), bandwidth=1e-308)


def test_a_formula_can_be_sent_to_another_process():
    assert pickle.loads(pickle.dumps(cloud.littles_law))(arrival_rate=2, time=3) == 6  # noqa: S301 - our own bytes


def test_two_formulas_may_not_share_a_name():
    with pytest.raises(ValueError, match="two formulas are named littles_law"):

        @formula(row="0 x", source="definition", example={"n": 1}, answer=1)
        def littles_law(*, n: Count) -> Count:
            return n


def test_an_argument_without_a_quantity_is_a_mistake_of_the_author():
    with pytest.raises(TypeError, match="every argument and the result name a quantity"):

        @formula(row="0 x", source="definition", example={"n": 1}, answer=1)
        def nameless(*, n: int) -> Count:
            return n


def test_bounds_are_the_last_floats_inside():
    low, high = Quantity(unit="1", low=0.0, high=1.0, open_low=True, open_high=True).bounds
    assert 0.0 < low < 1e-300
    assert 1.0 - 1e-15 < high < 1.0


def test_a_registered_formula_is_all_that_its_author_wrote(monkeypatch):
    monkeypatch.setattr(registry, "_FORMULAS", {})

    @formula(row="9.9 A made-up rate", source="a book", example={"n": 3}, answer=7.0)
    def made_up(*, n: Count, spare: Annotated[float, "a remark", Quantity(unit="s", low=1.0)] = 2.0) -> Bytes:
        """The text."""
        return 2 * n + spare - 1

    made = registry._FORMULAS["made_up"]
    assert (made.row, made.title, made.source, made.doc) == (
        "9.9 A made-up rate",
        "A made-up rate",
        "a book",
        "The text.",
    )
    assert (made.example, made.answer, made.unit, made.section) == ({"n": 3}, 7.0, "B", "test_formula_registry")
    assert (made.signature.defaults, [*made.inputs]) == ({"spare": 2.0}, ["n", "spare"])
    assert made.inputs["spare"] == Quantity(unit="s", low=1.0)
    assert (made_up(n=3), made.function(n=3, spare=5.0)) == (7.0, 10.0)
    for wrong in ({}, {"n": 3, "spare": 0.5}, {"n": 0}, {"n": 2.5}):
        with pytest.raises(DomainError, match=r"^made_up: "):
            made_up(**wrong)


def test_the_kinds_of_quantities():
    assert quantities._positive("s") == Quantity(unit="s", low=0.0, open_low=True)
    assert quantities._at_least_zero("s") == Quantity(unit="s", low=0.0)
    listed = Quantity(unit="s", low=0.0, sequence=True)
    assert quantities._list("s") == listed
    assert quantities._list("s", at_least=3, open_low=True) == replace(listed, at_least=3, open_low=True)
    assert (Quantity(unit="s").bounds, Quantity(unit="s").at_least) == ((-sys.float_info.max, sys.float_info.max), 1)


@pytest.mark.parametrize(
    ("quantity", "value", "why"),
    [
        (Quantity(unit="s", low=2.0, high=5.0), [2.0, 5.0], None),
        (Quantity(unit="s", low=2.0, open_low=True), 2.0, "must be greater than 2"),
        (Quantity(unit="s", low=2.0), [3.0, 1.9], "must be 2 or more"),
        (Quantity(unit="s", high=5.0, open_high=True), 5.0, "must be less than 5"),
        (Quantity(unit="s", high=5.0), [1.0, 5.1], "must be 5 or less"),
        (Quantity(unit="s", whole=True), [1.0, 2.5], "must be a whole number"),
        (Quantity(unit="s", sequence=True, at_least=2), [1.0], "must hold 2 values or more"),
        (Quantity(unit="s", sequence=True, at_least=2), [1.0, 2.0], None),
        (Quantity(unit="s", sequence=True), 4.0, None),
        (Quantity(unit="word", choices=("a", "b")), "b", None),
        (Quantity(unit="word", choices=("a", "b")), "c", "must be one of a, b"),
        (Quantity(unit="s"), [1.0, float("nan")], "must be finite"),
        (Quantity(unit="s"), 10**400, "is too large a number"),
        (Quantity(unit="s"), [10**400, 1.0], "is too large a number"),
        (Quantity(unit="s"), [2**70, 1.0], None),
        (Quantity(unit="s"), [], "must not be empty"),
        (Quantity(unit="s"), True, "must be a number"),
    ],
)
def test_a_value_is_read_or_refused_with_its_reason(quantity, value, why):
    if why is None:
        assert np.array_equal(quantity.read(value), np.atleast_1d(value) if quantity.sequence else value)
        return
    with pytest.raises(ValueError, match=f"^{why}"):
        quantity.read(value)


def test_a_whole_number_beyond_a_floats_digits_is_a_float():
    read = Quantity(unit="s").read
    assert [type(read(value)) for value in (2**53, 2**53 + 1, -(2**53) - 1, np.int8(3), np.float32(3))] == [
        int, float, float, int, float,
    ]  # fmt: skip
