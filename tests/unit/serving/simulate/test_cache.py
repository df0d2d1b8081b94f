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
        pool.leave(pieces)
    pool.take(4)  # two that nobody used yet, and two of the old ones
    assert (pool.found(old), pool.found(new)) == (2, 4)
