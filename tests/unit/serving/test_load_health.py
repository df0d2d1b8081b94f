"""What a load generator says of itself: whether it, and not the service, was the limit."""

import asyncio
import selectors
from contextlib import closing

import pytest

from inferometer.core.served import ClientReadings
from inferometer.serving.load.health import ProcessHealth, readings
from inferometer.serving.load.loops import new_loop


def health(lag_s=0.0, cpu=0.1):
    return ProcessHealth(lags=[lag_s] * 10, cpu_share=cpu, connections=3)


def test_one_that_keeps_up_has_nothing_to_say():
    found = readings([health(), health()], [0.0001] * 10, 0.5)
    assert (found.bottleneck, found.reasons) == (False, ())
    assert (found.processes, found.connections) == (2, 6)


@pytest.mark.parametrize(
    ("processes", "delays", "usual_s", "shed", "says"),
    [
        ([health(cpu=0.1), health(cpu=1.0)], [], 0.5, 0, "100% of a core: more --processes"),  # the busiest counts
        ([health()], [0.0] * 90 + [0.2] * 10, 0.5, 0, "left 200 ms late"),
        ([health(lag_s=0.5)], [], 0.5, 0, "something else keeps this machine busy"),
        ([health()], [], 0.5, 4, "4 connections could not be opened"),
    ],
)
def test_what_limited_it_is_named(processes, delays, usual_s, shed, says):
    found = readings(processes, delays, usual_s, shed=shed)
    assert found.bottleneck
    assert len(found.reasons) == 1
    assert says in found.reasons[0]


def test_who_was_not_looked_at_is_no_bottleneck():
    assert (ClientReadings().bottleneck, ClientReadings().reasons) == (False, ())


def test_a_delay_counts_beside_what_is_measured():
    assert not readings([health()], [0.05] * 10, 100.0).bottleneck
    assert readings([health()], [0.05] * 10, 0.1).bottleneck


def test_a_machine_without_epoll_has_the_loop_that_python_has(monkeypatch):
    monkeypatch.delattr(selectors, "EpollSelector", raising=False)
    with closing(asyncio.new_event_loop()) as usual, closing(new_loop()) as found:
        assert type(found._selector) is type(usual._selector)
