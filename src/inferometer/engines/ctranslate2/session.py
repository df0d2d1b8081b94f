"""Opens CTranslate2's folders and generates with its `Generator`.

The engine calls back after each token, in the thread that computes: that is when a step ends. It has no timers inside
a step, so there are no times of layers.
"""

import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from inferometer.core.errors import DomainError, EngineError
from inferometer.core.json_text import parse_json
from inferometer.engines.base import Event, Kernel, Opened, Request, Stage, Target, guard
from inferometer.engines.feeding import Tokenising, alive, require_no_settings, require_request
from inferometer.engines.host import threads_of

_COMPUTE = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
_COMPUTES = {name: ours for ours, name in _COMPUTE.items()}
_DEVICES = {"cpu": "cpu", "gpu": "cuda"}
_STRIDE = 7  # through the vocabulary, so that the tokens of a depth differ
_ARM = frozenset({"aarch64", "arm64"})
_POLICY = "OMP_WAIT_POLICY"
_ASLEEP = (
    "Threads that wait sleep (OMP_WAIT_POLICY=passive), because they would take the cores from those that work: set it "
    "where you run the model, or give it fewer threads."
)
NO_LAYERS = "CTranslate2 has no timers inside a step: phases and tokens are measured, layers are not."


def open_session(target: Target, name: str, *, clock: Callable[[], float] = time.perf_counter) -> "CTranslate2Session":
    threads = threads_of(target.threads)
    asleep = _wait_asleep(threads, os.environ)  # noqa: TID251 - no setting of ours: what the library itself reads
    import ctranslate2  # noqa: PLC0415 - the engine is imported when a model is opened

    folder = _checked(target, name)
    unit, device, index = _device(target.unit, ctranslate2.get_cuda_device_count())
    start = clock()
    with guard(_fault, folder, "refused"):
        generator = ctranslate2.Generator(
            str(folder), device=device, device_index=index, inter_threads=1, intra_threads=threads,
            compute_type=_COMPUTE[target.precision] if target.precision else "default",
        )  # fmt: skip
    computed = str(generator.compute_type)
    opened = Opened(
        stages=(Stage(name="load", seconds=clock() - start),),
        versions={"ctranslate2": version("ctranslate2")},
        threads=threads,
        unit=unit,
        precision=_COMPUTES.get(computed.rpartition("_")[2]),
        notes=(NO_LAYERS, *_products(computed), *asleep),
    )
    return CTranslate2Session(ctranslate2, generator, opened, target, folder)


def _wait_asleep(threads: int, environment: MutableMapping[str, str]) -> tuple[str, ...]:
    """Let waiting threads sleep where they would take cores from working ones; a note if that was done.

    On Arm, matrix products have threads of their own (ruy's) beside those of OpenMP, and both spin when they wait. With
    two threads on two cores a prompt of 32 tokens then took 150 to 350 ms, and 81 ms with threads of OpenMP that sleep.
    It is read when the library loads.
    """
    if platform.machine() not in _ARM or threads == 1 or 2 * threads - 1 <= (psutil.cpu_count() or threads):
        return ()
    if "ctranslate2" not in sys.modules:
        environment.setdefault(_POLICY, "passive")
    return (_ASLEEP,) if environment.get(_POLICY) == "passive" else ()


def _products(computed: str) -> tuple[str, ...]:
    """What a compute type of two names says: products in the first, everything else in the second."""
    products, _, others = computed.rpartition("_")
    return (f"Products are computed in {products}, everything else in {others}.",) if products else ()


def _checked(target: Target, name: str) -> Path:
    """The folder; a file of it may be given in its place."""
    if not target.text:
        raise DomainError(f"{name} opens language models; one of arrays was asked for.")
    folder = target.path.parent if target.path.is_file() and target.path.name == "model.bin" else target.path
    if not (folder / "model.bin").is_file():
        raise EngineError(
            f"{str(target.path)!r} is no folder of CTranslate2: there is no model.bin in it.",
            remedy="Make one: `inferometer prepare CHECKPOINT --for ctranslate2 -o FOLDER`.",
        )
    require_no_settings(target, "CTranslate2", listing="It has none.")
    return folder


def _device(asked: str | None, gpus: int) -> tuple[str, str, int]:
    """Our name of the unit, the engine's name of the device, and which of several."""
    kind, _, index = (asked or "cpu").partition(":")
    there = ["cpu", *(f"gpu:{number}" for number in range(gpus))]
    number = int(index) if index.isdecimal() else 0
    if kind not in _DEVICES or (kind == "cpu" and number) or (kind == "gpu" and number >= gpus):
        raise EngineError(f"CTranslate2 has no unit {asked!r} here.", remedy=f"There is: {', '.join(there)}.")
    return asked or "cpu", _DEVICES[kind], number


def _fault(path: Path, doing: str, error: Exception) -> Exception:
    words = " ".join(str(error).split()) or type(error).__name__
    if "compute type" in words:
        remedy = "Leave --activations out: the engine then takes what it computes quickly here."
    elif "version" in words or "revision" in words:
        remedy = "Convert the model again with the version that is installed, or upgrade ctranslate2."
    else:
        remedy = "Convert the model again: `inferometer prepare CHECKPOINT --for ctranslate2 -o FOLDER`."
    return EngineError(f"CTranslate2 {doing} {str(path)!r}: {words.rstrip('.')}.", remedy=remedy)


class CTranslate2Session(Tokenising):
    """A TextSession. A generation is one call of the engine; its events are told when it has ended.

    Tokens that are to lie in the cache are the engine's static prompt: it keeps their keys and values, and a generation
    begins with a copy of them.
    """

    cost_per_kernel_s: float | None = None

    def __init__(self, engine: Any, generator: Any, opened: Opened, target: Target, folder: Path) -> None:
        self.opened, self._engine, self._generator = opened, engine, generator
        self._target, self._folder, self._model_file = target, folder, folder / "model.bin"
        self._kept: set[int] = set()  # depths whose keys and values the engine has

    @cached_property
    def _words(self) -> list[str]:
        """The engine takes tokens by their words."""
        listed = self._folder / "vocabulary.json"
        try:
            if listed.is_file():
                words: list[str] = parse_json(listed.read_text(encoding="utf-8"))
                return words
            return (self._folder / "vocabulary.txt").read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise EngineError(
                f"The vocabulary in {str(self._folder)!r} cannot be read: {error}.", remedy="Convert the model again."
            ) from None

    @property
    def vocabulary(self) -> int:
        return len(self._words)

    def generate(self, request: Request) -> Iterator[Event]:
        require_request(request, vocabulary=self.vocabulary, room=self._target.context)
        if request.depth not in self._kept:
            self._generated(request.prompt, 1, request)
            self._kept.add(request.depth)
        start, own = time.perf_counter_ns(), time.process_time_ns()
        steps = self._generated(request.prompt, max(1, request.generate), request)
        context, tokens = request.depth, len(request.prompt)
        for index, (token, end, own_end) in enumerate(steps):
            yield Event(
                kind="token" if index else "prefill",
                start_ns=start,
                end_ns=end,
                tokens=tokens,
                context=context,
                ids=(token,) if request.generate else (),
                own_s=(own_end - own) * 1e-9,
            )
            context, tokens, start, own = context + tokens, 1, end, own_end

    def _generated(self, prompt: Sequence[int], count: int, request: Request) -> list[tuple[int, int, int]]:
        """The token of each step, and when its last sequence had one: on the wall, and on the process's own clock."""
        words, steps = self._words, list[tuple[int, int, int]]()

        def heard(result: Any) -> bool:
            now = time.perf_counter_ns(), time.process_time_ns()
            if result.step == len(steps):
                steps.append((result.token_id, *now))
            else:
                steps[result.step] = (steps[result.step][0], *now)
            return False

        more: dict[str, Any] = {"end_token": []} if request.ignore_end else {}
        if request.depth:
            more["static_prompt"] = [words[(1 + _STRIDE * index) % len(words)] for index in range(request.depth)]
        generator = alive(self._generator)
        with guard(_fault, self._folder, "failed to run"):
            generator.generate_batch(
                [[words[token] for token in prompt]] * self._target.batch, max_length=count, sampling_topk=1,
                beam_size=1, include_prompt_in_result=False, callback=heard, **more,
            )  # fmt: skip
        return steps

    def score(self, ids: tuple[int, ...]) -> np.ndarray[Any, Any]:
        require_request(Request(prompt=ids, generate=0), vocabulary=self.vocabulary, room=self._target.context)
        generator, engine = alive(self._generator), self._engine
        with guard(_fault, self._folder, "failed to run"):
            logits = generator.forward_batch([list(ids)]).to(engine.DataType.float32)
            if self.opened.unit != "cpu":
                logits = logits.to_device(engine.Device.cpu)
        return np.array(logits, np.float32)[0, :, : self.vocabulary]

    def kernels(self) -> Mapping[str, tuple[Kernel, ...]]:
        return {}

    def close(self) -> None:
        self._generator = None
