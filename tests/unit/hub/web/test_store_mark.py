"""What tells a hub that a list has changed: many ask at once, and a server is asked no more often than it must be."""

import asyncio
import threading
from types import SimpleNamespace

from inferometer.hub.web.guard.security import StoreMark


class Server:
    """A store that takes its time to answer: until it is told to."""

    location = SimpleNamespace(file=None)

    def __init__(self):
        self.asked, self.answers = 0, threading.Semaphore(0)

    def mark(self):
        self.asked += 1
        asked = self.asked
        assert self.answers.acquire(timeout=120)
        return asked


async def until(condition):
    while not condition():  # noqa: ASYNC110 - it is a thread that is waited for
        await asyncio.sleep(0.001)


def test_who_comes_while_a_question_is_under_way_waits_for_the_next_and_shares_it():
    async def play():
        store = Server()
        mark = StoreMark(store)
        first = asyncio.create_task(mark.now())
        await until(lambda: store.asked == 1)  # on its way: something may be written that it does not see any more
        others = [asyncio.create_task(mark.now()) for _ in range(50)]
        store.answers.release(2)
        return await first, set(await asyncio.gather(*others)), store.asked

    assert asyncio.run(play()) == (1, {2}, 2)


def test_a_question_that_was_given_up_answers_nobody():
    async def play():
        store = Server()
        mark = StoreMark(store)
        first, other = asyncio.create_task(mark.now()), asyncio.create_task(mark.now())
        await until(lambda: store.asked == 1)
        first.cancel()
        store.answers.release(2)
        return await other, store.asked

    assert asyncio.run(play()) == (2, 2)
