import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.core.errors import UnitError
from inferometer.core.units import (
    counted,
    format_capacity,
    format_duration,
    format_number,
    format_quantity,
    parse_quantity,
    parse_unit,
)


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("24 GiB", "B", 24 * 2**30),
        ("24 GB", "B", 24e9),
        ("16 kB", "B", 16_000),
        ("3.35 TB/s", "B/s", 3.35e12),
        ("400 Gb/s", "B/s", 50e9),
        ("400 Gbit/s", "B/s", 50e9),
        ("990 TFLOP/s", "FLOP/s", 990e12),
        ("990 TFLOPS", "FLOP/s", 990e12),
        ("38 TOPS", "FLOP/s", 38e12),
        ("38 TOP/s", "FLOP/s", 38e12),
        ("1.28 s", "s", 1.28),
        ("5us", "s", 5e-6),
        ("5 µs", "s", 5e-6),
        ("5 μs", "s", 5e-6),
        ("3 min", "s", 180),
        ("4h", "s", 14_400),
        ("3.2 GHz", "Hz", 3.2e9),
        ("15 Wh", "J", 54_000),
        ("1.3 kWh", "J", 4.68e6),
        ("700W", "W", 700),
        ("$98", "USD", 98),
        ("98 USD/h", "USD/h", 98),
        ("$98/h", "USD/h", 98),
        ("400 g/kWh", "g/kWh", 400),
        ("0.4 kg/kWh", "g/kWh", 400),
        ("90 %", "1", 0.9),
        ("1e9", "B", 1e9),
        ("1_000", "B", 1000),
        (".5", "1", 0.5),
        ("-3", "1", -3),
    ],
)
def test_text_becomes_the_nearest_float_in_base_units(text, unit, value):
    assert parse_quantity(text, unit) == value


@pytest.mark.parametrize(
    ("text", "unit", "why"),
    [
        ("24 gb", "B", "lower case"),
        ("24 KB", "B", "neither kilo nor kibi"),
        ("24 G", "B", "prefix without a unit"),
        ("5 TFLOPs", "FLOP/s", "count or a rate"),
        ("5 m", "s", "minutes or metres"),
        ("5 Gbps", "B/s", "bits or bytes"),
        ("3,35 TB/s", "B/s", "not a quantity"),
        ("1,000", "B", "not a quantity"),
        ("", "s", "not a quantity"),
        ("fast", "s", "not a quantity"),
        ("5 5 s", "s", "not a quantity"),
        ("1e999 s", "s", "not a finite number"),
        ("nan s", "s", "not a quantity"),
        ("5 W", "s", "not a number of s"),
        ("5 GB", "B/s", "not a number of B/s"),
        ("5 parsec", "s", "no unit 'parsec'"),
        ("5 mB", "B", "no unit 'mB'"),
        ("5 s/", "s", "no unit 's/'"),
    ],
)
def test_what_is_unclear_is_refused_with_the_accepted_forms(text, unit, why):
    with pytest.raises(UnitError, match=r"Accepted: ") as caught:
        parse_quantity(text, unit)
    assert why in str(caught.value)


def test_a_catalog_number_must_name_its_unit():
    with pytest.raises(UnitError, match="has no unit"):
        parse_quantity("12", "B/s", bare=False)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3.35e12, "B/s", "3.35 TB/s"),
        (990e12, "FLOP/s", "990 TFLOP/s"),
        (8_030_261_248, "B", "8.03 GB"),
        (1.28, "s", "1.28 s"),
        (5e-6, "s", "5 µs"),
        (0.99996e-3, "s", "1 ms"),
        (1e-18, "s", "0.001 fs"),
        (0, "s", "0 s"),
        (0.9, "1", "0.9"),
        (123_456, "s", "123_456 s"),
        (9999.4, "min", "9999 min"),
        (9999.6, "min", "10000 min"),
        (10_000.6, "min", "10_001 min"),
        (-5e-6, "s", "-5 µs"),
        (700, "W", "700 W"),
        (None, "B", "unknown"),
    ],
)
def test_a_number_is_written_with_the_prefix_that_fits(value, unit, text):
    assert format_quantity(value, unit) == text


def test_binary_and_decimal_prefixes_are_told_apart():
    assert parse_unit("GiB").factor == 2**30
    assert parse_unit("GB").factor == 10**9


def test_what_a_unit_measures_has_its_divisor_s_powers_below():
    assert dict(parse_unit("GB/s").dimension) == {"B": 1, "s": -1}
    assert dict(parse_unit("W").dimension) == {"J": 1, "s": -1}
    assert parse_unit("W·s").dimension == parse_unit("J").dimension


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.35, "350 ms"), (0.1234, "123 ms"), (1.234, "1.2 s"), (9.0, "9 s"), (100.0, "100 s"),
     (150.0, "2 min"), (5400.0, "90 min"), (12_600.0, "3.5 h"),
     (400_000.0, "5 days"),
     (119.0, "119 s"), (120.0, "2 min"), (7199.0, "120 min"), (7200.0, "2.0 h"), (171_000.0, "47.5 h"),
     (172_800.0, "2 days")],
)  # fmt: skip
def test_a_duration_is_said_as_people_do(seconds, text):
    assert format_duration(seconds) == text


@given(st.floats(1e-3, 1e14))
def test_no_number_that_a_person_meets_has_an_exponent(number):
    assert "e" not in format_quantity(number, "1")
    assert float(format_quantity(number, "1")) == pytest.approx(number, rel=1e-3)


@given(st.floats(min_value=-1e14, max_value=1e14), st.integers(2, 6))
def test_a_number_for_a_person_has_no_power_of_ten_and_is_as_near_as_its_digits(value, digits):
    text = format_number(value, digits)
    assert "e+" not in text
    assert float(text.replace(",", "")) == pytest.approx(value, rel=10.0 ** (1 - digits), abs=1e-300)


@pytest.mark.parametrize(
    ("value", "text"), [(2870.4, "2,870"), (999.6, "1,000"), (999.4, "999"), (0.01234, "0.0123"), (0, "0"), (7, "7")]
)
def test_numbers_as_people_write_them(value, text):
    assert format_number(value) == text


@given(st.floats(1e-9, 1e9) | st.integers(1, 1000).map(float), st.sampled_from(["s", "B", "1"]))
def test_a_number_below_nothing_is_the_same_with_a_minus(number, unit):
    assert format_quantity(-number, unit) == f"-{format_quantity(number, unit)}"
    assert [format_quantity(nothing, unit)[:1] for nothing in (0.0, -0.0)] == ["0", "0"]


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (24 * 2**30, "24 GiB"), (2**40, "1 TiB"), (1536 * 2**20, "1536 MiB"), (512 * 2**10, "512 KiB"),
        (9_999 * 2**10, "9999 KiB"), (10_001 * 2**10, "10.24 MB"), (141e9, "141 GB"), (1000, "1 kB"),
        (1023, "1.023 kB"), (24.5 * 2**30, "26.31 GB"), (0, "0 B"), (None, "unknown"),
    ],
)  # fmt: skip
def test_a_memory_is_called_as_its_maker_counts_it(nbytes, text):
    assert format_capacity(nbytes) == text


def test_one_is_one_and_all_else_are_several():
    assert [counted(number, "run") for number in (0, 1, 2, 1234)] == ["0 runs", "1 run", "2 runs", "1,234 runs"]
