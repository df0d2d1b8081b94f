"""A roof is measured once, kept, and never raised by the run it judges."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from inferometer.core.device import Roof, Sourced
from inferometer.core.notices import listener
from inferometer.known import device
from inferometer.predict.ask import ask
from inferometer.predict.basis.roof import (
    _alone_s,
    copy_bytes_per_s,
    machine_roof,
    measured_roof,
    needs_roof,
    with_roof,
)
from inferometer.predict.placing import can_i_run
from unit.predict.machines import machine

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def rate(value):
    return Sourced(value=value, origin="measured", source="numpy", date="2026-11-15")


@pytest.fixture(autouse=True)
def two_cpus(monkeypatch):
    """May be used, whatever machine this is."""
    here = SimpleNamespace(usable_cpus=1.5, id="m")
    monkeypatch.setattr("inferometer.known.machine.detect.identity.this_machine", lambda: here)
    return here


def roof(flops, bandwidth, created=NOON, *, busy=False):
    return Roof(
        machine="m", created=created.isoformat(), peaks={"f32": rate(flops)}, bandwidth_bytes_per_s=rate(bandwidth),
        threads=2, busy=busy,
    )  # fmt: skip


@pytest.fixture
def kept(tmp_path):
    """Roofs one after the other, as measured; asking says how often that was."""
    ready = [roof(2e11, 1e10), roof(1e11, 3e10, NOON + timedelta(days=2))]
    asked = []

    def measure(name):
        asked.append(name)
        return ready[len(asked) - 1]

    def ask(*, fresh=False, later=timedelta(0)):
        return machine_roof(device("local"), fresh=fresh, folder=tmp_path, measure=measure, now=lambda: NOON + later)

    return ask, asked


def test_it_is_measured_once_and_then_read(kept):
    """Whoever waits for it is told, the first time."""
    ask, asked = kept
    told = []
    listener.set(told.append)
    ask()
    ask()
    listener.set(None)
    assert told == ["measuring this machine's roofs once (about 1 s); they are kept for later"]
    assert ask() == ask() == ask(fresh=True) == ask(later=timedelta(days=9))
    assert len(asked) == 1


def test_before_a_run_an_old_one_is_measured_again_and_the_better_kept(kept):
    ask, asked = kept
    ask()
    again = ask(fresh=True, later=timedelta(days=2))
    assert len(asked) == 2
    assert (float(again.peaks["f32"]), float(again.bandwidth_bytes_per_s)) == (2e11, 3e10)


def test_what_a_call_takes_is_read_once_for_a_roof_that_lacks_it(kept, monkeypatch):
    taken = iter([2e-6])
    monkeypatch.setattr("inferometer.known.machine.health.host_call_s", lambda: next(taken))
    ask, asked = kept
    assert ask().call_s is None  # as it was measured here
    assert float(ask().call_s) == float(ask().call_s) == 2e-6
    again = ask(fresh=True, later=timedelta(days=2))
    assert (len(asked), float(again.call_s)) == (2, 2e-6)


def test_one_of_a_busy_machine_is_tried_again_soon(tmp_path):
    ready = iter([roof(1e11, 1e10, busy=True), roof(3e11, 2e10, NOON + timedelta(minutes=11))])

    def ask(minutes):
        now = NOON + timedelta(minutes=minutes)
        return machine_roof(device("local"), folder=tmp_path, measure=lambda _: next(ready), now=lambda: now)

    assert [float(ask(minutes).peaks["f32"]) for minutes in (0, 9, 11, 600)] == [1e11, 1e11, 3e11, 3e11]


def test_a_file_that_was_cut_off_is_measured_again(kept, tmp_path):
    ask, asked = kept
    ask()
    next(tmp_path.glob("*.json")).write_text("{")
    ask()
    assert len(asked) == 2


def test_a_folder_that_cannot_be_written_loses_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    found = machine_roof(device("local"), folder=tmp_path / "file" / "no", measure=lambda _: roof(1e11, 1e10))
    assert float(found.peaks["f32"]) == 1e11


def test_it_fills_what_the_row_leaves_open_and_nothing_else():
    known = machine()
    assert with_roof(known, roof(1.0, 1.0)) == known
    bare = replace(known, peaks={}, memories=(replace(known.memories[0], bandwidth_bytes_per_s=None),))
    filled = with_roof(bare, roof(2e11, 1e10))
    assert float(filled.peaks["f32"]) == 2e11
    assert float(filled.memory.bandwidth_bytes_per_s) == 1e10
    assert filled.memory.capacity_bytes == known.memory.capacity_bytes
    assert filled.call_s is None
    assert float(with_roof(bare, replace(roof(2e11, 1e10), call_s=rate(1e-6))).call_s) == 1e-6


def test_only_this_machine_can_be_measured():
    assert not needs_roof(replace(machine(), peaks={}))
    assert needs_roof(replace(machine(), name="local", peaks={}))
    assert not needs_roof(replace(machine(), name="local"))


def test_the_best_of_several_counts_and_says_how(monkeypatch):
    ticks = iter(range(1000, 11_000))
    found = measured_roof("m", clock=lambda: float(next(ticks)), share_s=0.0, load=lambda: 0.6)
    assert found.busy
    assert float(found.peaks["f32"]) == 2 * 1536**3  # each run takes one tick
    assert float(found.bandwidth_bytes_per_s) == 2 * 256_000_000
    assert "numpy" in found.peaks["f32"].source
    assert (found.threads, "by 2 threads" in found.bandwidth_bytes_per_s.source) == (2, True)
    assert found.peaks["f32"].origin == "measured"
    for name in ("product_flop_per_s", "copy_bytes_per_s"):
        monkeypatch.setattr(f"inferometer.predict.basis.roof.{name}", lambda **_: 1.0)
    assert not measured_roof("m", load=lambda: 0.4).busy


@pytest.mark.parametrize(
    ("rates", "best", "readings", "busy"),
    [
        ((70.0, 68.0), 70.0, 2, False),
        ((16.0, 70.0, 69.0), 70.0, 3, False),  # another program had the machine during the first
        ((16.0, 30.0, 70.0, 20.0, 40.0), 70.0, 5, True),
    ],
)
def test_it_is_measured_until_two_readings_agree_and_is_busy_where_none_do(monkeypatch, rates, best, readings, busy):
    left = list(rates)
    monkeypatch.setattr("inferometer.predict.basis.roof.product_flop_per_s", lambda **_: left.pop(0))
    monkeypatch.setattr("inferometer.predict.basis.roof.copy_bytes_per_s", lambda **_: 1.0)
    found = measured_roof("m", load=lambda: 0.0)
    assert (float(found.peaks["f32"]), len(rates) - len(left), found.busy) == (best, readings, busy)


@pytest.mark.parametrize(
    ("others", "own", "seconds"),
    [
        (0.0, 16.0, 4.0),  # a quiet machine: two threads for eight of the clock's seconds
        (2 / 3, 16.0 / 3, 4.0 / 3),  # three loops beside ours: a run takes three times as long, and is not taken to
        (0.9, 16.0, 4.0),  # never faster than both threads with what they used: others ran on CPUs that we may not use
        (-1.0, 16.0, 4.0),  # a counter that went backwards
    ],
)
def test_what_others_used_of_the_machine_is_not_counted(others, own, seconds):
    now = [1000.0]

    def work():
        now[0] += 4.0

    def used():  # of two threads: own seconds a run, and the share of the machine that others had
        return own / 2 * now[0] / 4.0, others * now[0]

    assert _alone_s(work, lambda: now[0], 0.0, 2, used) == pytest.approx(seconds)


@pytest.mark.parametrize("busy", [True, False])
def test_every_answer_that_stands_on_a_busy_machines_roof_says_so(busy):
    question = ask("resnet50", on=machine())
    notes = replace(question, roof=roof(1e11, 1e10, busy=busy)).basis().notes
    assert any("was busy when its roofs were measured" in note for note in notes) == busy


@pytest.mark.parametrize("busy", [True, False])
def test_what_runs_here_says_it_too(monkeypatch, busy):
    monkeypatch.setattr("inferometer.predict.ask.roof_for", lambda _device: roof(1e11, 1e10, busy=busy))
    notes = can_i_run("smollm2-135m", on=machine(unit="cpu"), runtime="llamacpp").notes
    assert any("was busy when its roofs were measured" in note for note in notes) == busy


@pytest.mark.parametrize(
    ("features", "times"), [((), 1), (("asimddp",), 4), (("asimddp", "i8mm"), 8), (("avx_vnni",), 4)]
)
def test_the_peak_of_bytes_follows_from_the_instructions_for_them(features, times):
    from inferometer.predict.basis.roof import _in_fewer_bits

    f32 = Sourced(value=1e9, origin="measured", source="numpy", date="2026")
    peak = _in_fewer_bits({"f32": f32}, features)["i8"]
    assert (peak.value, peak.origin) == (times * 1e9, "prior")


def test_halves_are_twice_as_many_where_the_processor_computes_in_them_and_else_no_peak():
    from inferometer.predict.basis.roof import _in_fewer_bits

    f32 = Sourced(value=1e9, origin="measured", source="numpy", date="2026")
    assert _in_fewer_bits({"f32": f32}, ("asimdhp", "asimddp"))["f16"].value == 2e9
    assert "f16" not in _in_fewer_bits({"f32": f32}, ("asimddp",))


def test_a_kept_one_has_what_the_processors_instructions_add(kept, monkeypatch):
    here = SimpleNamespace(cpu=SimpleNamespace(flags=("asimdhp",)))
    ask, _ = kept
    ask()
    monkeypatch.setattr("inferometer.known.machine.detect.detect_host", lambda: here)
    assert ask().peaks["f16"].value == 2 * ask().peaks["f32"].value


def test_one_of_other_cpus_is_another_machines(kept, two_cpus):
    """Nothing of it is kept, however good it was: fewer CPUs may copy and multiply less."""
    ask, asked = kept
    ask()
    two_cpus.usable_cpus = 1.0
    found = ask()
    assert (len(asked), float(found.peaks["f32"]), float(found.bandwidth_bytes_per_s)) == (2, 1e11, 3e10)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_every_byte_is_copied_by_as_many_threads_as_there_are_cpus(threads, monkeypatch):
    import numpy as np

    copied = []
    monkeypatch.setattr(
        "inferometer.predict.basis.roof.np.copyto", lambda target, source: copied.append((target, source))
    )
    ticks = iter(range(1000, 1100))
    rate = copy_bytes_per_s(clock=lambda: float(next(ticks)), seconds=0.0, threads=threads, nbytes=800)
    runs = 4  # one to warm up
    assert (rate, len(copied)) == (1600.0, runs * threads)
    assert all(target.size == source.size for target, source in copied)
    assert sum(target.size for target, _ in copied) == runs * 100
    assert not np.shares_memory(*copied[0])
