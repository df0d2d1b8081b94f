"""Readings beside the ops: what is streamed through, and what is read from storage."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest

from inferometer.core.calibration import Calibration
from inferometer.core.device import Device, Memory, Sourced
from inferometer.core.errors import EngineError
from inferometer.measure.calibrate.fitting.assemble import best_rates
from inferometer.measure.calibrate.probes.host_readings import (
    HostReadings,
    read_bytes_per_s,
    stream_bytes,
    stream_bytes_per_s,
)
from inferometer.predict.basis.calibrations import with_calibration

if TYPE_CHECKING:
    from pathlib import Path


def held(value: float) -> Sourced:
    return Sourced(value=value, origin="measured", source="a test", date="2026-11-15")


def machine(**sizes: float) -> Device:
    memories = tuple(Memory(level=level, capacity_bytes=held(size)) for level, size in sizes.items())
    return Device(name="here", title="Here", vendor="x", unit="cpu", memories=memories)


def test_each_level_is_streamed_within_itself_and_memory_beyond_all_caches():
    found = stream_bytes(machine(dram=24e9, l3=300e6, l2=4e6, l1=96e3))
    assert found == {"l1": 48_000, "l2": 2_000_000, "l3": 150_000_000, "dram": 600_000_000}


def test_what_cannot_be_told_from_the_level_below_is_left_out():
    assert stream_bytes(machine(dram=1e9, l2=1e6, l1=900e3)) == {"l1": 450_000, "dram": 2_000_000}
    assert "dram" not in stream_bytes(machine(dram=1e9, l3=600e6)), "so much memory cannot be taken"
    assert stream_bytes(machine(dram=1e9)) == {}, "nothing says how large the caches are"


@pytest.mark.parametrize("threads", [1, 2])
def test_a_stream_is_all_bytes_over_the_shortest_turn(threads: int):
    ticks = count(1000)
    found = stream_bytes_per_s(16_000_000, threads=threads, clock=lambda: 0.1 * next(ticks))
    assert found == pytest.approx(16_000_000 / 0.1, rel=0.01)


def test_a_reading_is_told_and_gives_no_level_a_rate(tmp_path: Path):
    here = machine(dram=24e9, l1=96e3)
    made = HostReadings(device=here, dtype="f32", threads=1, folder=tmp_path)
    keys = [each.key for each in made.candidates()]
    assert keys == ["stream l1", "stream dram", "storage read"]
    (point,) = made.measure(made.candidates()[0]).points
    _, levels = best_rates([point])
    assert levels.keys() == {"stream.l1"}
    assert point.seconds * levels["stream.l1"] == pytest.approx(1.0), "the seconds of a byte"
    calibration = Calibration(
        device="here", runtime="onnxruntime", dtype="f32", created="2026-11-15",
        bandwidths={name: held(rate) for name, rate in levels.items()},
    )  # fmt: skip
    assert with_calibration(here, calibration) == here


def test_storage_is_read_past_the_cache_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ticks = count(1000)
    found = read_bytes_per_s(tmp_path, clock=lambda: 0.5 * next(ticks), nbytes=1 << 20)
    assert found in {None, (1 << 20) / 0.5}
    assert list(tmp_path.iterdir()) == [], "the file is gone"
    monkeypatch.delattr("os.O_DIRECT", raising=False)
    assert read_bytes_per_s(tmp_path, clock=lambda: 0.0) is None
    made = HostReadings(device=machine(dram=1e9), dtype="f32", threads=1, folder=tmp_path)
    with pytest.raises(EngineError, match="past its cache"):
        made.measure(made.candidates()[-1])
