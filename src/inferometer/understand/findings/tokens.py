"""Language models: attention that grows with the context, the wait for the first token, uneven experts."""

import re
from math import fsum
from statistics import fmean

from inferometer.core.finding import Finding
from inferometer.core.profile import Phase
from inferometer.known.engines import engine_or_ideal
from inferometer.understand.case import Case, at_most, at_stake, evidence, faster, growth, phase_words, times_words

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
