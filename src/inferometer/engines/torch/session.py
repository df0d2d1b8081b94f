"""Opens a model in PyTorch: the module `Engine.opener` names."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from inferometer.core.errors import DomainError, EngineError
from inferometer.core.notices import tell
from inferometer.engines.base import Stage
from inferometer.engines.host import threads_of
from inferometer.engines.torch.arrays import Arrays
from inferometer.engines.torch.engine import Threads, choose_place, import_torch
from inferometer.engines.torch.forward import Eager, Static
from inferometer.engines.torch.host import Host
from inferometer.engines.torch.modules import find_module
from inferometer.engines.torch.text import Text
from inferometer.known.engines import runtime_effects

if TYPE_CHECKING:
    from collections.abc import Callable

    from inferometer.core.engine import Execution
    from inferometer.engines.base import Session, Target, TextSession


def open_session(target: Target, name: str, *, clock: Callable[[], float] = time.perf_counter) -> Session | TextSession:
    first = clock()
    tell("importing PyTorch")
    torch = import_torch()
    if target.batch < 1:
        raise DomainError(f"A batch of {target.batch} was asked for; it holds at least 1.", remedy="Ask for 1.")
    if target.options:
        raise EngineError(
            f"PyTorch takes no options here; it was given {', '.join(sorted(target.options))}.",
            remedy="Leave them out.",
        )
    place, execution = choose_place(target, torch), runtime_effects(name).execution
    if execution == "captured" and not place.cuda:
        raise EngineError(
            f"CUDA graphs need a CUDA device; PyTorch would run on {place.device} here.",
            remedy="Choose torch-eager, or a machine with an NVIDIA GPU.",
        )
    threads = Threads(torch, threads_of(target.threads))
    try:
        build = find_module(target, place, torch)
        tell("loading the model")
        start = clock()
        module = build()
        if place.cuda:
            torch.cuda.synchronize(place.device)
        paid = (Stage(name="import", seconds=start - first), Stage(name="load", seconds=clock() - start))
        host = Host(
            torch=torch, target=target, place=place, module=module, threads=threads, paid=paid,
            execution=execution,
        )  # fmt: skip
    except BaseException:
        threads.close()
        raise
    try:
        return _session(host, execution)
    except BaseException:
        host.close()
        raise


def _session(host: Host, execution: Execution) -> Session | TextSession:
    if not host.target.text:
        return Arrays(host, execution=execution)
    if execution == "launched":
        return Text(host, Eager(host.module))
    with host.running("preparing the model"):
        return Text(host, Static(host, compiled=execution == "compiled"))
