"""Time not spent on the model's work: starting ops, moving and converting data, padding, waiting."""

import re
from collections.abc import Callable, Mapping
from math import fsum
from statistics import fmean

from inferometer.core.finding import Finding
from inferometer.core.profile import OpTime, Phase
from inferometer.core.request import RUN
from inferometer.known.engines import engine_or_ideal, engines, known_engine, runtime_effects
from inferometer.understand.case import Case, at_most, at_stake, evidence, faster, growth, phase_words, times_words

# Shares of a phase from which on each is worth a finding; `findings.toml` says the same in words.
_LAUNCH, _GAP, _MOVES, _COPIES, _CONVERT, _PAD, _LINK = 0.3, 0.15, 0.1, 0.1, 0.05, 0.15, 0.15
_MANY_OPS = 20
_TILE = 128  # rows that a GPU's large matrix kernels compute at once
_ACROSS = re.compile(r"memcpy|h2d|d2h|htod|dtoh|host.?to.?device|device.?to.?host", re.IGNORECASE)
_COPY_PARTS = ("write", "read")
_CONVERTING = frozenset({"quantize", "dequantize"})
_FUSE = (
    "Fuse them (graph optimisation, torch.compile), capture the step as one graph (CUDA graphs), or give each more to "
    "do with a larger batch."
)
_FUSE_ON_CPU = (
    "Fuse them (graph optimisation, an engine that compiles), try fewer threads, since every op waits for all of them, "
    "or give each more to do with a larger batch."
)


def launch_bound(case: Case) -> Finding | None:
    worst = _worst(case, _LAUNCH, lambda phase: fsum(op.time_s for op in case.in_regime(phase, "overhead")))
    if worst is None:
        return None
    phase, seconds, share = worst
    count = sum(op.count for op in case.in_regime(phase, "overhead"))
    if count < _MANY_OPS:
        return None
    compiler = engine_or_ideal(case.profile.runtime).compiled_by
    compiled = f"runtime={compiler}" if compiler else None
    gain = case.price(compiled, phase.name) if compiled else None
    return Finding(
        code="launch.bound",
        title=f"{count} small ops take {share:.0%} of {phase_words(phase)}, and have hardly any work",
        evidence=evidence(
            small_ops=count,
            share=share,
            time_s=seconds,
            each_s=seconds / count,
            launch_s=case.device.launch_s.value if case.device and case.device.launch_s else None,
            speedup_at_most=at_most(share),
        ),
        advice=_FUSE_ON_CPU if case.unit in {None, "cpu"} else _FUSE,
        **faster(gain),
        **at_stake(case, phase, seconds),
        changes=(compiled,) if compiled else ("optimisation=all", f"batch={8 * case.profile.workload.batch}"),
    )


def host_gap(case: Case) -> Finding | None:
    """Time in no op: the remainder of a phase, and time in which ops last but the device's own clock stands still."""
    on_cpu = case.unit in {None, "cpu"}
    worst = _worst(case, _GAP, lambda phase: _gap_of(phase) or (0.0 if on_cpu else _launched(phase)))
    if worst is None:
        return None
    phase, seconds, share = worst
    count = sum(op.count for op in phase.ops)
    title = f"{share:.0%} of {phase_words(phase)} is in no op"
    if _has_own_clock(phase):
        title = f"The device waits for the host in {share:.0%} of {phase_words(phase)}"
    elif not phase.ops:
        title = f"The host starts ops during {share:.0%} of {phase_words(phase)}, and hardly waits for the device"
    own = bool(phase.ops) and not _has_own_clock(phase) and _runs_by_itself(case.profile.runtime)
    captured = _captured(case)
    gain = case.price(captured, phase.name) if captured else None
    if gain is not None and gain.gain <= 1:  # what a compiler joined, a graph of plain modules has in many kernels
        captured, gain = None, None
    stake = at_stake(case, phase, seconds)
    if own:  # it is shown, and comes after what can be changed
        stake["severity"] = "info"
    return Finding(
        code="host.gap",
        title=title,
        evidence=evidence(
            gap_s=seconds,
            share=share,
            gap_per_op_s=seconds / count if count else None,
            ops=count or None,
            speedup_at_most=at_most(share),
        ),
        advice=_ENGINES_OWN if own else _BETWEEN_OPS,
        **faster(gain),
        **stake,
        changes=(captured,) if captured else (),
    )


def _captured(case: Case) -> str | None:
    """The change to the same library's engine that replays whole steps, for a device that waits for its host."""
    own = None if case.unit in {None, "cpu"} else known_engine(case.profile.runtime or "")
    if own is None or own.module is None or runtime_effects(own.name).execution == "captured":
        return None
    alike = (name for name, each in engines().items() if each.module == own.module)
    found = next((name for name in alike if runtime_effects(name).execution == "captured"), None)
    return f"runtime={found}" if found else None


def _runs_by_itself(runtime: str | None) -> bool:
    """Not one that another compiles for, which is called op by op; of one that nobody describes it is unknown."""
    described = None if runtime is None else known_engine(runtime)
    return described is not None and described.compiled_by is None


_BETWEEN_OPS = (
    "See what the host does between ops: Python, locks, logging, waiting for the device, or other programs on its "
    "cores. Capture the step as a graph, keep the loop out of Python, and pin threads."
)
_ENGINES_OWN = (
    "It is the engine's own, between its kernels, and no setting of the model takes it away. Ask more of each step "
    "(a larger batch), quieten the machine, or compare with another engine."
)


def _launched(phase: Phase) -> float:
    """What a host takes to start the ops of a step that ends with the last of them, beyond the least that they take.

    Where it waits for the device in the end, the device had work all along, or nobody knows.
    """
    if phase.ops or phase.parts.get(RUN, phase.time_s) >= _GAP * phase.time_s:
        return 0.0
    return max(0.0, phase.parts.get("launch", 0.0) - (phase.floor_s or 0.0))


def _gap_of(phase: Phase) -> float:
    if not phase.ops:
        return 0.0
    idle = [op.time_s - op.device_s for op in phase.ops if op.device_s is not None]
    outside = phase.time_s - fsum(op.time_s for op in phase.ops)
    return max(outside, 0.0) + fsum(max(seconds, 0.0) for seconds in idle)


def layout_moves(case: Case) -> Finding | None:
    worst = _worst(case, _MOVES, lambda phase: fsum(op.time_s for op in phase.ops if _is_move(op)))
    if worst is None:
        return None
    phase, seconds, share = worst
    moves = [op for op in phase.ops if _is_move(op)]
    return Finding(
        code="layout.moves",
        title=f"Transposes, copies and casts take {share:.0%} of {phase_words(phase)}",
        evidence=evidence(
            share=share,
            time_s=seconds,
            casts_s=fsum(op.time_s for op in moves if op.kind == "cast"),
            moves=sum(op.count for op in moves),
            speedup_at_most=at_most(share),
        ),
        advice="Export the model in the layout the engine computes in (NHWC or NCHW, as its kernels want), keep one "
        "number format from end to end, and raise the graph optimisation level, which folds such ops away.",
        **at_stake(case, phase, seconds),
        changes=("optimisation=all",),
    )


def _is_move(op: OpTime) -> bool:
    return op.kind in {"copy", "cast"} and not _crosses(op)


def _crosses(op: OpTime) -> bool:
    """Whether it is a copy between host and device, going by its name."""
    return bool(_ACROSS.search(f"{op.name} {op.kernel or ''}"))


def host_copies(case: Case) -> Finding | None:
    worst = _worst(case, _COPIES, _copied)
    if worst is None:
        return None
    phase, seconds, share = worst
    link = case.device.host_link.bandwidth_bytes_per_s if case.device and case.device.host_link else None
    return Finding(
        code="host.copies",
        title=f"Copies between host and device take {share:.0%} of {phase_words(phase)}",
        evidence=evidence(
            share=share,
            time_s=seconds,
            link_bytes_per_s=link.value if link else None,
            speedup_at_most=at_most(share),
        ),
        advice="Keep inputs, outputs and the cache on the device (I/O binding), use pinned memory, send smaller types "
        "(uint8 images), and overlap copies with computing.",
        **at_stake(case, phase, seconds),
    )


def _copied(phase: Phase) -> float:
    """Seconds in ops that cross the host link, or in the engine's own write and read parts, whichever is more.

    If the device has a clock of its own, a read is mostly the host's waiting for it to finish, and only ops count.
    """
    across = fsum(op.time_s for op in phase.ops if _crosses(op) or (op.bound == "link" and op.kind != "collective"))
    parts = () if _has_own_clock(phase) else _COPY_PARTS
    return max(across, fsum(phase.parts.get(name, 0.0) for name in parts))


def _has_own_clock(phase: Phase) -> bool:
    return any(op.device_s is not None for op in phase.ops)


def communication_bound(case: Case) -> Finding | None:
    worst = _worst(case, _LINK, lambda phase: fsum(op.time_s for op in phase.ops if op.kind == "collective"))
    if worst is None:
        return None
    phase, seconds, share = worst
    devices = case.profile.workload.parallel.devices
    return Finding(
        code="communication.bound",
        title=f"{devices} devices exchange results for {share:.0%} of {phase_words(phase)}",
        evidence=evidence(share=share, time_s=seconds, devices=devices, speedup_at_most=at_most(share)),
        advice="Split over fewer devices, or between layers instead of inside them (pipeline for tensor parallel), use "
        "a faster link, or let communication overlap with computing.",
        **at_stake(case, phase, seconds),
    )


def quantisation_overhead(case: Case) -> Finding | None:
    """Ops that convert, or a runtime that writes the weights out in a wider format before it uses them."""
    expanded = case.profile.workload.precision.weights in engine_or_ideal(case.profile.runtime).effects.expanded
    least = 0.0 if expanded else _CONVERT
    worst = _worst(case, least, lambda phase: fsum(op.time_s for op in phase.ops if op.kind in _CONVERTING))
    if worst is None and not expanded:
        return None
    phase, seconds, share = worst or (case.steady, 0.0, 0.0)
    if phase is None:
        return None
    wide = case.price("weights=f16", phase.name) if expanded else None
    return Finding(
        code="quantisation.overhead",
        title=f"Converting number formats takes {share:.0%} of {phase_words(phase)}"
        if seconds
        else f"{case.profile.runtime} writes {case.profile.workload.precision.weights} weights out before it uses them",
        evidence=evidence(
            share=share,
            time_s=seconds,
            weight_bits=case.weight_bits,
            speedup_at_most=at_most(share),
            speedup_in_f16=wide.gain if wide else None,
        ),
        advice="Use a format whose kernels multiply it as it is stored (int8 on this unit, a GGUF block format in "
        "llama.cpp), quantise activations too, or leave the small layers unquantised.",
        **at_stake(case, phase, seconds),
    )


def padding_waste(case: Case) -> Finding | None:
    """Tokens that a report counts as padding; otherwise rows that fill the last tile of a GPU's matrix kernels."""
    phase = case.profile.phase("prefill") or case.profile.phase("forward")
    counted = _told_padding(case)
    if phase is None or phase.time_s <= 0:
        return None
    real, padded = counted or _tiled(case, phase)
    waste = 1 - real / padded if padded > real > 0 else 0.0
    if waste < _PAD:
        return None
    part = 1.0 if counted else case.regimes(phase).get("compute", 0.0)
    return Finding(
        code="padding.waste",
        title=f"{waste:.0%} of the rows of {phase_words(phase)} are padding",
        evidence=evidence(rows=real, padded_rows=padded, waste=waste, speedup_at_most=at_most(waste * part)),
        advice="Group requests of like length, use buckets or ragged batches, or lengths and batches that are whole "
        f"multiples of {_TILE} where the kernels take that many rows at once.",
        **at_stake(case, phase, waste * part * phase.time_s),
    )


def _told_padding(case: Case) -> tuple[float, float] | None:
    host: Mapping[str, object] = case.profile.environment.host if case.profile.environment else {}
    padding = host.get("padding")
    if not isinstance(padding, Mapping):
        return None
    real, padded = padding.get("tokens"), padding.get("padded_tokens")
    if isinstance(real, int | float) and isinstance(padded, int | float):
        return float(real), float(padded)
    return None


def _tiled(case: Case, phase: Phase) -> tuple[float, float]:
    """Rows of the matrix products, and rows of their whole tiles; 0 unless it is a compute-bound phase on a GPU."""
    rows = case.profile.workload.batch * (case.profile.workload.prompt or 0)
    if case.unit != "gpu" or phase.name != "prefill" or rows < _TILE:
        return 0.0, 0.0
    if case.regimes(phase).get("compute", 0.0) < 0.5:
        return 0.0, 0.0
    return float(rows), float(-(-rows // _TILE) * _TILE)


def _worst(case: Case, least_share: float, seconds_of: Callable[[Phase], float]) -> tuple[Phase, float, float] | None:
    """The phase that costs a request the most such seconds, with the seconds and their share of the phase.

    None if there are none, or if their share is below the least.
    """
    candidates = [(phase, seconds) for phase in case.repeating if (seconds := seconds_of(phase)) > 0]
    if not candidates:
        return None
    phase, seconds = max(candidates, key=lambda pair: case.stake(*pair))
    share = seconds / phase.time_s
    return (phase, seconds, share) if share >= least_share else None


# Language models: attention that grows with the context, the wait for the first token, uneven experts.

_ATTENTION, _GROWTH = 0.3, 0.1  # shares of a step
_FIRST, _FIRST_SHARE = 5.0, 0.25  # times a later token, and the share of a request
_UNEVEN, _EXPERTS = 1.5, 0.1  # busiest over mean expert, and the experts' share of a phase
_EXPERT = re.compile(r"^(.*?experts?[._])(\d+)(?=[._]|$)")


def attention_grows(case: Case) -> Finding | None:
    """Attention takes much of a decode step, or steps got longer the more tokens were in the cache."""
    phase = case.profile.phase("decode") or case.profile.phase("prefill") or case.profile.phase("forward")
    if phase is None or phase.time_s <= 0:
        return None
    share = fsum(op.time_s for op in phase.ops if op.kind == "attention") / phase.time_s
    slope = growth(phase)
    grown = slope.share if slope else 0.0
    if share < _ATTENTION and grown < _GROWTH:
        return None
    form = f"kv={engine_or_ideal(case.profile.runtime).small.kv}"
    gain = case.price(form, "decode") if phase.name == "decode" else None
    context = _context(case)
    twice = case.price(f"context={2 * context}", "decode") if context and phase.name == "decode" else None
    part = max(share, grown)
    return Finding(
        code="attention.grows",
        severity="info",
        title=f"Attention takes {part:.0%} of {phase_words(phase)} at {context or 'this many'} tokens, "
        "and grows with them",
        evidence=evidence(
            attention_share=share or None,
            step_growth_share=grown or None,
            seconds_per_token_s=slope.per_token_s if slope else None,
            context_tokens=context,
            step_at_twice_the_context_s=twice.after_s if twice else None,
        ),
        advice="Keep the context short (retrieve less, summarise, slide a window), store the cache in 8 bits, and use "
        "flash attention where the engine has it.",
        **faster(gain),
        phase=phase.name,
        stake_s=case.stake(phase, part * phase.time_s),
        changes=(form,) if phase.name == "decode" else (),
    )


def _context(case: Case) -> int | None:
    workload = case.profile.workload
    if workload.context is not None:
        return workload.context or None
    return (workload.prompt or 0) + (workload.generate or 0) // 2 or None


def latency_first_token(case: Case) -> Finding | None:
    summary, phase = case.profile.summary, case.profile.phase("prefill")
    ttft, step = summary.ttft_s, summary.tpot_s
    request_s = case.request_s
    if not ttft or not step or not request_s or ttft < _FIRST * step or ttft < _FIRST_SHARE * request_s:
        return None
    prompt = case.profile.workload.prompt or 0
    half = f"cached_prefix={prompt // 2}"
    gain = case.price(half, "prefill") if prompt > 1 else None
    return Finding(
        code="latency.first-token",
        severity="info",
        title=f"The first token takes {ttft / step:.0f} times as long as each one after it",
        evidence=evidence(
            ttft_s=ttft,
            tpot_s=step,
            ratio=ttft / step,
            share=ttft / request_s,
            prompt_tokens=prompt or None,
            seconds_per_prompt_token_s=ttft / prompt if prompt else None,
        ),
        advice="Keep the cache of what prompts have in common (prefix caching; the gain is for half of the prompt), "
        "shorten the prompt, and read long ones in chunks so that they do not hold up other requests.",
        **faster(gain),
        phase=phase.name if phase else None,
        stake_s=ttft,
        changes=(half,) if prompt > 1 else (),
    )


def experts_imbalance(case: Case) -> Finding | None:
    """From each expert's own time, if ops name experts; otherwise from experts alone taking longer than predicted."""
    candidates = [(phase, *(_by_expert(phase) or _over_prediction(phase))) for phase in case.repeating]
    worst = max(
        (one for one in candidates if one[2] >= _UNEVEN and one[1] >= _EXPERTS * one[0].time_s),
        key=lambda one: case.stake(one[0], _lost_to_uneven(*one[1:])),
        default=None,
    )
    if worst is None:
        return None
    phase, seconds, uneven = worst
    lost = _lost_to_uneven(seconds, uneven)
    return Finding(
        code="experts.imbalance",
        title=f"The busiest experts take {times_words(uneven)} times the mean",
        evidence=evidence(
            imbalance=uneven,
            experts_share=seconds / phase.time_s,
            speedup_at_most=at_most(lost / phase.time_s),
        ),
        advice="Use larger batches, which even tokens out over experts; spread or replicate the busy experts over "
        "devices; or cap the tokens an expert takes.",
        **at_stake(case, phase, lost),
    )


def _lost_to_uneven(seconds: float, uneven: float) -> float:
    """Seconds that experts would save if all were as busy as their mean."""
    return seconds * (1 - 1 / uneven)


def _by_expert(phase: Phase) -> tuple[float, float] | None:
    """Seconds in experts, and the busiest expert over the mean one, averaged over layers."""
    layers: dict[str, dict[str, float]] = {}
    for op in phase.ops:
        match = _EXPERT.match(op.name)
        if match:
            times = layers.setdefault(match[1], {})
            times[match[2]] = times.get(match[2], 0.0) + op.time_s
    uneven = [
        max(times.values()) / fmean(times.values())
        for times in layers.values()
        if len(times) > 1 and sum(times.values()) > 0
    ]
    if not uneven:
        return None
    return fsum(seconds for times in layers.values() for seconds in times.values()), fmean(uneven)


def _over_prediction(phase: Phase) -> tuple[float, float]:
    """Seconds in experts, and measured over predicted relative to the same ratio of other matrix products."""
    experts = [op for op in phase.ops if op.kind == "moe_experts" and op.predicted_s]
    others = [op for op in phase.ops if op.kind in {"linear", "matmul"} and op.predicted_s]
    if not experts or not others:
        return 0.0, 0.0
    ratios = [fsum(op.time_s for op in ops) / fsum(op.predicted_s or 0.0 for op in ops) for ops in (experts, others)]
    return fsum(op.time_s for op in experts), ratios[0] / ratios[1] if ratios[1] > 0 else 0.0
