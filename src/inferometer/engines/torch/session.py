"""Opens a model in PyTorch: the module `Engine.opener` names."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import DomainError, EngineError
from inferometer.core.notices import tell
from inferometer.engines.base import Event, EventKind, Kernel, Opened, Request, Session, Stage, Target, TextSession
from inferometer.engines.feeding import require_request, require_tokens
from inferometer.engines.host import threads_of
from inferometer.engines.torch.arrays import Arrays
from inferometer.engines.torch.engine import Threads, choose_device, import_torch, import_transformers
from inferometer.engines.torch.forward import Eager, Static
from inferometer.engines.torch.host import TorchHost
from inferometer.engines.torch.kernels import kernels_from_rows
from inferometer.engines.torch.modules import find_module
from inferometer.engines.torch.seq2seq import Seq2Seq, encodes
from inferometer.known.engines import runtime_effects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy as np

    from inferometer.core.engine import Execution
    from inferometer.engines.torch.trace import TraceRow


# A language model as a session: it reads a prompt, makes tokens, and times each of them.

Stamps = tuple[int, ...]  # of a clock in nanoseconds, before and after each part of a step
Made = tuple[int, ...]  # a token of each sequence

_CHUNK = 2048  # tokens that are put into the cache at once before a generation
_TOKENISERS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt")


class Text:
    """Greedy: the likeliest token follows. Every sequence of a batch has the same prompt."""

    def __init__(
        self,
        host: TorchHost,
        forward: Eager | Static,
        *,
        seq2seq: Seq2Seq | None = None,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._host, self._forward, self._seq2seq, self._clock_ns = host, forward, seq2seq, clock_ns
        self._config = host.module.config
        self._target, self._torch, self._recorder = host.target, host.torch, host.recorder
        self._owner = True
        self._pending: list[tuple[str, list[TraceRow]]] = []
        self._tokeniser: Any = None
        text = self._config.get_text_config()
        self._vocabulary = int(text.vocab_size)

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
        if not (isinstance(self._forward, Static) and self._host.watched):
            return None
        with self._host.running("recording which kernels are whose"):
            self._forward.refer()
        again = Text(self._host, self._forward, seq2seq=self._seq2seq, clock_ns=self._clock_ns)
        again._recorder, again._owner = self._host.new_recorder(), False
        return again

    def host_module_s(self) -> float | None:
        return self._host.module_s()

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
        source = None
        if self._seq2seq is not None:
            require_request(replace(request, depth=0, generate=0), vocabulary=self._vocabulary, room=None)
            source = self._seq2seq.source(request.prompt)
            if self._seq2seq.reads_prompt:
                request = replace(request, prompt=self._seq2seq.start)
        require_request(request, vocabulary=self._vocabulary, room=self._room())
        return self._events(request, source)

    def score(self, ids: tuple[int, ...]) -> np.ndarray[Any, Any]:
        require_tokens(ids, self._vocabulary)
        with self._host.running("scoring a prompt"):
            if self._seq2seq is not None:
                logits = self._seq2seq.score(ids)
            else:
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
        self._recorder.drop()
        if not self._owner:
            return
        self._forward = None  # type: ignore[assignment]  # its memory goes with it; a closed session does nothing more
        self._host.close()

    def _events(self, request: Request, source: Any) -> Iterator[Event]:
        forward, prompt = self._forward, request.prompt
        self._flush()  # what was recorded belongs to what was compiled then
        with self._host.running("preparing a generation"):
            batch = self._target.batch  # behind an encoder a prompt is what every sequence starts with
            rows = _sequences(prompt, batch) if source is None else [prompt] * batch
            ids = self._torch.tensor(rows, dtype=self._torch.long)
            ids = ids.pin_memory() if self._host.place.cuda else ids
            needed = request.depth + len(prompt) + request.generate
            if source is not None:
                forward.prepare_encoder(source.to(self._host.place.device))
            forward.prepare(prompt=len(prompt), depth=request.depth, needed=needed)
            forward.reset()
            self._fill(request.depth)
            self._host.sync()
        if request.bare:
            yield from self._bare(request, ids, source)
            return
        self._recorder.start()
        if source is not None:
            yield self._encoded(source.pin_memory() if self._host.place.cuda else source)
        with self._host.running("reading the prompt"):
            stamps, last, made = self._pass("prefill", forward.read, ids, written=True)
        yield Event(
            kind="prefill", start_ns=stamps[0], end_ns=stamps[-1], tokens=len(prompt), context=request.depth,
            ids=made if request.generate else (), parts=self._parts(stamps, written=True),
        )  # fmt: skip
        ends = () if request.ignore_end else self._ends()
        context, left = request.depth + len(prompt), request.generate - 1
        while left > 0 and not any(token in ends for token in made):
            # Entering and leaving the engine takes as long as a short step, so it is done once for all of them.
            with self._host.running("making tokens"):
                steps, last = self._steps(last, 1 if request.apart else left, ends)
            for stamps, made in steps:
                yield Event(
                    kind="token", start_ns=stamps[0], end_ns=stamps[-1], tokens=1, context=context, ids=made,
                    parts=self._parts(stamps, written=False),
                )  # fmt: skip
                context += 1
            left -= len(steps)
        forward.settled()

    def _bare(self, request: Request, ids: Any, source: Any) -> Iterator[Event]:
        """Passes alone: what they read lies on the device beforehand, and it is waited for once they are all launched.

        A step that is captured or compiled chooses its token inside; any other reads the same one again.
        """
        forward, count, depth = self._forward, len(request.prompt), request.depth
        with self._host.running("placing what is read"):
            ids, source = (None if each is None else each.to(self._host.place.device) for each in (ids, source))
            last = ids[:, -1:].contiguous()
        if source is not None:
            yield self._passes("encode", lambda: forward.encode(source), tokens=source.shape[-1])
        yield self._passes("prefill", lambda: forward.read(ids), tokens=count, context=depth)
        if request.generate > 1:
            left = request.generate - 1
            yield self._passes("token", lambda: forward.token(last), times=left, tokens=left, context=depth + count)
        forward.settled()

    def _passes(
        self, kind: EventKind, run: Callable[[], Any], *, tokens: int, times: int = 1, context: int = 0
    ) -> Event:
        clock, cuda = self._clock_ns, self._host.place.cuda
        with self._host.running("running its passes"):
            self._host.sync()
            stamps = [clock()]
            for _ in range(times):
                run()
            stamps.append(clock())
            if cuda:
                self._host.wait()
                stamps.append(clock())
        parts = _between(stamps, ("launch", "run") if cuda else ("run",))
        return Event(kind=kind, start_ns=stamps[0], end_ns=stamps[-1], tokens=tokens, context=context, parts=parts)

    def _encoded(self, source: Any) -> Event:
        """The encoder's pass: nothing is chosen or read, and what follows waits for it on the device."""
        clock, recorder = self._clock_ns, self._recorder
        with self._host.running("encoding"), recorder.step("encode"):
            stamps = [clock()]
            with recorder.part("write"):
                placed = source.to(self._host.place.device, non_blocking=True)
            stamps.append(clock())
            self._forward.encode(placed)
            stamps.append(clock())
            if self._host.place.cuda:
                self._host.wait()
                stamps.append(clock())
        parts = _between(stamps, ("write", "launch", "run") if self._host.place.cuda else ("write", "run"))
        return Event(
            kind="encode", start_ns=stamps[0], end_ns=stamps[-1], tokens=source.shape[-1], context=0, parts=parts
        )

    def _steps(self, last: Any, count: int, ends: tuple[int, ...]) -> tuple[list[tuple[Stamps, Made]], Any]:
        """So many tokens, or up to the end of the text: the clock and the ids of each, and the last on the device."""
        steps: list[tuple[Stamps, Made]] = []
        for _ in range(count):
            stamps, last, made = self._pass("decode", self._forward.token, last, written=False)
            steps.append((stamps, made))
            if ends and any(token in ends for token in made):
                break
        return steps, last

    def _pass(self, phase: str, run: Callable[[Any], Any], ids: Any, *, written: bool) -> tuple[Stamps, Any, Made]:
        """Write tokens where they are not there yet, run the model, take the likeliest token, read it.

        The clock is read between these. A device works on while the host launches: the host then waits for it to end,
        and choosing a token is a part of what it runs. The token is all that comes back.
        """
        clock, recorder, landing = self._clock_ns, self._recorder, self._host.landing
        with recorder.step(phase):
            stamps = [clock()]
            if written:
                with recorder.part("write"):
                    ids = ids.to(self._host.place.device, non_blocking=True)
                stamps.append(clock())
            last = run(ids)
            if landing is None:
                stamps.append(clock())
            if not self._forward.samples:
                with recorder.part("sample"):
                    last = last.argmax(-1, keepdim=True)
                if landing is None:
                    stamps.append(clock())
            if landing is not None:
                if written or not self._forward.captured:  # a captured step sends its token by itself
                    with recorder.part("read"):
                        landing.copy_(last, non_blocking=True)
                stamps.append(clock())
                self._host.wait()
                stamps.append(clock())
            with recorder.part("read"):
                made = (last if landing is None else landing).flatten().tolist()
            stamps.append(clock())
        return tuple(stamps), last, tuple(made)

    def _parts(self, stamps: Stamps, *, written: bool) -> dict[str, float]:
        names: tuple[str, ...] = ("run", "read") if self._forward.samples else ("run", "sample", "read")
        if self._host.landing is not None:
            names = ("launch", "run", "read")
        return _between(stamps, ("write", *names) if written else names)

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
        # A table of positions cannot be read past its end; computed positions can.
        rotary = any(
            name.rpartition(".")[2].startswith("rotary") for name, _ in self._host.module.model.named_modules()
        )
        text = self._config.get_text_config()
        limit = getattr(text, "max_target_positions", None) or getattr(text, "max_position_embeddings", None)
        learned_positions = None if rotary or limit is None else int(limit)
        limits = (self._target.context, learned_positions)
        return min((limit for limit in limits if limit is not None), default=None)

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


def _sequences(prompt: tuple[int, ...], batch: int) -> list[tuple[int, ...]]:
    """The prompt for each sequence, begun a token later in each: the same ones would all choose the same experts."""
    starts = [place % len(prompt) for place in range(batch)]
    return [(*prompt[start:], *prompt[:start]) for start in starts]


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
    place, execution = choose_device(target, torch), runtime_effects(name).execution
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
        host = TorchHost(
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


def _session(host: TorchHost, execution: Execution) -> Session | TextSession:
    if not host.target.text:
        return Arrays(host, execution=execution)
    seq2seq = Seq2Seq(host) if encodes(host.module.config) else None
    if execution == "launched":
        return Text(host, Eager(host.module, seq2seq), seq2seq=seq2seq)
    with host.running("preparing the model"):
        return Text(host, Static(host, compiled=execution == "compiled", seq2seq=seq2seq), seq2seq=seq2seq)


def _between(stamps: Sequence[int], names: tuple[str, ...]) -> dict[str, float]:
    """Seconds between one look at the clock and the next, by what passed there."""
    return {name: (after - before) * 1e-9 for name, (before, after) in zip(names, pairwise(stamps), strict=True)}
