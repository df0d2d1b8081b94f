import numpy as np
import pytest

from fakes.every import every
from inferometer.core.errors import DomainError, UnitError, UnknownNameError
from inferometer.core.units import parse_unit
from inferometer.known.formulas.listing import calculate
from inferometer.known.formulas.registry import all_formulas


def test_text_with_units_becomes_si_numbers():
    ring = {"n": "8", "bytes": "1 GB", "bandwidth": "50 GB/s", "latency": "5 us"}
    assert calculate("ring_allreduce", ring) == pytest.approx(0.03507, rel=1e-12)


def test_bits_per_second_are_not_bytes_per_second():
    assert calculate("transfer_time", {"bytes": "50 GB", "bandwidth": "400 Gb/s"}) == 1.0


def test_a_bare_number_is_in_the_arguments_own_unit():
    assert calculate("tpot", {"e2e": "3.9479", "ttft": "1.2799", "tokens": "30"}) == pytest.approx(0.092)


def test_a_percentage_is_a_fraction():
    assert calculate("amdahl_limit", {"fraction": "95 %"}) == pytest.approx(20)


def test_a_list_is_the_values_of_a_sequence():
    assert calculate("throughput_pipeline", {"stages": "10ms,20ms, 5ms"}) == pytest.approx(50)
    assert calculate("percentile_linear", {"samples": "10ms,20ms", "p": "0.5"}) == pytest.approx(0.015)


def test_one_value_is_a_sequence_of_one():
    assert calculate("throughput_pipeline", {"stages": "10ms"}) == pytest.approx(100)


def test_a_list_for_a_scalar_argument_is_a_sweep():
    swept = calculate("kv_cache_bytes", {"bytes_per_token": "32 KiB", "tokens": "1, 2, 4"})
    assert isinstance(swept, np.ndarray)
    assert swept.tolist() == [32_768, 65_536, 131_072]


def test_two_sweeps_go_side_by_side_and_must_be_equally_long():
    assert calculate("speedup", {"before": "4s,9s", "after": "2s,3s"}).tolist() == [2.0, 3.0]
    with pytest.raises(DomainError, match="do not go together"):
        calculate("speedup", {"before": "4s,9s", "after": "1s,2s,3s"})


def test_prices_and_carbon_are_in_the_units_people_quote():
    assert calculate("usd_per_million_tokens", {"price": "98 USD/h", "tokens_per_s": "24 ktoken/s"}) == pytest.approx(
        1.1342592592592593
    )
    assert calculate("co2e", {"energy": "1000 kWh", "pue": "1.3", "intensity": "400 g/kWh"}) == pytest.approx(520_000)
    assert calculate("tco", {"capex": "250000 USD", "opex": "60000 USD/year", "lifetime": "4 year"}) == pytest.approx(
        490_000
    )


def test_words_are_words():
    ring = {"nodes": "8", "link_bandwidth": "50 GB/s", "topology": " ring "}
    assert calculate("bisection_bandwidth", ring) == 100e9
    with pytest.raises(DomainError, match="topology must be one of torus"):
        calculate("bisection_bandwidth", {**ring, "topology": "star"})


def test_labels_and_truths_come_back_as_they_are():
    assert calculate("bound_class", {"intensity": "1", "peak": "989 TFLOP/s", "bandwidth": "3.35 TB/s"}) == "memory"
    assert calculate("realtime_feasible", {"inference_time": "28 ms", "fps": "30"}) is True


def test_a_unit_of_another_kind_names_formula_argument_and_what_is_accepted():
    with pytest.raises(UnitError, match=r"transfer_time: bytes: '5 s' is not a number of B\.") as caught:
        calculate("transfer_time", {"bytes": "5 s", "bandwidth": "1 GB/s"})
    assert "GiB" in caught.value.remedy


def test_text_that_is_no_quantity_is_refused():
    with pytest.raises(UnitError, match="amdahl_limit: fraction: 'most' is not a quantity"):
        calculate("amdahl_limit", {"fraction": "most"})
    with pytest.raises(UnitError, match="'' is not a quantity"):
        calculate("throughput_pipeline", {"stages": "1s,,2s"})


def test_an_unknown_argument_suggests_and_shows_the_signature():
    with pytest.raises(DomainError, match="there is no argument 'latncy'") as caught:
        calculate("transfer_time", {"bytes": "1", "bandwidth": "1", "latncy": "1"})
    assert "latency" in caught.value.remedy
    assert "transfer_time(bytes: B, bandwidth: B/s, latency: s = 0) → s" in caught.value.remedy


def test_a_missing_argument_is_named():
    with pytest.raises(DomainError, match="transfer_time: bandwidth is missing"):
        calculate("transfer_time", {"bytes": "1 GB"})


def test_an_unknown_formula_suggests():
    with pytest.raises(UnknownNameError, match="amdahl"):
        calculate("amdal", {})


@every(all_formulas().values(), name=lambda formula: formula.name)
def test_every_example_can_be_typed(formula):
    def typed(name, value):
        unit = formula.inputs[name].unit
        if isinstance(value, str):
            return value
        values = value if isinstance(value, list) else [value]
        return ",".join(f"{item!r} {unit}" if unit != "1" and parse_unit(unit) else repr(item) for item in values)

    assignments = {name: typed(name, value) for name, value in formula.example.items()}
    expected = formula.function(**formula.example)
    found = calculate(formula.name, assignments)
    assert found == expected if isinstance(expected, str | bool) else found == pytest.approx(expected, rel=1e-12)
