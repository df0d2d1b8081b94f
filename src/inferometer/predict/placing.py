"""Before a download: which quantised forms of a language model fit a device, and how fast each would be.

One that does not fit may lie in part on the host. Layers run one after the other, wherever their weights lie, so a step
of a model that is split between a GPU and the CPU beside it takes the sum of what each takes for its layers. The hidden
state that crosses between them is some kilobytes, and is left out. So it is with several cards, which may be unequal:
each holds a run of layers, and which of them holds how many is searched for.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from inferometer.core.device import LOCAL, Device, is_local
from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph, is_generative
from inferometer.core.sizes import bind
from inferometer.known import dtype_facts
from inferometer.known.engines import engine
from inferometer.known.files import row_named
from inferometer.predict.ask import ask, device_for, model_graph, usual_runtime
from inferometer.predict.basis.roof import busy_notes
from inferometer.predict.memory.fit import Fit, capacity_of
from inferometer.predict.options import Options
from inferometer.predict.parallel import is_layer, layer_count
from inferometer.predict.precision import with_overrides
from inferometer.predict.work.count import with_formats

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from inferometer.core.profile import Phase
    from inferometer.predict.question import Question

_GGUF = ("f16", "q8_0", "q6_k", "q5_k", "q4_k", "q3_k", "q2_k")  # what people publish, the largest first
_OTHERS = ("bf16", "f8e4m3", "i8", "i4")  # of engines that do not read GGUF files
_CONTEXT = 4096  # tokens that a conversation has room for, unless another number is asked for
_PROMPT, _GENERATE = 512, 128  # of the request that the speed is of
_QUALITY = "Perplexity lost is what llama.cpp states of Llama-3-8B: it orders the forms; other models lose otherwise."


@frozen
class RunnableForm:
    """One format of the weights. `fits` is on the device alone; `flags` place what does not, where that is possible.

    `tokens_per_s` with its ends is of one sequence, with the weights where the flags put them; None is not known.
    `host_bytes` is what then lies in the memory of the host. `limited_by` is what bounds a token, or `capacity`.
    `perplexity_lost` is published of another model (`Runnable.quality` says which), and orders the formats.
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
    perplexity_lost: float | None = None


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
    quality: str | None = None  # whose perplexity is told

    def document(self) -> dict[str, Any]:
        return {"schema": "inferometer.can-i-run/1", **asdict(self)}


def can_i_run(
    model: str | Path | Graph,
    *,
    on: str | Device | Sequence[str | Device] = LOCAL,
    host: str | Device | None = None,
    runtime: str | None = None,
    context: int | None = None,
) -> Runnable:
    """Which forms of a model a device runs, and how fast: `can_i_run("meta-llama/Llama-3.1-8B", on="nvidia-rtx-4090")`.

    Nothing is downloaded: a catalog name, the id that a model has elsewhere, or a folder with a config.json. `host` is
    the CPU beside a GPU, for what does not fit; this machine's own where the device is of this machine. Several cards
    (`on=("nvidia-rtx-4090", "nvidia-rtx-3060")`) share the layers, in the order in which they are named.
    """
    graph, named = _graph(model)
    if not is_generative(graph):
        raise DomainError(f"{graph.name} makes no tokens.", remedy="`inferometer predict` says how fast it is.")
    cards = [
        device_for(each) for each in (on.split(",") if isinstance(on, str) else [on] if isinstance(on, Device) else on)
    ]
    device = cards[0]
    beside = host if host is not None else f"{LOCAL}:cpu" if is_local(device.name) and device.unit == "gpu" else None
    cpu = None if beside is None else device_for(beside)
    chosen = runtime or usual_runtime(device, graph, "q4_k")
    limit = graph.context_limit or _CONTEXT
    room = min(context or _CONTEXT, limit)
    formats = _GGUF if _runs_gguf(chosen) else _OTHERS
    questions = [[_question(graph, card, chosen, name) for card in cards] for name in formats]
    if len(cards) > 1:
        _require_cards(cards, chosen)
    forms = [_form(asked[0], room, cpu) if len(cards) == 1 else _spread(asked, room, cpu) for asked in questions]
    lost = {name: facts.perplexity_lost.value for name, facts in dtype_facts().items() if facts.perplexity_lost}
    forms = [replace(form, perplexity_lost=lost.get(form.weights)) for form in forms]
    capacities = [_in_roomy(question, room).capacity_bytes for question in questions[0]]
    cut = (f"{graph.name} reads at most {limit:,} tokens.",) if (context or 0) > limit else ()
    return Runnable(
        model=graph.name,
        device=" + ".join(card.name for card in cards),
        host=None if cpu is None else cpu.name,
        runtime=chosen,
        context=room,
        capacity_bytes=None if None in capacities else sum(filter(None, capacities)),
        forms=tuple(forms),
        notes=(*named, *cut, *busy_notes(questions[0][0].roof)),
        quality=_QUALITY if lost.keys() & set(formats) else None,
    )


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
        layers = 99 if question.device.unit == "gpu" else 0  # llama.cpp's way of saying all
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
    if (refused := _beyond_host(form, away, host)) is not None:
        return refused
    here = question.answer().phase("decode")
    there = _question(question.graph, host, question.runtime_name, form.weights).answer().phase("decode")
    if here is None or there is None:
        return form
    ends = [_split_step(question.graph, found, here, there, end) for end in ("time_s", "low_s", "high_s")]
    return form if ends[0] is None else _timed(form, *ends)  # type: ignore[arg-type] # the first is there


def _beyond_host(form: RunnableForm, away: int, host: Device) -> RunnableForm | None:
    """The form refused, where its host has no room for what lies there."""
    room = capacity_of(host)
    if room is None or away <= room:
        return None
    too_much = f"{away / 1e9:.1f} GB would lie on the host, which has {room / 1e9:.1f}."
    return replace(form, flags=None, why_not=too_much)


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
    mixed = _mixed(graph)
    fixed = _fixed_bytes(memory)
    room = (memory.capacity_bytes or 0) - fixed
    for away in range(1, mixed + 1):
        held = memory.weights_bytes + memory.kv_bytes - experts * away / mixed
        if held <= room:
            # all layers, but for their experts
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
        block.full_name(tensor.name): binding.nbytes(tensor) * (block.count if "{}" in tensor.name else 1)
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
    mixed = _mixed(graph)
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


# ── several cards ───────────────────────────────────────────────────────────────────────────────────────────────────


def _require_cards(cards: Sequence[Device], runtime: str) -> None:
    other = next((card.name for card in cards if not _has_memory_of_its_own(card)), None)
    if other is not None:
        raise DomainError(
            f"{other} has no memory of its own to hold a part of a model in.", remedy="Name GPUs with GDDR or HBM."
        )
    if not _runs_gguf(runtime):
        raise DomainError(
            f"{runtime} splits each layer over equal cards.", remedy="`inferometer predict --tp` answers that."
        )


@frozen
class _Layers:
    """Seconds and bytes of a layer on one card, with its experts and without, and what that card has room for."""

    seconds: tuple[float, float]
    nbytes: tuple[float, float]
    room: float
    rest_s: float  # the head, on the card with the last layer
    low: float
    high: float


def _layers_of(question: Question, memory: Fit) -> _Layers:
    graph, step = question.graph, question.answer().phase("decode")
    count, stacked = layer_count(graph), {block.name for block in graph.blocks if is_layer(block)}
    mixed = _mixed(graph)
    in_layers = sum(op.time_s for op in step.ops if op.block in stacked) if step else 0.0
    experts_s = sum(op.time_s for op in step.ops if op.kind == "moe_experts") if step else 0.0
    weights = _weights(question, lambda block, _op: is_layer(block)) + memory.kv_bytes
    experts = _weights(question, lambda _block, op: op.kind == "moe_experts")
    head = memory.weights_bytes + memory.kv_bytes - weights
    fixed = _fixed_bytes(memory)
    whole_s = (sum(op.time_s for op in step.ops) if step else 0.0) or 1.0
    time_s = step.time_s if step else whole_s
    return _Layers(
        seconds=(in_layers / count, in_layers / count - (experts_s / mixed if mixed else 0.0)),
        nbytes=(weights / count, weights / count - (experts / mixed if mixed else 0.0)),
        room=(memory.capacity_bytes or 0) - fixed - head,  # any card may hold the last layer, and the head with it
        rest_s=whole_s - in_layers,
        low=(step.low_s or time_s) / time_s if step else 1.0,
        high=(step.high_s or time_s) / time_s if step else 1.0,
    )


def _fixed_bytes(memory: Fit) -> int:
    """What a card holds beside weights and cache, wherever the layers lie."""
    return memory.activations_bytes + memory.workspace_bytes + memory.state_bytes + (memory.reserve_bytes or 0)


def _mixed(graph: Graph) -> int:
    """How many layers have experts."""
    return sum(b.count for b in graph.blocks if is_layer(b) and any(op.kind == "moe_experts" for op in b.ops))


def split_layers(cards: Sequence[_Layers], count: int, away: int, on_host: int) -> tuple[int, ...] | None:
    """How many layers each card holds, one run after the other, so that a token takes the least; None where none fit.

    The first `on_host` layers lie on the host, and of the first `away` the experts do. Runs are tried from the last
    card back: what the cards from one on take at least for the layers from one on is worked out once for each pair.
    """

    def cost(card: _Layers, begin: int, end: int) -> tuple[float, float]:
        light = max(0, min(end, away) - begin)
        full = end - begin - light
        return (full * card.seconds[0] + light * card.seconds[1], full * card.nbytes[0] + light * card.nbytes[1])

    best: dict[int, tuple[float, tuple[int, ...]]] = {count: (0.0, ())}
    for card in reversed(cards):
        found: dict[int, tuple[float, tuple[int, ...]]] = {}
        for begin in range(on_host, count + 1):
            for end, (later, runs) in best.items():
                if end < begin:
                    continue
                seconds, nbytes = cost(card, begin, end)
                seconds += card.rest_s if begin < end == count else 0.0
                fits = begin == end or nbytes <= card.room  # with no layer a card needs no room for the head either
                if fits and (begin not in found or seconds + later < found[begin][0]):
                    found[begin] = (seconds + later, (end - begin, *runs))
        best = found
    return best[on_host][1] if on_host in best else None


def _spread(asked: Sequence[Question], context: int, host: Device | None) -> RunnableForm:
    """A form over several cards: all of it, else with experts on the host, else with layers there too."""
    first, memories = asked[0], [_in_roomy(question, context) for question in asked]
    graph, weights_bytes = first.graph, memories[0].weights_bytes
    form = RunnableForm(
        weights=first.workload.precision.weights or "", bits_per_weight=8 * weights_bytes / graph.parameters,
        weights_bytes=weights_bytes, fits=False, limited_by="capacity",
    )  # fmt: skip
    try:
        cards = [_layers_of(question, memory) for question, memory in zip(asked, memories, strict=True)]
    except DomainError as error:
        return replace(form, why_not=str(error))
    count, experts = layer_count(graph), _first_layers(graph, _mixed(graph)) if _mixed(graph) else 0
    tries = [(0, 0), *((away, 0) for away in range(1, experts + 1)), *((experts or 0, n) for n in range(1, count + 1))]
    away, on_host, runs = next(
        (away, on_host, runs) for away, on_host in tries if (runs := split_layers(cards, count, away, on_host))
    )
    placed = on_host < count
    flags = f"-ngl {99 if not on_host else count - on_host}"
    flags += f" --tensor-split {','.join(map(str, runs))}" if placed else ""
    flags += f" --n-cpu-moe {away}" if away and placed else ""
    light = max(0, away - on_host)
    expert_bytes = cards[0].nbytes[0] - cards[0].nbytes[1]
    host_bytes = round(on_host * cards[0].nbytes[0] + light * expert_bytes)
    form = replace(form, flags=f"{flags} -c {context}", fits=not host_bytes, host_bytes=host_bytes or None)
    ends = [0.0, 0.0, 0.0]
    begin, last = on_host, max((at for at, run in enumerate(runs) if run), default=0)
    for at, (card, run) in enumerate(zip(cards, runs, strict=True)):
        few = max(0, min(begin + run, away) - begin)
        seconds = (
            (run - few) * card.seconds[0] + few * card.seconds[1] + (card.rest_s if at == last and placed else 0.0)
        )
        ends = [total + seconds * wide for total, wide in zip(ends, (1.0, card.low, card.high), strict=True)]
        begin += run
    if host_bytes:
        if host is None:
            return form
        if (refused := _beyond_host(form, host_bytes, host)) is not None:
            return refused
        question = _question(graph, host, first.runtime_name, form.weights)
        beside = _layers_of(question, _in_roomy(question, context))
        there = on_host * beside.seconds[0] + light * (beside.seconds[0] - beside.seconds[1])
        there += 0.0 if placed else beside.rest_s
        ends = [total + there * wide for total, wide in zip(ends, (1.0, beside.low, beside.high), strict=True)]
    return _timed(replace(form, limited_by="memory" if form.fits else "capacity"), *ends)
