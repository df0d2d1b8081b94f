"""Cards, lists and records of values whose every figure is another, fact by fact."""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest

from inferometer.core.device import CoreGroup, Device, DeviceShares, Link, Memory, Sourced
from inferometer.known.machine.detect.host import (
    Cache,
    Cpu,
    Gpu,
    Host,
    HostLimits,
    MemoryFacts,
    OperatingSystem,
    PowerSensor,
)
from inferometer.known.machine.health.check import Check
from inferometer.known.zoo import CatalogModel
from inferometer.predict.memory.footprint import Footprint
from inferometer.understand.view.cards import Card, _domain, device_card, formula_card
from inferometer.understand.view.demo import host_facts
from inferometer.understand.view.listings import (
    _covered,
    _memory_facts,
    _parts,
    calculation_table,
    card_table,
    check_table,
    inventory_card,
    layer_table,
    synthesis_table,
)
from inferometer.understand.view.records import device_record, model_record, ops_per_joule

MIB = 2**20


def told(value, source="sheet", **more):
    return Sourced(value=value, origin="datasheet", source=source, date="2026", **more)


DEVICE = Device(
    name="d", title="Device", vendor="V", unit="gpu", kind="server", family="F", aliases=("one", "two"), year=2024,
    peaks={"f32": told(1e12), "f16": told(4e12, note="dense"), "i8": told(8e12, "other"), "i4": told(64e12)},
    memories=(
        Memory(level="dram", kind="HBM3", capacity_bytes=told(80e9), usable_bytes=told(79e9),
               bandwidth_bytes_per_s=told(2e12), latency_s=told(5e-7)),
        Memory(level="l2", capacity_bytes=told(2**25)),
    ),
    host_link=Link(name="pcie", title="PCIe", kind="pcie", bandwidth_bytes_per_s=told(32e9)),
    peer_link=Link(name="nv", title="NVLink", kind="nvlink", bandwidth_bytes_per_s=None),
    storage_bytes_per_s=told(7e9), shares=DeviceShares(compute=told(0.25), network=told(0.125)), cores=told(132),
    core_groups=(CoreGroup(core="sm", count=132, clock_hz=1.5e9, ops_per_cycle={"f16": 512.0}),
                 CoreGroup(core="x", count=2, clock_hz=1e9, ops_per_cycle={})),
    clock_hz=told(1.5e9), launch_s=told(3e-6), call_s=told(1e-6), power_w=told(400.0), idle_w=told(60.0),
    battery_j=told(18e3), joules_per_flop=told(1e-12), joules_per_byte=told(2e-11), price_usd=told(2500.0), notes="N",
)  # fmt: skip


def test_a_devices_card_has_every_figure_with_its_source():
    card = device_card(DEVICE)
    first, other = "datasheet 2026 [1]", "datasheet 2026 [2]"
    assert (card.title, card.subtitle, card.sources) == ("Device", "d · V · 2024", ("[1] sheet", "[2] other"))
    assert card.facts == (
        ("unit", "gpu", "server · F"),
        ("peak f32", "1 TFLOP/s", first), ("peak f16", "4 TFLOP/s", f"{first} dense"), ("peak i8", "8 TOP/s", other),
        ("peak i4", "64 TOP/s", first), ("dram (HBM3) capacity", "80 GB", first),
        ("dram (HBM3) usable", "79 GB", first), ("dram (HBM3) bandwidth", "2 TB/s", first),
        ("dram (HBM3) latency", "500 ns", first), ("l2 capacity", "32 MiB", first),
        ("host link", "PCIe, 32 GB/s each way", first), ("peer link", "NVLink", ""), ("cores", "132", first),
        ("clock", "1.5 GHz", first), ("launch", "3 µs", first), ("call", "1 µs", first), ("power", "400 W", first),
        ("idle", "60 W", first), ("battery", "18 kJ", first), ("energy of an operation", "1 pJ", first),
        ("energy of a byte", "20 pJ", first), ("storage", "7 GB/s", first), ("price", "2500 USD", first),
        ("compute utilisation", "25 %", first), ("network utilisation", "12.5 %", first),
        ("core group", "132 × sm at 1.5 GHz", "operations a cycle: f16 512"), ("core group", "2 × x at 1 GHz", ""),
        ("per watt", "20 GOP/s/W", "computed: best peak / power"),
        ("ridge f16", "2 FLOP/B", "computed: peak / main memory bandwidth"), ("also known as", "one, two", ""),
        ("note", "N", ""),
    )  # fmt: skip


def test_what_is_not_known_is_left_out_and_a_chips_power_is_no_units():
    bare = Device(name="d", title="D", vendor="V", unit="npu")
    assert device_card(bare).facts == (("unit", "npu", ""),)
    assert device_card(bare).subtitle == "d · V"
    shared = replace(bare, chip="c", power_w=told(5.0), peaks={"i8": told(1e12)})
    assert {label: value for label, value, _ in device_card(shared).facts}["per watt"] == "–"
    assert ops_per_joule(shared) is None
    assert ops_per_joule(replace(shared, chip=None)) == 2e11
    assert ops_per_joule(replace(shared, chip=None, power_w=told(0.0))) is None
    assert ops_per_joule(replace(shared, chip=None, peaks={"i4": told(1e12)})) is None, "of 8 bits or more"


def test_a_record_has_plain_numbers_and_the_better_half():
    record = device_record(DEVICE, efficiency=True)
    names = ("memory", "bandwidth", "power", "price", "cores", "clock", "half", "i8")
    assert {name: record[name] for name in names} == {
        "memory": 80e9, "bandwidth": 2e12, "power": 400.0, "price": 2500.0, "cores": 132, "clock": 1.5e9, "half": 4e12,
        "i8": 8e12,
    }  # fmt: skip
    assert record["ops_per_joule"] == 8e12 / 400
    assert "ops_per_joule" not in device_record(DEVICE)
    both = replace(DEVICE, peaks={"f16": told(1.0), "bf16": told(2.0)}, memories=())
    assert (device_record(both)["half"], device_record(both)["memory"]) == (2.0, None)


@pytest.mark.parametrize(
    ("config", "layers", "hidden"),
    [
        ({"n_layer": 5, "num_hidden_layers": 6, "n_embd": 7, "hidden_size": 8}, 6, 8),
        ({"num_hidden_layers": "x", "n_layers": 4, "dim": 9}, 4, 9),
        ({"hidden_size": 1, "text_config": {"hidden_size": 2, "encoder_layers": 3}}, 3, 2),
        ({"hidden_size": 1, "text_config": "x"}, None, 1),
    ],
)
def test_a_models_layers_go_by_any_of_their_names(config, layers, hidden):
    model = CatalogModel(
        name="m", title="M", family="f", year=2025, parameters=told(10), active_parameters=told(4), context=told(128),
        config=config,
    )  # fmt: skip
    assert model_record(model) == {
        "name": "m", "title": "M", "family": "f", "year": 2025, "parameters": 10, "active": 4, "context": 128,
        "layers": layers, "hidden": hidden,
    }  # fmt: skip


def test_a_formulas_card_says_what_each_argument_may_be():
    infinite = float("inf")
    quantities = {"a": ("s", 0.0, infinite), "b": ("1", 0.0, 1.0), "c": ("B", -infinite, infinite)}
    formula = SimpleNamespace(
        name="f", title="F", section="S", row="3", unit="1", example={"a": 2, "b": 0.5}, answer=4, doc="Why.",
        source="book",
        inputs={name: SimpleNamespace(unit=unit, low=low, high=high) for name, (unit, low, high) in quantities.items()},
    )  # fmt: skip
    assert formula_card(formula) == Card(
        title="f", subtitle="F", text="Why.", sources=("Source: book",),
        facts=(("section", "S", "3"), ("a", "s", "0 or more"), ("b", "number", "0 to 1"), ("c", "B", ""),
               ("gives", "number", ""), ("example", "a=2 b=0.5", "= 4")),
    )  # fmt: skip
    assert _domain(-infinite, 5.0) == ""


# What a model is made of.

MEMORY = Footprint(
    weights_bytes=8e9, kv_bytes=4e9, state_bytes=0.0, activations_bytes=2e9, workspace_bytes=1e9, peak_bytes=15e9,
    kv_bytes_per_token=1000.0, peak_at="decode",
)  # fmt: skip


def test_memory_is_told_with_its_parts():
    assert _memory_facts(None) == []
    assert _memory_facts(MEMORY) == [
        ("KV cache", "1 kB a token", ""),
        ("peak memory", "15 GB",
         "weights 8 GB, cache 4 GB, activations 2 GB, workspace 1 GB; highest at decode"),
    ]  # fmt: skip
    assert [label for label, *_ in _memory_facts(replace(MEMORY, kv_bytes_per_token=0.0))] == ["peak memory"]
    assert _parts(replace(MEMORY, peak_at=None, kv_bytes=0.0)) == "weights 8 GB, activations 2 GB, workspace 1 GB"


@dataclass(frozen=True)
class Layer:
    name: str
    shape: tuple


def inventory(**more):
    coverage = SimpleNamespace(
        covered=3, ops=4, share=0.75,
        uncovered=[SimpleNamespace(source_type="Zeta", kind="z"), SimpleNamespace(source_type=None, kind="alpha"),
                   SimpleNamespace(source_type="Zeta", kind="z")],
    )  # fmt: skip
    plain = {
        "name": "m", "architecture": None, "parameters": 1234, "weight_bytes": 5e9, "bytes_by_format": {"f16": 4e9},
        "sizes": {"batch": 2, "query": 3}, "flops": 7e9, "bytes": 6e9, "open": (), "notes": ("careful",),
        "footprint": None, "coverage": coverage, "layers": (Layer("conv", (1, 3)),),
    }  # fmt: skip
    return SimpleNamespace(**{**plain, **more})


def test_totals_are_told_beside_what_was_published():
    card = inventory_card(inventory(), published=1000)
    assert card.facts == (
        ("parameters", "1,234", "published: 1,000"), ("weights", "5 GB", "f16 4 GB"),
        ("work", "7 GFLOP", "at batch 2, query 3"),
        ("moved", "6 GB", "weights, activations and cache, each read or write counted"),
        ("covered", "3 of 4 ops (75.0 %)", "not counted: Zeta, alpha"),
    )  # fmt: skip
    assert (card.title, card.subtitle, card.sources) == ("m", "", ("Note: careful",))
    for published in (None, 1234):
        assert inventory_card(inventory(sizes={}), published=published).facts[0] == ("parameters", "1,234", "")
    assert inventory_card(inventory(sizes={}), published=None).facts[2] == ("work", "7 GFLOP", "")
    assert layer_table(inventory()).rows == ({"name": "conv", "shape": "1 × 3"},)
    whole = SimpleNamespace(covered=4, ops=4, share=1.0, uncovered=[])
    assert _covered(inventory(coverage=whole)) == ("4 of 4 ops (100.0 %)", "")


@pytest.mark.parametrize("missing", ["flops", "bytes"])
def test_open_sizes_are_named_with_what_to_type(missing):
    class Size:
        option = "--prompt N"

        def __str__(self):
            return "query"

    card = inventory_card(inventory(**{missing: None}, open=(Size(),)), published=None)
    assert card.facts[2:4] == (
        ("open sizes", "query", "give it with --prompt N"), ("work", "–", "depends on the open sizes")
    )  # fmt: skip


# Lists.


def test_a_list_of_values_is_a_list_of_rows():
    record = {"formula": "f", "value": [1, 2], "unit": "s"}
    assert [row["value"] for row in calculation_table(record).rows] == [1, 2]
    assert calculation_table({**record, "value": 3}).rows == ({"formula": "f", "value": 3, "unit": "s"},)
    card = Card(title="t", subtitle="", facts=(("a", "1", "r"),), sources=("[1] s",))
    assert card_table(card).rows == (
        {"label": "a", "value": "1", "remark": "r"}, {"label": "source", "value": "[1] s"}
    )  # fmt: skip
    check = Check(code="c", title="T", verdict="warn", found="f", numbers={}, remedy="do")
    assert check_table([check]).rows == ({"code": "c", "verdict": "warn", "found": "f", "remedy": "do"},)
    made = SimpleNamespace(path="x", format="onnx", weights="f16", parameters=3, nbytes=4, note="n")
    table = synthesis_table(made)
    assert (table.rows, table.note) == (
        ({"path": "x", "format": "onnx", "weights": "f16", "parameters": 3, "nbytes": 4},), "n"
    )  # fmt: skip


# A machine.


def test_a_machine_is_told_with_what_it_does_not_say():
    host = Host(
        board=None, python="3.12", os=OperatingSystem(name="L", version="1"),
        cpu=Cpu(model="C", architecture="x86-64", physical_cores=4, flags=("avx", "fma"), max_hz=3e9,
                caches=(Cache(level=1, kind="instruction", total_bytes=1),
                        Cache(level=2, kind="unified", total_bytes=MIB))),
        memory=MemoryFacts(total_bytes=16 * 10**9, available_bytes=8 * 10**9),
        gpus=(Gpu(name="G", memory_bytes=10**9, source="x"), Gpu(source="x")),
        limits=HostLimits(quota_cpus=1.5, memory_bytes=10**9, container="docker", hypervisor="KVM"),
        sensors=(PowerSensor(name="rapl", available=True, why=None, domains=()),
                 PowerSensor(name="nvml", available=False, why="no", domains=())),
    )  # fmt: skip
    assert host_facts(host) == [
        ("cpu", "C", "x86-64"), ("cores", "4 physical, unknown logical", "up to 3 GHz"),
        ("instructions", "avx fma", ""), ("caches", "L2 1 MiB", "all cores together"),
        ("memory", "16 GB", "8 GB available"),
        ("limits", "1.5 CPUs, 1 GB", "docker"), ("gpu", "G", "1 GB"), ("gpu", "unknown", "unknown"),
        ("power sensors", "rapl", ""), ("system", "L 1", "Python 3.12"),
    ]  # fmt: skip
    bare = Host(board=None, python=None, os=OperatingSystem(), cpu=Cpu(logical_cores=8), memory=MemoryFacts(), gpus=(),
                limits=HostLimits(hypervisor="KVM"), sensors=())  # fmt: skip
    assert host_facts(bare) == [
        ("cpu", "unknown", ""), ("cores", "unknown physical, 8 logical", ""), ("instructions", "unknown", ""),
        ("caches", "unknown", "all cores together"), ("memory", "unknown", "unknown available"),
        ("limits", "none found", "KVM"),
        ("power sensors", "none readable here", ""), ("system", "unknown", "Python None"),
    ]  # fmt: skip
