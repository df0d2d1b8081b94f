"""What may be asked of a prediction beyond the workload, as values. Each says what it assumes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields, replace
from itertools import pairwise

from inferometer.core.device import Link
from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph

_TOKENS, _MANY = 1 << 27, 1 << 20  # as many as a workload may have, of tokens and of sequences


def _require(name: str, value: float | None, *, least: float, most: float) -> None:
    """Beyond `most` a number is a slip of the pen, or in another unit than was meant."""
    if value is not None and not least <= value <= most:  # NaN is neither
        raise DomainError(f"{name} must be a number from {least:g} to {most:,.6g}, and is {str(value)[:40]}.")


@frozen
class Offload:
    """Weights that lie in the host's memory and cross the host link at every step.

    `layers` is how many of the last layers lie there, `experts` sends all routed experts there.
    """

    layers: int = 0
    experts: bool = False

    def __post_init__(self) -> None:
        _require("offload.layers", self.layers, least=0, most=_MANY)


# Pairs, rising: up to so many sequences that decode at once so many tokens are drafted, and beyond the last none.
DraftSchedule = tuple[tuple[int, int], ...]
_LONGEST_DRAFT = 1024  # tokens


def draft_schedule(text: str, length: int) -> DraftSchedule:
    """`4:4,8:2,32:1`; `32` is `length` tokens up to 32 sequences, as engines switch drafts off by batch size."""
    remedy = "Write 4:4,8:2,32:1 for 4 tokens up to 4 sequences, 2 up to 8, 1 up to 32 and none beyond; or 32 alone."
    pairs = []
    for part in text.split(","):
        most, colon, tokens = part.strip().partition(":")
        if not _is_whole(most) or (colon and not _is_whole(tokens)):
            raise DomainError(f"--draft-up-to {text[:40]!r} is no list of sequences and tokens.", remedy=remedy)
        pairs.append((int(most), int(tokens) if colon else length))
    rises = all(before < after for (before, _), (after, _) in pairwise(pairs))
    if not rises or pairs[0][0] < 1 or max(tokens for _, tokens in pairs) > _LONGEST_DRAFT:
        raise DomainError(
            f"--draft-up-to {text[:40]!r}: sequences rise from 1, and a draft has at most {_LONGEST_DRAFT} tokens.",
            remedy=remedy,
        )
    return tuple(pairs)


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 7  # digits


def drafted_at(up_to: DraftSchedule, length: int, sequences: float) -> int:
    """Tokens that are drafted where so many sequences decode at once; without a schedule `length` at any load."""
    return next((tokens for most, tokens in up_to if sequences <= most), 0) if up_to else length


@frozen
class Speculative:
    """A draft model proposes `length` tokens a step, each accepted with probability `acceptance`, independently.

    With `up_to` their number depends on the load, and `at` says it for one; with a length of 0 the draft model only
    lies beside the other.
    """

    draft: Graph
    length: int
    acceptance: float
    up_to: DraftSchedule = ()

    def __post_init__(self) -> None:
        _require("speculative.length", self.length, least=0, most=_LONGEST_DRAFT)
        _require("speculative.acceptance", self.acceptance, least=0, most=1)

    def at(self, sequences: int) -> Speculative:
        """The same where so many sequences decode at once."""
        return replace(self, length=drafted_at(self.up_to, self.length, sequences), up_to=())


@frozen
class HostCosts:
    """Seconds of the host around the model; what is not given is left out of the prediction."""

    tokenise_s_per_token: float | None = None
    sampling_s: float | None = None
    detokenise_s_per_token: float | None = None

    def __post_init__(self) -> None:
        for name in (entry.name for entry in fields(self)):
            _require(name, getattr(self, name), least=0, most=3600)  # an hour: more was meant in other units


@frozen
class EnergyCosts:
    """Joules for an operation and for a byte, in place of the device's power. Idle power is counted beside them."""

    joules_per_flop: float
    joules_per_byte: float

    def __post_init__(self) -> None:
        for name in (entry.name for entry in fields(self)):
            _require(name, getattr(self, name), least=0, most=1000)


@frozen
class Battery:
    """What the device runs from, and how many requests (or forward passes) a second it answers.

    Without a capacity it is the battery of the device's row; without a rate requests follow one upon the other.
    """

    capacity_j: float | None = None
    per_s: float | None = None
    efficiency: float = 1.0  # of what lies between the battery and the device

    def __post_init__(self) -> None:
        _require("battery.capacity_j", self.capacity_j, least=0, most=1e15)
        _require("battery.per_s", self.per_s, least=0, most=1e9)
        _require("battery.efficiency", self.efficiency, least=0, most=1)


@frozen
class Hosting:
    """Where it runs: an instance's price, an electricity grid, a data centre's overhead, by their catalog names.

    Without an instance the cheapest one of the catalog with the device is taken, by its share of the devices.
    """

    instance: str | None = None
    usd_per_hour: float | None = None  # of all devices together, instead of an instance's price
    spot: bool = False
    grid: str | None = None
    pue: str | float | None = None  # a row of the catalog, or the number itself

    def __post_init__(self) -> None:
        _require("usd_per_hour", self.usd_per_hour, least=0, most=1e9)
        if isinstance(self.pue, int | float):
            _require("pue", self.pue, least=1, most=10)


@frozen
class Options:
    """`chunk` splits a prefill; `cached_prefix` tokens of the prompt are in the cache already.

    `micro_batches` are what a pipeline works on at once. `overlap` is the share of communication that hides behind
    computing. `imbalance` is the busiest expert device's rows over the mean. `steps` are those of a diffusion model.
    `cooling_w` is the heat that is taken away. `frame_rate` are the frames that a camera gives a second, `audio_s` is
    how long a recording is. `overrides` are formats of the weights of some ops, by patterns of their names. `sizes`
    binds further symbols of a file's inputs.
    `threads` are those that the engine has of a CPU, `layout` is that of images (nchw, nhwc). `host_speed` is how fast
    the host starts kernels, over the host that is assumed otherwise; `host_call_s` says so by the figure that `doctor`
    reads there.
    """

    chunk: int | None = None
    cached_prefix: int = 0
    micro_batches: int = 1
    overlap: float = 0.0
    imbalance: float = 1.0
    sequence_parallel: bool = False
    steps: int | None = None
    offload: Offload | None = None
    speculative: Speculative | None = None
    host: HostCosts = HostCosts()
    place: Hosting = Hosting()
    energy: EnergyCosts | None = None
    battery: Battery | None = None
    cooling_w: float | None = None
    frame_rate: float | None = None
    audio_s: float | None = None
    link: Link | None = None
    storage_bytes_per_s: float | None = None
    engine_version: str | None = None  # of a serving engine: the nearest whose kernels were measured is used
    threads: int | None = None
    layout: str | None = None
    host_speed: float | None = None
    host_call_s: float | None = None
    overrides: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _require("cooling_w", self.cooling_w, least=0, most=1e6)
        _require("chunk", self.chunk, least=1, most=_TOKENS)
        _require("cached_prefix", self.cached_prefix, least=0, most=_TOKENS)
        _require("micro_batches", self.micro_batches, least=1, most=_MANY)
        _require("overlap", self.overlap, least=0, most=1)
        _require("imbalance", self.imbalance, least=1, most=1024)  # all tokens to one of 1,024 experts
        _require("steps", self.steps, least=1, most=100_000)
        _require("threads", self.threads, least=1, most=1 << 16)
        if self.layout not in {None, "nchw", "nhwc"}:
            raise DomainError(f"The layout of images is nchw or nhwc, and not {self.layout!r}.")
        # a hundred times either way spans a phone's core and any server's
        _require("host_speed", self.host_speed, least=0.01, most=100)
        # a call takes some 0.1 µs: far below or above it a unit was mistaken
        _require("host_call_s", self.host_call_s, least=1e-9, most=1e-3)
        if self.host_speed is not None and self.host_call_s is not None:
            raise DomainError("host_speed and host_call_s say the same thing twice.", remedy="Give one of them.")
        if self.frame_rate is not None and not self.frame_rate > 0:
            raise DomainError(f"frame_rate must be greater than 0, and is {self.frame_rate!r}.")
        _require("frame_rate", self.frame_rate, least=0, most=1e9)
        if self.audio_s is not None and not self.audio_s > 0:
            raise DomainError(f"audio_s must be greater than 0, and is {self.audio_s!r}.")
        _require("audio_s", self.audio_s, least=0, most=1e9)
        _require("storage_bytes_per_s", self.storage_bytes_per_s, least=1, most=1e15)
        for name, size in self.sizes.items():
            if type(size) is not int or size < 1:
                raise DomainError(f"The size {name} must be a whole number of 1 or more, and is {size!r}.")
            _require(f"The size {name}", size, least=1, most=1 << 31)  # as files store sizes
