"""What values of the core say at their edges: what is absent, what is mixed, and where a wrong number stands."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from inferometer.core import codec, statistics
from inferometer.core.box import Means
from inferometer.core.calibration import KernelForm, Utilisation
from inferometer.core.device import Device, Link, Memory, Sourced
from inferometer.core.dims import Symbol
from inferometer.core.dtypes import DTYPES, DType, _block, _plain, _scaled, dtype, is_gguf_block
from inferometer.core.engine import Overheads, RuntimeEffects
from inferometer.core.errors import DomainError, SchemaError
from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.core.job import JobResult
from inferometer.core.profile import Phase, Profile, Run
from inferometer.core.request import outside_layers, pace, sampled_steps, step_times, summed_samples
from inferometer.core.sizes import OpenSize, default_prompt, open_sizes
from unit.store.profiles import profile

BATCH, QUERY, WIDE = Symbol("batch"), Symbol("query"), Symbol("width")


# Number formats


def test_the_makers_of_formats_keep_all_that_they_are_given():
    plain = _plain("a", 3, "b", aliases=("c",), gguf=7)
    assert plain == DType(name="a", elements=1, block_bytes=3, arithmetic=("a", "b"), aliases=("c",), gguf_type=7)
    assert _scaled("a", 32, 17, "b", gguf=7) == DType(
        name="a", elements=32, block_bytes=17, arithmetic=("a", "b"), gguf_type=7
    )
    assert _block("a", 32, 18, 7) == DType(
        name="a", elements=32, block_bytes=18, arithmetic=("i8", "f16", "bf16", "f32"), gguf_type=7
    )
    assert [is_gguf_block(name) for name in ("q4_0", "f16", "i4", "mxfp4", "mxfp8")] == [
        True, False, False, False, False,
    ]  # fmt: skip
    assert dtype("FP16").name == "f16"


OTHER_NAMES = {
    "float64": "f64", "double": "f64", "float32": "f32", "fp32": "f32", "float": "f32", "tensorfloat32": "tf32",
    "bfloat16": "bf16", "float16": "f16", "fp16": "f16", "half": "f16", "float8_e4m3fn": "f8e4m3", "fp8": "f8e4m3",
    "float8_e5m2": "f8e5m2", "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8",
    "uint16": "u16", "uint32": "u32", "uint64": "u64", "boolean": "bool", "complex64": "c64", "complex128": "c128",
    "int4": "i4", "uint4": "u4", "int5": "i5", "int6": "i6", "int2": "i2", "binary": "i1", "fp64": "f64",
    "single": "f32", "fp8_e4m3": "f8e4m3", "float8": "f8e4m3", "f8": "f8e4m3", "e4m3": "f8e4m3", "fp8_e5m2": "f8e5m2",
    "e5m2": "f8e5m2", "s8": "i8", "8bit": "i8", "s4": "i4", "awq": "i4", "gptq": "i4", "nf4": "i4", "4bit": "i4",
    "int4_awq": "i4", "awq_int4": "i4", "gptq_int4": "i4", "bnb_4bit": "i4", "bnb_nf4": "i4", "q2_k_s": "q2_k",
    "q3_k_s": "q3_k", "q3_k_m": "q3_k", "q3_k_l": "q3_k", "q4_k_s": "q4_k", "q4_k_m": "q4_k", "q5_k_s": "q5_k",
    "q5_k_m": "q5_k", "iq2_m": "iq2_s", "iq3_m": "iq3_s",
}  # fmt: skip
NATIVE = {  # bits, and what a product of the format may be computed in after the format itself
    "f64": (64, ()), "f32": (32, ()), "tf32": (32, ("f32",)), "bf16": (16, ("f16", "f32")),
    "f16": (16, ("bf16", "f32")), "i64": (64, ()), "i32": (32, ()), "i16": (16, ("i32",)), "u16": (16, ("i32",)),
    "u32": (32, ("i32",)),
    "u64": (64, ("i64",)), "bool": (8, ("i8",)), "c64": (64, ("f32",)), "c128": (128, ("f64",)),
    "i8": (8, ("bf16", "f16", "f32")), "u8": (8, ("i8", "bf16", "f16", "f32")),
}  # fmt: skip


def test_formats_are_known_by_the_names_that_others_give_them():
    assert {alias: entry.name for entry in DTYPES.values() for alias in entry.aliases} == OTHER_NAMES
    assert {name: (DTYPES[name].bits, DTYPES[name].arithmetic[1:]) for name in NATIVE} == NATIVE
    assert all(dtype(alias.upper()).name == name for alias, name in OTHER_NAMES.items())


# Open sizes


def graph(*inputs, limit=None, **metadata):
    op = Op(name="a", kind="view", inputs=inputs)
    return Graph(name="g", blocks=(Block(name="b", ops=(op,)),), inputs=inputs, context_limit=limit, metadata=metadata)


IDS = Tensor(name="ids", shape=(BATCH, QUERY), dtype="i64")
SOUND = Tensor(name="sound", shape=(BATCH, QUERY, 80), dtype="f32")


def test_a_prompt_has_a_length_of_its_own_only_where_tokens_are_read():
    assert default_prompt(graph(IDS)) == default_prompt(graph(IDS, SOUND)) == default_prompt(graph(SOUND, IDS)) == 512
    assert default_prompt(graph(replace(SOUND, role="index"))) == 512
    assert default_prompt(graph(SOUND)) is None
    assert (default_prompt(graph(IDS, limit=77)), default_prompt(graph(IDS, limit=4096))) == (77, 512)
    assert default_prompt(graph(Tensor(name="x", shape=(BATCH, 3)))) == 512  # nothing is as long as a prompt


def test_open_sizes_are_told_by_the_axes_that_they_are_in():
    image = Tensor(name="x", shape=(BATCH, 3, WIDE * 2, WIDE))
    found = open_sizes(graph(image, IDS, size_names={"W": "width", "batch": "batch"}))
    assert found == (
        OpenSize(name="batch", places=(("x", 0), ("ids", 0))),
        OpenSize(name="width", file_name="W", places=(("x", 2), ("x", 3))),
        OpenSize(name="query", places=(("ids", 1),)),
    )
    assert str(found[1]) == "width (W in the file; input x, axis 2; input x, axis 3)"
    many = OpenSize(name="a b", places=(("x", 0), ("y", 1), ("z", 2), ("w", 3)))
    assert str(many) == "a b (input x, axis 0; input y, axis 1; 2 more)"
    assert [size.option for size in (*found, many)] == ["--batch N", "--size width=N", "--prompt N", "--size 'a b'=N"]


# Documents


def test_a_number_that_a_document_cannot_hold_is_told_by_its_place():
    for value in (math.nan, math.inf, -math.inf):
        broken = replace(profile(), summary=replace(profile().summary, tokens_per_s=value))
        with pytest.raises(SchemaError, match=rf"^summary.tokens_per_s is {value}, which a document cannot hold"):
            codec.document(broken)
    made = profile()
    ops = (made.phases[0].ops[0], replace(made.phases[0].ops[1], time_s=math.nan))
    deep = replace(made, phases=(replace(made.phases[0], ops=ops),))
    with pytest.raises(SchemaError, match=r"^phases\[0\].ops\[1\].time_s is nan"):
        codec.document(deep)
    with pytest.raises(SchemaError, match=r"^phases\[0\].samples_s\[1\] is inf"):
        codec.document(replace(made, phases=(replace(made.phases[0], samples_s=(1.0, math.inf)),)))


def test_parts_of_a_phase_are_listed_with_the_prediction_beside_each():
    parted = replace(
        profile().phases[0], parts={"launch": 0.25, "run": 0.75}, predicted_parts={"run": 0.5}, clocks={"device": 0.7}
    )
    made = replace(profile(), phases=(parted,))
    (phase,) = codec.document(made)["phases"]
    assert phase["parts"] == [
        {"name": "launch", "time_s": 0.25, "predicted_s": None}, {"name": "run", "time_s": 0.75, "predicted_s": 0.5},
    ]  # fmt: skip
    assert (phase["clocks"], "predicted_parts" in phase) == ({"device": 0.7}, False)
    assert codec.decode(codec.encode(made), Profile) == made


def test_parts_of_an_older_document_are_read_and_its_clocks_are_no_parts():
    plain = codec.document(profile())
    plain["phases"][0]["parts"] = {"run": 0.75, "sample": 0.25, "device": 0.7, "wait": 0.1}
    phase = codec.decode(json.dumps(plain), Profile).phases[0]
    assert (phase.parts, phase.clocks) == ({"run": 0.75, "sample": 0.25}, {"device": 0.7, "wait": 0.1})


@pytest.mark.parametrize("parts", [[{"time_s": 1.0}], [{"name": ["run"], "time_s": 1.0}], [1], {"run": "long"},
                                   [{"name": "run", "time_s": None}]])  # fmt: skip
def test_parts_that_are_none_are_refused_in_our_words(parts):
    plain = codec.document(profile())
    plain["phases"][0]["parts"] = parts
    with pytest.raises(SchemaError, match="not a valid inferometer"):
        codec.decode(json.dumps(plain), Profile)


def test_profiles_in_runs_and_results_have_their_precision_beside_the_workload():
    made = profile()
    plain = codec.document(made)
    assert {"precision", "parallel"} <= plain.keys()
    assert not {"precision", "parallel"} & plain["workload"].keys()
    run = Run(id="r", project="p", status="finished", created="c", profile=made)
    assert "precision" in codec.document(run)["profile"]
    assert codec.decode(codec.encode(run), Run) == run
    assert codec.decode(codec.encode(replace(run, profile=None)), Run).profile is None
    assert codec.decode(codec.encode(made, indent=2), Profile) == made


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("inferometer.profile/2", "reads up to inferometer.profile/1"),
        ("inferometer.run/1", "an inferometer.profile/1 document was asked for"),
        ("inferometer.profile/x", "was asked for"),
    ],
)
def test_a_document_of_another_schema_is_refused(schema, why):
    with pytest.raises(SchemaError, match=why):
        codec.decode(codec.encode(profile()).replace(b"inferometer.profile/1", schema.encode()), Profile)


# Statistics


def test_a_share_beyond_its_ends_is_refused():
    for p in (-0.01, 1.01, math.nan):
        for ask in (lambda p: statistics.percentile_of([1.0], p), lambda p: statistics.percentile([1.0], p)):
            with pytest.raises(DomainError, match="share from 0 to 1"):
                ask(p)
    assert [statistics.percentile_of([1.0, 3.0], p) for p in (0, 0.25, 0.5, 0.75, 1)] == [1.0, 1.5, 2.0, 2.5, 3.0]
    with pytest.raises(DomainError, match="no readings"):
        statistics.percentile_of([], 0.5)
    assert [statistics.needed(p) for p in (0, 1, 0.5, 0.9, 0.1, 0.99)] == [1, 1, 6, 36, 36, 368]
    assert (statistics.percentile([1.0] * 35, 0.9), statistics.percentile([1.0] * 36, 0.9)) == (None, 1.0)


def test_spreads_worked_out_by_hand():
    values = [1.0, 2.0, 3.0, 4.0, 20.0]
    assert statistics.std(values) == pytest.approx(math.sqrt((25 + 16 + 9 + 4 + 196) / 4))
    assert (statistics.mad(values), statistics.std([1.0]), statistics.cv([1.0]), statistics.cv([-1.0, 1.0])) == (
        1.0, None, None, None,
    )  # fmt: skip
    assert statistics.cv([-2.0, -4.0]) == pytest.approx(math.sqrt(2) / 3)
    assert statistics.fences(values, reach=1.5) == (2 - 3.0, 4 + 3.0)
    assert (statistics.outliers(values, reach=1.5), statistics.outliers([1.0, 2.0, 7.0, 4.0])) == ((4,), ())
    assert (statistics.slope([1.0]), statistics.slope([5.0, 3.0]), statistics.slope([0.0, 1.0, 5.0])) == (
        None,
        -2.0,
        2.5,
    )


# What an engine does with an op


def sourced(value):
    return Sourced(value=value, source="s", origin="measured", date="2026")


def op(kind="convolution", reads="f32", **attributes):
    x = Tensor(name="x", shape=(1,), dtype=reads)
    return Op(name="o", kind=kind, inputs=(x,), outputs=(x,), attributes=attributes)


def effects(**more):
    return RuntimeEffects(name="e", title="E", **more)


def test_fewer_products_are_for_square_windows_one_step_apart():
    quick = effects(winograd=sourced(2.25))
    assert quick.fewer_products(op(kernel=(3, 3))) == 2.25
    assert quick.fewer_products(op(kernel=(3, 3), strides=(1, 1), groups=1)) == 2.25
    for other in (
        {"kernel": (3, 3), "strides": (1, 2)}, {"kernel": (3, 3), "strides": (2, 2)}, {"kernel": (5, 5)},
        {"kernel": (3, 1)},
        {"kernel": (3, 3), "groups": 2}, {"kernel": (3, 3), "transposed": True},
    ):  # fmt: skip
        assert quick.fewer_products(op(**other)) == 1.0
    assert quick.fewer_products(op("pool", kernel=(3, 3))) == effects().fewer_products(op(kernel=(3, 3))) == 1.0


@pytest.mark.parametrize(
    ("kernels", "device", "times"),
    [(None, 512, 1.0), (256, None, 1.0), (None, None, 1.0), (256, 512, 2.0), (256, 256, 1.0), (512, 128, 1.0)],
)
def test_kernels_of_narrower_vectors_take_longer_and_wider_ones_no_less(kernels, device, times):
    stated = effects(vectors=None if kernels is None else sourced(kernels))
    assert stated.narrower(SimpleNamespace(vector_bits=device)) == times


@pytest.mark.parametrize("seccomp", [False, True])
@pytest.mark.parametrize("bubblewrap", [None, "/usr/bin/bwrap"])
@pytest.mark.parametrize("landlock", [0, 1])
def test_a_box_keeps_files_and_the_network_from_a_job_or_says_what_it_lacks(seccomp, bubblewrap, landlock):
    means = Means(bubblewrap=bubblewrap, landlock=landlock, seccomp=seccomp)
    assert means.real == (seccomp and bool(bubblewrap or landlock))
    lacking = "neither bubblewrap nor Landlock" if seccomp else "cannot be filtered"
    holding = "bubblewrap" if bubblewrap else "Landlock 1"
    assert (f"{holding} and seccomp, memory by watching" if means.real else lacking) in means.said
    for system, name in (("darwin", "macOS"), ("win32", "Windows"), ("plan9", "plan9")):
        if not means.real:
            assert replace(means, system=system).said == f"none: {name} has no way that is used here; memory is watched"


def test_an_op_runs_inside_its_neighbours_by_kind_form_or_what_they_begin_with():
    norm = op("norm", norm="rms")
    assert not effects(fused=frozenset({"norm"})).fuses(norm)
    for fused, into, found in (
        ("norm", None, True), ("norm:rms", None, True), ("norm:layer", None, False),
        ("linear+norm:rms", op("linear"), True),
        ("linear+norm:rms", op("matmul"), False), ("linear+norm:rms", None, False),
    ):  # fmt: skip
        assert effects(fusion="epilogue", fused=frozenset({fused})).fuses(norm, into) is found


def test_kernels_of_an_op_are_stated_by_form_then_by_what_it_reads_then_by_kind():
    passes = {"norm:rms": 2, "norm:f16": 3, "norm": 4, "convolution:dynamic": 5, "convolution": 6}

    def count(asked):
        return effects(passes=passes).kernels(asked)[0]

    assert [count(op("norm", norm="rms", reads="f16")), count(op("norm", reads="f16")), count(op("norm"))] == [2, 3, 4]
    assert [count(op(dynamic=True)), count(op()), count(op("linear")), count(Op(name="n", kind="norm"))] == [5, 6, 1, 4]


def test_arithmetic_is_stated_for_a_place_a_kind_or_a_format():
    stated = {"avx:linear:i8": ("a",), "avx:i8": ("b",), "linear:i8": ("c",), "i8": ("d",)}
    engine = effects(arithmetic=stated, instead={"i8": ("f16", "d"), "q4/x": ("i8",)})
    assert engine.rule("linear", "i8", ("avx",)) == ("a",)
    assert engine.rule("norm", "i8", ("neon", "avx")) == ("b",)
    assert (engine.rule("linear", "i8"), engine.rule("norm", "i8"), engine.rule("norm", "f32")) == (
        ("c",),
        ("d",),
        None,
    )
    assert engine.candidates("norm", "i8") == ("d", "f16")
    assert engine.candidates("norm", "q4/x") == ("q4", "i8")
    assert engine.candidates("norm", "f32") == ("f32",)


def test_gathering_expanding_and_overheads():
    engine = effects(
        gathered=sourced(3.0),
        grouped=sourced(5.0),
        expanded=frozenset({"i4", "linear:i8"}),
        overheads={"gpu": Overheads()},
    )
    assert [engine.gathering(op(gathered=True, groups=groups)) for groups in (1, 2)] == [3.0, 5.0]
    assert (engine.gathering(op()), effects().gathering(op(gathered=True))) == (0.0, 0.0)
    assert effects(gathered=sourced(3.0)).gathering(op(gathered=True, groups=2)) == 3.0
    assert [engine.expands(op("linear"), name) for name in ("i4", "i8", "f16")] == [True, True, False]
    assert (engine.expands(op("norm"), "i8"), engine.on("npu"), engine.on("gpu")) == (False, Overheads(), Overheads())


# Steps


def test_a_step_is_the_median_over_generations_and_the_pace_is_of_the_sampled_ones():
    phase = Phase(
        name="decode", time_s=3.0, context=(8, 7, 8, 7, 8), samples_s=(5.0, 1.0, 3.0, 2.0, 4.0), op_context=(8, 7, 8)
    )
    assert list(step_times(phase).items()) == [(7, 1.5), (8, 4.0)]
    assert sampled_steps(phase) == (4.0, 1.5, 4.0)
    assert pace(phase) == pytest.approx(3.0 * 3 / 9.5)
    assert sampled_steps(replace(phase, op_context=(9,))) is None
    assert sampled_steps(replace(phase, op_context=(7, 9))) is None
    assert (sampled_steps(replace(phase, op_context=None)), pace(replace(phase, op_context=None))) == (None, 1.0)
    ops = profile().phases[0].ops
    sampled = [replace(ops[0], samples_s=(1.0, 2.0)), replace(ops[1], samples_s=(0.5, 0.25))]
    assert summed_samples(sampled) == (1.5, 2.25)
    for other in ([], [*sampled, ops[2]], [*sampled, replace(ops[2], samples_s=(1.0,))]):
        assert summed_samples(other) is None


def test_ops_that_a_device_timed_leave_nothing_to_the_host_even_if_others_were_timed_here():
    ops = profile().phases[0].ops[:2]
    mixed = (ops[0], replace(ops[1], device_s=1e-3))
    phase = Phase(name="p", time_s=0.01, ops=mixed, parts={"run": 0.004, "sampling": 0.006})
    assert outside_layers(phase) == {"unattributed": pytest.approx(0.01 - 0.003)}
    assert outside_layers(replace(phase, ops=ops))["sampling"] == 0.006


def test_only_a_job_that_is_done_is_complete():
    ends = ("done", "lost", "stopped", "failed", "refused", "crashed")
    assert [JobResult(job=None, ended=end).complete for end in ends] == [True, *[False] * 5]


# Devices


def test_a_device_streams_weights_if_its_first_memory_is_on_the_chip_and_a_link_to_the_host_has_a_speed():
    def device(level, link):
        return Device(
            name="d", title="D", vendor="v", kind="npu", unit="npu", host_link=link,
            memories=() if level is None else (Memory(level=level), Memory(level="sram")),
        )  # fmt: skip

    usb, slow = (
        Link(name="usb", title="USB", kind="usb", bandwidth_bytes_per_s=speed) for speed in (sourced(4e8), None)
    )
    asked = [("sram", usb), ("sram", slow), ("sram", None), ("dram", usb), (None, usb)]
    assert [device(*each).streams_weights for each in asked] == [True, False, False, False, False]
    both = Memory(level="hbm", capacity_bytes=sourced(80.0), usable_bytes=sourced(75.0))
    assert (both.room.value, replace(both, usable_bytes=None).room.value, Memory(level="l2").room) == (75.0, 80.0, None)


def test_a_form_of_kernels_adds_its_ramp_to_the_longer_of_moving_and_computing_and_its_pieces_to_both():
    form = KernelForm(compute_share=0.5, memory_share=0.25, ramp_s=1.0, each_s=0.5, uneven=0.5, residual=0.1)
    assert form.seconds(1.5, 0.0, 2, 1) == 3.0 + 1.0 + 2 * 0.5
    assert form.seconds(1.5, 1.0, 2, 1) == 5.0 + 1.0 + 2 * 0.5  # 3 and 4 at right angles
    assert form.seconds(1.5, 0.0, 2, 4) == 6.0 + 1.0 + 2 * 0.5  # the busiest of four has twice its part
    assert replace(form, each_s=0.0).seconds(1.5, 1.0, 2, 1) == 6.0


def test_a_table_has_as_many_values_as_its_grid_has_points_each_a_share_of_a_peak():
    def table(**more):
        usual = {"axes": ("a", "b"), "grid": ((1.0, 2.0), (1.0, 2.0, 3.0)), "values": (0.5,) * 5 + (1.0,)}
        return Utilisation(op_class="linear", stream="floor", residual=0.1, **{**usual, **more})

    assert len(table().values) == 6
    for wrong, why in (
        ({"values": (0.5,) * 5}, "2 axes for 2 grids, and 5 values for 6 points"), ({"axes": ("a",)}, "1 axes"),
        ({"grid": ((2.0, 1.0), (1.0, 2.0, 3.0))}, "rise strictly"), ({"values": (0.5,) * 5 + (1.01,)}, "outside"),
        ({"grid": ((1.0, 1.0), (1.0, 2.0, 3.0))}, "rise strictly"), ({"values": (0.5,) * 5 + (0.0,)}, "outside"),
    ):  # fmt: skip
        with pytest.raises(DomainError, match=why):
            table(**wrong)


def test_a_type_is_looked_at_once_before_anything_is_read_by_it(monkeypatch):
    looked = []
    monkeypatch.setattr(codec.msgspec, "convert", lambda value, kind: looked.append((value, kind)))
    kind = type("Fresh", (), {})
    assert codec.settled(kind) is codec.settled(kind) is kind
    assert looked == [(None, kind)]
