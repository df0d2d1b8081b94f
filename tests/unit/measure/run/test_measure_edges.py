"""What reaches an engine, what is kept of a child, and the edges of limits and choices: no engine runs here."""

import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from inferometer.core.errors import DomainError, EngineError, FormatError, InferometerError
from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.core.profile import Environment, OpTime, Phase, Verification
from inferometer.core.workload import Precision, Workload
from inferometer.engines.base import Event, Kernel, Missing, Opened, Ready
from inferometer.measure.bench.plan import Plan
from inferometer.measure.run import isolate
from inferometer.measure.run import model as running
from inferometer.measure.run import model_file as prepare
from inferometer.measure.run.arrays import _TURN, _but_first, _warm
from inferometer.measure.run.correct import capped, steady_mean
from inferometer.measure.run.energy import CaseEnergy, TextEnergy, _parts, _request_j, with_energy
from inferometer.measure.run.isolate import ChildLimits, _broken, _crashed, _tail, _with, _with_partial
from inferometer.measure.run.layers import graph_layers, stem
from inferometer.measure.run.model import MeasureRequest
from inferometer.measure.run.model_file import (
    PreparedModel,
    SyntheticWeights,
    _config,
    _safe,
    can_open,
    main_format,
    mixture_note,
)
from inferometer.measure.run.ops import _factors, _like_each_other, _readings
from inferometer.measure.run.order import TextOrder
from inferometer.measure.run.raw import Generation, MemoryWatch, Raw
from inferometer.measure.run.spans import trace_of
from inferometer.measure.run.texts import _instrumented_tokens, _shape, _thinned
from inferometer.measure.spans.energy import EnergyStretch
from unit.measure.bench.profiles import profile
from unit.measure.run.test_profiles_told import graph, subject

# A child: when it is stopped, and what is kept of it.


def test_a_child_is_stopped_at_its_limits():
    tree = SimpleNamespace(nbytes=lambda: 101)
    limits = ChildLimits(silence_s=10.0, seconds=20.0, memory_bytes=100)
    assert _broken(limits, tree, silent_s=10.0, spent_s=0.0)[0] == "hung"
    assert _broken(limits, tree, silent_s=9.9, spent_s=20.0)[1] == "It was not done after 20 s, and was stopped."
    assert _broken(limits, tree, silent_s=9.9, spent_s=19.9)[0] == "too-big"
    held = replace(limits, memory_bytes=101)
    assert _broken(held, tree, silent_s=9.9, spent_s=19.9) is None
    assert _broken(limits, SimpleNamespace(nbytes=lambda: None), silent_s=0.0, spent_s=0.0) is None
    assert _broken(replace(limits, memory_bytes=None, seconds=None), None, silent_s=0.0, spent_s=1e9) is None


def test_a_crash_is_told_by_its_signal_or_its_code():
    def told(code):
        process = SimpleNamespace(wait=lambda: None, returncode=code)
        return _crashed(Raw(ended="crashed"), SimpleNamespace(process=process)).error

    assert told(3) == "The engine's process ended by itself with exit code 3."
    assert told(-signal.SIGSEGV) == "The engine's process was ended by SIGSEGV."
    assert told(-signal.SIGKILL).endswith("when it runs out of memory.")
    assert told(-999) == "The engine's process was ended by 999."


def test_what_a_child_tells_is_added_to_what_it_told(tmp_path):
    raw = Raw(ended="crashed")
    told = [("samples", (1.0, 2.0)), ("samples", (3.0,)), ("kept", {"a": "x"}), ("kept", {"b": "y"}), ("shape", "s"),
            ("shape", "t"), ("energy", "e"), ("generation", "g"), ("first_s", 4.0)]  # fmt: skip
    for name, value in told:
        raw = _with(raw, name, value)
    assert (raw.partial_s, raw.kept, raw.shapes) == ((1.0, 2.0, 3.0), {"a": "x", "b": "y"}, ("s", "t"))
    assert (raw.energies, raw.generations, raw.first_s) == (("e",), ("g",), 4.0)
    partial = _with_partial(raw).clean
    assert (partial.samples_s, partial.runs, partial.complete) == ((1.0, 2.0, 3.0), 3, False)
    assert _with_partial(replace(raw, clean="whole")).clean == "whole"
    assert _with_partial(replace(raw, reported=())).clean is None
    log = tmp_path / "log"
    assert _tail(log) == ""
    log.write_bytes(b"a" * 64_000 + b"end")
    assert (_tail(log)[-4:], len(_tail(log))) == ("aend", 64_000)


def test_the_log_of_a_child_is_kept(monkeypatch, tmp_path):
    class Child:
        process = SimpleNamespace(pid=1)

        def __init__(self, order, log):
            self.order, self.log = order, log
            log.write_text("printed")

        def end(self):
            self.ended = True

    monkeypatch.setattr(isolate, "_Child", Child)
    monkeypatch.setattr(isolate, "resident_of", lambda _pid: lambda: 5)
    monkeypatch.setattr(isolate, "_listen", lambda *_: Raw(ended="done", reported=((1.0,),)))
    found = isolate.isolated(SimpleNamespace())
    assert (found.log, found.clean.samples_s) == ("printed", (1.0,))


def test_memory_that_could_not_be_read_at_first_is_read_at_the_next_look():
    held = iter([None, 7])
    watch = MemoryWatch(lambda: next(held), lambda: 0.0)
    watch.begin()
    watch.look()
    assert watch.series.nbytes == (7,)


def test_memory_is_watched_ever_more_rarely():
    now, held = [0.0], iter(range(100))
    watch = MemoryWatch(lambda: next(held), lambda: now[0], step_s=1.0, most=4)
    watch.look()
    assert watch.series.at_s == ()
    watch.begin()
    watch.begin()
    for at in (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0):
        now[0] = at
        watch.look()
    assert (watch.series.at_s, watch.step_s) == ((0.0, 4.0, 8.0), 4.0)
    now[0] = 20.0
    watch.end()
    count = len(watch.series.at_s)
    now[0] = 40.0
    watch.look()
    assert (len(watch.series.at_s), watch.series.at_s[-1]) == (count, 20.0)


# What is asked of an engine.

PREPARED = PreparedModel(path=Path("m.gguf"), format="gguf", graph=graph(), text=True, notes=("made up",))
RUNTIME = SimpleNamespace(name="engine", title="An engine", formats=frozenset({"gguf"}),
                          capabilities=SimpleNamespace(text=True, arrays=True))  # fmt: skip


def generation(order, tokens=3):
    steps = [Event(kind="token", start_ns=n * 10**6, end_ns=(n + 1) * 10**6, tokens=1, context=n) for n in (5, 6, 7)]
    return Generation(order=order, events=(Event(kind="prefill", start_ns=0, end_ns=5 * 10**6, tokens=tokens,
                                                 context=0), *steps))  # fmt: skip


def measured(monkeypatch, request, *, raw=None):
    """The run of a request, and the order that the child got."""
    seen = []

    def isolated(order, *, limits, progress, sensors):
        assert sensors is None, "nobody asked whether the speed lasts"
        seen.append((order, limits, progress))
        made = tuple(generation(text) for text in order.text)
        return raw or Raw(ended="done", opened=Opened(stages=(), versions={}), generations=made)

    monkeypatch.setattr(running, "runtime_named", lambda _name: RUNTIME)
    monkeypatch.setattr(running, "prepare_model", lambda *given: seen.append(given) or PREPARED)
    monkeypatch.setattr(running, "isolated", isolated)
    found = running.measure_model(request, progress="bar")
    return found, seen


def test_all_of_a_request_reaches_the_engine_and_the_profile(monkeypatch):
    request = MeasureRequest(
        model="m.gguf", runtime="engine", workload=Workload(batch=3, prompt=7, generate=4, context=11), seed=9,
        threads=2, unit="gpu", providers=("p",), precision="f16", optimisation="all", options={"k": "v"},
        weights="q4_0", inputs={"x": "1"}, shape=False, guarded=False, energy=False, strict=True, command="line",
        plan=Plan(runs=2), sizes={"batch": 3},
    )  # fmt: skip
    found, ((model, runtime, weights), (order, limits, progress)) = measured(monkeypatch, request)
    assert (model, runtime, progress, limits) == ("m.gguf", RUNTIME, "bar", request.limits)
    assert (weights.weights, weights.seed, weights.same, weights.sizes) == ("q4_0", 9, False, {"batch": 3})
    target = order.target
    wanted = {"path": Path("m.gguf"), "format": "gguf", "text": True, "threads": 2, "unit": "gpu", "providers": ("p",),
              "precision": "f16", "optimisation": "all", "context": 22, "batch": 3, "seed": 9,
              "options": {"k": "v"}}  # fmt: skip
    assert {name: getattr(target, name) for name in wanted} == wanted
    assert order.text == (TextOrder(prompt=7, generate=4, depth=11),)
    assert (order.plan.runs, order.inputs, order.seed, order.runtime) == (2, {"x": "1"}, 9, "engine")
    assert (order.shape, order.guarded, order.energy, order.outputs) == (False, False, False, None)
    (profile_,) = found.profiles
    assert (profile_.runtime, profile_.model.name, profile_.provenance.command) == ("engine", "tiny", "line")
    assert profile_.provenance.notes == ("made up",)
    assert (found.complete, found.strict, found.sizes) == (True, True, {"batch": 3})
    assert (profile_.workload.prompt, profile_.workload.generate, profile_.workload.context) == (7, 4, 11)


def test_what_a_request_leaves_open_has_its_default(monkeypatch):
    found, (_, (order, *_)) = measured(monkeypatch, MeasureRequest(model="tiny", runtime="engine"))
    assert order.text == (TextOrder(prompt=128, generate=128, depth=0),), "half of a window of 256, and what is left"
    assert (order.plan.runs, order.plan.seconds, order.plan.seconds_at_most) == (5, 2.0, 60.0)
    assert (order.shape, order.guarded, order.energy, order.seed) == (True, True, True, 0)
    assert found.profiles[0].model.name == "tiny"
    cases = (TextOrder(prompt=5, generate=6), TextOrder(prompt=9, generate=2, depth=30))
    many, (_, (order, *_)) = measured(monkeypatch, MeasureRequest(model="tiny", runtime="engine", cases=cases))
    assert (order.text, order.target.context) == (cases, 41)
    assert [each.workload.prompt for each in many.profiles] == [5, 9]
    with pytest.raises(DomainError, match="prompt, generation and depth need 257"):
        measured(
            monkeypatch, MeasureRequest(model="tiny", runtime="engine", workload=Workload(prompt=200, generate=57))
        )
    measured(monkeypatch, MeasureRequest(model="tiny", runtime="engine", workload=Workload(prompt=200, generate=56)))
    with pytest.raises(DomainError):
        MeasureRequest(model="m", threads=0)


def test_a_strict_request_minds_a_disturbed_machine(monkeypatch):
    noisy = Raw(ended="crashed", error="x", environment=Environment(disturbed=True, reasons=("by noise",)),
                opened=Opened(stages=(), versions={}),
                generations=(generation(TextOrder(prompt=128, generate=128)),))  # fmt: skip
    found, _ = measured(monkeypatch, MeasureRequest(model="tiny", runtime="engine"), raw=noisy)
    assert not found.complete
    found.require_quiet()
    strict = replace(found, strict=True)
    with pytest.raises(Exception, match="disturbed by noise"):
        strict.require_quiet()
    nothing = replace(noisy, generations=())
    with pytest.raises(EngineError, match="could not be measured on An engine"):
        measured(monkeypatch, MeasureRequest(model="tiny", runtime="engine"), raw=nothing)


def test_the_weights_are_in_the_format_that_was_asked_for_or_stored():
    def stored(asked=None, made=None):
        request = MeasureRequest(model="m", workload=Workload(precision=Precision(weights=asked)))
        return running._stored(Precision(weights="f32"), request, replace(PREPARED, precision=made)).weights

    assert (stored(), stored("q8_0", "f16"), stored(None, "f16")) == ("f32", "q8_0", "f16")


def test_a_reference_gets_only_what_is_for_it(monkeypatch):
    seen = []

    def compared(mine, right, _folder, tolerance):
        seen.append((mine, right, tolerance))
        return Verification(status="failed" if len(seen) == 1 else "verified", max_rel=0.1)

    trusted = SimpleNamespace(capabilities=SimpleNamespace(precision=("f32",)))
    monkeypatch.setattr(running, "runtime_named", lambda _name: trusted)
    monkeypatch.setattr(running, "require_ready", lambda _runtime: None)
    monkeypatch.setattr(running, "_compared", compared)
    request = MeasureRequest(model="m.gguf", runtime="engine", unit="gpu", providers=("p",), optimisation="all",
                             options={"k": "v"}, weights="q4_0", precision="f16", seed=4)  # fmt: skip
    found = running.verify_against(request, "trusted", tolerance="t")
    (mine, right, tolerance), *_ = seen
    assert (found.status, len(seen), tolerance) == ("failed", 1, "t"), "only an ONNX model has a last layer to cut off"
    assert (mine.shape, mine.guarded, mine.energy, mine.unit, mine.weights) == (False, False, False, "gpu", "q4_0")
    assert (mine.plan.runs, mine.plan.warmup, mine.plan.seconds, mine.plan.retries) == (1, 0, 0.0, 0)
    assert (right.runtime, right.weights, right.unit, right.providers) == ("trusted", "f32", None, ())
    assert (right.optimisation, right.precision, right.options, right.seed) == (None, "f32", {}, 4)
    trusted.capabilities.precision = ()
    running.verify_against(request, "trusted", model="other.gguf")
    assert (seen[1][1].model, seen[1][1].precision, seen[1][0].model) == ("other.gguf", None, "m.gguf")


# Files that are made, and formats.


def test_a_wrong_format_names_the_engines_that_open_it(monkeypatch):
    def engine(formats, state):
        return SimpleNamespace(formats=frozenset(formats), probe=lambda: state)

    missing, ready = Missing(reason="not here", remedy="pip install it"), Ready(version="1")
    loaded = {"a": engine({"gguf"}, ready), "b": engine({"onnx"}, ready), "c": engine({"gguf"}, missing)}
    asked = SimpleNamespace(name="x", formats=frozenset({"onnx", "tflite"}))

    def remedy(kind, engines):
        monkeypatch.setattr(prepare, "load_all", lambda _group: (engines, {}))
        error = prepare._wrong_format("m", kind, asked)
        assert isinstance(error, FormatError)
        return error.remedy

    assert remedy("gguf", loaded) == "Choose --runtime a, or convert the model."
    assert remedy("gguf", {"c": loaded["c"]}) == "Choose c, or convert the model."
    assert remedy("npz", loaded) == "No runtime opens it: convert the model."
    assert "opens onnx, tflite" in prepare._wrong_format("m", "gguf", asked).message


@pytest.mark.parametrize(("form", "ending"), [("ncnn", ".param"), ("mnn", ".mnn"), ("onnxruntime-genai", "")])
def test_a_file_that_has_to_be_made_first_is_named_as_its_engine_opens_it(form, ending):
    """The command that was named refused the name that it was given: an engine opens a file of its own ending."""
    engine = SimpleNamespace(name="engine", title="Engine", formats=frozenset({form}))
    with pytest.raises(InferometerError) as caught:
        prepare._made("net", graph(), engine, SyntheticWeights(folder=Path()))
    assert f"`inferometer prepare net --for engine -o NAME{ending}`" in caught.value.remedy


def test_an_engine_opens_a_file_or_what_can_be_made_of_it():
    def opens(kind, formats, *, arrays=True, model=None):
        runtime = SimpleNamespace(formats=frozenset(formats), capabilities=SimpleNamespace(arrays=arrays))
        return can_open(runtime, replace(model or graph(), metadata={**graph().metadata, "format": kind}))

    assert opens("onnx", {"onnx"})
    assert not opens("onnx", {"gguf"})
    assert opens("safetensors", {"gguf"})
    assert opens(None, {"config"})
    assert not opens("safetensors", {"plan"})
    plain = Graph(name="g", blocks=(Block(name="b", ops=()),))
    assert not opens("onnx", {"onnx"}, arrays=False, model=plain)
    assert opens("onnx", {"onnx"}, model=plain)


def test_a_config_is_written_with_the_size_of_its_images(tmp_path):
    place = _config("resnet50", SyntheticWeights(folder=tmp_path, image=96))
    assert (place.name, '"image_size": 96' in (place / "config.json").read_text()) == ("resnet50-96", True)
    sized = _config("resnet50", SyntheticWeights(folder=tmp_path, sizes={"image": 64}))
    assert (sized.name, _config("resnet50", SyntheticWeights(folder=tmp_path)).name) == ("resnet50-64", "resnet50")
    assert _safe("a/b c.d_e-f") == "a-b-c.d_e-f"


def weights(name, *dtypes, kind="linear", elements=10):
    kept = tuple(Tensor(name=f"{name}.{n}", shape=(elements * (n + 1),), role="weight", dtype=dtype)
                 for n, dtype in enumerate(dtypes))  # fmt: skip
    return Op(name=name, kind=kind, weights=kept)


def test_the_main_format_is_that_of_most_numbers_in_products():
    model = Graph(name="g", blocks=(
        Block(name="b", ops=(weights("l.{}", "q4_0"), weights("n", "f32", kind="norm", elements=100)), count=3),
        Block(name="e", ops=(weights("h", "f16", "f16"), weights("h", "f16", "f16"))),
    ))  # fmt: skip
    assert main_format(model) == "q4_0", "three times ten numbers in the blocks, thirty in the head"
    once = replace(model, blocks=(replace(model.blocks[0], count=2), model.blocks[1]))
    assert main_format(once) == "f16"
    assert [*mixture_note(model)] == ["The weights are stored as f32 62%, q4_0 19%, f16 19% (of the parameters)."]
    assert main_format(Graph(name="g", blocks=(Block(name="b", ops=(weights("n", "f32", kind="norm"),)),))) == "f32"
    assert main_format(Graph(name="g", blocks=())) is None
    positions = Block(name="b", ops=(weights("w", None), weights("i", "i64", kind="index")))
    assert main_format(Graph(name="g", blocks=(positions,))) is None, "a table of positions is no weights' format"
    most, few = weights("a", "f32", elements=1000), weights("c", "f16", elements=10)
    one = Graph(name="g", blocks=(Block(name="b", ops=(most, few)),))
    assert [*mixture_note(one)] == []


def test_layers_are_found_by_the_names_that_files_store_their_weights_under():
    stored = replace(graph(), metadata={**graph().metadata, "stored_as": {"blk.0.attn_q.weight": next(
        tensor.name.format(0) for block, op in graph().ops() if op.name.endswith("q_proj") for tensor in op.weights
    )}})  # fmt: skip
    layers = graph_layers(stored, graph_binding())
    (found,) = layers.find(["blk.0.attn_q.weight"], "linear")
    assert found.name.endswith("q_proj")
    assert graph_layers(graph(), graph_binding()).find(["blk.0.attn_q.weight"], "linear") == ()
    assert [stem(name) for name in ("a.weight", "a_bias", "a.b", "weight")] == ["a", "a", "a.b", "weight"]


def graph_binding():
    from inferometer.core.sizes import bind

    return bind(graph(), subject(prompt=4).workload, {"query": 4, "context": 0})


# Readings, step by step.


def test_interrupted_readings_are_capped():
    assert capped([1.0, 1.0, 9.0]) == (1.0, 1.0, pytest.approx(3.0, rel=1e-5))
    assert steady_mean([1.0, 1.0, 4.0]) == pytest.approx(5 / 3, rel=1e-5)
    assert (capped([]), steady_mean([])) == ((), 0.0)
    timed = OpTime(name="a", kind="k", time_s=2.0, samples_s=(1.0, 3.0))
    assert _readings(timed, 2) == (1.0, 3.0)
    assert _readings(timed, 3) == (2.0, 2.0, 2.0)
    assert _readings(replace(timed, samples_s=(0.0, 0.0)), 2) == (2.0, 2.0)
    phase = Phase(name="forward", time_s=10.0)
    assert _like_each_other(phase, (1.0, 3.0)) == (5.0, 15.0)
    assert _like_each_other(phase, (0.0, 0.0)) == (10.0, 10.0)
    assert _factors(10.0, 4.0, 6.0) == (1.0, 3.0)
    assert _factors(3.0, 4.0, 6.0) == _factors(3.0, 6.0, 6.0) == (0.5, 0.5)


def test_the_first_step_of_a_turn_is_left_out_of_a_kernel_that_ran_in_every_step():
    readings = tuple(float(n) for n in range(2 * _TURN))
    kernel = Kernel(name="k", kind="K", samples_s=readings, device_s=readings, waited_s=None)
    warm = _warm(kernel, len(readings))
    kept = tuple(_but_first(readings))
    assert (warm.samples_s, warm.device_s, warm.waited_s) == (kept, kept, None)
    assert not {0.0, float(_TURN)} & {*kept}
    assert len(kept) == 2 * _TURN - 2
    assert _warm(kernel, 3) is kernel


def test_instrumented_tokens_are_as_many_as_are_quick():
    assert _instrumented_tokens(100, 0.01) == 301
    assert _instrumented_tokens(1000, 0.01) == 51
    assert _instrumented_tokens(100_000, 0.01) == 17
    assert _instrumented_tokens(100, 10.0) == 17
    assert _instrumented_tokens(1000, None) == 51
    assert _instrumented_tokens(0, None) == 50_001


def test_a_shape_is_of_the_run_where_the_host_times_it():
    def event(kind, context, run=True):
        parts = {"run": 0.5, "sample": 0.2} if run else {}
        return Event(kind=kind, start_ns=0, end_ns=10**9, tokens=1, context=context, parts=parts)

    kernels = (Kernel(name="sample/argmax", kind="ArgMax", samples_s=(0.1, 0.1)),
               Kernel(name="gemm", kind="Gemm", samples_s=(0.2, 0.3), layers=("l",)))  # fmt: skip
    steps = [event("prefill", 0), event("token", 7), event("token", 8)]
    found = _shape("decode", kernels, steps, [event("token", 8), event("token", 99), event("prefill", 7)])
    assert [kernel.name for kernel in found.kernels] == ["gemm"]
    assert (found.walls_s, found.paired_s, found.context) == ((0.5, 0.5), (0.5,), (7, 8))
    plain = _shape("decode", kernels, [event("token", 7, run=False), event("token", 8)], [])
    assert (len(plain.kernels), plain.walls_s) == (2, (1.0, 1.0))
    timed = tuple(replace(kernel, device_s=kernel.samples_s) for kernel in kernels)
    assert _shape("decode", timed, steps, []).walls_s == (1.0, 1.0)
    thinned = _thinned(timed[1], (1,), 2)
    assert (thinned.samples_s, thinned.device_s, thinned.waited_s) == ((0.3,), (0.3,), None)
    assert _thinned(timed[1], (1,), 3) is timed[1]


# Energy of a generation.


class Meter:
    """A sensor that draws 10 W, whatever runs."""

    least_s, least_part_s, channels = 1.5, 0.5, ("rapl",)

    def __init__(self, slow=None):
        self.slow, self.asked = slow, []

    def over(self, work):
        return work(), SimpleNamespace(joules=lambda start, end: 10 * (end - start) * 1e-9)

    def too_slow(self, budget_s):
        self.asked.append(("budget", budget_s))
        return self.slow

    def repeated(self, work, seconds=None):
        self.asked.append(("repeated", seconds))
        times = sum(work() for _ in range(3))
        return EnergyStretch(joules=60.0 if seconds is None else 300.0, seconds=9.0, count=times)

    def facts(self, stretches, reason=None):
        return SimpleNamespace(counts={name: each.count for name, each in stretches.items()}, reason=reason)


def answer(prefill_s, step_s, tokens=4):
    events = [Event(kind="prefill", start_ns=0, end_ns=round(prefill_s * 1e9), tokens=8, context=0)]
    for _ in range(tokens):
        start = events[-1].end_ns
        events.append(Event(kind="token", start_ns=start, end_ns=start + round(step_s * 1e9), tokens=1, context=8))
    return tuple(events)


def test_phases_that_are_long_enough_are_measured_as_they_come():
    energy = TextEnergy(meter=Meter(), order=TextOrder(prompt=8, generate=5))
    energy.generated(lambda: answer(1.0, 0.5), counts=False)
    assert (energy.spent_s, energy.prefill_s, energy.decode_s, energy.measured) == (0.0, 1.0, 2.0, {})
    for _ in range(2):
        energy.generated(lambda: answer(1.0, 0.5))
    assert energy.spent_s == 6.0
    found = energy.finished(lambda _order: answer(1.0, 0.5))
    assert found.joules == pytest.approx({"prefill": 10.0, "decode": 5.0})
    assert (found.facts.counts, found.facts.reason, found.order) == ({"prefill": 2, "decode": 8}, None, energy.order)


def test_tokens_are_what_whole_generations_took_beyond_their_prompts():
    meter = Meter()
    energy = TextEnergy(meter=meter, order=TextOrder(prompt=8, generate=5))
    energy.generated(lambda: answer(0.1, 0.05))
    asked = []
    found = energy.finished(lambda order: asked.append(order.generate) or answer(0.1, 0.05))
    assert asked == [1, 1, 1, 5, 5, 5]
    assert meter.asked == [("budget", 3.0), ("repeated", None), ("repeated", pytest.approx(1.5 * 0.3 / 0.2))]
    assert found.joules == pytest.approx({"prefill": 20.0, "decode": (300 - 60) / 12})
    assert energy.measured["decode"].seconds == pytest.approx(9.0 * 0.2 / 0.3)
    slow = TextEnergy(meter=Meter(slow="too slow"), order=energy.order)
    slow.generated(lambda: answer(0.1, 0.05))
    assert slow.finished(answer).facts.reason == "too slow"
    little = TextEnergy(meter=Meter(), order=energy.order)
    little.generated(lambda: answer(0.9, 0.05))
    assert "200 ms, too little beside" in little.finished(lambda _order: answer(0.9, 0.05)).facts.reason


def test_the_energy_of_a_request_is_known_where_all_its_phases_are():
    prefill, decode = (
        Phase(name=name, time_s=1.0, energy_j=joules) for name, joules in (("prefill", 3.0), ("decode", 0.5))
    )
    load = Phase(name="load", time_s=1.0)
    assert _request_j((load, prefill, decode), 5) == 5.0
    assert _request_j((prefill, decode), None) == _request_j((prefill, decode), 1) == 3.5
    assert _request_j((prefill, replace(decode, energy_j=None)), 5) is None
    assert _request_j((load,), 5) is None
    bare = profile(Phase(name="forward", time_s=1.0))
    case = CaseEnergy(joules={"forward": 2.0}, facts="facts")
    assert with_energy(bare, [case], TextOrder(prompt=1, generate=1)) is bare
    assert _parts(()) == {}
    assert _parts(answer(1.0, 0.5)[1:])["decode"] == (10**9, 3 * 10**9, 4)


# A trace of a profile.


def test_a_trace_lays_a_request_out_in_time():
    ops = tuple(OpTime(name=f"model.layers.{n}.up", kind="linear", time_s=1e-3, unit="gpu", samples_s=(2e-3, 4e-3))
                for n in range(2))  # fmt: skip
    decode = Phase(name="decode", time_s=5e-3, ops=ops, samples_s=(5e-3, 6e-3, 7e-3), context=(8, 9, 10),
                   op_context=(8, 10), parts={"write": 1e-3, "run": 2e-3, "sample": 1e-3})  # fmt: skip
    prefill = Phase(name="prefill", time_s=8e-3, parts={"write": 1e-3, "run": 6e-3, "read": 5e-3})
    found = trace_of(
        replace(profile(Phase(name="forward", time_s=1.0)), phases=(Phase(name="load", time_s=9.0), prefill, decode))
    )
    told = [(span.name, span.start_ns // 1000, span.end_ns // 1000, span.token, span.parent) for span in found.spans]
    assert told[0] == ("request", 0, 26_000, None, None)
    assert told[1] == ("prefill", 0, 8000, None, 0)
    segments = [(each.name, each.start_ns // 1000, each.end_ns // 1000) for each in found.spans[1].segments]
    assert segments == [("write", 0, 1000), ("run", 1000, 7000), ("read", 7000, 8000)]
    steps = [row for row in told if row[0] == "decode"]
    assert steps == [("decode", 8000, 13_000, 1, 0), ("decode", 19_000, 26_000, 3, 0)], "the step without timers passes"
    layers = [span for span in found.spans if span.kind == "linear"]
    assert [(span.layer, span.token, span.name) for span in layers] == [
        (0, 1, "model.up"), (1, 1, "model.up"), (0, 3, "model.up"), (1, 3, "model.up"),
    ]  # fmt: skip
    assert trace_of(replace(profile(Phase(name="forward", time_s=1.0)), phases=())).spans == ()
    assert np.isclose(sum(span.end_ns - span.start_ns for span in layers[:2]) * 1e-9, 4e-3)
