"""The decorator: functions, methods, async functions, generators and async generators."""

import asyncio
import inspect

import pytest

from inferometer.measure.spans import Profiler
from unit.measure.spans.clocks import Manual


@pytest.fixture
def clock():
    return Manual()


@pytest.fixture
def profiler(clock):
    return Profiler(enabled=True, clock=clock)


def test_a_function_keeps_its_name_and_its_result(profiler):
    @profiler.wrap
    def forward(x, *, scale=2):
        """Once through."""
        return x * scale

    assert forward(3, scale=5) == 15
    assert forward.__doc__ == "Once through."
    (name,) = profiler.recording().names()
    assert name.endswith("forward")


def test_a_name_and_facts_can_be_given(profiler):
    @profiler.wrap(name="forward", unit="gpu", flops=10.0)
    def anything():
        pass

    anything()
    assert profiler.stats("forward").flops == 10.0
    assert profiler.trace().spans[0].unit == "gpu"


def test_a_method_is_as_good_as_a_function(profiler):
    class Model:
        @profiler.wrap(name="forward")
        def forward(self, x):
            return x + 1

    assert Model().forward(1) == 2
    assert profiler.stats("forward").count == 1


def test_an_async_function_is_timed_until_it_returns(profiler, clock):
    @profiler.wrap(name="fetch")
    async def fetch():
        clock.pass_ms(2)
        await asyncio.sleep(0)
        clock.pass_ms(3)
        return "done"

    assert inspect.iscoroutinefunction(fetch)
    assert asyncio.run(fetch()) == "done"
    assert profiler.stats("fetch").total_s == pytest.approx(5e-3, abs=1e-6)


def test_a_generators_consumer_is_not_its_time(profiler, clock):
    @profiler.wrap(name="stream")
    def stream():
        for token in range(3):
            clock.pass_ms(1)
            yield token
        return "end"

    for _ in stream():
        clock.pass_ms(50)
    assert profiler.stats("stream").count == 4  # three tokens, and the run to the end
    assert profiler.stats("stream").total_s == pytest.approx(3e-3, abs=1e-6)
    assert profiler.stats("stream").failed == 0


def test_a_generator_can_be_sent_to_thrown_into_and_closed(profiler):
    seen = []

    @profiler.wrap(name="stream")
    def stream():
        try:
            while True:
                try:
                    seen.append((yield len(seen)))
                except KeyError:
                    seen.append("thrown")
        finally:
            seen.append("closed")

    generator = stream()
    assert next(generator) == 0
    assert generator.send("sent") == 1
    assert generator.throw(KeyError) == 2
    generator.close()
    assert seen == ["sent", "thrown", "closed"]
    assert profiler.stats("stream").failed == 0


def test_a_generators_return_value_comes_through(profiler):
    @profiler.wrap
    def inner():
        yield 1
        return "value"

    def outer():
        return (yield from inner())

    generator = outer()
    next(generator)
    with pytest.raises(StopIteration) as stop:
        next(generator)
    assert stop.value.value == "value"


def test_a_generator_that_fails_is_marked_once(profiler):
    @profiler.wrap(name="stream")
    def stream():
        yield 1
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        list(stream())
    assert (profiler.stats("stream").count, profiler.stats("stream").failed) == (2, 1)


def test_an_async_generator_is_timed_while_it_runs(profiler, clock):
    closed = []

    @profiler.wrap(name="stream")
    async def stream():
        try:
            for token in range(2):
                clock.pass_ms(1)
                yield token
        finally:
            closed.append(True)

    async def consume():
        found = []
        async for token in stream():
            clock.pass_ms(50)
            found.append(token)
        return found

    assert asyncio.run(consume()) == [0, 1]
    assert closed
    assert profiler.stats("stream").total_s == pytest.approx(2e-3, abs=1e-6)


def test_an_async_generator_takes_what_is_sent_and_thrown(profiler):
    @profiler.wrap
    async def echo():
        said = None
        while True:
            try:
                said = yield said
            except KeyError:
                said = "thrown"

    async def talk():
        generator = echo()
        await generator.asend(None)
        found = [await generator.asend("hello"), await generator.athrow(KeyError)]
        await generator.aclose()
        return found

    assert asyncio.run(talk()) == ["hello", "thrown"]


def test_a_wrapped_function_sees_the_profiler_being_switched(profiler):
    @profiler.wrap(name="forward")
    def forward():
        pass

    profiler.enabled = False
    forward()
    profiler.enabled = True
    forward()
    assert profiler.stats("forward").count == 1
