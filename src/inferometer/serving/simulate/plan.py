"""The input of a simulation: a question about a served model, its traffic, and how the service is built."""

from __future__ import annotations

from typing import Literal

from inferometer.core.device import Link
from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.traffic.demand import require_share_and_time
from inferometer.predict.options import DraftSchedule
from inferometer.predict.question import Question
from inferometer.serving.load.plan import LoadPlan
from inferometer.serving.simulate.service import Routing, Scaling
from inferometer.serving.simulate.source import Kinds

DraftHead = Literal["ngram", "eagle", "mtp"]
DRAFT_HEADS: tuple[DraftHead, ...] = ("ngram", "eagle", "mtp")
_MOST_SPREAD = 0.5  # of a share, if half of the requests accept all and half nothing


@frozen
class Lora:
    """Requests that ask for one of several low-rank adapters; `slots` of them are in a step at most."""

    adapters: int
    rank: int = 16
    slots: int = 1  # vLLM's max_loras

    def __post_init__(self) -> None:
        if min(self.adapters, self.rank, self.slots) < 1:
            raise DomainError(
                "Adapters, their rank and their slots are 1 or more.", remedy="Write --lora 8:16 --max-loras 4."
            )


@frozen
class Vision:
    """Requests with images: images a request, tokens an image, and the encoder's seconds for one.

    Images are drawn from `pictures`, so some come again; 0: each one is new. The encoder's weights lie beside the
    model's.
    """

    images: int
    tokens: int
    encode_s: float
    pictures: int = 0
    weights_bytes: float = 0.0  # of the encoder; 0: they are not known

    def __post_init__(self) -> None:
        if self.images < 1 or self.tokens < 1 or self.pictures < 0 or not self.encode_s >= 0:
            raise DomainError("Images and their tokens are 1 or more.", remedy="Write --images 2:576 --encoder 30ms.")


@frozen
class SimulationPlan:
    """`traffic` says what is asked of the service, as of a load test.

    Limits that are None are the engine's own. `readers` is a question about the pool that reads prompts, where that
    is a pool of its own. `speculation` is (tokens drafted a step, share of them that is kept). `whole` counts every
    request and not those of the steady window alone. `longest` is what the engine takes at most of a prompt and its
    answer (None: the model's window), `queue` how many may wait, `patience_s` after how long whoever asked goes
    away. `offload` are tiers below a replica's cache, the nearest first: bytes, and bytes a second; None are those
    of the link to the host.
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
    keeps: bool = False  # whether every request is kept, however many they are
    longest: int | None = None
    queue: int | None = None
    patience_s: float | None = None
    offload: tuple[tuple[float, float | None], ...] = ()
    answers: int = 1  # to each prompt (`n` of a request)
    cancels: tuple[float, float] | None = None  # a share of the requests, and after how many seconds
    spread: float = 0.0  # standard deviation of the acceptance from request to request
    head: DraftHead | None = None  # what drafts, where it is no model of its own
    draft_up_to: DraftSchedule = ()  # how many tokens are drafted by load; the same at any, where it is empty
    lora: Lora | None = None
    vision: Vision | None = None
    told: bool = True  # whether the next prompt of a session has the answer as it was made, so that it is found

    @property
    def kinds(self) -> Kinds:
        """How requests differ beside their lengths."""
        return Kinds(
            priorities=self.priorities,
            adapters=self.lora.adapters if self.lora else 0,
            images=self.vision.images if self.vision else 0,
            pictures=self.vision.pictures if self.vision else 0,
            told=self.told,
        )

    def __post_init__(self) -> None:
        for name, value in (
            ("--replicas", self.replicas), ("--dp", self.ranks), ("--max-num-batched-tokens", self.tokens),
            ("--max-num-seqs", self.sequences), ("--kv-blocks", self.blocks), ("--block-size", self.block_tokens),
            ("--prefill-replicas", self.reader_replicas), ("--max-model-len", self.longest),
            ("--max-queue", self.queue), ("--n", self.answers),
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
        if self.spread and (self.speculation is None or not 0 <= self.spread <= _MOST_SPREAD):
            raise DomainError(
                f"An acceptance that varies by {self.spread:g} from request to request cannot be.",
                remedy=f"Write 0 to {_MOST_SPREAD}, with --draft or --draft-length.",
            )
        if self.draft_up_to and self.speculation is None:
            raise DomainError(
                "--draft-up-to is of a draft, and none is given.", remedy="Add --draft or --draft-length."
            )
        if self.patience_s is not None and not self.patience_s > 0:
            raise DomainError(f"--timeout must be greater than 0 s, and is {self.patience_s:g} s.")
        require_share_and_time(self.cancels)
