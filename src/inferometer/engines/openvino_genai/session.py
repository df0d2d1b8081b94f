"""Generates with OpenVINO GenAI's pipeline, and takes the times of tokens from its own record of them.

What the pipeline cannot do is done by stepping its network: a cache that is filled before the prompt, the counters of
kernels, and logits.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
import openvino as ov
import openvino_genai

from inferometer.core.errors import DomainError, FormatError
from inferometer.engines.base import Event, Opened, Request, Stage
from inferometer.engines.feeding import require_request
from inferometer.engines.host import threads_of
from inferometer.engines.openvino.devices import choose_device, unit_of
from inferometer.engines.openvino.faults import guarded
from inferometer.engines.openvino_genai.stepping import SteppedNetwork
from inferometer.engines.tokens import load_tokeniser

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from inferometer.engines.base import Kernel, Target

NETWORK = "openvino_model.xml"
_STRIDE = 7  # through the vocabulary, so that the tokens of a depth differ
_MICRO_NS = 1000
# What computes in f32 throughout: by default the CPU keeps the cache in 8 bits and quantises activations.
_PLAIN = {"KV_CACHE_PRECISION": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
_DEEP = "The pipeline does not go on from a filled cache: with a depth its network is stepped as the pipeline does."
_MEANS = "The CPU's counters are means over steps: each step's sample is the mean of its phase."
_PACKAGES = ("openvino-genai", "openvino")


def open_session(target: Target, name: str, *, clock: Callable[[], float] = time.perf_counter) -> PipelineSession:
    folder = _checked(target, name)
    core = ov.Core()
    device = choose_device(target, core.available_devices)
    threads = threads_of(target.threads)
    settings = _settings(target, device, threads)
    start = clock()
    network, pipeline = None, None
    if target.instrument:
        network = SteppedNetwork(folder / NETWORK, device, settings, target, counting=True)
    else:
        with guarded(folder, "refused"):
            pipeline = openvino_genai.LLMPipeline(str(folder), device, ATTENTION_BACKEND="SDPA", **settings)
    opened = Opened(
        stages=(Stage(name="load", seconds=clock() - start),),
        versions={package: version(package) for package in _PACKAGES},
        threads=threads,
        unit=unit_of(device),
        precision=target.precision or _computed(core, device),
        notes=(_MEANS,) if target.instrument and device == "CPU" else _kept(core, device, settings),
    )
    vocabulary = _vocabulary(core, folder)
    return PipelineSession(target, folder, (device, settings), pipeline, network, opened, vocabulary)


def _checked(target: Target, name: str) -> Path:
    """The folder; the network in it may be given in its place."""
    if not target.text:
        raise DomainError(f"{name} opens language models; one of arrays was asked for.")
    folder = target.path.parent if target.path.is_file() and target.path.name == NETWORK else target.path
    if not (folder / NETWORK).is_file():
        raise FormatError(
            f"{str(target.path)!r} is no folder of OpenVINO GenAI: there is no {NETWORK} in it.",
            remedy="Make one: `inferometer prepare CHECKPOINT --for openvino-genai -o FOLDER`.",
        )
    return folder


def _settings(target: Target, device: str, threads: int) -> dict[str, Any]:
    settings: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY"}
    if device == "CPU":
        settings |= {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": "1"}
    if target.precision is not None:
        settings["INFERENCE_PRECISION_HINT"] = target.precision
    if target.precision == "f32" and device == "CPU":
        settings |= _PLAIN
    return {**settings, **target.options}


def _computed(core: Any, device: str) -> str | None:
    """What the device computes in by itself; None where it does not say."""
    name = _type_name(core, device, "INFERENCE_PRECISION_HINT")
    return name if name in {"f32", "f16", "bf16"} else None


def _kept(core: Any, device: str, settings: Mapping[str, Any]) -> tuple[str, ...]:
    name = settings.get("KV_CACHE_PRECISION") or _type_name(core, device, "KV_CACHE_PRECISION")
    return () if name is None else (f"The cache is kept in {name}.",)


def _type_name(core: Any, device: str, wanted: str) -> str | None:
    try:
        value = core.get_property(device, wanted)
    except RuntimeError:
        return None
    return str(value.get_type_name()) if hasattr(value, "get_type_name") else None


def _vocabulary(core: Any, folder: Path) -> int:
    with guarded(folder, "refused"):
        last = core.read_model(str(folder / NETWORK)).output(0).get_partial_shape()[-1]
    if not last.is_static:
        raise FormatError(f"{str(folder / NETWORK)!r} gives no logits of a known vocabulary.")
    return int(last.get_length())


class PipelineSession:
    """A TextSession over a pipeline, and over its network where there is no other way."""

    cost_per_kernel_s: float | None = None

    def __init__(  # noqa: PLR0913, PLR0917 - what is open, and how
        self, target: Target, folder: Path, compiled: tuple[str, Mapping[str, Any]], pipeline: Any,
        network: SteppedNetwork | None, opened: Opened, vocabulary: int,
    ) -> None:  # fmt: skip
        self.opened, self.vocabulary, self._target, self._folder = opened, vocabulary, target, folder
        self._device, self._settings = compiled
        self._pipeline, self._network, self._closed = pipeline, network, False
        self._scoring: SteppedNetwork | None = None

    @cached_property
    def _tokeniser(self) -> Any:
        return load_tokeniser(self._folder / NETWORK)

    def tokenise(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokeniser.encode(text).ids)

    def detokenise(self, ids: tuple[int, ...]) -> str:
        return str(self._tokeniser.decode(list(ids)))

    def generate(self, request: Request) -> Iterator[Event]:
        require_request(request, vocabulary=self.vocabulary, room=self._target.context)
        self._alive()
        if self._pipeline is not None and not request.depth:
            return self._by_pipeline(request)
        if self._pipeline is not None and _DEEP not in self.opened.notes:
            self.opened = replace(self.opened, notes=(*self.opened.notes, _DEEP))
        return self._stepped(request)

    def _by_pipeline(self, request: Request) -> Iterator[Event]:
        chosen = self._pipeline.get_generation_config()
        chosen.max_new_tokens, chosen.do_sample, chosen.apply_chat_template = max(1, request.generate), False, False
        chosen.num_beams, chosen.ignore_eos = 1, request.ignore_end
        if chosen.eos_token_id < 0:  # it must be some token, though it is ignored or nothing says which
            chosen.eos_token_id, chosen.stop_token_ids = 0, {0}
        rows = ov.Tensor(np.tile(np.asarray(request.prompt, np.int64), (self._target.batch, 1)))
        with guarded(self._folder, "failed to run"):
            start = time.perf_counter_ns()
            made = self._pipeline.generate(rows, chosen)
        raw = made.perf_metrics.raw_metrics
        took = (*raw.m_times_to_first_token, *raw.m_durations)
        parts = zip(raw.token_infer_durations, raw.sampling_durations, strict=False)
        context, tokens = 0, len(request.prompt)
        for index, (token, micros) in enumerate(zip(made.tokens[0], took, strict=False)):
            end = start + int(micros * _MICRO_NS)
            yield Event(
                kind="token" if index else "prefill", start_ns=start, end_ns=end, tokens=tokens, context=context,
                ids=(int(token),) if request.generate else (), parts=_parts(next(parts, None), micros),
            )  # fmt: skip
            context, tokens, start = context + tokens, 1, end

    def _stepped(self, request: Request) -> Iterator[Event]:
        network = self._stepping()
        network.begin()
        if request.depth:
            network.step([(1 + _STRIDE * index) % self.vocabulary for index in range(request.depth)])
        network.count(None)
        ids, cached = request.prompt, request.depth
        try:
            for index in range(max(1, request.generate)):
                start = time.perf_counter_ns()
                logits = network.step(ids)
                ran = time.perf_counter_ns()
                token = int(np.argmax(logits[-1]))
                end = time.perf_counter_ns()
                if not index:
                    network.count("prefill")
                yield Event(
                    kind="token" if index else "prefill", start_ns=start, end_ns=end, tokens=len(ids), context=cached,
                    ids=(token,) if request.generate else (),
                    parts={"run": (ran - start) * 1e-9, "sample": (end - ran) * 1e-9},
                )  # fmt: skip
                cached, ids = cached + len(ids), (token,)
        finally:
            network.count("decode")

    def _stepping(self) -> SteppedNetwork:
        if self._network is None:
            self._network = SteppedNetwork(self._folder / NETWORK, self._device, self._settings, self._target)
        return self._network

    def score(self, ids: tuple[int, ...]) -> np.ndarray[Any, Any]:
        require_request(Request(prompt=ids, generate=0), vocabulary=self.vocabulary, room=self._target.context)
        self._alive()
        if self._scoring is None:
            self._scoring = SteppedNetwork(
                self._folder / NETWORK, self._device, self._settings, replace(self._target, batch=1), last_only=False
            )
        self._scoring.begin()
        logits = np.array(self._scoring.step(ids), np.float32)
        if len(logits) == len(ids):
            return logits
        self._scoring.begin()  # the file gives the logits of the last token alone
        return np.stack([np.array(self._scoring.step((token,))[-1], np.float32) for token in ids])

    def kernels(self) -> Mapping[str, tuple[Kernel, ...]]:
        return self._network.kernels() if self._network is not None else {}

    def _alive(self) -> None:
        if self._closed:
            raise DomainError("The session is closed.", remedy="Open the model again.")

    def close(self) -> None:
        self._pipeline = self._network = self._scoring = None
        self._closed = True


def _parts(pair: tuple[float, float] | None, micros: float) -> dict[str, float]:
    """What the pipeline says of a token: running the network, and choosing the token."""
    if pair is None or sum(pair) > micros:
        return {}
    return {"run": pair[0] * 1e-6, "sample": pair[1] * 1e-6}
