"""`inferometer simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.commands.load import (
    cancels_from,
    command_line,
    print_load,
    require_suffix,
    save_load,
    sharing_from,
    steps_from,
    storing_from,
    trace_from,
)
from inferometer.cli.options import format_option
from inferometer.cli.outputs import OutputFile
from inferometer.cli.prediction_options import field_options
from inferometer.cli.storing import print_run_link, recording_from, storing_options
from inferometer.core.errors import DomainError, GateError
from inferometer.predict.fields import ACCEPTANCE, DRAFT_LENGTH, fields_that

if TYPE_CHECKING:
    from inferometer.core.device import Link
    from inferometer.predict.question import Question
    from inferometer.serving.load.plan import LoadPlan
    from inferometer.serving.simulate.plan import DraftHead, Lora, SimulationPlan, Vision
    from inferometer.serving.simulate.service import Scaling

_LENGTHS = "Prompt tokens: 512, normal:512,128, lognormal:512,400, uniform:64-512 or file:FILE.csv."
_PROCESSES = ("constant", "poisson", "gamma")
_ROUTINGS = ("round-robin", "least-loaded", "prefix-aware")
_REQUESTS = "How many of each load; or a CSV with arrival_s,input_tokens,output_tokens, of which every one counts."
_SIGNALS = ("requests", "waiting", "cache")
_SIGNAL = "What LOAD of --autoscale counts: requests, those that wait, or the used share of the cache."
_SPREAD = "Standard deviation of the acceptance from request to request."
_IMAGES = "Images of a request, the tokens of each, and of how many different ones (all)."
_POSITIVE = click.IntRange(min=1)
_SERVED = fields_that(door="simulate")
_SAID = {
    "runtime": "The engine: vllm, sglang, trtllm or llamacpp.  [default: vllm]",
    "link": "The link between the pools or the devices.",
    "draft": "Speculative decoding: the model that drafts; or eagle, mtp (a layer more of MODEL), ngram.",
    "draft_length": f"Tokens drafted a step: turns speculation on.  [default: {DRAFT_LENGTH}]",
}


def _traffic_options(function: click.decorators.FC) -> click.decorators.FC:
    option = click.option
    for made in reversed((
        option("--rate", metavar="R,…", help="Open loop: so many requests a second."),
        option("--concurrency", metavar="N,…", help="Closed loop: so many requests at once."),
        option("--arrivals", type=click.Choice(_PROCESSES), default="poisson", help="How they arrive in an open loop."),
        option("--burstiness", default=1.0, metavar="K", help="Of gamma arrivals: 1 is Poisson, less comes in bursts."),
        option("--ramp", metavar="A:B", help="Open loop with a rate that goes from A to B requests a second."),
        option("--saturate", is_flag=True, help="Go on from the last load by doubling, until more brings no more."),
        option("--within", is_flag=True, help="Find the highest load within the objectives, by bisection."),
        option("--trace", type=click.Path(path_type=Path), metavar="FILE", help="Replay a trace of requests."),
        option("--speed", default=1.0, metavar="X", help="Replay a trace so many times as fast."),
        option("--from", "from_time", metavar="TIME", help="Begin so far into the trace."),
        option("--requests", metavar="N|FILE", help=_REQUESTS),
        option("--duration", metavar="TIME", help="How long each load sends requests."),
        option("--prompt", default="512", metavar="LENGTH", help=_LENGTHS),
        option("--generate", default="128", metavar="LENGTH", help="Tokens to generate."),
        option("--shared-prefix", metavar="N[:GROUPS]", help="The first N tokens of prompts are the same."),
        option("--turns", default=1, metavar="N", help="Turns of a session; each prompt holds the talk so far."),
        option("--think", default="0s", metavar="TIME", help="Between an answer and the next turn."),
        option("--slo", "objectives", multiple=True, metavar="GOAL", help='An objective: "ttft_p95<=1s"; repeatable.'),
        option("--n", "answers", type=_POSITIVE, default=1, metavar="N", help="Answers to each prompt."),
        option("--seed", default=0, metavar="N", help="Of arrivals and lengths."),
    )):  # fmt: skip
        function = made(function)
    return function


def service_options(function: click.decorators.FC) -> click.decorators.FC:
    option = click.option
    for made in reversed((
        option("--dp", "ranks", type=_POSITIVE, default=1, metavar="N", help="Data-parallel ranks of a replica."),
        option("--replicas", type=_POSITIVE, default=1, metavar="N", help="Engines behind the router."),
        option("--routing", type=click.Choice(_ROUTINGS), default="least-loaded", help="Which replica gets a request."),
        option("--autoscale", metavar="A:B:LOAD", help="From A to B replicas, with LOAD requests each."),
        option("--cold-start", default="60s", metavar="TIME", help="With --autoscale: until a replica is there."),
        option("--scale-by", "signal", type=click.Choice(_SIGNALS), default="requests", help=_SIGNAL),
        option("--max-num-seqs", "sequences", type=int, metavar="N", help="Sequences a step.  [default: the engine's]"),
        option("--max-num-batched-tokens", "tokens", type=int, metavar="N", help="Tokens a step."),
        option("--kv-blocks", "blocks", type=int, metavar="N", help="Blocks of the cache.  [default: what fits]"),
        option("--block-size", "block_tokens", type=int, metavar="N", help="Tokens of a block."),
        option("--max-model-len", "longest", type=int, metavar="N", help="Refuse what is longer, with its answer."),
        option("--max-queue", "queue", type=int, metavar="N", help="Refuse requests beyond so many that wait."),
        option("--timeout", metavar="TIME", help="Whoever asked goes away after so long: it is dropped."),
        option("--cancel", metavar="SHARE:TIME", help="So many requests are taken back after so long: 0.1:5s."),
        option("--acceptance-spread", "spread", type=float, default=0.0, metavar="SHARE", help=_SPREAD),
        option("--lora", metavar="N[:RANK]", help="Each request asks for one of N adapters, of this rank (16)."),
        option("--max-loras", "slots", type=_POSITIVE, default=1, metavar="N", help="Adapters of a step at most."),
        option("--images", metavar="N:TOKENS[:PICTURES]", help=_IMAGES),
        option("--encoder", metavar="MODEL|TIME", help="What an image takes: 30ms, or a model on this device."),
        option("--no-prefix-cache", is_flag=True, help="Forget prompts that were read before."),
        option("--kv-offload", metavar="SIZE[@RATE],…", help="Tiers below the cache: 64GB, or 64GB,2TB@5GB/s."),
        option("--preemption", type=click.Choice(("recompute", "swap")), default="recompute", help="Of a full cache."),
        option("--priorities", metavar="SHARE,…", help="Classes of requests, the most urgent first: 0.2,0.8."),
        option("--prefill-on", metavar="DEVICE", help="A pool of its own reads the prompts, on this device."),
        option("--prefill-replicas", default=1, metavar="N", help="Replicas of that pool."),
        option("--prefill-tp", type=int, metavar="N", help="Its tensor parallelism.  [default: as --tp]"),
    )):  # fmt: skip
        function = made(function)
    return field_options(_SERVED, said=_SAID)(function)


@click.command("simulate")
@click.argument("model", metavar="MODEL")
@click.option("--on", "device", required=True, metavar="DEVICE", help="The device.")
@_traffic_options
@service_options
@click.option("-o", "--out", type=OutputFile(), metavar="FILE", help="Save it: .json the profile, .csv the requests.")
@storing_options
@format_option
def command(model: str, device: str, out: Path | None, form: str, **options: Any) -> None:
    """Simulate a service under load, step by step, by the engine's own scheduling rules.

    \b
    inferometer simulate llama-3.1-8b --on nvidia-h100-sxm --rate 5,10,20,40 --requests 2000 --slo "ttft_p95<=500ms"
    inferometer simulate llama-3.3-70b --on nvidia-h200 --tp 2 --replicas 4 --trace mooncake.jsonl.gz
    inferometer simulate llama-3.1-8b --on nvidia-l4 --runtime vllm --requests requests.csv --out result.csv
    inferometer simulate qwen3-32b --on nvidia-h200 --rate 8 --prefill-on nvidia-h100-sxm --prefill-replicas 2
    inferometer simulate qwen3-8b --on nvidia-h100-sxm --ramp 5:60 --duration 10min --autoscale 1:8:48

    Arrivals, lengths, traces and figures are those of `inferometer load`, and so is the result: `compare` compares a
    simulation with a load test. Step times are those of `predict --users`. Exit code 1: no request was answered.
    docs/serving.md has worked cases.
    """
    from inferometer.serving.simulate.run import simulate

    require_suffix(out)
    plan = plan_from(model, device, options, command=command_line())
    recorder = recording_from(
        storing_from(options),  # type: ignore[arg-type] # it takes the options that every storing command has
        kind="simulate", model=model, device=device,
    )  # fmt: skip
    with recorder:
        profile = simulate(plan)
        recorder.keep(profile)
        if out is not None:
            save_load(profile, out)
        print_load(profile, form)
    print_run_link(recorder)
    levels = () if profile.served is None else profile.served.levels
    if all(level.requests is not None and "ok" not in level.requests.outcome for level in levels):
        raise GateError(
            "No request was answered.", remedy="Each is longer than the cache: see --kv-blocks and --prompt."
        )


def plan_from(model: str, device: str, options: dict[str, Any], *, command: str | None = None) -> SimulationPlan:
    traffic, whole = _traffic(options, command)
    return service_plan(model, device, options, traffic, whole=whole)


def service_plan(
    model: str, device: str, options: dict[str, Any], traffic: LoadPlan, *, whole: bool = False
) -> SimulationPlan:
    """What serves, by the options about it; and what is asked of it."""
    from inferometer.core.units import parse_quantity
    from inferometer.serving.simulate.plan import SimulationPlan

    head = _head(options)
    question = _question(model, device, options, options["tp"])
    reader = options["prefill_on"]
    readers = _question(model, reader, options, options["prefill_tp"] or options["tp"]) if reader else None
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
        speculation=_speculation(options),
        whole=whole,
        longest=options["longest"],
        queue=options["queue"],
        patience_s=None if options["timeout"] is None else parse_quantity(options["timeout"], "s"),
        answers=options.get("answers", 1),
        cancels=cancels_from(options["cancel"]),
        spread=options["spread"],
        head=head,
        lora=_lora(options),
        vision=_vision(device, options),
    )


def _question(model: str, device: str, options: dict[str, Any], tp: int) -> Question:
    from inferometer.api import ask
    from inferometer.known.engines import serving_engine

    asked = {name: options[name] for name in _SERVED} | {"tp": tp}
    if tp * options["pp"] * options["ep"] == 1:
        asked["link"] = None  # it is between pools, and not between devices that share layers
    if _head(options) is not None:
        asked |= {"draft": None}
    if asked["draft"] is None:
        asked |= {"draft_length": None, "acceptance": None}  # of n-grams, which no model drafts
    return ask(model, on=device, **{**asked, "runtime": asked["runtime"] or serving_engine()})


def _tiers(text: str | None) -> tuple[tuple[float, float | None], ...]:
    """Sizes, each with the rate that its blocks come back at: the host's link where none is written."""
    from inferometer.core.units import parse_quantity

    parts = [part.partition("@") for part in text.split(",")] if text else []
    return tuple((parse_quantity(size, "B"), parse_quantity(rate, "B/s") if rate else None) for size, _, rate in parts)


def _link(options: dict[str, Any]) -> Link | None:
    from inferometer.known import link

    return None if options["link"] is None else link(options["link"])


def _head(options: dict[str, Any]) -> DraftHead | None:
    """What drafts, where it is no model: n-grams where only their length is given."""
    from inferometer.serving.simulate.plan import DRAFT_HEADS

    draft = options["draft"]
    if draft is None:
        return None if options["draft_length"] is None else "ngram"
    return next((head for head in DRAFT_HEADS if head == draft), None)


def _speculation(options: dict[str, Any]) -> tuple[int, float] | None:
    head = _head(options)
    if options["draft"] is None and head is None:
        return None
    kept = options["acceptance"]
    if head == "ngram" and kept is None:
        raise DomainError(
            "How many tokens of n-grams are accepted depends on how far answers repeat their prompts: there is no "
            "usual share.",
            remedy="Say it: --acceptance 0.2, say, for a chat, and more for edits of what stands in the prompt.",
        )
    # DeepSeek-V3's report has 85 to 90 % for the second token (arXiv:2412.19437, 5.4.3): one layer drafts one token.
    length, usual = (1, 0.85) if head == "mtp" else (DRAFT_LENGTH, ACCEPTANCE)
    return options["draft_length"] or length, usual if kept is None else kept


def _whole_numbers(text: str, remedy: str, *, least: int, most: int) -> list[int]:
    parts = text.split(":")
    if not least <= len(parts) <= most or not all(part.isascii() and part.isdecimal() for part in parts):
        raise DomainError(f"{text!r} are not {least} to {most} whole numbers.", remedy=remedy)
    return [int(part) for part in parts]


def _lora(options: dict[str, Any]) -> Lora | None:
    from inferometer.serving.simulate.plan import Lora

    if options["lora"] is None:
        return None
    adapters, *rank = _whole_numbers(options["lora"], "Write --lora 8:16.", least=1, most=2)
    return Lora(adapters=adapters, rank=rank[0] if rank else 16, slots=options["slots"])


def _vision(device: str, options: dict[str, Any]) -> Vision | None:
    from inferometer.api import ask
    from inferometer.core.units import parse_quantity
    from inferometer.serving.simulate.plan import Vision

    if options["images"] is None:
        if options["encoder"] is not None:
            raise click.UsageError("--encoder goes with --images.")
        return None
    images, tokens, *pictures = _whole_numbers(options["images"], "Write --images 2:576.", least=2, most=3)
    encoder = options["encoder"]
    if encoder is None:
        raise DomainError(
            "What the encoder takes for an image is not known.",
            remedy="Say it: --encoder 30ms, or name a model that takes as long: --encoder vit-l-16.",
        )
    if encoder[:1].isdigit():
        encode_s = parse_quantity(encoder, "s")
    else:
        encode_s = ask(encoder, on=device).answer().summary.latency_s or 0.0
    return Vision(images=images, tokens=tokens, encode_s=encode_s, pictures=pictures[0] if pictures else 0)


def _traffic(options: dict[str, Any], command: str | None) -> tuple[LoadPlan, bool]:
    """The traffic, and whether every request of it counts: of a file with requests of one's own."""
    from inferometer.core.traffic.lengths import parse_lengths
    from inferometer.core.traffic.objectives import parse_objective
    from inferometer.core.units import parse_quantity
    from inferometer.serving.load.plan import LoadPlan

    asked, file = options["requests"], None
    if asked is not None and not str(asked).isdecimal():
        file, asked = Path(asked), None
    if file is not None and any(options[name] is not None for name in ("rate", "concurrency", "ramp", "trace")):
        raise click.UsageError("--requests FILE has its own arrivals: leave --rate and the like out.")
    count = None if asked is None else int(asked)
    given = {**options, "requests": count, "trace": file or options["trace"]}
    if not any(given[name] is not None for name in ("rate", "concurrency", "ramp", "trace")):
        raise click.UsageError("Say what load: --rate 5, --concurrency 8, --trace FILE or --requests FILE.")
    duration = None if options["duration"] is None else parse_quantity(options["duration"], "s")
    trace = trace_from(given, duration)  # type: ignore[arg-type] # by its names
    plan = LoadPlan(
        url="simulated",
        steps=steps_from(given),  # type: ignore[arg-type] # by its names
        saturate=options["saturate"],
        within=options["within"],
        trace=trace,
        requests=count,
        duration_s=duration,
        prompt=parse_lengths(options["prompt"], column="input_tokens"),
        generate=parse_lengths(options["generate"], column="output_tokens"),
        sharing=sharing_from(options),  # type: ignore[arg-type] # by its names
        objectives=tuple(parse_objective(part) for text in options["objectives"] for part in text.split(",")),
        seed=options["seed"],
        command=command,
    )
    return plan, file is not None


def _shares(text: str | None) -> tuple[float, ...]:
    if text is None:
        return ()
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise DomainError(f"{text!r} are no shares.", remedy="Write --priorities 0.2,0.8.") from None


def _scaling(options: dict[str, Any]) -> Scaling | None:
    from inferometer.core.units import parse_quantity
    from inferometer.serving.simulate.service import Scaling

    if options["autoscale"] is None:
        return None
    try:
        least, most, load = (float(part) for part in options["autoscale"].split(":"))
    except ValueError:
        raise DomainError(
            f"{options['autoscale']!r} is no range of replicas.", remedy="Write --autoscale 1:8:32."
        ) from None
    cold = parse_quantity(options["cold_start"], "s")
    return Scaling(least=int(least), most=int(most), target=load, cold_start_s=cold, signal=options["signal"])
