"""What holds for every value, and what single values refuse."""

import dataclasses
import importlib
import inspect
import pkgutil

import pytest

import inferometer.core
from fakes.every import every
from inferometer.core import (
    Calibration,
    CoreGroup,
    Device,
    Estimate,
    Memory,
    Parallel,
    Precision,
    Sourced,
    Span,
    Trace,
    Utilisation,
    Workload,
)
from inferometer.core.errors import DomainError, UnknownNameError

MODULES = [
    importlib.import_module(f"inferometer.core.{m.name}") for m in pkgutil.iter_modules(inferometer.core.__path__)
]
VALUES = [
    value
    for module in MODULES
    for _, value in inspect.getmembers(module, dataclasses.is_dataclass)
    if value.__module__ == module.__name__
]
POSITIONAL = {"Symbol", "Expression"}  # written by hand in expressions, so they take their parts in order


@every(VALUES, name=lambda value: value.__name__)
def test_every_value_is_frozen_slotted_and_keyword_only(value):
    assert value.__dataclass_params__.frozen
    assert "__slots__" in vars(value)
    if value.__name__ not in POSITIONAL:
        assert all(field.kw_only for field in dataclasses.fields(value))


def test_the_designs_values_are_all_there():
    promised = (
        "DType Tensor Op Block Graph Workload Work Device Memory Link Sourced Calibration Estimate Span Trace Sample "
        "Summary Profile Run Finding"
    )
    assert set(promised.split()) <= set(inferometer.core.__all__)


@pytest.mark.parametrize(
    "wrong",
    [{"batch": 0}, {"batch": 1.5}, {"batch": True}, {"prompt": 0}, {"generate": -1}, {"context": -1}, {"image": 0},
     {"arrival_per_s": 0.0}, {"arrival_per_s": float("nan")}],
)  # fmt: skip
def test_a_workload_refuses_what_nobody_can_ask(wrong):
    with pytest.raises(DomainError, match=next(iter(wrong))):
        Workload(**wrong)


def test_a_precision_names_known_formats():
    with pytest.raises(UnknownNameError, match="fp17"):
        Precision(weights="fp17")


def test_a_plan_of_zero_devices_is_refused():
    with pytest.raises(DomainError):
        Parallel(tp=0)
    assert Parallel(tp=2, pp=3, dp=4, ep=8).devices == 24


@pytest.mark.parametrize(
    ("floor", "low", "time", "high"),
    [(2, 1, 1, 1), (0, 2, 1, 3), (0, 1, 3, 2), (0, 0, 0, float("inf")), (-1, 0, 0, 0), (0, 0, float("nan"), 0)],
)
def test_an_estimate_never_beats_its_floor_and_lies_in_its_interval(floor, low, time, high):
    with pytest.raises(DomainError):
        Estimate(floor_s=floor, low_s=low, time_s=time, high_s=high, bound="memory", origin="prior", rule="linear")


def test_a_span_does_not_end_before_it_starts():
    with pytest.raises(DomainError, match="ends before it starts"):
        Span(name="x", start_ns=2, end_ns=1)


def test_a_trace_lasts_from_its_first_start_to_its_last_end():
    spans = (Span(name="a", start_ns=10, end_ns=30), Span(name="b", start_ns=20, end_ns=60))
    assert Trace(spans=spans).duration_s == pytest.approx(50e-9)
    assert Trace().duration_s == 0.0


def sourced(value):
    return Sourced(value=value, origin="datasheet", source="a datasheet", date="2024")


def test_a_device_without_a_peak_says_which_it_has():
    device = Device(name="d", title="D", vendor="V", unit="gpu", peaks={"bf16": sourced(1e12)})
    assert float(device.peak("bfloat16")) == 1e12
    with pytest.raises(DomainError, match=r"has no peak for i8 .*bf16"):
        device.peak("i8")


def test_threads_take_the_fastest_cores_first():
    groups = (
        CoreGroup(core="big", count=1, clock_hz=3e9, ops_per_cycle={"f32": 32}),
        CoreGroup(core="little", count=4, clock_hz=2e9, ops_per_cycle={"f32": 8}),
    )
    peaks = {"f32": sourced(160e9), "i8": sourced(1e12)}
    phone = Device(name="d", title="D", vendor="V", unit="cpu", peaks=peaks, cores=sourced(5), core_groups=groups)
    reached = [phone.peak_of_threads("float32", threads) for threads in (1, 2, 5, 8)]
    assert reached == [96e9, 112e9, 160e9, 160e9]
    assert phone.peak_of_threads("i8", 1) == 1e12 / 5  # the groups do not say, so the cores share it
    bare = dataclasses.replace(phone, core_groups=(), cores=None)
    assert bare.peak_of_threads("f32", 1) == 160e9


def test_the_room_of_a_memory_is_what_is_usable_of_its_label():
    label = Memory(level="gddr", capacity_bytes=sourced(24.0))
    assert label.room.value == 24.0
    assert dataclasses.replace(label, usable_bytes=sourced(22.5)).room.value == 22.5
    assert Memory(level="gddr").room is None


def test_the_first_memory_is_main_memory():
    device = Device(name="d", title="D", vendor="V", unit="cpu", memories=(Memory(level="dram"), Memory(level="l3")))
    assert device.memory.level == "dram"
    assert device.level("l3").level == "l3"
    with pytest.raises(UnknownNameError):
        device.level("l4")
    assert Device(name="d", title="D", vendor="V", unit="cpu").memory is None


def utilisation(**changes):
    fields = {
        "op_class": "gemm", "stream": "f32", "axes": ("rows", "k"), "grid": ((1.0, 2.0), (1.0, 2.0, 4.0)),
        "values": (0.1, 0.2, 0.3, 0.4, 0.5, 1.0), "residual": 0.1,
    }  # fmt: skip
    return Utilisation(**{**fields, **changes})


@pytest.mark.parametrize(
    "changes",
    [{"values": (0.5,)}, {"axes": ("rows",)}, {"grid": ((2.0, 1.0), (1.0, 2.0, 4.0))}, {"values": (0.1,) * 5 + (1.1,)},
     {"values": (0.0,) * 6}],
)  # fmt: skip
def test_a_utilisation_table_is_whole_and_never_above_one(changes):
    with pytest.raises(DomainError):
        utilisation(**changes)


def test_a_calibration_finds_its_table():
    calibration = Calibration(device="d", runtime="r", dtype="f32", created="2026-01-01", tables=(utilisation(),))
    assert calibration.table("gemm").residual == 0.1
    assert calibration.table("attention") is None
