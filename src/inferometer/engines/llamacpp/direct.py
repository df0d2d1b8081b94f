"""A language model through llama.cpp's C functions: the engine's own loop, with nothing between."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from inferometer.core.errors import EngineError
from inferometer.engines.base import Opened, Stage, Target
from inferometer.engines.host import threads_of
from inferometer.engines.llamacpp.generation import DirectSession, Handles
from inferometer.engines.llamacpp.observe import Watch
from inferometer.engines.llamacpp.options import CACHE_TYPES, LlamaOptions
from inferometer.engines.llamacpp.placing import Devices, choose_devices, placed_by_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from inferometer.engines.llamacpp.library import Library, Parameters

_DEFAULT_CONTEXT = 4096  # the whole of what a model was trained for may not fit into memory
_PACKAGES = {"xllamacpp": "xllamacpp", "llama_cpp": "llama-cpp-python"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What was decided before anything is loaded."""

    target: Target
    options: LlamaOptions
    threads: int
    unit: str
    devices: Devices
    layers: int
    watch: Watch | None


def open_direct(
    target: Target, options: LlamaOptions, library: Library, *, clock: Callable[[], float] = time.perf_counter
) -> DirectSession:
    library.llama_backend_init()
    unit, devices, layers = choose_devices(target.unit, options.layers, library.devices())
    plan = _Plan(
        target=target,
        options=options,
        threads=threads_of(target.threads),
        unit=unit,
        devices=devices,
        layers=layers,
        watch=Watch(library) if target.instrument and library.context.callback is not None else None,
    )
    with library.listening() as lines:
        start = clock()
        model = _load(library, plan)
        loaded = clock()
        try:
            context, held = _context(library, plan, model)
        except BaseException:
            library.llama_model_free(model)
            raise
        ready = clock()
        logged = tuple(lines)
    handles = Handles(library=library, model=model, context=context, keep=devices, watch=plan.watch)
    session = DirectSession(handles, held=held, sequences=target.batch, seed=target.seed)
    placed, fallen = placed_by_log(logged, library.llama_model_n_layer(model) + 1, unit)
    session.opened = Opened(
        stages=(Stage(name="load", seconds=loaded - start), Stage(name="context", seconds=ready - loaded)),
        versions=_versions(library),
        threads=library.llama_n_threads(context),
        unit=unit,
        placed=placed,
        notes=(*_notes(plan, held, session), *fallen, *_warnings(logged)),
    )
    if options.warmup:
        session.warm_up()
    return session


def _load(library: Library, plan: _Plan) -> int:
    target = plan.target
    parameters = library.llama_model_default_params()
    fields = library.model
    parameters.put(fields.layers, plan.layers)
    parameters.put(fields.devices, ctypes.addressof(plan.devices), size=8)
    model = library.llama_model_load_from_file(str(target.path).encode(), parameters)
    if not model:
        raise _refused(target, library.lines)
    if library.llama_model_has_encoder(model):
        library.llama_model_free(model)
        raise EngineError(
            f"{str(target.path)!r} has an encoder; only models that go on from a prompt are generated with here."
        )
    handle: int = model
    return handle


def _context(library: Library, plan: _Plan, model: int) -> tuple[int, int]:
    """The context, and how many tokens each sequence of it holds."""
    target, threads = plan.target, plan.threads
    held = target.context or min(_DEFAULT_CONTEXT, library.llama_model_n_ctx_train(model) or _DEFAULT_CONTEXT)
    context = library.llama_init_from_model(model, _parameters(library, plan, held))
    if not context:
        raise _refused(target, library.lines)
    library.llama_set_n_threads(context, threads, threads)
    room = library.llama_n_ctx(context) // library.llama_n_seq_max(context)
    if library.llama_n_threads(context) != threads or library.llama_n_seq_max(context) < target.batch or room < held:
        library.llama_free(context)
        raise EngineError(
            f"llama.cpp was asked for {held:,} tokens of context in {target.batch} sequences on {threads} threads, "
            f"and gave {room:,}."
        )
    return context, held


def _parameters(library: Library, plan: _Plan, held: int) -> Parameters:
    parameters: Parameters = library.llama_context_default_params()
    fields, options = library.context, plan.options
    type_v = None if fields.type_k is None else fields.type_k + 4
    for at, value in (
        (fields.context, held * plan.target.batch),
        (fields.batch, options.batch),
        (fields.ubatch, options.ubatch),
        (fields.sequences, plan.target.batch),
        (fields.threads, plan.threads),
        (fields.threads + 4, plan.threads),
    ):
        parameters.put(at, value)
    for name, place, value, default in (
        ("flash_attention", fields.flash, options.flash, -1),
        ("type_k", fields.type_k, CACHE_TYPES[options.type_k], 1),
        ("type_v", type_v, CACHE_TYPES[options.type_v], 1),
    ):
        if place is not None:
            parameters.put(place, value)
        elif value != default:
            raise EngineError(f"{library.label} does not show where its {name} is set.", remedy=f"Leave out {name}.")
    if plan.watch is not None and fields.callback is not None:
        parameters.put(fields.callback, plan.watch.address(), size=8)
    return parameters


def _refused(target: Target, lines: list[str]) -> EngineError:
    reason = "; ".join(line.rstrip(".") for line in lines if line) or "it gave no reason"
    return EngineError(
        f"llama.cpp refused {str(target.path)!r}: {reason}.",
        remedy="Check that the file is whole, and that this release of llama.cpp knows its architecture.",
    )


def _notes(plan: _Plan, held: int, session: DirectSession) -> list[str]:
    target, notes = plan.target, []
    if plan.unit == "cpu":
        notes.append("The weights are mapped from the file: the first pass reads them in.")
    if target.context is None:
        notes.append(f"The cache holds {held:,} tokens, because no context was asked for.")
    if target.instrument:
        broken = session.check_nodes()
        notes.append(
            "Nodes are timed by stopping after each one, which a plain run does not; views run with what follows them."
            if broken is None
            else f"The time of each node is not known: {broken}."
        )
    return notes


def _warnings(lines: tuple[str, ...]) -> list[str]:
    return [f"llama.cpp says: {line}" for line in lines if "offloaded" not in line]


def _versions(library: Library) -> dict[str, str]:
    package = _PACKAGES.get(library.label, library.label)
    try:
        installed = version(package)
    except PackageNotFoundError:
        installed = "unknown"
    features = (library.llama_print_system_info() or b"").decode().strip(" |")
    return {package: installed, **({"build": features} if features else {})}
