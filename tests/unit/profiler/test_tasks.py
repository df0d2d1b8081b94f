"""asyncio: spans of tasks that run in turns keep their own trees, and hand on to the tasks they start."""

import asyncio
import threading

import pytest

from inferometer.profiler import Measure, Profiler


def tree(profiler):
    spans = profiler.trace().spans
    return {
        (span.name, span.token): None if span.parent is None else (spans[span.parent].name, spans[span.parent].token)
        for span in spans
    }


@pytest.fixture(params=["from the start", "from the first that ends in a task"])
def profiler(request):
    return Profiler(enabled=True, measure=Measure(tasks=request.param == "from the start"))


async def step():
    """Let every other task run once."""
    await asyncio.sleep(0)


def test_tasks_that_take_turns_do_not_mix_their_spans(profiler):
    async def request(number):
        with profiler.span("request", token=number):
            await step()
            with profiler.span("forward", token=number):
                await step()

    async def main():
        with profiler.span("first"):
            pass
        await asyncio.gather(*(request(number) for number in range(5)))

    asyncio.run(main())
    found = tree(profiler)
    assert all(found["forward", number] == ("request", number) for number in range(5))
    assert all(found["request", number] is None for number in range(5))


def test_a_span_hands_on_to_the_tasks_started_inside_it(profiler):
    async def work(number):
        with profiler.span("work", token=number):
            await step()

    async def main():
        with profiler.span("first"):
            pass
        with profiler.span("batch"):
            await asyncio.gather(work(1), work(2))

    asyncio.run(main())
    found = tree(profiler)
    assert found["work", 1] == found["work", 2] == ("batch", None)


def test_a_span_hands_on_to_a_thread(profiler):
    def crunch():
        with profiler.span("crunch"):
            pass

    async def main():
        with profiler.span("first"):
            pass
        with profiler.span("request"):
            await asyncio.to_thread(crunch)

    asyncio.run(main())
    assert tree(profiler)["crunch", None] == ("request", None)


def test_the_span_around_the_loop_is_around_its_tasks(profiler):
    async def main():
        with profiler.span("inside"):
            await step()

    with profiler.span("all"):
        asyncio.run(main())
    assert tree(profiler)["inside", None] == ("all", None)


def test_durations_are_right_even_before_tasks_are_followed():
    """Spans that are open when the first one ends: each has its own start, whatever the order they end in."""
    profiler = Profiler(enabled=True)
    done = []

    async def request(number, turns):
        with profiler.span("request", token=number):
            for _ in range(turns):
                await step()
        done.append(number)

    async def main():
        await asyncio.gather(request(1, 6), request(2, 1), request(3, 3))

    asyncio.run(main())
    assert done == [2, 3, 1]
    by_token = {span.token: span.duration_s for span in profiler.trace().spans}
    assert by_token[1] > by_token[3] > by_token[2]
    assert any("before tasks were followed" in note for note in profiler.recording().run.notes)


def test_a_cancelled_task_ends_its_span(profiler):
    async def forever():
        with profiler.span("waiting"):
            await asyncio.Event().wait()

    async def main():
        task = asyncio.create_task(forever())
        await step()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert profiler.stats("waiting").failed == 1


def test_a_loop_in_another_thread_leaves_this_one_alone(profiler):
    ready, go = threading.Event(), threading.Event()

    async def busy():
        with profiler.span("other loop"):
            ready.set()
            go.wait()  # a task that blocks: asyncio counts it as running all the while

    thread = threading.Thread(target=lambda: asyncio.run(busy()))
    thread.start()
    ready.wait()
    with profiler.span("here"), profiler.span("inside"):
        pass
    go.set()
    thread.join()
    found = tree(profiler)
    assert found["inside", None] == ("here", None)
    assert found["here", None] is None


def test_a_profiler_made_inside_a_loop_follows_tasks_at_once():
    async def main():
        profiler = Profiler(enabled=True)

        async def work():
            with profiler.span("work"):
                await step()

        with profiler.span("batch"):
            await asyncio.gather(work())
        return tree(profiler)

    assert asyncio.run(main())["work", None] == ("batch", None)
