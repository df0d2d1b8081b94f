"""Sessions of ONNX Runtime, of arrays and of language models: the edge that imports it."""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import onnxruntime as ort

from inferometer.core.errors import DomainError, FormatError, InferometerError
from inferometer.core.frozen import frozen
from inferometer.engines.base import Event, Kernel, Opened, Port, Request, Session, Target, TextSession
from inferometer.engines.feeding import Tokenising, end_tokens, require_fitting, require_request
from inferometer.engines.onnxruntime.loading import (
    CPU,
    Clock,
    LoadingPlan,
    fault_of,
    guarded,
    load,
    load_plan,
    opened_of,
    result_arrays,
    wrongly_declared,
)
from inferometer.engines.onnxruntime.recorder import SKIP, ProfileRecorder

# Language models: a prefill, then a step a token.
#
# The cache stays with the engine: what a step gives as `present` is bound as `past` of the next, and no key or value
# is copied on the way.

# Which inputs and outputs of a model make it a language model with a cache.
#
# Two layouts are known, and both name the cache `past_key_values.N.key` and `.value` going in and `present.N.key` and
# `.value` coming out: `input_ids` alone beside it, or with `attention_mask`, `position_ids` and `use_cache_branch`.

_PAST = re.compile(r"past(?:_key_values)?[._](\d+)[._](.*?(?:key|value))")
_PRESENT = re.compile(r"present(?:_key_values)?[._](\d+)[._](.*?(?:key|value))")
_BESIDE = ("attention_mask", "position_ids", "use_cache_branch")


@frozen
class Decoder:
    """`cache` has pairs of an input and the output that is its value in the next step."""

    ids: Port
    beside: Mapping[str, Port]
    cache: tuple[tuple[Port, str], ...]
    logits: Port
    last_only: bool  # logits of the last position alone
    vocabulary: int | None


def decoder_of(inputs: Sequence[Port], outputs: Sequence[Port], *, name: str) -> Decoder:
    by_name = {port.name: port for port in inputs}
    past = {match.groups(): port for port in inputs if (match := _PAST.fullmatch(port.name))}
    present = {match.groups(): port.name for port in outputs if (match := _PRESENT.fullmatch(port.name))}
    beside = {key: by_name[key] for key in _BESIDE if key in by_name}
    known = {"input_ids", *beside, *(port.name for port in past.values())}
    strange = [port.name for port in inputs if port.name not in known]
    logits = next((port for port in outputs if port.name == "logits"), None)
    if "input_ids" not in by_name or logits is None or not past or past.keys() != present.keys() or strange:
        raise FormatError(
            f"{name!r} is no language model with a cache that can be run: its inputs are "
            f"{_listed(inputs)} and its outputs {_listed(outputs)}.",
            remedy="It needs input_ids, past_key_values.N.key and .value, logits, and present.N.key and .value.",
        )
    size, positions = logits.shape[-1], logits.shape[-2] if len(logits.shape) > 2 else 1
    return Decoder(
        ids=by_name["input_ids"],
        beside=beside,
        cache=tuple((port, present[key]) for key, port in past.items()),
        logits=logits,
        last_only=positions == 1,
        vocabulary=size if isinstance(size, int) else None,
    )


def _listed(ports: Sequence[Port]) -> str:
    names = [port.name for port in ports]
    return ", ".join(names if len(names) < 7 else [*names[:6], f"… ({len(names)})"])


def empty_shape(port: Port, batch: int) -> tuple[int, ...]:
    """Of a cache with nothing in it: the batch is the first axis, and tokens lie along the one that is open."""
    sizes = [batch, *port.shape[1:]]
    return tuple(size if isinstance(size, int) else 0 for size in sizes)


def feeds(decoder: Decoder, ids: Sequence[int], cached: int, batch: int) -> dict[str, np.ndarray[Any, Any]]:
    """What goes in beside the cache: the same tokens in every row of the batch."""
    count = len(ids)
    rows = {
        "input_ids": np.tile(np.asarray(ids), (batch, 1)),
        "attention_mask": np.ones((batch, cached + count)),
        "position_ids": np.tile(np.arange(cached, cached + count), (batch, 1)),
        "use_cache_branch": np.array([cached > 0]),
    }
    ports = {"input_ids": decoder.ids, **decoder.beside}
    return {name: np.ascontiguousarray(rows[name], dtype=port.dtype) for name, port in ports.items()}


Array = np.ndarray[Any, Any]
Nanoseconds = Callable[[], int]
_DEPTH_CHUNK = 256  # tokens read at once into the cache before the prompt: their logits are not kept
_STRIDE = 7  # through the vocabulary, so that the tokens of a depth differ


def open_text(
    target: Target, plan: LoadingPlan, *, clock: Clock, now_ns: Nanoseconds = time.perf_counter_ns
) -> "DecoderSession":
    if not target.instrument:
        session, stages = load(plan, clock=clock)
        return DecoderSession(target, plan, session, opened_of(plan, session, stages), now_ns=now_ns)
    recorder = ProfileRecorder(plan, clock=clock)
    opened = opened_of(plan, recorder.session, recorder.stages)
    return DecoderSession(target, recorder.plan, recorder.session, opened, recorder=recorder, now_ns=now_ns)


class DecoderSession(Tokenising):
    def __init__(  # noqa: PLR0913 - what is loaded, how, and the two clocks of it
        self,
        target: Target,
        plan: LoadingPlan,
        session: Any,
        opened: Opened,
        *,
        recorder: ProfileRecorder | None = None,
        now_ns: Nanoseconds = time.perf_counter_ns,
    ) -> None:
        self._target, self._plan, self._session, self.opened = target, plan, session, opened
        self._model_file = plan.path
        self._recorder, self._now_ns = recorder, now_ns
        self._decoder: Decoder = decoder_of(opened.inputs, opened.outputs, name=str(plan.path))
        self._outputs = [port.name for port in opened.outputs]

    @property
    def cost_per_kernel_s(self) -> float | None:
        return self._recorder.timers.node_s if self._recorder else None

    @property
    def idle_per_step_s(self) -> float | None:
        """Of the part `run` of a step, where every kernel ran on the CPU, one after another."""
        return self._recorder.timers.step_s if self._recorder and self._plan.providers[0][0] == CPU else None

    @cached_property
    def vocabulary(self) -> int:
        """Where the file leaves it open, one token is read to see."""
        known = self._decoder.vocabulary
        if known is not None:
            return known
        self._ready(1)
        logits, _, _ = self._run((0,), self._empty(), 0, SKIP)
        return int(logits.shape[-1])

    def generate(self, request: Request) -> Iterator[Event]:
        require_request(request, vocabulary=self.vocabulary, room=self._target.context)
        ends = frozenset() if request.ignore_end else end_tokens(self._plan.path)
        self._ready(1 + max(1, request.generate) + -(-request.depth // _DEPTH_CHUNK))
        cache, cached = self._deep(request.depth), request.depth
        ids, generated = request.prompt, 0
        while generated < max(1, request.generate):
            start = self._now_ns()
            logits, cache, marks = self._run(ids, cache, cached, "decode" if generated else "prefill")
            token = int(np.argmax(logits[0, -1]))
            end = self._now_ns()
            yield Event(
                kind="token" if generated else "prefill",
                start_ns=start,
                end_ns=end,
                tokens=len(ids),
                context=cached,
                ids=(token,) if request.generate else (),
                parts=_parts(start, *marks, end),
            )
            cached, ids, generated = cached + len(ids), (token,), generated + 1
            if token in ends:
                return

    def _deep(self, depth: int) -> list[Any]:
        """A cache with `depth` tokens in it."""
        cache = self._empty()
        for start in range(0, depth, _DEPTH_CHUNK):
            count = min(_DEPTH_CHUNK, depth - start)
            ids = [(1 + _STRIDE * (start + index)) % self.vocabulary for index in range(count)]
            _, cache, _ = self._run(ids, cache, start, SKIP)
        return cache

    def score(self, ids: tuple[int, ...]) -> Array:
        request = Request(prompt=ids, generate=0)
        require_request(request, vocabulary=self.vocabulary, room=self._target.context)
        pieces = [(token,) for token in ids] if self._decoder.last_only else [ids]
        self._ready(len(pieces))
        cache, rows, cached = self._empty(), [], 0
        for piece in pieces:
            logits, cache, _ = self._run(piece, cache, cached, SKIP)
            rows.append(np.array(logits[0], dtype=np.float32))
            cached += len(piece)
        return np.concatenate(rows)

    def kernels(self) -> Mapping[str, tuple[Kernel, ...]]:
        return self._recorder.take() if self._recorder else {}

    def close(self) -> None:
        self._session = None
        if self._recorder:
            self._recorder.close()

    def _ready(self, runs: int) -> None:
        if self._session is None:
            raise DomainError("The session is closed.")
        if self._recorder:
            self._recorder.ready(runs, self._renew)

    def _renew(self, session: Any) -> None:
        """In a fresh session the first runs pay for its memory: a short text is read and gone on from."""
        self._session = session
        _, cache, _ = self._run((0, 0), self._empty(), 0, SKIP)
        self._run((0,), cache, 2, SKIP)

    def _empty(self) -> list[Any]:
        place = ort.OrtValue.ortvalue_from_shape_and_type
        batch = self._target.batch
        return [place(empty_shape(port, batch), np.dtype(port.dtype).type) for port, _ in self._decoder.cache]

    def _run(
        self, ids: Sequence[int], cache: list[Any], cached: int, phase: str
    ) -> tuple[Array, list[Any], tuple[int, int, int]]:
        """Logits, the cache after it, and when inputs were written, the run was over, and the logits were read."""
        session, decoder = self._session, self._decoder
        try:
            binding = session.io_binding()
            for name, array in feeds(decoder, ids, cached, self._target.batch).items():
                binding.bind_cpu_input(name, array)
            for (port, _), value in zip(decoder.cache, cache, strict=True):
                binding.bind_ortvalue_input(port.name, value)
            for name in self._outputs:
                binding.bind_output(name)
            written = self._now_ns()
            session.run_with_iobinding(binding)
            ran = self._now_ns()
            values = dict(zip(self._outputs, binding.get_outputs(), strict=True))
            logits = values[decoder.logits.name].numpy()
        except Exception as error:
            raise fault_of(self._plan.path, "failed to run", error) from error
        read = self._now_ns()
        if self._recorder:
            self._recorder.ran(phase)
        shaped = logits if logits.ndim == 3 else logits[:, None]
        return shaped, [values[name] for _, name in decoder.cache], (written, ran, read)


def _parts(start: int, written: int, ran: int, read: int, end: int) -> dict[str, float]:
    marks = (start, written, ran, read, end)
    return {
        name: (marks[index + 1] - marks[index]) * 1e-9 for index, name in enumerate(("write", "run", "read", "sample"))
    }


def open_session(target: Target, name: str, *, clock: Clock = time.perf_counter) -> Session | TextSession:
    del name  # one runtime is opened from here
    plan = load_plan(target)
    if target.text:
        return open_text(target, plan, clock=clock)
    if target.instrument:
        return OrtRecordedSession(plan, clock=clock)
    session, stages = load(plan, clock=clock)
    return OrtSession(plan, session, opened_of(plan, session, stages))


class OrtSession:
    """Inputs and outputs are bound once; a step is one call of the engine.

    The engine refuses to write into an output again whose shape is not the one the file declares. Where a file is wrong
    about that, the first step shows it, and every further one binds the outputs anew.
    """

    def __init__(self, plan: LoadingPlan, session: Any, opened: Opened) -> None:
        self._plan, self._session, self.opened = plan, session, opened
        self._fed: dict[str, Array] = {}
        self._binding: Any = None
        self._run: Callable[[], None] = _not_fed

    @property
    def cost_per_kernel_s(self) -> float | None:
        return None

    def feed(self, inputs: Mapping[str, Array]) -> None:
        if self._session is None:
            raise DomainError("The session is closed.")
        require_fitting(self.opened.inputs, inputs)
        self._fed = {name: np.array(array, order="C") for name, array in inputs.items()}
        self._bind(self._session)

    def _bind(self, session: Any) -> None:
        """Inputs lie where the first provider reads them; the engine allocates the outputs there in the first step."""
        binding = session.io_binding()
        device = _device(self._plan)
        with guarded(self._plan.path, "refused the inputs of"):
            for name, array in self._fed.items():
                value = ort.OrtValue.ortvalue_from_numpy(array, *device)
                binding.bind_ortvalue_input(name, value)
            self._bind_outputs(binding)
        self._session, self._binding, self._run = session, binding, self._first_run

    def _bind_outputs(self, binding: Any) -> None:
        device = _device(self._plan)
        for port in self.opened.outputs:
            binding.bind_output(port.name, *device)

    def _first_run(self) -> None:
        session, binding = self._session, self._binding
        session.run_with_iobinding(binding)
        self._run = partial(session.run_with_iobinding, binding)
        given = [tuple(value.shape()) if value.is_tensor() else () for value in binding.get_outputs()]
        wrong = wrongly_declared(self.opened.outputs, given)
        if wrong:
            self._run = self._run_anew
            notes = (note for note in wrong if note not in self.opened.notes)
            self.opened = replace(self.opened, notes=(*self.opened.notes, *notes))

    def _run_anew(self) -> None:
        self._bind_outputs(self._binding)  # in place of those of the step before
        self._session.run_with_iobinding(self._binding)

    def step(self) -> None:
        try:
            self._run()
        except InferometerError:
            raise
        except Exception as error:
            raise fault_of(self._plan.path, "failed to run", error) from error

    def outputs(self) -> Mapping[str, Array]:
        if self._binding is None:
            return {}
        results = zip(self.opened.outputs, self._binding.copy_outputs_to_cpu(), strict=True)
        return {name: array for port, result in results for name, array in result_arrays(port.name, result).items()}

    def kernels(self) -> Mapping[str, tuple[Kernel, ...]]:
        return {}

    def close(self) -> None:
        self._session = self._binding = None
        self._fed, self._run = {}, _not_fed


class OrtRecordedSession(OrtSession):
    """The same with the engine's profiler on."""

    def __init__(self, plan: LoadingPlan, *, clock: Clock) -> None:
        self.recorder = ProfileRecorder(plan, clock=clock)
        session = self.recorder.session
        super().__init__(self.recorder.plan, session, opened_of(plan, session, self.recorder.stages))

    @property
    def cost_per_kernel_s(self) -> float | None:
        return self.recorder.timers.node_s

    @property
    def idle_per_step_s(self) -> float | None:
        """Known where every kernel ran on the CPU, one after another."""
        return self.recorder.timers.step_s if self._plan.providers[0][0] == CPU else None

    def step(self) -> None:
        self.recorder.ready(1, self._rebind)
        super().step()
        self.recorder.ran("forward")

    def _rebind(self, session: Any) -> None:
        """In a fresh session the first step pays for its memory: it is taken here."""
        self._bind(session)
        super().step()
        self.recorder.ran(SKIP)

    def kernels(self) -> Mapping[str, tuple[Kernel, ...]]:
        return self.recorder.take()

    def close(self) -> None:
        super().close()
        self.recorder.close()


def _not_fed() -> None:
    raise DomainError("A step was asked for before any inputs were fed.")


def _device(plan: LoadingPlan) -> tuple[str, int]:
    """Where arrays should lie for the first provider, as the engine names places."""
    name, settings = plan.providers[0]
    place = {"CUDAExecutionProvider": "cuda", "TensorrtExecutionProvider": "cuda", "DmlExecutionProvider": "dml"}
    return place.get(name, "cpu"), int(settings.get("device_id", 0))
