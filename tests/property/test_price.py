"""What must hold of every price, whatever the ops, the device, the runtime and the workload."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inferometer as im
from inferometer.core import Block, Device, Graph, Link, Memory, Parallel, Precision, Sourced, Workload
from inferometer.known.engines import engines, runtime_effects
from inferometer.predict import footprint, graph_work
from inferometer.predict.answer import predict_graph
from inferometer.predict.memory.residency import residency_of
from inferometer.predict.options import Options
from inferometer.predict.parallel import place
from inferometer.predict.price.step import over_rows
from inferometer.predict.work.merge import with_sizes
from inferometer.predict.work.polynomial import Polynomial
from inferometer.predict.work.prepare import Terms, prepare, quantities_of
from unit.predict.decoders import BF16, at, decoder, tensor, tokens
from unit.predict.estimates import estimate_op
from unit.predict.examples import EXAMPLES
from unit.predict.examples import op as make_op

RATES = st.floats(1e9, 1e16)
SECONDS = st.floats(1e-9, 1e-2)
RUNTIMES = st.sampled_from(sorted(engines()))
SMALL = [example for example in EXAMPLES if example.kind != "collective"]
PLANS = st.sampled_from([Parallel(), Parallel(tp=2), Parallel(tp=4, pp=2), Parallel(pp=3), Parallel(dp=2)])
SIZES = st.fixed_dictionaries(
    {"batch": st.integers(1, 9), "query": st.integers(1, 300), "context": st.integers(0, 300)}
)
FIXED = {"encoder": 50, "image": 16}  # sizes that prepared graphs have as numbers
briefly = settings(max_examples=25)


def stated(value):
    return Sourced(value=value, origin="datasheet", source="drawn", date="2026")


@st.composite
def devices(draw):
    """Any unit, with or without caches, links and power; it computes in every format that is asked for."""
    link = Link(
        name="l",
        title="l",
        kind="l",
        bandwidth_bytes_per_s=stated(draw(RATES)),
        latency_s=draw(st.none() | SECONDS.map(stated)),
    )
    cache = Memory(
        level="l2",
        capacity_bytes=stated(draw(st.floats(1, 1e9))),
        bandwidth_bytes_per_s=draw(st.none() | RATES.map(stated)),
    )
    main = Memory(level="dram", capacity_bytes=stated(1e12), bandwidth_bytes_per_s=stated(draw(RATES)))
    return Device(
        name="drawn",
        title="Drawn",
        vendor="nobody",
        unit=draw(st.sampled_from(["cpu", "gpu", "npu", "tpu"])),
        kind=draw(st.sampled_from(["server", "board", "phone", None])),
        peaks={name: stated(draw(RATES)) for name in ("bf16", "f32", "i8")},
        memories=(main, cache) if draw(st.booleans()) else (main,),
        host_link=link,
        peer_link=link,
        launch_s=draw(st.none() | SECONDS.map(stated)),
        power_w=draw(st.none() | st.floats(1, 1000).map(stated)),
    )


@st.composite
def decoders(draw):
    heads = draw(st.sampled_from([4, 8]))
    shape = {
        "heads": heads,
        "kv_heads": draw(st.sampled_from([4, heads])),
        "head_dim": draw(st.sampled_from([16, 64, 128])),
    }
    windows = draw(st.sampled_from([(), ((16, 2),), ((16, 1), (None, 1), (64, 1))]))
    width = {"hidden": draw(st.sampled_from([64, 256])), "ffn": draw(st.sampled_from([128, 1024])), "vocab": 1000}
    return decoder(layers=draw(st.integers(1, 6)), windows=windows, tied=draw(st.booleans()), **shape, **width)


WORKLOADS = st.builds(
    Workload,
    batch=st.integers(2, 64),
    prompt=st.integers(1, 3000),
    generate=st.integers(0, 300),
    context=st.none() | st.integers(0, 5000),
    parallel=PLANS,
    precision=st.sampled_from([Precision(), Precision(weights="q4_0", kv="q8_0"), Precision(weights="i8")]),
)
OPTIONS = st.builds(
    Options,
    chunk=st.none() | st.integers(64, 4000),
    overlap=st.floats(0, 1),
    micro_batches=st.integers(1, 4),
    sequence_parallel=st.booleans(),
)


@briefly
@given(graph=decoders(), device=devices(), runtime=RUNTIMES, workload=WORKLOADS, options=OPTIONS)
def test_no_prediction_beats_its_floor(graph, device, runtime, workload, options):
    if workload.parallel.pp > sum(block.count for block in graph.blocks) - 2:
        workload = replace(workload, parallel=Parallel())
    profile = predict_graph(graph, device, runtime=runtime, workload=workload, options=options)
    for phase in profile.phases:
        assert 0 <= phase.floor_s <= phase.low_s <= phase.time_s <= phase.high_s < float("inf")
        parts = sum(op.time_s for op in phase.ops) + (phase.unattributed_s or 0)
        assert not phase.ops or parts == pytest.approx(phase.time_s)
        for op in phase.ops:
            assert 0 <= op.floor_s <= op.low_s * (1 + 1e-12) <= op.time_s * (1 + 2e-12) <= op.high_s * (1 + 3e-12)
            assert op.bound in {"compute", "memory", "link", "overhead"}
            assert op.origin in {"prior", "datasheet"}


@briefly
@given(graph=decoders(), device=devices(), runtime=RUNTIMES, workload=WORKLOADS, times=st.floats(1, 100))
def test_time_never_rises_with_bandwidth_or_peaks(graph, device, runtime, workload, times):
    workload = replace(workload, parallel=Parallel())
    main, *caches = device.memories
    faster = replace(main, bandwidth_bytes_per_s=stated(times * main.bandwidth_bytes_per_s.value))
    wider = replace(device, memories=(faster, *caches))
    quicker = replace(device, peaks={name: stated(times * peak.value) for name, peak in device.peaks.items()})
    before = predict_graph(graph, device, runtime=runtime, workload=workload)
    for better in (wider, quicker):
        after = predict_graph(graph, better, runtime=runtime, workload=workload)
        for name in ("prefill", "decode"):
            if before.phase(name) is not None:
                assert after.phase(name).time_s <= before.phase(name).time_s * (1 + 1e-9)


@briefly
@given(
    example=st.sampled_from(SMALL),
    device=devices(),
    runtime=RUNTIMES,
    phase=st.sampled_from(["prefill", "decode", "forward"]),
    sizes=SIZES,
)
def test_every_kind_of_op_has_a_price_that_holds_together(example, device, runtime, phase, sizes):
    price = estimate_op(example, at(**sizes, encoder=50, image=16), device, runtime=runtime, phase=phase)
    assert price.time_s >= price.floor_s  # and floor ≤ low ≤ time ≤ high, or the estimate would not be one


@pytest.mark.parametrize("runtime", sorted(engines()))
@settings(max_examples=6)  # for each engine
@given(chosen=st.lists(st.sampled_from(EXAMPLES), min_size=1, max_size=6), many=st.lists(SIZES, min_size=1, max_size=4))
def test_polynomials_say_what_the_rules_say(runtime, chosen, many):
    graph = with_sizes(Graph(name="any", blocks=(Block(name="any", ops=tuple(chosen), count=2),)), FIXED)
    terms = Terms(precision=BF16, effects=runtime_effects(runtime))
    prepared = prepare(graph, place(graph, Parallel()), terms)
    sizes = {name: np.array([each[name] for each in many]) for name in many[0]} | {"logits": 1}
    together = prepared.quantities(sizes)
    for column, each in enumerate(many):
        binding = prepared.binding({**each, "logits": 1})
        for number, row in enumerate(prepared.rows):
            alone = quantities_of(row, binding, terms.effects)
            for name in ("weights", "activations", "kv", "link", "extra_bytes", "extra_flops", "flops", "bytes"):
                assert getattr(together, name)[number, column] == pytest.approx(alone.get(name, 0), abs=1e-6), name
        work, counts = graph_work(graph, binding), sum(prepared.counts(once=once) for once in (False, True))
        if not any(op.kind == "collective" for op in chosen):  # priced by their message, not by their work
            assert over_rows(counts, together.flops)[column] == pytest.approx(work.total_flops)
            assert over_rows(counts, together.bytes)[column] == pytest.approx(work.bytes)


LOOSE_CACHE = make_op("copy", [tensor("past.{}", 2, 10, 64, role="kv"), tokens("new", 64)], [tokens("y", 64)])
GRAPHS = st.builds(
    lambda ops, count: with_sizes(Graph(name="any", blocks=(Block(name="any", ops=tuple(ops), count=count),)), FIXED),
    st.lists(st.sampled_from([*EXAMPLES, LOOSE_CACHE]), min_size=1, max_size=6),
    st.integers(1, 4),
)


@briefly
@given(graph=decoders() | GRAPHS, many=st.lists(SIZES, min_size=1, max_size=4))
def test_prepared_memory_is_the_footprint(graph, many):
    terms = Terms(precision=BF16, effects=runtime_effects("ideal"))
    residency = residency_of(graph, place(graph, Parallel()), terms)
    sizes = {name: np.array([each[name] for each in many]) for name in many[0]} | {"logits": np.ones(len(many), int)}
    together = residency.use(sizes)
    for column, each in enumerate(many):
        alone, memory = residency.use({**each, "logits": 1}), footprint(graph, at(**each, logits=1))
        for name in ("weights_bytes", "kv_bytes", "state_bytes", "activations_bytes", "workspace_bytes"):
            assert getattr(alone, name) == pytest.approx(getattr(memory, name)), name
            assert np.broadcast_to(getattr(together, name), len(many))[column] == pytest.approx(getattr(alone, name))
        assert residency.kv_bytes_per_token == memory.kv_bytes_per_token


@given(
    st.lists(st.tuples(st.sampled_from("nmk"), st.integers(-5, 5)), max_size=6), st.integers(1, 7), st.integers(0, 9)
)
def test_a_polynomial_is_what_its_numbers_give(steps, times, at_):
    symbolic, number = Polynomial.of(1), 1
    for name, add in steps:
        symbolic, number = symbolic * (Polynomial.symbol(name) + add) * times, number * (at_ + add) * times
    terms = {monomial: factor * at_ ** len(monomial) for monomial, factor in symbolic.terms.items()}
    assert sum(terms.values()) == number


@pytest.mark.parametrize("runtime", ["torch-graph", "torch-eager", "torch-compile", "onnxruntime"])
@pytest.mark.parametrize("model", ["whisper-base", "t5-small", "llama-3.2-1b"])
def test_a_prompt_of_one_token_takes_what_a_decode_step_does(model, runtime):
    """Of each op: what the loop does around a prompt, such as writing it, comes on top."""
    answer = im.predict(model, on="nvidia-h200", runtime=runtime, prompt=1, generate=2)
    first, second = (
        {op.name: op.time_s for op in answer.phase(name).ops if op.kind != "attention"}
        for name in ("prefill", "decode")
    )
    assert first == pytest.approx(second, rel=0.01)  # a bias by position has one more key
    rows = im.sweep(models=[model], devices=["nvidia-h200"], runtimes=[runtime], prompt=[1, 300], generate=[2])
    assert rows["ttft_s"][0] == pytest.approx(answer.summary.ttft_s)
