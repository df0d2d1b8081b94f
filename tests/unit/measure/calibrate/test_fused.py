"""Small ops inside another's kernel: which ones a runtime takes in, and the class that their tables stand under."""

from __future__ import annotations

import pytest

from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.core.workload import Precision, Workload
from inferometer.known import device
from inferometer.known.engines import require_effects
from inferometer.measure.calibrate.fitting.assemble import assemble_calibration
from inferometer.measure.calibrate.fitting.fit import class_for
from inferometer.measure.calibrate.fitting.points import measured_point, works_of
from inferometer.measure.calibrate.fitting.steps import taken_apart
from inferometer.measure.calibrate.fitting.subject import CalibrationSubject
from inferometer.predict.answer import predict_graph
from inferometer.predict.options import Options
from inferometer.predict.ready import make_ready
from inferometer.predict.work.classes import FUSED, PLAIN, class_path

CPU = device("intel-xeon-8480plus")
F32 = Precision(weights="f32", activations="f32", kv="f32")
SIZES = {"batch": 1, "query": 1, "context": 0, "logits": 1}


def chain(first: str, function: str) -> Graph:
    """A product and an activation of what it made, then a sum that stands alone."""
    x, y, z, end = (Tensor(name=name, shape=(1, 32, 16, 16)) for name in ("x", "y", "z", "end"))
    attributes = {
        "convolution": {"in_channels": 32, "out_channels": 32, "kernel": (3, 3), "strides": (1, 1), "groups": 1},
        "linear": {"in_features": 16, "out_features": 16},
    }[first]
    shape = {"convolution": (32, 32, 3, 3), "linear": (16, 16)}[first]
    ops = (
        Op(name="product", kind=first, inputs=(x,), outputs=(y,), attributes=attributes,
           weights=(Tensor(name="w", shape=shape, role="weight"),)),
        Op(name="act", kind="activation", inputs=(y,), outputs=(z,), attributes={"function": function}),
        Op(name="pool", kind="pool", inputs=(z,), outputs=(end,), attributes={"kernel": (1, 1)}),
    )  # fmt: skip
    return Graph(name="chain", blocks=(Block(name="only", ops=ops),), precision="f32")


def works(graph: Graph, runtime: str = "onnxruntime"):
    ready = make_ready(
        graph, CPU, effects=require_effects(runtime), workload=Workload(precision=F32), options=Options()
    )
    return {work.kind: work for work in works_of(ready.plan, SIZES, "forward")}, ready.plan


def points_of(found, **seconds: float):
    """Ops by their kinds as three probes measured them."""
    return [
        measured_point(found[kind], taken, dtype="f32", probe=f"p{number}")
        for number in range(3)
        for kind, taken in seconds.items()
    ]


@pytest.mark.parametrize(
    ("first", "function", "inside"),
    [
        ("convolution", "relu", True),
        ("convolution", "gelu", False),  # ONNX Runtime has no such convolution
        ("linear", "gelu", True),
        ("linear", "hardswish", False),
    ],
)
def test_an_activation_is_taken_in_by_the_products_that_have_it(first: str, function: str, inside: bool):
    found, _ = works(chain(first, function))
    assert (found["activation"].launches == 0) == inside
    assert (FUSED in found["activation"].classes) == inside
    assert (found["activation"].classes[0] == PLAIN) == (function == "relu")
    assert found["pool"].classes == ("vector.pool", "vector.forward", "vector")


def test_only_small_ops_have_a_class_for_it():
    product, act, _ = (op for _, op in chain("linear", "gelu").ops())
    assert class_path(act, "forward", fused=True) == (FUSED, f"{FUSED}.forward", "vector.forward", "vector")
    alone = ("vector.activation", "vector.forward", "vector")
    assert class_path(act, "forward") == ("vector.activation.curved", *alone), "a series takes longer than its bytes"
    assert class_path([op for _, op in chain("linear", "relu").ops()][1], "forward") == alone
    assert class_path(product, "forward", fused=True) == ("linear.forward", "linear")


def test_points_of_both_have_tables_of_their_own_and_a_step_is_taken_apart_by_them():
    found, plan = works(chain("convolution", "relu"))
    points = points_of(found, activation=1e-6, pool=5e-6, convolution=1e-4)
    assert [class_for(point.classes) for point in points[:3]] == [PLAIN, "vector", "convolution"]
    subject = CalibrationSubject(device=CPU, runtime=require_effects("onnxruntime"), dtype="f32", created="2026-11-15")
    made = assemble_calibration(subject, points)
    assert {table.op_class for table in made.tables} == {PLAIN, "vector", "convolution"}
    calibrated = make_ready(
        chain("convolution", "relu"), CPU, effects=require_effects("onnxruntime"),
        workload=Workload(precision=F32), options=Options(), calibration=made,
    ).plan  # fmt: skip
    apart = taken_apart(calibrated, SIZES, "forward", model="m", seconds=1.0).parts
    assert apart.keys() == {PLAIN, "vector.forward", "convolution.forward"}
    together = taken_apart(plan, SIZES, "forward", model="m", seconds=1.0).parts
    assert together.keys() == {"vector.forward", "convolution.forward"}, "nothing tells them apart without a table"


def test_a_prediction_prices_an_op_inside_a_kernel_by_its_own_table():
    graph = chain("convolution", "relu")
    found, _ = works(graph)
    points = points_of(found, activation=1e-6, pool=5e-6, convolution=1e-4)
    subject = CalibrationSubject(device=CPU, runtime=require_effects("onnxruntime"), dtype="f32", created="2026-11-15")
    told = predict_graph(
        graph,
        CPU,
        runtime="onnxruntime",
        workload=Workload(precision=F32),
        calibration=assemble_calibration(subject, points),
    )
    times = {op.kind: op for op in told.phase("forward").ops}
    assert times["activation"].time_s == pytest.approx(1e-6, rel=0.01)
    assert times["activation"].origin == "calibrated"


def test_what_no_point_tells_is_in_the_times_of_the_ops_that_it_runs_inside():
    """The files of such engines have an activation inside its convolution: it is not counted a second time."""
    graph = chain("convolution", "relu")
    found, _ = works(graph)
    points = points_of(found, pool=5e-3, convolution=1e-4)

    def told(runtime: str):
        subject = CalibrationSubject(device=CPU, runtime=require_effects(runtime), dtype="f32", created="2026-11-15")
        calibration, asked = assemble_calibration(subject, points), Workload(precision=F32)
        profile = predict_graph(graph, CPU, runtime=runtime, workload=asked, calibration=calibration)
        return {op.kind: op for op in profile.phase("forward").ops}

    times = told("mnn")
    assert times["convolution"].time_s == pytest.approx(1e-4, rel=0.01)
    assert times["activation"].time_s < 1e-3 * times["pool"].time_s
    assert told("torch-eager")["activation"].time_s > 1e-4, "nothing runs inside another there: it is like a pool"
