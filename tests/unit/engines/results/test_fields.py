import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.core.errors import FormatError
from inferometer.engines.results import fields


@pytest.mark.parametrize(("value", "expected"), [(3, 3.0), (0.5, 0.5), ("0.121", 0.121), (" 7 ", 7.0), (0, 0.0)])
def test_numbers_and_numbers_in_text(value, expected):
    assert fields.number(value, "x") == expected


@pytest.mark.parametrize(
    "value", [None, True, "x", "", [], {}, -1, "-1", float("nan"), float("inf"), "nan", "1e999", 10**400, b"1"]
)
def test_what_is_no_measurement_is_refused_by_name(value):
    with pytest.raises(FormatError, match="`dur` of event 3"):
        fields.number(value, "`dur` of event 3")


@given(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.integers())))
def test_a_number_is_finite_and_not_negative_or_an_error(value):
    try:
        found = fields.number(value, "x")
    except FormatError:
        return
    assert 0 <= found < 1e25


@given(st.decimals(min_value=0, max_value=10**6, places=3))
def test_milliseconds_are_shifted_without_a_second_rounding(value):
    assert fields.milliseconds(str(value), "x") == float(f"{value}e-3")


def test_a_moment_may_lie_before_zero():
    assert fields.moment(-2.5, "x") == -2.5
    with pytest.raises(FormatError):
        fields.moment(float("-inf"), "x")


def test_counts_are_whole():
    assert fields.whole("512", "x") == 512
    assert [fields.whole(value, "x") for value in (2.0, "2.0", "2e3")] == [2, 2, 2000]
    assert fields.whole(None, "x") is None
    assert fields.whole((1 << 61) + 1, "x") == (1 << 61) + 1
    for wrong in (1.5, 1e20, -1, 10**30):
        with pytest.raises(FormatError):
            fields.whole(wrong, "x")


def test_zero_is_what_tools_write_for_not_measured():
    assert fields.positive(0, "x") is None
    assert fields.size(0, "x") is None
    assert fields.optional_ms(0.0, "x") is None
    assert fields.size(1.5, "x", unit=1 << 20) == 1572864
    with pytest.raises(FormatError):
        fields.size(1e20, "x")
    assert fields.size(1 << 52, "x", unit=1 << 10) == 1 << 62  # the most that is read, and what is one step above
    with pytest.raises(FormatError):
        fields.size((1 << 52) + 1, "x", unit=1 << 10)


def test_words_are_words():
    assert fields.text("  a ") == "a"
    assert fields.text(5163) == "5163"
    assert fields.text("\ud800") == "?"
    for none in (None, True, "", [], {}, 10**5000):
        assert fields.text(none) is None


def test_a_list_of_objects_holds_objects():
    assert list(fields.listed([{"a": 1}], "rows")) == [{"a": 1}]
    for wrong in (None, {}, "x", [1], [None]):
        with pytest.raises(FormatError, match="rows"):
            list(fields.listed(wrong, "rows"))
