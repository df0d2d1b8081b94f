"""`inferometer load`."""

import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import click

from inferometer.cli.options import (
    BURSTINESS,
    SEED,
    SPEED,
    TIME,
    WARMUP,
    OutputFile,
    Whole,
    format_option,
    print_document,
    print_table,
    print_view,
    say,
)
from inferometer.cli.progress import bar, progress_line
from inferometer.cli.storing import StoringOptions, print_run_link, recording_from, storing_options
from inferometer.core.errors import DomainError, PlaceError
from inferometer.core.units import parse_quantity

if TYPE_CHECKING:
    from inferometer.core.profile import Profile
    from inferometer.core.served import Level
    from inferometer.serving.load.plan import LoadPlan
    from inferometer.serving.load.run import LoadProgress

_SECRET = "…"  # noqa: S105 - what stands in a stored command line instead of one
LENGTHS = "Prompt tokens: 512, normal:512,128, lognormal:512,400, uniform:64-512 or file:FILE.csv."
_GOALS = 'An objective: "ttft<=500ms", "tpot_p95<=50ms"; may be repeated.'
_TEMPLATE = "With --api template: the body; {prompt}, {model}, {input_tokens}, {output_tokens}, {index} are filled in."
_RESUME = "Go on from a test that was saved with -o FILE.json: the levels that it has are not played again."
_AUDIO = "Sound in every message, or to be transcribed: so long, of noise (10s); or a file or folder of yours."
_APIS = ("chat", "completions", "embeddings", "rerank", "transcriptions", "template")
_MODEL = "The model to ask for, or a mix: base=0.8,adapter=0.2.  [default: the only one that is served]"
_BURSTINESS = "Of gamma arrivals: 1 is Poisson, less comes in bursts."
TRACE = "Replay a trace of requests; hf:OWNER/NAME:SPLIT is a dataset of the hub's."
_TOKENIZER = "Count by this tokenizer.json, folder or model of the hub's where the server counts nothing."
_PROXY = "Ask through this proxy, or none.  [default: HTTPS_PROXY, HTTP_PROXY, NO_PROXY]"
_REQUESTS, _ROUNDS, _SENDERS = Whole(1, 100_000_000), Whole(1, 10_000), Whole(1, 1024)
# Of every load, sent or simulated.
LOOP_OPTIONS = (
    click.option(
        "--arrivals",
        type=click.Choice(("constant", "poisson", "gamma")),
        default="poisson",
        help="How they arrive in an open loop.",
    ),
    click.option("--burstiness", type=BURSTINESS, default=1.0, metavar="K", help=_BURSTINESS),
    click.option("--ramp", metavar="A:B", help="Open loop with a rate that goes from A to B requests a second."),
    click.option("--saturate", is_flag=True, help="Go on from the last load by doubling, until more brings no more."),
    click.option("--within", is_flag=True, help="Find the highest load within the objectives, by bisection."),
    click.option("--trace", type=click.Path(path_type=Path), metavar="FILE", help=TRACE),
    click.option("--speed", type=SPEED, default=1.0, help="How many times as fast to replay a trace."),
    click.option("--from", "from_time", type=TIME, help="Begin so far into the trace."),
)
_TELEMETRY = "A page of dcgm-exporter with the server's GPUs: http://HOST:9400/metrics."


_SAME_WORDS = "Send the words of the last test of this seed, which a prefix cache may know; else others each time."


class LoadOptions(TypedDict):
    """What is asked of the endpoint, by the names of the options."""

    model: str | None
    api: str
    no_stream: bool
    concurrency: str | None
    rate: str | None
    arrivals: str
    burstiness: float
    ramp: str | None
    saturate: bool
    within: bool
    trace: Path | None
    speed: float
    from_time: str | None
    requests: int | None
    duration: str | None
    resume: Path | None
    warmup: int | None
    rounds: int
    prompt: str
    generate: str
    shared_prefix: str | None
    turns: int
    think: str
    objectives: tuple[str, ...]
    processes: int
    timeout: str
    cancel: str | None
    images: str | None
    audio: str | None
    telemetry: str | None
    headers: tuple[str, ...]
    tokenizer: str | None
    template: Path | None
    method: str
    stop_early: bool
    authorities: Path | None
    insecure: bool
    proxy: str | None
    device: str | None
    same_words: bool
    seed: int


def _load_options(function: click.decorators.FC) -> click.decorators.FC:
    option = click.option
    for made in reversed((
        option("--model", metavar="NAME", help=_MODEL),
        option("--api", type=click.Choice(_APIS), default="chat", help="Which kind of endpoint."),
        option("--no-stream", is_flag=True, help="Ask for answers in one piece: then there is no first token."),
        option("--concurrency", metavar="N,…", help="Closed loop: requests at once."),
        option("--rate", metavar="R,…", help="Open loop: requests a second, whatever comes back."),
        *LOOP_OPTIONS,
        option("--requests", type=_REQUESTS, help="Requests of each level and round.  [default: 10 a place]"),
        option("--duration", type=TIME, help="How long each level and round sends requests."),
        option("--resume", type=click.Path(path_type=Path), metavar="FILE", help=_RESUME),
        option("--warmup", type=WARMUP, help="Requests that are sent first and not counted.  [default: 2-8]"),
        option("--rounds", type=_ROUNDS, default=1, help="Repeat every level, to see how far equal rounds differ."),
        option("--prompt", default="128", metavar="LENGTH", help=LENGTHS),
        option("--generate", default="64", metavar="LENGTH", help="Tokens to generate, in the same forms."),
        option("--shared-prefix", metavar="N[:GROUPS]", help="The first N tokens of prompts are the same."),
        option("--turns", type=_ROUNDS, default=1, help="Turns of a session; each prompt holds the talk so far."),
        option("--think", type=TIME, default="0s", help="Between an answer and the next turn."),
        option("--slo", "objectives", multiple=True, metavar="GOAL", help=_GOALS),
        option("--processes", type=_SENDERS, default=1, help="Processes that send, where one core is not enough."),
        option("--timeout", type=TIME, default="600s", help="Give up a request after so long."),
        option("--cancel", metavar="SHARE:TIME", help="Take so many requests back after so long: 0.1:5s."),
        option("--images", metavar="N:WxH", help="Images in every message, of noise: 1:640x480."),
        option("--audio", metavar="TIME|FILE", help=_AUDIO),
        option("--telemetry", metavar="URL", help=_TELEMETRY),
        option("--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="Send this header; repeatable."),
        option("--tokenizer", metavar="WHERE", help=_TOKENIZER),
        option("--template", type=click.Path(path_type=Path), metavar="FILE", help=_TEMPLATE),
        option("--method", default="POST", metavar="NAME", help="With --api template: the method."),
        option("--stop-early", is_flag=True, help="Let the model end an answer before its length (no ignore_eos)."),
        option("--ca", "authorities", type=click.Path(path_type=Path), metavar="FILE", help="Certificates to trust."),
        option("--insecure", is_flag=True, help="Do not check the server's certificate."),
        option("--proxy", metavar="URL|off", help=_PROXY),
        option("--device", metavar="NAME", help="What the server runs on.  [default: its host and port]"),
        option("--same-words", is_flag=True, help=_SAME_WORDS),
        option("--seed", type=SEED, default=0, help="Of arrivals and lengths, and of words with --same-words."),
    )):  # fmt: skip
        function = made(function)
    return function


class NoAnswerError(PlaceError):
    """The run is stored as failed, and so is not the `last` that others are compared with."""

    exit_code = 1


class CommandOptions(LoadOptions, StoringOptions):
    pass


@click.command("load")
@click.argument("url")
@_load_options
@click.option(
    "-o", "--out", type=OutputFile(), metavar="FILE", help="Save it: .json the profile, .csv a row a request."
)
@storing_options
@format_option
def command(url: str, out: Path | None, form: str, **options: Unpack[CommandOptions]) -> None:
    """Load a service with requests and measure what its users would see.

    \b
    inferometer load http://localhost:8000 --concurrency 8
    inferometer load http://localhost:8000 --rate 4 --duration 60s --slo "ttft_p95<=500ms"
    inferometer load http://localhost:8000 --concurrency 1,2,4,8,16 --requests 200
    inferometer load http://localhost:8000 --rate 1 --saturate --prompt lognormal:1024,800
    inferometer load http://localhost:8000 --rate 1 --within --slo "ttft_p95<=500ms" --duration 60s
    inferometer load http://localhost:8000 --trace mooncake.jsonl --speed 2 --duration 5min
    inferometer load http://host/infer --api template --template body.json --concurrency 4

    URL is an OpenAI-compatible server (vLLM, SGLang, llama.cpp, TensorRT-LLM and others), or any endpoint with --api
    template. Latencies count from when a request was due; errors are counted by kind and are in no time. A list of
    loads is a sweep, whose knee is looked for. docs/load.md defines every figure.

    The test is stored as a run. Ctrl-C, SIGTERM or a closed terminal ends it and keeps what was measured; --resume
    goes on from what was saved. Exit code 1: no request was answered.
    """
    from inferometer.serving.load.run import load

    require_suffix(out)
    plan = plan_from(url, options, command=command_line())
    recorder = recording_from(storing_from(options), kind="load", endpoint=_endpoint_name(plan))
    with recorder:
        with progress_line(_progress_text) as progress:
            profile = load(plan, progress=progress, keep=recorder.keep)
        recorder.keep(profile)
        if out is not None:
            save_load(profile, out)
        print_load(profile, form)
        _end(profile, lambda: print_run_link(recorder))
    print_run_link(recorder)


def storing_from(options: CommandOptions) -> StoringOptions:
    return {
        "project": options["project"], "tags": options["tags"], "name": options["name"],
        "no_store": options["no_store"], "store": options["store"], "hub": options["hub"],
        "token": options["token"], "token_file": options["token_file"],
    }  # fmt: skip


def _endpoint_name(plan: "LoadPlan") -> str:
    from inferometer.serving.load.apis import parse_address

    return parse_address(plan.url).shown


def _end(profile: "Profile", link: Any) -> None:
    """Ctrl-C leaves a run that is marked as such; a test without a single answer leaves one that failed."""
    levels = profile.served.levels if profile.served is not None else ()
    if any(level.interrupted for level in levels):
        link()
        raise KeyboardInterrupt  # what there is has been printed and saved, and the run is stored as interrupted
    if not any("ok" in level.requests.outcome for level in levels if level.requests is not None):
        link()
        raise NoAnswerError("No request was answered.", remedy="The kinds of errors above say why.")


def print_load(profile: "Profile", form: str) -> None:
    from inferometer.understand.view.load_tests import level_table, load_document, load_result, load_view

    assert profile.served is not None  # noqa: S101 - of a load test
    if form == "json":
        print_document(load_document(profile, load_result(profile.served)))
    elif form == "csv":
        print_table(level_table(load_result(profile.served)), form)
    else:
        print_view(load_view(profile), form)


def require_suffix(out: Path | None) -> None:
    if out is not None and out.suffix.lower() not in {".json", ".csv"}:
        raise DomainError(
            f"{out.name!r} does not say what to save.", remedy="Use .json for the profile or .csv for requests."
        )


def save_load(profile: "Profile", out: Path) -> None:
    if out.suffix.lower() == ".json":
        from inferometer.measure.bench.files import save_profile

        save_profile(profile, out)
    else:
        from inferometer.core.cache import write_asked_for
        from inferometer.understand.view.exports import profile_csv

        write_asked_for(out, [profile_csv(profile).encode()])
    say(f"Saved {out}.")


def _progress_text(progress: "LoadProgress") -> str:
    share = min(1.0, progress.done / progress.count) if progress.count else 0.0
    turn = f" round {progress.round}/{progress.rounds}" if progress.rounds > 1 else ""
    return f"{progress.level}{turn} {bar(share)}  {progress.done:,} answered"


def command_line() -> str:
    """The command as it was given, without secrets: values of headers, and a password in the address."""
    words, shown = list(sys.argv[1:]), ["inferometer"]
    hide = False
    for word in words:
        text = re.sub(r"(//|^|=)[^/@=\s]+:[^/@\s]*@|(//)[^/@\s]+@", rf"\1\2{_SECRET}@", word)
        if hide or word.startswith("--header="):
            name = word.removeprefix("--header=").partition(":")[0]
            text = f"{'--header=' if not hide else ''}{name}: {_SECRET}"
        shown.append(text)
        hide = word == "--header"
    return shlex.join(shown)


def plan_from(url: str, options: LoadOptions, *, command: str | None = None) -> "LoadPlan":
    from inferometer.core.served import parse_objective
    from inferometer.core.traffic.lengths import parse_lengths
    from inferometer.serving.asked import cancels_from, sharing_from, steps_from, trace_from
    from inferometer.serving.load.apis import (
        parse_address,
        parse_audio,
        parse_header,
        parse_images,
        parse_mix,
        proxied,
        read_template,
    )
    from inferometer.serving.load.plan import LoadPlan
    from inferometer.serving.load.pool import Security

    proxied(parse_address(url), options["proxy"])
    if options["telemetry"] is not None:
        parse_address(options["telemetry"])
    named = options["model"] or ""
    mix = parse_mix(named) if "=" in named else ()
    template = options["template"]
    if (template is None) == (options["api"] == "template") and options["method"] != "GET":
        raise click.UsageError("--api template needs --template FILE, and the other way round.", ctx=_context())
    duration = None if options["duration"] is None else parse_quantity(options["duration"], "s")
    return LoadPlan(
        url=url,
        model=None if mix else options["model"],
        mix=mix,
        cancels=cancels_from(options["cancel"]),
        audio=None if options["audio"] is None else parse_audio(options["audio"]),
        images=None if options["images"] is None else parse_images(options["images"]),
        telemetry=options["telemetry"],
        api=options["api"],  # type: ignore[arg-type] # click has checked it
        stream=not options["no_stream"],
        steps=steps_from(options),
        saturate=options["saturate"],
        within=options["within"],
        trace=trace_from(options, duration),
        requests=options["requests"],
        duration_s=duration,
        warmup=options["warmup"],
        rounds=options["rounds"],
        prompt=parse_lengths(options["prompt"], column="input_tokens"),
        generate=parse_lengths(options["generate"], column="output_tokens"),
        sharing=sharing_from(options),
        objectives=tuple(parse_objective(text) for text in options["objectives"]),
        processes=options["processes"],
        timeout_s=parse_quantity(options["timeout"], "s"),
        headers=tuple(parse_header(text) for text in options["headers"]),
        template=None if template is None else read_template(template),
        method=options["method"].upper(),
        ignore_eos=not options["stop_early"],
        security=Security(authorities=options["authorities"], insecure=options["insecure"]),
        proxy=options["proxy"],
        tokenizer=options["tokenizer"],
        device=options["device"],
        seed=options["seed"],
        words=options["seed"] if options["same_words"] else None,
        command=command,
        done=() if options["resume"] is None else _levels_of(options["resume"]),
    )


def _levels_of(path: Path) -> "tuple[Level, ...]":
    """The levels of a saved test that were played to their end."""
    from inferometer.measure.bench.files import load_profile

    served = load_profile(path).served
    if served is None:
        raise DomainError(f"{path} is no load test.", remedy="Save one with `inferometer load … -o FILE.json`.")
    return tuple(level for level in served.levels if not level.interrupted and level.requests is not None)


def _context() -> click.Context:
    return click.get_current_context()
