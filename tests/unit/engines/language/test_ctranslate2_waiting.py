"""Threads of CTranslate2 that wait sleep where both of its pools together have more than there are cores."""

import pytest

from inferometer.engines.ctranslate2 import session

ASLEEP = {"OMP_WAIT_POLICY": "passive"}


@pytest.mark.parametrize(
    ("where", "loaded", "known", "wanted"),
    [
        (("aarch64", 2, 2), False, {}, ASLEEP),
        (("arm64", 2, 2), False, {}, ASLEEP),
        (("aarch64", 2, 3), False, {}, {}),  # there is a core for each
        (("aarch64", 1, 1), False, {}, {}),  # nobody to wait for
        (("x86_64", 2, 2), False, {}, {}),  # one pool alone
        (("aarch64", 2, 2), True, {}, {}),  # read already
        (("aarch64", 2, 2), True, ASLEEP, ASLEEP),
        (("aarch64", 2, 2), False, {"OMP_WAIT_POLICY": "active"}, {"OMP_WAIT_POLICY": "active"}),  # the user's own
    ],
)
def test_threads_sleep_where_cores_are_lacking(where, loaded, known, wanted, monkeypatch):
    machine, threads, cores = where
    monkeypatch.setattr(session.platform, "machine", lambda: machine)
    monkeypatch.setattr(session.psutil, "cpu_count", lambda: cores)
    monkeypatch.setattr(session.sys, "modules", {"ctranslate2": None} if loaded else {})
    environment = dict(known)
    said = session._wait_asleep(threads, environment)
    monkeypatch.undo()
    assert environment == wanted
    assert bool(said) == (wanted == ASLEEP)
