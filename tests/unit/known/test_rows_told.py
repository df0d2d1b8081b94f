"""Rows with every key, each with another value: what the catalog makes of them, field by field."""

from dataclasses import fields, is_dataclass, replace
from typing import get_args

import pytest

from inferometer.core.device import CoreGroup, Sourced
from inferometer.core.engine import Admission, Order, Victim
from inferometer.core.errors import CatalogError, DomainError
from inferometer.core.workload import Precision
from inferometer.known import engines, hardware, places, reference, zoo
from inferometer.known.engines import EngineRank, _descriptor, costs_of, version_numbers
from inferometer.known.hardware import _design
from inferometer.known.load import read_rows

SOURCES = '[sources.s]\ntitle = "T"\nurl = "U"\ndate = "2025"\n'


def row(tmp_path, table, text):
    file = tmp_path / "rows.toml"
    file.write_text(f'{SOURCES}[{table}.x]\nsource = "s"\n{text}', encoding="utf-8")
    return read_rows([file], table).by_name["x"]


def plain(value):
    """Fields that are set, numbers without their source."""
    if isinstance(value, Sourced):
        assert (value.source, value.date, value.origin) == ("T, U", "2025", "datasheet")
        return value.value
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(plain(part) for part in value)
    if not is_dataclass(value):
        return value
    found = {entry.name: plain(getattr(value, entry.name)) for entry in fields(value)}
    return {name: part for name, part in found.items() if part not in (None, (), {}, frozenset())}


def test_an_instance_has_its_size_and_both_prices(tmp_path):
    text = """title = "X"
provider = "p"
device = "d"
count = 8
region = "r"
vcpus = 96
memory = "2 GiB"
network = "8 Gbit/s"
notes = "n"
price = { on_demand = "12 USD/h", spot = "5 USD/h" }
"""
    assert plain(places._instance(row(tmp_path, "instances", text))) == {
        "name": "x", "title": "X", "provider": "p", "device": "d", "count": 8, "region": "r", "vcpus": 96,
        "memory_bytes": 2**31, "network_bytes_per_s": 1e9, "usd_per_hour": pytest.approx(12.0),
        "spot_usd_per_hour": pytest.approx(5.0), "notes": "n",
    }  # fmt: skip
    with pytest.raises(CatalogError, match="must be a whole number of 1 or more"):
        places._instance(row(tmp_path, "instances", text.replace("count = 8", "count = 0")))


def test_grids_and_sites_need_their_number(tmp_path):
    grid = places._grid(row(tmp_path, "grids", 'title = "G"\ncarbon = "300 g/kWh"\n'))
    assert plain(grid) == {"name": "x", "title": "G", "carbon_g_per_kwh": pytest.approx(300.0)}
    assert plain(places._pue(row(tmp_path, "pue", 'title = "P"\npue = 1\n'))) == {"name": "x", "title": "P", "pue": 1}
    with pytest.raises(CatalogError, match="carbon is missing"):
        places._grid(row(tmp_path, "grids", 'title = "G"\n'))
    for text in ('title = "P"\n', 'title = "P"\npue = 0.99\n'):
        with pytest.raises(CatalogError, match="1 or more"):
            places._pue(row(tmp_path, "pue", text))


def test_levels_of_memory_and_formats_have_their_ranges(tmp_path):
    text = """title = "L"
latency_low = "1 ns"
latency_high = "2 ns"
bandwidth_low = "3 GB/s"
bandwidth_high = "4 GB/s"
"""
    assert plain(reference._level(row(tmp_path, "levels", text))) == {
        "name": "x", "title": "L", "latency_low_s": pytest.approx(1e-9), "latency_high_s": pytest.approx(2e-9),
        "bandwidth_low_bytes_per_s": 3e9, "bandwidth_high_bytes_per_s": 4e9,
    }  # fmt: skip
    text = """title = "F"
use = "u"
exponent_bits = 5
mantissa_bits = 10
max = 65504
smallest_normal = 6e-5
stored = "st"
perplexity_lost = 0.25
"""
    assert plain(reference._facts(row(tmp_path, "dtypes", text))) == {
        "name": "x", "title": "F", "use": "u", "exponent_bits": 5, "mantissa_bits": 10, "largest": 65504,
        "smallest_normal": 6e-5, "stored": "st", "perplexity_lost": 0.25,
    }  # fmt: skip


def test_a_model_has_its_published_counts_and_its_config(tmp_path):
    text = """title = "M"
family = "f"
aliases = ["a", "b"]
year = 2024
parameters = 10
active_parameters = 4
context = 128
network = "timm:x"
notes = "n"
config = { hidden_size = 3 }
"""
    assert plain(zoo._model(row(tmp_path, "models", text))) == {
        "name": "x", "title": "M", "family": "f", "aliases": ("a", "b"), "year": 2024, "parameters": 10,
        "active_parameters": 4, "context": 128, "network": "timm:x", "notes": "n", "config": {"hidden_size": 3},
    }  # fmt: skip
    for other in ("", "config = 3\n", "config = {}\n"):
        with pytest.raises(CatalogError, match="must be a table with the values"):
            zoo._model(row(tmp_path, "models", f'title = "M"\nfamily = "f"\n{other}'))


RULES = """title = "S"
engine = "e"
since = "0.5"
order = "arrival"
admission = "fits"
victim = "last"
prefix_cache = "yes"
ahead = "yes"
gang = "yes"
apart = "yes"
waits_after_preemption = "no"
estimate_start = 0.5
estimate_least = 0.25
estimate_steps = 7
slots = 3
step_tokens = 512
"""


def test_a_scheduler_has_every_rule_of_its_row(tmp_path):
    order, admission, victim = (get_args(kind)[-1] for kind in (Order, Admission, Victim))
    text = RULES.replace('"arrival"', f'"{order}"').replace('"fits"', f'"{admission}"').replace('"last"', f'"{victim}"')
    found = engines._scheduler_rules(row(tmp_path, "schedulers", text))
    assert plain(found) == {
        "engine": "e", "since": "0.5", "title": "S", "order": order, "admission": admission, "victim": victim,
        "prefix_cache": True, "ahead": True, "gang": True, "apart": True, "waits_after_preemption": False,
        "estimate_start": 0.5, "estimate_least": 0.25, "estimate_steps": 7, "slots": 3, "step_tokens": 512,
        "source": "T", "url": "U",
    }  # fmt: skip
    bare = "\n".join(line for line in text.splitlines()[:6]) + "\n"
    left = engines._scheduler_rules(row(tmp_path, "schedulers", bare))
    assert [getattr(left, name) for name in ("prefix_cache", "ahead", "gang", "apart", "waits_after_preemption")] == [
        False, False, False, False, True
    ]  # fmt: skip
    assert (left.estimate_start, left.estimate_least, left.estimate_steps, left.slots) == (0.0, 0.0, 0, None)
    with pytest.raises(CatalogError, match="Known: last, shortest, none"):
        engines._scheduler_rules(row(tmp_path, "schedulers", text.replace(f'"{victim}"', '"nobody"')))


def test_a_rule_of_usable_memory_holds_for_its_vendor_unit_level_kind_and_size(tmp_path):
    text = 'title = "R"\nvendor = "V"\nunit = "gpu"\nlevel = "dram"\nkinds = ["server"]\nabove = "8 GB"\nshare = 0.5\n'
    rule = hardware._rule(row(tmp_path, "usable", text))
    assert plain(rule) == {
        "name": "x", "title": "R", "vendor": "V", "unit": "gpu", "level": "dram", "share": 0.5, "kinds": ("server",),
        "above_bytes": 8e9,
    }  # fmt: skip

    def holds(level="dram", capacity=8e9 + 1, **more):
        stated = {"vendor": "V", "unit": "gpu", "kind": "server", **more}
        device = row(tmp_path, "devices", "".join(f'{key} = "{value}"\n' for key, value in stated.items()))
        return rule.holds(device, level, capacity)

    assert holds()
    assert not any([holds(level="l2"), holds(capacity=8e9), holds(vendor="W"), holds(unit="cpu"), holds(kind="phone")])
    with pytest.raises(CatalogError, match="share is missing"):
        hardware._rule(row(tmp_path, "usable", 'title = "R"\nvendor = "V"\nunit = "gpu"\nlevel = "dram"\n'))
    with pytest.raises(CatalogError, match="out of range"):
        hardware._rule(row(tmp_path, "usable", text.replace("0.5", "1.5")))


def test_a_share_by_rule_is_of_the_label_and_says_so(tmp_path, monkeypatch):
    text = 'title = "R"\nvendor = "V"\nunit = "gpu"\nlevel = "dram"\nshare = 0.75\n'
    rules = tuple(hardware._rule(row(tmp_path, "usable", text.replace("0.75", str(s)))) for s in (0.75, 0.5))
    monkeypatch.setattr(hardware, "usable_rules", lambda: rules)
    device = row(tmp_path, "devices", 'vendor = "V"\nunit = "gpu"\n')
    label = Sourced(value=16e9, origin="datasheet", source="sheet", date="2020")
    found = hardware.usable_by_rule(device, "dram", label)
    assert (found.value, found.note) == (12e9, "by rule: 0.75 of the label (R)")
    assert found.source == "T, U", "the rule's, and not the label's"
    assert hardware.usable_by_rule(device, "dram", None) is hardware.usable_by_rule(device, "l2", label) is None


def test_what_a_system_keeps_comes_off_the_share_and_not_off_the_label(tmp_path, monkeypatch):
    text = 'title = "R"\nvendor = "*"\nunit = "gpu"\nlevel = "*"\nshare = 0.75\nkept = "2 GB"\n'
    monkeypatch.setattr(hardware, "usable_rules", lambda: (hardware._rule(row(tmp_path, "usable", text)),))
    device = row(tmp_path, "devices", 'vendor = "V"\nunit = "gpu"\n')
    found = hardware.usable_by_rule(device, "dram", Sourced(value=16e9, origin="datasheet", source="s", date="2020"))
    assert (found.value, found.note) == (10e9, "by rule: 0.75 of the label less 2e+09 B (R)")


DEVICE = """title = "D"
vendor = "V"
unit = "cpu"
kind = "phone"
family = "f"
chip = "ch"
aliases = ["a", "b"]
year = 2024
core_groups = ["3 × cortex-a76 @ 2 GHz", "4 × cortex-a55 @ 1 GHz"]
peaks = { f32 = "7 GFLOP/s" }
flash = "1 MB"
links = { host = "12 GB/s", peer = "13 GB/s", network = "14 GB/s" }
storage = "15 GB/s"
utilisation = { compute = 0.5, memory = 0.25, storage = 0.125, host = 0.75, network = 0.625 }
launch = "16 us"
call = "17 us"
power = { tdp = "18 W", idle = "1 W", cooling = "9 W", warms = "60 s", battery = "20 J" }
energy = { flop = "3 nJ", byte = "4 nJ" }
price = { list = "500 USD" }
notes = "n"
[[devices.x.memory]]
level = "dram"
kind = "LPDDR4X-4266"
bits = 64
capacity = "8 GB"
usable = "7 GB"
latency = "100 ns"
[[devices.x.memory]]
level = "l2"
capacity = "1 MB"
bandwidth = "99 GB/s"
"""


def test_a_device_has_every_key_of_its_row(tmp_path):
    found = hardware.device_from_row(row(tmp_path, "devices", DEVICE))
    assert found.peaks["f32"].value == 7e9, "what a row states comes before what follows from its cores"
    big, little = found.core_groups
    assert [(group.core, group.count, group.clock_hz) for group in found.core_groups] == [
        ("cortex-a76", 3, 2e9), ("cortex-a55", 4, 1e9)
    ]  # fmt: skip
    computed = {name: peak.value for name, peak in found.peaks.items() if name != "f32"}
    assert computed == {
        name: 3 * 2e9 * rate + 4 * 1e9 * little.ops_per_cycle[name]
        for name, rate in big.ops_per_cycle.items()
        if name in little.ops_per_cycle and name != "f32"
    }
    links = {end: getattr(found, f"{end}_link") for end in ("host", "peer", "network")}
    assert {end: (link.kind, link.bandwidth_bytes_per_s.value) for end, link in links.items()} == {
        "host": ("host", 12e9), "peer": ("peer", 13e9), "network": ("network", 14e9)
    }  # fmt: skip
    told = plain(replace(found, peaks={}, core_groups=(), host_link=None, peer_link=None, network_link=None))
    assert told == {
        "name": "x", "title": "D", "vendor": "V", "unit": "cpu", "kind": "phone", "family": "f", "chip": "ch",
        "aliases": ("a", "b"), "year": 2024, "flash_bytes": 1e6, "storage_bytes_per_s": 15e9,
        "shares": {"compute": 0.5, "memory": 0.25, "storage": 0.125, "host": 0.75, "network": 0.625}, "cores": 7,
        "clock_hz": 2e9, "launch_s": pytest.approx(16e-6), "call_s": pytest.approx(17e-6), "power_w": 18, "idle_w": 1,
        "cooling_w": 9, "warms_s": 60, "battery_j": 20, "joules_per_flop": pytest.approx(3e-9),
        "joules_per_byte": pytest.approx(4e-9), "price_usd": 500, "notes": "n",
        "memories": (
            {"level": "dram", "kind": "LPDDR4X-4266", "capacity_bytes": 8e9, "usable_bytes": 7e9,
             "bandwidth_bytes_per_s": 4266e6 * 8, "latency_s": pytest.approx(1e-7)},
            {"level": "l2", "capacity_bytes": 1e6, "bandwidth_bytes_per_s": 99e9},
        ),
    }  # fmt: skip


@pytest.mark.parametrize(("rates", "bits"), [((32, 64), None), ((64, 32), 512), ((128,), 512), ((), None)])
def test_registers_are_told_by_the_f32_rate_of_the_fastest_cores(rates, bits):
    groups = tuple(CoreGroup(core="c", count=1, clock_hz=1.0, ops_per_cycle={"f32": rate}) for rate in rates)
    assert hardware._vector_bits(groups) == bits


@pytest.mark.parametrize("name", ["0.9 B/s", "1000001 GB/s"])
def test_a_link_that_is_asked_for_has_a_rate_that_there_can_be(name):
    assert hardware.link("1 B/s").bandwidth_bytes_per_s.value == 1
    assert hardware.link("1000000 GB/s").bandwidth_bytes_per_s.value == 1e15
    with pytest.raises(DomainError, match="A link's rate is from"):
        hardware.link(name)


def test_a_core_has_its_rates_by_format(tmp_path):
    text = 'title = "C"\naliases = ["c"]\nnote = "n"\nops = { f32 = 16, i8 = 64 }\n'
    assert plain(_design(row(tmp_path, "cores", text))) == {
        "name": "x", "title": "C", "ops_per_cycle": {"f32": 16, "i8": 64}, "note": "n",
    }  # fmt: skip


ENGINE = """title = "E"
opens = ["onnx", "gguf"]
packages = ["p", "q"]
module = "m"
extra = "ex"
rank = 5
first_for = ["gpu", "tokens"]
compiled_by = "other"
job_options = ["a", "b"]
only_on = ["npu:N"]
usual_on = { arrays = ["npu:N"] }
takes = "arrays"
small = { narrow = "i4", byte = "i8", kv = "f16" }
calibrated.format = "f16"
calibrated.one_build = "yes"
calibrated.beyond_peaks = "yes"
calibrated.by_weights = { activations = "f32", kv = "f16" }
fused = ["f"]
cache_moves = 2
repeat_moves = 3
passes = { softmax = 4 }
unpack = 0.5
merged = ["conv+relu", "a+b+c"]
dynamic = ["d"]
gathered = 0.25
grouped = 0.125
unquantised = ["u"]
winograd = 2.25
first_run = "3 s"
notes = "n"
expanded = ["gpu:q4_0"]
widened = { bf16 = "f32" }
held = { cpu = "f32" }
arithmetic = { "arm:convolution:i8/f32" = ["i8", "f32"] }
[engines.x.cpu]
kernel = "1 us"
host = "2 us"
step = "3 us"
call = "4 us"
captured = ["decode"]
reserve = "5 MB"
[engines.x.arm]
unpack = 0.75
cpu = { kernel = "9 us" }
"""


def test_an_engine_has_every_key_of_its_row(tmp_path):
    found = _descriptor(row(tmp_path, "engines", ENGINE))
    effects = plain(found.effects)
    assert plain(found) == {
        "effects": effects, "opens": ("onnx", "gguf"), "packages": ("p", "q"), "module": "m", "extra": "ex", "rank": 5,
        "first_for": frozenset({"gpu", "tokens"}), "small": {"narrow": "i4", "byte": "i8", "kv": "f16"},
        "calibrated_in": "f16", "by_weights": {"activations": "f32", "kv": "f16"}, "beyond_peaks": True,
        "one_build": True, "compiled_by": "other", "job_options": frozenset({"a", "b"}), "only_on": ("npu:N",),
        "takes": "arrays",
        "usual_on": {"arrays": ("npu:N",)},
    }  # fmt: skip
    assert found.by_weights == Precision(activations="f32", kv="f16")
    overheads = {"kernel_s": 1e-6, "host_s": 2e-6, "step_s": 3e-6, "call_s": 4e-6, "captured": frozenset({"decode"}),
                 "reserve_bytes": 5e6}  # fmt: skip
    wanted = {
        "name": "x", "title": "E", "fused": frozenset({"f"}), "cache_moves": 2, "repeat_moves": 3,
        "passes": {"softmax": 4}, "unpack": 0.5, "merged": (("conv", "relu"), ("a", "b", "c")),
        "dynamic": frozenset({"d"}), "gathered": 0.25, "grouped": 0.125, "unquantised": ("u",), "winograd": 2.25,
        "first_run": 3.0, "notes": "n", "expanded": frozenset({"gpu:q4_0"}), "widened": {"bf16": "f32"},
        "held": {"cpu": "f32"}, "arithmetic": {"arm:convolution:i8/f32": ("i8", "f32")},
    }  # fmt: skip
    assert {name: effects[name] for name in wanted} == wanted
    assert effects["overheads"] == {
        "cpu": {name: pytest.approx(value) if isinstance(value, float) else value for name, value in overheads.items()}
    }
    arm = plain(found.effects.sets["arm"])
    assert (arm["unpack"], arm["overheads"]["cpu"]["kernel_s"]) == (0.75, pytest.approx(9e-6))
    assert arm["overheads"]["cpu"]["host_s"] == pytest.approx(2e-6), "what it does not name stays"
    assert "sets" not in arm


COSTS = """[[engines.x.serving.costs]]
since = "{since}"
devices = {devices}
step = "1 ms"
sequence = "2 us"
prompt = "3 us"
launch = "4 us"
later = 5
kernels = 6
kernels_prompt = 7
together = 8
context = "1 ns"
ttft_spread = 9
tpot_spread = 10
batch_spread = 11
"""
SERVING = """title = "E"
[engines.x.serving]
tables = "t"
version = "0.9"
{more}large = "70 GB"
mixed = "yes"
frees_windows = "yes"
byte_experts = "fp8"
[[engines.x.serving.memory]]
since = "0.3"
share = 0.9
logit = "8 B"
own = "1 GB"
split = "2 GB"
switched_add = "4 GB"
switched = ["nvlink-*"]
padded_input = 6
padded_inner = 9
layer = "3 B"
"""


def served(tmp_path, more="", *costs):
    rows = "".join(COSTS.format(since=since, devices=devices) for since, devices in costs)
    return _descriptor(row(tmp_path, "engines", SERVING.format(more=more) + rows)).serving


def test_a_serving_engine_has_its_limits_and_costs(tmp_path):
    numbers = {"step_tokens": 11, "most_sequences": 12, "small_step_tokens": 13, "small_sequences": 14,
               "block_tokens": 15, "captured_up_to": 16}  # fmt: skip
    given = "".join(f"{name} = {number}\n" for name, number in numbers.items())
    found = plain(served(tmp_path, given, ("0.5", "[]")))
    (costs,), (memory,) = found.pop("costs"), found.pop("memory")
    assert memory == {
        "since": "0.3", "share": 0.9, "of_free": False, "profiles": False, "keeps_experts": False, "logit_bytes": 8,
        "own_bytes": 1e9, "split_bytes": 2e9, "switched_bytes": 4e9, "switched": ("nvlink-*",),
        "layer_bytes": 3, "padded_to": (6, 9),
    }  # fmt: skip
    assert found == {
        "tables": "t", "version": "0.9", **numbers, "large_bytes": 70e9, "mixed": True, "frees_windows": True,
        "byte_experts": "fp8",
    }  # fmt: skip
    assert costs == {
        "since": "0.5", "step_s": pytest.approx(1e-3), "sequence_s": pytest.approx(2e-6),
        "prompt_s": pytest.approx(3e-6), "launch_s": pytest.approx(4e-6), "later": 5, "kernels": 6,
        "kernels_prompt": 7, "together": 8, "context_s": pytest.approx(1e-9), "ttft_spread": 9, "tpot_spread": 10,
        "batch_spread": 11,
    }  # fmt: skip
    usual = served(tmp_path)
    assert [getattr(usual, name) for name in numbers] == [8192, 256, 2048, 256, 16, 512]


@pytest.mark.parametrize(
    ("version", "device", "since"),
    [(None, "", "0.9"), ("0.10", "", "0.10"), ("0.9.9", "", "0.9"), ("0.5", "", "0.6"), ("2.0", "", "0.10"),
     ("2.0", "nvidia-h100", "0.7"), ("0.1", "nvidia-h100", "0.7"), ("2.0", "amd-x", "0.10")],
)  # fmt: skip
def test_costs_are_those_of_the_device_and_the_newest_version_that_is_not_newer(tmp_path, version, device, since):
    rules = served(tmp_path, "", ("0.10", "[]"), ("0.6", "[]"), ("0.7", '["nvidia-*"]'), ("0.9", "[]"))
    assert [costs.since for costs in rules.costs] == ["0.6", "0.7", "0.9", "0.10"], "by their numbers"
    assert costs_of(rules, version, device).since == since


@pytest.mark.parametrize(("siblings", "doubt"), [(0, 0.9), (1, 0.5), (3, 0.5), (4, 0.0), (9, 0.0)])
def test_costs_are_doubted_by_how_few_devices_of_the_maker_they_were_fitted_to(tmp_path, monkeypatch, siblings, doubt):
    fitted = ("other-a", "other-b", "other-c", "other-d", "other-e", *(f"maker-{number}" for number in range(siblings)))
    monkeypatch.setattr(engines, "fitted_on", lambda tables: (fitted, None) if tables == "t" else ((), None))
    rules = served(tmp_path, "", ("0.5", "[]"))
    (costs,) = rules.costs

    def spreads(found):
        return [getattr(found, f"{name}_spread").value for name in ("ttft", "tpot", "batch")]

    widened = [(spread**2 + doubt**2) ** 0.5 for spread in (9, 10, 11)]
    assert spreads(costs_of(rules, None, "maker-new")) == pytest.approx(widened)
    assert spreads(costs_of(rules, None, "new", "Maker")) == pytest.approx(widened), "in any case of letters"
    assert spreads(costs_of(rules, None, "new-other", "other")) == spreads(costs_of(rules)) == [9, 10, 11]
    assert costs_of(rules, None, "other-a", "maker") is costs, "it was one of them"


def test_versions_are_their_first_four_numbers():
    assert version_numbers("0.8.5.post1") == (0, 8, 5, 1)
    assert version_numbers("1.2.3.4.5") == (1, 2, 3, 4)
    assert version_numbers("0.10") > version_numbers("0.9.9")
    assert EngineRank(name="x").rank is None
