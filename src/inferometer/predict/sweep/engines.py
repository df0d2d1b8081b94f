"""Where chunks are computed: in this process, in several of this machine, or on a Dask cluster.

An engine takes chunks and gives back what they became, in their order, with no more than a few under way at a time, so
that memory does not grow with the grid. A chunk becomes the same wherever it is computed.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any

from inferometer.core.errors import DomainError, InferometerError, MissingDependencyError
from inferometer.core.frozen import frozen
from inferometer.predict.sweep.evaluate import evaluate_chunk
from inferometer.predict.sweep.grid import Study, SweepChunk
from inferometer.predict.sweep.sinks import ENCODERS
from inferometer.predict.sweep.table import impossible_in

ENGINES = "local (this process), local:N (N processes, with this one), dask://HOST:PORT"
_AHEAD = 2  # chunks under way for each worker: one that is computed, one that waits
# New values after which a sweep looks for cycles that nobody holds: graphs and prices have none, and looking every
# 700, as Python does, is a sixth of the time that counting a thousand networks takes.
NEW_VALUES = 50_000
_ANSWER_S = 5.0  # that a scheduler has to answer; it may be starting


@frozen
class Done:
    """What a chunk became: its parts, or runs of them in a form; and how many of its rows cannot be."""

    payload: Any
    rows: int
    impossible: int


def work(study: Study, chunk: SweepChunk, form: str | None) -> Done:
    """A chunk computed and, where a form is given, encoded while its payload is walked through."""
    parts = evaluate_chunk(study, chunk)
    return Done(
        payload=parts if form is None else ENCODERS[form](parts),
        rows=chunk.rows,
        impossible=sum(impossible_in(part) for part in parts),
    )


def work_whole(study: Study, chunk: SweepChunk, form: str | None) -> Done:
    """… with all of its payload made, so that it can travel."""
    done = work(study, chunk, form)
    return replace(done, payload=[*done.payload])


Run = Callable[[Iterable[SweepChunk], str | None], Iterator[Done]]


@contextmanager
def engine_for(address: str, study: Study) -> Iterator[Run]:
    """The engine of that name, for as long as it is needed."""
    if address.startswith("dask://"):
        with _dask(address.removeprefix("dask://")) as (client, threads):
            sent = client.scatter(study, broadcast=True, hash=False)

            def run(chunks: Iterable[SweepChunk], form: str | None) -> Iterator[Done]:
                def submit(chunk: SweepChunk) -> Any:
                    return client.submit(work_whole, sent, chunk, form, pure=False)

                yield from _in_order(submit, chunks, _AHEAD * threads)

            yield run
    elif (processes := _process_count(address)) == 1:
        yield lambda chunks, form: (work(study, chunk, form) for chunk in chunks)
    else:
        # This process is one of them: what it computes itself travels nowhere.
        with _processes(processes - 1, study) as submit:
            started = submit(_is_begun)

            def shared(chunks: Iterable[SweepChunk], form: str | None) -> Iterator[Done]:
                left = iter(chunks)
                while not started.done() and (chunk := next(left, None)) is not None:
                    yield work(study, chunk, form)
                yield from _in_order(
                    lambda chunk: submit(_work_here, chunk, form),
                    left,
                    _AHEAD * (processes - 1),
                    here=lambda chunk: work(study, chunk, form),
                )

            yield shared


Spread = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]


@contextmanager
def spread_over(address: str) -> Iterator[Spread]:
    """A `map` whose calls run on the engine of that name, for as long as it is needed; results come in their order."""
    if address.startswith("dask://"):
        with _dask(address.removeprefix("dask://")) as (client, threads):
            yield lambda function, items: _in_order(
                lambda item: client.submit(function, item, pure=False), items, _AHEAD * threads
            )
    elif (processes := _process_count(address)) == 1:
        yield map
    else:
        with _processes(processes, None) as submit:
            yield lambda function, items: _in_order(lambda item: submit(function, item), items, _AHEAD * processes)


def _process_count(address: str) -> int:
    kind, _, rest = address.partition(":")
    if kind != "local" or (rest and not rest.isdecimal()):
        raise DomainError(f"There is no engine {address!r}.", remedy=f"Engines are: {ENGINES}.")
    if not (processes := int(rest or 1)):
        raise DomainError("An engine has one process or more.", remedy=f"Engines are: {ENGINES}.")
    return processes


def _in_order(
    submit: Callable[[Any], Any], items: Iterable[Any], most: int, *, here: Callable[[Any], Any] | None = None
) -> Iterator[Any]:
    """Results in the order of the items, with no more than `most` under way.

    `here` computes one in this process, while there are enough under way and the next one is not done.
    """
    from concurrent.futures import BrokenExecutor, Future  # noqa: PLC0415 - one process does without

    waiting: deque[Any] = deque()
    try:
        for item in items:
            if here is None or sum(not each.done() for each in waiting) < most:
                waiting.append(submit(item))
            else:
                own: Future[Any] = Future()
                own.set_result(here(item))
                waiting.append(own)
            # Of what was computed here no more stands waiting for its turn than is under way elsewhere.
            while len(waiting) >= most and (here is None or waiting[0].done() or len(waiting) >= 2 * most):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenExecutor:
        raise InferometerError(
            "A worker process ended before its time: no memory, killed, or begun by a script without a main part.",
            remedy="Use fewer processes, or put the call under `if __name__ == '__main__':`.",
        ) from None
    finally:
        for future in waiting:
            future.cancel()


# ── several processes ────────────────────────────────────────────────────────────────────────────────────────────────

_study: Study | None = None  # of a worker process: sent once, so that its graphs stay the same objects


@contextmanager
def _processes(count: int, study: Study | None) -> Iterator[Callable[..., Any]]:
    """`submit` of a pool of processes."""
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - most do without
    from multiprocessing import get_context  # noqa: PLC0415 - as above

    pool = ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=_begin, initargs=(study,))
    try:
        with _interrupts_held():
            pool.submit(_is_begun)  # starts them
        yield pool.submit
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C waits. Processes that start meanwhile never see it, not even before `_begin`; this one sees it after."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(study: Study | None) -> None:
    """A worker leaves Ctrl-C to its parent, and does not outlive it."""
    global _study  # noqa: PLW0603 - a worker process has one study for all of its life
    _study = study
    gc.set_threshold(NEW_VALUES)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    from multiprocessing import connection, parent_process  # noqa: PLC0415 - as above

    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _is_begun() -> bool:
    return _study is not None


def _work_here(chunk: SweepChunk, form: str | None) -> Done:
    if _study is None:
        raise RuntimeError("the worker was not begun")
    return work_whole(_study, chunk, form)


# ── a Dask cluster ───────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _dask(address: str) -> Iterator[tuple[Any, int]]:
    """A client of the cluster, and how many threads its workers have."""
    try:
        distributed = import_module("distributed")
    except ImportError:
        raise MissingDependencyError(
            "The engine dask:// needs dask.distributed, which is not installed.",
            remedy="pip install 'inferometer[dask]'",
        ) from None
    try:
        client = distributed.Client(f"tcp://{address}", set_as_default=False, timeout=_ANSWER_S)
    except (OSError, ValueError, TimeoutError) as error:
        raise InferometerError(
            f"No Dask scheduler answers at {address}: {error}.",
            remedy="Start one with `dask scheduler`, and workers with `dask worker HOST:PORT`.",
        ) from None
    with client:
        threads = sum(client.nthreads().values())
        if not threads:
            raise InferometerError(f"The Dask scheduler at {address} has no workers.", remedy="Start `dask worker`.")
        yield client, threads
