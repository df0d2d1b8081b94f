"""Gains and calibrations at their edges: what a gain is of, which file is taken, what a device gets from it."""

from dataclasses import replace
from math import exp, hypot, log

import pytest

from inferometer.core import Device, Memory, Sourced
from inferometer.core.calibration import Calibration, Utilisation
from inferometer.core.dims import Symbol
from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.core.profile import DeviceFacts, Headline, ModelFacts, Phase, Profile
from inferometer.core.workload import Precision, Workload
from inferometer.known import device as device_named
from inferometer.predict.ask import ask, model_graph
from inferometer.predict.basis.calibrations import (
    HostSetup,
    as_calibrated,
    choose_calibration,
    differences,
    format_key,
    formats_of,
    main_weight_format,
    rates_reached,
    widened,
    with_calibration,
)
from inferometer.predict.basis.files import sealed, write_calibration
from inferometer.predict.gains import gain_of


def stated(value):
    return Sourced(value=value, origin="datasheet", source="a test", date="2026-01-01")


def predicted(seconds, *, low=None, high=None, batch=1, fits=True, bound=None, runtime=None):
    phase = Phase(name="decode", time_s=seconds, low_s=low, high_s=high, bound=bound)
    return Profile(kind="predicted", model=ModelFacts(name="m"), device=DeviceFacts(name="d"), phases=(phase,),
                   runtime=runtime, workload=Workload(batch=batch), summary=Headline(fits=fits))  # fmt: skip


def test_a_gain_is_before_over_after_with_both_predictions_errors():
    before = predicted(3.0, low=2.0, high=5.0, batch=2, runtime="a")
    after = predicted(2.0, low=1.5, high=2.4, batch=5, fits=False, bound="memory", runtime="b")
    found = gain_of("x=1", "decode", before, after)
    half = hypot(log(5 / 2) / 2, log(2.4 / 1.5) / 2)
    assert (found.before_s, found.after_s, found.gain) == (3.0, 2.0, 1.5)
    assert (found.low, found.high) == pytest.approx((1.5 * exp(-half), 1.5 * exp(half)))
    assert found.throughput_gain == pytest.approx(1.5 * 5 / 2)
    assert (found.throughput_low, found.throughput_high) == pytest.approx((2.5 * found.low, 2.5 * found.high))
    assert (found.fits, found.bound) == (False, "memory")


def test_predictions_of_one_engine_on_one_device_share_part_of_their_errors():
    before, after = (predicted(seconds, low=seconds / 2, high=seconds * 2, runtime="a") for seconds in (3.0, 2.0))
    alike = gain_of("x=1", "decode", before, after)
    other = gain_of("x=1", "decode", before, replace(after, runtime="b"))
    assert 1.0 < alike.high / alike.gain < other.high / other.gain == pytest.approx(2**2**0.5)


def test_a_gain_of_other_arithmetic_is_no_surer_than_published_ones():
    before, after = (predicted(seconds, low=seconds / 1.1, high=seconds * 1.1, runtime="a") for seconds in (3.0, 2.0))
    found = gain_of("x=1", "decode", replace(before, arithmetic=("f32",)), replace(after, arithmetic=("i8",)))
    assert found.high / found.gain == pytest.approx(1.7)


def test_without_an_interval_a_gain_is_exact_and_without_a_time_there_is_none():
    for low, high in ((None, None), (1.0, None), (None, 1.0), (0.0, 1.0), (2.0, 1.0)):
        found = gain_of("x", "decode", predicted(1.0, low=low, high=high), predicted(2.0))
        assert (found.low, found.high) == (0.5, 0.5)
    assert gain_of("x", "prefill", predicted(1.0), predicted(1.0)) is None
    assert gain_of("x", "decode", predicted(0.0), predicted(1.0)) is None
    assert gain_of("x", "decode", predicted(1.0), predicted(0.0)) is None


def calibration(**given):
    table = Utilisation(
        op_class="linear", stream="f32", axes=("rows",), grid=((1.0, 8.0),), values=(0.2, 0.7), residual=0.1
    )
    values = {"device": "d", "runtime": "r", "dtype": "f32", "created": "2026-01-01", "tables": (table,),
              "residuals": {"linear": 0.1}}  # fmt: skip
    return sealed(Calibration(**values | given))


def test_other_versions_and_threads_are_each_told():
    made = calibration(versions={"torch": "2.9.1", "only": "1"}, threads=4)
    assert differences(made, HostSetup(versions={"torch": "2.9.1+cu130"}, threads=4)) == ()
    assert differences(made, HostSetup(versions={"torch": "2.10.0"}, threads=6)) == (
        "The calibration of 2026-01-01 was made with torch 2.9.1; now it is 2.10.0.",
        "The calibration of 2026-01-01 was made with 4 threads; now there are 6.",
    )
    assert differences(made, HostSetup(versions={}, threads=None)) == ()
    assert differences(calibration(threads=None), HostSetup(versions={}, threads=4)) == ()


def test_widening_multiplies_every_residual_and_keeps_the_notes():
    found = widened(calibration(notes=("first",)), 3.0, ("why",))
    assert found.tables[0].residual == pytest.approx(0.3)
    assert found.residuals == pytest.approx({"linear": 0.3})
    assert found.notes == ("first", "why")


def test_of_another_format_the_nearest_in_bits_is_taken_and_only_by_weights(tmp_path):
    for name, created in (("q8_0", "2026-03-01"), ("q4_0", "2026-01-01"), ("f16", "2026-02-01")):
        write_calibration(calibration(device="mine", runtime="llamacpp", dtype=name, created=created), tmp_path)
    chosen = choose_calibration("mine", "llamacpp", "q5_0", folders=[tmp_path], shipped=None)
    assert chosen.calibration.dtype == "q4_0"
    assert chosen.calibration.residuals["linear"] > 0.1
    assert any("q4_0 weights is used instead" in note for note in chosen.notes)
    exact = choose_calibration("mine", "llamacpp", "q8_0", folders=[tmp_path], shipped=None)
    assert (exact.calibration.dtype, exact.notes) == ("q8_0", ())
    assert choose_calibration("mine", "llamacpp", None, folders=[tmp_path], shipped=None).calibration.dtype == "q8_0"
    assert choose_calibration("other", "llamacpp", "q4_0", folders=[tmp_path], shipped=None).calibration is None
    write_calibration(calibration(device="mine", runtime="onnxruntime"), tmp_path)
    assert choose_calibration("mine", "onnxruntime", "bf16", folders=[tmp_path], shipped=None).calibration is None


def machine(**given):
    values = {"name": "d", "title": "d", "vendor": "v", "unit": "cpu", "kind": "desktop",
              "peaks": {"f32": stated(10.0)},
              "memories": (Memory(level="dram", bandwidth_bytes_per_s=stated(4.0)), Memory(level="l2"))}  # fmt: skip
    return Device(**values | given)


def test_a_device_gets_only_what_its_row_lacks():
    made = calibration(
        peaks={"f32": stated(7.0), "i8": stated(20.0)}, bandwidths={"dram": stated(3.0), "l2": stated(9.0)}
    )
    found = with_calibration(machine(), made)
    assert {name: float(peak) for name, peak in found.peaks.items()} == {"f32": 10.0, "i8": 20.0}
    assert [float(memory.bandwidth_bytes_per_s) for memory in found.memories] == [4.0, 9.0]
    plain = machine()
    assert with_calibration(plain, calibration()) is plain


def test_the_best_share_of_each_stream_is_what_was_reached():
    two = (calibration().tables[0], replace(calibration().tables[0], op_class="matmul", values=(0.9, 0.1)))
    moved = replace(two[0], op_class="vector", stream="dram", values=(0.5, 0.25))
    nowhere = replace(two[0], op_class="indexing", stream="disk")
    found = rates_reached(machine(), calibration(tables=(*two, moved, nowhere)))
    assert {name: rate.value for name, rate in found.items()} == pytest.approx({"f32": 9.0, "dram": 2.0})
    assert found["f32"].date == "2026-01-01"
    own = rates_reached(machine(), calibration(peaks={"f32": stated(1.0)}))
    assert own["f32"].value == 1.0, "a rate that was measured as one stands before a share"


def graph(*weights, precision=None):
    ops = tuple(
        Op(name=f"o{n}", kind="linear", inputs=(), outputs=(), weights=(weight,)) for n, weight in enumerate(weights)
    )
    return Graph(name="g", blocks=(Block(name="b", ops=ops, count=2),), precision=precision)


def weight(name, *shape, dtype=None):
    return Tensor(name=name, shape=shape, role="weight", dtype=dtype)


def test_the_format_asked_about_is_the_activations_or_the_weights():
    mixed = graph(weight("a", 10, 10, dtype="q4_0"), weight("b", 4, 10, dtype="f16"), weight("c", 9999, dtype="f32"),
                  precision="bf16")  # fmt: skip
    assert main_weight_format(mixed, Precision()) == "f16", "640 bits of 40 numbers, 450 of 100; a vector is no matrix"
    larger = graph(weight("a", 10, 15, dtype="q4_0"), weight("b", 4, 10, dtype="f16"))
    assert main_weight_format(larger, Precision()) == "q4_0", "675 bits"
    twice = graph(weight("a.{}", 10, 10, dtype="q4_0"), weight("b", 4, 10, dtype="f16"))
    assert main_weight_format(twice, Precision()) == "q4_0", "450 bits in each of two layers"
    assert main_weight_format(mixed, Precision(weights="q8_0")) == "q8_0"
    assert main_weight_format(graph(weight("a", 3, 3), precision="bf16"), Precision()) == "bf16"
    assert main_weight_format(graph(weight("a", 3, 3)), Precision()) == "f32"
    assert format_key(mixed, "llamacpp", Precision(activations="f16")) == "f16"
    assert format_key(mixed, "onnxruntime", Precision()) == "bf16"
    assert format_key(mixed, "onnxruntime", Precision(activations="f16", weights="i8")) == "f16"
    assert format_key(graph(), "onnxruntime", Precision()) == "f32"


def test_formats_left_open_are_those_of_the_calibration():
    by_weights = formats_of("llamacpp", "q4_0")
    assert by_weights.weights == "q4_0"
    assert by_weights.activations != "q4_0"
    assert formats_of("onnxruntime", "bf16") == Precision(weights="bf16", activations="bf16", kv="bf16")
    assert as_calibrated("llamacpp", Precision(weights="q4_0")) == by_weights
    assert as_calibrated("llamacpp", Precision(kv="i8")).kv == "i8"
    assert as_calibrated("onnxruntime", Precision(weights="i8")) == Precision(weights="i8")


def test_every_part_of_a_question_arrives():
    asked = ask("llama-3.2-1b", on="nvidia-l4", weights="i8", activations="bf16", kv="f16", batch=3, prompt=40,
                generate=9, context=5, image=7, tp=2, pp=3, ep=4, dp=5, prefill_on="nvidia-t4",
                calibrated=False)  # fmt: skip
    workload = asked.workload
    assert (workload.batch, workload.prompt, workload.generate, workload.context, workload.image) == (3, 40, 9, 5, 7)
    assert workload.precision == Precision(weights="i8", activations="bf16", kv="f16")
    assert (workload.parallel.tp, workload.parallel.pp, workload.parallel.ep, workload.parallel.dp) == (2, 3, 4, 5)
    assert (asked.prefill_on.name, asked.calibrated, asked.device.name) == ("nvidia-t4", False, "nvidia-l4")
    plain = ask("llama-3.2-1b", on=device_named("nvidia-l4"))
    assert (plain.workload.parallel.devices, plain.workload.batch, plain.prefill_on) == (1, 1, None)
    assert plain.graph is asked.graph is model_graph("llama-3.2-1b"), "read once"
    x = Tensor(name="x", shape=(Symbol("batch"), Symbol("width")), dtype="f32")
    op = Op(name="relu", kind="activation", inputs=(x,), outputs=(replace(x, name="y"),))
    file = Graph(name="f", blocks=(Block(name="b", ops=(op,)),), inputs=(x,), metadata={"size_names": {"W": "width"}})
    sized = ask(file, on="nvidia-l4", runtime="onnxruntime", sizes={"W": 64, "batch": 3})
    assert (sized.options.sizes, sized.workload.batch) == ({"width": 64}, 3), "each where it belongs"
    made = graph(weight("a", 3, 3))
    assert model_graph(made) is made
