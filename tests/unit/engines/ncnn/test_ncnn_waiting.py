"""Threads of ncnn that wait for each other sleep where other programs use the cores."""

import pytest

from inferometer.engines.ncnn import session


@pytest.mark.parametrize(
    ("threads", "busy", "known", "wanted"),
    [
        (2, 0.0, {}, {}),
        (2, 10.0, {}, {}),  # of a hundred: nearly both cores are free
        (2, 60.0, {}, {"GOMP_SPINCOUNT": "1000"}),  # less than one and a half cores are free
        (1, 100.0, {}, {}),  # nobody to wait for
        (2, 60.0, {"GOMP_SPINCOUNT": "7"}, {"GOMP_SPINCOUNT": "7"}),  # the user's own
    ],
)
def test_threads_sleep_where_cores_are_lacking(threads, busy, known, wanted, monkeypatch):
    monkeypatch.setattr(session.psutil, "cpu_count", lambda: 2)
    environment = dict(known)
    session._wait_asleep(threads, environment, lambda _seconds: busy)
    assert environment == wanted
