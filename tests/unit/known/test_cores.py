"""Peaks and bandwidths that follow from cores, clocks and buses, and how much of a label is usable."""

import pytest

from inferometer.core.errors import CatalogError
from inferometer.known import device
from inferometer.known.hardware import core_aliases, core_design, usable_rules

PHONE = """
[sources.sheet]
title = "A datasheet"
date = "2024-05"
[devices.phone]
title = "Phone"
vendor = "Maker"
unit = "cpu"
source = "sheet"
core_groups = ["1 × cortex-x1 @ 3 GHz", "2 x cortex-a55 @ 1800 MHz"]
memory = [{ level = "lpddr", kind = "LPDDR5-6400", bits = 64, capacity = "8 GiB" }]
"""


def made(folder, text):
    file = folder / "phone.toml"
    file.write_text(text, encoding="utf-8")
    return device(str(file))


def test_peaks_cores_clock_and_bandwidth_follow_from_groups_and_bus(tmp_path):
    phone = made(tmp_path, PHONE)
    assert phone.peaks["f32"].value == 1 * 3e9 * 32 + 2 * 1.8e9 * 8  # four FMA of four lanes, and one
    assert "1 × 3 GHz × 32 + 2 × 1.8 GHz × 8" in phone.peaks["f32"].note
    assert "Software Optimization Guide" in phone.peaks["f32"].source
    assert (phone.cores.value, phone.clock_hz.value) == (3, 3e9)
    assert phone.memory.bandwidth_bytes_per_s.value == 6400e6 * 8
    assert phone.memory.bandwidth_bytes_per_s.source == "A datasheet"
    assert [group.core for group in phone.core_groups] == ["cortex-x1", "cortex-a55"]


def test_what_a_row_states_wins(tmp_path):
    stated = PHONE.replace("core_groups", 'peaks = { f32 = "1 GFLOP/s" }\nclock = "2 GHz"\ncore_groups')
    phone = made(tmp_path, stated.replace("bits = 64", 'bits = 64, bandwidth = "10 GB/s"'))
    assert (phone.peaks["f32"].value, phone.clock_hz.value) == (1e9, 2e9)
    assert phone.peaks["f16"].value > 1e9
    assert phone.memory.bandwidth_bytes_per_s.value == 10e9


def test_a_format_that_one_group_lacks_has_no_peak(tmp_path):
    assert "f16" not in made(tmp_path, PHONE.replace("cortex-a55", "cortex-a53")).peaks


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("1 × cortex-x1 @ 3 GHz", "cortex-x1 at 3 GHz", "is not a group of cores"),
        ("cortex-x1", "cortex-y1", "Did you mean cortex-x1"),
        ("3 GHz", "3 parsecs", "Hz"),
        ("LPDDR5-6400", "LPDDR5", "needs a kind that ends in its million transfers"),
        ("bits = 64", 'bits = "64"', "must be a whole number"),
    ],
)
def test_a_group_or_a_bus_that_does_not_hold_is_told_with_its_place(tmp_path, old, new, why):
    with pytest.raises(CatalogError, match=why) as refused:
        made(tmp_path, PHONE.replace(old, new))
    assert "phone.toml: devices.phone" in str(refused.value)


def test_designs_go_by_their_aliases_and_widths_double_as_formats_halve():
    assert core_design("firestorm") == core_design("apple-p")
    assert core_design("no-such-core") is None
    for design in map(core_design, core_aliases()):
        rates = {name: rate.value for name, rate in design.ops_per_cycle.items()}
        assert all(rate > 0 for rate in rates.values())
        for wide, narrow in (("f64", "f32"), ("f32", "f16"), ("f16", "i8"), ("i8", "i4")):
            if wide in rates and narrow in rates:
                assert rates[narrow] >= rates[wide], f"{design.name}: {narrow} is slower than {wide}"


@pytest.mark.parametrize(
    ("name", "mib"),
    [  # as nvidia-smi prints them
        ("nvidia-l4", 23034), ("nvidia-t4", 15360), ("nvidia-a100-80gb", 81920), ("nvidia-h100-sxm", 81559),
        ("nvidia-h200", 143771), ("nvidia-b200", 183359), ("nvidia-rtx-4090", 24564), ("nvidia-l40s", 46068),
    ],
)  # fmt: skip
def test_usable_memory_is_what_the_driver_shows(name, mib):
    memory = device(name).memory
    assert memory.room == memory.usable_bytes
    assert memory.usable_bytes.value == mib * 2**20
    assert memory.usable_bytes.origin == "measured"


def test_a_card_without_its_drivers_figure_follows_the_rule_of_its_kind(tmp_path):
    a2, geforce, mac = device("nvidia-a2"), device("nvidia-rtx-5070"), device("apple-m4-gpu")
    assert a2.memory.usable_bytes.value == pytest.approx(a2.memory.capacity_bytes.value * 15 / 16, rel=1e-3)
    assert "ECC" in a2.memory.usable_bytes.note
    assert geforce.memory.usable_bytes.value > 0.999 * geforce.memory.capacity_bytes.value
    assert mac.memory.usable_bytes.value == 0.74 * mac.memory.capacity_bytes.value
    phone = made(tmp_path, PHONE)  # its system keeps some of a CPU's memory, and nothing of what a GPU has to itself
    assert phone.memory.capacity_bytes.value - phone.memory.usable_bytes.value == pytest.approx(0.25 * 2**30)
    graphics = made(tmp_path, PHONE.replace('unit = "cpu"', 'unit = "npu"'))
    assert graphics.memory.room == graphics.memory.capacity_bytes
    assert all(0.5 < rule.share.value <= 1 for rule in usable_rules())
