"""How an engine puts requests into steps: the rules of its scheduler, by version, as data."""

from __future__ import annotations

from typing import Literal

from inferometer.core.frozen import frozen

Order = Literal["decode", "prompts"]
Admission = Literal["chunk", "prompt", "whole", "estimate", "slot"]
Victim = Literal["last", "shortest", "none"]


@frozen
class SchedulerRules:
    """The rules that hold from the version `since` of an engine on.

    `order` says what a step takes first: sequences that decode, with prompts' chunks in what is left of its tokens, or
    prompts alone, while decoding waits. `admission` says what must fit into the cache before a request is taken: the
    blocks of its first `chunk`, of its `prompt`, of prompt and answer as a `whole`, of the prompt and an `estimate` of
    what answers will still need, or nothing but a `slot`. `victim` is who gives way when the cache is full: the one
    that came `last`, the one with the `shortest` answer so far, or `none`. `estimate_start`, `estimate_least` and
    `estimate_steps` are the share of an answer's length that `estimate` reserves: where it begins, where it ends, and
    over how many steps of decoding.
    """

    engine: str
    since: str
    title: str
    order: Order
    admission: Admission
    victim: Victim
    prefix_cache: bool
    ahead: bool = False  # whether a step is planned while the one before it runs
    gang: bool = False  # whether data-parallel ranks of a mixture of experts step together and share the experts
    waits_after_preemption: bool = True  # whether a step that preempted admits nobody
    estimate_start: float = 0.0
    estimate_least: float = 0.0
    estimate_steps: int = 0
    slots: int | None = None  # of an engine without paged memory: sequences at once, where nobody says how many
    step_tokens: int | None = None  # and its tokens a step
    apart: bool = False  # whether prompts take a pass of their own, and so do slots that are no neighbours
    source: str = ""
    url: str = ""
