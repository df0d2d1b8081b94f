"""Opens a model in PyTorch: the module `Engine.opener` names."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from inferometer.errors import DomainError, EngineError
from inferometer.runtimes.base import Stage
from inferometer.runtimes.host import threads_of
from inferometer.runtimes.torch.arrays import Arrays
from inferometer.runtimes.torch.engine import Threads, choose_place, import_torch
from inferometer.runtimes.torch.forward import Compiled, Eager
from inferometer.runtimes.torch.host import Host
from inferometer.runtimes.torch.modules import find_module
from inferometer.runtimes.torch.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable

    from inferometer.runtimes.base import Session, Target, TextSession

__all__ = ["open_session"]


def open_session(target: Target, name: str, *, clock: Callable[[], float] = time.perf_counter) -> Session | TextSession:
    first = clock()
    torch = import_torch()
    if target.batch < 1:
        raise DomainError(f"A batch of {target.batch} was asked for; it holds at least 1.", remedy="Ask for 1.")
    if target.options:
        raise EngineError(
            f"PyTorch takes no options here; it was given {', '.join(sorted(target.options))}.",
            remedy="Leave them out.",
        )
    place, compiled = choose_place(target, torch), name == "torch-compile"
    threads = Threads(torch, threads_of(target.threads))
    try:
        build = find_module(target, place, torch)
        start = clock()
        module = build()
        if place.cuda:
            torch.cuda.synchronize(place.device)
        paid = (Stage(name="import", seconds=start - first), Stage(name="load", seconds=clock() - start))
        host = Host(
            torch=torch, target=target, place=place, module=module, threads=threads, paid=paid, compiled=compiled
        )
    except BaseException:
        threads.close()
        raise
    try:
        return _session(host, compiled=compiled)
    except BaseException:
        host.close()
        raise


def _session(host: Host, *, compiled: bool) -> Session | TextSession:
    target = host.target
    if not target.text:
        return Arrays(host, compiled=compiled)
    if not compiled:
        return Text(host, Eager(host.module))
    with host.running("compiling the model"):
        return Text(host, Compiled(host))
