"""The verbs about services: `load` measures one, `simulate` predicts one, `plan` finds one."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Unpack

from inferometer.core.device import Device, Link
from inferometer.core.errors import DomainError
from inferometer.core.graph import Graph
from inferometer.core.profile import Profile
from inferometer.core.served import Objective, parse_objective
from inferometer.core.traffic.arrivals import Arrivals, Process
from inferometer.core.traffic.lengths import Lengths, listed_lengths, parse_lengths
from inferometer.core.traffic.traces import RequestTrace, read_trace
from inferometer.known import device as device_named
from inferometer.known import link as link_named
from inferometer.predict.ask import taking
from inferometer.predict.asked import AskedOfService
from inferometer.predict.fields import fields_that, in_python, require_fields
from inferometer.predict.options import Options
from inferometer.serving.load.plan import LoadPlan, LoadStep
from inferometer.serving.plans.asked import (
    COLD_START_S,
    Autoscaling,
    EdgeAsked,
    Goal,
    PlanAnswer,
    PlanSearch,
    draftings,
)
from inferometer.serving.simulate.service import Routing, Signal

Length = int | str
Goals = str | tuple[str, ...]
_SERVED = in_python(fields_that(door="simulate"))


def load(  # noqa: PLR0913 - everything that a load test is asked
    url: str,
    *,
    model: str | None = None,
    rate: float | None = None,
    concurrency: int | None = None,
    trace: str | Path | None = None,
    requests: int | None = None,
    duration_s: float | None = None,
    prompt: Length = 128,
    generate: Length = 64,
    arrivals: Process = "poisson",
    slo: Goals = (),
    stream: bool = True,
    device: str | None = None,
    seed: int = 0,
) -> Profile:
    """Load a service and measure what its users see: `load("http://localhost:8000", concurrency=8)`.

    One of `rate` (requests a second), `concurrency` (requests at once) or `trace` (a file) says how; with a trace, the
    others are of its sessions. The profile's `served` has every request; `inferometer load --help` explains more.
    """
    from inferometer.serving.load.run import load as load_service  # noqa: PLC0415 - sockets, for this alone

    return load_service(
        LoadPlan(
            url=url, model=model, steps=(_step(rate, concurrency, trace, arrivals),), stream=stream,
            trace=None if trace is None else read_trace(Path(trace)), requests=requests, duration_s=duration_s,
            prompt=_lengths(prompt), generate=_lengths(generate), objectives=_objectives(slo), device=device, seed=seed,
        )
    )  # fmt: skip


@taking(_SERVED)
def simulate(  # noqa: PLR0913 - everything that a simulation depends on
    model: str | Path | Graph,
    *,
    on: str | Device,
    rate: float | str | None = None,
    concurrency: int | str | None = None,
    trace: str | Path | None = None,
    requests: int | str | Path | None = None,
    duration_s: float | None = None,
    prompt: Length = 512,
    generate: Length = 128,
    arrivals: Process = "poisson",
    burstiness: float = 1.0,
    ramp: str | None = None,
    saturate: bool = False,
    within: bool = False,
    speed: float = 1.0,
    from_s: float | None = None,
    shared_prefix: int | str | None = None,
    turns: int = 1,
    think_s: float = 0.0,
    slo: Goals = (),
    n: int = 1,
    dp: int = 1,
    replicas: int = 1,
    routing: Routing = "least-loaded",
    autoscale: str | None = None,
    cold_start_s: float = 60.0,
    scale_by: Signal = "requests",
    max_num_seqs: int | None = None,
    max_num_batched_tokens: int | None = None,
    kv_blocks: int | None = None,
    block_size: int | None = None,
    max_model_len: int | None = None,
    max_queue: int | None = None,
    timeout_s: float | None = None,
    cancel: str | None = None,
    acceptance_spread: float = 0.0,
    lora: int | str | None = None,
    max_loras: int = 1,
    images: str | None = None,
    encoder: str | float | None = None,
    prefix_cache: bool = True,
    kv_offload: str | None = None,
    preemption: Literal["recompute", "swap"] = "recompute",
    priorities: str | None = None,
    prefill_on: str | Device | None = None,
    prefill_replicas: int = 1,
    prefill_tp: int | None = None,
    options: Options | None = None,
    seed: int = 0,
    **asked: Unpack[AskedOfService],
) -> Profile:
    """A service under load, simulated: `simulate("llama-3.1-8b", on="nvidia-h100-sxm", rate=20, requests=2000)`.

    One of `rate`, `concurrency`, `ramp` or `trace` says what comes. `dp` are data-parallel ranks of a replica. What
    serves is asked as in `predict`. The other keywords are the options of `inferometer simulate`, which explains them;
    times are in seconds. The result has the shape of a load test.
    """
    from inferometer.serving.asked import service_plan, traffic_from  # noqa: PLC0415 - the simulator, for this alone
    from inferometer.serving.simulate.run import simulate as simulate_plan  # noqa: PLC0415 - as above

    require_fields(asked, _SERVED)
    given: dict[str, Any] = {
        **{name: asked.get(name, field.default) for name, field in _SERVED.items()},
        "rate": rate, "concurrency": concurrency, "trace": trace, "requests": requests, "duration": duration_s,
        "prompt": prompt, "generate": generate, "arrivals": arrivals, "burstiness": burstiness, "ramp": ramp,
        "saturate": saturate, "within": within, "speed": speed, "from_time": from_s, "shared_prefix": shared_prefix,
        "turns": turns, "think": think_s, "objectives": (slo,) if isinstance(slo, str) else slo, "answers": n,
        "ranks": dp, "replicas": replicas, "routing": routing, "autoscale": autoscale, "cold_start": cold_start_s,
        "signal": scale_by, "sequences": max_num_seqs, "tokens": max_num_batched_tokens, "blocks": kv_blocks,
        "block_tokens": block_size, "longest": max_model_len, "queue": max_queue, "timeout": timeout_s,
        "cancel": cancel, "spread": acceptance_spread, "lora": lora, "slots": max_loras, "images": images,
        "encoder": encoder, "no_prefix_cache": not prefix_cache, "kv_offload": kv_offload, "preemption": preemption,
        "priorities": priorities, "prefill_on": prefill_on, "prefill_replicas": prefill_replicas,
        "prefill_tp": prefill_tp, "options": options, "seed": seed,
    }  # fmt: skip
    traffic, whole = traffic_from(given, None)
    return simulate_plan(service_plan(model, on, given, traffic, whole=whole))


def plan(  # noqa: PLR0913 - everything that a plan depends on
    model: str | Path | Graph,
    *,
    slo: Goals,
    rate: float | None = None,
    trace: str | Path | None = None,
    prompt: Length = 1024,
    generate: Length = 256,
    goal: Goal = "cheapest",
    devices: Iterable[str] = (),
    runtimes: Iterable[str] = (),
    weights: Iterable[str | None] = (),
    tp: Iterable[int] = (),
    pp: Iterable[int] = (),
    ep: Iterable[int] = (),
    dp: Iterable[int] = (),
    kv: Iterable[str | None] = (None, "f8e4m3"),
    max_num_seqs: Iterable[int] = (0, 64, 256),
    max_num_batched_tokens: Iterable[int] = (0, 2048, 16384),
    draft: str | None = None,
    draft_length: Iterable[int] = (),
    acceptance: float | None = None,
    acceptance_spread: float = 0.0,
    most_devices: int = 256,
    max_power_w: float | None = None,
    prices: Mapping[str, float] | None = None,
    day: Iterable[float] = (),
    link: str | Link | None = None,
    availability: float | None = None,
    replica_up: float = 0.99,
    headroom: float = 0.0,
    discount: float = 0.0,
    fallback: float | None = None,
    edge: str | None = None,
    edge_model: str | Path | Graph | None = None,
    edge_weights: str | None = None,
    round_trip_s: float = 0.0,
    autoscale: bool = False,
    cold_start_s: float = COLD_START_S,
    scale_by: Signal = "requests",
    keep: int = 3,
    options: Options | None = None,
    engine: str = "local",
    seed: int = 0,
) -> PlanAnswer:
    """The best ways to serve a model: `plan("llama-3.3-70b", rate=50, slo="ttft_p95<=1s,tpot_p95<=50ms").plans[0]`.

    `engine` is where they are compared: in this process, in several ("local:4"), or on Dask ("dask://HOST:PORT").
    `dp` are copies of attention that share the experts, tried where one latent serves all heads.
    `max_num_seqs` and `max_num_batched_tokens` are limits of a step to try, 0 for the engine's own. `draft` (a model,
    "eagle", "mtp" or "ngram") is tried beside plans without one, and needs the share of its tokens that is accepted.
    `prices` are USD an hour of one device, `day` the loads of equal parts of a day as shares of the rate, `link` lies
    between machines and pools.
    With `trace` the requests of a file are served, as they came or at `rate`.
    With `autoscale` replicas follow the load of `day` or of a trace, as Kubernetes' autoscaler has them by the signal
    `scale_by`; a new one takes `cold_start_s`, and those that are held are paid for.
    `fallback` is the share of the rate that devices at the edge hand on; with `edge`, the device that answers first,
    the answer's own `edge` says what it does and what a user sees of both.
    """
    from inferometer.predict.options import Options as Given  # noqa: PLC0415 - the search, for this alone
    from inferometer.serving.plans.search import plan as search  # noqa: PLC0415 - as above

    if edge is None and (edge_model is not None or edge_weights is not None):
        raise DomainError(
            "edge_model and edge_weights need the device that answers first.",
            remedy="Give edge='nvidia-jetson-orin-nano-8gb'.",
        )
    played, rate_per_s = asked_traffic(trace, rate)
    first = None
    if edge is not None:
        first = EdgeAsked(device=edge, model=edge_model, weights=edge_weights, round_trip_s=round_trip_s)
    return search(
        PlanSearch(
            model=model, rate_per_s=rate_per_s, trace=played,
            prompt=_lengths(prompt) if played is None else listed_lengths(played.input_tokens, played.name),
            generate=_lengths(generate) if played is None else listed_lengths(played.output_tokens, played.name),
            objectives=_objectives(slo), goal=goal, devices=tuple(devices), runtimes=tuple(runtimes),
            weights=tuple(weights), tp=tuple(tp), pp=tuple(pp), ep=tuple(ep), dp=tuple(dp),
            kv=tuple(kv), sequences=tuple(max_num_seqs), tokens=tuple(max_num_batched_tokens),
            drafts=draftings(draft, tuple(draft_length), acceptance, acceptance_spread),
            most_devices=most_devices, most_watts=max_power_w, day=tuple(day),
            prices=tuple((device_named(name).name, usd) for name, usd in (prices or {}).items()),
            link=link_named(link) if isinstance(link, str) else link,
            availability=availability, replica_up=replica_up, headroom=headroom, discount=discount, fallback=fallback,
            edge=first, keep=keep, seed=seed, options=options or Given(),
            autoscale=Autoscaling(signal=scale_by, cold_start_s=cold_start_s) if autoscale else None,
        ),
        engine=engine,
    )  # fmt: skip


def asked_traffic(trace: str | Path | None, rate: float | None) -> tuple[RequestTrace | None, float]:
    """The trace to plan for, and requests a second: the rate that was asked for, or the trace's own."""
    if trace is None:
        if rate is None:
            raise DomainError("A plan needs to know what comes.", remedy="Say it: rate=50, or trace='requests.jsonl'.")
        return None, rate
    played = read_trace(Path(trace))
    if rate is None and not (played.is_timed and played.seconds):
        why = "has all its requests at one moment" if played.is_timed else "does not say when its requests come"
        raise DomainError(f"{played.name} {why}.", remedy="Add a rate.")
    return played, len(played) / played.seconds if rate is None else rate


def _step(rate: float | None, concurrency: int | None, trace: Any, arrivals: Process) -> LoadStep:
    if (rate is not None and concurrency is not None) or (rate, concurrency, trace) == (None, None, None):
        raise DomainError("A load is one of rate=…, concurrency=… and trace=…; a trace may have one of the others too.")
    if rate is not None:
        return LoadStep(arrivals=Arrivals(rate_per_s=rate, process=arrivals))
    return LoadStep(concurrency=concurrency)


def _lengths(given: Length) -> Lengths:
    return parse_lengths(str(given), column="input_tokens")


def _objectives(slo: Goals) -> tuple[Objective, ...]:
    texts = (slo,) if isinstance(slo, str) else slo
    return tuple(parse_objective(part) for text in texts for part in text.split(","))
