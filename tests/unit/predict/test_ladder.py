"""Who says how long an op takes: the ladder of sources, and the kinds of calibration that it is made of."""

from collections import Counter
from dataclasses import replace
from itertools import product
from math import exp
from types import SimpleNamespace

import numpy as np
import pytest

from inferometer.core import Calibration, Utilisation
from inferometer.core.calibration import (
    FormRates,
    KernelForm,
    KernelForms,
    KernelRates,
    KernelShares,
    PublishedRates,
    TableRates,
)
from inferometer.core.device import DeviceShares
from inferometer.core.errors import DomainError
from inferometer.core.statistics import EIGHT_IN_TEN
from inferometer.core.workload import Precision
from inferometer.known import devices
from inferometer.known.engines import engine as engine_named
from inferometer.known.engines import runtime_effects
from inferometer.predict.ask import ask
from inferometer.predict.price import ladder, plan
from inferometer.predict.price.deviations import (
    PARAMETERS,
    WORTH_SAYING,
    ModelEffect,
    fitted_prior,
    known_deviations,
    spread_of,
    standing_of,
    sums_of,
    was_seen,
)
from inferometer.predict.price.priors import prior_for
from unit.predict.machines import stated

TABLE = Utilisation(
    op_class="linear", stream="floor", axes=("rows",), grid=((1.0, 4096.0),), values=(0.2, 0.6), residual=0.05
)
FORM = KernelForm(compute_share=0.5, memory_share=0.5, ramp_s=1e-6, each_s=0.0, uneven=0.0, residual=0.2)


def gemm_shares():
    """Products of every shape at a quarter of their floor's speed."""
    grid = np.meshgrid([1.0, 4096.0], [1024.0, 65536.0], [1024.0, 65536.0], indexing="ij")
    sizes = dict(zip(("rows", "out_features", "in_features"), (axis.ravel() for axis in grid), strict=True))
    texts = {"format": np.full(grid[0].size, "bfloat16")}
    return KernelShares(family="gemm", sizes=sizes, texts=texts, shares=np.full(grid[0].size, 0.25))


KINDS = {
    "tables": ((TABLE,), TableRates),
    "kernels": ({"gemm": gemm_shares()}, KernelRates),
    "forms": ({"gemm": KernelForms(family="gemm", by_format={"bfloat16": FORM})}, FormRates),
    "parameters": (dict.fromkeys(PARAMETERS, 0.5), PublishedRates),
}


def calibration(*kinds, **given):
    facts = {"device": "nvidia-l40s", "runtime": "vllm", "dtype": "bf16", "created": "2026-11-17T10:00:00"}
    return Calibration(**facts | {name: KINDS[name][0] for name in kinds} | given)


def rungs_of(model="llama-3.2-1b", phase="decode", **asked):
    """The rung of each op of a phase, by the last part of the op's name."""
    profile = ask(model, **{"on": "nvidia-l40s", "prompt": 16, "generate": 2} | asked).answer()
    return {op.name.rpartition(".")[2]: op for op in profile.phase(phase).ops}


# kinds of calibration


@pytest.mark.parametrize("name", KINDS)
def test_a_calibration_is_of_the_kind_whose_field_is_filled(name):
    assert type(calibration(name).rates) is KINDS[name][1]
    assert calibration(name).is_published == (name == "parameters")


def test_a_calibration_of_overheads_alone_has_no_tables():
    assert calibration().rates == TableRates(tables=())


def test_a_calibration_of_two_kinds_is_refused():
    with pytest.raises(DomainError, match=r"has rates of one kind, and that of nvidia-l40s .* has tables and forms"):
        calibration("tables", "forms")


# which rung answers


@pytest.mark.parametrize(
    ("kind", "given", "name", "origin"),
    [
        ("kernels", {"versions": {"vllm": "0.19.0"}}, "measured kernel of vLLM 0.19.0 on nvidia-l40s", "calibrated"),
        ("forms", {"device": "ten GPUs"}, "kernel form of vLLM on ten GPUs", "prior"),
        ("tables", {}, "calibrated on nvidia-l40s on 2026-11-17", "calibrated"),
    ],
)
def test_an_op_names_the_rung_that_answered_and_others_are_answered_below(kind, given, name, origin):
    ops = rungs_of(runtime="vllm", calibration=calibration(kind, **given))
    assert (ops["down_proj"].rung, ops["down_proj"].origin) == (name, origin)
    assert (ops["norm"].rung, ops["norm"].origin) == ("class prior", "prior")


def test_what_was_calibrated_on_this_machine_was_calibrated_here():
    rung = ladder.CalibrationTable(calibration("tables", device="local"))
    assert rung.name == "calibrated here on 2026-11-17"


def test_a_kernel_in_another_format_is_only_the_nearest():
    ops = rungs_of(runtime="vllm", weights="f8e4m3", calibration=calibration("kernels"))
    assert ops["down_proj"].rung == "nearest measured kernel of vLLM on nvidia-l40s"


def test_published_times_of_the_device_come_before_those_of_others():
    asked = {"on": "rockchip-rk3588-npu", "runtime": "rknn", "prompt": None, "generate": None, "phase": "forward"}
    shipped = rungs_of("resnet50", **asked)["conv1"]
    given = calibration("parameters", device="rockchip-rk3588-npu", runtime="rknn", residuals={"step": 0.1})
    forward = {name: 0.5 for name in PARAMETERS if not name.endswith((".prefill", ".decode"))}
    own = rungs_of("resnet50", **asked, calibration=replace(given, parameters=forward))["conv1"]
    assert shipped.rung.startswith("published times of")
    assert (own.rung, own.origin) == ("published times of this NPU, fitted on 2026-11-17", "calibrated")


def test_what_others_published_comes_before_a_rule_of_the_class():
    asked = {"on": "raspberry-pi-5", "runtime": "litert", "prompt": None, "generate": None, "phase": "forward"}
    conv = rungs_of("resnet50", **asked)["conv1"]
    assert prior_for("cpu", ("convolution",)) is not None
    assert conv.rung.startswith("published times of")


@pytest.mark.parametrize(
    ("kind", "timed"), [("tables", "calibrated on nvidia-l40s on 2026-11-17"), ("parameters", None)]
)
def test_what_a_device_states_counts_where_no_op_was_timed(kind, timed):
    question = ask("llama-3.2-1b", on="nvidia-l40s", runtime="torch-compile", prompt=16, generate=2)
    own = replace(question.device, shares=DeviceShares(compute=stated(0.3)))
    made = calibration(kind, runtime="torch-compile")
    profile = replace(question, device=own, calibration=made).answer()
    ops = {op.name.rpartition(".")[2]: op for op in profile.phase("decode").ops}
    assert ops["down_proj"].rung == (timed or ops["norm"].rung)
    assert ops["norm"].rung == "stated in the device's row"


def test_a_stated_share_of_the_compute_peak_has_the_unpacking_of_weights_in_it():
    question = ask("llama-3.2-1b", on="nvidia-l40s", runtime="llamacpp", weights="q4_0", context=256)
    own = replace(question.device, peaks={"f16": stated(2e11)}, shares=DeviceShares(compute=stated(0.7)))
    ops = replace(question, device=own, calibrated=False).answer().phase("decode").ops
    (product,) = [op for op in ops if op.name == "layers.0.mlp.down_proj"]
    assert product.rung == "stated in the device's row"
    # but for what this model takes over its work with the engine, some hundredths; unpacking would be a multiple
    assert product.time_s == pytest.approx(product.flops / (0.7 * 2e11), rel=0.05)


def test_where_no_op_of_a_kind_is_known_the_peaks_answer_in_doubt():
    ops = rungs_of(on="google-tpu-v7", runtime="ideal", calibrated=False)
    unknown = [op for op in ops.values() if op.rung == "the peaks alone"]
    assert unknown
    assert {op.origin for op in unknown} == {"datasheet"}
    assert all(op.high_s == pytest.approx(ladder.DATASHEET_SPREAD * op.time_s) for op in unknown)


def test_the_lowest_rung_covers_every_row():
    everything = ask("qwen3-30b-a3b", on="nvidia-h200", runtime="ideal", tp=2, prompt=16, generate=2, calibrated=False)
    assert all(op.rung for phase in everything.answer().phases for op in phase.ops)


def test_the_factor_of_whole_steps_is_applied_to_rates_of_ops_alone():
    alone = ladder.RowRates(compute_share=0.8, memory_share=0.6, compute_ramp_s=1e-6, memory_ramp_s=2e-6)
    inside = alone.in_whole_steps(2.0)
    assert inside[:6] == (0.4, 2e-6, 0, 0.3, 4e-6, 0)
    assert inside[6:] == alone[6:]


def few_and_many():
    """(standing, steps) of every device and engine that tokens were published of, in one of their formats."""
    levels = known_deviations(tokens=True).levels
    steps = Counter()
    for name, level in levels.items():
        if name.startswith("device+engine:"):
            steps[tuple(name.split(":")[1:3])] += level.rows
    for (name, engine), many in steps.items():
        if name not in devices():
            continue  # a part of one, which nobody can ask about
        weights = next(level.split(":")[3] for level in levels if level.startswith(f"device+format:{name}:{engine}:"))
        stored, _, computed = weights.partition("/")
        standing = standing_of(devices()[name], engine, Precision(weights=stored, activations=computed))
        yield standing, many


def test_less_than_ten_steps_of_a_device_are_no_surer_than_its_kind():
    seen = set()
    for (standing, steps), phase in product(few_and_many(), ("prefill", "decode")):
        rung = ladder.ShippedFit.of(ladder.RungSources(standing=standing, phase=phase, binding=None), ())
        if rung is None:
            continue
        of_kind, own = replace(standing, device="", vendor=""), fitted_prior(standing, phase).spread
        kind, unseen = (spread_of(of_kind, phase, seen=each, known="known") / EIGHT_IN_TEN for each in (True, False))
        seen.add(steps < ladder.ENOUGH_STEPS)
        assert steps >= ladder.ENOUGH_STEPS or rung.prior.spread >= min(kind, unseen), standing
        assert rung.prior.spread <= max(own, kind, unseen), "one step makes nobody less sure than none"
        assert steps < ladder.ENOUGH_STEPS or rung.prior == fitted_prior(standing, phase)
    assert seen == {True, False}


@pytest.mark.parametrize("tokens", [False, True])
def test_what_was_fitted_of_an_engine_on_a_device_is_of_one_that_it_runs_on(tokens):
    """A board's CPU was once taken for its GPU in a whole table."""
    fitted = {tuple(name.split(":")[1:3]) for name in known_deviations(tokens=tokens).levels
              if name.startswith("device+engine:")}  # fmt: skip
    rows = devices()
    assert len(fitted) > 100
    assert not [each for each in fitted if each[0] in rows and not engine_named(each[1]).runs_on(rows[each[0]])]


def test_a_graph_stands_where_compiled_models_do():
    row, precision = devices()["nvidia-h200"], Precision(weights="bf16", activations="bf16")
    assert standing_of(row, "torch-graph", precision) == standing_of(row, "torch-compile", precision)
    assert standing_of(row, "torch-eager", precision).engine == "torch-eager"


def test_an_engine_of_which_hardly_anything_was_published_keeps_the_kernel_that_was_timed():
    """Five large networks say nothing of starting one: ONNX Runtime's was that of other engines, 12 times its own."""
    xeon, precision = devices()["intel-xeon-6972p"], Precision(weights="f32", activations="f32")
    for name, few in (("onnxruntime", True), ("openvino", False)):
        kernels = {kernel for _, _, kernel in fitted_prior(standing_of(xeon, name, precision)).classes.values()}
        stated = runtime_effects(name).on("cpu").kernel_s.value
        assert (known_deviations().levels[f"engine:cpu:{name}"].rows < 10) == few
        assert all(kernel == pytest.approx(stated) for kernel in kernels) == few


@pytest.mark.parametrize("tokens", [False, True])
def test_what_is_carried_to_a_device_that_nobody_measured_starts_kernels_soon_and_reaches_some_of_a_peak(tokens):
    """A layer norm took 0.3 ms of a server with 128 cores, and 2 ms in i8: what whole networks were off by."""
    known, precision, held = known_deviations(tokens=tokens), Precision(weights="f16", activations="f16"), 0
    fitted = {tuple(name.split(":")[1:]) for name in known.levels if name.startswith("engine:")}
    for row in [*devices().values()][::11]:
        for name in (name for unit, name in fitted if unit == row.unit and unit in {"cpu", "gpu"}):
            standing = standing_of(row, name, precision)
            prior = fitted_prior(standing, "decode" if tokens else "forward")
            if prior is None or was_seen(standing, tokens=tokens):
                continue
            longest = max(1e-4, exp(sums_of(standing, tokens=tokens)["kernel"]))
            assert all(kernel <= longest * (1 + 1e-9) for _, _, kernel in prior.classes.values())
            stranger = f"engine+family:{name}:{row.unit}:{standing.family or standing.vendor}" not in known.levels
            products = [share for each, (share, _, _) in prior.classes.items() if each.startswith(("linear", "conv"))]
            assert not stranger or min(products) >= 0.08
            held += bool(prior.held)
    assert held > 10


def test_no_npu_that_nobody_measured_reaches_a_sixtieth_of_its_peak_with_products_since_a_sibling_did():
    """Two small networks on an RDK X5 had said so of its linears, and BERT on an X3 was answered with that."""
    precision = Precision(weights="i8", activations="i8")
    x3, x5 = (standing_of(devices()[f"horizon-rdk-{name}-npu"], "hbdnn", precision) for name in ("x3", "x5"))
    assert was_seen(x5)
    assert not was_seen(x3)
    assert x3.family == x5.family
    assert fitted_prior(x3).classes["linear"][0] >= 0.08
    assert fitted_prior(x3).held <= {"linear"}


def test_a_class_that_is_held_says_so_and_is_less_certain():
    formats = {"weights": "i8", "activations": "i8"}
    asked = ask("timm:focalnet_base_srf", on="microsoft-cobalt-100", runtime="ncnn", threads=4, **formats)
    norms, others = [], []
    for op in asked.answer().phases[-1].ops:
        (norms if op.kind == "norm" else others).append(op)
    assert all(op.rung.endswith("held to what most reach") for op in norms)
    assert not any("held" in op.rung for op in others)
    assert min(op.high_s / op.time_s for op in norms) > max(op.high_s / op.time_s for op in others if op.time_s)


@pytest.mark.parametrize("on", ["nvidia-l4", "nvidia-rtx-2080-ti", "nvidia-rtx-5090", "nvidia-h200"])
@pytest.mark.parametrize("model", ["bge-m3", "vit-b-16", "timm:convnext_tiny", "vgg16"])
def test_what_keeps_up_with_another_engine_is_no_slower_where_nobody_measured_it(on, model):
    """TensorRT was answered with twice what PyTorch's compiler takes: its figures are of convolutions, on boards."""
    assert not was_seen(standing_of(devices()[on], "tensorrt", Precision(weights="f16", activations="f16")))
    for batch in (1, 32):
        asked = {"on": on, "batch": batch, "weights": "f16", "activations": "f16", "calibrated": False}
        fast, slow = (ask(model, runtime=name, **asked).answer() for name in ("tensorrt", "torch-compile"))
        # A model that TensorRT ran on other devices keeps what is its own there: ViT-B is 0.5 % slower.
        assert fast.summary.latency_s <= 1.01 * slow.summary.latency_s


def test_what_was_published_of_a_device_stands_before_what_an_engine_keeps_up_with():
    row, precision = devices()["nvidia-t4"], Precision(weights="f16", activations="f16")
    mine, other = (fitted_prior(standing_of(row, name, precision)).classes for name in ("tensorrt", "torch-compile"))
    assert mine["convolution.window"][0] < other["convolution.window"][0]
    assert mine["linear"][0] >= other["linear"][0], "networks of convolutions say nothing of an encoder's products"


def test_a_larger_picture_takes_no_less_time_where_only_the_smaller_was_measured():
    """A model at a size that nobody measured had the effect of whatever is like it, and not its own."""
    for on, runtime in (("apple-m2-ultra-gpu", "onnxruntime"), ("nvidia-l4", "tensorrt"), ("amd-epyc-9654", "ncnn")):
        times = [ask("yolov8n", on=on, runtime=runtime, image=side).answer().summary.latency_s for side in (640, 1280)]
        assert times[0] <= times[1] * (1 + 1e-9)


@pytest.mark.parametrize(
    ("effect", "says"),
    [
        (ModelEffect(times=1.0 + 0.9 * WORTH_SAYING, devices=2), None),
        (ModelEffect(times=1.0 - 0.9 * WORTH_SAYING), None),
        (ModelEffect(times=1.25, devices=1), "this model on one device read 25 % slower than its work says"),
        (ModelEffect(times=0.5, devices=3), "this model on 3 devices read 50 % faster than its work says"),
        (ModelEffect(times=0.5), "Measured models like this one read 50 % faster than their work says"),
    ],
)
def test_what_models_were_measured_to_take_is_said_where_it_is_worth_saying(effect, says):
    note = effect.note("read")
    assert (note is None) if says is None else (says in note)


@pytest.mark.parametrize("wide", [None, "f32"])
def test_a_graph_stands_among_the_levels_with_the_format_that_its_products_are_widened_to(monkeypatch, wide):
    counted = Precision(weights="bf16", activations="f16")
    monkeypatch.setattr(plan, "counted_precision", lambda *_: counted)
    monkeypatch.setattr(plan, "widened_to", lambda *_: wide)
    asked = []
    standing = standing_of(devices()["nvidia-l4"], "torch-eager", counted)
    monkeypatch.setattr(plan, "standing_of", lambda _device, _engine, precision: asked.append(precision) or standing)
    monkeypatch.setattr(plan, "is_generative", lambda _graph: False)
    effects, terms = SimpleNamespace(name="x"), SimpleNamespace(precision=None)
    prepared = SimpleNamespace(graph=None, terms=terms, rows=(), effects=effects)
    expected = counted if wide is None else replace(counted, weights=wide, activations=wide)
    assert (plan.standing_in(prepared, None), asked) == (standing, [expected])
