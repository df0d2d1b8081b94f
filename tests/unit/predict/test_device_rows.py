"""What a device's own row states (utilisation, storage, links, joules, a battery) is what its predictions use."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer import predict, sweep
from inferometer.core.device import DeviceShares, Memory
from inferometer.core.errors import CatalogError, DomainError
from inferometer.known import device as device_named
from inferometer.predict.options import Battery, Options
from inferometer.predict.price.plan import streamed_share
from unit.predict.machines import machine, stated

ROW = """
[sources.me]
title = "Measured by me"
date = "2026-11"
origin = "measured"

[devices.board]
title = "A board"
vendor = "Me"
unit = "cpu"
kind = "board"
source = "me"
storage = "500 MB/s"
utilisation = { compute = 0.7, memory = 0.6, storage = 0.8, host = 0.7, network = 0.8 }
energy = { flop = "1 pJ", byte = "1 nJ" }
peaks = { f32 = "50 GFLOP/s" }
power = { battery = "15 Wh" }
links = { host = "12 GB/s", network = "100 MB/s" }

[[devices.board.memory]]
level = "dram"
bandwidth = "19 GB/s"
"""
ASKED = {"runtime": "ideal", "weights": "f32", "activations": "f32", "prompt": 64, "generate": 16}


@pytest.fixture
def board(tmp_path):
    path = tmp_path / "board.toml"
    path.write_text(ROW, encoding="utf-8")
    return device_named(str(path))


@pytest.fixture
def found(board):
    return predict("tinyllama-1.1b", on=board, **ASKED)


def test_every_op_reaches_what_the_row_states_and_says_whose_figure_it_is(found):
    step = found.phase("decode")
    assert {op.origin for op in step.ops if op.time_s} == {"measured"}
    big = next(op for op in step.ops if op.name.endswith("gate_proj"))
    assert big.time_s == pytest.approx(big.bytes / (0.6 * 19e9))
    assert found.phase("prefill").streams["compute"] == pytest.approx(found.phase("prefill").flops / (0.7 * 50e9))
    assert any("60 % of its memory bandwidth" in note for note in found.provenance.notes)


def test_loading_is_from_the_rows_storage_over_its_host_link(found):
    load, weights = found.phase("load"), found.model.weight_bytes
    assert load.streams == pytest.approx({"storage": weights / (0.8 * 500e6), "host_link": weights / (0.7 * 12e9)})
    assert load.time_s == pytest.approx(sum(load.streams.values()))
    assert load.low_s == load.floor_s == pytest.approx(weights / 500e6)


def test_energy_is_counted_by_the_operation_and_the_battery_lasts_by_it(found):
    step = found.phase("decode")
    assert step.energy_j == pytest.approx(1e-12 * step.flops + 1e-9 * step.bytes)
    summary = found.summary
    assert summary.inferences_per_charge == pytest.approx(15 * 3600 / summary.energy_j)
    assert summary.battery_s == pytest.approx(summary.inferences_per_charge * summary.e2e_s)


def test_what_is_asked_for_stands_above_the_row(board):
    options = Options(storage_bytes_per_s=1e9, battery=Battery(per_s=0.01))
    found = predict("tinyllama-1.1b", on=board, **ASKED, options=options)
    assert found.phase("load").streams["storage"] == pytest.approx(found.model.weight_bytes / (0.8 * 1e9))
    assert found.summary.inferences_per_charge == pytest.approx(0.01 * found.summary.battery_s)


def test_devices_talk_over_the_rows_network(board):
    found = predict("tinyllama-1.1b", on=board, **ASKED, tp=2).phase("decode")
    sent = [op for op in found.ops if op.kind == "collective"]
    assert found.streams["network"] == pytest.approx(sum(op.time_s for op in sent))
    assert found.streams["network"] == pytest.approx(sum(op.floor_s for op in sent) / 0.8)
    handed = predict("tinyllama-1.1b", on=board, **ASKED, prefill_on=replace(board, name="other"))
    assert handed.phase("transfer").streams == {"network": handed.phase("transfer").time_s}


@pytest.mark.parametrize(("line", "words"), [
    ('energy = { flop = "1 pJ" }', "Give both"),
    ("utilisation = { compute = 1.5 }", "out of range"),
    ("utilisation = { compute = 0 }", "greater than 0"),
    ("utilisation = { compte = 0.5 }", "Did you mean compute"),
    ('links = { network = "100 MB" }', "is not a number of B/s"),
])  # fmt: skip
def test_a_row_that_is_wrong_says_so(tmp_path, line, words):
    kept = [text for text in ROW.splitlines() if not text.startswith(line.partition(" ")[0])]
    path = tmp_path / "board.toml"
    path.write_text("\n".join(kept).replace("[[devices", f"{line}\n[[devices", 1), encoding="utf-8")
    with pytest.raises(CatalogError, match=words):
        device_named(str(path))


def test_a_battery_needs_a_capacity_and_a_rate_that_the_device_keeps_up_with(board):
    without = replace(board, battery_j=None)
    with pytest.raises(DomainError, match="has no battery in its row"):
        predict("resnet50", on=without, runtime="ideal", options=Options(battery=Battery(per_s=1)))
    with pytest.raises(DomainError, match="requests a second were asked for"):
        predict("resnet50", on=board, runtime="ideal", options=Options(battery=Battery(per_s=1e6)))


def test_a_table_of_a_calibration_stands_above_what_the_row_states():
    own = replace(device_named("nvidia-h200"), shares=DeviceShares(compute=stated(0.01), memory=stated(0.01)))
    asked = {"runtime": "torch-compile", "context": 100}
    ops = zip(
        predict("llama-3.2-1b", on=own, **asked).phase("decode").ops,
        predict("llama-3.2-1b", on="nvidia-h200", **asked).phase("decode").ops,
        strict=True,
    )
    assert any(mine.origin == "calibrated" for mine, _ in ops)
    assert all(mine.time_s == theirs.time_s for mine, theirs in ops if mine.origin == "calibrated")


def test_a_device_without_a_memory_beside_its_chip_is_sent_what_it_cannot_hold():
    """Coral's own page: 296 ms for VGG-16 and 49 for ResNet-50, which are 138 and 26 MB of weights over USB."""
    for model, published_s in (("vgg16", 0.296), ("resnet50", 0.049)):
        found = predict(model, on="google-coral-edge-tpu")
        assert found.summary.latency_s == pytest.approx(published_s, rel=0.3)
        assert found.phase("forward").bound == "link"
        assert any("of the weights do not fit on" in note for note in found.provenance.notes)
        (swept,) = sweep(model, "google-coral-edge-tpu")["latency_s"]
        assert swept == pytest.approx(found.summary.latency_s)
    small = predict("mobilenet-v2", on="google-coral-edge-tpu")
    assert small.phase("forward").streams["host_link"] == 0


@given(st.floats(1e6, 1e9), st.floats(1e6, 1e11))
def test_what_is_held_and_what_is_sent_are_all_weights(room, weights):
    chip = machine(memories=(Memory(level="sram", capacity_bytes=stated(room)),))
    sent = streamed_share(chip, weights)
    assert (1 - sent) * weights == pytest.approx(min(room, weights), rel=1e-3)
    assert streamed_share(replace(chip, host_link=None), weights) == 0, "a microcontroller has nobody who would"
