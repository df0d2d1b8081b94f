"""Rules between the parts of a measurement: what each default is, what two models share, what a step counts."""

import math
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pytest

from fakes.fake_runtime import FakeClock, FakeRuntime, write_text
from inferometer.core.binding import Binding
from inferometer.core.dims import Symbol
from inferometer.core.errors import DomainError
from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.core.profile import Environment, Phase
from inferometer.core.workload import Precision, Workload
from inferometer.engines.base import Capabilities, Kernel, Target
from inferometer.measure.bench.plan import Plan
from inferometer.measure.run import against, room, texts
from inferometer.measure.run import model as running
from inferometer.measure.run.arrays import count_steps
from inferometer.measure.run.correct import correct
from inferometer.measure.run.isolate import ChildLimits
from inferometer.measure.run.model import MeasuredRun, MeasureRequest
from inferometer.measure.run.model_file import file_nodes
from inferometer.measure.run.order import MeasureOrder, TextOrder
from inferometer.measure.run.outcome import outcome_of
from inferometer.measure.run.raw import Raw, Resident, series_of
from inferometer.measure.run.tolerance import Noise, product_count, summed_terms
from inferometer.measure.run.verify import _relative_limit
from unit.measure.bench.profiles import profile


def plain(value, *names):
    made = {name: getattr(value, name) for name in value.__dataclass_fields__ if name not in names}
    return {name: dict(each) if hasattr(each, "keys") else each for name, each in made.items()}


def test_without_options_these_defaults_stand():
    assert plain(MeasureRequest(model="m"), "model") == {
        "runtime": None, "workload": Workload(), "plan": None, "cases": (), "words": None, "weights": None,
        "threads": None, "unit": None, "providers": (), "precision": None, "optimisation": None, "sizes": {},
        "inputs": {}, "options": {}, "limits": ChildLimits(silence_s=600.0, seconds=None, memory_bytes=None), "seed": 0,
        "shape": True, "guarded": True, "strict": False, "energy": True, "ignore_memory": False, "command": None,
        "turns": None, "trust": (), "sustained_s": None, "cool_down_s": None, "loop": "product",
    }  # fmt: skip
    ran = MeasuredRun(profiles=(), graph=None, raw=Raw(ended="done"), complete=True)
    assert plain(ran, "raw") == {"profiles": (), "graph": None, "complete": True, "sizes": {}, "strict": False}
    order = MeasureOrder(runtime="r", target=Target(path="p", format="f"), plan=Plan())
    assert plain(order, "runtime", "target", "plan") == {
        "text": (), "sizes": {}, "limits": {}, "inputs": {}, "shape": True, "guarded": True, "outputs": None,
        "energy": False, "seed": 0, "turns": None, "bare": False,
    }  # fmt: skip
    with pytest.raises(DomainError, match="0 threads were asked for"):
        MeasureRequest(model="m", threads=0)
    assert MeasureRequest(model="m", threads=1).threads == 1


def test_a_strict_run_fails_only_where_the_machine_was_disturbed():
    disturbed = Raw(ended="done", environment=Environment(disturbed=True, reasons=("by a build",)))
    run = MeasuredRun(profiles=(profile(Phase(name="run", time_s=1.0)),), graph=None, raw=disturbed, complete=True)
    run.require_quiet()
    replace(run, strict=True, raw=Raw(ended="done")).require_quiet()
    with pytest.raises(Exception, match="disturbed by a build"):
        replace(run, strict=True).require_quiet()
    told = outcome_of(replace(run, strict=True, raw=replace(disturbed, ended="hung", error="e", log="l")))
    assert (told.strict, told.ended, told.error, told.log) == (True, "hung", "e", "l")
    assert told.remedy.startswith("Give it more time")
    assert outcome_of(replace(run, raw=replace(disturbed, remedy="its own", ended="hung"))).remedy == "its own"


def fed(form, precision, *shapes):
    inputs = tuple(Tensor(name=f"x{n}", shape=shape) for n, shape in enumerate(shapes))
    prepared = SimpleNamespace(graph=Graph(name="g", blocks=(), inputs=inputs), precision=precision, format=form)
    return running._fed_shapes(prepared, SimpleNamespace(sizes={"batch": 2}))


@pytest.mark.parametrize(
    ("form", "precision", "image"),
    [("tflite", "f32", (2, 5, 7, 3)), ("tflite", None, (2, 3, 5, 7)), ("onnx", "f32", (2, 3, 5, 7))],
)  # fmt: skip
def test_images_have_their_channels_last_in_a_tflite_file_of_ours(form, precision, image):
    shapes = ((Symbol("batch"), 3, 5, 7), (Symbol("batch"), 9), (1, 2, 3, 4, 5))
    assert fed(form, precision, *shapes) == {"x0": image, "x1": (2, 9), "x2": (1, 2, 3, 4, 5)}


@pytest.mark.parametrize(("step_s", "steps"), [(1.0, 1), (0.05, 4), (0.011, 18), (0.01, 20), (1e-6, 20), (0.0, 20)])
def test_the_processors_counts_are_those_of_one_step(step_s, steps):
    ran = []

    class Counters:
        descriptors, reason, counts = ("cycles",), None, None

        @contextmanager
        def counting(self):
            yield
            self.counts = {"cycles": 100.0 * len(ran)}

    assert count_steps(lambda: ran.append(1), Counters(), step_s).counts == {"cycles": 100.0}
    assert len(ran) == steps
    none = SimpleNamespace(descriptors={}, reason="hidden")
    assert asdict(count_steps(lambda: ran.append(1), none, step_s)) == {"counts": {}, "reason": "hidden"}
    assert len(ran) == steps


@pytest.mark.parametrize("per_op", [True, False])
def test_an_engine_without_timers_is_not_opened_with_them(tmp_path, per_op):
    clock, heard = FakeClock(), []
    path = write_text(tmp_path / "model.fake", context_s=0.0, sample_s=0.0)
    target = Target(path=path, format="fake", text=True, context=64)
    case = TextOrder(prompt=4, generate=3)
    plan = Plan(runs=2, seconds=0.0)
    order = MeasureOrder(runtime="fake", target=target, plan=plan, text=(case,), guarded=False)
    runtime = FakeRuntime(clock=clock, capabilities=Capabilities(text=True, logits=True, per_op=per_op))
    texts.measure_text(order, runtime, lambda name, value: heard.append((name, value)), clock=clock)
    assert bool([value for name, value in heard if name == "shape"]) == per_op


def test_kernels_that_all_read_nothing_take_nothing():
    found = correct([Kernel(name="k", kind="x", samples_s=(0.0,))], clean_s=2.0)
    assert (found.times_s, found.unattributed_s, found.scale) == ((0.0,), 2.0, 1.0)


# Two models in turns.


@pytest.mark.parametrize(
    ("plan", "runs", "warmup", "most"),
    [(None, 30, 5, 300.0), (Plan(runs=7, warmup=2, seconds=3.0, seconds_at_most=20.0), 7, 2, 40.0),
     (Plan(runs=7, seconds=50.0, seconds_at_most=60.0), 7, 5, 120.0),
     (Plan(runs=7, warmup=0, seconds=9.0, seconds_at_most=9.0), 7, 0, 18.0)],
)  # fmt: skip
def test_both_do_as_many_runs_and_may_take_twice_as_long(plan, runs, warmup, most):
    found = against._in_step(plan)
    assert (found.runs, found.warmup, found.seconds, found.seconds_at_most, found.retries) == (
        runs,
        warmup,
        0.0,
        most,
        0,
    )


def test_a_pair_has_one_mark_and_the_machine_beside_what_each_engine_said():
    own = Environment(versions={"ort": "1", "numpy": "1"}, threads=3, host={"placed": {"cpu": 2}}, energy="joules")
    seen = Environment(versions={"numpy": "2", "python": "3"}, threads=9, host={"cpu": "A", "placed": 1},
                       disturbed=True, reasons=("r",))  # fmt: skip
    mine = replace(profile(Phase(name="run", time_s=1.0)), environment=own)
    run = MeasuredRun(profiles=(mine,), graph=None, raw=Raw(ended="done"), complete=True)
    found = against._marked(run, seen, "mark", strict=True)
    environment = found.profile.environment
    assert (environment.versions, environment.threads) == ({"numpy": "1", "python": "3", "ort": "1"}, 3)
    assert environment.host == {"cpu": "A", "placed": {"cpu": 2}, "bench": {"turns": "mark"}}
    assert (environment.energy, environment.disturbed, environment.reasons) == ("joules", True, ("r",))
    assert (found.raw.environment, found.strict) == (seen, True)
    alone = against._marked(run, None, "mark", strict=False)
    assert alone.raw.environment is None
    assert alone.profile.environment == replace(own, host={"placed": {"cpu": 2}, "bench": {"turns": "mark"}})


class Conducting:
    """A conductor that only counts what it is told; it has two places, which a box may keep out of reach."""

    reachable = True

    def __init__(self, count, *, seed):
        self.made, self.stopped = (count, seed), 0

    def is_reachable(self):
        return self.reachable

    def addresses(self):
        return ("first", "second")

    def conduct(self):
        pass

    def stop(self):
        self.stopped += 1


@pytest.fixture
def in_turns(monkeypatch):
    told = SimpleNamespace(conductors=[], asked=[], ends={})

    def conductor(*given, **more):
        told.conductors.append(Conducting(*given, **more))
        return told.conductors[-1]

    def measure_model(request, *, progress):
        told.asked.append((request, progress))
        end = told.ends.get(request.model, "done")
        if isinstance(end, BaseException):
            raise end
        made = profile(Phase(name="run", time_s=1.0), model=request.model)
        return MeasuredRun(profiles=(made,), graph=None, raw=Raw(ended=end), complete=end == "done")

    monkeypatch.setattr(against, "Conductor", conductor)
    monkeypatch.setattr(against, "measure_model", measure_model)
    return told


def pair(**more):
    return (MeasureRequest(model=name, guarded=False, seed=7, **more) for name in ("old", "new"))


def test_each_gets_its_place_and_only_the_later_one_tells_how_far_it_is(in_turns):
    old, new = against.measure_in_turns(*pair(strict=True), progress="progress")
    assert (old.profile.model.name, new.profile.model.name) == ("old", "new")
    told = {request.model: (request.turns, request.guarded, request.strict, progress) for request, progress in
            in_turns.asked}  # fmt: skip
    assert told == {"old": ("first", False, False, None), "new": ("second", False, False, "progress")}
    assert (old.strict, new.strict, in_turns.conductors[0].made) == (True, True, (2, 7))
    marks = {run.profile.environment.host["bench"]["turns"] for run in (old, new)}
    assert len(marks) == 1
    again, _ = against.measure_in_turns(*pair())
    assert again.profile.environment.host["bench"]["turns"] not in marks


def test_where_no_process_may_reach_another_they_run_one_after_the_other(in_turns, monkeypatch):
    monkeypatch.setattr(Conducting, "reachable", False)
    old, new = against.measure_in_turns(*pair(strict=True), progress="progress")
    assert [(request.model, request.turns, progress) for request, progress in in_turns.asked] == [
        ("old", None, "progress"),
        ("new", None, "progress"),
    ]
    assert (old.strict, new.strict, in_turns.conductors[0].stopped) == (True, True, 1)
    for run in (old, new):
        assert "turns" not in run.profile.environment.host.get("bench", {}), "nothing says that they took turns"


@pytest.mark.parametrize("cases", [{"old": True}, {"new": True}])
def test_several_lengths_have_no_turns(in_turns, cases):
    old, new = (
        replace(each, cases=(TextOrder(prompt=1, generate=1),) if each.model in cases else ()) for each in pair()
    )
    with pytest.raises(DomainError, match="Several lengths"):
        against.measure_in_turns(old, new)


def test_where_one_fails_its_own_error_is_raised_and_the_other_is_ended(in_turns):
    in_turns.ends = {"old": KeyboardInterrupt(), "new": DomainError("broken")}
    with pytest.raises(DomainError, match="broken"):
        against.measure_in_turns(*pair())
    assert in_turns.conductors[0].stopped >= 2
    in_turns.ends = {"old": "crashed"}
    old, new = against.measure_in_turns(*pair())
    assert (old.complete, new.complete) == (False, True)
    assert in_turns.conductors[1].stopped == 2, "once for the one that ended early, once at the end"


def test_ctrl_c_ends_both_and_waits_for_what_they_have(monkeypatch):
    waits = []

    def wait(futures):
        waits.append(futures)
        if len(waits) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(against, "wait", wait)
    conductor, futures = Conducting(2, seed=0), [Future()]
    assert against._wait_for(futures, conductor) is True
    assert (waits, conductor.stopped) == ([futures, futures], 1)
    assert against._wait_for(futures, conductor) is False
    assert conductor.stopped == 1


# Memory.


@pytest.mark.parametrize(
    ("free", "limit", "available"), [(100, 60, 60), (50, 60, 50), (None, 60, 60), (70, None, 70), (None, None, None)]
)
def test_the_room_is_the_smaller_of_what_is_free_and_what_is_allowed(monkeypatch, free, limit, available):
    host = SimpleNamespace(memory=SimpleNamespace(available_bytes=free), limits=SimpleNamespace(memory_bytes=limit))
    monkeypatch.setattr(room, "detect_host", lambda: host)
    assert room.available_bytes() == available


def test_a_run_is_refused_from_the_first_byte_too_many_with_what_it_is_made_of():
    needed = SimpleNamespace(peak_bytes=3_000, weights_bytes=2_000, kv_bytes=0, activations_bytes=700,
                             workspace_bytes=300)  # fmt: skip
    room.require_room("m", needed, {}, 3_000)
    room.require_room("m", needed, {}, None)
    with pytest.raises(DomainError) as caught:
        room.require_room("m", needed, {"batch": 2, "n": 5}, 2_999)
    assert caught.value.message == (
        "m at batch 2, n 5 needs about 3 kB of memory (weights 2 kB, activations 700 B, workspace 300 B), and "
        "2.999 kB are available."
    )


@pytest.mark.parametrize(
    ("given", "asked"),
    [({"unit": "cpu"}, True), ({"unit": "cpu:0"}, True), ({"unit": "gpu"}, False),
     ({"unit": "cpu", "ignore_memory": True}, False), ({"unit": "cpu", "providers": ("p",)}, False)],
)  # fmt: skip
def test_room_is_looked_for_only_on_a_cpu(monkeypatch, given, asked):
    looked = []
    monkeypatch.setattr(room, "require_room", lambda name, _needed, sizes, _available: looked.append((name, sizes)))
    monkeypatch.setattr(running, "footprint", lambda _graph, _binding: "bytes")
    prepared = SimpleNamespace(graph=SimpleNamespace(name="g"))
    running._require_memory(MeasureRequest(model="m", **given), prepared, SimpleNamespace(sizes={"n": 1}))
    assert looked == ([("g", {"n": 1})] if asked else [])


def test_memory_over_time_is_stored_by_the_millisecond_under_its_own_name():
    raw = Raw(ended="done", resident=Resident(at_s=(0.0, 0.0206), nbytes=(10, 30)))
    held = replace(raw.memory, before_bytes=5)
    assert series_of(replace(raw, memory=held)) == {"memory_bytes": {0: 5.0, 21: 25.0}}
    assert series_of(replace(raw, memory=replace(held, device_peak_bytes=9))) == {
        "host_memory_bytes": {0: 5.0, 21: 25.0},
    }  # fmt: skip
    assert series_of(raw) == {}


# Formats that an engine holds.


def held(form, *, weights=None, precision=None, given=None, unit="cpu", engine="torch-eager"):
    runtime = SimpleNamespace(name=engine, title="Engine")
    prepared = SimpleNamespace(format=form, graph=Graph(name="g", blocks=(), precision="bf16"))
    workload = Workload(precision=given or Precision())
    request = MeasureRequest(model="m", weights=weights, precision=precision, workload=workload)
    return running._in_held_formats(request, runtime, prepared, unit)


def test_weights_that_an_engine_makes_are_in_what_it_computes_in():
    assert held("onnx", precision="f16").workload.precision == Precision()
    assert held("config", precision="f16", engine="openvino").workload.precision == Precision()
    made = held("config", weights="f16")
    assert (made.precision, made.workload.precision.weights, made.workload.precision.activations) == (
        "f16",
        "f16",
        "f16",
    )
    for engine in ("torch-graph", "torch-compile", "torch-eager"):
        on_gpu = held("config", precision="bf16", unit="gpu", engine=engine).workload.precision
        assert (on_gpu.weights, on_gpu.activations) == ("bf16", "bf16"), "a graph runs in what was asked for, too"
    loaded = held("safetensors", precision="f16", given=Precision(weights="i8"))
    assert (loaded.workload.precision.weights, loaded.workload.precision.activations) == ("i8", "f16")
    assert held("safetensors", weights="f16").precision is None, "its weights are its own"
    assert held("config", weights="f16", precision="f16").precision == "f16"
    with pytest.raises(DomainError, match="asked for f16 and f32"):
        held("config", weights="f16", precision="f32")


# Limits of errors, and a file's nodes.


def test_the_largest_error_of_many_is_allowed_more_where_an_output_is_flat():
    flat, peaked = np.full(200, 2.0), np.r_[100.0, np.zeros(199)]
    noise = Noise(rms=0.05)
    assert _relative_limit(flat, noise) == pytest.approx(0.05 * math.sqrt(2 * math.log(400)))
    assert _relative_limit(peaked, noise) == pytest.approx(0.05), "its size is a fraction of its largest"
    assert _relative_limit(flat, Noise(rms=1e-3)) == _relative_limit(np.zeros(3), noise) == 1e-3


def product(kind, **attributes):
    return Op(name="o", kind=kind, attributes=attributes)


@pytest.mark.parametrize(
    ("op", "terms"),
    [(product("convolution", in_channels=12, kernel=(3, 5)), 180),
     (product("convolution", in_channels=12, kernel=(3, 3), groups=4), 27),
     (product("convolution", in_channels=12, kernel=(1, 1), groups=0), 12), (product("linear", in_features=7), 7),
     (product("matmul", contracted=9, in_features=7), 9), (product("matmul", contracted=Symbol("n")), 0),
     (product("norm", in_features=7), 0)],
)  # fmt: skip
def test_a_sum_has_as_many_terms_as_its_window_and_channels_of_a_group(op, terms):
    graph = Graph(name="g", blocks=(Block(name="b", ops=(op,), count=2),))
    assert summed_terms(graph) == 2 * terms
    assert product_count(graph) == (0 if op.kind == "norm" else 2)


def test_a_files_nodes_are_listed_where_it_has_any_with_the_shapes_that_are_known():
    x, open_ = Tensor(name="x", shape=(2, Symbol("batch"))), Tensor(name="y", shape=(Symbol("n"),))
    ops = (Op(name="a", kind="linear", source_type="Gemm", inputs=(x,), outputs=(x, open_)),
           Op(name="b", kind="view", source_type="Reshape", outputs=(open_,)),
           Op(name="c", kind="x", source_type="Exit"))  # fmt: skip
    binding = Binding(sizes={"batch": 3})
    graph = Graph(name="g", blocks=(Block(name="main", ops=ops),))
    found = file_nodes(graph, binding)
    assert [(each.name, each.kind, each.inputs, each.outputs, each.shape) for each in found] == [
        ("a", "Gemm", ("x",), ("x", "y"), (2, 3)), ("b", "Reshape", (), ("y",), None), ("c", "Exit", (), (), None),
    ]  # fmt: skip
    assert [type(size) for size in found[0].shape] == [int, int]
    assert file_nodes(replace(graph, blocks=(replace(graph.blocks[0], count=2),)), binding) == ()
    config = replace(graph, blocks=(replace(graph.blocks[0], ops=(*ops, Op(name="d", kind="norm"))),))
    assert file_nodes(config, binding) == ()
