from dataclasses import replace

import numpy as np
import pytest

from inferometer import predict
from inferometer.core import Workload
from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.known import device, devices, grids, instances, pues
from inferometer.predict.answer import predict_graph
from inferometer.predict.energy import power_model
from inferometer.predict.money import carbon_grams, hourly_price, million_usd
from inferometer.predict.options import Battery, EnergyCosts, Hosting, Options
from unit.predict.decoders import LLAMA_3_1_8B
from unit.predict.machines import MACHINE, machine, stated

H200 = device("nvidia-h200")


def test_waiting_draws_less_than_moving_and_moving_less_than_computing():
    power = power_model(MACHINE)
    waiting, moving, computing = (
        power.joules(time_s=1.0, computing_s=c, waiting_s=w) for c, w in ((0, 1.0), (0, 0), (1.0, 0))
    )
    assert 0 < waiting < moving < computing <= 100


def test_energy_is_time_at_a_power_and_takes_arrays():
    power = power_model(MACHINE)
    times = np.array([1.0, 2.0])
    joules = power.joules(time_s=times, computing_s=0.5 * times, waiting_s=0 * times)
    assert joules[1] == pytest.approx(2 * joules[0])
    assert power.joules(time_s=0.0, computing_s=0.0, waiting_s=0.0) == 0


def test_the_ends_of_an_energy_are_those_of_its_power_and_its_time_together():
    power = replace(power_model(MACHINE), spread=1.25)
    assert power.ends(10.0, 2.0, 2.0, 2.0) == (pytest.approx(8.0), pytest.approx(12.5)), "of the power alone"
    low, high = power.ends(10.0, 2.0, 1.0, 4.0)
    assert 4 < low < 5, "wider than the time, and less than both at once"
    assert 20 < high < 25
    assert power.ends(10.0, 2.0, 1.0, None)[1] == np.inf, "how long it takes at most is not known"


def test_a_request_has_the_ends_of_its_energy_where_its_power_is_an_estimate():
    summary = predict_graph(LLAMA_3_1_8B, MACHINE, workload=Workload(prompt=64, generate=8)).summary
    assert summary.energy_low_j < summary.energy_j < summary.energy_high_j
    assert summary.energy_low_j < summary.energy_j * summary.e2e_low_s / summary.e2e_s, "wider than the time alone"
    costs = Options(energy=EnergyCosts(joules_per_flop=1e-12, joules_per_byte=2e-9))
    for other, options in ((machine(unit="npu"), Options()), (MACHINE, costs)):
        found = predict_graph(LLAMA_3_1_8B, other, workload=Workload(prompt=64), options=options).summary
        assert (found.energy_low_j, found.energy_high_j) == (None, None), "a bound and a price have no interval"


def test_an_h100_that_decodes_draws_what_was_measured():
    """ML.ENERGY leaderboard, 2026-02: 444 W with 8 sequences of Qwen3-14B, 542 W with 96, of a limit of 700 W."""
    for batch, measured_w in ((8, 444), (96, 542)):
        step = predict("qwen3-14b", on="nvidia-h100-sxm", runtime="vllm", batch=batch, prompt=550).phase("decode")
        assert step.energy_j / step.time_s == pytest.approx(measured_w, rel=0.15)


def test_a_unit_without_shares_draws_its_limit_and_says_that_it_is_a_bound():
    power = power_model(machine(unit="npu"))
    assert power.bound
    assert power.joules(time_s=2.0, computing_s=0.1, waiting_s=0.5) == pytest.approx(200.0)
    profile = predict_graph(LLAMA_3_1_8B, machine(unit="npu"), workload=Workload(context=10))
    assert any("upper bound" in note for note in profile.provenance.notes)


def test_watts_at_work_stand_for_all_work_and_have_ends():
    board = machine(unit="npu", busy_w=stated(13.0))
    power = power_model(board)
    assert not power.bound
    assert power.joules(time_s=2.0, computing_s=0.1, waiting_s=0.0) == pytest.approx(26.0)
    profile = predict_graph(LLAMA_3_1_8B, board, workload=Workload(context=10))
    summary = profile.summary
    assert summary.energy_j == pytest.approx(13.0 * summary.tpot_s)
    assert summary.energy_low_j < summary.energy_j < summary.energy_high_j
    assert any("at work, 13 W" in note for note in profile.provenance.notes)


def test_typical_watts_are_known_less_surely_than_measured_ones():
    typical, measured = (
        power_model(machine(busy_w=replace(stated(13.0), origin=origin))) for origin in ("datasheet", "measured")
    )
    assert typical.spread > measured.spread > 1


def test_every_device_with_watts_at_work_says_whose_and_draws_no_more_than_its_limit():
    rows = [each for each in map(device, devices()) if each.busy_w is not None]
    assert {"raspberry-pi-5", "raspberry-pi-4", "hailo-8", "st-stm32l4r5"} <= {each.name for each in rows}
    for each in rows:
        assert each.busy_w.note, each.name
        assert each.busy_w.source, each.name
        assert each.power_w is None or each.busy_w.value <= each.power_w.value or each.unit == "cpu", each.name


@pytest.mark.parametrize(
    ("name", "model", "published_j"),
    [
        # watts over tokens a second of DeepSeek R1 14B, as published: times are those of the priors
        ("raspberry-pi-5", "qwen2.5-14b", 13.0 / 1.20),
        ("cix-p1-cpu", "qwen2.5-14b", 34.7 / 4.33),
        ("intel-n150-cpu", "qwen2.5-14b", 30.3 / 2.13),
    ],
)
def test_a_token_of_a_board_takes_about_the_joules_that_were_published(name, model, published_j):
    summary = predict(model, on=name, runtime="llamacpp", weights="q4_k", context=512).summary
    assert summary.energy_low_j < published_j < summary.energy_high_j
    assert summary.energy_j == pytest.approx(published_j, rel=0.35)


def test_without_a_power_limit_energy_is_not_known():
    assert power_model(machine(power_w=None)) is None
    profile = predict_graph(LLAMA_3_1_8B, machine(power_w=None), workload=Workload(context=10))
    assert profile.summary.energy_j is None
    options = Options(battery=Battery(capacity_j=1e5, per_s=1))
    with pytest.raises(DomainError, match="energy"):
        predict_graph(LLAMA_3_1_8B, machine(power_w=None), workload=Workload(context=10), options=options)


def test_a_stated_idle_power_is_used():
    assert power_model(machine(idle_w=stated(5.0))).idle_w == 5.0


def test_coefficients_price_operations_and_bytes_and_idle():
    options = Options(energy=EnergyCosts(joules_per_flop=1e-12, joules_per_byte=2e-9))
    device = machine(idle_w=stated(5.0))
    phase = predict_graph(LLAMA_3_1_8B, device, workload=Workload(context=10), options=options).phase("decode")
    assert phase.energy_j == pytest.approx(1e-12 * phase.flops + 2e-9 * phase.bytes + 5.0 * phase.time_s)


def test_a_battery_lasts_as_long_as_its_energy():
    options = Options(battery=Battery(capacity_j=15 * 3600, per_s=2, efficiency=0.9))
    device = machine(idle_w=stated(1.0))
    summary = predict_graph(LLAMA_3_1_8B, device, workload=Workload(context=10), options=options).summary
    between = 1 - 2 * summary.tpot_s  # a request's energy has the idle power in it: it comes on top only in between
    assert summary.battery_s == pytest.approx(0.9 * 54_000 / (2 * summary.energy_j + between * 1.0))
    assert summary.inferences_per_charge == pytest.approx(2 * summary.battery_s)


def test_the_cheapest_instance_with_the_device_is_taken_by_its_share():
    cheapest = min(
        float(row.usd_per_hour) / row.count
        for row in instances().values()
        if row.device == "nvidia-h200" and row.usd_per_hour is not None
    )
    price = hourly_price(H200, 2, Hosting())
    assert price.usd_per_hour == pytest.approx(2 * cheapest)
    assert "on demand" in price.note


def test_a_price_may_be_given_or_an_instance_named():
    assert hourly_price(H200, 1, Hosting(usd_per_hour=7.5)).usd_per_hour == 7.5
    name, row = next((n, r) for n, r in instances().items() if r.device == "nvidia-h200" and r.usd_per_hour)
    assert hourly_price(H200, row.count, Hosting(instance=name)).usd_per_hour == pytest.approx(float(row.usd_per_hour))


def test_an_instance_of_another_device_is_refused():
    name = next(n for n, row in instances().items() if row.device != "nvidia-h200")
    with pytest.raises(DomainError, match="was asked for"):
        hourly_price(H200, 1, Hosting(instance=name))
    with pytest.raises(UnknownNameError):
        hourly_price(H200, 1, Hosting(instance="nobody-has-it"))


def test_a_device_nobody_rents_has_no_price():
    assert hourly_price(MACHINE, 1, Hosting()) is None
    assert predict_graph(LLAMA_3_1_8B, MACHINE).summary.usd_per_million_tokens is None


def test_a_million_tokens_cost_what_they_take():
    price = hourly_price(MACHINE, 1, Hosting(usd_per_hour=3.6))
    assert million_usd(price, 1000.0) == pytest.approx(1.0)
    assert million_usd(price, np.array([1000.0, 500.0])) == pytest.approx([1.0, 2.0])


def test_carbon_needs_a_grid_and_counts_the_sites_overhead():
    (name, row), (site, overhead) = next(iter(grids().items())), next(iter(pues().items()))
    plain = carbon_grams(3.6e6, Hosting(grid=name))
    assert plain == pytest.approx(float(row.carbon_g_per_kwh))
    assert carbon_grams(3.6e6, Hosting(grid=name, pue=site)) == pytest.approx(plain * float(overhead.pue))
    assert carbon_grams(3.6e6, Hosting()) is None


def test_prices_are_no_less_than_nothing():
    with pytest.raises(DomainError, match="usd_per_hour"):
        replace(Hosting(), usd_per_hour=-1.0)
    with pytest.raises(DomainError, match="usd_per_hour"):
        Hosting(usd_per_hour=float("nan"))
