"""What a simulation is asked for: a question about a served model, its traffic, and how the service is built."""

from __future__ import annotations

from inferometer.core.device import Link
from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.predict.question import Question
from inferometer.serving.load.plan import LoadPlan
from inferometer.serving.simulate.service import Routing, Scaling


@frozen
class SimulationPlan:
    """`traffic` says what is asked of the service, as of a load test.

    Limits that are None are the engine's own. `readers` is a question about the pool that reads prompts, where that is
    a pool of its own. `speculation` is (tokens drafted a step, share of them that is kept). `whole` counts every
    request and not those of the steady window alone. `longest` is what the engine takes at most of a prompt and its
    answer, `queue` how many may wait, `patience_s` after how long whoever asked goes away. `offload` are tiers below a
    replica's cache, the nearest first: bytes, and bytes a second; None are those of the link to the host.
    """

    question: Question
    traffic: LoadPlan
    replicas: int = 1
    ranks: int = 1  # data-parallel ranks of each replica: more replicas, but where they share experts
    routing: Routing = "least-loaded"
    tokens: int | None = None
    sequences: int | None = None
    blocks: int | None = None
    block_tokens: int | None = None
    prefix_cache: bool = True
    swap: bool = False
    priorities: tuple[float, ...] = ()
    scaling: Scaling | None = None
    readers: Question | None = None
    reader_replicas: int = 1
    link: Link | None = None  # between the pools
    speculation: tuple[int, float] | None = None
    whole: bool = False
    longest: int | None = None
    queue: int | None = None
    patience_s: float | None = None
    offload: tuple[tuple[float, float | None], ...] = ()

    def __post_init__(self) -> None:
        for name, value in (
            ("--replicas", self.replicas), ("--dp", self.ranks), ("--max-num-batched-tokens", self.tokens),
            ("--max-num-seqs", self.sequences), ("--kv-blocks", self.blocks), ("--block-size", self.block_tokens),
            ("--prefill-replicas", self.reader_replicas), ("--max-model-len", self.longest),
            ("--max-queue", self.queue),
        ):  # fmt: skip
            if value is not None and value < 1:
                raise DomainError(f"{name} must be 1 or more, and is {value}.")
        if self.priorities and abs(sum(self.priorities) - 1) > 1e-6:
            raise DomainError(
                f"The shares of the priorities sum to {sum(self.priorities):g}.",
                remedy="Write shares that sum to 1, the most urgent first: --priorities 0.2,0.8.",
            )
        if self.speculation is not None and not (self.speculation[0] >= 1 and 0 <= self.speculation[1] < 1):
            raise DomainError("Speculation drafts 1 token or more, and keeps a share of them below 1.")
