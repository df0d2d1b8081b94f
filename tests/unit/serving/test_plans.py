"""The sums behind a plan: what a device draws, how long a request stays, and when a servers' answer is there."""

from types import SimpleNamespace

import numpy as np
import pytest

from inferometer.serving.plans import closed, edge
from inferometer.serving.plans.asked import EdgeAsked, PlanSearch
from inferometer.serving.plans.tiers import edge_tier
from inferometer.traffic.lengths import Lengths


def test_a_device_draws_its_idle_power_while_it_waits(monkeypatch):
    power = SimpleNamespace(moving_w=10.0, computing_w=20.0, idle_w=4.0)
    monkeypatch.setattr(edge, "power_model", lambda _device: power)
    assert edge._watts(None, 0.25) == 0.25 * 15 + 0.75 * 4


def test_a_request_stays_for_its_first_token_and_a_step_for_each_other(monkeypatch):
    monkeypatch.setattr(closed, "_times", lambda *_: SimpleNamespace(own=0.5, extra=0.2, share=0.2))
    step = SimpleNamespace(decode_seconds=lambda count, _context: np.full_like(count, 0.1))
    curve = closed.load_curve(SimpleNamespace(memory=None, step=step), SimpleNamespace(prompt=100, generate=11), 4)
    assert curve.ttft_s[0] == pytest.approx(0.5 + 0.1 / 2)
    assert curve.tpot_s[0] == pytest.approx(0.1 + 0.2 / 11)  # a prompt of another is read meanwhile
    assert curve.sequences / curve.rate_per_s == pytest.approx(curve.ttft_s + 10 * curve.tpot_s)


def test_the_servers_answer_is_there_after_the_edges_own_and_the_way():
    search = PlanSearch(
        model="llama-3.2-1b", rate_per_s=1.0, prompt=Lengths(kind="fixed", mean=50),
        generate=Lengths(kind="fixed", mean=11), fallback=0.25,
        edge=EdgeAsked(device="raspberry-pi-5", round_trip_s=0.5),
    )  # fmt: skip
    tier = edge_tier(search, SimpleNamespace(ttft_s=1.0, tpot_s=0.1))
    assert tier.handed_on_s == pytest.approx(tier.answer_s + 0.5 + 1.0 + 10 * 0.1)
    assert tier.mean_s == pytest.approx(0.75 * tier.answer_s + 0.25 * tier.handed_on_s)
