"""One pass of a language model with its cache: as transformers runs by default, and with a cache of fixed size.

Both read a prompt (`read`) and take a token (`token`), and leave the work on the device. By default they give the
logits of the last position. A cache of fixed size is what torch.compile and CUDA graphs need, and there a step is
written as production loops write it: it takes the token that the step before it left on the device, chooses the next
one, and sends it to the host's pinned memory, all in one launch. Compiled, such a step is captured once on a GPU and
replayed; not compiled, a prompt is too.
"""

from __future__ import annotations

import inspect
import time
from contextlib import nullcontext
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import EngineError
from inferometer.core.notices import tell
from inferometer.engines.base import Stage
from inferometer.engines.torch.capture import (
    Calls,
    as_captured,
    capture_graph,
    kept_constants,
    kernels_in_order,
    looks_at_values,
)
from inferometer.engines.torch.engine import import_transformers
from inferometer.engines.torch.host import TorchHost, compiled_apart, compiled_folder, kept_graphs
from inferometer.engines.torch.kernels import align_layers, map_calls
from inferometer.engines.torch.provenance import compiler_calls
from inferometer.engines.torch.trace import TraceRow, mark_modules

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from inferometer.engines.torch.modules import Module
    from inferometer.engines.torch.seq2seq import Seq2Seq

COUNTED = frozenset({"CountedLayer", "RingLayer"})  # layers of a cache that are counted on the device
_DOING = {
    "compile decode": "compiling the decode step",
    "compile prefill": "compiling the prefill",
    "compile encode": "compiling the encoder",
    "capture": "capturing the decode step",
    "capture encode": "capturing the encoder",
    "capture prefill": "capturing the prefill",
}


class Eager:
    """The cache grows with each token, as in `generate()`."""

    stages: tuple[Stage, ...] = ()
    notes: tuple[str, ...] = ()
    captured = False
    samples = False  # a pass ends with logits

    def __init__(self, module: Module, seq2seq: Seq2Seq | None = None) -> None:
        self._model: Any = seq2seq or module.model
        takes = seq2seq.takes if seq2seq else frozenset(inspect.signature(module.model.forward).parameters)
        self._seq2seq: Any = seq2seq
        self._cache_name = "past_key_values" if "past_key_values" in takes else "cache_params"
        self._last = {"logits_to_keep": 1} if "logits_to_keep" in takes else {}
        self._cache: Any = None

    def prepare(self, *, prompt: int, depth: int, needed: int) -> None:
        pass

    def encode(self, source: Any) -> None:
        self._seq2seq.encode(source)

    prepare_encoder = encode

    def reset(self) -> None:
        self._cache = None

    def read(self, ids: Any) -> Any:
        cache = {} if self._cache is None else {self._cache_name: self._cache}
        out = self._model(input_ids=ids, use_cache=True, **cache, **self._last)
        self._cache = getattr(out, self._cache_name)
        return out.logits[:, -1]

    fill = token = read

    def score(self, ids: Any) -> Any:
        return self._model(input_ids=ids, use_cache=False).logits

    def settled(self) -> None:
        pass

    def mapped(self, _phase: str, rows: Sequence[TraceRow]) -> Sequence[TraceRow]:
        return rows


class Static:
    """`capacity` tokens fit the cache: the context asked for, else just what a generation needs.

    `compiled` runs through torch.compile; else the model runs op by op, and every pass is captured in a CUDA graph.
    """

    samples = True  # a pass ends with the likeliest token of each sequence; one that is captured also sends it

    def __init__(
        self,
        host: TorchHost,
        *,
        compiled: bool,
        capture: Callable[..., tuple[Callable[[], None], Any]] = capture_graph,
        clock: Callable[[], float] = time.perf_counter,
        seq2seq: Seq2Seq | None = None,
    ) -> None:
        self._torch, self._module, self._place = host.torch, host.module, host.place
        self._seq2seq, self._encoders = seq2seq, dict[Any, Any]()  # by the shape of what is encoded
        self._compiled, self._capture = compiled, capture
        self._constants = None if compiled else kept_constants(self._torch.device(self._place.device).type)
        self._batch, self._context, self._watched = host.target.batch, host.target.context, host.watched
        self._timers = host.recorder.on
        self._model, self._clock = host.module.model, clock
        self._call: Any = seq2seq or self._model
        self._takes = seq2seq.takes if seq2seq else frozenset(inspect.signature(self._model.forward).parameters)
        self._capacity, self._prefills, self._length = 0, dict[tuple[int, bool], Any](), 0
        self._cache: Any = None
        self._joined: Any = None  # with what a decoder reads of its encoder
        self._masked: dict[str, Any] = {}  # a mask of the whole cache, for a model that needs one
        self._decode: Any = None
        self._replay: Callable[[], None] | None = None  # of a decode step
        self._landing = host.landing
        self._calls: dict[str, Calls] = {}  # listed by the compiler, by phase
        self._reference: dict[str, Calls] = {}  # of a pass that is not captured, by phase
        self._unreferred: dict[str, Callable[[], Any]] = {}  # passes whose kernels are still to be recorded
        self._refers = False
        self._paid: dict[str, float] = {}
        self._noted: dict[str, None] = {}
        self._graphs = 0
        self._token = self._torch.zeros((self._batch, 1), dtype=self._torch.long, device=self._place.device)
        self._position = self._torch.zeros_like(self._token)
        self._filled = self._torch.zeros((), dtype=self._torch.long, device=self._place.device)
        self._kept = self._torch.zeros_like(self._filled)  # tokens in the cache, as all of its layers count them
        if self._context is not None and seq2seq is None:  # what a decoder reads of its encoder is not there yet
            self._prepare_decode(self._context)

    @property
    def stages(self) -> tuple[Stage, ...]:
        return tuple(Stage(name=name, seconds=seconds) for name, seconds in self._paid.items())

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self._noted)

    @property
    def captured(self) -> bool:
        return self._replay is not None

    def prepare(self, *, prompt: int, depth: int, needed: int) -> None:
        """Compile or capture what a generation of this shape runs, before its clock starts."""
        capacity, deep = self._context or needed, depth > 0
        if capacity != self._capacity or (
            deep and any(type(layer).__name__ == "RingLayer" for layer in self._cache.layers)
        ):
            self._prepare_decode(capacity, deep=deep)
        if (prompt, deep) not in self._prefills:
            ids = self._torch.zeros((self._batch, prompt), dtype=self._torch.long, device=self._place.device)
            empty = self._compiled and self._counts_on_device() and not deep and self._seq2seq is None
            run = self._maybe_compiled(self._unmasked_prompt() if empty else self._prompt())
            if self._compiled:
                run = self._compiled_prompt(run, ids)
            elif self._captures():
                replay, _ = self._recorded("capture prefill", "prefill", partial(run, ids))
                run = self._replayed(replay, ids)
            self._prefills[prompt, deep] = run
            self.reset()

    def _compiled_prompt(self, run: Any, ids: Any) -> Any:
        """Compiled, and once more without the step of the compiler that fails on some prompts.

        PyTorch 2.11 asserts that each kernel whose loops it may reorder is a single one, which the copy of all keys and
        values is not.
        """

        def compiled(run: Any) -> Any:
            self._timed("compile prefill", "prefill", lambda: self._warm(partial(run, ids), 2))
            return run

        try:
            return compiled(run)
        except import_module("torch._inductor.exc").InductorError:
            self._noted["Prompts are compiled without reordered loops, on which this PyTorch fails."] = None
            with import_module("torch._inductor.config").patch(loop_ordering_after_fusion=False):
                return compiled(run)

    def reset(self) -> None:
        if self._cache is not None:
            self._cache.reset()
        for each in (self._filled, self._kept, self._token, self._position):
            each.zero_()
        self._length = 0
        self._graphs = self._compilations()

    def refer(self) -> None:
        """Record which kernels are whose, now and of passes that are prepared later: a replay does not show modules.

        Not before the steps that count: a process that has recorded once launches graphs and kernels more slowly from
        then on, 0.3 to 0.6 µs a kernel of a graph, which is a tenth of a decode step.
        """
        self._refers = True
        while self._unreferred:
            phase, call = self._unreferred.popitem()
            self._warm(call, 1)
            self.reset()
            marks = nullcontext() if self._compiled else mark_modules(self._torch, self._model)
            with marks:
                self._reference[phase] = kernels_in_order(self._torch, call, self._calls.get(phase, ()))
            self.reset()

    def settled(self) -> None:
        """A generation has ended: note where a step had to compile once more, for its time is no step's."""
        more = self._compilations() - self._graphs
        if more:
            self._noted[f"{more} graphs were compiled again inside a generation; its slowest steps hold that time."] = (
                None
            )

    def _compilations(self) -> int:
        if not self._compiled:
            return 0
        counters = import_module("torch._dynamo.utils").counters
        return int(counters["stats"]["unique_graphs"])

    def prepare_encoder(self, source: Any) -> None:
        """One shape at a time: what the decoder reads of it lies where the decoder's graph was captured."""
        if self._seq2seq is None or tuple(source.shape) in self._encoders:
            return
        self._encoders.clear()
        self._capacity = 0
        seq2seq = self._seq2seq

        def encode(source: Any) -> None:
            seq2seq.encode(source, in_place=True)

        seq2seq.encode(source)  # the first pass gives it memory
        run = self._maybe_compiled(encode)
        if self._compiled:
            self._timed("compile encode", "encode", lambda: (run(source), run(source)))
        elif self._place.cuda:
            run = self._replayed(self._recorded("capture encode", "encode", partial(encode, source))[0], source)
        self._encoders[tuple(source.shape)] = run

    def encode(self, source: Any) -> None:
        self._encoders[tuple(source.shape)](source)

    def read(self, ids: Any) -> Any:
        self._prefills[ids.shape[1], self._length > 0](ids)
        self._length += ids.shape[1]
        return self._token

    def fill(self, ids: Any) -> Any:
        """Read tokens that are not part of what is measured: neither compiled nor captured."""
        logits = self._pass(ids, self._positions(ids))
        self._length += ids.shape[1]
        self._filled.fill_(self._length)
        self._kept.fill_(self._length)
        return logits

    def token(self, _ids: Any) -> Any:
        """One step on the token that the step before it left."""
        self._length += 1
        (self._replay or self._decode)()
        return self._token

    def score(self, ids: Any) -> Any:
        def score(ids: Any) -> Any:
            return self._model(input_ids=ids, use_cache=False).logits

        return self._maybe_compiled(score)(ids)

    def mapped(self, phase: str, rows: Sequence[TraceRow]) -> Sequence[TraceRow]:
        """Rows with the modules that the compiler, or the run before the capture, recorded."""
        if phase in self._reference:
            mapped, missed = align_layers(rows, self._reference[phase])
        else:
            mapped, missed = map_calls(rows, self._calls.get(phase, ()))
        if missed:
            self._noted[f"{missed} kernels of {phase} could not be traced to modules; they have no layer."] = None
        return mapped

    def _maybe_compiled(self, function: Any, *, dynamic: bool | None = False) -> Any:
        return self._torch.compile(compiled_apart(function), dynamic=dynamic) if self._compiled else function

    def _positions(self, ids: Any) -> Any:
        batch, count = ids.shape
        return (self._torch.arange(count, device=self._place.device) + self._filled).expand(batch, count)

    def _pass(self, ids: Any, positions: Any) -> Any:
        given = {"position_ids": positions} if "position_ids" in self._takes else {}
        if "logits_to_keep" in self._takes:
            given["logits_to_keep"] = 1
        given |= self._masked
        return self._call(input_ids=ids, past_key_values=self._joined, use_cache=True, **given).logits[:, -1]

    def _prepare_decode(self, capacity: int, *, deep: bool = False) -> None:
        self._replay = None
        self._prefills.clear()
        self._reference.clear()
        self._unreferred.clear()
        self._capacity = capacity
        if "past_key_values" not in self._takes:
            raise EngineError(
                f"{type(self._model).__name__} keeps a state that a cache of fixed size does not hold.",
                remedy="Run it with torch-eager.",
            )
        cache = import_transformers().StaticCache(config=self._module.config, max_cache_len=capacity)
        cache.layers = [counted_layer(layer, self._module.config, self._kept, deep=deep) for layer in cache.layers]
        self._cache = cache
        self._joined = self._seq2seq.cache(cache) if self._seq2seq else cache
        self._kept.zero_()  # another cache may have been before this one
        step, self._masked = partial(self._pass, self._token, self._position), {}
        step()  # the first pass gives it memory
        if "attention_mask" in self._takes and looks_at_values(self._torch, step):
            # OPT, BLOOM and Falcon write a mask as long as the tokens so far, a number that is on the device. With one
            # of the cache's length, as `generate` gives it, they do not ask; what lies ahead is hidden from every step.
            whole = self._torch.ones((self._batch, capacity), dtype=self._torch.long, device=self._place.device)
            self._masked = {"attention_mask": whole}
        cache.reset()
        plain = self._counts_on_device()

        def decode(token: Any, position: Any, kept: Any) -> None:
            token.copy_(self._pass(token, position).argmax(-1, keepdim=True))
            position.add_(1)
            kept.add_(1)

        # An integer that grows with each token (a sliding window has one) must not mean one more compilation.
        self._decode = partial(
            self._maybe_compiled(decode, dynamic=False if plain else None), self._token, self._position, self._kept
        )
        if self._compiled:
            self._timed("compile decode", "decode", lambda: self._warm(self._decode, 1 if plain else 3))
        if self._captures():
            try:
                self._replay, _ = self._recorded("capture", "decode", self._landed)
                self._noted["Decode steps are replayed from a CUDA graph, which chooses the token too."] = None
            except EngineError as error:
                if not self._compiled:
                    raise
                self._noted[f"Decode steps are launched. {error.message}"] = None
        elif self._place.cuda:
            kinds = {type(layer).__name__ for layer in self._cache.layers} - COUNTED
            what = "This sliding window" if all("Window" in kind for kind in kinds) else "This model's recurrent state"
            self._noted[f"{what} is not captured in a CUDA graph; decode steps are launched."] = None
        self.reset()

    def _landed(self) -> None:
        """A step that sends its tokens to the host as soon as they are there."""
        self._decode()
        if self._landing is not None:
            self._landing.copy_(self._token, non_blocking=True)

    def _counts_on_device(self) -> bool:
        """A sliding window of transformers' own counts in Python, which a graph does not run."""
        return all(type(layer).__name__ in COUNTED for layer in self._cache.layers)

    def _captures(self) -> bool:
        return self._place.cuda and self._counts_on_device()

    def _warm(self, call: Callable[[], Any], times: int) -> None:
        for _ in range(times):
            self.reset()
            call()

    def _recorded(self, stage: str, phase: str, call: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        """A pass as a CUDA graph. Which kernels are whose is recorded when somebody asks: `refer`."""
        if self._watched:
            self._unreferred[phase] = call
            if self._refers:
                self.refer()

        def captured() -> Any:
            with as_captured(self._torch, self._constants):
                return call()

        whole = call if self._constants is None else captured  # a compiled pass keeps its constants itself
        recorded: tuple[Callable[[], None], Any]
        recorded = self._timed(stage, None, lambda: self._capture(self._torch, whole, ready=self.reset))
        return recorded

    @staticmethod
    def _replayed(replay: Callable[[], None], ids: Any) -> Callable[[Any], None]:
        def run(given: Any) -> None:
            ids.copy_(given, non_blocking=True)  # a graph reads where it was captured
            replay()

        return run

    def _prompt(self) -> Callable[[Any], None]:
        token, position, kept = self._token, self._position, self._kept

        def onward(ids: Any) -> None:
            positions = self._positions(ids)
            token.copy_(self._pass(ids, positions).argmax(-1, keepdim=True))
            position.copy_(positions[:, -1:] + 1)  # where the first step goes on; each step counts on by itself
            kept.add_(ids.shape[1])

        return onward

    def _unmasked_prompt(self) -> Callable[[Any], None]:
        """An empty cache needs no mask over what it could hold: read as without one, then keep keys and values.

        They are kept at once: layer by layer, as the cache's own `update` does, each layer has four launches more, and
        a prompt of up to a thousand tokens waits for its launches.
        """
        layers, model, takes = self._cache.layers, self._model, self._takes
        whole = import_transformers().DynamicCache  # without a config it drops nothing that a window has passed
        token, position, kept, keep_all = self._token, self._position, self._kept, self._torch._foreach_copy_
        last = {"logits_to_keep": 1} if "logits_to_keep" in takes else {}

        def fresh(ids: Any) -> None:
            count = ids.shape[1]
            out = model(input_ids=ids, past_key_values=whole(), use_cache=True, **last)
            read = [each for layer in out.past_key_values.layers for each in (layer.keys, layer.values)]
            room = [each for layer in layers for each in (layer.keys, layer.values)]
            keep_all([each[:, :, :count] for each in room], [in_ring(*pair) for pair in zip(read, room, strict=True)])
            kept.fill_(count)
            token.copy_(out.logits[:, -1].argmax(-1, keepdim=True))
            position.fill_(count)

        return fresh

    def _timed(self, stage: str, phase: str | None, work: Callable[[], Any]) -> Any:
        tell(_DOING[stage])
        start = self._clock()
        result = work() if phase is None else self._compiling(phase, work)
        if self._place.cuda:
            self._torch.cuda.synchronize()
        self._paid[stage] = self._clock() - start
        return result

    def _compiling(self, phase: str, work: Callable[[], Any]) -> Any:
        """A pass that compiles, or takes what an earlier run has compiled."""
        with kept_graphs(compiled_folder(self._torch)) as kept:
            if self._watched:
                names = frozenset(name for name, _ in self._model.named_modules() if name)
                with compiler_calls(names, timers=self._timers, folder=kept.calls) as self._calls[phase]:
                    result = work()
            else:
                result = work()
        if kept.note:
            self._noted[f"{phase.capitalize()}: {kept.note[0].lower()}{kept.note[1:]}"] = None
        return result


def counted_layer(layer: Any, config: Any, kept: Any, *, deep: bool) -> Any:
    """A layer of a cache of fixed size that counts with all others, on the device; a sliding window as a ring.

    Layers of transformers count each for itself, with three kernels of a microsecond or two in every step: a small
    model's step is longer by a twentieth. transformers also moves a full window by one place with every token, and
    counts its tokens in Python to know when it is full: neither can be captured in a CUDA graph. A window is left alone
    where its cache is filled in parts (`deep`), and attention within chunks, since not all that a window holds is seen
    there.
    """
    counted, ring = _layer_classes()
    kinds = getattr(config.get_text_config(decoder=True), "layer_types", None) or ()
    match type(layer).__name__:
        case "StaticLayer":
            made = counted(max_cache_len=layer.max_cache_len)
        case "StaticSlidingWindowLayer" if not deep and "chunked_attention" not in kinds:
            made = ring(max_cache_len=layer.max_cache_len)
        case _:
            return layer
    made.cumulative_length = kept
    return made


def in_ring(read: Any, room: Any) -> Any:
    """The last tokens of a prompt, each at its position modulo the room: all of them where they fit."""
    count, size = read.shape[2], room.shape[2]
    return read if count <= size else read[:, :, -size:].roll((count - size) % size, dims=2)


@cache
def _layer_classes() -> tuple[Any, Any]:
    torch, static = import_module("torch"), import_module("transformers.cache_utils").StaticLayer

    class CountedLayer(static):  # type: ignore[misc, valid-type]  # a class of transformers, known when it is installed
        """Whoever runs a pass counts its tokens after it, once for all layers."""

        def update(self, key_states: Any, value_states: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
            if not self.is_initialized:
                self.lazy_initialization(key_states, value_states)
            place, count = self.cumulative_length.reshape(1), key_states.shape[2]
            if count > 1:
                place = place + torch.arange(count, device=place.device)
            self.keys.index_copy_(2, place, key_states)
            self.values.index_copy_(2, place, value_states)
            return self.keys, self.values

    class RingLayer(CountedLayer):
        """A window whose oldest token makes room for the newest. A prompt is read into an empty one."""

        is_sliding = True

        def update(self, key_states: Any, value_states: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
            if not self.is_initialized:
                self.lazy_initialization(key_states, value_states)
            count = key_states.shape[2]
            if count > 1:
                for read, room in ((key_states, self.keys), (value_states, self.values)):
                    room[:, :, :count].copy_(in_ring(read, room))
                return key_states, value_states
            place = (self.cumulative_length % self.max_cache_len).reshape(1)
            self.keys.index_copy_(2, place, key_states)
            self.values.index_copy_(2, place, value_states)
            return self.keys, self.values

        def get_mask_sizes(self, query_length: int) -> tuple[int, Any]:
            """How many keys there are, and the position of the first: all of a full ring is within its window."""
            if query_length > 1:
                return query_length, 0
            passed = self.cumulative_length - self.max_cache_len + 1
            return self.max_cache_len, passed.clamp(min=0) if self.is_initialized else 0

    return CountedLayer, RingLayer
