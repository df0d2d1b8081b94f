"""A network that is run step by step: every kernel has one sample for each step of its phase."""

from types import SimpleNamespace

import pytest

pytest.importorskip("openvino", reason="openvino is not installed")

from inferometer.engines.openvino_genai import session
from inferometer.engines.openvino_genai.session import CounterReading, SteppedNetwork


def test_a_kernel_that_runs_only_in_later_steps_took_nothing_in_those_before(monkeypatch):
    network = object.__new__(SteppedNetwork)
    network._counting, network._request, network._read = True, SimpleNamespace(), CounterReading()
    network._samples, network._counts = {}, {}
    for steps, means in ((1, {"a": 1.0}), (3, {"a": 1.0, "b": 2.0})):
        monkeypatch.setattr(session, "executed_seconds", lambda _request, means=means: means)
        network._steps = steps
        network.count("decode")
    samples = network._samples["decode"]
    assert {name: len(values) for name, values in samples.items()} == {"a": 3, "b": 3}
    assert samples["b"][0] == 0.0
    assert sum(samples["b"]) == pytest.approx(6.0)  # means are over all steps since it was compiled
