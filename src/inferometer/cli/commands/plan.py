"""`inferometer plan`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.options import (
    DEVICES,
    RATE,
    SEED,
    SHARE,
    TIME,
    Number,
    OutputFile,
    Whole,
    field_options,
    format_option,
    list_option,
    listed,
    print_card,
    print_document,
    print_table,
    print_text,
    refuse_given,
    say,
)
from inferometer.cli.progress import progress_line
from inferometer.core.errors import FormatError, GateError
from inferometer.core.units import parse_quantity
from inferometer.predict.fields import FIELDS
from inferometer.predict.flags import options_from

if TYPE_CHECKING:
    from inferometer.predict.options import Options
    from inferometer.serving.plans.asked import EdgeAsked, PlanAnswer, PlanSearch

_GOALS = ("cheapest", "greenest", "smallest")
_LENGTHS = "Prompt tokens: 512, normal:512,128, lognormal:512,400 or uniform:64-512."
_ENGINE = "local (this process), local:N (processes), or dask://HOST:PORT.  [default: all cores, where it is worth it]"
_TRACE = "Replay these requests, with their lengths, sessions and prefixes; at --rate, or as they came."
_LAUNCH = "Write files that start the best plan: serve.sh, compose.yaml, kubernetes.yaml; of two pools, dynamo.yaml."
_COPIES = "Copies of attention to try, which share the experts.  [default: as --tp where a latent serves all heads]"
_CHUNKS = "Tokens of a step to try, the chunks of prompts.  [default: engine's,2048,16384]"
_SPREAD = "Standard deviation of the acceptance from request to request."
_MOST_JOB_S, _MOST_USD = 10 * 366 * 86400.0, 1e6
_COSTS = {name: FIELDS[name] for name in ("spot", "instance", "grid", "pue", "battery")}
# What a plan for frames takes beside what it costs.
_OF_FRAMES = {
    "model",
    "frames",
    "streams",
    "devices",
    "runtimes",
    "weights",
    "image",
    "max_watts",
    "goal",
    "form",
    *_COSTS,
}
_DAY = "Loads of equal parts of a day, as shares of --rate, with as many replicas as each needs."
_PRICES = "A CSV of your own prices: device,usd_per_hour, of one device."
_INTERRUPTIONS = "Of a spot instance an hour, each --cold-start long: with --availability, spare replicas for them."
_LINK = "Between machines, and between pools that read and write.  [default: InfiniBand NDR, a machine's own within it]"
_AUTOSCALE = "Replicas follow the load of --day or of a --trace with times; those that are held are paid for."
_SIGNALS = ("requests", "waiting", "cache")
_SIGNAL = "What the autoscaler counts: requests, those that wait, or the used share of the cache."
_COLD_START = "With --autoscale or --interruptions: until a new replica is there."
_REGIONS = "A TOML table a region, with its rate, way, day, prices, grid, spot and more: a plan of each, and the sum."
_SLO = 'Objectives: "ttft_p95<=1s,tpot_p95<=50ms"; may be repeated.'


def _served_options(function: click.decorators.FC) -> click.decorators.FC:
    option = click.option
    for made in reversed((
        option("--rate", type=RATE, metavar="R", help="Requests a second of a model that makes tokens."),
        option("--trace", type=click.Path(path_type=Path), metavar="FILE", help=_TRACE),
        option("--prompt", default="1024", metavar="LENGTH", help=_LENGTHS),
        option("--generate", default="256", metavar="LENGTH", help="Tokens to generate."),
        option("--slo", "objectives", multiple=True, metavar="GOALS", help=_SLO),
        option("--tokens", metavar="N", help="Output tokens to make by a time, instead of --rate: 1e9."),
        option("--by", metavar="TIME", help="With --tokens: in 72h, until 2026-11-20, or friday."),
        option("--day", metavar="SHARE,…", help=_DAY),
        option("--autoscale", is_flag=True, help=_AUTOSCALE),
        option("--scale-by", type=click.Choice(_SIGNALS), default="requests", help=_SIGNAL),
        option("--tp", metavar="N,…", help="Tensor parallelism to try.  [default: 1,2,4,8]"),
        option("--pp", metavar="N,…", help="Pipeline parallelism to try.  [default: 1, and 2 with the most of --tp]"),
        option("--ep", metavar="N,…", help="Expert parallelism, up to --tp.  [default: 1, and as --tp]"),
        option("--dp", metavar="N,…", help=_COPIES),
        option("--max-num-seqs", "sequences", metavar="N,…", help="Limits to try.  [default: engine's,64,256]"),
        option("--max-num-batched-tokens", "tokens_a_step", metavar="N,…", help=_CHUNKS),
        option("--kv", metavar="FORMAT,…", help="Formats of the cache to try; own is the model's.  [default: own,fp8]"),
        option("--draft", metavar="MODEL", help="Speculation to try: a model, eagle, mtp or ngram."),
        option("--draft-length", metavar="N,…", help="Tokens drafted at a time.  [default: 2,4; mtp: 1]"),
        option("--acceptance", type=SHARE, metavar="SHARE", help="Of drafted tokens: there is no default."),
        option("--acceptance-spread", "spread", type=SHARE, default=0.0, metavar="SHARE", help=_SPREAD),
        option("--max-devices", "most_devices", type=DEVICES, default=256, help="Devices that may be used."),
        option("--regions", type=click.Path(path_type=Path), metavar="FILE", help=_REGIONS),
        option("--link", metavar="NAME", help=_LINK),
        option("--availability", type=SHARE, metavar="SHARE", help="Of the time: spare replicas for it, as 0.999."),
        option("--replica-up", type=SHARE, default=0.99, metavar="SHARE", help="Of the time that one replica is up."),
        option("--cold-start", type=TIME, default="5min", help=_COLD_START),
        option("--headroom", type=SHARE, default=0.0, metavar="SHARE", help="Of the capacity that stays free."),
        option("--fallback", type=SHARE, metavar="SHARE", help="Of the rate: the edge does the rest itself."),
        option("--edge", metavar="DEVICE", help="With --fallback: the device that answers first."),
        option("--edge-model", metavar="MODEL", help="What it runs.  [default: MODEL]"),
        option("--edge-weights", metavar="FORMAT", help="In which format.  [default: the model's]"),
        option("--round-trip", type=TIME, default="0s", help="From the edge to the servers and back."),
    )):  # fmt: skip
        function = made(function)
    return function


def _edge_options(function: click.decorators.FC) -> click.decorators.FC:
    option = click.option
    for made in reversed((
        option("--frames", type=RATE, metavar="R", help="Frames a second of each stream, instead of --rate."),
        option("--streams", type=Whole(1, 1_000_000), default=1, help="Streams, as cameras, that are served."),
        option("--max-watts", type=Number(0, 1e6), metavar="W", help="What a device's cooling takes away."),
    )):  # fmt: skip
        function = made(function)
    return function


def _choice_options(function: click.decorators.FC) -> click.decorators.FC:
    option = click.option
    for made in reversed((
        option("--goal", type=click.Choice(_GOALS), default="cheapest", help="What the best plan is best at."),
        list_option("--on", "devices", help="Devices to choose from.  [default: those with a price]"),
        list_option("--runtime", "runtimes", help="Engines to choose from.  [default: the usual one]"),
        list_option("--weights", help="Formats to try; own is the model's.  [default: own and smaller]"),
        option("--prices", type=click.Path(path_type=Path), metavar="FILE", help=_PRICES),
        option("--max-power", "most_watts", metavar="W", help="What all devices may draw together: 10kW."),
        option("--interruptions", type=Number(0, 3600), metavar="R", help=_INTERRUPTIONS),
        option("--front", is_flag=True, help="Show tokens/s of a user against those of a device."),
        option("--discount", type=SHARE, default=0.0, metavar="SHARE", help="What a reservation takes off the price."),
        option("--launch", type=OutputFile(folders=True), metavar="FOLDER", help=_LAUNCH),
        option("--keep", type=Whole(1, 1000), default=3, help="Plans to confirm and show."),
        option("--seed", type=SEED, default=0, help="Of the simulations."),
        option("--engine", metavar="WHERE", help=_ENGINE),
    )):  # fmt: skip
        function = made(function)
    return function


@click.command("plan")
@click.argument("model", metavar="MODEL")
@_served_options
@_edge_options
@_choice_options
@field_options({"image": FIELDS["image"], **_COSTS})
@format_option
def command(model: str, form: str, **options: Any) -> None:
    """Find the cheapest, greenest or smallest way to serve a model within objectives, and say why others lost.

    \b
    inferometer plan llama-3.3-70b --rate 50 --prompt 1024 --generate 256 --slo "ttft_p95<=1s,tpot_p95<=50ms"
    inferometer plan qwen3-32b --rate 8 --slo "tpot_p95<=40ms" --on nvidia-h100-sxm,nvidia-l40s --goal greenest
    inferometer plan llama-3.1-8b --rate 20 --slo "e2e_p95<=60s" --spot --weights f8e4m3
    inferometer plan llama-3.1-8b --rate 80 --slo "ttft_p95<=1s" --day 0.2,0.4,1,0.7 --autoscale --cold-start 3min
    inferometer plan qwen3-32b --trace agents.jsonl --slo "ttft_p95<=2s" --on nvidia-h100-sxm,nvidia-h200
    inferometer plan yolo11n --frames 30 --streams 8 --on nvidia-jetson-orin-nano-8gb,raspberry-pi-5 --battery 50Wh

    Devices × formats of weights and cache × parallelism × limits of a step × drafts × replicas are compared in closed
    form, and two pools, one of which reads prompts; the best are simulated, with more replicas where the simulation
    misses an objective, until enough are confirmed. Exit code 1: there is no plan.
    With --frames, devices are compared by the time of one inference. docs/serving.md has worked cases.
    """
    _refuse_without_effect(options)
    if not options["autoscale"]:
        refuse_given({"scale_by"}, "{} is of an autoscaler.", "Say --autoscale too.")
        if options["interruptions"] is None and options["regions"] is None:
            refuse_given({"cold_start"}, "{} is of replicas that come and go.", "Say --autoscale or --interruptions.")
    if options["frames"] is not None:
        _plan_edge(model, options, form)
        return
    if options["regions"] is not None:
        _plan_regions(model, options, form)
        return
    if options["rate"] is None and options["trace"] is None and options["tokens"] is None:
        raise click.UsageError("Say what comes: --rate 50 for requests, or --frames 30 for a stream of images.")
    from inferometer.serving.plans.search import plan, usual_engine

    search = search_from(model, options)
    with progress_line(lambda words: f"simulating {words}") as progress:
        answer = plan(search, engine=options["engine"] or usual_engine(search), progress=progress)
    print_plan(answer, form, title=f"{model} at {search.rate_per_s:.3g} requests/s", front=options["front"])
    job_s = _job_seconds(options)
    if job_s is not None and form == "table" and (usd := answer.plans[0].usd_per_hour) is not None:
        print_text(f"\n{options['tokens']} tokens in {job_s / 3600:,.4g} h cost {usd * job_s / 3600:,.2f} USD.")
    if options["launch"] is not None:
        _write_launch(options["launch"], model, answer)


def _refuse_without_effect(options: dict[str, Any]) -> None:
    """What would change nothing: options of servers for frames, of frames for servers, and of what is not asked."""
    context = click.get_current_context()
    if options["frames"] is not None:
        others = {parameter.name or "" for parameter in context.command.params} - _OF_FRAMES - _COSTS.keys()
        refuse_given(others, "{} is of servers, and --frames is of devices that look at images.", "Leave it out.")
    else:
        refuse_given({"streams", "max_watts", "image"}, "{} is of frames.", "Say how many come: --frames 30.")
    for missing, without in (("edge", {"round_trip"}), ("availability", {"replica_up"})):
        if options[missing] is None and (missing == "edge" or options["regions"] is None):
            refuse_given(without, f"{{}} goes with --{missing}.", "Add that, or leave this out.")
    folder = options["launch"]
    if folder is not None and folder.is_file():
        raise click.UsageError(f"--launch {folder} is a file, and several are written: name a folder.")


def _plan_regions(model: str, options: dict[str, Any], form: str) -> None:
    from inferometer.serving.plans.regions import plan_regions, read_regions
    from inferometer.serving.plans.search import usual_engine
    from inferometer.understand.view.serving import regions_table

    if any(options[name] is not None for name in ("rate", "tokens", "launch", "edge")):
        raise click.UsageError("--regions has the rates, and goes without --rate, --tokens, --edge and --launch.")
    regions = read_regions(options["regions"])
    search = search_from(model, {**options, "rate": sum(region.rate_per_s for region in regions)})
    with progress_line(lambda words: f"simulating {words}") as progress:
        answer = plan_regions(search, regions, engine=options["engine"] or usual_engine(search), progress=progress)
    document = answer.document()
    if form == "json":
        print_document(document)
    else:
        print_table(regions_table(document), form)
    if answer.why_not is not None:
        raise GateError("There is no plan for every region.", remedy=answer.why_not)


def _write_launch(folder: Path, model: str, answer: PlanAnswer) -> None:
    from inferometer.core.cache import write_asked_for
    from inferometer.serving.plans.launch import launch_files

    files = launch_files(answer.plans[0], model)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        write_asked_for(folder / name, [text.encode()])
    say(f"Saved {', '.join(files)} in {folder}.")


def _job_seconds(options: dict[str, Any]) -> float | None:
    """How long there is for `--tokens`: a time, until a date (its begin), or a day of the week (its end)."""
    import calendar
    from datetime import datetime, timedelta

    if options["tokens"] is None:
        if options["by"] is not None:
            raise click.UsageError("--by goes with --tokens.")
        return None
    if options["rate"] is not None or options["trace"] is not None or options["by"] is None:
        raise click.UsageError("--tokens goes with --by, and without --rate and --trace.")
    now, days = datetime.now().astimezone(), [calendar.day_name[day].casefold() for day in range(7)]
    if (named := options["by"].casefold()) in days:  # until its end: the next one, or today
        end = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(
            1 + (days.index(named) - now.weekday()) % 7
        )
        return (end - now).total_seconds()
    try:
        seconds = (datetime.fromisoformat(options["by"]).astimezone() - now).total_seconds()
    except ValueError:
        seconds = parse_quantity(options["by"], "s")
    if not 0 < seconds < _MOST_JOB_S:
        raise click.UsageError(f"--by {options['by']} leaves no time, or more than ten years.")
    return seconds


def _prices(path: Path | None) -> tuple[tuple[str, float], ...]:
    """Prices of one's own, by devices of the catalog."""
    import csv

    from inferometer.core.traffic.lengths import read_text
    from inferometer.known import device as device_named

    if path is None:
        return ()
    rows = list(csv.DictReader(read_text(path).splitlines()))
    try:
        prices = [(device_named(row["device"].strip()).name, float(row["usd_per_hour"])) for row in rows]
    except (KeyError, TypeError, ValueError, AttributeError, csv.Error) as error:
        raise FormatError(
            f"{path} is no table of prices ({error}).", remedy="Write device,usd_per_hour and a row a device."
        ) from None
    if not prices:
        raise FormatError(f"{path} has no price.", remedy="Write device,usd_per_hour and a row a device.")
    if not all(0 <= price < _MOST_USD for _, price in prices):
        raise FormatError(f"{path} has a price below 0, or none that anybody pays.")
    return tuple(prices)


def print_plan(answer: PlanAnswer, form: str, *, title: str, front: bool = False) -> None:
    from inferometer.understand.view.serving import device_table, front_table, plan_card, plan_table

    document = answer.document()
    if form == "json":
        print_document(document)
    elif answer.plans:
        if form == "table":
            print_card(plan_card(document, title=title), form)
            print_text("")
        print_table(plan_table(document), form)
        if form == "table" and answer.by_device:
            print_text("\nThe best plan of each device:")
            print_table(device_table(document), form)
        if form == "table" and front:
            print_text("\nTokens a second of a user against those of a device, in closed form:")
            print_table(front_table(document), form)
    if not answer.plans:
        raise GateError("There is no plan.", remedy=answer.why_not)


def search_from(model: str, options: dict[str, Any]) -> PlanSearch:
    from inferometer.api.services import asked_traffic
    from inferometer.core.served import parse_objective
    from inferometer.core.traffic.lengths import listed_lengths, parse_lengths
    from inferometer.known import link as link_named
    from inferometer.serving.plans.asked import Autoscaling, PlanSearch, draftings, up_between

    limits: dict[str, Any] = {
        "sequences": _numbers(options["sequences"], "max-num-seqs"),
        "tokens": _numbers(options["tokens_a_step"], "max-num-batched-tokens"),
        "kv": tuple(_format(name) for name in listed(options["kv"])),
    }
    lengths = _numbers(options["draft_length"], "draft-length")
    job_s = _job_seconds(options)
    generated = parse_lengths(options["generate"], column="output_tokens")
    rate = options["rate"] if job_s is None else parse_quantity(options["tokens"], "1") / generated.mean / job_s
    trace, rate = asked_traffic(options["trace"], rate)
    prompt = parse_lengths(options["prompt"], column="input_tokens")
    watts, up, cold_s = options["most_watts"], options["replica_up"], parse_quantity(options["cold_start"], "s")
    if options["interruptions"] is not None:
        if options["availability"] is None:
            raise click.UsageError("--interruptions makes spare replicas for --availability: say how much of the time.")
        up = up_between(options["interruptions"], cold_s)
    return PlanSearch(
        model=model,
        rate_per_s=rate,
        prompt=prompt if trace is None else listed_lengths(trace.input_tokens, trace.name),
        generate=generated if trace is None else listed_lengths(trace.output_tokens, trace.name),
        trace=trace,
        objectives=tuple(parse_objective(part) for text in options["objectives"] for part in text.split(",")),
        goal=options["goal"],
        devices=listed(options["devices"]),
        runtimes=listed(options["runtimes"]),
        weights=tuple(_format(name) for name in listed(options["weights"])),
        tp=_numbers(options["tp"], "tp"),
        pp=_numbers(options["pp"], "pp"),
        ep=_numbers(options["ep"], "ep"),
        dp=_numbers(options["dp"], "dp"),
        **{name: tried for name, tried in limits.items() if tried},
        drafts=draftings(options["draft"], lengths, options["acceptance"], options["spread"]),
        most_devices=options["most_devices"],
        discount=options["discount"],
        availability=options["availability"],
        replica_up=up,
        day=_shares(options["day"]),
        prices=_prices(options["prices"]),
        most_watts=None if watts is None else parse_quantity(watts, "W"),
        headroom=options["headroom"],
        fallback=options["fallback"],
        edge=_edge(options),
        options=_options(options),
        keep=options["keep"],
        seed=options["seed"],
        link=None if options["link"] is None else link_named(options["link"]),
        autoscale=Autoscaling(signal=options["scale_by"], cold_start_s=cold_s) if options["autoscale"] else None,
    )


def _shares(text: str | None) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in listed(text))
    except ValueError:
        raise click.UsageError(f"--day takes shares, and not {text!r}.") from None


def _edge(options: dict[str, Any]) -> EdgeAsked | None:
    from inferometer.serving.plans.asked import EdgeAsked

    if options["edge"] is None:
        if options["edge_model"] or options["edge_weights"]:
            raise click.UsageError(
                "--edge-model and --edge-weights need the device: --edge nvidia-jetson-orin-nano-8gb."
            )
        return None
    return EdgeAsked(
        device=options["edge"], model=options["edge_model"], weights=options["edge_weights"],
        round_trip_s=parse_quantity(options["round_trip"], "s"),
    )  # fmt: skip


def _options(options: dict[str, Any]) -> Options:
    return options_from({name: options[name] for name in _COSTS if options[name] is not None})


def _format(name: str) -> str | None:
    return None if name == "own" else name


def _numbers(text: str | None, name: str) -> tuple[int, ...]:
    kind = Whole(0 if name.startswith("max-num") else 1, 1 << 18)
    return tuple(kind.convert(part, None, click.get_current_context(silent=True)) for part in listed(text))


def _plan_edge(model: str, options: dict[str, Any], form: str) -> None:
    from inferometer.serving.plans.edge import EdgeSearch, edge_plans
    from inferometer.understand.view.serving import edge_table

    answer = edge_plans(
        EdgeSearch(
            model=model, frames_per_s=options["frames"], streams=options["streams"],
            devices=listed(options["devices"]),
            runtimes=listed(options["runtimes"]), image=options["image"], max_watts=options["max_watts"],
            weights=tuple(_format(name) for name in listed(options["weights"])),
            goal=options["goal"], options=_options(options),
        )
    )  # fmt: skip
    if form == "json":
        print_document(answer.document())
    else:
        print_table(edge_table(answer.document()), form)
    if not any(each.meets for each in answer.plans):
        raise GateError("There is no plan.", remedy=answer.why_not)
