"""Generates with OpenVINO GenAI's pipeline, and takes the times of tokens from its own record of them.

What the pipeline cannot do is done by stepping its network: a cache that is filled before the prompt, the counters of
kernels, and logits.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import openvino_genai
from openvino import opset13

from inferometer.core.errors import DomainError, FormatError
from inferometer.engines.base import Event, Kernel, Opened, Request, Stage, Target
from inferometer.engines.feeding import Tokenising, require_request
from inferometer.engines.host import threads_of
from inferometer.engines.openvino.adopt import kernel_roles, own_names
from inferometer.engines.openvino.devices import choose_device, guarded, unit_of
from inferometer.engines.openvino.executed import CounterReading, file_topology, mean_between
from inferometer.engines.openvino.recorded import consumers_of, executed_of, executed_order, executed_seconds

# The network of a folder, stepped as the pipeline steps it: for what the pipeline cannot do.
#
# It does not go on from a filled cache, shows no counters and gives no logits. Its own loop feeds the ids, a mask of
# ones, positions and the order of the beams to one request, whose state is the cache; so does this one. Before the last
# product all but the last token are cut off, as the pipeline does.

# From the names that OpenVINO's converter takes from a traced module to the layers of the model's graph.
#
# `__module.model.layers.3.self_attn.q_proj/aten::linear/MatMul` is `layers.3.attn.q_proj`; the modules before `layers`
# are those that the exporter put round the model.

_NAME = re.compile(r"__module\.(?:model\.)*(?P<path>[^/]*)(?:/(?P<operation>.*))?$")
_LAYER = re.compile(r"layers\.(?P<number>\d+)\.?(?P<module>.*)$")
_OUTSIDE = {"embed_tokens": "embed", "norm": "final_norm", "lm_head": "lm_head"}
_MODULES = {
    "input_layernorm": "attn.norm", "post_attention_layernorm": "mlp.norm", "mlp.act_fn": "mlp.act", "mlp": "mlp.mul",
}  # fmt: skip
_ROTARY = re.compile(r"aten::(mul|cat|neg|slice|add|split)\b")


def layer_of(name: str) -> str | None:
    """The layer that an operation of the network belongs to; None for one that serves the whole model."""
    found = _NAME.match(name)
    if found is None:
        return None
    path, operation = found["path"], found["operation"] or ""
    inside = _LAYER.match(path)
    if inside is None:
        return _OUTSIDE.get(path)
    return f"layers.{inside['number']}.{_part(inside['module'], operation)}"


def _part(module: str, operation: str) -> str:
    if not module:  # the sums of the layer itself: after attention, then after the MLP
        return "mlp.residual" if operation.endswith("_1") else "attn.residual"
    if module == "self_attn":
        return "attn.rotary" if _ROTARY.match(operation) else "attn.attention"
    return _MODULES.get(module) or module.replace("self_attn.", "attn.")


def layers_of(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(layer for name in names if (layer := layer_of(name)) is not None))


Array = np.ndarray[Any, Any]
_STEPS_AT_MOST = 48  # since it was compiled: counters are means of all steps, rounded to microseconds
_LAST = np.iinfo(np.int64).max


class SteppedNetwork:
    """One request. With `counting` it keeps what each kernel took, by phase."""

    def __init__(  # noqa: PLR0913 - what is compiled, and how
        self, file: Path, device: str, settings: Mapping[str, Any], target: Target, *, counting: bool = False,
        last_only: bool = True,
    ) -> None:  # fmt: skip
        self._file, self._device, self._target, self._counting = file, device, target, counting
        self._settings = {**settings, "PERF_COUNT": "YES" if counting else "NO"}
        self._core = ov.Core()
        with guarded(file, "refused"):
            self._model = self._core.read_model(str(file))
        operations = {op.get_friendly_name(): consumers_of(op) for op in self._model.get_ordered_ops()}
        self._own = {**(known := {name: name for name in operations}), **own_names(operations, known)}
        self._inputs = {name for port in self._model.inputs for name in port.get_names()}
        if last_only:
            _cut_before_logits(self._model)
        self._samples: dict[str, dict[str, list[float]]] = {}
        self._counts: dict[str, int] = {}
        self._compile()

    def _compile(self) -> None:
        with guarded(self._file, "refused"):
            self._compiled = self._core.compile_model(self._model, self._device, self._settings)
            self._request = self._compiled.create_infer_request()
        self._steps, self._read = 0, CounterReading()

    def begin(self) -> None:
        """An empty cache. Counters begin anew where they have become too coarse."""
        if self._counting and self._steps > _STEPS_AT_MOST:
            self._compile()
        self._request.reset_state()
        self._cached = 0

    def step(self, ids: Sequence[int]) -> Array:
        """The logits after the tokens, of the first sequence: [tokens or 1, vocabulary]."""
        batch, total = self._target.batch, self._cached + len(ids)
        rows = {
            "input_ids": np.tile(np.asarray(ids, np.int64), (batch, 1)),
            "attention_mask": np.ones((batch, total), np.int64),
            "position_ids": np.tile(np.arange(self._cached, total), (batch, 1)),
            "beam_idx": np.arange(batch, dtype=np.int32),
        }
        with guarded(self._file, "failed to run"):
            made = self._request.infer({name: rows[name] for name in rows if name in self._inputs}, share_outputs=True)
        self._cached, self._steps = total, self._steps + 1
        logits: Array = made[0][0]
        return logits

    def count(self, phase: str | None) -> None:
        """What was run since the last time was of this phase, or of none."""
        if not self._counting or self._steps == self._read.steps:
            return
        reading = CounterReading(steps=self._steps, means_s=executed_seconds(self._request))
        count, means = reading.steps - self._read.steps, mean_between(self._read, reading)
        self._read = reading
        if phase is None:
            return
        kept = self._samples.setdefault(phase, {})
        before = self._counts.get(phase, 0)
        for name in kept.keys() | means.keys():
            kept.setdefault(name, [0.0] * before).extend([means.get(name, 0.0)] * count)
        self._counts[phase] = before + count

    def kernels(self) -> Mapping[str, tuple[Kernel, ...]]:
        samples, self._samples, self._counts = self._samples, {}, {}
        return {phase: self._described(kept) for phase, kept in samples.items()}

    def _described(self, samples: Mapping[str, Sequence[float]]) -> tuple[Kernel, ...]:
        ops, facts, order = executed_order(self._compiled, samples)
        original = file_topology(self._target.nodes) if self._target.nodes else None
        executed = [executed_of(name, op, facts[name]) for name, op in ops.items()]
        roles = kernel_roles(original, executed, self._own, order)
        return tuple(
            Kernel(
                name=name,
                kind=facts.get(name, {}).get("layerType") or name,
                samples_s=tuple(samples[name]),
                layers=roles[name].layers if original else layers_of(roles[name].layers),
                own=roles[name].own,
                provider=facts.get(name, {}).get("primitiveType") or None,
                dtype=facts.get(name, {}).get("runtimePrecision") or None,
            )
            for name in order
        )


def _cut_before_logits(model: Any) -> None:
    """The last product is made of the last token alone, if it is a product of the tokens' rows."""
    product = model.output(0).get_node().input_value(0).get_node()
    if product.get_type_name() != "MatMul":
        return
    whole = product.input(0)
    ends = [opset13.constant([number]) for number in (-1, _LAST, 1, 1)]
    cut = opset13.slice(whole.get_source_output(), *ends)
    whole.replace_source_output(cut.output(0))
    model.validate_nodes_and_infer_types()


NETWORK = "openvino_model.xml"
_STRIDE = 7  # through the vocabulary, so that the tokens of a depth differ
_MICRO_NS = 1000
# What computes in f32 throughout: by default the CPU keeps the cache in 8 bits and quantises activations.
_PLAIN = {"KV_CACHE_PRECISION": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
_DEEP = "The pipeline does not go on from a filled cache: with a depth its network is stepped as the pipeline does."
_MEANS = "The CPU's counters are means over steps: each step's sample is the mean of its phase."
_PACKAGES = ("openvino-genai", "openvino")


def open_session(target: Target, name: str, *, clock: Callable[[], float] = time.perf_counter) -> "PipelineSession":
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
    with guarded(folder, "refused"):
        last = core.read_model(str(folder / NETWORK)).output(0).get_partial_shape()[-1]
    if not last.is_static:
        raise FormatError(f"{str(folder / NETWORK)!r} gives no logits of a known vocabulary.")
    vocabulary = int(last.get_length())
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


class PipelineSession(Tokenising):
    """A TextSession over a pipeline, and over its network where there is no other way."""

    cost_per_kernel_s: float | None = None

    def __init__(  # noqa: PLR0913, PLR0917 - what is open, and how
        self, target: Target, folder: Path, compiled: tuple[str, Mapping[str, Any]], pipeline: Any,
        network: SteppedNetwork | None, opened: Opened, vocabulary: int,
    ) -> None:  # fmt: skip
        self.opened, self.vocabulary, self._target, self._folder = opened, vocabulary, target, folder
        self._model_file = folder / NETWORK
        self._device, self._settings = compiled
        self._pipeline, self._network, self._closed = pipeline, network, False
        self._scoring: SteppedNetwork | None = None

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
        if self._network is None:
            self._network = SteppedNetwork(self._folder / NETWORK, self._device, self._settings, self._target)
        network = self._network
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
