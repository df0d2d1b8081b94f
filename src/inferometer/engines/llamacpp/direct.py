"""A language model through llama.cpp's C functions: the engine's own loop, with nothing between."""

import codecs
import ctypes
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from inferometer.core.errors import DomainError, EngineError
from inferometer.core.frozen import frozen
from inferometer.engines.base import Event, Kernel, Opened, Request, Stage, Target
from inferometer.engines.feeding import alive, require_request
from inferometer.engines.host import threads_of
from inferometer.engines.llamacpp.library import (
    CACHE_TYPES,
    Devices,
    Library,
    LlamaBatch,
    LlamaOptions,
    Parameters,
    choose_devices,
    placed_by_log,
)
from inferometer.engines.llamacpp.nodes import NodeWatch, StepNodes

# One language model and its cache, driven token by token.

_NO_VOCABULARY = 0
_FAILURES = {1: "the cache has no room for the tokens", 2: "it was aborted", -1: "the batch is not valid"}
_PIECE = 512
_YES, _NO = True, False


@frozen
class Handles:
    """What has to be freed, and what has to outlive it."""

    library: Library
    model: int
    context: int
    keep: object
    watch: NodeWatch | None = None


class _Tokens:
    """A batch in memory of our own, filled in place."""

    def __init__(self, room: int) -> None:
        self.token = (ctypes.c_int32 * room)()
        self.position = (ctypes.c_int32 * room)()
        self.sequence = (ctypes.c_int32 * room)()
        self.wanted = (ctypes.c_int8 * room)()
        self._one = (ctypes.c_int32 * room)(*([1] * room))
        base = ctypes.addressof(self.sequence)
        self._places = (ctypes.c_void_p * room)(*(base + 4 * index for index in range(room)))
        self.batch = LlamaBatch(
            n_tokens=0,
            token=ctypes.addressof(self.token),
            pos=ctypes.addressof(self.position),
            n_seq_id=ctypes.addressof(self._one),
            seq_id=ctypes.addressof(self._places),
            logits=ctypes.addressof(self.wanted),
        )


class DirectSession:
    """A TextSession. With several sequences each reads the same prompt; events are those of one of them.

    A step with B sequences makes B tokens, and counts one: the time between two tokens of a sequence is what it is.
    """

    cost_per_kernel_s: float | None = None  # its timers cost next to nothing, or it has none

    opened: Opened

    def __init__(
        self,
        handles: Handles,
        *,
        held: int,
        sequences: int,
        seed: int,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        library = handles.library
        library.hold()  # until the end: the engine would print what it says meanwhile
        self._handles: Handles | None = handles
        self._library, self._context = library, handles.context
        self._held, self._sequences, self._seed = held, sequences, seed
        self._watch, self._clock = handles.watch, clock
        self._steps = StepNodes()
        self._pending: str | None = None
        self._vocabulary = library.llama_model_get_vocab(handles.model)
        self.vocabulary: int = library.llama_vocab_n_tokens(self._vocabulary)
        self._memory = library.llama_get_memory(handles.context)
        self._sampler = library.llama_sampler_init_greedy()
        # The graph of a pass lives until the next: to see every node, a watched pass is one that is computed at once.
        self._most = (
            library.llama_n_ubatch(handles.context) if handles.watch else library.llama_n_batch(handles.context)
        )
        self._tokens = _Tokens(self._most)
        self._piece = ctypes.create_string_buffer(_PIECE)

    def generate(self, request: Request) -> Iterator[Event]:
        require_request(request, vocabulary=self.vocabulary, room=self._held)
        alive(self._handles)
        return self._generated(request)

    def _generated(self, request: Request) -> Iterator[Event]:
        self._library.llama_memory_clear(self._memory, _YES)
        if request.depth:
            chosen = random.Random(self._seed)  # noqa: S311 - any tokens will do, the same each time
            filler = [chosen.randrange(self.vocabulary) for _ in range(request.depth)]
            for _, count in self._passes([filler] * self._sequences, 0):
                self._run(count, None)
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        ahead = [list(request.prompt) for _ in range(self._sequences)]
        cached, made = request.depth, 0
        while made < request.generate or cached == request.depth:
            phase = "decode" if made else "prefill"
            start = self._clock()
            ids, parts = self._step(ahead, cached, phase, sample=request.generate > 0)
            text = self._text(ids[:1], decoder, parts)
            end = self._clock()
            self._collect()
            tokens = len(ahead[0])
            yield Event(
                kind="token" if made else "prefill",
                start_ns=start,
                end_ns=end,
                tokens=tokens,
                context=cached,
                ids=tuple(ids[:1]),
                text=text,
                parts=parts,
            )
            cached, made, ahead = cached + tokens, made + 1, [[each] for each in ids]
            if not ids or (not request.ignore_end and self._library.llama_vocab_is_eog(self._vocabulary, ids[0])):
                return

    def _step(
        self, ahead: Sequence[Sequence[int]], at: int, phase: str, *, sample: bool
    ) -> tuple[list[int], dict[str, float]]:
        """Reads the tokens of every sequence, and gives the next one of each."""
        if self._watch is not None:
            self._steps.begin(phase)
        clock, ran, sampled = self._clock, 0, 0
        ids: list[int] = []
        for wanted, count in self._passes(ahead, at):
            start = clock()
            self._run(count, phase)
            middle = clock()
            if sample:
                ids += [self.choose(place) for place in wanted]
            ran, sampled = ran + middle - start, sampled + clock() - middle
        return ids, {"run": ran * 1e-9, **({"sample": sampled * 1e-9} if sample else {})}

    def choose(self, place: int = -1) -> int:
        """The likeliest token after one of the last pass: the last of them, or that at a place."""
        return int(self._library.llama_sampler_sample(self._sampler, self._context, place))

    def _passes(self, ahead: Sequence[Sequence[int]], at: int) -> Iterator[tuple[list[int], int]]:
        """Fills the batch, again and again: the places whose logits are wanted, and how many tokens it has."""
        tokens, wanted, count = self._tokens, [], 0
        for sequence, given in enumerate(ahead):
            last = len(given) - 1
            for index, token in enumerate(given):
                tokens.token[count], tokens.position[count] = token, at + index
                tokens.sequence[count], tokens.wanted[count] = sequence, index == last
                if index == last:
                    wanted.append(count)
                count += 1
                if count == self._most:
                    yield wanted, count
                    wanted, count = [], 0
        if count:
            yield wanted, count

    def _run(self, count: int, phase: str | None) -> None:
        self._collect()
        self._tokens.batch.n_tokens = count
        if self._watch is not None:
            self._watch.active = phase is not None
            self._pending = phase
        code = self._library.llama_decode(self._context, self._tokens.batch)
        self._library.llama_synchronize(self._context)
        if code:
            self._pending = None
            reason = _FAILURES.get(code, f"code {code}")
            raise EngineError(f"llama.cpp failed to compute {count} tokens: {reason}.")

    def _collect(self) -> None:
        """Looks at the nodes of the last pass, outside of what is timed."""
        if self._watch is not None and self._pending is not None:
            self._steps.add(self._pending, self._watch.take())
            self._pending = None

    def _text(self, ids: Sequence[int], decoder: codecs.IncrementalDecoder, parts: dict[str, float]) -> str | None:
        if not ids or self._library.llama_vocab_type(self._vocabulary) == _NO_VOCABULARY:
            return None
        start = self._clock()
        length = self._library.llama_token_to_piece(self._vocabulary, ids[0], self._piece, _PIECE, 0, _NO)
        text = decoder.decode(self._piece.raw[: max(0, length)])
        parts["detokenise"] = (self._clock() - start) * 1e-9
        return text

    def warm_up(self) -> None:
        """One token through the whole model, as llama.cpp's own tools do before they time anything."""
        self._tokens.token[0] = self._tokens.position[0] = self._tokens.sequence[0] = 0
        self._tokens.wanted[0] = 1
        self._run(1, None)
        self._library.llama_memory_clear(self._memory, _YES)

    def check_nodes(self) -> str | None:
        """Why nodes cannot be timed, or None. It runs a token with the watch on."""
        if self._watch is None:
            return f"{self._library.label} does not show where its callback is set"
        self._steps.begin("check")
        self._tokens.token[0] = self._tokens.position[0] = self._tokens.sequence[0] = 0
        self._tokens.wanted[0] = 1
        self._run(1, "check")
        self._collect()
        self._library.llama_memory_clear(self._memory, _YES)
        seen = self._steps.take().get("check", ())
        if self._watch.broken is None and not seen:
            return f"{self._library.label} did not call back"
        if self._watch.broken is not None:
            broken, self._watch = self._watch.broken, None
            return broken
        return None

    def score(self, ids: tuple[int, ...]) -> np.ndarray[Any, Any]:
        require_request(Request(prompt=ids, generate=0), vocabulary=self.vocabulary, room=self._held)
        alive(self._handles)
        self._library.llama_memory_clear(self._memory, _YES)
        found = np.empty((len(ids), self.vocabulary), np.float32)
        tokens = self._tokens
        for first in range(0, len(ids), self._most):
            given = ids[first : first + self._most]
            for index, token in enumerate(given):
                tokens.token[index], tokens.position[index] = token, first + index
                tokens.sequence[index], tokens.wanted[index] = 0, 1
            self._run(len(given), None)
            for index in range(len(given)):
                logits = self._library.llama_get_logits_ith(self._context, index)
                found[first + index] = np.ctypeslib.as_array(logits, (self.vocabulary,))
        return found

    def tokenise(self, text: str) -> tuple[int, ...]:
        self._with_vocabulary()
        raw = text.encode()
        room = len(raw) + 16
        while True:
            ids = (ctypes.c_int32 * room)()
            count = self._library.llama_tokenize(self._vocabulary, raw, len(raw), ids, room, _YES, _YES)
            if count >= 0:
                return tuple(ids[:count])
            room = -count

    def detokenise(self, ids: tuple[int, ...]) -> str:
        self._with_vocabulary()
        given, room = (ctypes.c_int32 * len(ids))(*ids), 16 * len(ids) + 16
        while True:
            text = ctypes.create_string_buffer(room)
            count = self._library.llama_detokenize(self._vocabulary, given, len(ids), text, room, _NO, _YES)
            if count >= 0:
                return text.raw[:count].decode(errors="replace")
            room = -count

    def _with_vocabulary(self) -> None:
        alive(self._handles)
        if self._library.llama_vocab_type(self._vocabulary) == _NO_VOCABULARY:
            raise DomainError("The file came without a vocabulary to make tokens of words.", remedy="Give token ids.")

    def kernels(self) -> Mapping[str, tuple[Kernel, ...]]:
        return self._steps.take()

    def close(self) -> None:
        if self._handles is not None:
            handles, self._handles = self._handles, None
            self._library.llama_sampler_free(self._sampler)
            self._library.llama_free(handles.context)
            self._library.llama_model_free(handles.model)
            self._library.release()


_DEFAULT_CONTEXT = 4096  # the whole of what a model was trained for may not fit into memory
_PACKAGES = {"xllamacpp": "xllamacpp", "llama_cpp": "llama-cpp-python"}


@frozen
class _Plan:
    """What was decided before anything is loaded."""

    target: Target
    options: LlamaOptions
    threads: int
    unit: str
    devices: Devices
    layers: int
    watch: NodeWatch | None


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
        watch=NodeWatch(library) if target.instrument and library.context.callback is not None else None,
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
    warnings = [f"llama.cpp says: {line}" for line in logged if "offloaded" not in line]
    session.opened = Opened(
        stages=(Stage(name="load", seconds=loaded - start), Stage(name="context", seconds=ready - loaded)),
        versions=_versions(library),
        threads=library.llama_n_threads(context),
        unit=unit,
        placed=placed,
        notes=(*_notes(plan, held, session), *fallen, *warnings),
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


def _versions(library: Library) -> dict[str, str]:
    package = _PACKAGES.get(library.label, library.label)
    try:
        installed = version(package)
    except PackageNotFoundError:
        installed = "unknown"
    features = (library.llama_print_system_info() or b"").decode().strip(" |")
    return {package: installed, **({"build": features} if features else {})}
