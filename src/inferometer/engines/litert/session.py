"""Opens a TFLite file: in LiteRT's interpreter for plain times, in its compiled model with the profiler for kernels."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from inferometer.core.errors import DomainError, EngineError, UnknownNameError
from inferometer.engines.host import threads_of
from inferometer.engines.litert.check import profiling_works
from inferometer.engines.litert.interpreter import PlainSession, open_interpreter
from inferometer.engines.litert.profiled import open_profiled

if TYPE_CHECKING:
    from collections.abc import Callable

    from inferometer.engines.base import Session, Target

_PROVIDERS = ("XNNPACK", "builtin")


def open_session(target: Target, name: str, *, clock: Callable[[], float] = time.perf_counter) -> Session:
    _check(target, name)
    threads = threads_of(target.threads)
    plain = open_interpreter(target, threads, clock=clock)
    if not target.instrument:
        return plain
    reason = _cannot(target, plain, threads)
    if reason is None:
        try:
            return open_profiled(target, plain, threads, clock=clock)
        except EngineError as error:
            reason = error.message
    plain.note(f"The time of each operator is not known: {reason}")
    return plain


def _cannot(target: Target, plain: PlainSession, threads: int) -> str | None:
    """Why the profiler is not used, or None."""
    if target.providers and target.providers != ("XNNPACK",):
        return f"LiteRT's profiler is read with XNNPACK only, and {', '.join(target.providers)} was asked for."
    return profiling_works(target.path, threads, plain.input_shapes())


def _check(target: Target, name: str) -> None:
    if target.text:
        raise DomainError(f"{name} opens models of arrays; a language model was asked for.")
    if not target.path.is_file():
        raise EngineError(
            f"{name} was given {str(target.path)!r}, which is no file.", remedy="Give the path of a TFLite file."
        )
    if target.unit is not None and target.unit.removesuffix(":0") != "cpu":
        raise EngineError(f"LiteRT has no unit {target.unit!r} here.", remedy="There is: cpu.")
    for option in target.options:
        raise UnknownNameError("option of LiteRT", option, (), listing="It has none: choose providers and threads.")
    for provider in target.providers:
        if provider not in _PROVIDERS and "." not in provider:
            raise UnknownNameError(
                "provider of LiteRT",
                provider,
                _PROVIDERS,
                listing=f"There are: {', '.join(_PROVIDERS)}, or the path of a delegate's library.",
            )
        if provider not in _PROVIDERS and not Path(provider).is_file():
            raise EngineError(f"There is no delegate's library {provider!r}.", remedy="Give the path of one.")
