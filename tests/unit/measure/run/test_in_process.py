"""The measuring itself, without a child process: a fake engine whose clock moves only when it works."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from fakes.fake_runtime import FakeClock, FakeRuntime, FakeSession, write_arrays, write_text
from inferometer.core.dims import Symbol
from inferometer.core.errors import DomainError, EngineError
from inferometer.core.graph import Graph, Tensor
from inferometer.core.profile import Environment
from inferometer.core.sizes import PROMPT
from inferometer.core.workload import Workload
from inferometer.engines.base import Event, Kernel, Target
from inferometer.measure.bench.guard import Guard, NoGuard
from inferometer.measure.bench.loop import Disturbance, LoopProgress
from inferometer.measure.bench.plan import Plan
from inferometer.measure.run import around, arrays, texts
from inferometer.measure.run import model as running
from inferometer.measure.run.assemble import MeasuredSubject
from inferometer.measure.run.child import carry_out
from inferometer.measure.run.correct import correct
from inferometer.measure.run.model import MeasureRequest, remedy_of
from inferometer.measure.run.order import MeasureOrder, TextOrder
from inferometer.measure.run.raw import Generation, Raw
from inferometer.measure.run.turns import Turns
from inferometer.measure.run.verify import Tolerance, compare_arrays, compare_text, load_outputs
from inferometer.predict.request import GENERATE

LAYERS = (("a", "Conv", 2e-3), ("b", "Gemm", 1e-3))


def told(tmp_path, plan, *cases, **more):
    """What is told of a language model that takes 3 ms a step, and 0.1 ms more a token of the prompt."""
    clock, heard = FakeClock(), []
    path = write_text(tmp_path / "model.fake", layers=LAYERS, context_s=0.0, sample_s=0.0)
    target = Target(path=path, format="fake", text=True, context=256)
    order = MeasureOrder(runtime="fake", target=target, plan=plan, text=cases, guarded=False, **more)
    texts.measure_text(order, FakeRuntime(clock=clock), lambda *said: heard.append(said), clock=clock)
    return heard


def of(heard, field):
    return [value for name, value in heard if name == field]


def kept(heard):
    return [generation for generation in of(heard, "generation") if not generation.first]


CASE = TextOrder(prompt=10, generate=5)


def test_every_length_is_warmed_up_and_repeated_as_often_as_the_plan_says(tmp_path):
    other = TextOrder(prompt=20, generate=3, depth=7)
    heard = told(tmp_path, Plan(runs=4, seconds=0.0), CASE, other, shape=False)
    firsts = [generation for generation in of(heard, "generation") if generation.first]
    assert [(one.order, len(one.events)) for one in firsts] == [(CASE, 5), (other, 2)], "the first one whole"
    assert [one.order for one in kept(heard)] == [CASE] * 4 + [other] * 4
    assert [(step.done, step.share) for step in of(heard, "progress")] == [(1, 0.25), (2, 0.5), (3, 0.75), (4, 1.0)] * 2
    assert {event.tokens for event in kept(heard)[4].events if event.kind == "prefill"} == {20}
    assert of(heard, "shape") == []
    assert len(of(heard, "environment")) == len(of(heard, "memory")) == 1


@pytest.mark.parametrize(("unit", "figures"), [("cpu", []), ("gpu", [3e-6])])
def test_a_run_on_a_device_says_how_fast_its_host_is(tmp_path, monkeypatch, unit, figures):
    monkeypatch.setattr(around, "host_call_s", partial([5e-6, 3e-6, 3e-6, 9e-6].pop, 0))
    clock, heard = FakeClock(), []
    path = write_text(tmp_path / "text.fake", layers=LAYERS)
    target = Target(path=path, format="fake", text=True, context=64, unit=unit)
    order = MeasureOrder(runtime="fake", target=target, plan=Plan(runs=1), text=(CASE,), guarded=False, shape=False)
    texts.measure_text(order, FakeRuntime(clock=clock), lambda *said: heard.append(said), clock=clock)
    assert of(heard, "host_call_s") == figures
    heard.clear()
    target = Target(path=write_arrays(tmp_path / "arrays.fake", layers=LAYERS), format="fake", unit=unit)
    order = MeasureOrder(
        runtime="fake", target=target, plan=Plan(runs=1, seconds=0.0), guarded=False, shape=False, sizes={"batch": 1}
    )
    arrays.measure_arrays(order, FakeRuntime(clock=clock), lambda *said: heard.append(said), clock=clock)
    assert of(heard, "host_call_s") == figures


@pytest.mark.parametrize("text", [True, False])
def test_a_host_is_looked_at_between_runs_where_the_engine_can_tell(tmp_path, monkeypatch, text):
    looks = iter(range(1, 1000))
    monkeypatch.setattr(around, "host_call_s", lambda: 1e-6)
    monkeypatch.setattr(arrays, "_TELL_S", 0.0)
    clock, heard = FakeClock(), []
    write, measure = (write_text, texts.measure_text) if text else (write_arrays, arrays.measure_arrays)
    path = write(tmp_path / "model.fake", layers=LAYERS)
    target = Target(path=path, format="fake", text=text, unit="gpu", **({"context": 64} if text else {}))
    order = MeasureOrder(
        runtime="fake", target=target, plan=Plan(runs=3, seconds=0.0), guarded=False, shape=False, sizes={"batch": 1},
        text=(CASE,) if text else (),
    )  # fmt: skip
    kind = type(FakeRuntime(clock=clock).open(target))
    monkeypatch.setattr(kind, "host_module_s", lambda _self: next(looks) * 1e-6, raising=False)
    measure(order, FakeRuntime(clock=clock), lambda *said: heard.append(said), clock=clock)
    (seconds,) = of(heard, "host_module_s")
    assert seconds > 1e-6, "the middle of several looks"


def test_without_a_warm_up_only_the_first_length_has_one(tmp_path):
    heard = told(tmp_path, Plan(runs=3, seconds=0.0, warmup=0), CASE, TextOrder(prompt=20, generate=3), shape=False)
    assert [one.order.prompt for one in of(heard, "generation") if one.first] == [10]


@pytest.mark.parametrize(
    ("kept_", "spent", "wanted", "seconds", "most", "enough"),
    [
        (2, 99.0, 5, 1.0, 10.0, False),  # three at least, however long they take
        (3, 10.0, 5, 1.0, 10.0, True), (3, 9.9, 5, 1.0, 10.0, False), (5, 1.0, 5, 1.0, 10.0, True),
        (5, 0.9, 5, 1.0, 10.0, False), (4, 1.0, 5, 1.0, 10.0, False), (1, 1.0, 1, 1.0, 10.0, True),
        (3, 5.0, 3, 50.0, 5.0, True),
    ],
)  # fmt: skip
def test_it_is_enough(kept_, spent, wanted, seconds, most, enough):  # noqa: PLR0917 - a row of the table
    assert texts._enough(kept_, spent, wanted, seconds, most) is enough


def test_generations_go_on_for_as_long_as_asked(tmp_path):
    # A generation takes 1 + 3 ms to read ten tokens and 12 ms for four steps: 16 ms.
    heard = told(tmp_path, Plan(runs=3, seconds=0.1), CASE, shape=False)
    assert len(kept(heard)) == 7


class Watch(NoGuard):
    def __init__(self, *disturbed):
        self.disturbed = list(disturbed)

    def since(self, mark):  # noqa: ARG002 - the seam's signature
        return self.disturbed.pop(0) if self.disturbed else ()


def test_a_disturbed_generation_is_repeated_while_retries_last(tmp_path, monkeypatch):
    seen = (Disturbance(when="during", code="cpu-busy", found="a backup ran"),)
    monkeypatch.setattr(around, "NoGuard", lambda: Watch(seen, (), seen, seen))
    heard = told(tmp_path, Plan(runs=3, seconds=0.0, retries=2), CASE, shape=False)
    assert [bool(one.disturbed) for one in kept(heard)] == [False, True, False]


def test_shapes_are_of_each_length_with_clean_steps_on_both_sides(tmp_path):
    other = TextOrder(prompt=20, generate=3)
    shapes = of(told(tmp_path, Plan(runs=1, seconds=0.0), CASE, other), "shape")
    assert [(shape.phase, shape.order.prompt) for shape in shapes] == [("prefill", 10), ("decode", 10),
                                                                      ("prefill", 20), ("decode", 20)]  # fmt: skip
    prefill, decode = shapes[:2]
    assert (len(prefill.walls_s), len(prefill.paired_s)) == (1, 2)
    assert (len(decode.walls_s), len(decode.paired_s)) == (4, 8)
    assert decode.paired_s == pytest.approx((3e-3,) * 8)
    assert decode.walls_s == pytest.approx((3e-3 + 2 * 4e-6,) * 4)
    assert decode.cost_s == pytest.approx(4e-6)


def test_a_prompt_is_the_words_or_the_same_random_ids_each_time(tmp_path):
    session = SimpleNamespace(vocabulary=1000, tokenise=lambda words: (len(words),))
    ids = texts.prompt_ids(session, CASE, 3)
    assert len(ids) == 10
    assert min(ids) >= 260
    assert max(ids) < 1000
    assert ids == texts.prompt_ids(session, CASE, 3) != texts.prompt_ids(session, CASE, 4)
    assert ids != texts.prompt_ids(session, TextOrder(prompt=10, generate=5, depth=1), 3)
    assert texts.prompt_ids(session, TextOrder(prompt=10, generate=5, words="hello"), 3) == (5,)
    small = SimpleNamespace(vocabulary=10, tokenise=None)
    assert set(texts.prompt_ids(small, TextOrder(prompt=200, generate=1), 0)) == {5, 6, 7, 8, 9}


def test_outputs_to_verify_are_of_a_short_text(tmp_path):
    ids = []
    for depth in (0, 5):
        long = TextOrder(prompt=100, generate=90, depth=depth)
        (said,) = of(told(tmp_path, Plan(runs=1, seconds=0.0), long, shape=False, outputs=tmp_path / "o"), "kept")
        outputs = np.load(said["outputs"])
        assert (len(outputs["ids"]), len(outputs["made"]), outputs["logits"].shape) == (64, 16, (64, 64))
        ids.append(outputs["ids"].tolist())
    assert ids[0] == ids[1], "whatever lies before a prompt, the reference reads the same one from its beginning"


def test_what_an_engine_raises_is_how_it_ended(tmp_path, monkeypatch):
    from inferometer.measure.run import child

    for error, wanted in ((MemoryError(), "too-big"), (KeyboardInterrupt(), "stopped"), (ValueError("odd"), "failed"),
                          (EngineError("no", remedy="do"), "refused")):  # fmt: skip
        heard = []

        def fails(*_, error=error, **__):
            raise error

        monkeypatch.setattr(child, "runtime_named", fails)
        carry_out(SimpleNamespace(runtime="x", text=(), target=None), lambda *said, heard=heard: heard.append(said))
        assert heard[-1][0] == "ended"
        assert heard[-1][1][0] == wanted


# How a run ended.


def generation(case, tokens, *, first=False):
    event = Event(kind="prefill", start_ns=0, end_ns=1, tokens=tokens, context=0)
    return Generation(order=case, events=(event,), first=first)


def test_partial_results_are_results_and_none_at_all_is_an_error():
    request, runtime = MeasureRequest(model="m"), SimpleNamespace(title="Engine")

    def required(**raw):
        running._require_something(Raw(error="it fell", log="one\n\ntwo\n", **raw), request, runtime)

    required(ended="done")
    required(ended="crashed", clean="samples")
    required(ended="crashed", generations=(generation(CASE, 1, first=True), generation(CASE, 1)))
    with pytest.raises(KeyboardInterrupt):
        required(ended="stopped")
    with pytest.raises(EngineError, match=r"(?s)'m' could not be measured on Engine.*one\n    two\nThen: it fell"):
        required(ended="crashed", generations=(generation(CASE, 1, first=True),))
    with pytest.raises(EngineError, match=r"^it fell"):
        required(ended="refused")


def test_what_to_do_depends_on_how_it_ended():
    assert "another runtime" in remedy_of(Raw(ended="crashed", error="SIGSEGV"))
    assert "--memory-limit" in remedy_of(Raw(ended="crashed", error="killed by SIGKILL"))
    assert "--timeout" in remedy_of(Raw(ended="hung", error="SIGKILL"))
    assert remedy_of(Raw(ended="done")) is None


def test_a_case_has_its_own_lengths_and_a_text_as_many_tokens_as_it_was():
    subject = MeasuredSubject(
        graph=None, workload=Workload(prompt=1, generate=1, context=5), runtime="r", sizes={}, facts=None
    )
    words = TextOrder(prompt=10, generate=5, words="hello there")
    raw = Raw(ended="done", generations=(generation(CASE, 77), generation(words, 13)))

    def lengths(case):
        workload = running._of_case(subject, case, raw).workload
        return workload.prompt, workload.generate, workload.context

    assert lengths(None) == (1, 1, 5)
    assert lengths(CASE) == (10, 5, None)
    assert lengths(words) == (13, 5, None)
    assert lengths(TextOrder(prompt=10, generate=5, depth=9, words="unread")) == (10, 5, 9)


# Corrections, with steps of which no two are alike.


def test_where_timers_lengthen_a_step_the_quickest_is_compared_with_the_quickest_clean_one():
    kernel = Kernel(name="k", kind="x", samples_s=(9e-3, 6e-3, 7e-3))
    found = correct([kernel], clean_s=8e-3, walls_s=(15e-3, 13e-3, 14e-3), paired_s=(8e-3, 12e-3, 10e-3))
    pace = 8e-3 / 10e-3
    assert sum(found.times_s) == pytest.approx(8e-3 * 6 / 8)
    assert found.raw_s == pytest.approx(pace * 22e-3 / 3)
    assert found.unattributed_s == pytest.approx(2e-3)


def test_the_timers_cost_no_more_than_the_smaller_growth():
    kernels = [Kernel(name=name, kind="x", samples_s=(1e-3, 1e-3, 1e-3)) for name in "ab"]
    by_least = correct(kernels, clean_s=2e-3, walls_s=(2.1e-3, 4e-3, 5e-3), paired_s=(2e-3, 2e-3, 2e-3), cost_s=1.0)
    assert by_least.cost_s == pytest.approx(0.05e-3), "0.1 ms, of two kernels"
    by_median = correct(
        kernels, clean_s=2e-3, walls_s=(2.5e-3, 2.6e-3, 5e-3), paired_s=(1e-3, 2.4e-3, 2.5e-3), cost_s=1.0
    )
    assert by_median.cost_s == pytest.approx(0.1e-3)
    shorter = correct(kernels, clean_s=2e-3, walls_s=(1e-3,) * 3, paired_s=(2e-3,) * 3, cost_s=1.0)
    assert shorter.cost_s == 0.0
    one_on_device = [kernels[0], Kernel(name="d", kind="x", samples_s=(1e-3,) * 3, device_s=(5e-4,) * 3)]
    mixed = correct(one_on_device, clean_s=2e-3, walls_s=(2.1e-3,) * 3, paired_s=(2e-3,) * 3, cost_s=1.0)
    assert mixed.cost_s == pytest.approx(0.1e-3), "only the host's kernels have timers"


# Verification.


def test_the_worst_output_is_told_and_each_limit_is_one():
    x = np.linspace(-2, 1, 50)
    found = compare_arrays({"a": x + 0.02, "b": x}, {"a": x, "b": x}, against="r", tolerance=Tolerance(relative=0.011))
    assert (found.status, found.max_abs, found.max_rel) == ("verified", pytest.approx(0.02), pytest.approx(0.01))
    assert (
        compare_arrays({"a": x + 0.02}, {"a": x}, against="r", tolerance=Tolerance(relative=0.009)).status == "failed"
    )
    assert found.cosine < 1.0


def logits(*rows, ids=(1, 2, 3)):
    return {"ids": np.array(ids), "made": np.array([1]), "logits": np.array(rows, dtype=np.float64)}


def test_logits_need_both_sides_and_one_shape():
    a = logits([0, 1, 2], [0, 1, 2], [3, 1, 2])
    plain = {"ids": a["ids"], "made": a["made"]}
    for ours, theirs in ((a, plain), (plain, a), (a, {**a, "logits": a["logits"][:, :2]})):
        found = compare_text(ours, theirs, against="r")
        assert (found.status, found.nll_drift) == ("verified", None)
    assert compare_text(a, {"ids": a["ids"]}, against="r").status == "unchecked"
    assert compare_text({**plain, "made": np.array([])}, plain, against="r").status == "unchecked"


def test_the_best_and_the_five_best_answers_are_shares_of_positions():
    theirs = logits([0, 1, 2, 3, 4, 5, 6, 7], [7, 6, 5, 4, 3, 2, 1, 0], [0, 9, 0, 0, 1, 2, 3, 4])
    ours = logits([0, 1, 2, 3, 4, 5, 6, 7], [7, 6, 5, 4, 3, 2, 1, 0], [9, 8, 7, 6, 5, 0, 0, 0])
    found = compare_text(ours, theirs, against="r", tolerance=Tolerance(top_1=0.6, nll=9.0))
    assert found.top_1 == pytest.approx(2 / 3)
    assert found.top_k == pytest.approx((1 + 1 + 2 / 5) / 3)
    assert (found.max_abs, found.max_rel) == (9.0, 1.0)


def test_zeros_are_like_zeros_and_like_nothing_else():
    zeros, ones = np.zeros(3), np.ones(3)
    assert compare_arrays({"y": zeros}, {"y": zeros}, against="r").cosine == 1.0
    assert compare_arrays({"y": zeros}, {"y": ones}, against="r", tolerance=Tolerance(relative=9.0)).cosine == 0.0
    nothing = np.zeros(0)
    assert compare_arrays({"y": nothing}, {"y": nothing}, against="r").status == "verified"
    assert compare_arrays({"y": ones}, {"y": zeros}, against="r").max_rel == 1.0, "of nothing, the difference itself"


def test_large_logits_do_not_overflow():
    big = logits([1000.0, 2000.0, 0.0, 0.0], [0.0, 1000.0, 2000.0, 0.0], [0.0] * 4)
    found = compare_text(big, big, against="r")
    assert (found.status, found.nll_drift) == ("verified", 0.0)


# Arrays in and out.


def arrays_told(tmp_path, **more):
    clock, heard = FakeClock(), []
    path = write_arrays(tmp_path / "model.fake", layers=LAYERS, fuse=(), gap_s=5e-4)
    order = MeasureOrder(
        runtime="fake", target=Target(path=path, format="fake", sizes={"batch": 2}), guarded=False,
        plan=Plan(warmup=1, runs=3, seconds=0.0, calls=1), **more,
    )  # fmt: skip
    arrays.measure_arrays(order, FakeRuntime(clock=clock), lambda *said: heard.append(said), clock=clock)
    return heard


def test_a_model_of_arrays_tells_each_result_as_soon_as_it_is_there(tmp_path):
    heard = arrays_told(tmp_path, outputs=tmp_path / "deep" / "o")
    fields = [name for name, _ in heard if name not in {"progress", "samples"}]
    assert fields == ["opened", "first_s", "opened", "memory", "clean", "environment", "counters", "kept", "shape"]
    assert of(heard, "first_s") == [pytest.approx(3.5e-3)]
    assert len(of(heard, "clean")[0].samples_s) == 3
    assert of(heard, "environment") == [Environment()]
    (memory,) = of(heard, "memory")
    assert memory.opened_bytes >= memory.before_bytes > 0
    assert list(load_outputs(of(heard, "kept")[0]["outputs"])) == ["y"]


def test_where_no_layer_could_be_timed_the_run_says_why(tmp_path, monkeypatch):
    """Only the session that was to time them knows."""
    plain = FakeSession.opened.fget
    why = "The time of each operator is not known: its states cannot be kept."
    monkeypatch.setattr(FakeSession, "kernels", lambda _: {})
    monkeypatch.setattr(
        FakeSession, "opened", property(lambda it: replace(plain(it), notes=(why,) if it.target.instrument else ()))
    )
    heard = arrays_told(tmp_path)
    assert of(heard, "shape") == []
    assert [opened.notes for opened in of(heard, "opened")] == [(), (), (why,)]


def test_instrumented_and_clean_steps_take_turns_and_the_first_of_each_is_cold(tmp_path):
    (shape,) = of(arrays_told(tmp_path), "shape")
    assert shape.phase == "forward"
    assert len(shape.walls_s) == len(shape.paired_s) == len(shape.kernels[0].samples_s) == 4
    assert shape.paired_s == pytest.approx((3.5e-3,) * 4)
    assert shape.walls_s == pytest.approx((3.5e-3 + 2 * (4e-6 + 6e-6),) * 4)
    assert [kernel.samples_s[0] for kernel in shape.kernels] == pytest.approx([2e-3 + 4e-6, 1e-3 + 4e-6])
    assert arrays._but_first(list(range(12))) == [1, 2, 3, 4, 6, 7, 8, 9, 11]
    odd = Kernel(name="k", kind="x", samples_s=(1.0, 2.0), device_s=(3.0, 4.0))
    assert arrays._warm(odd, 5) is odd, "it did not run in every step"
    assert arrays._warm(odd, 2) == Kernel(name="k", kind="x", samples_s=(2.0,), device_s=(4.0,))


def test_without_a_shape_nothing_is_instrumented(tmp_path):
    assert of(arrays_told(tmp_path, shape=False), "shape") == []


@pytest.mark.parametrize("module", [arrays, texts])
def test_a_guarded_run_tells_what_the_guard_saw(tmp_path, monkeypatch, module):
    class Guarded(Guard):
        def __init__(self):
            pass

        def before(self, *, retries):
            return f"looked, {retries} retries"

        def mark(self):
            return None

        def since(self, mark):  # noqa: ARG002 - the seam's signature
            return ()

        def after(self, first):
            return (f"after {first}",)

        def environment(self, first, during=(), after=()):
            return first, tuple(during), tuple(after)

    monkeypatch.setattr(around, "Guard", Guarded)
    plan = Plan(warmup=1, runs=3, seconds=0.0, calls=1, retries=2)
    clock, heard = FakeClock(), []
    if module is arrays:
        path, more = write_arrays(tmp_path / "model.fake", layers=LAYERS, fuse=()), {}
    else:
        path, more = write_text(tmp_path / "model.fake", layers=LAYERS), {"text": (CASE,)}
    target = Target(path=path, format="fake", sizes={"batch": 2}, text=module is texts, context=256)
    order = MeasureOrder(runtime="fake", target=target, plan=plan, guarded=True, shape=False, **more)
    measure = arrays.measure_arrays if module is arrays else texts.measure_text
    measure(order, FakeRuntime(clock=clock), lambda *said: heard.append(said), clock=clock)
    looked = "looked, 2 retries"
    assert of(heard, "environment") == [(looked, (), (f"after {looked}",))]


def test_samples_are_told_a_few_times_a_second_and_none_of_the_warm_up():
    now, said = iter([10.0, 10.0, 10.1, 10.3, 10.3]), []
    telling = arrays._Telling(
        turns=Turns(None),
        subject=SimpleNamespace(name="x", run=lambda **_: SimpleNamespace(seconds=2.0)),
        tell=lambda *each: said.append(each), clock=lambda: next(now),
    )  # fmt: skip
    telling.run()
    telling.progress(LoopProgress(stage="warm-up", done=1, share=0.0))
    for _ in range(3):
        telling.run()
        telling.progress(LoopProgress(stage="runs", done=1, share=0.5))
    assert [value for name, value in said if name == "samples"] == [(2.0,), (2.0, 2.0)]


def test_a_second_copy_is_opened_beside_the_first_where_it_takes_little_of_what_is_free(monkeypatch):
    import psutil

    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))
    assert texts._room_for_two(399)
    assert not texts._room_for_two(400)


# What is asked, completed.


def prepared(*, text=True, limit=None, precision=None):
    graph = SimpleNamespace(name="g", context_limit=limit, metadata={})
    return SimpleNamespace(graph=graph, text=text, precision=precision)


def completed(workload=None, **more):
    request = MeasureRequest(model="m", workload=workload or Workload(), **more.pop("request", {}))
    found = running._completed(request, prepared(**more))
    return found.prompt, found.generate, found.context


def test_lengths_that_are_not_given_fit_into_the_window():
    assert completed() == (PROMPT, GENERATE, None)
    assert completed(limit=100) == (50, 50, None), "nothing was asked for that would not fit"
    assert completed(limit=10_000) == (PROMPT, GENERATE, None)
    assert completed(Workload(prompt=7, generate=0, context=3), limit=10) == (7, 0, 3)
    with pytest.raises(DomainError, match="window of 10 tokens; prompt, generation and depth need 11"):
        completed(Workload(prompt=7, generate=1, context=3), limit=10)


@pytest.mark.parametrize(
    "given",
    [{"words": "x"}, {"workload": Workload(generate=3)}, {"workload": Workload(context=3)}, {"cases": (CASE,)}],
)
def test_what_is_for_text_is_refused_of_arrays(given):
    assert completed(text=False) == (None, None, None)
    workload = given.pop("workload", None)
    with pytest.raises(DomainError, match="generates no text"):
        completed(workload, text=False, request=given)


def test_sizes_may_be_given_by_the_files_names():
    x = Tensor(name="x", shape=(Symbol("batch"), 3, Symbol("width")))
    graph = Graph(name="g", blocks=(), inputs=(x,), metadata={"size_names": {"N": "batch", "W": "width"}})
    request = MeasureRequest(model="m", sizes={"N": 3, "W": 4})
    found = running._in_our_names(request, SimpleNamespace(graph=graph, text=False))
    assert (found.workload.batch, found.sizes) == (3, {"width": 4})
