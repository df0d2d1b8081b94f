import dataclasses

import pytest

from inferometer.core.codec import decode, document, encode
from inferometer.core.profile import EnergyFacts, EnergySensor, Environment, ModelFacts, OpTime, Phase, Profile
from inferometer.core.workload import Precision, Workload
from inferometer.engines.base import Event, Kernel, Opened, Stage
from inferometer.formats.resolve import read
from inferometer.measure.bench.loop import LoopSamples
from inferometer.measure.run.assemble import MeasuredSubject, assemble_profile
from inferometer.measure.run.beside import remarks, with_prediction
from inferometer.measure.run.order import TextOrder
from inferometer.measure.run.raw import Generation, MemoryReadings, Raw, Shape
from inferometer.measure.run.spans import trace_of
from inferometer.understand.view.dataflow import dataflow

PARTS = {"write": 1e-4, "run": 1.5e-3, "read": 1e-4}
F32 = Precision(weights="f32", activations="f32")
OPENED = Opened(
    stages=(Stage(name="load", seconds=0.2), Stage(name="compile", seconds=0.1)), versions={"e": "1"}, threads=2
)


def collected(*samples):
    return LoopSamples(
        name="x", samples_s=samples, warmup_s=(), failures=(), runs=len(samples), discarded=0, settled=True,
        complete=True, calls=1, peak_memory_bytes=None, disturbances=(),
    )  # fmt: skip


def subject(name, **lengths):
    graph = read(name)
    workload = Workload(precision=F32, **lengths)
    return MeasuredSubject(graph=graph, workload=workload, runtime="fake", sizes={}, facts=ModelFacts(name=name))


def kernel(layer, seconds, kind="MatMul", unit="cpu"):
    return Kernel(name=layer, kind=kind, samples_s=(seconds,) * 3, layers=(layer,), unit=unit)


@pytest.fixture
def cnn():
    shape = Shape(
        phase="forward",
        kernels=(kernel("conv1/Conv", 3e-3, "Conv"), kernel("fc/Gemm", 1e-3, "Gemm", unit="gpu")),
        walls_s=(6e-3,) * 3,
        cost_s=1e-4,
    )
    raw = Raw(
        ended="done", opened=OPENED, first_s=0.02, clean=collected(5e-3, 4.9e-3, 5.1e-3), shapes=(shape,),
        memory=MemoryReadings(before_bytes=100, opened_bytes=200, peak_bytes=350),
    )  # fmt: skip
    return assemble_profile(subject("resnet50"), raw)


def test_costs_that_are_paid_once_are_phases_of_their_own(cnn):
    assert [phase.name for phase in cnn.phases] == ["load", "compile", "first_run", "forward"]
    assert cnn.summary.latency_s == pytest.approx(5e-3)


def test_the_sum_of_layers_and_rest_is_the_clean_run(cnn):
    forward = cnn.phase("forward")
    assert [op.name for op in forward.ops] == ["conv1", "fc"]
    assert sum(op.time_s for op in forward.ops) + forward.unattributed_s == pytest.approx(forward.clean_s)
    assert forward.statistic == "median"
    assert forward.samples_s == (5e-3, 4.9e-3, 5.1e-3)


def test_work_is_the_models_own(cnn):
    conv = cnn.phase("forward").ops[0]
    taps = 2 * 112 * 112 * 64 * 3 * 7 * 7  # a multiply and an add for each of 7 × 7 × 3 taps
    assert conv.layers == ("conv1", "bn1", "bn1.act", "maxpool")  # no kernel names the others: they ran inside it
    assert taps < conv.flops < 1.03 * taps
    assert cnn.phase("forward").flops == pytest.approx(8.2e9, rel=0.02)  # 4.1 G multiply-adds, as published


def test_the_top_unit_is_told_by_time_and_by_count(cnn):
    assert (cnn.summary.top_unit, cnn.summary.top_unit_by_count) == ("cpu", "cpu")


def test_memory_is_the_models_and_not_pythons(cnn):
    assert cnn.summary.peak_memory_bytes == 250


def test_a_profile_survives_its_file(cnn):
    assert decode(encode(cnn), Profile) == cnn
    assert document(cnn)["kind"] == "measured"


def test_prediction_and_floor_stand_beside_each_layer(cnn):
    from inferometer.known import device
    from inferometer.predict.answer import predict_graph

    graph = read("resnet50")
    expected = predict_graph(graph, device("nvidia-t4"), runtime="onnxruntime", workload=Workload(precision=F32))
    both = with_prediction(cnn, expected, graph)
    conv, fc = both.phase("forward").ops
    assert conv.predicted_s >= conv.floor_s > 0
    assert fc.predicted_s == pytest.approx(next(op.time_s for op in expected.phase("forward").ops if op.name == "fc"))
    assert fc.rung == next(op.rung for op in expected.phase("forward").ops if op.name == "fc")
    assert both.phase("forward").predicted_s == expected.phase("forward").time_s


def test_predicted_joules_stand_in_only_where_a_sensor_was_looked_for_and_none_answered(cnn):
    predicted = dataclasses.replace(
        cnn, kind="predicted", phases=(dataclasses.replace(cnn.phase("forward"), energy_j=2.0),)
    )
    for energy, joules in (
        (None, None),
        (EnergyFacts(reason="no sensor"), {"forward": 2.0}),
        (EnergyFacts(sensors=(EnergySensor(name="rapl", covers="CPU", update_s=0.001),)), {}),
    ):
        measured = dataclasses.replace(cnn, environment=dataclasses.replace(cnn.environment, energy=energy))
        facts = with_prediction(measured, predicted, read("resnet50")).environment.energy
        assert (None if facts is None else facts.predicted_j) == joules


def generation(order, *, first=False, step=2e-3):
    start = 1_000_000
    events = [
        Event(kind="prefill", start_ns=start, end_ns=start + 10_000_000, tokens=order.prompt, context=order.depth)
    ]
    for number in range(order.generate - 1):
        begin = events[-1].end_ns
        events.append(
            Event(
                kind="token", start_ns=begin, end_ns=begin + round(step * 1e9), tokens=1,
                context=order.depth + order.prompt + number, ids=(7,), parts=PARTS,
            )
        )  # fmt: skip
    return Generation(order=order, events=tuple(events), first=first, tokenise_s=1e-3, detokenise_s=2e-4)


@pytest.fixture
def llm():
    order = TextOrder(prompt=16, generate=9)
    shapes = (
        Shape(phase="prefill", kernels=(kernel("layers.0.attn.q_proj/MatMul", 6e-3),), walls_s=(1.1e-2,)),
        Shape(
            phase="decode",
            kernels=(kernel("layers.0.attn.q_proj/MatMul", 1e-3), kernel("layers.1.attn.q_proj/MatMul", 9e-4)),
            walls_s=(2.2e-3,) * 3,
        ),
    )
    raw = Raw(
        ended="done", opened=OPENED, shapes=shapes,
        generations=(generation(order, first=True), generation(order), generation(order, step=2.2e-3)),
    )  # fmt: skip
    return assemble_profile(subject("llama-3.2-1b", prompt=16, generate=9), raw, case=order)


def test_a_generation_has_its_times_by_their_definitions(llm):
    assert llm.summary.ttft_s == pytest.approx(10e-3 + 1e-3)  # tokenise and prefill
    assert llm.summary.tpot_s == pytest.approx(2.1e-3)  # the median of 2.0 and 2.2 ms
    assert llm.summary.tokens_per_s == pytest.approx(1 / 2.1e-3)
    assert llm.phase("decode").statistic == "median over generations of the mean step"


def test_a_request_is_tokenising_the_prompt_every_step_and_the_text_of_the_answer():
    """Two generations that differ in every part: 1 + 10 + 8 · 2.0 + 0.2 ms and 3 + 10 + 8 · 2.4 + 50 ms."""
    order = TextOrder(prompt=16, generate=9)
    slower = dataclasses.replace(generation(order, step=2.4e-3), tokenise_s=3e-3, detokenise_s=50e-3)
    raw = Raw(ended="done", opened=OPENED, generations=(generation(order, first=True), generation(order), slower))
    found = assemble_profile(subject("llama-3.2-1b", prompt=16, generate=9), raw, case=order)
    assert found.phase("tokenise").time_s == pytest.approx(2e-3)
    assert found.summary.e2e_s == pytest.approx(2e-3 + (26e-3 + 29.2e-3) / 2 + (0.2e-3 + 50e-3) / 2)
    assert found.summary.ttft_s == pytest.approx(2e-3 + 10e-3)
    assert found.phase("detokenise").time_s == pytest.approx((0.2e-3 + 50e-3) / 2)
    without = tuple(dataclasses.replace(each, tokenise_s=None) for each in raw.generations)
    plain = assemble_profile(subject("llama-3.2-1b", prompt=16, generate=9),
                             dataclasses.replace(raw, generations=without), case=order)  # fmt: skip
    assert plain.summary.e2e_s == pytest.approx((26e-3 + 29.2e-3) / 2 + (0.2e-3 + 50e-3) / 2)
    assert plain.summary.ttft_s == pytest.approx(10e-3)
    decode_phase = found.phase("decode")
    assert (decode_phase.low_s, decode_phase.high_s) == pytest.approx((2e-3, 2.4e-3))
    once = assemble_profile(subject("llama-3.2-1b", prompt=16, generate=9),
                            dataclasses.replace(raw, generations=raw.generations[:2]), case=order)  # fmt: skip
    assert (once.phase("decode").low_s, once.phase("decode").high_s) == (None, None), "one generation has no spread"


def test_every_step_is_kept_with_its_context(llm):
    decode_phase = llm.phase("decode")
    assert len(decode_phase.samples_s) == 16
    assert decode_phase.context[:8] == tuple(range(16, 24))
    assert decode_phase.parts["run"] == pytest.approx(1.5e-3)


def test_a_chunk_of_several_tokens_gives_each_its_share():
    order = TextOrder(prompt=4, generate=5)
    events = (
        Event(kind="prefill", start_ns=0, end_ns=1_000_000, tokens=4, context=0),
        Event(kind="token", start_ns=1_000_000, end_ns=5_000_000, tokens=4, context=4),
    )
    raw = Raw(ended="done", opened=OPENED, generations=(Generation(order=order, events=events),))
    found = assemble_profile(subject("llama-3.2-1b", prompt=4, generate=5), raw, case=order)
    assert found.summary.tpot_s == pytest.approx(1e-3)
    assert found.phase("decode").samples_s == pytest.approx((1e-3,) * 4)
    assert found.phase("decode").context == (4, 5, 6, 7)


def test_the_dataflow_of_a_measured_generation_closes(llm):
    flow = dataflow(trace_of(llm))
    text = str(flow)
    assert "END-TO-END DATAFLOW" in text
    assert "prefill" in text
    assert flow.svg().startswith("<svg")
    decode_flow = next(phase for phase in flow.flow.phases if phase.name == "decode")
    assert decode_flow.attribution.wall_s == pytest.approx(2.1e-3)


def test_what_ended_early_is_said_first():
    raw = Raw(ended="crashed", opened=OPENED, clean=collected(1e-3), error="SIGSEGV")
    found = assemble_profile(subject("resnet50"), raw)
    assert found.provenance.notes[0] == "Not complete (crashed): SIGSEGV"
    assert found.summary.latency_s == 1e-3


def test_an_unattributed_rest_that_is_large_is_said():
    shape = Shape(phase="forward", kernels=(kernel("conv1/Conv", 1e-3),), walls_s=(1e-2,))
    raw = Raw(ended="done", opened=OPENED, clean=collected(1e-2), shapes=(shape,))
    notes = assemble_profile(subject("resnet50"), raw).provenance.notes
    assert any("90% of the clean run is in no kernel" in note for note in notes)


def test_verification_starts_unchecked(cnn):
    assert cnn.verification.status == "unchecked"
    assert dataclasses.asdict(cnn)["verification"]["status"] == "unchecked"


def test_kernels_of_no_layer_and_work_of_no_kernel_are_told(cnn):
    shape = Shape(
        phase="forward",
        kernels=(kernel("conv1/Conv", 3e-3, "Conv"), kernel("Reorder_1", 1e-3, "ReorderInput")),
        walls_s=(4e-3,) * 3,
    )
    raw = Raw(ended="done", opened=OPENED, clean=collected(4e-3, 4e-3), shapes=(shape,))
    notes = " ".join(assemble_profile(subject("resnet50"), raw).provenance.notes)
    assert "25% of the time in kernels is in 1 of the engine's own" in notes
    assert "of the work" in notes
    assert "is in no kernel" in notes


def test_each_length_has_the_shape_that_was_made_at_it():
    short, long = TextOrder(prompt=4, generate=2), TextOrder(prompt=8, generate=2)

    def generation(order):
        read = Event(kind="prefill", start_ns=0, end_ns=2_000_000, tokens=order.prompt, context=0)
        step = Event(kind="token", start_ns=2_000_000, end_ns=3_000_000, tokens=1, context=order.prompt)
        return Generation(order=order, events=(read, step))

    def shape(order, layer):
        kernels = (Kernel(name=layer, kind="MatMul", samples_s=(1e-3,), layers=(layer,)),)
        return Shape(phase="decode", kernels=kernels, walls_s=(1e-3,), order=order)

    raw = Raw(
        ended="done",
        opened=OPENED,
        generations=(generation(short), generation(long)),
        shapes=(shape(short, "lm_head"), shape(long, "layers.0.attn.q_proj")),
    )
    about = subject("llama-3.2-1b", batch=3)
    names = [assemble_profile(about, raw, case=case).phase("decode").ops[0].name for case in (short, long)]
    assert names == ["lm_head", "layers.0.attn.q_proj"]
    assert assemble_profile(about, raw, case=short).summary.tokens_per_s == pytest.approx(3 / 1e-3)


def test_layers_that_beat_their_floor_are_told_with_the_reason():
    fast = OpTime(name="a", kind="linear", time_s=1e-3, floor_s=2e-3, bound="memory")
    slow = OpTime(name="b", kind="linear", time_s=1e-3, floor_s=5e-4, bound="compute")
    base = assemble_profile(subject("resnet50"), Raw(ended="done", opened=OPENED, clean=collected(2e-3, 2e-3)))
    forward = dataclasses.replace(base.phase("forward"), ops=(fast, slow))
    both = dataclasses.replace(base, phases=(forward,))
    (cores, beaten) = remarks(both, cores=8)
    assert cores == "The floor counts all 8 cores; the engine had 2 threads."
    assert "1 layers, 50% of the time, beat their floor" in beaten
    assert "caches" in beaten
    assert list(remarks(base, cores=2)) == []


@pytest.mark.parametrize(
    ("measured", "predicted", "beside"),
    [
        ({"launch": 1.0, "run": 4.0}, {"launch": 2.0, "run": 5.0}, {"launch": 2.0, "run": 5.0}),
        ({"run": 4.0, "sample": 1.0}, {"launch": 2.0, "run": 5.0}, {"run": 7.0}),
        ({"run": 4.0, "read": 1.0}, {"run": 5.0, "sample": 1.0, "read": 2.0}, {"run": 6.0, "read": 2.0}),
        ({}, {"run": 5.0}, {}),
        ({"write": 5.0}, {"run": 5.0}, {}),
    ],
    ids=["alike", "no launch told apart", "no sampling told apart", "no parts", "no run"],
)
def test_the_prediction_of_each_part_stands_beside_it_and_all_of_it_somewhere(cnn, measured, predicted, beside):
    """What an engine's clock cannot tell apart it has in its run, and so has the prediction."""
    case = Phase(name="decode", time_s=5.0, parts=measured)
    expected = Phase(name="decode", time_s=sum(predicted.values()), high_s=99.0, parts=predicted)
    one, other = (dataclasses.replace(cnn, phases=(phase,)) for phase in (case, expected))
    (phase,) = with_prediction(one, other, read("resnet50")).phases
    assert phase.predicted_parts == beside
    assert not beside or sum(beside.values()) == phase.predicted_s


def test_the_prediction_of_a_bare_loop_leaves_out_what_it_does_not_do(cnn):
    parts = {"write": 1.0, "launch": 2.0, "run": 5.0, "read": 0.5, "between": 0.25}
    expected = dataclasses.replace(
        cnn, phases=(Phase(name="decode", time_s=sum(parts.values()), high_s=99.0, parts=parts),)
    )
    for measured, beside in (({"launch": 1.0, "run": 4.0}, {"launch": 2.0, "run": 5.0}), ({"run": 5.0}, {"run": 7.0})):
        environment = Environment(host={"loop": "bare"})
        one = dataclasses.replace(
            cnn, phases=(Phase(name="decode", time_s=5.0, parts=measured),), environment=environment
        )
        (phase,) = with_prediction(one, expected, read("resnet50")).phases
        assert (phase.predicted_s, phase.predicted_parts) == (7.0, beside)
        (product,) = with_prediction(dataclasses.replace(one, environment=None), expected, read("resnet50")).phases
        assert product.predicted_s == sum(parts.values())


def test_a_step_of_arrays_is_its_run_or_a_launch_and_the_wait_for_its_end():
    raw = Raw(ended="done", clean=collected(0.004, 0.005, 0.006))
    for launch_s, parts in ((None, {"run": 0.005}), (0.002, {"launch": 0.002, "run": 0.003}),
                            (0.009, {"launch": 0.005, "run": 0.0})):  # fmt: skip
        forward = assemble_profile(subject("resnet50"), dataclasses.replace(raw, launch_s=launch_s)).phase("forward")
        assert forward.parts == pytest.approx(parts)
