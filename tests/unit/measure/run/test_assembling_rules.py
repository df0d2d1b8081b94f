"""From readings to a profile: what each number is of, where two neighbours could be taken for each other."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from inferometer.core.binding import Binding
from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.core.profile import Environment, OpTime, Phase
from inferometer.core.workload import Workload
from inferometer.engines.base import Capabilities, Event, Kernel, Opened
from inferometer.measure.bench.plan import Plan
from inferometer.measure.run import model as running
from inferometer.measure.run.assemble import _device, _environment, _peak, _top_units, mean_step
from inferometer.measure.run.beside import _by_layer, _Expected, _op, remarks
from inferometer.measure.run.correct import correct
from inferometer.measure.run.layers import graph_layers
from inferometer.measure.run.model import MeasureRequest
from inferometer.measure.run.model_file import mixture_note
from inferometer.measure.run.order import TextOrder
from inferometer.measure.run.raw import Generation, MemoryReadings, Raw, Resident
from inferometer.measure.run.verify import compare_text
from unit.measure.bench.profiles import profile

OPENED = Opened(stages=(), versions={"e": "1"}, threads=2, unit="gpu:1", placed={"gpu": 3})


def test_memory_is_the_devices_or_the_growth_of_the_process():
    def peak(**readings):
        return _peak(Raw(ended="done", memory=MemoryReadings(**readings)))

    assert peak(before_bytes=100, opened_bytes=250, peak_bytes=400) == 300
    assert peak(before_bytes=100, peak_bytes=400, device_peak_bytes=70) == 70
    assert peak(before_bytes=500, peak_bytes=400) == 0
    assert peak(peak_bytes=400) is None
    assert peak(before_bytes=100) is None


def test_the_device_is_named_by_the_unit_it_ran_on():
    seen = Environment(host={"cpu": "A CPU", "gpus": ["First", "Second"]})
    assert _device(Raw(ended="done", opened=OPENED, environment=seen)).title == "First"
    assert _device(Raw(ended="done", opened=replace(OPENED, unit="cpu"), environment=seen)).title == "A CPU"
    assert _device(Raw(ended="done", opened=OPENED, environment=Environment(host={"cpu": "A CPU"}))).title == "A CPU"
    assert _device(Raw(ended="done")).title is None


def test_an_environment_has_what_the_engine_said_beside_what_was_seen():
    raw = Raw(
        ended="done", opened=OPENED, environment=Environment(versions={"numpy": "2"}, host={"cpu": "A CPU"}),
        memory=MemoryReadings(before_bytes=1, peak_bytes=3), resident=Resident(at_s=(0.0, 1.0), nbytes=(5, 6)),
    )  # fmt: skip
    found = _environment(raw)
    assert (found.versions, found.threads) == ({"numpy": "2", "e": "1"}, 2)
    assert found.host == {
        "cpu": "A CPU", "placed": {"gpu": 3},
        "memory": {"before_bytes": 1, "peak_bytes": 3, "at_s": [0.0, 1.0], "model_bytes": [4, 5]},
    }  # fmt: skip
    assert _environment(Raw(ended="done")) == Environment()


def test_the_top_unit_is_by_time_and_by_number():
    ops = [
        OpTime(name=str(n), kind="x", time_s=t, unit=u)
        for n, (t, u) in enumerate(((5, "npu"), (1, "gpu"), (1, "gpu"), (1, None)))
    ]
    phases = (Phase(name="forward", time_s=8.0, ops=tuple(ops)),)
    assert _top_units(phases, Workload(), Raw(ended="done")) == {"top_unit": "npu", "top_unit_by_count": "gpu"}
    nothing = _top_units((), Workload(), Raw(ended="done", opened=OPENED))
    assert nothing == {"top_unit": "gpu:1", "top_unit_by_count": "gpu:1"}
    prefill = Phase(name="prefill", time_s=5.0, ops=(OpTime(name="a", kind="x", time_s=5.0, unit="npu"),))
    decode = Phase(name="decode", time_s=1.0, ops=(OpTime(name="a", kind="x", time_s=1.0, unit="gpu"),))
    request = _top_units((prefill, decode), Workload(prompt=8, generate=9), Raw(ended="done"))
    assert request["top_unit"] == "gpu", "eight steps take longer than the prompt"


def event(kind, start_ms, end_ms, *, tokens=1, **parts):
    return Event(
        kind=kind, start_ns=round(start_ms * 1e6), end_ns=round(end_ms * 1e6), tokens=tokens, context=0, parts=parts
    )


def test_a_mean_step_is_from_the_first_token_to_the_last():
    case = TextOrder(prompt=1, generate=1)
    steps = (event("token", 12, 14), event("token", 15, 20, tokens=3))
    assert mean_step(Generation(order=case, events=(event("prefill", 0, 10), *steps))) == pytest.approx(10e-3 / 4)
    assert mean_step(Generation(order=case, events=steps)) == pytest.approx(8e-3 / 4)
    assert mean_step(Generation(order=case, events=(event("prefill", 0, 10),))) is None


# Beside a prediction.


def linear(name, dtype="f32"):
    x = Tensor(name="x", shape=(2, 4))
    weight = Tensor(name=f"{name}.weight", shape=(4, 4), role="weight", dtype=dtype)
    features = {"in_features": 4, "out_features": 4}
    return Op(name=name, kind="linear", inputs=(x,), outputs=(x,), weights=(weight,), attributes=features)


def layered(*names, count=3):
    ops = tuple(linear(f"layers.{{}}.{name}", dtype) for name, dtype in names)
    blocks = (Block(name="body", ops=ops, count=count, first=2), Block(name="end", ops=(linear("head"),)))
    return Graph(name="g", blocks=blocks, precision="f32")


GRAPH = layered(("up", "f32"), ("down", "f32"))


def test_layers_stand_in_the_order_they_run():
    layers = graph_layers(GRAPH, Binding()).by_name
    names = [f"layers.{n}.{part}" for n in (2, 3, 4) for part in ("up", "down")] + ["head"]
    assert sorted(layers, key=lambda name: layers[name].place) == names
    assert [layers[name].place for name in names] == list(range(7))


def test_a_weight_of_every_repetition_counts():
    mixed = layered(("up", "q4_0"), ("down", "q8_0"))
    assert list(mixture_note(mixed)) == ["The weights are stored as q4_0 43%, q8_0 43%, f32 14% (of the parameters)."]


def test_a_prediction_of_equal_layers_is_shared_among_them():
    up = OpTime(name="layers.2.up", kind="linear", time_s=9.0, floor_s=6.0, count=3, bound="memory")
    ops = (OpTime(name="sampling", kind="sampling", time_s=4.0, count=2), up)
    found = _by_layer(Phase(name="decode", time_s=13.0, ops=ops), GRAPH)
    assert {name: one.time_s for name, one in found.items()} == {
        "layers.2.up": 3.0, "layers.3.up": 3.0, "layers.4.up": 3.0, "sampling": 2.0,
    }  # fmt: skip
    assert found["layers.3.up"].floor_s == 2.0
    assert found["sampling"].floor_s is None, "its work is not known"


def test_a_kernel_of_several_layers_has_the_sum_of_those_that_are_known():
    expected = {
        "a": _Expected(time_s=1.0, floor_s=0.5, bound="memory", rung="one"),
        "b": _Expected(time_s=3.0, floor_s=1.0, bound="compute", rung="other"),
    }
    both = _op(OpTime(name="k", kind="x", time_s=9.0, layers=("a", "b", "unknown")), expected)
    assert (both.predicted_s, both.floor_s, both.bound) == (4.0, 1.5, "compute")
    assert _op(OpTime(name="a", kind="x", time_s=9.0), expected).predicted_s == 1.0
    nothing = OpTime(name="z", kind="x", time_s=9.0)
    assert _op(nothing, expected) is nothing


def test_floors_of_more_cores_and_layers_that_beat_theirs_are_remarked():
    quick = [OpTime(name="a", kind="x", time_s=1.0, floor_s=2.0, bound="memory"),
             OpTime(name="b", kind="x", time_s=1.0, floor_s=1.0),
             OpTime(name="c", kind="x", time_s=2.0, floor_s=3.0, bound="compute")]  # fmt: skip

    def said(threads, cores, ops=quick, seconds=10.0):
        found = profile(Phase(name="forward", time_s=seconds, ops=tuple(ops)))
        return list(remarks(replace(found, environment=Environment(threads=threads)), cores=cores))

    first, second = said(1, 4)
    assert first == "The floor counts all 4 cores; the engine had 1 thread."
    assert "2 layers, 30% of the time, beat their floor: 1 are bound by memory" in second
    assert "1 are bound by compute" in second
    assert said(4, 4, ops=()) == said(None, 4, ops=()) == said(2, None, ops=()) == []


# The order that a child gets.


def test_a_bare_loop_is_asked_of_an_engine_that_has_one_and_leaves_the_layers_out():
    graph = SimpleNamespace(name="g", metadata={})
    prepared = SimpleNamespace(graph=graph, path=Path("m.onnx"), format="onnx", text=True, precision=None)
    request, saved = MeasureRequest(model="m", loop="bare"), (running.input_shapes, running.index_limits)
    running.input_shapes, running.index_limits = (lambda *_: {}), (lambda *_: {})
    try:
        for bare in (True, False):
            runtime = SimpleNamespace(name="fake", title="Fake", capabilities=Capabilities(text=True, bare=bare))
            given = request, runtime, prepared, SimpleNamespace(sizes={}), Workload(prompt=3, generate=4)
            if bare:
                order = running._order(*given)
                assert (order.bare, order.shape) == (True, False)
            else:
                with pytest.raises(DomainError, match="Fake loops over a generation itself"):
                    running._order(*given)
    finally:
        running.input_shapes, running.index_limits = saved
    with pytest.raises(UnknownNameError, match="bear"):
        MeasureRequest(model="m", loop="bear")


def test_everything_asked_for_is_in_the_order():
    graph = SimpleNamespace(name="g", metadata={})
    prepared = SimpleNamespace(graph=graph, path=Path("m.onnx"), format="onnx", text=True, precision=None)
    request = MeasureRequest(
        model="m", threads=5, unit="gpu:1", providers=("p",), precision="f16", optimisation="all", options={"k": "v"},
        inputs={"x": "1"}, shape=False, guarded=False, seed=9, words="hello",
    )  # fmt: skip
    runtime = SimpleNamespace(name="fake")
    sizes = SimpleNamespace(sizes={"batch": 3.0})

    def order(asked=request, ready=prepared, workload=None):
        saved = running.input_shapes, running.index_limits
        running.input_shapes, running.index_limits = (lambda *_: {"x": (3,)}), (lambda *_: {"ids": 7})
        try:
            return running._order(
                asked, runtime, ready, sizes, workload or Workload(batch=3, prompt=10, generate=4, context=6)
            )
        finally:
            running.input_shapes, running.index_limits = saved

    found = order()
    target = found.target
    assert (found.runtime, target.shapes, found.sizes, found.limits) == (
        "fake", {"x": (3,)}, {"batch": 3}, {"ids": 7},
    )  # fmt: skip
    assert (found.inputs, found.shape, found.guarded, found.seed) == ({"x": "1"}, False, False, 9)
    assert (target.path, target.format, target.text, target.threads, target.unit) == (
        Path("m.onnx"),
        "onnx",
        True,
        5,
        "gpu:1",
    )
    assert (target.providers, target.precision, target.optimisation) == (("p",), "f16", "all")
    assert (target.context, target.batch, target.seed, target.options) == (20, 3, 9, {"k": "v"})
    assert found.text == (TextOrder(prompt=10, generate=4, depth=6, words="hello"),)
    cases = (TextOrder(prompt=1, generate=2), TextOrder(prompt=30, generate=2, depth=8))
    several = order(replace(request, cases=cases, runtime="other", plan=Plan(runs=7)))
    assert (several.text, several.target.context, several.runtime, several.plan.runs) == (cases, 40, "other", 7)
    arrays = order(ready=SimpleNamespace(**{**vars(prepared), "text": False}))
    assert (arrays.text, arrays.target.context) == ((), None)
    assert arrays.plan != order().plan, "an engine of arrays has a plan of its own"


# More of corrections and checks.


def test_a_devices_own_clock_is_what_a_share_is_of():
    kernel = Kernel(name="k", kind="x", samples_s=(9e-3, 9e-3), device_s=(3e-3, 5e-3))
    found = correct([kernel], clean_s=10e-3, walls_s=(10e-3, 10e-3), paired_s=(10e-3, 10e-3))
    assert sum(found.times_s) == pytest.approx(4e-3)
    longer = Kernel(name="k", kind="x", samples_s=(30e-3, 30e-3))
    assert correct([longer], clean_s=10e-3, walls_s=(40e-3,) * 2, paired_s=(10e-3,) * 2).unattributed_s == 0.0


def test_texts_of_unequal_length_are_compared_as_far_as_both_go():
    ours, theirs = ({"ids": np.array([1]), "made": np.array(made)} for made in ([1, 2, 3], [1, 2, 3, 4, 5, 6]))
    assert compare_text(ours, theirs, against="r").top_1 == 1.0
    assert compare_text(theirs, ours, against="r").top_1 == 1.0


def test_the_difference_of_logits_is_the_largest_of_any():
    a, b = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 2.5], [3.0, 4.0]])
    found = compare_text({"ids": np.array([0, 1]), "logits": a}, {"ids": np.array([0, 1]), "logits": b}, against="r")
    assert (found.max_abs, found.max_rel) == (0.5, 0.125)
