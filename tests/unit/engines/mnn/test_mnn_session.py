"""MNN's session without the engine: what its timers cost, which layer a kernel belongs to, and what closing closes."""

import sys
from itertools import accumulate, chain, repeat
from pathlib import Path
from types import SimpleNamespace

import pytest

from inferometer.engines.base import FileNode, Opened, Target
from inferometer.engines.mnn import session as module
from inferometer.engines.mnn.session import MnnSession, open_session


def call_back(_session, before, after, *, operators=2):
    """As MNN does for each operator; what it would run is not run where the first callback says no."""
    for _ in range(operators):
        assert not before([], None)
        assert after([], None)


def session(clock=lambda: 0.0, **more):
    interpreter = SimpleNamespace(
        getSessionInputAll=lambda _: {}, getSessionOutputAll=lambda _: {}, runSessionWithCallBackInfo=call_back
    )
    nodes = tuple(FileNode(name=name, kind="conv") for name in ("conv1", "conv1/activation", "conv2"))
    target = Target(path=Path("m.mnn"), format="mnn", instrument=True, nodes=nodes)
    opened = Opened(stages=(), versions={}, inputs=(), outputs=(), threads=1)
    return MnnSession(None, interpreter, object(), opened, target, clock, **more)


def test_the_cost_of_a_timer_is_the_usual_one_and_not_that_of_an_interruption():
    steps = chain([0.0, 5.0], repeat(0.25))  # the first pair of readings was interrupted
    times = accumulate(steps)
    assert session(clock=lambda: next(times)).cost_per_kernel_s == pytest.approx(0.25)


def test_a_change_of_layout_belongs_to_the_layer_that_it_is_made_for():
    made = session()
    assert made._layers_of("conv1") == made._layers_of("conv1_raster_0") == ("conv1", "conv1/activation")
    assert made._layers_of("conv2_raster_1") == ("conv2",)
    assert made._layers_of("somebody_else") == ()


@pytest.mark.parametrize(
    ("asked", "engines", "sums"), [("f16", "low", "f16"), ("f32", "high", None), (None, "high", None)]
)
def test_narrow_numbers_are_summed_in_narrow_ones(tmp_path, monkeypatch, asked, engines, sums):
    """By which the limits of its outputs are chosen."""
    (tmp_path / "m.mnn").write_bytes(b"")
    told = []
    interpreter = SimpleNamespace(
        createSession=lambda settings: told.append(settings["precision"]) or object(), resizeSession=lambda _: None,
        getSessionInputAll=lambda _: {}, getSessionOutputAll=lambda _: {},
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "_mnncengine", SimpleNamespace(Interpreter=lambda _path: interpreter))
    monkeypatch.setattr(module, "version", lambda _package: "3")
    target, clock = Target(path=tmp_path / "m.mnn", format="mnn", precision=asked, threads=1), iter([10.0, 12.5])
    opened = open_session(target, "mnn", clock=clock.__next__).opened
    assert (told, opened.precision, opened.sums) == ([engines], asked or "f32", sums)
    assert [(stage.name, stage.seconds) for stage in opened.stages] == [("load", 2.5)]


def test_the_processors_counters_are_closed_with_the_session():
    closed = []
    made = session(counters=SimpleNamespace(close=lambda: closed.append(True), descriptors=()))
    made.close()
    assert closed == [True]
