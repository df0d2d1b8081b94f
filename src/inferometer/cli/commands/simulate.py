"""`inferometer simulate`."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.commands.load import (
    LENGTHS,
    LOOP_OPTIONS,
    command_line,
    print_load,
    require_suffix,
    save_load,
    storing_from,
)
from inferometer.cli.options import (
    PORT,
    SEED,
    SHARE,
    TIME,
    OutputFile,
    Whole,
    field_options,
    format_option,
    refuse_given,
    say,
)
from inferometer.cli.storing import StoringOptions, print_run_link, recording_from, storing_options
from inferometer.core.errors import DomainError, GateError
from inferometer.predict.fields import DRAFT_LENGTH, fields_that

if TYPE_CHECKING:
    from pathlib import Path

    from inferometer.serving.simulate.plan import SimulationPlan

_ROUTINGS = ("round-robin", "least-loaded", "prefix-aware")
_REQUESTS = "How many of each load; or a CSV with arrival_s,input_tokens,output_tokens, of which every one counts."
_SIGNALS = ("requests", "waiting", "cache")
# Options that change nothing without another.
_NEEDED = {"autoscale": {"cold_start", "signal"}, "prefill_on": {"prefill_replicas", "prefill_tp"}, "lora": {"slots"}}
_SIGNAL = "What LOAD of --autoscale counts: requests, those that wait, or the used share of the cache."
_SPREAD = "Standard deviation of the acceptance from request to request."
_IMAGES = "Images of a request, the tokens of each, and of how many different ones (all)."
_POSITIVE, _MANY = Whole(1, 1 << 16), Whole(1, 1 << 40)
_SERVED = fields_that(door="simulate")
# What says which requests come, and what becomes of the result: a server has neither.
_OF_LOADS = frozenset({
    "rate", "concurrency", "requests", "duration", "prompt", "generate", "shared_prefix", "turns", "think",
    "objectives", "answers", "cancel", "seed", "arrivals", "burstiness", "ramp", "saturate", "within", "trace",
    "from_time", "out", "form", *StoringOptions.__annotations__,
})  # fmt: skip
_SAID = {
    "runtime": "The engine: vllm, sglang, trtllm or llamacpp.  [default: vllm]",
    "link": "The link between the pools or the devices.",
    "draft": "Speculative decoding: the model that drafts; or eagle, mtp (a layer more of MODEL), ngram.",
    "draft_length": f"Tokens drafted a step: turns speculation on.  [default: {DRAFT_LENGTH}]",
}


def _traffic_options(function: click.decorators.FC) -> click.decorators.FC:
    option = click.option
    for made in reversed((
        option("--rate", metavar="R,…", help="Open loop: requests a second."),
        option("--concurrency", metavar="N,…", help="Closed loop: requests at once."),
        *LOOP_OPTIONS,
        option("--requests", metavar="N|FILE", help=_REQUESTS),
        option("--duration", type=TIME, help="How long each load sends requests."),
        option("--prompt", default="512", metavar="LENGTH", help=LENGTHS),
        option("--generate", default="128", metavar="LENGTH", help="Tokens to generate."),
        option("--shared-prefix", metavar="N[:GROUPS]", help="The first N tokens of prompts are the same."),
        option("--turns", type=_POSITIVE, default=1, help="Turns of a session; each prompt holds the talk so far."),
        option("--think", type=TIME, default="0s", help="Between an answer and the next turn."),
        option("--slo", "objectives", multiple=True, metavar="GOAL", help='An objective: "ttft_p95<=1s"; repeatable.'),
        option("--n", "answers", type=_POSITIVE, default=1, help="Answers to each prompt."),
        option("--seed", type=SEED, default=0, help="Of arrivals and lengths."),
    )):  # fmt: skip
        function = made(function)
    return function


def _service_options(function: click.decorators.FC) -> click.decorators.FC:
    option = click.option
    for made in reversed((
        option("--dp", "ranks", type=_POSITIVE, default=1, help="Data-parallel ranks of a replica."),
        option("--replicas", type=_POSITIVE, default=1, help="Engines behind the router."),
        option("--routing", type=click.Choice(_ROUTINGS), default="least-loaded", help="Which replica gets a request."),
        option("--autoscale", metavar="A:B:LOAD", help="From A to B replicas, with LOAD requests each."),
        option("--cold-start", type=TIME, default="60s", help="With --autoscale: until a replica is there."),
        option("--scale-by", "signal", type=click.Choice(_SIGNALS), default="requests", help=_SIGNAL),
        option("--max-num-seqs", "sequences", type=_MANY, help="Sequences a step.  [default: the engine's]"),
        option("--max-num-batched-tokens", "tokens", type=_MANY, help="Tokens a step."),
        option("--kv-blocks", "blocks", type=_MANY, help="Blocks of the cache.  [default: what fits]"),
        option("--block-size", "block_tokens", type=_MANY, help="Tokens of a block."),
        option("--max-model-len", "longest", type=_MANY, help="Refuse what is longer, with its answer."),
        option("--max-queue", "queue", type=_MANY, help="Refuse requests while this many wait."),
        option("--timeout", type=TIME, help="Whoever asked goes away after so long: it is dropped."),
        option("--cancel", metavar="SHARE:TIME", help="So many requests are taken back after so long: 0.1:5s."),
        option("--acceptance-spread", "spread", type=SHARE, default=0.0, metavar="SHARE", help=_SPREAD),
        option("--lora", metavar="N[:RANK]", help="Each request asks for one of N adapters, of this rank (16)."),
        option("--max-loras", "slots", type=_POSITIVE, default=1, help="Adapters of a step at most."),
        option("--images", metavar="N:TOKENS[:PICTURES]", help=_IMAGES),
        option("--encoder", metavar="MODEL|TIME", help="What an image takes: 30ms, or a model on this device."),
        option("--no-prefix-cache", is_flag=True, help="Forget prompts that were read before."),
        option("--kv-offload", metavar="SIZE[@RATE],…", help="Tiers below the cache: 64GB, or 64GB,2TB@5GB/s."),
        option("--preemption", type=click.Choice(("recompute", "swap")), default="recompute", help="Of a full cache."),
        option("--priorities", metavar="SHARE,…", help="Classes of requests, the most urgent first: 0.2,0.8."),
        option("--prefill-on", metavar="DEVICE", help="A pool of its own reads the prompts, on this device."),
        option("--prefill-replicas", type=_POSITIVE, default=1, help="Replicas of that pool."),
        option("--prefill-tp", type=_POSITIVE, help="Its tensor parallelism.  [default: as --tp]"),
    )):  # fmt: skip
        function = made(function)
    return field_options(_SERVED, said=_SAID)(function)


@click.command("simulate")
@click.argument("model", metavar="MODEL")
@click.option("--on", "device", required=True, metavar="DEVICE", help="The device.")
@_traffic_options
@_service_options
@click.option("--serve", "serving", is_flag=True, help="Answer requests over HTTP, with these times; --speed quickens.")
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="With --serve: the address to listen on.")
@click.option("--port", type=PORT, default=8000, help="With --serve: the port to listen on; 0 takes a free one.")
@click.option("-o", "--out", type=OutputFile(), metavar="FILE", help="Save it: .json the profile, .csv the requests.")
@storing_options
@format_option
def command(
    model: str, device: str, serving: bool, host: str, port: int, out: Path | None, form: str, **options: Any
) -> None:  # fmt: skip
    """Simulate a service under load, step by step, by the engine's own scheduling rules.

    \b
    inferometer simulate llama-3.1-8b --on nvidia-h100-sxm --rate 5,10,20,40 --requests 2000 --slo "ttft_p95<=500ms"
    inferometer simulate llama-3.3-70b --on nvidia-h200 --tp 2 --replicas 4 --trace mooncake.jsonl.gz
    inferometer simulate llama-3.1-8b --on nvidia-l4 --runtime vllm --requests requests.csv --out result.csv
    inferometer simulate qwen3-32b --on nvidia-h200 --rate 8 --prefill-on nvidia-h100-sxm --prefill-replicas 2
    inferometer simulate qwen3-8b --on nvidia-h100-sxm --ramp 5:60 --duration 10min --autoscale 1:8:48
    inferometer simulate llama-3.1-8b --on nvidia-h100-sxm --serve --port 8000

    Arrivals, lengths, traces and figures are those of `inferometer load`, and so is the result: `compare` compares a
    simulation with a load test. Step times are those of `predict --users`. Exit code 1: no request was answered.
    docs/serving.md has worked cases.

    --serve offers OpenAI's interface without a GPU (chat and completions, streamed or not, embeddings, rerank, models,
    health and vLLM's metrics), for tests of routers, clients and load generators. A word counts as a token; answers are
    words without meaning, as long as was asked for. Batching, caches, queues and refusals are the simulation's. With
    --lora 4 the models lora-0 to lora-3 are served beside MODEL, with --images what an image takes, with --priorities a
    request's `priority` (0 goes first). Ctrl-C ends it.
    """
    if serving:
        refuse_given(_OF_LOADS, "{} is not for --serve: whoever asks brings the requests.", "Leave it out.")
        _serve(model, device, options, (host, port))
        return
    refuse_given({"host", "port"}, "{} is of a server.", "Say --serve too.")
    for missing, without in _NEEDED.items():
        if options[missing] is None:
            name = missing.replace("_", "-")
            refuse_given(without, f"{{}} goes with --{name}.", "Add that, or leave this out.")
    from inferometer.serving.simulate.run import simulate

    require_suffix(out)
    plan = plan_from(model, device, options, command=command_line())
    if out is not None and out.suffix == ".csv":  # it has a row for each request
        plan = replace(plan, keeps=True)
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
        ends = {end for level in levels if level.requests is not None for end in level.requests.outcome}
        raise GateError(
            "No request was answered.",
            remedy="Each is longer than the cache or than --max-model-len, which is the model's window where it is not "
            "given." if ends == {"too_long"} else "What became of them stands above.",
        )  # fmt: skip


def plan_from(model: str, device: str, options: dict[str, Any], *, command: str | None = None) -> SimulationPlan:
    from inferometer.serving.asked import service_plan, traffic_from

    traffic, whole = traffic_from(options, command)
    return service_plan(model, device, options, traffic, whole=whole)


def _serve(model: str, device: str, options: dict[str, Any], address: tuple[str, int]) -> None:
    import asyncio

    from inferometer.serving.asked import service_plan
    from inferometer.serving.load.plan import LoadPlan
    from inferometer.serving.simulate.building import service_of

    speed = options["speed"]
    if not speed > 0:
        raise DomainError(f"--speed must be greater than 0, and is {speed:g}.")
    plan = service_plan(model, device, options, LoadPlan(url="mock"))
    if plan.readers is not None and plan.scaling is not None:
        raise DomainError(
            "A mock server with two pools has replicas that stay.", remedy="Leave --prefill-on or --autoscale out."
        )
    service, notes = service_of(plan)
    for note in notes:
        say(note)
    adapters = plan.lora.adapters if plan.lora else 0
    asyncio.run(_served(service, plan.question.graph.name, address, speed, adapters))


async def _served(service: Any, model: str, address: tuple[str, int], speed: float, adapters: int) -> None:
    import asyncio

    from inferometer.serving.mock.engine import MockEngine
    from inferometer.serving.mock.server import MockServer

    engine = MockEngine(service, time.perf_counter, speed=speed)
    try:
        server = await MockServer(engine, model, adapters).serve(*address)
    except OSError as error:
        where = f"{address[0]}:{address[1]}"
        raise DomainError(
            f"Nothing can be served at {where}: {error.strerror or error}.",
            remedy="Choose another --port (0 is any that is free) or --host.",
        ) from None
    host, port = server.sockets[0].getsockname()[:2]
    say(f"{model} is at http://{host}:{port}.")
    async with server, asyncio.TaskGroup() as tasks:
        tasks.create_task(engine.run())
        tasks.create_task(server.serve_forever())
