"""The speed of a host: the time of a fixed piece of work, from a quiet part of its batches."""

from itertools import count

from inferometer.known.machine.health import host_calls


def test_the_figure_is_a_quiet_batch_over_its_calls(monkeypatch):
    """Every third batch is disturbed, and counts for nothing: others took 2 ms for 2,000 calls."""
    monkeypatch.setattr(host_calls, "_CALLS", 2000)  # as outside of tests
    turns, now = count(), 0.0

    def clock():
        nonlocal now
        turn = next(turns)
        if turn % 2:
            now += 5e-3 if turn // 2 % 3 == 0 else 2e-3
        return now

    assert abs(host_calls.host_call_s(clock) - 1e-6) < 1e-12
