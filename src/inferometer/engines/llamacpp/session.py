"""Opens a GGUF file in llama.cpp: by its C functions where they can be called, else by the server it has inside."""

import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import version
from queue import SimpleQueue
from typing import Any
from urllib.request import Request as Call
from urllib.request import urlopen

import numpy as np

from inferometer.core.errors import DomainError, EngineError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.engines.base import Event, Kernel, Opened, Request, Stage, Target, TextSession
from inferometer.engines.feeding import alive, require_request
from inferometer.engines.host import captured_stderr, threads_of
from inferometer.engines.llamacpp.direct import open_direct
from inferometer.engines.llamacpp.library import LlamaOptions, choose_devices, find_library, parse_options

# A language model through the server xllamacpp has inside, called in process: no socket, and a stream of text chunks.
#
# It is the door where llama.cpp's functions cannot be called, or where what a service would show is the question. It
# gives no token ids and no kernels, and holds back a token that ends within a character.

# The server's stream of chunks as events. A chunk may hold several tokens; the engine's own timings say how many.


@frozen
class StreamedChunk:
    """`made` tokens so far, in `made_s` since the first of them by the engine's clock; `read` of the prompt."""

    at_ns: int
    text: str = ""
    read: int = 0
    cached: int = 0
    read_s: float = 0.0
    made: int = 0
    made_s: float = 0.0
    error: str | None = None


def read_chunk(document: Mapping[str, Any], at_ns: int) -> StreamedChunk:
    if "error" in document:
        error = document["error"]
        return StreamedChunk(at_ns=at_ns, error=str(error.get("message", error) if isinstance(error, dict) else error))
    timings = document.get("timings") or {}
    choices = document.get("choices") or [{}]
    return StreamedChunk(
        at_ns=at_ns,
        text=choices[0].get("text") or "",
        read=int(timings.get("prompt_n", 0)),
        cached=max(0, int(timings.get("cache_n", 0))),
        read_s=float(timings.get("prompt_ms", 0.0)) * 1e-3,
        made=int(timings.get("predicted_n", 0)),
        made_s=float(timings.get("predicted_ms", 0.0)) * 1e-3,
    )


def events_of(chunks: Iterable[StreamedChunk], *, start_ns: int, prompt: int, depth: int) -> Iterator[Event]:
    """A prefill that ends with the first chunk, and a step for each further one that holds tokens.

    Where the first chunk holds more than one token, because a character takes several, the prefill ends with them all.
    """
    before: StreamedChunk | None = None
    context, start = depth, start_ns
    for chunk in chunks:
        if before is None:
            if chunk.read != prompt or chunk.cached != depth:
                raise EngineError(
                    f"llama.cpp was to read {prompt} tokens with {depth} in the cache; it read {chunk.read} with "
                    f"{chunk.cached}.",
                    remedy="The model cannot keep a part of its cache: use a depth of 0, or the option api=direct.",
                )
            kind, tokens, engine_s = "prefill", prompt, chunk.read_s
        else:
            kind, tokens, engine_s = "token", chunk.made - before.made, chunk.made_s - before.made_s
        if tokens > 0:
            # the engine's clock and the arrival of chunks are not in step to the microsecond
            run_s = max(0.0, min(engine_s, (chunk.at_ns - start) * 1e-9))
            yield Event(
                kind="token" if kind == "token" else "prefill",
                start_ns=start,
                end_ns=chunk.at_ns,
                tokens=tokens,
                context=context,
                text=chunk.text,
                parts={"run": run_s},
            )
            context, start = context + tokens, chunk.at_ns
        before = chunk


_DEFAULT_CONTEXT = 4096


def open_server(
    target: Target, options: LlamaOptions, reason: str, *, clock: Callable[[], float] = time.perf_counter
) -> "ServerSession":
    import xllamacpp  # noqa: PLC0415 - the engine is imported when a model is opened

    if target.batch > 1:
        raise DomainError(
            f"A batch of {target.batch} was asked for; the server is driven with one request at a time.",
            remedy="Use the option api=direct, or a batch of one.",
        )
    threads = threads_of(target.threads)
    devices = [(each["name"], int(each["type"].value), index) for index, each in enumerate(xllamacpp.get_device_info())]
    unit, _, layers = choose_devices(target.unit, options.layers, devices)
    held = target.context or _DEFAULT_CONTEXT
    parameters = _parameters(xllamacpp, target, options)
    parameters.n_ctx, parameters.n_gpu_layers = held, layers
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
    with captured_stderr() as stderr:
        start = clock()
        try:
            server = xllamacpp.Server(parameters)
        except (RuntimeError, ValueError, OSError) as error:
            words = _last_words(lambda: _errors(stderr())) or str(error).rstrip(".")
            raise EngineError(f"llama.cpp refused {str(target.path)!r}: {words}.") from error
        seconds = clock() - start
    notes = ["Timed through llama.cpp's server, in process: a queue and JSON lie between it and the engine."]
    if target.instrument:
        notes.append("The time of each node is not known: the server does not report it.")
    opened = Opened(
        stages=(Stage(name="load", seconds=seconds),),
        versions={"xllamacpp": version("xllamacpp")},
        threads=threads,
        unit=unit,
        notes=(*notes, *([reason] if reason else [])),
    )
    return ServerSession(server, opened, held=held, seed=target.seed)


def _parameters(engine: Any, target: Target, options: LlamaOptions) -> Any:
    parameters = engine.CommonParams()
    parameters.model.path = str(target.path)
    parameters.n_parallel, parameters.warmup = 1, options.warmup
    parameters.n_batch, parameters.n_ubatch = options.batch, options.ubatch
    parameters.flash_attn_type = engine.llama_flash_attn_type(options.flash)
    parameters.cache_type_k = engine.ggml_type[f"GGML_TYPE_{options.type_k.upper()}"]
    parameters.cache_type_v = engine.ggml_type[f"GGML_TYPE_{options.type_v.upper()}"]
    parameters.fit_params = False  # what was asked for, or an error
    parameters.cache_ram_mib = 0  # prompts of earlier generations are not kept
    parameters.verbosity = 1
    return parameters


def _last_words(words: Callable[[], str], *, tries: int = 500, pause_s: float = 0.01) -> str:
    """A thread of the engine's own writes its log, line by line, and may be late: its last line says that it leaves.

    Without that line, as where a version words it otherwise, what was said within five seconds is all there is.
    """
    for _ in range(tries):
        if "exiting due to" in (text := words()):
            return text
        time.sleep(pause_s)
    return words()


def _errors(log: str) -> str:
    """The lines of the log that are errors: a time, a letter, where from, and what."""
    lines = (line.split(maxsplit=2) for line in log.splitlines())
    return "; ".join(parts[2] for parts in lines if len(parts) == 3 and parts[1] == "E")


class ServerSession:
    """A TextSession over the server's completions."""

    cost_per_kernel_s: float | None = None  # its timers cost next to nothing, or it has none

    def __init__(
        self,
        server: Any,
        opened: Opened,
        *,
        held: int,
        seed: int,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._server, self.opened, self._held, self._seed, self._clock = server, opened, held, seed, clock
        models = self._ask("/v1/models")["data"]
        self.vocabulary = int(models[0]["meta"]["n_vocab"])

    def generate(self, request: Request) -> Iterator[Event]:
        require_request(request, vocabulary=self.vocabulary, room=self._held)
        alive(self._server)
        chosen = random.Random(self._seed)  # noqa: S311 - any tokens will do, the same each time
        before = [chosen.randrange(self.vocabulary) for _ in range(request.depth)]
        return self._generated(request, before)

    def _generated(self, request: Request, before: list[int]) -> Iterator[Event]:
        if before:
            self._drain(self._stream(before, generate=0, reuse=False, ignore_end=True))
        start = self._clock()
        stream = self._stream(
            [*before, *request.prompt],
            generate=request.generate,
            reuse=bool(before),
            ignore_end=request.ignore_end,
        )
        yield from events_of(stream, start_ns=start, prompt=len(request.prompt), depth=request.depth)

    def _stream(self, prompt: list[int], *, generate: int, reuse: bool, ignore_end: bool) -> Iterator[StreamedChunk]:
        """Chunks as they come, each with the time it was handed over at. Left early, the rest is thrown away."""
        given = {
            "prompt": prompt, "n_predict": generate, "temperature": 0, "ignore_eos": ignore_end, "stream": True,
            "cache_prompt": reuse, "timings_per_token": True, "return_tokens": True,
        }  # fmt: skip
        queue: SimpleQueue[StreamedChunk | BaseException | None] = SimpleQueue()
        left = threading.Event()

        def hand_over(document: dict[str, Any]) -> bool:
            queue.put(read_chunk(document, self._clock()))
            return left.is_set()

        def work() -> None:
            try:
                self._server.handle_completions(given, hand_over)
                queue.put(None)
            except BaseException as error:  # noqa: BLE001 - it is raised where the chunks are read
                queue.put(error)

        thread = threading.Thread(target=work, name="llama.cpp", daemon=True)
        thread.start()
        try:
            while (chunk := queue.get()) is not None:
                if isinstance(chunk, BaseException):
                    raise EngineError(f"llama.cpp failed: {chunk}.") from chunk
                if chunk.error is not None:
                    raise EngineError(f"llama.cpp refused the request: {chunk.error}.")
                yield chunk
        finally:
            left.set()
            thread.join()

    @staticmethod
    def _drain(stream: Iterator[StreamedChunk]) -> None:
        for _ in stream:
            pass

    def _ask(self, path: str, document: Mapping[str, Any] | None = None) -> Any:
        """What has no function has a page of the server, on this host only."""
        body = None if document is None else json.dumps(document).encode()
        call = Call(f"{self._server.listening_address}{path}", data=body, headers={"Content-Type": "application/json"})  # noqa: S310 - our own server
        with urlopen(call) as answer:  # noqa: S310 - as above
            return json.load(answer)

    def tokenise(self, text: str) -> tuple[int, ...]:
        alive(self._server)
        return tuple(self._ask("/tokenize", {"content": text, "add_special": True})["tokens"])

    def detokenise(self, ids: tuple[int, ...]) -> str:
        alive(self._server)
        return str(self._ask("/detokenize", {"tokens": list(ids)})["content"])

    def score(self, ids: tuple[int, ...]) -> np.ndarray[Any, Any]:
        raise EngineError(
            f"Logits of {len(ids)} tokens were asked for; llama.cpp's server gives none.",
            remedy="Use the option api=direct.",
        )

    def kernels(self) -> Mapping[str, tuple[Kernel, ...]]:
        return {}

    def close(self) -> None:
        with captured_stderr():
            self._server = None


def open_session(target: Target, name: str) -> TextSession:
    """The server has a queue, JSON and a stream of text between the engine and the caller: the functions have not."""
    options = parse_options(target.options)
    _check(target, name)
    library, reason = (None, "") if options.api == "server" else find_library()
    if library is not None:
        return open_direct(target, options, library)
    if options.api == "direct":
        raise EngineError(
            f"llama.cpp's functions cannot be called here. {reason}",
            remedy="Leave out the option api, or install llama-cpp-python.",
        )
    return open_server(target, options, reason)


def _check(target: Target, name: str) -> None:
    if not target.path.is_file():
        raise EngineError(
            f"{name} was given {str(target.path)!r}, which is no file.", remedy="Give the path of a GGUF file."
        )
    if target.providers:
        raise UnknownNameError(
            "provider of llama.cpp", target.providers[0], (), listing="Choose a unit instead: cpu, gpu or gpu:1."
        )
    if target.batch < 1:
        raise DomainError(f"A batch of {target.batch} was asked for.", remedy="Ask for one or more.")
