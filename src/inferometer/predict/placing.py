"""Before a download: which quantised forms of a language model fit a device, and how fast each would be.

One that does not fit may lie in part on the host. Layers run one after the other, wherever their weights lie, so a step
of a model that is split between a GPU and the CPU beside it takes the sum of what each takes for its layers. The hidden
state that crosses between them is some kilobytes, and is left out.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from inferometer.core.device import LOCAL, is_local
from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph, is_generative
from inferometer.formats.sizes import bind
from inferometer.known.engines import engine
from inferometer.known.files import row_named
from inferometer.predict.ask import ask, device_for, model_graph, usual_runtime
from inferometer.predict.basis.roof import busy_notes
from inferometer.predict.memory.fit import capacity_of
from inferometer.predict.options import Options
from inferometer.predict.parallel import is_layer, layer_count
from inferometer.predict.precision import with_overrides
from inferometer.predict.work.count import with_formats

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from inferometer.core.device import Device
    from inferometer.core.profile import Phase
    from inferometer.predict.memory.fit import Fit
    from inferometer.predict.question import Question

_GGUF = ("f16", "q8_0", "q6_k", "q5_k", "q4_k", "q3_k", "q2_k")  # what people publish, the largest first
_OTHERS = ("bf16", "f8e4m3", "i8", "i4")  # of engines that do not read GGUF files
_CONTEXT = 4096  # tokens that a conversation has room for, unless another number is asked for
_PROMPT, _GENERATE = 512, 128  # of the request that the speed is of


@frozen
class RunnableForm:
    """One format of the weights. `fits` is on the device alone; `flags` place what does not, where that is possible.

    `tokens_per_s` with its ends is of one sequence, with the weights where the flags put them; None is not known.
    `host_bytes` is what then lies in the memory of the host. `limited_by` is what bounds a token, or `capacity`.
    """

    weights: str
    bits_per_weight: float
    weights_bytes: int
    fits: bool | None
    tokens_per_s: float | None = None
    low: float | None = None
    high: float | None = None
    limited_by: str | None = None
    flags: str | None = None
    host_bytes: int | None = None
    why_not: str | None = None


@frozen
class Runnable:
    """The forms of a model on a device, the largest first."""

    model: str
    device: str
    host: str | None
    runtime: str
    context: int
    capacity_bytes: int | None
    forms: tuple[RunnableForm, ...]
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        return {"schema": "inferometer.can-i-run/1", **asdict(self)}


def can_i_run(
    model: str | Path | Graph,
    *,
    on: str | Device = LOCAL,
    host: str | Device | None = None,
    runtime: str | None = None,
    context: int | None = None,
) -> Runnable:
    """Which forms of a model a device runs, and how fast: `can_i_run("meta-llama/Llama-3.1-8B", on="nvidia-rtx-4090")`.

    Nothing is downloaded: a catalog name, the id that a model has elsewhere, or a folder with a config.json. `host` is
    the CPU beside a GPU, for what does not fit; this machine's own where the device is of this machine.
    """
    graph, named = _graph(model)
    if not is_generative(graph):
        raise DomainError(f"{graph.name} makes no tokens.", remedy="`inferometer predict` says how fast it is.")
    device = device_for(on)
    beside = host if host is not None else f"{LOCAL}:cpu" if is_local(device.name) and device.unit == "gpu" else None
    cpu = None if beside is None else device_for(beside)
    chosen = runtime or usual_runtime(device, graph, "q4_k")
    limit = graph.context_limit or _CONTEXT
    room = min(context or _CONTEXT, limit)
    formats = _GGUF if _runs_gguf(chosen) else _OTHERS
    questions = [_question(graph, device, chosen, name) for name in formats]
    forms = [_form(question, room, cpu) for question in questions]
    cut = (f"{graph.name} reads at most {limit:,} tokens.",) if (context or 0) > limit else ()
    return Runnable(
        model=graph.name, device=device.name, host=None if cpu is None else cpu.name, runtime=chosen, context=room,
        capacity_bytes=_in_roomy(questions[0], room).capacity_bytes, forms=tuple(forms),
        notes=(*named, *cut, *busy_notes(questions[0].roof)),
    )  # fmt: skip


def _question(graph: Graph, device: Device, runtime: str, weights: str) -> Question:
    """Overridden too where a model states a format of its own for some weights."""
    stated = any(tensor.dtype for tensor, _ in graph.weights() if tensor.role == "weight")
    return ask(
        graph, on=device, runtime=runtime, weights=weights, prompt=_PROMPT, generate=_GENERATE,
        options=Options(overrides={"*": weights} if stated else {}),
    )  # fmt: skip


def _graph(model: str | Path | Graph) -> tuple[Graph, tuple[str, ...]]:
    """A model by its own name, or by one that it is published under; that one is not guessed but known, and said."""
    if not isinstance(model, str) or row_named("models", model):
        return model_graph(model), ()
    from inferometer.known.atlas.names import match_model  # noqa: PLC0415 - a catalog name needs none of it

    published = model.partition("://")[2].partition("/")[2] or model
    found = match_model(published) or match_model(published.rstrip("/").rpartition("/")[2])
    if found is not None and row_named("models", found):
        return model_graph(found), (f"{published} has the architecture of {found} of the catalog.",)
    if "://" in model:
        raise UnknownNameError(
            "model", published, (), listing="`inferometer models` lists them. Nothing is downloaded."
        )
    return model_graph(model), ()


def _in_roomy(question: Question, context: int) -> Fit:
    generate = min(_GENERATE, context - 1)
    workload = replace(question.workload, prompt=max(1, context - generate), generate=generate)
    return replace(question, workload=workload).fit()


def _form(question: Question, context: int, host: Device | None) -> RunnableForm:
    stored = question.workload.precision.weights or ""
    memory = _in_roomy(question, context)
    bare = RunnableForm(
        weights=stored,
        bits_per_weight=8 * memory.weights_bytes / question.graph.parameters,
        weights_bytes=memory.weights_bytes,
        fits=memory.fits,
    )
    try:
        step = question.answer().phase("decode")
    except DomainError as error:
        return replace(bare, why_not=str(error))
    if step is None:
        return bare
    if memory.fits is not False:
        layers = 99 if question.device.unit == "gpu" else 0
        flags = f"-ngl {layers} -c {context}" if _runs_gguf(question.runtime_name) else None
        return _timed(replace(bare, limited_by=step.bound, flags=flags), step.time_s, step.low_s, step.high_s)
    if not _runs_gguf(question.runtime_name) or not _has_memory_of_its_own(question.device):
        return replace(bare, limited_by="capacity")
    return _placed(replace(bare, limited_by="capacity"), question, memory, context, host)


def _runs_gguf(runtime: str) -> bool:
    """Whether an engine opens llama.cpp's files, and takes its flags."""
    return "gguf" in engine(runtime).opens


def _has_memory_of_its_own(device: Device) -> bool:
    """Whether the host beside it has other memory: a GPU on a chip with a CPU shares what there is."""
    kind = (device.memory.kind if device.memory else None) or ""
    return device.unit == "gpu" and kind.upper().startswith(("GDDR", "HBM"))


def _timed(form: RunnableForm, time_s: float, low_s: float | None, high_s: float | None) -> RunnableForm:
    """With tokens a second: the slow end of a time is the low end of a rate."""
    low, high = (None if end is None else 1 / end for end in (high_s, low_s))
    return replace(form, tokens_per_s=1 / time_s, low=low, high=high)


@frozen
class Placement:
    """How many of the layers lie on the GPU, and of how many of those the experts lie in the host's memory."""

    layers: int
    experts_away: int
    device_bytes: float


def _placed(form: RunnableForm, question: Question, memory: Fit, context: int, host: Device | None) -> RunnableForm:
    """The form with the placement that keeps the most on the GPU, and its speed where the host is known."""
    found = placement(question, memory)
    flags = f"-ngl {found.layers}"
    if found.experts_away:
        flags += f" --n-cpu-moe {_first_layers(question.graph, found.experts_away)}"
    away = round(memory.total_bytes - found.device_bytes)
    form = replace(form, flags=f"{flags} -c {context}", host_bytes=away)
    if host is None:
        return form
    room = capacity_of(host)
    if room is not None and away > room:
        too_much = f"{away / 1e9:.1f} GB would lie on the host, which has {room / 1e9:.1f}."
        return replace(form, flags=None, why_not=too_much)
    here = question.answer().phase("decode")
    there = _question(question.graph, host, question.runtime_name, form.weights).answer().phase("decode")
    if here is None or there is None:
        return form
    ends = [_split_step(question.graph, found, here, there, end) for end in ("time_s", "low_s", "high_s")]
    return form if ends[0] is None else _timed(form, *ends)  # type: ignore[arg-type] # the first is there


def _first_layers(graph: Graph, away: int) -> int:
    """How many layers, from the first, have their experts on the host: llama.cpp counts dense layers too."""
    stacks = [block for block in graph.blocks if is_layer(block)]
    mixed = [any(op.kind == "moe_experts" for op in block.ops) for block in stacks]
    before = sum(block.count for block in stacks[: mixed.index(True)])
    count, experts = layer_count(graph), sum(b.count for b, has in zip(stacks, mixed, strict=True) if has)
    return before + -(-away * (count - before) // experts)


def placement(question: Question, memory: Fit) -> Placement:
    """Experts go first: they are most of a model and little of a token's work. Then whole layers, from the last."""
    graph, count = question.graph, layer_count(question.graph)
    stacked = _weights(question, lambda block, _op: is_layer(block))
    experts = _weights(question, lambda _block, op: op.kind == "moe_experts")
    mixed = sum(b.count for b in graph.blocks if is_layer(b) and any(op.kind == "moe_experts" for op in b.ops))
    fixed = memory.activations_bytes + memory.workspace_bytes + memory.state_bytes + (memory.reserve_bytes or 0)
    room = (memory.capacity_bytes or 0) - fixed
    for away in range(1, mixed + 1):
        held = memory.weights_bytes + memory.kv_bytes - experts * away / mixed
        if held <= room:
            return Placement(layers=99, experts_away=away, device_bytes=held + fixed)
    each = (stacked - experts + memory.kv_bytes) / count  # the head and the embedding stay on the host then
    layers = max(0, min(count, int(room // each))) if each else 0
    return Placement(
        layers=layers, experts_away=mixed if layers else 0, device_bytes=layers * each + (fixed if layers else 0)
    )


def _weights(question: Question, wanted: Callable[[Any, Any], bool]) -> float:
    """Bytes of the weights of some ops, in the format asked for."""
    graph = with_overrides(question.graph, question.options.overrides)
    binding = with_formats(graph, bind(graph, question.workload, complete=False))
    sizes = {
        tensor.name: binding.nbytes(tensor) * (block.count if "{}" in tensor.name else 1)
        for block in graph.blocks
        for op in block.ops
        if wanted(block, op)
        for part in op.nested()
        for tensor in part.weights
    }
    return float(sum(sizes.values()))


def _split_step(graph: Graph, found: Placement, here: Phase, there: Phase, end: str) -> float | None:
    """Seconds of a step whose ops run where their weights lie; its ends are as wide as those of each part."""
    whole = layer_count(graph)
    stacked = {block.name for block in graph.blocks if is_layer(block)}
    mixed = sum(b.count for b in graph.blocks if is_layer(b) and any(op.kind == "moe_experts" for op in b.ops))
    on_gpu = min(found.layers, whole) / whole
    away = found.experts_away / mixed if mixed else 0.0

    def part(phase: Phase, share_of: Callable[[Any], float]) -> float | None:
        bound = getattr(phase, end)
        ops = sum(op.time_s * share_of(op) for op in phase.ops)
        return None if bound is None else ops * bound / (sum(op.time_s for op in phase.ops) or 1.0)

    def gpu_share(op: Any) -> float:
        if op.block not in stacked:
            return 1.0 if found.layers > whole else 0.0
        return on_gpu * (1 - away) if op.kind == "moe_experts" else on_gpu

    first, second = part(here, gpu_share), part(there, lambda op: 1 - gpu_share(op))
    return None if first is None or second is None else first + second
