"""asyncio: spans of tasks that run in turns keep their own trees, and hand on to the tasks they start."""

import asyncio
import os
import subprocess
import sys
import threading

import pytest

from inferometer.core.codec import decode, encode
from inferometer.core.trace import Span, Trace
from inferometer.measure.spans import Measure, Profiler, Reservoir, Ring, from_trace, load, recorder
from unit.measure.spans.clocks import Ticking


def tree(profiler):
    spans = profiler.trace().spans
    return {
        (span.name, span.token): None if span.parent is None else (spans[span.parent].name, spans[span.parent].token)
        for span in spans
    }


@pytest.fixture(params=["from the start", "from the first that ends in a task", "the same without methods in C"])
def profiler(request, monkeypatch):
    if request.param == "the same without methods in C":
        monkeypatch.setattr(recorder, "methods_in_c", lambda: None)
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
    profiler = Profiler(enabled=True, clock=Ticking())

    async def request(number, turns):
        with profiler.span("request", token=number):
            for _ in range(turns):
                await step()

    async def main():
        await asyncio.gather(request(1, 6), request(2, 1), request(3, 3))

    asyncio.run(main())
    spans = profiler.trace().spans
    assert [span.token for span in sorted(spans, key=lambda span: span.start_ns)] == [1, 2, 3]
    assert [span.token for span in sorted(spans, key=lambda span: span.end_ns)] == [2, 3, 1]
    assert any("before tasks were followed" in note for note in profiler.recording().run.notes)


def test_spans_of_the_first_wave_of_tasks_are_placed_too(profiler):
    """All of them begin before the first one ends, and so before anyone knows of tasks."""

    async def request(number):
        with profiler.span("request", token=number):
            await step()
            with profiler.span("forward", token=number):
                for _ in range(5 - number):
                    await step()

    async def main():
        await asyncio.gather(*(request(number) for number in range(5)))

    asyncio.run(main())
    found = tree(profiler)
    assert all(found["forward", number] == ("request", number) for number in range(5))


@pytest.mark.parametrize("keep", [None, Ring(spans=100), Reservoir(spans=100)])
def test_tasks_are_found_however_spans_are_kept(tmp_path, keep):
    file = tmp_path / "run.spans" if keep is None else None
    profiler = Profiler(enabled=True, keep=keep, file=file)

    async def request(number):
        with profiler.span("request", token=number):
            await step()

    async def main():
        await asyncio.gather(*(request(number) for number in range(4)))

    asyncio.run(main())
    assert len({span.task for span in profiler.trace().spans}) == 4
    assert profiler.trace().dropped == 0
    if file is not None:
        profiler.close()
        assert len({span.task for span in load(file).trace().spans}) == 4


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


LATE = """
import sys
from inferometer.measure.spans import Profiler
p = Profiler(enabled=True)
assert "asyncio" not in sys.modules, "the profiler itself imports asyncio"
with p.span("before"):
    import asyncio
with p.span("after"):
    pass

async def request(number):
    with p.span("request", token=number):
        await asyncio.sleep(0)
        with p.span("forward", token=number):
            await asyncio.sleep(0)

async def main():
    with p.span("first"):
        pass
    await asyncio.gather(*(request(number) for number in range(3)))

asyncio.run(main())
spans = p.trace().spans
assert [span.name for span in spans[:3]] == ["before", "after", "first"]
inner = [span for span in spans if span.name == "forward"]
assert [spans[span.parent].token for span in inner] == [span.token for span in inner] == [0, 1, 2]
assert len({span.task for span in inner}) == 3
"""


def test_tasks_are_found_when_asyncio_is_imported_late():
    subprocess.run([sys.executable, "-c", LATE], check=True)


def test_a_span_says_its_process_and_task(profiler):
    async def work():
        with profiler.span("work"):
            await step()

    async def main():
        await work()
        await asyncio.gather(work(), work())

    asyncio.run(main())
    profiler.stop(profiler.start("request"))
    spans = profiler.trace().spans
    assert {span.process for span in spans} == {os.getpid()}
    assert len({span.task for span in spans if span.name == "work"}) == 3
    assert spans[-1].task == "callbacks 1"
    again = decode(encode(profiler.trace()), Trace)
    assert from_trace(again).trace().spans == spans


def test_tasks_named_otherwise_get_lanes_of_their_own():
    spans = tuple(
        Span(name="work", start_ns=number, end_ns=number + 9, task=task)
        for number, task in enumerate(("Task-7", "task 1", None, "Task-8"))
    )
    assert sorted(lane.task or 0 for lane in from_trace(Trace(spans=spans)).lanes) == [0, 1, 2, 3]


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
