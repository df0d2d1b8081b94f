"""The paged cache of prompts: whatever is asked of it, its books balance."""

from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.serving.simulate.cache import BlockPool

_CHAINS = st.lists(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 100)), min_size=1, max_size=4), min_size=1, max_size=12
)


def _named(chain):
    """A piece's name holds what comes before it, as the names of blocks in traces do."""
    pieces, before = [], ()
    for name, size in chain:
        before = (*before, (name, size))
        pieces.append((before, size))
    return tuple(pieces)


@given(chains=_CHAINS, order=st.randoms(use_true_random=False))
@settings(max_examples=80, deadline=None)
def test_blocks_are_never_lost_nor_made(chains, order):
    pool = BlockPool(60, 16)
    under_way = []
    for chain in chains:
        pieces = _named(chain)
        while under_way and pool.needed(pieces) > pool.free:
            pool.leave(under_way.pop(order.randrange(len(under_way))))
        if pool.needed(pieces) <= pool.free:
            found = pool.found(pieces)
            assert pool.use(pieces) == found
            pool.fill(pieces, order.randrange(1 + sum(size for _, size in pieces)))
            under_way.append(pieces)
        assert pool.is_whole
    for pieces in under_way:
        pool.leave(pieces)
    assert pool.free == 60
    assert pool.is_whole


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
    assert (pool.needed(pieces), pool.found(pieces), pool.blocks_of(pieces)) == (3, 0, 3)
    assert pool.use(pieces) == 0
    assert pool.free == 7
    found = []
    for tokens in (0, 16, 31, 32, 58):  # a block is found once all of its tokens are computed
        pool.fill(pieces, tokens)
        found.append(pool.found(pieces))
    assert (found, pool.needed(pieces)) == ([0, 1, 1, 2, 3], 0)  # others share them while they are in use
    assert (pool.needed((("a", 24), ("d", 40))), pool.found((("a", 24), ("d", 40)))) == (3, 1)
    assert pool.found((("d", 40), ("a", 24))) == 0  # nothing is found after what is missing
    assert pool.use(pieces) == 3
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
    assert pool.use(pieces) == 3
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
