"""The closed form of a service, with every term worked out by hand; and figures of a class where a device has none."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from inferometer.core import Device, Memory, Sourced
from inferometer.core.errors import DomainError
from inferometer.known import devices
from inferometer.predict.price.class_figures import with_class_figures
from inferometer.predict.served import steady
from inferometer.predict.served.memory import StepLimits
from inferometer.predict.served.steady import Drafts, KernelParts, Steady, Traffic, kernel_parts
from inferometer.predict.served.step import EngineStep, Grid2, SecondsGrid

COSTS = {"step_s": 0.01, "sequence_s": 0.001, "prompt_s": 0.5, "launch_s": 0.0, "later": 1.0, "kernels": 1.5,
         "kernels_prompt": 2.0, "together": 0.25, "context_s": 0.0}  # fmt: skip
PARTS = KernelParts(
    sequences=8, users=8, generate=11, gained=1.0, decode=0.2, drafting=0.0, own=0.5, alone=0.3, steps=1, packed=2,
    full=0.9, empty=0.7, whole=0.24, launches=100, mixed=1.0,
)  # fmt: skip


def costs(**more):
    return SimpleNamespace(**{name: SimpleNamespace(value=value) for name, value in {**COSTS, **more}.items()})


def test_every_term_of_a_steady_state():
    found = steady.steady_times(PARTS, costs())
    decode = 1.5 * 0.2 + 0.01 + 8 * 0.001
    own = 1.5 * 0.2 + 2.0 * (0.5 - 0.2) + 0.01 + 0.001 + 8 * 0.001
    empty = 2.0 * 0.7 + 0.01 + 2 * 0.001
    extra, share = own - decode, empty / 2
    spread = decode + 7 * extra / 11
    full = 1.5 * 0.2 + 2.0 * (0.9 - 0.2) + 0.01 + 2 * 0.001 + 8 * 0.001
    tpot = min(spread, full)
    first = (0.5 + 1.0) * decode + own + 0.5
    busy = 7 * share / (11 * tpot + own)
    assert busy < 0.9
    waiting = 0.25 * 7 / 2 * share + busy / (2 * (1 - busy)) * share
    assert (found.decode, found.own, found.empty, found.extra) == pytest.approx((decode, own, empty, extra))
    assert (found.alone, found.share, found.tpot) == pytest.approx((2.0 * 0.3 + 0.01 + 0.001, share, tpot))
    assert found.ttft == pytest.approx(first + waiting)


def test_those_who_find_no_room_wait_for_a_turn():
    base, crowded = (steady.steady_times(replace(PARTS, users=users), costs()) for users in (8, 12))
    first = 1.5 * base.decode + base.own + 0.5
    assert crowded.ttft - base.ttft == pytest.approx(4 / 8 * (first + 11 * base.tpot))
    fewer = steady.steady_times(replace(PARTS, users=3), costs())
    assert fewer.ttft == pytest.approx(base.ttft)


def test_attention_to_what_is_cached_is_a_part_of_every_step_of_decoding():
    """Of 1,000 tokens in all layers, a millisecond each: a step takes one second longer, and so do those with prompts
    beside it."""
    base = steady.steady_times(PARTS, costs())
    longer = steady.steady_times(replace(PARTS, cached=1000), costs(context_s=1e-3))
    for name, added in (("decode", 1), ("own", 1), ("extra", 0), ("alone", 0), ("empty", 0)):
        assert getattr(longer, name) == pytest.approx(getattr(base, name) + added)


def test_held_back_prompts_drafts_and_stages():
    base = steady.steady_times(PARTS, costs())
    waits = steady.steady_times(replace(PARTS, waits=3.0), costs())
    assert waits.ttft - base.ttft == pytest.approx(3.0 * base.decode)
    drafted = steady.steady_times(replace(PARTS, drafting=0.1, gained=2.0), costs())
    assert drafted.decode == pytest.approx(base.decode + 1.5 * 0.1)
    assert drafted.tpot == pytest.approx(drafted.decode / 2 + 7 * drafted.extra / 11)
    piped = steady.steady_times(replace(PARTS, stages=2), costs())
    assert piped.decode == pytest.approx(1.5 * 0.2 + 0.01 + 4 * 0.001)
    assert piped.share == pytest.approx(base.share / 2)
    assert piped.tpot == pytest.approx(piped.decode + 7 * piped.extra / (2 * 11))
    flowing = steady.steady_times(replace(PARTS, stages=2, flowing=2, behind=0.1), costs())
    assert flowing.decode == pytest.approx(piped.decode + 1.5 * 0.1 + 0.01 + 4 * 0.001)
    assert flowing.extra == pytest.approx(piped.extra)


@pytest.mark.parametrize(
    ("layers", "stages", "flowing", "behind"),
    [
        (8, 1, 1, 0.0),
        (8, 4, 4, 4 * (2.0 + 1.0) - 9.0),  # the last stage has two of eight layers, and the logits
        (8, 4, 2, 0.0),  # two steps pass it in less than one takes through all stages
        (8, 3, 3, 0.0),  # three, three, and two layers with the logits: as long as each other
        (8, 5, 5, 5 * 2.0 - 9.0),  # a stage of two layers is as slow as the last with one and the logits
    ],
)
def test_a_pipeline_goes_at_the_pace_of_its_slowest_stage(layers, stages, flowing, behind):
    """Eight seconds of layers, one of logits."""
    grid = SecondsGrid(sizes=[1, 1000], seconds=[1.0, 1.0])
    attention = Grid2(rows=[1, 1000], columns=[1, 1000], seconds=[[3.0, 3.0], [3.0, 3.0]])
    step = EngineStep(
        costs=costs(), dense=SecondsGrid(sizes=[1, 1000], seconds=[5.0, 5.0]), logits=grid, decode=attention,
        prompt=attention, launches=1, spread=0.1, layers=layers,
    )  # fmt: skip
    assert step.behind_kernels(4, 100.0, verified=2, stages=stages, flowing=flowing) == pytest.approx(behind)


def test_a_prompt_of_several_steps_is_read_alone_in_them_and_one_of_an_unmixed_engine_too():
    several = steady.steady_times(replace(PARTS, steps=3, own=1.2), costs())
    alone = 2.0 * 0.3 + 3 * 0.01 + 3 * 0.001
    assert several.own == pytest.approx(1.5 * 3 * 0.2 + 2.0 * (1.2 - 0.6) + 3 * 0.01 + 3 * 0.001 + 3 * 8 * 0.001)
    assert (several.alone, several.share) == pytest.approx((alone, alone))
    unmixed = steady.steady_times(replace(PARTS, mixed=0.0), costs())
    assert unmixed.own == unmixed.extra == pytest.approx(2.0 * 0.3 + 0.01 + 0.001)
    assert unmixed.tpot == pytest.approx(unmixed.decode + 7 * unmixed.extra / 11)


def test_steps_that_read_are_as_long_as_their_launches():
    found = steady.steady_times(replace(PARTS, steps=2, own=0.9), costs(launch_s=0.02))
    assert found.own == pytest.approx(2 * 2.0 + 2 * 0.01 + 2 * 0.001 + 2 * 8 * 0.001)
    assert found.decode == pytest.approx(1.5 * 0.2 + 0.01 + 8 * 0.001)  # one that only decodes is replayed


def test_tokens_of_a_full_system_and_a_batch_that_begins_together():
    base = steady.steady_times(PARTS, costs())
    extra = min(base.share, base.extra)
    assert steady.token_seconds(PARTS, costs()) == pytest.approx((base.decode + 8 * extra / 11) / 8)
    unmixed = replace(PARTS, mixed=0.0)
    other = steady.steady_times(unmixed, costs())
    assert steady.token_seconds(unmixed, costs()) == pytest.approx((other.decode + 8 * other.share / 11) / 8)
    decode = base.decode + 1.5 * (0.24 - 0.2)
    assert steady.request_seconds(PARTS, costs()) == pytest.approx(0.5 + 4 * base.empty + 10 * decode)  # 8 of 2 a step
    roomy = replace(PARTS, packed=10)
    times = steady.steady_times(roomy, costs())
    assert steady.request_seconds(roomy, costs()) == pytest.approx(
        0.5 + times.alone + 2.0 * 7 / 10 * 0.7 + 10 * (times.decode + 1.5 * 0.04)
    )
    long = replace(PARTS, steps=2, packed=1)
    times = steady.steady_times(long, costs())
    assert steady.request_seconds(long, costs()) == pytest.approx(0.5 + 8 * times.alone + 10 * (times.decode + 0.06))


class Step:
    """Kernels whose seconds are their sizes, and what they were asked for."""

    launches = 7

    def __init__(self):
        self.asked = []

    def mixed_kernels(self, tokens, before, sequences, context, *, chunks=1.0, verified=1):
        self.asked.append((tokens, before, sequences, context, chunks))
        return tokens * chunks + 1000 * sequences * verified

    def decode_kernels(self, sequences, context, *, verified=1):
        return np.asarray(context, float) * sequences * verified

    def cached(self, sequences, context):
        return 32 * sequences * context

    def behind_kernels(self, sequences, context, *, verified, stages, flowing):
        return sequences * context * verified * (flowing - 1) / stages


RULES = SimpleNamespace(mixed=True)


def test_the_kernels_of_a_prompt_in_steps_with_others_beside_it():
    step = Step()
    limits = StepLimits(tokens=40, sequences=99, waits=2.0)
    parts = kernel_parts(
        step, RULES, limits, Traffic(prompt=110, generate=20, cached=10), sequences=6, users=9, stages=2
    )
    assert step.asked == [
        (40, 11, 2, 120.0, 1.0), (40, 11, 0, 1.0, 1.0), (40, 51, 2, 120.0, 1.0), (40, 51, 0, 1.0, 1.0),
        (20, 91, 2, 120.0, 1.0), (20, 91, 0, 1.0, 1.0), (40, 61.0, 2, 120.0, 1), (40, 61.0, 0, 1.0, 1),
    ]  # fmt: skip
    assert (parts.own, parts.alone, parts.steps, parts.packed) == (6100.0, 100.0, 3, 1)
    assert (parts.decode, parts.whole, parts.waits, parts.launches) == (360.0, 360.0, 2.0, 7)
    assert (parts.sequences, parts.users, parts.stages, parts.generate, parts.gained) == (6, 9, 2, 20, 1.0)
    assert (parts.flowing, parts.behind, parts.cached) == (2, 180.0, 32 * 3 * 120.0)
    short = kernel_parts(step, RULES, limits, Traffic(prompt=15, generate=20), sequences=1, users=1)
    assert (short.packed, short.steps, short.full) == (2, 1, 30.0)
    assert step.asked[-2] == (15, 1.0, 0, 25.0, 2)
    unmixed = kernel_parts(
        step, SimpleNamespace(mixed=False), limits, Traffic(prompt=15, generate=20), sequences=9, users=9
    )
    assert (unmixed.own, unmixed.mixed) == (15.0, 0.0)


def test_drafts_are_verified_together_and_cost_what_makes_them():
    limits = StepLimits(tokens=40, sequences=99, waits=0.0)

    def parts(**more):
        drafts = Drafts(length=3, gained=2.5, **more)
        return kernel_parts(Step(), RULES, limits, Traffic(prompt=10, generate=20, drafts=drafts), sequences=4, users=4)

    assert (parts().decode, parts().gained) == (20.0 * 4 * 4, 2.5)
    assert parts(layers=8).drafting == 3 * 20.0 * 4 / 8
    own = SimpleNamespace(decode_seconds=lambda n, context: n * context, dense=At(), prompt=At())
    assert parts(step=own).drafting == 3 * 80.0
    # Beside a prompt, too, all that is drafted is verified; and a model that drafts reads the prompt.
    assert parts().own == 10 + 1000 * 3 * 4
    assert parts(step=own).own - parts().own == parts(step=own).alone - parts().alone == 10 + 10
    assert parts(step=own).full - parts().full == 40 + 4 * 10  # four prompts in a step


class At:
    def at(self, size, _before=0.0):
        return size


def test_a_step_that_reads_a_prompt_drafts_for_the_others_as_any_other():
    """What a prompt adds to their steps is its own kernels: drafting is in both."""
    slow = replace(PARTS, drafting=PARTS.drafting + 7.0)
    base, drafted = (steady.steady_times(parts, costs()) for parts in (PARTS, slow))
    assert drafted.extra == pytest.approx(base.extra)
    assert drafted.own - base.own == pytest.approx(PARTS.steps * 1.5 * 7.0)


def test_an_interval_is_of_its_own_spread_on_both_sides():
    found = Steady(sequences=4, ttft_s=2.0, tpot_s=0.5, step_s=0.4, bound="decode", ttft_spread=0.1, tpot_spread=0.3)
    low, high = found.interval("ttft")
    assert (low * high, np.log(high / low)) == pytest.approx((4.0, 2 * 1.2816 * 0.1))
    assert np.log(found.interval("tpot")[1] / 0.5) == pytest.approx(1.2816 * 0.3)


@pytest.mark.parametrize(
    ("users", "tpot", "bound", "sequences"),
    [
        (5, 0.29, "decode", 5),
        (5, 0.31, "prompts", 5),
        (6, 0.1, "decode", 6),
        (7, 0.31, "memory", 6),
        (1, 0.1, "decode", 1),
    ],
)
def test_what_bounds_a_service(monkeypatch, users, tpot, bound, sequences):
    asked = []
    monkeypatch.setattr(steady, "kernel_parts", lambda *_given, **more: asked.append(more))
    monkeypatch.setattr(steady, "steady_times", lambda *_: SimpleNamespace(tpot=tpot, decode=0.2, ttft=3.0))
    step = SimpleNamespace(costs=costs(ttft_spread=0.1, tpot_spread=0.2), spread=0.3)
    memory = SimpleNamespace(sequences_of=lambda tokens: 6 if tokens == 105 else 0, kv_tokens=1)
    traffic = Traffic(prompt=100, generate=11)
    found = steady.steady_state(step, None, StepLimits(tokens=1, sequences=9), traffic, users, memory, stages=3)
    assert asked == [{"sequences": sequences, "users": users, "stages": 3}]
    assert (found.bound, found.sequences, found.ttft_s, found.step_s) == (bound, sequences, 3.0, 0.2)
    assert (found.ttft_spread, found.tpot_spread) == (0.1, 0.3)


def test_who_reserves_has_room_for_whole_answers_and_others_for_half_of_them():
    memory = SimpleNamespace(sequences_of=lambda tokens: 1000 // tokens, kv_tokens=1000)
    limits, traffic = StepLimits(tokens=1, sequences=99), Traffic(prompt=10, generate=90)
    assert steady.held(limits, traffic, memory) == 1000 // 55
    assert steady.held(replace(limits, reserves=True), traffic, memory) == 1000 // 100


def test_no_users_no_room_and_no_tokens_are_refused():
    limits, traffic = StepLimits(tokens=1, sequences=9), Traffic(prompt=1, generate=1)
    assert steady.held(limits, traffic, None) == 9
    assert steady.held(limits, traffic, SimpleNamespace(sequences_of=lambda _tokens: 12)) == 9
    with pytest.raises(DomainError, match="Not one sequence of 2 tokens"):
        steady.held(limits, traffic, SimpleNamespace(sequences_of=lambda _tokens: 0, kv_tokens=1))
    with pytest.raises(DomainError, match="1 user or more"):
        steady.steady_state(None, None, limits, traffic, 0)
    for wrong in ({"prompt": 0}, {"generate": 0}, {"cached": 5}, {"cached": -1}):
        with pytest.raises(DomainError):
            Traffic(**{"prompt": 5, "generate": 5, **wrong})


# Figures of a class


def number(value):
    return Sourced(value=value, origin="datasheet", source="a test", date="2026")


def device(unit, peaks, *, bandwidth=5.0, memories=1, **more):
    levels = (Memory(level="dram", bandwidth_bytes_per_s=None if bandwidth is None else number(bandwidth)),
              Memory(level="l2"))  # fmt: skip
    return Device(name="d", title="d", vendor="nobody", unit=unit, peaks={name: number(v) for name, v in peaks.items()},
                  memories=levels[:memories], **more)  # fmt: skip


def test_an_npu_of_whole_numbers_does_half_as_many_wide_ones_and_no_other_unit_does():
    found, notes = with_class_figures(device("npu", {"i8": 8.0}))
    assert {name: peak.value for name, peak in found.peaks.items()} == {"i8": 8.0, "f16": 4.0, "bf16": 4.0, "f32": 4.0}
    assert notes == ()
    assert found.peaks["f16"].origin == "prior"
    wide, _ = with_class_figures(device("npu", {"i8": 8.0, "f16": 3.0}))
    assert {name: peak.value for name, peak in wide.peaks.items()} == {"i8": 8.0, "f16": 3.0}
    gpu, _ = with_class_figures(device("gpu", {"i8": 8.0}))
    assert {*gpu.peaks} == {"i8"}


def test_what_a_row_lacks_is_its_classes_and_it_says_so():
    bare, notes = with_class_figures(device("gpu", {}, bandwidth=None))
    assert bare.peaks
    assert bare.memory.bandwidth_bytes_per_s.value > 0
    assert "lacks a peak and a memory bandwidth" in notes[0]
    slow, notes = with_class_figures(device("gpu", {"f32": 1.0}, bandwidth=None, memories=2))
    assert "lacks a memory bandwidth:" in notes[0]
    assert "lacks a peak:" in with_class_figures(device("gpu", {}, memories=2))[1][0]
    assert ({*slow.peaks}, len(slow.memories)) == ({"f32"}, 2)
    known = device("gpu", {"f32": 1.0}, memories=2)
    assert with_class_figures(known) == (known, ())


def stood_in(unit, **more):
    return with_class_figures(device(unit, {}, kind="phone", **more))[0].peaks["i8"]


def test_an_npus_peak_that_stands_in_is_of_its_year_and_one_that_is_stated_stays():
    """Makers who print no peak still raise it: the same figure for ten years was off by a factor of two either way."""
    old, middle, new = (stood_in("npu", year=year) for year in (2013, 2023, 2025))
    assert old.value * 15 < middle.value
    assert middle.value * 1.6 < new.value < middle.value * 2.2
    assert "2025" in new.note
    assert stood_in("npu").value == middle.value
    stated, notes = with_class_figures(device("npu", {"i8": 8.0}, kind="phone", year=2013))
    assert (stated.peaks["i8"].value, notes) == (8.0, ())


def test_a_gpus_peak_that_stands_in_goes_with_its_memory_and_not_with_its_year():
    """A chip of 2025 for a dashboard has the GPU of a cheap phone: its year had given it that of the best."""
    narrow, usual, wide, widest = (stood_in("gpu", bandwidth=gigabytes * 1e9) for gigabytes in (15, 60, 90, 1000))
    assert narrow.value * 16 == pytest.approx(usual.value)
    assert wide.value == pytest.approx(2.25 * usual.value)
    assert widest.value == 4 * usual.value
    assert stood_in("gpu", bandwidth=15e9, year=2026) == narrow
    assert stood_in("gpu", bandwidth=None).value == usual.value


def test_stated_peaks_of_gpus_on_chips_lie_near_those_that_would_stand_in():
    """Of every such GPU of phones, boards and cars that the catalog has: makers bound them to their memory."""
    stated = [
        row for row in devices().values()
        if row.unit == "gpu" and row.kind in {"phone", "embedded", "board", "automotive"} and row.vendor != "NVIDIA"
        and "f32" in row.peaks and row.memory is not None and row.memory.bandwidth_bytes_per_s is not None
    ]  # fmt: skip
    times = [
        with_class_figures(replace(row, peaks={}))[0].peaks["f32"].value / row.peaks["f32"].value for row in stated
    ]
    assert len(stated) > 60
    assert np.mean([1 / 2 < each < 4 for each in times]) > 0.85
    assert min(times) > 1 / 4
    assert max(times) < 8


def test_an_embedded_npu_without_a_peak_is_no_phone():
    phone, board = (with_class_figures(device("npu", {}, kind=kind, year=2024))[0] for kind in ("phone", "embedded"))
    assert all(4 * board.peaks[name].value < phone.peaks[name].value for name in phone.peaks)
