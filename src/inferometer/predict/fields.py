"""One row for each thing that may be asked of a prediction: the table that every door is made from.

The options of commands, the keywords of `inferometer.predict` and its kin, the hub's requests and its form, an agent's
tools, the axes of a sweep, the keys of a what-if, and what is said to a name that no row has: all of them are FIELDS.
`make docs` writes `asked.py` from it, which types the keywords for editors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from inferometer.core.errors import UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Takes = Literal["whole", "number", "share", "switch", "text", "texts"]
# Which part of a question it changes: `cost` counts money, energy and carbon and no time, `beside` is no part of it.
Changes = Literal["runtime", "run", "format", "plan", "size", "sizes", "basis", "option", "cost", "users", "beside"]
# What a model or its device must have, else the field means nothing: `applicable` and the hub's page know each.
Needs = Literal["anything", "tokens", "prompt", "image", "cpu", "gpu", "pictures on a gpu"]
Door = Literal["fit", "simulate", "profile", "models"]

DRAFT_LENGTH, ACCEPTANCE = 4, 0.7  # assumed where a draft is asked for without them


@dataclass(frozen=True, slots=True)
class Field:
    """What it takes, what its value is called, what it is for, and where a page has it (its own place without a group).

    `unit` is that of a text with a unit. `least` and `most` are what the hub lets strangers ask for. `axis` is what a
    sweep calls a list of it; what is no option, cost or number of users can have one. `doors` are those beside
    `predict` and `sweep`, which have every field. `catalog` says whose names its values are, `label` what a form calls
    it and `keyword` what Python does, where the name would not do. `python` is its type there.
    """

    takes: Takes
    metavar: str
    help: str
    group: str = ""
    changes: Changes = "option"
    needs: Needs = "anything"
    default: Any = None
    unit: str = ""
    least: int = 0
    most: int = 100_000_000  # above any token count or size, and an int that no arithmetic here overflows
    axis: str = ""
    doors: tuple[Door, ...] = ()
    catalog: str = ""
    label: str = ""
    keyword: str = ""
    python: str = ""

    @property
    def kind(self) -> str:
        """Its type in Python; None leaves it open."""
        plain = {"whole": "int", "number": "float", "share": "float", "switch": "bool", "texts": "Sequence[str]"}
        return f"{self.python or plain.get(self.takes, 'str | float' if self.unit else 'str')} | None"

    @property
    def listed(self) -> str:
        """Its type as a list of a sweep, or as the one value for all rows."""
        return f"{self.kind.removesuffix(' | None')} | Sequence[{self.kind}] | None" if self.axis else self.kind


_SERVED, _SPLIT, _DRAFT = "Reading and serving", "Several devices", "Drafted tokens"
_HOST, _MONEY, _ENERGY, _WHAT_IF = "Host and memory", "Price and carbon", "Energy and frames", "What if"
_EVERY: tuple[Door, ...] = ("fit", "simulate", "profile", "models")
_MANY = 4096  # sequences and devices: what the hub computes while its page waits
# In the order of the help page.
FIELDS: dict[str, Field] = {
    "runtime": Field(
        "text", "NAME", "The engine.  [default: depends on the model and device]", changes="runtime", axis="runtimes",
        doors=("fit", "simulate", "profile"), python="RuntimeEffects | str",
    ),
    "weights": Field(
        "text", "FORMAT", "Format of the weights.  [default: the model's]", changes="format", axis="weights",
        doors=_EVERY,
    ),
    "activations": Field(
        "text", "FORMAT", "Format of the activations.  [default: the model's]", changes="format", axis="activations",
        doors=("fit", "models"),
    ),
    "kv": Field(
        "text", "FORMAT", "Format of the KV cache.  [default: the activations']", changes="format", needs="tokens",
        axis="kv", doors=("fit", "simulate", "models"),
    ),
    "batch": Field(
        "whole", "N", "Inputs or sequences at once.", changes="size", default=1, least=1, most=_MANY, axis="batch",
        doors=("fit", "profile", "models"),
    ),
    "prompt": Field(
        "whole", "N", "Prompt length in tokens.  [default: 512]", changes="size", needs="prompt", least=1,
        axis="prompt", doors=("fit", "profile", "models"),
    ),
    "generate": Field(
        "whole", "N", "Tokens to generate.  [default: 128]", changes="size", needs="tokens", axis="generate",
        doors=("fit", "profile"),
    ),
    "context": Field(
        "whole", "N", "Tokens in the cache, for a single decode step.", changes="size", needs="tokens",
        axis="context", doors=("fit", "models"),
    ),
    "image": Field(
        "whole", "N", "Side of the input image, in pixels.  [default: the model's]", changes="size", needs="image",
        least=1, most=16_384, axis="image", doors=("fit", "profile", "models"),
    ),
    "size": Field(
        "texts", "NAME=N", "Any other size that the model leaves open, such as frames=1500.", _SERVED, changes="sizes",
        doors=("fit", "profile", "models"), label="Other sizes", keyword="sizes", python="Mapping[str, int]",
    ),
    "tp": Field(
        "whole", "N", "Tensor parallelism: devices that share each layer.", changes="plan", default=1, least=1,
        most=_MANY, axis="tp", doors=("fit", "simulate"),
    ),
    "pp": Field(
        "whole", "N", "Pipeline parallelism: devices that split the layers.", _SPLIT, changes="plan", default=1,
        least=1, most=_MANY, axis="pp", doors=("fit", "simulate"), label="Pipeline parallel",
    ),
    "ep": Field(
        "whole", "N", "Expert parallelism: devices that split the experts.", _SPLIT, changes="plan", default=1,
        least=1, most=_MANY, axis="ep", doors=("fit", "simulate"), label="Expert parallel",
    ),
    "dp": Field(
        "whole", "N", "Data parallelism: replicas of the model.", _SPLIT, changes="plan", default=1, least=1,
        most=_MANY, axis="dp", doors=("fit",), label="Replicas",
    ),
    "threads": Field(
        "whole", "N", "Threads of a CPU.  [default: one per core]", _HOST, changes="run", needs="cpu", least=1,
        most=_MANY, axis="threads", doors=("simulate", "profile"),
    ),
    "priors": Field(
        "switch", "", "Ignore calibrations: use the datasheet and class priors.", _HOST, changes="basis", default=False
    ),
    "calibration": Field(
        "text", "FILE", "Use this calibration instead of the newest one that fits.", _HOST, changes="basis",
        catalog="calibrations", python="Calibration | str | Path",
    ),
    "prefill_on": Field(
        "text", "DEVICE", "Read the prompt on another device, which sends its cache over.", _SERVED, changes="basis",
        needs="tokens", catalog="devices", python="str | Device",
    ),
    "users": Field(
        "whole", "N", "Users of a served model, each with a request under way.", _SERVED, changes="users",
        needs="tokens", least=1, most=1_000_000,
    ),
    "tokens_per_user": Field(
        "number", "R", "With users: the tokens a second each should see.", _SERVED, changes="users", needs="tokens"
    ),
    "engine_version": Field(
        "text", "VERSION", "Of a serving engine.  [default: the newest that is known]", _SERVED, needs="tokens",
        doors=("simulate",),
    ),
    "chunk": Field("whole", "N", "Chunked prefill: read the prompt N tokens at a time.", _SERVED, needs="tokens"),
    "cached_prefix": Field("whole", "N", "Prompt tokens already in the cache.", _SERVED, needs="tokens"),
    "draft": Field(
        "text", "MODEL", "Speculative decoding: the model that drafts tokens.", _DRAFT, needs="tokens",
        doors=("fit", "simulate"), catalog="models", python="str | Path | Graph",
    ),
    "draft_length": Field(
        "whole", "N", f"Tokens drafted at a time.  [default: {DRAFT_LENGTH}]", _DRAFT, needs="tokens",
        doors=("simulate",),
    ),
    "acceptance": Field(
        "share", "SHARE", f"Share of drafted tokens that are accepted.  [default: {ACCEPTANCE}]", _DRAFT,
        needs="tokens", doors=("simulate",),
    ),
    "draft_up_to": Field(
        "text", "N:TOKENS,…", "Draft by load: 4:4,32:2 is 4 tokens up to 4 sequences at once, 2 up to 32, then none.",
        _DRAFT, needs="tokens", doors=("simulate",),
    ),
    "link": Field(
        "text", "NAME", "The link between devices: `inferometer catalog links` lists them; or its rate: 2GB/s.", _SPLIT,
        doors=("simulate",), catalog="links", python="str | Link",
    ),
    "overlap": Field("share", "SHARE", "Share of the communication that hides behind computing.", _SPLIT),
    "micro_batches": Field("whole", "N", "Parts of the batch that a pipeline works on at once.", _SPLIT),
    "imbalance": Field("number", "X", "Rows of the busiest expert device over the mean.", _SPLIT),
    "sequence_parallel": Field("switch", "", "Split norms and additions over tensor-parallel devices, too.", _SPLIT),
    "steps": Field("whole", "N", "Denoising steps of a diffusion model.", _SERVED),
    "offload_layers": Field("whole", "N", "The last N layers lie in the host's memory.", _HOST, doors=("fit",)),
    "offload_experts": Field("switch", "", "All routed experts lie in the host's memory.", _HOST, doors=("fit",)),
    "override": Field(
        "texts", "OP=FORMAT", 'Format of some weights: "lm_head=f16", "*.mlp.*=q4_0".', _HOST, doors=("fit",)
    ),
    "storage": Field("text", "RATE", "What the model is loaded from, such as 3GB/s.", _HOST, unit="B/s"),
    "tokenise": Field(
        "text", "TIME", "Host time to tokenise one token, such as 2us.", _HOST, needs="tokens", unit="s"
    ),
    "sampling": Field("text", "TIME", "Host time to sample a token.", _HOST, needs="tokens", unit="s"),
    "detokenise": Field("text", "TIME", "Host time to detokenise one token.", _HOST, needs="tokens", unit="s"),
    "instance": Field(
        "text", "NAME", "Whose price: `inferometer catalog instances` lists them.", _MONEY, changes="cost",
        catalog="instances",
    ),
    "usd_per_hour": Field(
        "number", "X", "The price of all devices together, in dollars an hour.", _MONEY, changes="cost",
        label="Dollars an hour",
    ),
    "spot": Field("switch", "", "Spot prices instead of those on demand.", _MONEY, changes="cost"),
    "grid": Field(
        "text", "NAME", "Whose electricity, for the carbon: `inferometer catalog grids`.", _MONEY, changes="cost",
        catalog="grids",
    ),
    "pue": Field(
        "text", "NAME|X", "Overhead of the data centre, for the carbon: `inferometer catalog pue`.", _MONEY,
        changes="cost", catalog="pue", label="PUE", python="str | float",
    ),
    "joules_per_flop": Field(
        "text", "J", "Count energy by the operation, such as 1pJ.", _ENERGY, changes="cost", unit="J"
    ),
    "joules_per_byte": Field("text", "J", "Energy of a byte moved, such as 20pJ.", _ENERGY, changes="cost", unit="J"),
    "battery": Field(
        "text", "ENERGY", "Predict how long this battery lasts, such as 15Wh.", _ENERGY, changes="cost", unit="J"
    ),
    "cooling": Field(
        "text", "POWER", "Heat that is taken away, such as 8W: the speed that lasts.  [default: the device's row]",
        _ENERGY, changes="cost", unit="W",
    ),
    "per_second": Field(
        "number", "X", "Requests a second, for a battery.  [default: one after the other]", _ENERGY, changes="cost"
    ),
    "battery_efficiency": Field(
        "share", "SHARE", "Share of the battery's energy that reaches the device.  [default: 1]", _ENERGY,
        changes="cost",
    ),
    "layout": Field("text", "LAYOUT", "Of images: nchw or nhwc.  [default: nchw]", _HOST, needs="pictures on a gpu"),
    "host_speed": Field(
        "text", "X|TIME",
        "Speed of the host that starts kernels: over the one calibrated (0.8), or as doctor reads it (1.6us).", _HOST,
        needs="gpu", python="str | float",
    ),
    "frame_rate": Field(
        "number", "X", "Frames a second: does the model keep up, and what is left of a frame.", _ENERGY, changes="cost"
    ),
    "audio": Field(
        "text", "TIME", "How long a recording is, such as 10min.  [default: one window of the model]", _ENERGY,
        changes="cost", unit="s", label="Length of audio",
    ),
    "what_if": Field(
        "texts", "CHANGE", "What changes would gain, such as weights=i4, batch=8, memory.bandwidth*=2.", _WHAT_IF,
        changes="beside", label="What if",
    ),
    "edgeprofiler": Field(
        "switch", "", "What EdgeProfiler would say, by its own formulas.", _WHAT_IF, changes="beside",
        default=False, label="EdgeProfiler", needs="tokens",
    ),
}  # fmt: skip


def fields_that(*changes: Changes, door: Door | None = None) -> dict[str, Field]:
    """The fields that change such parts of a question (any part, if none is named), and that a door has."""
    return {
        name: field
        for name, field in FIELDS.items()
        if (not changes or field.changes in changes) and (door is None or door in field.doors)
    }


def in_python(fields: Mapping[str, Field]) -> dict[str, Field]:
    """Fields by their keywords: those of a question, of which `users` make one about a service."""
    return {field.keyword or name: field for name, field in fields.items() if field.changes not in {"users", "beside"}}


ASKED = in_python(FIELDS)
_SLOWEST: tuple[Changes, ...] = ("runtime", "run", "format", "plan", "size")
_WITHIN = {"batch", "prompt", "generate", "context"}  # sizes that vary within a combination of all others


def _order(item: tuple[str, Field]) -> tuple[bool, int]:
    return item[0] in _WITHIN, _SLOWEST.index(item[1].changes)


# The lists of a sweep: rows come in this order, the last one fastest.
AXES = {field.axis: field for _, field in sorted(((n, f) for n, f in FIELDS.items() if f.axis), key=_order)}


# … and what holds for all of its rows. Each row's calibration is chosen by its device.
SWEPT = {**AXES, **{name: field for name, field in ASKED.items() if not field.axis and name != "calibration"}}


def require_fields(given: Iterable[str], known: Iterable[str] = ASKED) -> None:
    """Refuse a name that no field has, and suggest the nearest names."""
    for name in given:
        if name not in (names := tuple(known)):
            raise UnknownNameError("field of a question", name, names, listing=f"Known: {', '.join(names)}.")
