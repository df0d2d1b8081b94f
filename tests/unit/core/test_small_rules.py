"""Small rules of the core, each with an outcome worked out by hand: folders, stamps, counters, lengths, demands."""

import math
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from inferometer.core import settings
from inferometer.core.box import Ceiling, parse_ceiling
from inferometer.core.cache import write_among
from inferometer.core.calibration import Calibration, FormRates, KernelRates, PublishedRates, TableRates
from inferometer.core.device import Device, Sourced
from inferometer.core.dims import Symbol
from inferometer.core.engine import EngineDescriptor, Overheads, RuntimeEffects, kernel_names
from inferometer.core.errors import DomainError, InferometerError
from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.core.kept import Kept
from inferometer.core.lazy import attributes
from inferometer.core.machine import branch_miss_share, cache_miss_share, instructions_per_cycle
from inferometer.core.profile import DeviceFacts, Headline, ModelFacts, Phase, Profile, Sustained
from inferometer.core.sizes import bind, with_given_sizes
from inferometer.core.stamps import stamp_of, stamp_of_packages, stamp_of_tree
from inferometer.core.statistics import student_quantile
from inferometer.core.structure import merged_layers
from inferometer.core.trace import Segment, Span
from inferometer.core.traffic.demand import Demand, Sharing, class_of, classes_of, require_share_and_time
from inferometer.core.traffic.lengths import Lengths
from inferometer.core.workload import MOST, Precision, Workload


def sourced(value):
    return Sourced(value=value, source="s", origin="measured", date="2026")


# Folders, and what the environment says


@pytest.mark.parametrize(
    ("system", "variables", "places"),  # of the cache, of data, of the configuration
    [
        ("linux", {}, ("~/.cache", "~/.local/share", "~/.config")),
        ("linux", {"XDG_CACHE_HOME": "/c", "XDG_DATA_HOME": "/d", "XDG_CONFIG_HOME": "/e"}, ("/c", "/d", "/e")),
        ("darwin", {"XDG_CACHE_HOME": "/c"}, ("~/Library/Caches", *["~/Library/Application Support"] * 2)),
        ("win32", {}, (*["~/AppData/Local"] * 2, "~/AppData/Roaming")),
        ("win32", {"LOCALAPPDATA": "/l", "APPDATA": "/r"}, ("/l", "/l", "/r")),
    ],
)
def test_files_lie_where_each_system_has_them_unless_a_setting_says_where(system, variables, places, monkeypatch):
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "LOCALAPPDATA", "APPDATA",
                 "INFEROMETER_CACHE", "INFEROMETER_DATA", "INFEROMETER_CONFIG"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", system)
    ours = [Path(place).expanduser() / "inferometer" for place in places]
    found = [settings.cache_folder(), settings.data_folder(), settings.config_file()]
    assert found == [ours[0], ours[1], ours[2] / "config.toml"]
    for name in ("CACHE", "DATA", "CONFIG"):
        monkeypatch.setenv(f"INFEROMETER_{name}", f"~/own/{name}")
    own = [Path(f"~/own/{name}").expanduser() for name in ("CACHE", "DATA", "CONFIG")]
    assert [settings.cache_folder(), settings.data_folder(), settings.config_file()] == own


@pytest.mark.parametrize(
    ("variables", "asked", "answer"),
    [
        ({"INFEROMETER_MACHINE": "  box "}, settings.machine_name, "box"),
        ({"INFEROMETER_MACHINE": "  "}, settings.machine_name, None),
        ({"INFEROMETER_USER": " ada "}, settings.user_name, "ada"),
        ({"INFEROMETER_USER": " ", "LOGNAME": "grace"}, settings.user_name, "grace"),
        ({}, settings.styled_terminal, True), ({"TERM": "dumb"}, settings.styled_terminal, False),
        ({"NO_COLOR": "1", "TERM": "xterm"}, settings.styled_terminal, False),
        ({"NO_COLOR": "", "TERM": "xterm"}, settings.styled_terminal, True),
        ({"SHELL": "/bin/zsh"}, settings.login_shell, "zsh"), ({"SHELL": ""}, settings.login_shell, None),
        ({}, settings.visible_gpus, None), ({"CUDA_VISIBLE_DEVICES": ""}, settings.visible_gpus, ()),
        ({"CUDA_VISIBLE_DEVICES": " 2,GPU-7 ,"}, settings.visible_gpus, ("2", "GPU-7")),
        ({}, settings.remembers, True), ({"INFEROMETER_REMEMBER": "0"}, settings.remembers, False),
        ({"INFEROMETER_DEBUG": "1"}, settings.remembers, False),
        ({"_INFEROMETER_COMPLETE": "bash"}, settings.remembers, False), ({}, settings.completing, False),
        ({"INFEROMETER_LEARN": ""}, settings.learns, False), ({}, settings.learns, True),
        ({"INFEROMETER_PROFILE": "0"}, settings.profiling, False), ({}, settings.profiling, True),
    ],
)  # fmt: skip
def test_what_the_environment_says(variables, asked, answer, monkeypatch):
    for name in ("LEARN", "PROFILE", "REMEMBER", "DEBUG", "USER", "MACHINE"):
        monkeypatch.delenv(f"INFEROMETER_{name}", raising=False)
    for name in ("NO_COLOR", "TERM", "CUDA_VISIBLE_DEVICES", "_INFEROMETER_COMPLETE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("INFEROMETER_CONFIG", os.devnull)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert asked() == answer


def test_a_folder_of_at_most_so_many_files_loses_its_oldest(tmp_path):
    folder = tmp_path / "kept"
    for number in range(5):
        write_among(folder / f"{number}", bytes([number]), most=3)
        os.utime(folder / f"{number}", (100 - number, 100 - number))  # the later, the older
        assert len(list(folder.iterdir())) == min(number + 1, 3)
    assert {path.name for path in folder.iterdir()} == {"0", "1", "4"}


def test_a_stamp_tells_another_file_another_time_and_another_size_and_nothing_else(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "__pycache__").mkdir()
    for name in ("in/a", "b", "runs.db", "__pycache__/c"):
        (tmp_path / name).write_text("1234")
        os.utime(tmp_path / name, ns=(5, 7))
    whole, left = stamp_of_tree(tmp_path), stamp_of_tree(tmp_path, leave=("runs.",))
    assert (whole[:2], left[:2]) == ((3, 12), (2, 8))
    assert stamp_of_tree(tmp_path) == whole == stamp_of_tree(tmp_path, most=3)
    with pytest.raises(OverflowError):
        stamp_of_tree(tmp_path, most=2)
    first = stamp_of(tmp_path / "b")
    assert first == (7, 4, (tmp_path / "b").stat().st_ino)
    os.utime(tmp_path / "b", ns=(5, 8))
    assert stamp_of(tmp_path / "b") == (8, *first[1:])
    assert (stamp_of_tree(tmp_path)[:2], stamp_of_tree(tmp_path) == whole) == (whole[:2], False)
    before = stamp_of_tree(tmp_path)
    (tmp_path / "other").write_text("4321")
    os.utime(tmp_path / "other", ns=(5, 8))
    (tmp_path / "other").replace(tmp_path / "b")
    after = stamp_of_tree(tmp_path)
    assert (after[:2], after == before) == (before[:2], False), "another file of that size and time in its place"
    (tmp_path / "dead").symlink_to(tmp_path / "nowhere")
    assert stamp_of_tree(tmp_path)[0] == 3
    assert stamp_of(tmp_path / "nothing") is stamp_of("\0") is None
    assert stamp_of_tree(tmp_path / "nothing") == (0, 0, 0)


def test_what_is_installed_is_told_by_its_records(tmp_path):
    for name in ("a.dist-info", "b.egg-info", "c.pth", "d.py"):
        (tmp_path / name).write_text("x")
    (count, check) = stamp_of_packages((str(tmp_path),))
    assert count == 3
    assert stamp_of_packages((str(tmp_path), str(tmp_path / "lib.zip"))) != (count, check)
    assert stamp_of_packages((str(tmp_path), str(tmp_path / "lib.zip")))[0] == 3


def test_what_is_kept_is_found_once_it_is_made_for_the_same_things():
    kept, one, other = Kept(), object(), object()
    assert kept.found("a", (one,)) is None
    kept.get_or_make("a", (one,), lambda: kept.found("a", (one,)) or 7, alike=([1],))
    found = [kept.found(*asked, alike=alike) for *asked, alike in (
        ("a", (one,), ([1],)), ("a", (one,), ([2],)), ("a", (one,), ()), ("a", (other,), ([1],)), ("b", (one,), ([1],)),
    )]  # fmt: skip
    assert found == [7, None, None, None, None]


# Machines, engines, calibrations


def test_shares_of_a_processors_counts():
    counts = {"cycles": 200, "instructions": 300, "cache_references": 50, "cache_misses": 5, "branches": 40,
              "branch_misses": 1}  # fmt: skip
    asked = (instructions_per_cycle, cache_miss_share, branch_miss_share)
    assert [ask(counts) for ask in asked] == [1.5, 0.1, 0.025]
    assert [ask({}) for ask in asked] == [None] * 3
    assert [ask({**counts, "cycles": 0, "cache_references": 0, "branches": 0}) for ask in asked] == [None] * 3
    assert cache_miss_share({"cache_references": 5}) is None


def device(**more):
    return Device(name="d", title="D", vendor="v", kind="server", unit="cpu", **more)


def test_a_slower_host_takes_longer_for_a_kernel_and_a_step_and_for_nothing_else():
    over = Overheads(call_s=sourced(2.0), kernel_s=sourced(3.0), step_s=sourced(5.0), host_s=sourced(7.0))
    moved = over.at(device(call_s=sourced(8.0)))
    assert (moved.kernel_s.value, moved.step_s.value, moved.host_s.value) == (12.0, 20.0, 7.0)
    assert replace(over, step_s=None).at(device(call_s=sourced(8.0))).step_s is None
    assert over.at(device()) is over
    assert replace(over, call_s=None).at(device(call_s=sourced(8.0))).kernel_s.value == 3.0


def test_what_a_device_has_no_peak_for_is_widened_there_and_each_set_has_its_own_effects():
    plain = RuntimeEffects(
        name="e", title="E", emulated={"bf16": "f32", "i8": "i16"}, widened={"i4": "i8"},
        sets={"neon": RuntimeEffects(name="n", title="N")},
    )  # fmt: skip
    here = device(peaks={"i8": sourced(1e12)})
    found = plain.at(here)
    assert (found.widened, found is plain.at(here)) == ({"i4": "i8", "bf16": "f32"}, True)
    assert plain.at(device(peaks={"i8": sourced(1.0), "bf16": sourced(1.0)})) is plain


@pytest.mark.parametrize(
    ("attributes", "names"),
    [
        ({"cached": True, "kv_heads": 2, "heads": 4}, ["cached", "repeated"]),
        ({"cached": True, "kv_heads": 4, "heads": 4}, ["cached"]),
        ({"cached": True, "cross": True, "kv_heads": 4, "heads": 4}, []),
        ({"cached": False, "kv_heads": 2, "heads": 4, "biased": True, "soft_cap": True}, ["soft_cap"]),
        ({"cached": True, "biased": True, "written": "sdpa", "causal": True}, ["sdpa", "biased", "cached"]),
    ],
)
def test_kernels_of_an_attention_are_called_by_what_it_does_besides(attributes, names):
    found = kernel_names(Op(name="a", kind="attention", attributes=attributes))
    assert found[:-3] == tuple(f"attention:{name}" for name in names)
    assert found[-1] == "attention"


def test_a_rotation_of_a_part_and_a_causal_convolution_have_kernels_of_their_own():
    def own(kind, **attributes):
        return kernel_names(Op(name="a", kind=kind, attributes=attributes))[:-3]

    assert [own("rotary", rotary_dim=rotated, head_dim=8) for rotated in (4, 8)] == [("rotary:partial",), ()]
    assert [own("convolution", causal=causal) for causal in (True, False)] == [("convolution:causal",), ()]
    assert own("norm", causal=True) == own("norm", rotary_dim=4, head_dim=8) == ()


def test_what_joins_more_than_an_engine_joins_is_no_part_of_its_neighbours():
    x = Tensor(name="x", shape=(1,))

    def fused(joins, kind, reads, **attributes):
        engine = RuntimeEffects(name="e", title="E", fusion="epilogue", fused=frozenset({kind}), joins=joins)
        return engine.fuses(Op(name="a", kind=kind, inputs=(x,) * reads, attributes=attributes))

    assert [fused(2, "copy", reads, function="concat") for reads in (2, 3)] == [True, False]
    assert [fused(2, "copy", 3, function=function) for function in ("cat", "stack")] == [False, True]
    assert (fused(0, "norm", 3), fused(None, "copy", 9, function="cat")) == (True, True)


def test_a_pair_that_is_not_fused_is_of_one_kind_in_one_format_and_one_form():
    engine = RuntimeEffects(
        name="e", title="E", fusion="epilogue", fused=frozenset({"norm"}), unfused=frozenset({"linear:f16+norm:rms"})
    )

    def fused(kind, dtype, norm="rms"):
        into = Op(name="i", kind=kind, inputs=(Tensor(name="x", shape=(1,), dtype=dtype),))
        return engine.fuses(Op(name="n", kind="norm", attributes={"norm": norm}), into)

    asked = (("linear", "f16"), ("linear", "f32"), ("matmul", "f16"), ("linear", "f16", "layer"))
    assert [fused(*each) for each in asked] == [False, True, True, True]
    assert engine.fuses(Op(name="n", kind="norm", attributes={"norm": "rms"}), Op(name="i", kind="linear"))


def test_names_that_load_late_are_those_of_their_homes(monkeypatch):
    package = SimpleNamespace()
    monkeypatch.setitem(sys.modules, "a_package", package)
    load = attributes("a_package", {"inferometer.core.units": ("counted",), "math": ("tau", "pi")})
    assert (load("counted")(1, "run"), load("pi"), package.pi) == ("1 run", math.pi, math.pi)
    with pytest.raises(AttributeError, match=r"'a_package' has no attribute 'e'"):
        load("e")


def test_an_op_has_the_sizes_in_its_shapes_and_in_its_attributes():
    batch, width, context = (Symbol(name) for name in ("batch", "width", "context"))
    tensors = {name: (Tensor(name=name, shape=(batch * width, 3)),) for name in ("inputs", "outputs", "weights")}
    for name, tensor in tensors.items():
        assert Op(name="a", kind="view", **{name: tensor}).symbols == {"batch", "width"}
    assert Op(name="a", kind="view", attributes={"context": context, "sizes": (width + 1, 3)}).symbols == {
        "context", "width",
    }  # fmt: skip


def test_an_engine_runs_where_it_says_and_on_a_bare_chip_only_if_that_is_named():
    def runs(*only_on, **facts):
        engine = EngineDescriptor(effects=RuntimeEffects(name="e", title="E"), only_on=only_on)
        return engine.runs_on(replace(device(), **facts))

    bare = {"kind": "microcontroller"}
    assert [runs(), runs("cpu:v"), runs("gpu:*"), runs("gpu:*", vendor="unknown"), runs("cpu:*")] == [
        True, True, False, True, True,
    ]  # fmt: skip
    assert [runs(**bare), runs("cpu:*", **bare), runs("cpu:v", **bare), runs("cpu:d", **bare)] == [
        False,
        False,
        True,
        True,
    ]


def test_a_calibration_has_rates_of_the_one_kind_that_is_filled():
    def made(**more):
        return Calibration(device="d", runtime="r", dtype="f32", created="c", **more)

    assert made().rates == TableRates(tables=())
    assert made(kernels={"gemm": 1}).rates == KernelRates(kernels={"gemm": 1})
    assert made(forms={"gemm": 1}).rates == FormRates(forms={"gemm": 1})
    assert made(parameters={"a": 1.0}).rates == PublishedRates(parameters={"a": 1.0})
    published = [made(), made(overheads={"host": sourced(1.0)}), made(parameters={"a": 1.0}), made(kernels={"gemm": 1})]
    assert [each.is_published for each in published] == [True, False, True, False]
    with pytest.raises(DomainError, match="kernels and parameters"):
        made(kernels={"gemm": 1}, parameters={"a": 1.0})


@pytest.mark.parametrize(
    ("confidence", "freedom", "t"),
    [(0.95, 1, 12.7062), (0.95, 2, 4.302653), (0.9, 3, 2.353363), (0.5, 4, 0.740697), (0.95, 5, 2.570582),
     (0.99, 10, 3.169273), (0.95, 30, 2.042272), (0.95, 500, 1.964720), (0.95, 501, 1.959964)],
)  # fmt: skip
def test_students_quantiles_are_those_of_the_tables(confidence, freedom, t):
    assert student_quantile(confidence, freedom) == pytest.approx(t, rel=1e-5)


# Profiles and spans


def test_the_phase_that_repeats_and_how_much_slower_it_became():
    def with_phases(*phases):
        return Profile(
            kind="measured", model=ModelFacts(name="m", weight_formats={"i4": 0.9, "f16": 0.1}),
            device=DeviceFacts(name="d"), workload=Workload(), summary=Headline(),
            phases=tuple(Phase(name=name, time_s=time_s) for name, time_s in phases),
        )  # fmt: skip

    made = with_phases(("load", 9.0), ("prefill", 2.0), ("decode", 1.0))
    assert (made.steady.name, made.model.weights, ModelFacts(name="m").weights) == ("decode", "i4", None)
    assert with_phases(("load", 9.0), ("decode", 0.0)).steady is None
    lasted = Sustained(span_s=9.0, at_s=(9.0,), latency_s=(1.0,), first_s=0.8, steady_s=1.0, steady_after_s=0.0)
    assert (lasted.slower, replace(lasted, first_s=1.25).slower) == (pytest.approx(0.25), pytest.approx(-0.2))


def test_spans_and_segments_are_as_long_as_their_nanoseconds():
    segment, span = (kind(name="a", start_ns=5, end_ns=2_000_000_005) for kind in (Segment, Span))
    assert (segment.duration_s, span.duration_s) == (2.0, 2.0)
    assert (Span(name="a", start_ns=5, end_ns=5).duration_s, span.failed) == (0.0, False)
    with pytest.raises(DomainError, match="ends before it starts"):
        Span(name="a", start_ns=5, end_ns=4)


def test_a_row_of_several_layers_names_each_of_them():
    names = ("a.b.q_proj+k_proj+v_proj", "q+k", "a.b.c", "a+b.c")
    assert [merged_layers(name) for name in names] == [
        ("a.b.q_proj", "a.b.k_proj", "a.b.v_proj"), ("q", "k"), ("a.b.c",), ("a+b.c",),
    ]  # fmt: skip


def test_a_workload_is_no_larger_than_any_machine_runs():
    for name, most in MOST.items():
        assert getattr(Workload(**{name: most}), name) == most
        with pytest.raises(DomainError, match=f"{name} must be a whole number from"):
            Workload(**{name: most + 1})


def test_a_workload_in_other_formats_is_the_same_but_for_them():
    before = Workload(batch=3, precision=Precision(weights="f16"))
    assert before.in_formats(Precision(weights="f16")) is before
    assert before.in_formats(Precision(weights="i8")) == Workload(batch=3, precision=Precision(weights="i8"))


@pytest.mark.parametrize(("text", "of_a_thousand"), [("50 %", 500), ("100%", 1000), ("0.4 kB", 400), ("12 B", 12)])
def test_a_ceiling_is_an_amount_or_a_share_of_what_is_free(text, of_a_thousand):
    assert parse_ceiling(text, "--limit").of(1000) == of_a_thousand


@pytest.mark.parametrize("text", ["0 %", "100.1 %", "-1%", "x %", "50 % more", "lots"])
def test_a_ceiling_that_is_none_is_refused(text):
    with pytest.raises(InferometerError):
        parse_ceiling(text, "--limit")


def test_a_limit_says_what_it_is_a_share_of():
    assert Ceiling(amount=4_000_000_000).said(4_000_000_000, "disk that was free") == "4 GB"
    assert Ceiling(share=0.8).said(1_600_000_000, "disk that was free") == "1.6 GB, 80 % of the disk that was free"


def test_a_prompt_is_the_encoders_too_and_a_picture_is_square():
    def sized(*names, **metadata):
        shape = tuple(Symbol(name) for name in names)
        op = Op(name="a", kind="view", inputs=(Tensor(name="x", shape=shape, role="index"),))
        return Graph(name="g", blocks=(Block(name="b", ops=(op,)),), inputs=op.inputs, metadata=metadata)

    speech = sized("batch", "encoder", "query", default_sizes={"encoder": 1500})
    assert bind(speech, Workload(prompt=7)).sizes == {"batch": 1, "encoder": 7, "query": 7}
    assert bind(speech, Workload()).sizes["encoder"] == 1500
    assert bind(sized("batch", "height", "width"), Workload(image=32)).sizes == {"batch": 1, "height": 32, "width": 32}
    plain = sized("batch", "context")
    assert with_given_sizes(plain, Workload(), {"context": 9, "batch": 2}) == (Workload(batch=2), {"context": 9})
    assert bind(plain, Workload(context=5)).sizes == {"batch": 1, "context": 5}


# Demands


def test_lengths_say_what_they_are():
    asked = [
        Lengths(kind="fixed", mean=512), Lengths(kind="uniform", mean=300, low=100, high=500),
        Lengths(kind="file", mean=1234.56, source="x.csv"), Lengths(kind="lognormal", mean=300, deviation=50.5),
    ]  # fmt: skip
    assert list(map(str, asked)) == [
        "512", "uniform 100 to 500", "from x.csv, mean 1235", "lognormal 300 ± 50.5",
    ]  # fmt: skip
    for wrong in ({"mean": -1}, {"mean": 1, "deviation": -1}, {"mean": 1, "low": 5, "high": 4}, {"mean": 10**7 + 1}):
        with pytest.raises(DomainError, match="cannot be"):
            Lengths(kind="fixed", **wrong)


@pytest.mark.parametrize(
    ("cancels", "refused"),
    [(None, False), ((0.1, 5.0), False), ((1.0, 5.0), False), ((0.0, 5.0), True), ((1.01, 5.0), True),
     ((0.5, 0.0), True)],
)  # fmt: skip
def test_a_share_is_taken_back_after_a_time(cancels, refused):
    if not refused:
        require_share_and_time(cancels)
        return
    with pytest.raises(DomainError, match="a share above 0"):
        require_share_and_time(cancels)


def test_each_class_has_its_share_of_the_requests_and_the_last_what_is_left():
    shares, numbers = (0.5, 0.2, 0.2), range(1000)
    found = [class_of(shares, number) for number in numbers]
    assert found == classes_of(shares, list(numbers))
    assert [abs(found.count(kind) - 1000 * share) < 5 for kind, share in enumerate((0.5, 0.2, 0.3))] == [True] * 3


def test_several_answers_to_a_prompt_are_entries_that_what_follows_waits_for():
    asked = Demand(
        input_tokens=np.array([5, 6]), output_tokens=np.array([7, 8]), due_s=np.array([1.0, 2.0]),
        session=np.array([3, 3]), turn=np.array([0, 1]), group=np.array([4, 5]), after=((), (0,)),
        wait_s=np.array([0.0, 9.0]), continues=np.array([-1, 0]), pieces=(((1, 5),), ((2, 6),)),
        messages=(({"a": 1},), ({"b": 2},)), seed=3,
    )  # fmt: skip
    assert asked.with_answers(1) is asked
    twice = asked.with_answers(2)
    columns = ("input_tokens", "output_tokens", "due_s", "session", "turn", "group", "wait_s", "continues")
    assert {name: getattr(twice, name).tolist() for name in columns} == {
        "input_tokens": [5, 5, 6, 6], "output_tokens": [7, 7, 8, 8], "due_s": [1, 1, 2, 2], "session": [3] * 4,
        "turn": [0, 0, 1, 1], "group": [4, 4, 5, 5], "wait_s": [0, 0, 9, 9], "continues": [-1, -1, 0, 0],
    }  # fmt: skip
    half = twice.part(0, 1)
    assert (half.answers, half.seed, half.messages, half.due_s.tolist()) == (2, 3, twice.messages, [1, 1, 2, 2])
    assert (twice.after, twice.answers) == (((), (), (0, 1), (0, 1)), 2)
    assert (twice.pieces, twice.messages) == (
        (((1, 5),), ((1, 5),), ((2, 6),), ((2, 6),)), (({"a": 1},), ({"a": 1},), ({"b": 2},), ({"b": 2},)),
    )  # fmt: skip


def test_in_a_closed_loop_those_that_wait_for_each_other_share_a_place():
    def demand(after, session, **more):
        count = len(session)
        return Demand(
            input_tokens=np.ones(count, int), output_tokens=np.ones(count, int), session=np.array(session),
            after=after, **more,
        )  # fmt: skip

    woven = demand(((), (), (), (0,), (2,)), [0, 1, 2, 1, 2])  # the fourth, of session 1, waits for session 0
    assert woven.strands().tolist() == [0, 0, 2, 0, 2]
    assert woven.first == [0, 1, 2]
    mixed = demand(((), (), (), (0,)), [0, 1, 2, 2])
    assert (mixed.first, mixed.strands().tolist()) == ([0, 2, 1], [0, 1, 0, 0])
    alone = Demand(input_tokens=np.array([3]), output_tokens=np.array([4]))
    empty = (alone.due_s, alone.session, alone.turn, alone.group, alone.wait_s, alone.continues)
    assert ([len(column) for column in empty], alone.first, len(alone), alone.is_open) == ([0] * 6, [0], 1, False)
    opened = demand(((), (), (), (0,)), [0, 1, 2, 2], due_s=np.zeros(4))
    assert (opened.first, demand((), [0, 1]).first) == ([0, 1, 2], [0, 1])
    with pytest.raises(DomainError, match="are positive"):
        Sharing(turns=0)
