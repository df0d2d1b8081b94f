"""A language model as a session: it reads a prompt, makes tokens, and times each of them."""

from __future__ import annotations

import time
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import DomainError
from inferometer.engines.base import Event, Kernel, Opened, Request
from inferometer.engines.feeding import require_request, require_tokens
from inferometer.engines.torch.engine import import_transformers
from inferometer.engines.torch.kernels import kernels_from_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy as np

    from inferometer.engines.torch.forward import Eager, Static
    from inferometer.engines.torch.host import Host
    from inferometer.engines.torch.trace import TraceRow

_CHUNK = 2048  # tokens that are put into the cache at once before a generation
_TOKENISERS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt")


class Text:
    """Greedy: the likeliest token follows. Every sequence of a batch has the same prompt."""

    def __init__(
        self, host: Host, forward: Eager | Static, *, clock_ns: Callable[[], int] = time.perf_counter_ns
    ) -> None:
        self._host, self._forward, self._clock_ns = host, forward, clock_ns
        self._config = host.module.config
        self._target, self._torch, self._recorder = host.target, host.torch, host.recorder
        self._owner = True
        self._pending: list[tuple[str, list[TraceRow]]] = []
        self._tokeniser: Any = None
        text = self._config.get_text_config()
        self._vocabulary = int(text.vocab_size)
        self._marks = host.timers()

    @property
    def opened(self) -> Opened:
        return self._host.opened(stages=self._forward.stages, notes=self._forward.notes)

    @property
    def vocabulary(self) -> int:
        return self._vocabulary

    @property
    def cost_per_kernel_s(self) -> float | None:
        self._flush()  # there is one profiler in a process
        return self._host.cost_per_kernel_s(captured=self._forward.captured)

    def instrumented(self) -> Text | None:
        """The same passes with the recorder on; None where recording needs marks, or another compilation."""
        if not (self._forward.prepared and self._host.watched):
            return None
        again = Text(self._host, self._forward, clock_ns=self._clock_ns)
        again._recorder, again._owner = self._host.new_recorder(), False
        return again

    @property
    def memory_peak_bytes(self) -> int | None:
        return self._host.memory_peak_bytes

    @property
    def memory_reserved_bytes(self) -> int | None:
        return self._host.memory_reserved_bytes

    def tokenise(self, text: str) -> tuple[int, ...]:
        return tuple(int(each) for each in self._tokens()(text)["input_ids"])

    def detokenise(self, ids: tuple[int, ...]) -> str:
        return str(self._tokens().decode(list(ids)))

    def generate(self, request: Request) -> Iterator[Event]:
        self._host.require_open()
        require_request(request, vocabulary=self._vocabulary, room=self._room())
        return self._events(request)

    def score(self, ids: tuple[int, ...]) -> np.ndarray[Any, Any]:
        require_tokens(ids, self._vocabulary)
        with self._host.running("scoring a prompt"):
            logits = self._forward.score(self._torch.tensor([ids], device=self._host.place.device))
            scores: np.ndarray[Any, Any] = logits[0].float().cpu().numpy()
        return scores

    def kernels(self) -> Mapping[str, tuple[Kernel, ...]]:
        self._flush()
        phases: dict[str, list[list[TraceRow]]] = defaultdict(list)
        for phase, rows in self._pending:
            phases[phase].append(rows)
        self._pending = []
        place = self._host.place
        return {
            phase: kernels_from_rows(steps, unit=place.unit, provider=place.device) for phase, steps in phases.items()
        }

    def close(self) -> None:
        self._recorder.stop()
        if not self._owner:
            return
        self._forward = None  # type: ignore[assignment]  # its memory goes with it; a closed session does nothing more
        self._host.close()

    def _events(self, request: Request) -> Iterator[Event]:
        forward, prompt = self._forward, request.prompt
        batch = self._target.batch
        self._flush()  # what was recorded belongs to what was compiled then
        with self._host.running("preparing a generation"):
            ids = self._torch.tensor([prompt], dtype=self._torch.long).expand(batch, len(prompt)).contiguous()
            if self._host.place.cuda:
                ids = ids.pin_memory()
            needed = request.depth + len(prompt) + request.generate
            forward.prepare(prompt=len(prompt), depth=request.depth, needed=needed)
            forward.reset()
            self._fill(request.depth)
            self._host.sync()
        self._recorder.start()
        event, last = self._prefill(ids, request)
        yield event
        ends = () if request.ignore_end else self._ends()
        context = request.depth + len(prompt)
        for _ in range(request.generate - 1):
            if any(token in ends for token in event.ids):
                break
            event, last = self._step(last, context)
            context += 1
            yield event
        forward.settled()

    def _prefill(self, host_ids: Any, request: Request) -> tuple[Event, Any]:
        device = self._host.place.device
        with self._host.running("reading the prompt"):
            stamps, last, ids = self._pass(
                "prefill", self._forward.read, lambda: host_ids.to(device, non_blocking=True)
            )
        event = Event(
            kind="prefill", start_ns=stamps[0], end_ns=stamps[-1], tokens=len(request.prompt), context=request.depth,
            ids=ids if request.generate else (), parts=self._parts(stamps, written=True),
        )  # fmt: skip
        return event, last

    def _step(self, ids: Any, context: int) -> tuple[Event, Any]:
        forward = self._forward

        def write() -> Any:
            forward.write(ids)
            return ids

        with self._host.running("making a token"):
            stamps, last, made = self._pass("decode", forward.token, write if forward.write_token else None, ids)
        event = Event(
            kind="token", start_ns=stamps[0], end_ns=stamps[-1], tokens=1, context=context, ids=made,
            parts=self._parts(stamps, written=forward.write_token),
        )  # fmt: skip
        return event, last

    def _pass(
        self, phase: str, run: Callable[[Any], Any], write: Callable[[], Any] | None, ids: Any = None
    ) -> tuple[tuple[int, ...], Any, tuple[int, ...]]:
        """Write tokens, run the model, take the likeliest token, read it: the clock between these, and the token."""
        clock, recorder, marks = self._clock_ns, self._recorder, self._marks
        with recorder.step(phase):
            start = written = clock()
            if write is not None:
                with recorder.part("write"):
                    ids = write()
                written = clock()
            marks.start()
            logits = run(ids)
            marks.end()
            ran = clock()
            with recorder.part("sample"):
                last = logits.argmax(-1, keepdim=True)
            sampled = clock()
            with recorder.part("read"):
                made = last.flatten().tolist()
            end = clock()
        return (start, written, ran, sampled, end), last, tuple(made)

    def _parts(self, stamps: tuple[int, ...], *, written: bool) -> dict[str, float]:
        seconds = [(after - before) * 1e-9 for before, after in pairwise(stamps)]
        parts = dict(zip(("write", "run", "sample", "read"), seconds, strict=True))
        if not written:
            del parts["write"]
        device_s = self._marks.seconds()
        return parts if device_s is None else {**parts, "device": device_s}

    def _fill(self, depth: int) -> None:
        """Tokens drawn from the seed, put into the cache in chunks."""
        if not depth:
            return
        draw = self._torch.Generator().manual_seed(self._target.seed)
        shape = (self._target.batch, depth)
        ids = self._torch.randint(0, self._vocabulary, shape, generator=draw).to(self._host.place.device)
        for start in range(0, depth, _CHUNK):
            self._forward.fill(ids[:, start : start + _CHUNK])

    def _flush(self) -> None:
        recorded = self._recorder.stop()
        self._pending += [(phase, list(self._forward.mapped(phase, rows))) for phase, rows in recorded]

    def _ends(self) -> tuple[int, ...]:
        end = self._config.get_text_config().eos_token_id
        return tuple(end) if isinstance(end, list | tuple) else () if end is None else (int(end),)

    def _room(self) -> int | None:
        """Tokens that a sequence may have: the context asked for, or the model's table of positions."""
        limits = (self._target.context, self._learned_positions())
        return min((limit for limit in limits if limit is not None), default=None)

    def _learned_positions(self) -> int | None:
        """A table of positions cannot be read past its end; computed positions can."""
        rotary = any(
            name.rpartition(".")[2].startswith("rotary") for name, _ in self._host.module.model.named_modules()
        )
        limit = getattr(self._config.get_text_config(), "max_position_embeddings", None)
        return None if rotary or limit is None else int(limit)

    def _tokens(self) -> Any:
        folder = self._host.module.folder
        if self._tokeniser is None:
            if folder is None or not any((folder / name).is_file() for name in _TOKENISERS):
                raise DomainError(
                    f"The model at {str(self._target.path)!r} came without a tokeniser.",
                    remedy="Give token ids, or put its tokenizer.json beside the config.",
                )
            self._tokeniser = import_transformers().AutoTokenizer.from_pretrained(
                str(folder), local_files_only=True, trust_remote_code=False
            )
        return self._tokeniser
