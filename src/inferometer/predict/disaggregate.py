"""Reading prompts on one machine and writing tokens on another: the cache travels between them once a request."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import DomainError
from inferometer.core.profile import DeviceFacts, Phase, Profile
from inferometer.core.workload import Parallel, Workload
from inferometer.predict.headline import headline_times
from inferometer.predict.price.collectives import message_floor, message_seconds
from inferometer.predict.ready import make_layout
from inferometer.predict.request import start_tokens

if TYPE_CHECKING:
    from inferometer.core.device import Link
    from inferometer.core.engine import RuntimeEffects
    from inferometer.core.graph import Graph
    from inferometer.predict.options import Options


_WRITING = ("decode", "draft", "detokenise")
_OF_ONE = (
    "energy_j",
    "energy_low_j",
    "energy_high_j",
    "co2e_g",
    "sustained_s",
    "battery_s",
)  # of one machine, and nobody's of two


def handed_over(reading: Profile, writing: Profile, *, cache_bytes: float, link: Link, options: Options) -> Profile:
    """The prompt's phases of one device, the cache over the link, the decoding of the other.

    The cache is sent when the prompt is read: an engine that sends it layer by layer hides most of that. The summary's
    throughput, memory and cost are those of the decoding side.
    """
    workload = writing.workload
    if reading.summary.ttft_s is None or reading.model.kv_bytes_per_token is None or not workload.generate:
        raise DomainError(
            f"{writing.model.name} has no cache that one machine could hand to another, or nothing to read and write.",
            remedy="Two machines need a prompt to read and tokens to generate: --prompt and --generate.",
        )
    seconds = float(message_seconds("send", 2, cache_bytes, link))
    floor = float(message_floor("send", 2, cache_bytes, link))
    moved = Phase(
        name="transfer", time_s=seconds, low_s=floor, high_s=2 * seconds, floor_s=floor, bound="link", flops=0.0,
        bytes=cache_bytes, streams={"network": seconds},
    )  # fmt: skip
    before = tuple(phase for phase in reading.phases if phase.name not in _WRITING)
    after = tuple(phase for phase in writing.phases if phase.name in _WRITING)
    phases = (*before, moved, *after)
    times: dict[str, Any] = headline_times(phases, workload, options)  # mypy cannot match names to fields
    return replace(
        writing,
        device=DeviceFacts(name=f"{reading.device.name}+{writing.device.name}", count=2 * writing.device.count),
        phases=phases,
        summary=replace(writing.summary, **times, **dict.fromkeys(_OF_ONE)),
    )


def prompt_cache_bytes(graph: Graph, workload: Workload, effects: RuntimeEffects, options: Options) -> float:
    """Bytes in all caches, an encoder's included, when the prompt is read."""
    alone = replace(workload, parallel=Parallel())
    residency = make_layout(graph, effects=effects, workload=alone, options=options).residency
    sizes = {"batch": workload.batch, "query": start_tokens(graph, workload), "context": 0, "logits": 1}
    return float(residency.use(sizes).kv_bytes)
