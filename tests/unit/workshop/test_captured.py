"""Forms that kernels of networks in CUDA graphs follow, fitted to traces and whole steps and written as tables."""

from dataclasses import replace

import numpy as np
import pytest

from inferometer.known import device
from inferometer.known.engines import require_effects
from inferometer.measure.calibrate.fitting.points import StepPoint
from inferometer.measure.calibrate.fitting.subject import CalibrationSubject
from inferometer.predict.ask import ask
from inferometer.predict.basis.files import SHIPPED, read_calibration
from workshop.calibrations import captured
from workshop.calibrations.captured import Kind, Network, convolution_s, fitted_numbers, network_of, tables

BEGUN = {name: value for name, (value, _) in captured.NUMBERS["bf16"].items()}


def shipped(dtype):
    return read_calibration(next(SHIPPED.glob(f"nvidia-h200-torch-graph-{dtype}-*.json")))


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_eager_modules_have_what_forwards_in_graphs_told_of_the_same_kernels(dtype):
    graph = shipped(dtype)
    eager = read_calibration(next(SHIPPED.glob(f"nvidia-h200-torch-eager-{dtype}-*.json")))
    told = ["vector.batch", *(f"convolution.{form}" for form in captured.FORMS)]
    assert all(eager.table(name) == graph.table(name) is not None for name in told)
    assert {name: eager.factors[name] for name in told} == dict.fromkeys(told, 1.0)
    assert eager.factors["depthwise.forward"] == graph.factors["depthwise.forward"]
    assert eager.residuals["step.forward"] == graph.residuals["step.forward"]


def test_what_forwards_in_graphs_told_of_attention_stays_there():
    graph = shipped("bf16")
    eager = replace(graph, runtime="torch-eager", factors={"attention.mutual": 1.5, "vector.batch": 2.0})
    told = replace(graph, factors={**graph.factors, "attention.mutual": 0.5, "vector.batch": 0.25})
    assert captured.with_forwards_of(eager, graph, told).factors == {"attention.mutual": 1.5, "vector.batch": 0.25}


@pytest.mark.parametrize("kv_heads", [2, 4, 8])
def test_a_repeated_key_costs_a_captured_step_the_same_however_many_heads_share_it(kv_heads):
    def attention_s(runtime, kv_heads, context):
        asked = ask("llama-3.1-8b", on="nvidia-h200", runtime=runtime, weights="bf16", context=context)
        blocks = [
            replace(block, ops=tuple(
                replace(op, attributes={**op.attributes, "kv_heads": kv_heads}) if op.kind == "attention" else op
                for op in block.ops
            ))
            for block in asked.graph.blocks
        ]  # fmt: skip
        answer = replace(asked, graph=replace(asked.graph, blocks=tuple(blocks))).answer()
        return sum(op.time_s for op in answer.phase("decode").ops if op.kind == "attention")

    def a_token(kv_heads):
        return attention_s("torch-graph", kv_heads, 40_000) - attention_s("torch-graph", kv_heads, 20_000)

    assert a_token(kv_heads) == pytest.approx(a_token(16), rel=0.12)


def test_products_over_planes_take_longer_where_their_numbers_come_in_no_eights():
    def seconds(aligned, size):
        return float(convolution_s("pointwise", 3136.0, 512.0, 1024.0, aligned, BEGUN, size))

    assert seconds(8.0, 2.0) < seconds(4.0, 2.0)
    assert seconds(8.0, 2.0) < seconds(1.0, 2.0)
    assert seconds(8.0, 4.0) == seconds(4.0, 4.0) < seconds(1.0, 4.0)  # four numbers of 32 bits are a vector


def test_a_window_is_copied_there_and_back_and_its_weights_too():
    def seconds(**other):
        return float(convolution_s("window", 784.0, 2304.0, 256.0, 8.0, BEGUN | other, 2.0))

    free = seconds(copy_s=0.0, copy_rate=1e30, weights_rate=1e30)
    assert seconds() - free > 3 * BEGUN["copy_s"]
    assert seconds() - seconds(weights_rate=1e30) == pytest.approx(2 * 2 * 2304 * 256 / BEGUN["weights_rate"])


def test_whole_steps_draw_what_a_batch_norm_takes():
    ones = np.ones(1)

    def network(seconds):
        kind = Kind(counts=100 * ones, launches=ones, alone_s=3e-6 * ones, moved=ones, operations=ones, positions=ones,
                    taps=ones, channels=ones, aligned=ones)  # fmt: skip
        step = StepPoint(model="x", phase="forward", dtype="bf16", batch=1, query=1, image=224, seconds=seconds)
        return Network(step=step, kernel_s=1e-6, step_s=1e-5, kinds={"vector.batch": kind})

    slow = [network(1e-3) for _ in range(20)]
    numbers = fitted_numbers(slow, {}, "bf16")
    assert numbers["batch_s"] > BEGUN["batch_s"]
    assert slow[0].seconds(numbers) == pytest.approx(1e-3, rel=0.05)


@pytest.mark.parametrize(
    ("model", "batch"), [("torchvision:convnext_tiny", 1), ("resnet50", 8), ("efficientnet-b0", 2)]
)
def test_a_prediction_by_the_tables_is_the_sum_of_the_forms(model, batch):
    there, gpu = shipped("bf16"), device("nvidia-h200")
    subject = CalibrationSubject(device=gpu, runtime=require_effects("torch-graph"), dtype="bf16", created="2026")
    step = StepPoint(model=model, phase="forward", dtype="bf16", batch=batch, query=1, image=224, seconds=1.0)
    network = network_of(subject, there, step)
    made = tables(BEGUN, there, gpu)
    named = {each.op_class for each in made}
    kept = tuple(each for each in there.tables if each.op_class not in named)
    again = network_of(subject, replace(there, tables=(*kept, *made)), step)
    for name in {*captured.FORMS, "depthwise.wide"}.intersection(network.kinds):
        kind, priced = network.kinds[name], again.kinds[name]
        told = captured.seconds_of(name, kind, BEGUN, network.kernel_s, 2.0)
        # A convolution of little does not take less than its launches.
        longest = np.maximum(told, network.kernel_s * kind.launches)
        assert (priced.alone_s * kind.counts).sum() == pytest.approx((longest * kind.counts).sum(), rel=0.1), name


def test_a_number_for_each_channel_takes_longer_to_multiply_than_two_planes_do_to_add():
    phase = (
        ask("torchvision:convnext_tiny", on="nvidia-h200", runtime="torch-graph", weights="bf16")
        .answer()
        .phase("forward")
    )
    by_name = {op.name.rsplit(".", 1)[-1]: op.time_s / op.count for op in phase.ops if op.kind == "elementwise"}
    assert by_name["mul"] > by_name["add"]
