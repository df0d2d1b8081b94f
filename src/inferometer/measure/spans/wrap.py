"""Functions with a span around every call: plain, async, generators and async generators.

A generator's span is opened anew each time it runs: what its consumer does between two items is not its time.
"""

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


def wrap(function: F, opened: Callable[[], AbstractContextManager[Any]]) -> F:
    """`opened` makes the span; it is asked at every call, so that switching the profiler on and off is seen."""
    if inspect.isasyncgenfunction(function):
        wrapped: Callable[..., Any] = _async_generator(function, opened)
    elif inspect.isgeneratorfunction(function):
        wrapped = _generator(function, opened)
    elif inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wrapped(*args: Any, **kwargs: Any) -> Any:
            with opened():
                return await function(*args, **kwargs)
    else:

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with opened():
                return function(*args, **kwargs)

    return cast("F", wrapped)


def _generator(
    function: Callable[..., Generator[Any, Any, Any]], opened: Callable[[], AbstractContextManager[Any]]
) -> Callable[..., Generator[Any, Any, Any]]:
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        inner = function(*args, **kwargs)
        step: Callable[[], Any] = functools.partial(next, inner)
        while True:
            with opened():
                item, ended = _stepped(step)
            if ended:
                return item
            try:
                sent = yield item
            except GeneratorExit:
                inner.close()
                raise
            except BaseException as error:  # noqa: BLE001 - whatever is thrown in goes to the generator itself
                step = functools.partial(inner.throw, error)
            else:
                step = functools.partial(inner.send, sent)

    return wrapped


def _stepped(step: Callable[[], Any]) -> tuple[Any, bool]:
    """An item, or what the generator returned: its end is no error, and must not mark the span as failed."""
    try:
        return step(), False
    except StopIteration as stop:
        return stop.value, True


def _async_generator(
    function: Callable[..., AsyncGenerator[Any, Any]], opened: Callable[[], AbstractContextManager[Any]]
) -> Callable[..., AsyncGenerator[Any, Any]]:
    @functools.wraps(function)
    async def wrapped(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        inner = function(*args, **kwargs)
        step: Callable[[], Any] = functools.partial(inner.asend, None)
        try:
            while True:
                with opened():
                    item, ended = await _async_stepped(step)
                if ended:
                    return
                try:
                    sent = yield item
                except GeneratorExit:
                    raise
                except BaseException as error:  # noqa: BLE001 - whatever is thrown in goes to the generator itself
                    step = functools.partial(inner.athrow, error)
                else:
                    step = functools.partial(inner.asend, sent)
        finally:
            await inner.aclose()

    return wrapped


async def _async_stepped(step: Callable[[], Any]) -> tuple[Any, bool]:
    try:
        return await step(), False
    except StopAsyncIteration:
        return None, True
