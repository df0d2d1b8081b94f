"""A question that was asked before is answered from memory, and never with another question's answer."""

from dataclasses import fields, replace

import pytest

from inferometer.core.calibration import Calibration
from inferometer.core.workload import Parallel, Precision, Workload
from inferometer.predict import question as asking
from inferometer.predict.answer import predict_graph
from inferometer.predict.ask import ask
from inferometer.predict.basis.files import write_calibration
from inferometer.predict.memory.fit import fit
from inferometer.predict.options import Battery, EnergyCosts, HostCosts, Hosting, Offload, Options, Speculative
from unit.predict.machines import stated
from unit.predict.test_answers import GPU, SLOW_WIRE, graph_of

FIRST = {"on": "nvidia-h200", "runtime": "torch-eager", "prompt": 64, "generate": 8}
OTHERS = [
    {"batch": 256},  # two sequences wait for the same launches as one
    {"runtime": "torch-compile"},
    {"on": "nvidia-l4"},
    {"weights": "i8"},
    {"calibrated": False},
    {"options": Options(host=HostCosts(sampling_s=1e-3))},
    {"options": Options(host_speed=0.5)},
]


def seconds(**changes):
    return [phase.time_s for phase in ask("llama-3.2-1b", **{**FIRST, **changes}).answer().phases]


def test_what_a_question_is_answered_with_is_chosen_once_for_all_its_sizes():
    first, other = (ask("llama-3.2-1b", **{**FIRST, "prompt": prompt}) for prompt in (64, 65))
    assert first.basis() is other.basis()
    for change in ({"weights": "i8"}, {"calibrated": False}, {"runtime": "torch-compile"}, {"on": "nvidia-l4"}):
        changed = ask("llama-3.2-1b", **{**FIRST, **change})
        assert changed.basis() is not first.basis()
        assert changed.basis() == changed._basis()


def test_a_calibration_that_comes_meanwhile_counts(tmp_path, monkeypatch):
    monkeypatch.setenv("INFEROMETER_DATA", str(tmp_path))
    question = ask("llama-3.2-1b", **FIRST)
    made = Calibration(
        device="nvidia-h200", runtime="torch-eager", dtype="bf16", created="2031-01-01T00:00:00+00:00", unit="gpu"
    )
    assert question.basis().calibration.created < made.created
    write_calibration(made, tmp_path / "calibrations")
    assert question.basis().calibration.created == made.created


@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_another_question_gets_its_own_answer_whatever_was_asked_before_it(other):
    asking._answers = type(asking._answers)(10_000)
    alone = seconds(**other)
    asking._answers = type(asking._answers)(10_000)
    first = seconds()
    assert seconds(**other) == alone != first
    assert seconds() == first


def test_it_says_when_it_was_asked_and_not_when_it_was_worked_out(monkeypatch):
    question = ask("llama-3.2-1b", **FIRST)
    before = question.answer()
    monkeypatch.setattr(asking, "now_text", lambda: "2031-01-01T00:00:00+00:00")
    again = question.answer()
    assert again.provenance.created == "2031-01-01T00:00:00+00:00"
    assert replace(again, provenance=before.provenance) == before


# Whatever is kept of a question is kept by all of it: two questions that differ in one field, at other sizes too.

TWO, STAGES, REPLICAS = Parallel(tp=2), Parallel(pp=2), Parallel(dp=2, ep=2)
LLAMA, EXPERTS, PICTURE, SPEECH, NOISE = (graph_of(name) for name in
                                          ("llama", "qwen2_moe", "swin", "whisper", "flux"))  # fmt: skip
PLAIN = Workload(batch=8, prompt=37, generate=11, precision=Precision(weights="bf16", activations="bf16", kv="bf16"))
WIDE = replace(PLAIN, precision=Precision(weights="f32", activations="f32", kv="f32"))


def drafted(length, acceptance):
    return Speculative(draft=graph_of("llama_tied"), length=length, acceptance=acceptance)


# field: the model, the plan, and two values of the field
OF_OPTIONS = {
    "chunk": (LLAMA, Parallel(), 8, 16),
    "cached_prefix": (LLAMA, Parallel(), 0, 5),
    "micro_batches": (LLAMA, STAGES, 1, 4),
    "overlap": (LLAMA, TWO, 0.0, 0.3),
    "imbalance": (EXPERTS, REPLICAS, 1.0, 1.4),
    "sequence_parallel": (LLAMA, TWO, False, True),
    "steps": (NOISE, Parallel(), 3, 7),
    "offload": (LLAMA, Parallel(), Offload(layers=1), Offload(layers=2)),
    "speculative": (LLAMA, Parallel(), drafted(2, 0.6), drafted(3, 0.6)),
    "host": (LLAMA, Parallel(), HostCosts(sampling_s=1e-5), HostCosts(sampling_s=2e-5)),
    "place": (LLAMA, Parallel(), Hosting(usd_per_hour=2.0), Hosting(usd_per_hour=3.0)),
    "energy": (LLAMA, Parallel(), None, EnergyCosts(joules_per_flop=1e-12, joules_per_byte=5e-11)),
    "battery": (LLAMA, Parallel(), Battery(capacity_j=1e4), Battery(capacity_j=2e4)),
    "cooling_w": (LLAMA, Parallel(), 9.0, 12.0),
    "frame_rate": (PICTURE, Parallel(), 20.0, 30.0),
    "audio_s": (SPEECH, Parallel(), 75.0, 30.0),
    "link": (LLAMA, TWO, None, SLOW_WIRE),
    "link, of the same name": (LLAMA, TWO, SLOW_WIRE, replace(SLOW_WIRE, latency_s=stated(8e-5))),
    "storage_bytes_per_s": (LLAMA, Parallel(), 2e9, 3e9),
    "host_speed": (LLAMA, Parallel(), 0.5, 2.0),
    "overrides": (LLAMA, Parallel(), {}, {"*down_proj*": "i8"}),
    "sizes": (SPEECH, Parallel(), {"frames": 1500}, {"frames": 3000}),
}
BY_THE_BASIS = {"engine_version", "threads", "layout", "host_call_s"}  # an engine and a calibration are chosen by them
OF_WORKLOADS = {
    "batch": (LLAMA, 8, 6), "prompt": (LLAMA, 37, 36), "generate": (LLAMA, 11, 12), "context": (LLAMA, 40, 50),
    "image": (PICTURE, 64, 72), "precision": (LLAMA, WIDE.precision, PLAIN.precision),
    "parallel": (LLAMA, TWO, STAGES),
}  # fmt: skip
IN_FORMATS = [replace(PLAIN.precision, **{name: "i8"}) for name in ("weights", "kv")] + [
    replace(WIDE.precision, **{name: other}) for name in ("activations", "kv") for other in ("bf16", "i8")
]
IN_PLANS = [Parallel(**{name: 2}) for name in ("tp", "pp", "dp")] + [REPLICAS, Parallel(tp=2, ep=2), Parallel(dp=4)]


def asked_of(graph, workload, options, device=GPU):
    """All that is said of a question: each op's time, what it is bound by, what it costs, and whether it fits."""
    if not {"query", "context"} & graph.symbols:
        workload = replace(workload, prompt=None, generate=None, context=None)
    runtime = "torch-eager"  # whose host and whose intermediate tensors count
    asked = {"runtime": runtime, "workload": workload, "options": options}
    return predict_graph(graph, device, **asked, now=str), fit(graph, device, **asked)


def require_own_answers(graph, one, other):
    alone = [asked_of(replace(graph), *question) for question in (one, other)]  # of graphs that nobody asked of before
    assert alone[0] != alone[1]
    for first, then, wanted in ((one, other, alone[1]), (other, one, alone[0])):
        shared = replace(graph)
        asked_of(shared, *first)
        assert asked_of(shared, *then) == wanted


@pytest.mark.parametrize("more", [0, 2], ids=["at the same sizes", "at other sizes"])
@pytest.mark.parametrize("name", sorted(OF_OPTIONS))
def test_an_option_changes_the_answer_whatever_was_asked_of_the_model_before(name, more):
    field, (graph, parallel, one, other) = name.partition(",")[0], OF_OPTIONS[name]
    first = replace(PLAIN, parallel=parallel, prompt=4 if graph is SPEECH else PLAIN.prompt)
    then = replace(first, batch=first.batch + more, prompt=first.prompt + more)
    require_own_answers(
        graph, *((workload, Options(**{field: value})) for workload, value in ((first, one), (then, other)))
    )


def test_a_host_that_is_as_fast_as_assumed_is_less_well_known_than_the_assumed_one():
    waiting = replace(GPU, launch_s=stated(1e-3))
    require_own_answers(LLAMA, *((PLAIN, Options(host_speed=speed), waiting) for speed in (None, 1.0)))


@pytest.mark.parametrize("name", sorted(OF_WORKLOADS))
def test_a_size_changes_the_answer_whatever_was_asked_of_the_model_before(name):
    graph, one, other = OF_WORKLOADS[name]
    require_own_answers(graph, *((replace(PLAIN, **{name: value}), Options()) for value in (one, other)))


@pytest.mark.parametrize("precision", IN_FORMATS, ids=str)
def test_a_format_changes_the_answer_whatever_was_asked_of_the_model_before(precision):
    before = WIDE if precision.weights == "f32" else PLAIN
    require_own_answers(LLAMA, (before, Options()), (replace(before, precision=precision), Options()))


@pytest.mark.parametrize("plan", IN_PLANS, ids=str)
def test_a_plan_changes_the_answer_whatever_was_asked_of_the_model_before(plan):
    require_own_answers(EXPERTS, (PLAIN, Options()), (replace(PLAIN, parallel=plan), Options()))


def test_every_option_and_size_was_asked_about():
    assert {entry.name for entry in fields(Options)} == {name.partition(",")[0] for name in OF_OPTIONS} | BY_THE_BASIS
    said_by_measurements = {"phase", "arrival_per_s"}
    assert {entry.name for entry in fields(Workload)} == OF_WORKLOADS.keys() | said_by_measurements
