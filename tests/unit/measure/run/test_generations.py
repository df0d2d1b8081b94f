"""Generations into phases: one statistic for a phase and its parts, and steps that stay apart."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import msgspec
import pytest

from fakes.closed_sums import unclosed
from inferometer.core.profile import ModelFacts, OpTime, Phase
from inferometer.core.request import KEPT_STEPS
from inferometer.core.workload import Workload
from inferometer.engines.base import Event, Kernel
from inferometer.formats.resolve import read
from inferometer.measure.run.assemble import (
    MeasuredSubject,
    assemble_profile,
    decode_phase,
    detokenise_phase,
    middle,
    pass_phase,
)
from inferometer.measure.run.ops import with_steps
from inferometer.measure.run.order import TextOrder
from inferometer.measure.run.raw import Generation, MemoryReadings, Raw, Resident, memory_over_time
from inferometer.measure.run.spans import trace_of
from inferometer.measure.run.texts import _beside_run, _instrumented_tokens, _shape
from inferometer.understand.view.dataflow import dataflow
from inferometer.understand.view.profiles import closing_line, layer_table, measured_phase_table

MS = 1_000_000
ORDER = TextOrder(prompt=16, generate=21)


def event(kind, start_ms, end_ms, context, **parts):
    return Event(
        kind=kind, start_ns=round(start_ms * MS), end_ns=round(end_ms * MS), tokens=16 if kind == "prefill" else 1,
        context=context, parts={name: seconds * 1e-3 for name, seconds in parts.items()},
    )  # fmt: skip


def generation(slow=1.0, steps=20):
    """A prefill of 10 ms × slow, of which 1 ms sampling; steps of 2 ms × slow that grow by 0.1 ms a token.

    A step runs the layers, samples for 0.2 ms, and 0.1 ms pass before the next.
    """
    events = [event("prefill", 0, 10 * slow, 0, run=10 * slow - 1, sample=1)]
    for number in range(steps):
        begin = events[-1].end_ns / MS + 0.1
        took = 1.9 * slow + 0.1 * number
        events.append(event("token", begin, begin + took, 16 + number, run=took - 0.2, sample=0.2))
    return Generation(order=ORDER, events=tuple(events), tokenise_s=5e-4, detokenise_s=2e-4)


KEPT = (generation(1.0), generation(3.0), generation(1.2))


@pytest.mark.parametrize("kept", [KEPT, KEPT[:2]], ids=["odd", "even"])
@pytest.mark.parametrize("phase_of", [partial(pass_phase, name="prefill"), decode_phase])
def test_parts_are_of_the_median_generation_and_add_up_to_the_phase(kept, phase_of):
    phase = phase_of(kept)
    assert sum(phase.parts.values()) == pytest.approx(phase.time_s)
    assert phase.parts["sample"] == pytest.approx(1e-3 if phase.name == "prefill" else 2e-4)


def test_what_passes_between_two_steps_is_a_part_of_the_later_one():
    decode = decode_phase(KEPT)
    assert decode.time_s == pytest.approx(1.9e-3 * 1.2 + 0.95e-3 + 1e-4)  # the middle one of three
    assert decode.parts["between"] == pytest.approx(1e-4)
    assert decode.samples_s[1] - decode.samples_s[0] == pytest.approx(1e-4)


def test_the_terminal_has_what_was_predicted_of_a_part_beside_it():
    decode = replace(decode_phase(KEPT), predicted_parts={"run": 2e-3, "between": 5e-5})
    alone = Phase(name="forward", time_s=1.0, parts={"run": 1.0})
    shown = measured_phase_table(SimpleNamespace(phases=(decode, alone)))
    assert shown.note == ("decode: run 3.03 ms (predicted 2 ms), sample 200 µs, between 100 µs (predicted 50 µs)"), (
        "one part alone is the phase"
    )


def test_the_token_as_text_is_read_and_parts_of_another_name_are_between_the_others():
    first = KEPT[0].events[0]
    parts = {"run": 8e-3, "detokenise": 1e-3, "wait": 5e-4}
    phase = pass_phase((replace(KEPT[0], events=(msgspec.structs.replace(first, parts=parts),)),), "prefill")
    assert phase.parts == pytest.approx({"run": 8e-3, "read": 1e-3, "between": 1e-3})
    bare = pass_phase((replace(KEPT[0], events=(msgspec.structs.replace(first, parts={}),)),), "prefill")
    assert bare.parts == {"run": bare.time_s}, "an engine that tells no parts runs"


def test_an_engine_that_detokenises_in_its_steps_has_no_such_phase_beside_them():
    assert [phase.name for phase in detokenise_phase(KEPT)] == ["detokenise"]
    first = KEPT[0].events[0]
    streamed = replace(KEPT[0], events=(msgspec.structs.replace(first, parts={**first.parts, "detokenise": 1e-5}),))
    assert detokenise_phase([streamed]) == []


def test_the_median_is_of_one_reading_or_of_two():
    assert middle((5.0, 1.0, 3.0)) == (2,)
    assert sorted(middle((5.0, 1.0, 3.0, 2.0))) == [2, 3]


def measured(on_device=False):
    """A layer that grows with every token, one that does not, and a machine that is slow in the third step."""
    session = generation(1.0).events
    busy = [5.0 if number == 2 else 1.0 for number in range(20)]
    grows = tuple((1.0 + 0.1 * number) * busy[number] * 1e-3 for number in range(20))
    steady = tuple(0.7 * slow * 1e-3 for slow in busy)
    device = {"device_s": grows} if on_device else {}
    kernels = (
        Kernel(name="attention", kind="Attention", samples_s=grows, layers=("layers.0.attn.attention",), **device),
        Kernel(name="q", kind="MatMul", samples_s=steady, layers=("layers.0.attn.q_proj",)),
        Kernel(name="sample/argmax", kind="argmax", samples_s=(2e-4,) * 20),
    )
    shape = _shape("decode", kernels, session, generation(1.0).events)
    graph = read("llama-3.2-1b")
    subject = MeasuredSubject(
        graph=graph, workload=Workload(prompt=16, generate=21), runtime="fake", sizes={}, facts=ModelFacts(name="x")
    )
    return assemble_profile(
        subject, Raw(ended="done", shapes=(replace(shape, order=ORDER),), generations=KEPT), case=ORDER
    )


def test_growth_with_the_context_shows_in_the_layer_that_grows():
    decode = measured().phase("decode")
    attention, _ = decode.ops
    assert decode.op_context == tuple(range(16, 36))
    assert attention.samples_s[-1] > 1.5 * attention.samples_s[0]
    assert attention.samples_s[2] < 1.5 * attention.samples_s[0]  # a slow moment of the machine is no layer's time
    rows = {row["name"]: row for row in layer_table(measured(), phase=decode).rows}
    assert rows["layers.0.attn.attention"]["growth"] > 0
    assert rows["layers.0.attn.attention"]["max_s"] == max(attention.samples_s)
    assert sum(op.time_s for op in decode.ops) == pytest.approx(decode.parts["run"])


def test_sampling_is_no_layers_time_and_is_named():
    decode = measured().phase("decode")
    assert [op.name for op in decode.ops] == ["layers.0.attn.attention", "layers.0.attn.q_proj"]
    assert decode.unattributed_s == pytest.approx(3e-4)
    assert "200 µs sample + 100 µs between + 0 s unattributed" in closing_line(decode)


def test_a_device_may_work_while_the_host_samples():
    profile = measured(on_device=True)
    decode = profile.phase("decode")
    assert sum(op.time_s for op in decode.ops) + decode.unattributed_s == pytest.approx(decode.time_s)
    step = next(span for span in trace_of(profile).spans if span.name == "decode")
    assert [segment.name for segment in step.segments] == ["run"]  # by the host's clock, beside the device's kernels


def test_the_headline_is_the_sum_of_the_phases():
    profile = measured()
    prefill, decode = profile.phase("prefill"), profile.phase("decode")
    assert profile.summary.ttft_s == pytest.approx(5e-4 + prefill.time_s)
    assert profile.summary.e2e_s == pytest.approx(profile.summary.ttft_s + 20 * decode.time_s + 2e-4)
    assert unclosed(profile) == ()


def test_a_trace_shows_each_step_with_its_own_kernels():
    profile = measured()
    spans = trace_of(profile).spans
    attention = [span for span in spans if span.name == "attn.attention"]
    assert [span.duration_s for span in attention] == pytest.approx(profile.phase("decode").ops[0].samples_s, abs=1e-9)
    assert {span.token for span in attention} == set(range(1, 21))
    decode = next(phase for phase in dataflow(trace_of(profile)).flow.phases if phase.name == "decode")
    layer = decode.layers[0]
    assert layer.max_s > 1.3 * layer.min_s
    assert [row.name for row in decode.rows][-1] == "sample"


def test_steps_without_timers_take_their_place_and_nothing_is_drawn_in_it():
    profile = measured()
    phase = profile.phase("decode")
    kept = (0, 10, 19)
    ops = tuple(replace(op, samples_s=tuple(op.samples_s[place] for place in kept)) for op in phase.ops)
    thinned = replace(phase, ops=ops, op_context=tuple(phase.op_context[place] for place in kept))
    steps = [span for span in trace_of(replace(profile, phases=(thinned,))).spans if span.name == "decode"]
    assert [span.token for span in steps] == [1, 11, 20]
    whole = [span for span in trace_of(replace(profile, phases=(phase,))).spans if span.name == "decode"]
    assert [span.start_ns for span in steps] == [whole[place].start_ns for place in kept]


def test_a_long_answer_keeps_a_bounded_number_of_steps():
    events = generation(steps=200).events
    kernel = Kernel(name="k", kind="MatMul", samples_s=tuple(float(number) for number in range(200)), layers=("k",))
    shape = _shape("decode", (kernel,), events, events)
    assert len(shape.walls_s) == len(shape.context) == len(shape.kernels[0].samples_s) == KEPT_STEPS
    assert (shape.context[0], shape.context[-1]) == (16, 215)
    assert shape.kernels[0].samples_s[-1] == 199.0
    assert len(shape.paired_s) == KEPT_STEPS  # clean steps at the same contexts


def test_a_quick_model_is_instrumented_to_its_end_and_a_slow_one_for_a_few_tokens():
    assert _instrumented_tokens(400, 1e-3) == 1 + 125  # as many readings as an engine should keep
    assert _instrumented_tokens(400, 0.1) == 1 + 30  # three seconds
    assert _instrumented_tokens(400, 5.0) == 1 + 16


def test_equal_steps_differ_as_their_walls_do():
    forward = Phase(name="forward", time_s=10e-3)
    ops = (OpTime(name="a", kind="x", time_s=6e-3, samples_s=(1e-3, 3e-3)), OpTime(name="b", kind="x", time_s=2e-3))
    first, second = with_steps(forward, ops, (9e-3, 11e-3))
    for place, wall in enumerate((9e-3, 11e-3)):
        assert first.samples_s[place] + second.samples_s[place] == pytest.approx(0.8 * wall)
    assert first.time_s + second.time_s == pytest.approx(8e-3)
    assert first.time_s == pytest.approx(sum(first.samples_s) / 2)


def test_memory_over_time_and_its_peak_are_of_the_same_bytes():
    raw = Raw(
        ended="done",
        memory=MemoryReadings(before_bytes=100, opened_bytes=180, peak_bytes=350),
        resident=Resident(at_s=(0.0, 0.1), nbytes=(90, 350)),
    )
    assert memory_over_time(raw) == {0.0: 0, 0.1: 250}
    assert raw.memory.of_model(raw.memory.peak_bytes) == 250


@pytest.mark.parametrize(
    ("name", "layers", "beside"),
    [("sample/argmax", (), True), ("write", (), True), ("read/x", (), True), ("run/x", (), False),
     ("argmax", (), False), ("sample/argmax", ("lm_head",), False)],
)  # fmt: skip
def test_what_samples_or_reads_a_token_ran_beside_the_layers(name, layers, beside):
    assert _beside_run(Kernel(name=name, kind="k", samples_s=(1.0,), layers=layers)) is beside
