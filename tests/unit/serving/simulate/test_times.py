"""The time of a simulated step, worked out by hand from costs that grow evenly with their sizes."""

from itertools import combinations, groupby
from types import SimpleNamespace

import numpy as np
import pytest

from inferometer.serving.simulate.times import GangTimes, Speculation, StepTimes, TimesApart

COSTS = {"kernels": 1.5, "kernels_prompt": 2.0, "step_s": 0.01, "sequence_s": 0.001}
CONTEXT_S = 3e-6  # of attention to a token that is cached, beyond its kernel
DRAFT_S = 0.004  # a step of the draft, for each sequence


class Linear:
    def __init__(self, cost):
        self.at = cost

    def __call__(self, *sizes):
        return self.at(*(np.asarray(size, float) for size in sizes))


def dense(tokens):
    return 1e-3 * tokens


def logits(tokens):
    return 1e-4 * tokens


def attention(sequences, context):
    return 1e-6 * sequences * context


def reading(tokens, before):
    return 2e-4 + 1e-5 * tokens + 1e-7 * tokens * before


def times(*, eager_s=0.0, length=None):
    step = SimpleNamespace(
        dense=Linear(dense), logits=Linear(logits), decode=Linear(attention), prompt=Linear(reading), eager_s=eager_s,
        context_seconds=lambda sequences, context: CONTEXT_S * sequences * context,
        costs=SimpleNamespace(**{name: SimpleNamespace(value=value) for name, value in COSTS.items()}),
    )  # fmt: skip
    draft = SimpleNamespace(
        decode_seconds=lambda sequences, _context: DRAFT_S * sequences,
        dense=SimpleNamespace(at=lambda tokens: dense(tokens) / 4),
        prompt=SimpleNamespace(at=lambda tokens, before: reading(tokens, before) / 4),
    )
    speculation = None if length is None else Speculation(length=length, draft=draft)
    return StepTimes(step, 64, 8, speculation)


def decode_s(sequences, context, *, length=0):
    tokens = sequences * (1 + length)
    kernels = dense(tokens) + logits(tokens) + attention(sequences, context)
    own = 0.01 + 0.001 * sequences + CONTEXT_S * sequences * context
    return 1.5 * kernels + own + length * DRAFT_S * sequences


@pytest.mark.parametrize("length", [None, 3])
@pytest.mark.parametrize("sequences", [1, 3, 8])
@pytest.mark.parametrize("context", [64.0, 100.0, 32_704.0, 32_768.0, 50_000.0])
def test_a_step_of_decoding_anywhere_in_its_row_and_beyond_it(sequences, context, length):
    assert times(length=length).decode(sequences, context) == pytest.approx(
        decode_s(sequences, context, length=length or 0)
    )


def test_a_row_is_worked_out_once_and_what_lies_beyond_it_each_time():
    asked = []
    found = times()
    found._step.decode = Linear(lambda sequences, context: asked.append(sequences) or attention(sequences, context))
    for sequences, context in [(3, 64.0), (3, 100.0), (3, 32_000.0), (2, 100.0), (3, 100.0), (3, 50_000.0)]:
        found.decode(sequences, context)
    assert asked == [3, 2, 3]


def test_an_empty_cache_counts_as_one_token():
    assert times().decode(2, 0.0) == pytest.approx(decode_s(2, 1.0))


@pytest.mark.parametrize("length", [None, 2])
@pytest.mark.parametrize("sequences", [0, 4, 8])
@pytest.mark.parametrize(
    "chunks",
    [[(20, 0)], [(20, 0), (10, 30)], [(1, 0), (2, 0), (3, 500)], [(64, 0)], [(8, 0)] * 8],  # as many as may be
)
def test_a_step_that_reads_pays_what_the_prompts_add(chunks, sequences, length):
    tokens, count = sum(size for size, _ in chunks), len(chunks)
    added = dense(tokens) + logits(count) + sum(reading(size, before + 1) for size, before in chunks)
    own = dense(tokens) + sum(reading(size, before + 1) for size, before in chunks)
    added -= (count - 1) * reading(1, 1)  # what one call costs at least is paid once
    added += own / 4 if length else 0.0  # what drafts reads the prompts too
    alone = decode_s(sequences, 128.0, length=length or 0) if sequences else 0.01
    expected = alone + 2.0 * added + 0.001 * count
    assert times(length=length).mixed(chunks, sequences, 128.0) == pytest.approx(expected)
    host_s = 0.5 + 0.01 + 0.001 * (sequences + count) + (length or 0) * DRAFT_S * sequences
    assert times(length=length, eager_s=0.5).mixed(chunks, sequences, 128.0) == pytest.approx(host_s)


def test_apart_a_step_that_reads_and_decodes_takes_a_pass_for_each():
    """Otherwise a prompt's tokens come with the sequences' for less than they take in a pass of their own."""
    apart, chunks = TimesApart(times(), 4), [(5, 0), (7, 9)]
    assert apart.decode(4, 64.0) == pytest.approx(decode_s(4, 64.0))
    assert apart.mixed(chunks, 4, 64.0) == pytest.approx(decode_s(4, 64.0) + times().mixed(chunks, 0, 0.0))
    assert apart.mixed(chunks, 0, 64.0) == pytest.approx(times().mixed(chunks, 0, 0.0))


@pytest.mark.parametrize("slots", [1, 2, 4, 6])
def test_apart_slots_that_are_no_neighbours_take_a_pass_each(slots):
    """By hand: every choice of busy slots, and every row of neighbours in it."""
    apart = TimesApart(times(), slots)
    for busy in range(1, slots + 1):
        chosen = list(combinations(range(slots), busy))
        rows = [len(list(row)) for one in chosen for _, row in groupby(enumerate(one), lambda at: at[1] - at[0])]
        expected = sum(decode_s(many, 64.0) for many in rows) / len(chosen)
        assert apart.decode(busy, 64.0) == pytest.approx(expected)


def test_a_gang_swaps_the_experts_of_a_rank_for_its_part_of_all_ranks():
    """Three ranks: the heaviest sets the time, and what it had of experts alone goes."""
    alone, experts, messages = (Linear(lambda size, cost=cost: cost * size) for cost in (1e-4, 4e-5, 1e-5))
    own = times()
    gang = GangTimes(own, 3, alone=alone, together=(experts, messages), most=64, padded_up_to=4)

    def decoding(*counts):
        return gang.step([([], count, 64.0) for count in counts])

    assert decoding(4, 3, 3) == pytest.approx(decode_s(4, 64.0) + 1.5 * (5e-5 * 12 - 1e-4 * 4))  # filled up: 3 × 4
    assert decoding(5, 5, 4) == pytest.approx(decode_s(5, 64.0) + 1.5 * (5e-5 * 14 - 1e-4 * 5))
    assert decoding(4, 0, 0) == decoding(4, 4, 4)  # ranks without work compute along
    drafting = GangTimes(
        own, 3, alone=alone, together=(experts, messages), most=64, padded_up_to=4, per_sequence=3
    )  # fmt: skip
    verified = drafting.step([([], 2, 64.0), ([], 1, 64.0), ([], 0, 0.0)])
    assert verified == pytest.approx(decode_s(2, 64.0) + 1.5 * (5e-5 * 9 - 1e-4 * 6))  # three tokens of each
    heaviest = own.mixed([(20, 0)], 2, 64.0)
    loads = [([(20, 0)], 2, 64.0), ([(7, 8)], 2, 64.0), ([(6, 0), (5, 0)], 1, 64.0)]
    assert gang.step(loads) == pytest.approx(heaviest + 2.0 * (5e-5 * (38 + 5) - 1e-4 * 22))
