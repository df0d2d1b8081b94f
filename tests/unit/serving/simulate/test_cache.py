"""The paged cache of prompts: whatever is asked of it, its books balance."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.serving.simulate.cache import BlockPool, Tier

_CHAINS = st.lists(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 100)), min_size=1, max_size=4), min_size=1, max_size=12
)


def _named(chain, *, cut=False):
    """A piece's name holds what comes before it, as the names of blocks in traces do.

    With `cut` a prompt ends anywhere within its last piece, as one shorter than a prefix that others have whole.
    """
    pieces, before = [], ()
    for place, (name, size) in enumerate(chain, start=1):
        before = (*before, (name, None if cut and place == len(chain) else size))
        pieces.append((before, size))
    return tuple(pieces)


@pytest.mark.parametrize("rooms", [(), (7,), (3, 20), (0, 1000)])
@given(chains=_CHAINS, order=st.randoms(use_true_random=False), cut=st.booleans())
@settings(max_examples=60, deadline=None)
def test_blocks_are_never_lost_nor_made(rooms, chains, order, cut):
    pool = BlockPool(60, 16, [Tier(blocks=room, load_s=1e-3) for room in rooms])
    under_way = []
    for chain in chains:
        pieces = _named(chain, cut=cut)
        while under_way and pool.sought(pieces)[1] > pool.free:
            pool.leave(under_way.pop(order.randrange(len(under_way))))
        if pool.sought(pieces)[1] <= pool.free:
            pool.use(pieces)
            pool.fill(pieces, order.randrange(1 + sum(size for _, size in pieces)))
            under_way.append(pieces)
        assert pool.is_whole
    for pieces in under_way:
        pool.leave(pieces)
    assert pool.free == 60
    assert pool.is_whole


@given(chains=_CHAINS)
@settings(max_examples=60, deadline=None)
def test_with_room_below_everything_that_was_computed_is_found_again_and_waited_for(chains):
    pool = BlockPool(26, 16, [Tier(blocks=2, load_s=1.0), Tier(blocks=10_000, load_s=100.0)])
    for chain in chains:
        pieces = _named(chain)
        pool.use(pieces)
        pool.fill(pieces, sum(size for _, size in pieces))
        pool.leave(pieces)
    for chain in chains:
        found, _, whole = pool.sought(_named(chain))
        assert found == whole == pool.found(_named(chain))
    assert pool.loaded <= pool.loading_s <= 100 * pool.loaded


def test_what_falls_from_one_tier_lies_in_the_next_and_comes_back_at_its_pace():
    pool = BlockPool(4, 16, [Tier(blocks=4, load_s=1.0), Tier(blocks=4, load_s=10.0)])
    first, second, third = (((name, 64),) for name in "abc")
    for pieces in (first, second, third):
        pool.use(pieces)
        pool.fill(pieces, 64)
        pool.leave(pieces)
    assert [pool.found(pieces) for pieces in (first, second, third)] == [4, 4, 4]  # in the cache, below, and under it
    pool.use(first)
    assert (pool.loaded, pool.loading_s) == (4, 40.0)
    pool.leave(first)
    pool.use(((("new",), 64),))
    assert [pool.found(pieces) for pieces in (first, third, second)] == [4, 4, 0]  # the oldest has fallen out


def test_a_prompt_that_is_shorter_than_a_prefix_uses_its_begin_and_leaves_the_rest_to_others():
    pool = BlockPool(10, 16, [Tier(blocks=10, load_s=1.0)])
    whole, begin, more = ((("a", size),) for size in (128, 48, 96))
    pool.use(whole)
    pool.fill(whole, 128)
    pool.leave(whole)
    pool.use(begin)
    assert (pool.free, pool.found(begin), pool.found(whole), pool.sought(whole)) == (7, 3, 8, (8, 5, 8))
    pool.take(4)  # two that hold nothing, and the last two of the prefix: those lie below
    assert (pool.free, pool.found(more), pool.found(whole)) == (3, 6, 8)
    pool.use(more)
    assert (pool.free, pool.found(whole), pool.loaded) == (0, 8, 0)
    pool.leave(begin)
    pool.leave(more)
    pool.give(4)
    pool.use(whole)
    assert (pool.free, pool.found(whole), pool.loaded, pool.is_whole) == (2, 8, 2, True)


def test_what_was_given_back_first_is_lost_first_and_the_begin_of_a_prompt_last():
    pool = BlockPool(10, 16)
    old, new = ((("old",), 64),), ((("new",), 64),)
    for pieces in (old, new):
        pool.use(pieces)
        pool.fill(pieces, 64)
        pool.leave(pieces)
    pool.take(4)  # two that nobody used yet, and two of the old ones
    assert (pool.found(old), pool.found(new)) == (2, 4)


def test_a_block_belongs_to_the_piece_in_which_it_ends():
    """Pieces of 24, 24 and 10 tokens in blocks of 16 hold 1, 2 and 0 whole blocks; ten tokens are left over."""
    pool = BlockPool(10, 16)
    pieces = (("a", 24), ("b", 24), ("c", 10))
    assert pool.sought(pieces) == (0, 3, 3)
    pool.use(pieces)
    assert pool.free == 7
    found = []
    for tokens in (0, 16, 31, 32, 58):  # a block is found once all of its tokens are computed
        pool.fill(pieces, tokens)
        found.append(pool.found(pieces))
    assert (found, pool.sought(pieces)) == ([0, 1, 1, 2, 3], (3, 0, 3))  # others share them while they are in use
    assert pool.sought((("a", 24), ("d", 40))) == (1, 3, 4)
    assert pool.found((("d", 40), ("a", 24))) == 0  # nothing is found after what is missing
    pool.use(pieces)
    pool.leave(pieces)
    assert pool.free == 7  # the other still uses them
    pool.leave(pieces)
    assert (pool.free, pool.found(pieces), pool.is_plain) == (10, 3, False)


def test_of_one_prompt_the_last_blocks_are_lost_first_and_what_is_left_is_used_again():
    pool = BlockPool(4, 16)
    pieces = (("a", 32), ("b", 32))
    pool.use(pieces)
    pool.fill(pieces, 64)
    pool.leave(pieces)
    pool.take(1)
    assert pool.found(pieces) == 3
    pool.give(1)
    assert pool.found(pieces) == 3
    pool.use(pieces)
    assert (pool.free, pool.is_whole) == (0, True)


def test_blocks_without_a_name_are_one_heap_as_long_as_no_others_come_between():
    pool = BlockPool(6, 16)
    pool.take(4)
    pool.give(0, "nothing")
    pool.give(1)
    pool.give(1)
    assert (pool.is_plain, list(pool.kept.values())) == (True, [4])
    pool.give(1, "named")
    pool.give(1)
    assert (pool.is_plain, list(pool.kept.values())) == (False, [4, 1, 1])
    pool.take(5)
    assert (pool.found((("named", 16),)), pool.free) == (0, 1)
    pool.refill(6)
    assert (pool.is_plain, pool.free, pool.used) == (True, 6, 0)


@pytest.mark.parametrize(
    "break_it",
    [
        lambda pool: setattr(pool, "free", pool.free - 1),
        lambda pool: pool.kept.update({"x": 0}),
        lambda pool: pool.kept.update({"x": -1, "y": 1}),
        lambda pool: pool._used.update({"x": [0, 1, 1]}),
        lambda pool: pool._used.update({"x": [1, 1, 2]}),
        lambda pool: pool._used.update({"x": [1, 1, -1]}),
        lambda pool: pool._used.update({"kept": [1, 2, 1]}),  # it goes on where its use ends, and is not all there
        lambda pool: pool._used.update({"below": [1, 2, 1]}),
        lambda pool: pool._lower[0].pieces.update({"below": 1}),
        lambda pool: (pool._lower[0].pieces.update({"below": 5}), setattr(pool._lower[0], "held", 5)),
    ],
)
def test_books_that_do_not_balance_are_seen(break_it):
    pool = BlockPool(10, 16, [Tier(blocks=4, load_s=1e-3)])
    pool.take(3)
    pool.give(2, "kept")
    pool._lower[0].put("below", 2)
    pool._used["used"] = [1, 2, 1]  # a prompt that is half read
    assert pool.is_whole
    break_it(pool)
    assert not pool.is_whole
