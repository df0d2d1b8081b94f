"""Which slot a request goes to and what it finds there, worked out by hand for prompts of some hundred tokens."""

import pytest

from inferometer.serving.simulate.request import SimulatedRequest
from inferometer.serving.simulate.slots import Slots


class Server:
    """Slots that requests go through one after the other, each with a prompt of named pieces."""

    def __init__(self, count, away_tokens=float("inf")):
        self.slots, self.number = Slots(count, away_tokens), 0

    def begin(self, *pieces, answer=(), made=1):
        """The request, its slot, and how many tokens of its prompt are there already."""
        self.number += 1
        request = SimulatedRequest(self.number, 0.0, sum(size for _, size in pieces), made)
        request.pieces, request.answer = pieces, answer
        self.slots.note(request)
        found = self.slots.take(request)
        return request, self.slots.taken[request], found

    def serve(self, *pieces, **more):
        request, place, found = self.begin(*pieces, **more)
        self.slots.leave(request)
        return place, found


def test_slots_that_nobody_used_are_taken_from_the_last_and_then_the_one_that_is_idle_longest():
    server = Server(3)
    running = [server.begin((name, 100)) for name in "abc"]
    assert [(place, found) for _, place, found in running] == [(2, 0), (1, 0), (0, 0)]
    for order in (1, 2, 0):
        server.slots.leave(running[order][0])
    assert [server.begin((name, 100))[1] for name in "xyz"] == [1, 0, 2]


@pytest.mark.parametrize(("same", "place"), [(10, 0), (11, 1)])
def test_a_slot_is_followed_for_more_than_a_tenth_of_the_prompt(same, place):
    server = Server(2)
    assert server.serve(("a", 500))[0] == 1
    assert server.begin(("a", same), ("new", 100 - same))[1] == place


def test_of_two_slots_that_begin_alike_the_one_with_more_of_the_prompt_is_taken():
    server = Server(2)
    first, _, _ = server.begin(("shared", 40), ("x", 60))
    second, _, _ = server.begin(("shared", 40), ("y", 60))
    server.slots.leave(first)
    server.slots.leave(second)
    assert server.serve(("shared", 40), ("x", 60), ("more", 10)) == (1, 100)
    assert server.serve(("shared", 40), ("y", 60), ("more", 10)) == (0, 100)


def test_a_slot_holds_the_answer_too_but_for_its_last_token():
    server = Server(1)
    server.serve(("a", 100), answer=(("said", 20),), made=20)
    assert server.serve(("a", 100), ("said", 20), ("next", 30)) == (0, 119)


def test_a_request_that_waits_has_no_slot_to_leave():
    server = Server(1)
    server.begin(("a", 100))
    waiting = SimulatedRequest(9, 0.0, 50, 1)
    server.slots.note(waiting)
    server.slots.leave(waiting)
    assert len(server.slots.taken) == 1


@pytest.mark.parametrize(("room", "found"), [(200, 100), (199, 0)])
def test_the_prompt_that_was_put_away_first_gives_way_first(room, found):
    server = Server(1, away_tokens=room)
    server.serve(("a", 100))
    server.serve(("b", 100))
    assert server.serve(("a", 100)) == (0, found)  # b was put away meanwhile


@pytest.mark.parametrize(("same", "found"), [(24, 0), (25, 25)])
def test_a_quarter_of_a_prompt_that_was_put_away_is_worth_taking_back(same, found):
    server = Server(1)
    server.serve(("a", 100))
    server.serve(("b", 100))
    assert server.serve(("a", same), ("new", 300 - same)) == (0, found)


@pytest.mark.parametrize(("same", "found"), [(49, 100), (50, 50)])
def test_a_prompt_of_which_less_than_half_stays_is_put_away_whole(same, found):
    server = Server(1)
    server.serve(("a", 100))
    server.serve(("a", same), ("new", 10))
    server.serve(("b", 100))
    assert server.serve(("a", 100)) == (0, found)


def test_what_is_idle_is_put_away_when_another_request_begins():
    server = Server(2)
    server.serve(("a", 100))
    kept, _, _ = server.begin(("b", 100))
    assert server.begin(("c", 100))[1:] == (1, 0)  # in the slot of the first
    server.slots.leave(kept)
    assert server.begin(("a", 100))[1:] == (0, 100)  # in the other's, from the host's memory


def test_slots_that_write_side_by_side_are_rows():
    server = Server(6)
    for place in (5, 0, 1, 3, 2):
        server.slots.decoding.add(place)
    assert server.slots.rows() == [4, 1]
    assert Server(2).slots.rows() == []
