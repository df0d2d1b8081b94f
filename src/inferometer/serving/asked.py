"""What a person writes about traffic and a service, as texts and numbers, made into a plan of a load or a simulation.

The options of `inferometer load`, `simulate` and `mock`, and the keywords of `inferometer.simulate`, come through here:
`options` has each under the name of the command's.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import DomainError
from inferometer.core.served import parse_objective
from inferometer.core.traffic.arrivals import MOST_RATE, Arrivals
from inferometer.core.traffic.demand import Sharing
from inferometer.core.traffic.lengths import parse_lengths
from inferometer.core.traffic.traces import RequestTrace, part_of, read_trace
from inferometer.core.units import parse_quantity
from inferometer.known import link as link_named
from inferometer.known.engines import serving_engine
from inferometer.predict.ask import ask
from inferometer.predict.fields import ACCEPTANCE, DRAFT_LENGTH, fields_that
from inferometer.predict.options import draft_schedule
from inferometer.serving.load.plan import LoadPlan, LoadStep
from inferometer.serving.load.prompts import local_tokenizer
from inferometer.serving.simulate.plan import DRAFT_HEADS, DraftHead, Lora, SimulationPlan, Vision
from inferometer.serving.simulate.service import Scaling

if TYPE_CHECKING:
    from collections.abc import Mapping

    from inferometer.core.device import Device, Link
    from inferometer.core.graph import Graph
    from inferometer.predict.question import Question
SERVED = fields_that(door="simulate")
_DRAFTED: dict[DraftHead, str] = {
    "ngram": "n-grams are accepted depends on how far answers repeat their prompts",
    "eagle": "EAGLE's head are accepted depends on what it was trained on, and on your requests",
}
_WAYS = ("rate", "concurrency", "ramp", "trace")
_MOST_REPLICAS = 65_536  # as of --replicas
_DIGITS = 9  # of a whole number: tokens, adapters and replicas have fewer


def service_plan(
    model: str | Path | Graph,
    device: str | Device,
    options: Mapping[str, Any],
    traffic: LoadPlan,
    *,
    whole: bool = False,
) -> SimulationPlan:
    """What serves, by the options about it; and what is asked of it."""
    head, speculation = _head(options), _speculation(options)
    up_to = options["draft_up_to"]
    question = _question(model, device, options, options["tp"])
    reader, reader_tp = options["prefill_on"], options["prefill_tp"] or options["tp"]
    # Its replicas hold the whole model: experts that are spread are spread over the devices of one.
    alike = {**options, "ep": reader_tp if options["ep"] > 1 else 1}
    readers = _question(model, reader, alike, reader_tp) if reader else None
    return SimulationPlan(
        question=question,
        traffic=traffic,
        replicas=options["replicas"],
        ranks=options["ranks"],
        routing=options["routing"],
        tokens=options["tokens"],
        sequences=options["sequences"],
        blocks=options["blocks"],
        block_tokens=options["block_tokens"],
        prefix_cache=not options["no_prefix_cache"],
        swap=options["preemption"] == "swap",
        priorities=_shares(options["priorities"]),
        scaling=_scaling(options),
        offload=_tiers(options["kv_offload"]),
        readers=readers,
        reader_replicas=options["prefill_replicas"],
        link=_link(options),
        speculation=speculation,
        draft_up_to=draft_schedule(up_to, speculation[0] if speculation else DRAFT_LENGTH) if up_to else (),
        whole=whole,
        longest=options["longest"],
        queue=options["queue"],
        patience_s=_seconds(options["timeout"]),
        answers=options.get("answers", 1),
        cancels=cancels_from(options["cancel"]),
        spread=options["spread"],
        head=head,
        lora=_lora(options),
        vision=_vision(device, options),
    )


def _question(model: str | Path | Graph, device: str | Device, options: Mapping[str, Any], tp: int) -> Question:
    asked = {name: options[name] for name in SERVED if options[name] is not None} | {"tp": tp}
    if tp * options["pp"] * options["ep"] == 1:
        asked.pop("link", None)  # it is between pools, and not between devices that share layers
    if _head(options) is not None:
        asked.pop("draft", None)
    if "draft" not in asked:
        asked.pop("draft_length", None)  # of n-grams, which no model drafts
        asked.pop("acceptance", None)
        asked.pop("draft_up_to", None)
    return ask(model, on=device, options=options.get("options"), **{"runtime": serving_engine(), **asked})


def _tiers(text: str | None) -> tuple[tuple[float, float | None], ...]:
    """Sizes, each with the rate that its blocks come back at: the host's link where none is written."""
    parts = [part.partition("@") for part in text.split(",")] if text else []
    return tuple((parse_quantity(size, "B"), parse_quantity(rate, "B/s") if rate else None) for size, _, rate in parts)


def _link(options: Mapping[str, Any]) -> Link | None:
    return link_named(options["link"]) if isinstance(options["link"], str) else options["link"]


def _head(options: Mapping[str, Any]) -> DraftHead | None:
    """What drafts, where it is no model: n-grams where only their length is given."""
    draft = options["draft"]
    if draft is None:
        return None if options["draft_length"] is None else "ngram"
    return next((head for head in DRAFT_HEADS if head == draft), None)


def _speculation(options: Mapping[str, Any]) -> tuple[int, float] | None:
    head = _head(options)
    if options["draft"] is None and head is None:
        return None
    kept = options["acceptance"]
    if head in {"ngram", "eagle"} and kept is None:
        raise DomainError(
            f"How many tokens of {_DRAFTED[head]}: there is no usual share.",
            remedy="Say it: --acceptance 0.2, say, for n-grams in a chat. `inferometer load` tells what a vLLM server "
            "accepts.",
        )
    # DeepSeek-V3's report has 85 to 90 % for the second token (arXiv:2412.19437, 5.4.3): one layer drafts one token.
    length, usual = (1, 0.85) if head == "mtp" else (DRAFT_LENGTH, ACCEPTANCE)
    return options["draft_length"] or length, usual if kept is None else kept


def _whole_numbers(text: str, remedy: str, *, least: int, most: int) -> list[int]:
    parts = text.split(":")
    small = all(part.isascii() and part.isdecimal() and len(part) <= _DIGITS for part in parts)
    if not least <= len(parts) <= most or not small:
        count = str(least) if least == most else f"{least} to {most}"
        raise DomainError(f"{text[:40]!r} are not {count} whole numbers of at most {_DIGITS} digits.", remedy=remedy)
    return [int(part) for part in parts]


def _lora(options: Mapping[str, Any]) -> Lora | None:
    if options["lora"] is None:
        return None
    adapters, *rank = _whole_numbers(str(options["lora"]), "Write --lora 8:16.", least=1, most=2)
    return Lora(adapters=adapters, rank=rank[0] if rank else 16, slots=options["slots"])


def _vision(device: str | Device, options: Mapping[str, Any]) -> Vision | None:
    if options["images"] is None:
        if options["encoder"] is not None:
            raise DomainError("--encoder goes with --images.")
        return None
    images, tokens, *pictures = _whole_numbers(options["images"], "Write --images 2:576.", least=2, most=3)
    encoder = options["encoder"]
    if encoder is None:
        raise DomainError(
            "What the encoder takes for an image is not known.",
            remedy="Say it: --encoder 30ms, or name a model that takes as long: --encoder vit-l-16.",
        )
    named = isinstance(encoder, str) and not encoder[:1].isdigit()
    seen = ask(encoder, on=device).answer() if named else None
    encode_s = (_seconds(encoder) if seen is None else seen.summary.latency_s) or 0.0
    weights = 0.0 if seen is None else float(seen.model.weight_bytes or 0)
    return Vision(
        images=images, tokens=tokens, encode_s=encode_s, pictures=pictures[0] if pictures else 0, weights_bytes=weights
    )


def traffic_from(options: Mapping[str, Any], command: str | None) -> tuple[LoadPlan, bool]:
    """The traffic, and whether every request of it counts: of a file with requests of one's own."""
    asked, file = options["requests"], None
    if asked is not None and not str(asked).isdecimal():
        file, asked = Path(asked), None
    elif asked is not None and not len(str(asked)) <= _DIGITS:
        raise DomainError(f"--requests is a whole number of at most {_DIGITS} digits, or a file.")
    if file is not None and any(options[name] is not None for name in _WAYS):
        raise DomainError("--requests FILE has its own arrivals: leave --rate and the like out.")
    count = None if asked is None else int(asked)
    given = {**options, "requests": count, "trace": file or options["trace"]}
    if not any(given[name] is not None for name in _WAYS):
        raise DomainError("Say what load: --rate 5, --concurrency 8, --trace FILE or --requests FILE.")
    duration = _seconds(options["duration"])
    trace = trace_from(given, duration)
    plan = LoadPlan(
        url="simulated",
        steps=steps_from(given),
        saturate=options["saturate"],
        within=options["within"],
        trace=trace,
        requests=count,
        duration_s=duration,
        prompt=parse_lengths(str(options["prompt"]), column="input_tokens"),
        generate=parse_lengths(str(options["generate"]), column="output_tokens"),
        sharing=sharing_from(options),
        objectives=tuple(parse_objective(part) for text in options["objectives"] for part in text.split(",")),
        seed=options["seed"],
        command=command,
    )
    return plan, file is not None


def _shares(text: str | None) -> tuple[float, ...]:
    if text is None:
        return ()
    return tuple(_number(part, "priorities") for part in text.split(","))


def _scaling(options: Mapping[str, Any]) -> Scaling | None:
    if options["autoscale"] is None:
        return None
    remedy = "Write --autoscale 1:8:32 for 1 to 8 replicas with 32 requests each."
    replicas, _, load = options["autoscale"].rpartition(":")
    if replicas.count(":") != 1:
        raise DomainError(f"{options['autoscale'][:40]!r} is no least, most and load.", remedy=remedy)
    least, most = _whole_numbers(replicas, remedy, least=2, most=2)
    if most > _MOST_REPLICAS:
        raise DomainError(f"There are at most {_MOST_REPLICAS:,} replicas, and not {most:,}.", remedy=remedy)
    cold, target = _seconds(options["cold_start"]), _number(load, "autoscale", remedy)
    return Scaling(least=least, most=most, target=target, cold_start_s=cold or 0.0, signal=options["signal"])


def cancels_from(text: str | None) -> tuple[float, float] | None:
    """`--cancel SHARE:TIME`."""
    if text is None:
        return None
    share, colon, after = text.partition(":")
    if not colon:
        raise DomainError(f"{text[:40]!r} is no share and time.", remedy="Write --cancel 0.1:5s.")
    return _number(share, "cancel"), parse_quantity(after, "s")


def steps_from(options: Mapping[str, Any]) -> tuple[LoadStep, ...]:
    """The loads to try, in their order. One way of loading at a time."""
    given = [name for name in ("concurrency", "rate", "ramp") if options[name] is not None]
    if len(given) > 1:
        raise DomainError(f"Give one of {' and '.join('--' + name for name in given)}.")
    if options["trace"] is not None and not given:
        return (LoadStep(),)
    process: Any = options["arrivals"]
    burstiness = options["burstiness"]
    if options["burstiness"] != 1 and process != "gamma":
        raise DomainError("--burstiness is for --arrivals gamma.")
    if options["rate"] is not None:
        rates = _numbers(str(options["rate"]), "rate")
        return tuple(
            LoadStep(arrivals=Arrivals(rate_per_s=rate, process=process, burstiness=burstiness)) for rate in rates
        )
    if options["ramp"] is not None:
        low, _, high = options["ramp"].partition(":")
        ends = [_number(end, "ramp") for end in (low, high)]
        return (
            LoadStep(arrivals=Arrivals(rate_per_s=ends[0], to_per_s=ends[1], process=process, burstiness=burstiness)),
        )
    return tuple(
        LoadStep(concurrency=_places(number)) for number in _numbers(str(options["concurrency"] or 1), "concurrency")
    )


def _seconds(value: str | float | None) -> float | None:
    """A time as it is written, or a number of seconds from Python."""
    return parse_quantity(value, "s") if isinstance(value, str) else value


def _numbers(text: str, name: str) -> list[float]:
    return [_number(part, name) for part in text.split(",")]


def _number(text: str, name: str, remedy: str = "Write 4, or 1,2,4,8 for a sweep; --ramp takes 1:8.") -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number <= MOST_RATE:
        raise DomainError(
            f"{text[:40]!r} is not a number for --{name}: it is above 0 and at most {MOST_RATE:,.0f}.",
            remedy=remedy,
        )
    return number


def _places(number: float) -> int:
    if number != int(number) or not 1 <= number <= 100_000:
        raise DomainError(f"--concurrency is a whole number of requests from 1 to 100,000, and is {number:g}.")
    return int(number)


def trace_from(options: Mapping[str, Any], duration: float | None) -> RequestTrace | None:
    if options["trace"] is None:
        return None
    start, tokenizer = _seconds(options["from_time"]) or 0.0, options.get("tokenizer")
    count = None if tokenizer is None else local_tokenizer(tokenizer)
    return part_of(
        read_trace(Path(options["trace"]), count=count), speed=options["speed"], start_s=start, duration_s=duration,
        count=options["requests"],
    )  # fmt: skip


def sharing_from(options: Mapping[str, Any]) -> Sharing:
    remedy = "Write its tokens, and groups: 512 or 512:4."
    tokens, *groups = _whole_numbers(str(options["shared_prefix"] or 0), remedy, least=1, most=2)
    return Sharing(
        prefix_tokens=tokens,
        groups=groups[0] if groups else 1,
        turns=options["turns"],
        think_s=_seconds(options["think"]) or 0.0,
    )
