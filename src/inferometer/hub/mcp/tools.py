"""The tools: each a verb of `inferometer`, with typed arguments, answering with the verb's documented JSON.

A tool is a function whose parameters are its arguments: their types make the JSON Schema that clients see, and what
does not fit is refused before the function is called. The first parameter is what the client may reach. Nothing here
knows the protocol; `server.py` speaks it.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_type_hints

import msgspec

from inferometer.core.codec import settled
from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.core.units import counted, format_quantity
from inferometer.core.workload import Workload
from inferometer.hub.mcp.access import MOST_CONFIGURATIONS, MOST_REQUESTS, MOST_ROWS, Access, paged, require_bounded
from inferometer.predict.fields import AXES, FIELDS, Field, Takes, fields_that, in_python
from inferometer.store.values import Filter

_PAGE = 20  # rows of an answer, unless more are asked for
Lengths = int | str
Numbers = list[int] | None
Names = list[str] | None
_TAKEN: dict[Takes, Any] = {
    "whole": int | None, "number": float | None, "share": float | None, "switch": bool | None, "text": str | None,
    "texts": list[str] | None,
}  # fmt: skip


@frozen
class McpAnswer:
    """`text` is what a person would be told; `document` is the JSON that the command of the same name prints."""

    document: dict[str, Any]
    text: str


@frozen
class AgentTool:
    """A function with what clients are told of it. `runs_something`: it starts a measurement, and reads not only."""

    name: str
    description: str
    arguments: type[msgspec.Struct]
    call: Callable[..., McpAnswer]
    runs_something: bool = False

    def schema(self) -> dict[str, Any]:
        _, components = msgspec.json.schema_components((self.arguments,))
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **components[self.arguments.__name__]}


TOOLS: dict[str, AgentTool] = {}


def tool(function: Callable[..., McpAnswer]) -> Callable[..., McpAnswer]:
    """Make a tool of a function; every tool also takes the page of its answer."""
    return _tool(function, {})


def tool_asking(fields: Mapping[str, Field]) -> Callable[[Callable[..., McpAnswer]], Callable[..., McpAnswer]]:
    """Make a tool of a function that also takes these fields of a question."""
    types: dict[str, Any] = {"sizes": dict[str, int] | None}
    arguments = {
        name: (types.get(name, _TAKEN[field.takes] if field.default is None else type(field.default)), field.default)
        for name, field in fields.items()
    }
    return lambda function: _tool(function, arguments)


def tool_listing(fields: Mapping[str, Field]) -> Callable[[Callable[..., McpAnswer]], Callable[..., McpAnswer]]:
    """Make a tool of a function that also takes a list of each of these fields."""
    arguments = {name: (Numbers if field.takes == "whole" else Names, None) for name, field in fields.items()}
    return lambda function: _tool(function, arguments)


def _tool(function: Callable[..., McpAnswer], more: Mapping[str, tuple[Any, Any]]) -> Callable[..., McpAnswer]:
    hints = get_type_hints(function)
    fields: list[Any] = []
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        if parameter.kind is not parameter.VAR_KEYWORD:
            field = (parameter.name, hints[parameter.name])
            fields.append(field if parameter.default is parameter.empty else (*field, parameter.default))
    fields += [(name, *typed) for name, typed in more.items()]
    fields += [("limit", int, _PAGE), ("offset", int, 0)]
    name = function.__name__.rstrip("_")
    arguments = msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
    TOOLS[name] = AgentTool(
        name=name,
        description=inspect.cleandoc(function.__doc__ or ""),
        arguments=arguments,
        call=function,
        runs_something=name in {"profile", "submit"},
    )
    return function


def tools_for(access: Access) -> tuple[AgentTool, ...]:
    allowed = {"profile": access.profiling, "submit": access.submit is not None}
    return tuple(each for each in TOOLS.values() if allowed.get(each.name, True))


def call_tool(name: str, arguments: Mapping[str, Any], access: Access) -> McpAnswer:
    """The answer, a page of it where it is long. What cannot be asked is an `InferometerError` with what can."""
    if name == "profile" and not access.profiling:
        raise DomainError(
            "This server measures nothing.", remedy="Let the user start `inferometer hub mcp --allow-profile`."
        )
    known = [each.name for each in tools_for(access)]
    if name not in known:
        raise UnknownNameError("tool", name, known, listing=f"There are {', '.join(known)}.")
    wanted = TOOLS[name]
    try:
        asked = msgspec.convert(dict(arguments), settled(wanted.arguments))
    except msgspec.ValidationError as error:
        takes = ", ".join(wanted.arguments.__struct_fields__)
        raise DomainError(f"{name} cannot take these arguments: {error}.", remedy=f"It takes {takes}.") from None
    given = msgspec.structs.asdict(asked)
    limit, offset = given.pop("limit"), given.pop("offset")
    paged({}, offset=offset, limit=limit)  # an impossible page is refused before the work for it
    answer = wanted.call(access, **given)
    document = paged(answer.document, offset=offset, limit=limit)
    cut = document.get("pages")
    more = f" Longer lists show {limit} rows from {offset}: `offset` has the next." if cut else ""
    return McpAnswer(document=document, text=f"{answer.text}{more}")


def _reached(access: Access, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What is asked, with models, devices and files that the client may reach."""
    finders = {"models": access.model, "devices": access.device, "calibrations": access.file_or_name}
    given = {name: value for name, value in asked.items() if value is not None}
    named = {name: finders[field.catalog] for name, field in FIELDS.items() if field.catalog in finders}
    return {name: named[name](value) if name in named else value for name, value in given.items()}


@tool_asking(in_python(FIELDS) | fields_that("users"))
def predict(access: Access, *, model: str, on: str, **asked: Any) -> McpAnswer:
    """Predict how fast a model runs on a device, without running anything.

    Answers with the time of each phase and its interval, memory, energy, and every op. `users` asks for the steady
    state of a served model instead. `devices` and `models` list the names; `weights` is a format as bf16, i8 or q4_k.
    """
    from inferometer.predict.ask import ask
    from inferometer.understand.view.published import prediction_document

    users, wanted = asked.pop("users"), asked.pop("tokens_per_user")
    question = ask(access.model(model), on=access.device(on), **_reached(access, asked))
    if users is not None:
        from inferometer.predict.served.question import serving_answer

        served = serving_answer(question, users, wanted).document()
        first, each = (format_quantity(served[name], "s") for name in ("ttft_s", "tpot_s"))
        rate = f"{served['tokens_per_s']:,.0f} tokens/s in all"
        text = f"{model} on {on} for {counted(users, 'user')}: first token {first}, each token {each}, {rate}."
        return McpAnswer(document=served, text=text)
    profile = question.answer()
    return McpAnswer(document=prediction_document(question, profile), text=_profile_text(profile))


@tool_asking(in_python(fields_that(door="fit")))
def fit(access: Access, *, model: str, on: str, **asked: Any) -> McpAnswer:
    """Whether a model fits into a device's memory, the longest context, the largest batch, the fewest devices."""
    from inferometer.predict.ask import ask
    from inferometer.predict.fitting import memory_fit

    found = memory_fit(ask(access.model(model), on=access.device(on), **_reached(access, asked)))
    verdict = "fits" if found.fits else "does not fit"
    use = f"{format_quantity(found.weights_bytes, 'B')} of weights in {format_quantity(found.usable_bytes, 'B')}"
    return McpAnswer(document=found.document(), text=f"{model} {verdict} on {on}: {use}.")


@tool
def can_i_run(
    access: Access,
    *,
    model: str,
    on: str = "local",
    host: str | None = None,
    runtime: str | None = None,
    context: int | None = None,
) -> McpAnswer:
    """Which quantised forms of a language model fit a device, and how fast each is, before anything is downloaded.

    `model` may be the id that it is published under. `host` is the CPU beside a GPU, for what does not fit.
    `on` may be several GPUs with commas between, which share the layers.
    """
    from inferometer.known.atlas.names import match_model
    from inferometer.predict.placing import can_i_run as runnable
    from inferometer.understand.view.serving import runnable_card

    named = model if match_model(model) else access.model(model)
    beside = None if host is None else access.device(host)
    answer = runnable(
        named, on=[access.device(each) for each in on.split(",")], host=beside, runtime=runtime, context=context
    )
    verdict, what, rate = runnable_card(answer).facts[0]
    return McpAnswer(document=answer.document(), text=f"{model} on {on}: {verdict}, {what}. {rate}".strip())


@tool
def compare(access: Access, *, a: str, b: str, threshold: float = 0.01, alpha: float = 0.005) -> McpAnswer:
    """Whether a run or file is faster or slower than another, with the reason.

    `a` is the baseline. A run is an id, a name, `last` or `last~1`. `threshold` is the smallest difference that counts,
    `alpha` the risk of taking noise for one.
    """
    from inferometer.api.explanations import compare as compare_results
    from inferometer.measure.bench.compare import comparison_document
    from inferometer.understand.view.measured import headline

    first, second = access.profile(a), access.profile(b)
    found = compare_results(first, second, threshold=threshold, alpha=alpha, names=(a, b))
    return McpAnswer(document=comparison_document(found), text=headline(found))


@tool
def explain(access: Access, *, what: str, on: str | None = None) -> McpAnswer:
    """Where the time of a run or a saved profile goes, what bounds it, what to change and what that would gain."""
    from inferometer.api.explanations import explained
    from inferometer.understand.explanation import explanation_document
    from inferometer.understand.residual import residual_documents

    profile = access.profile(what)
    if access.seen is not None and profile.judged_by is None and on is None:
        raise DomainError(
            f"{what} was not judged where it was measured, and this hub is another machine.",
            remedy="Say with `on` which device of the catalog it ran on.",
        )
    found = explained(profile, on=None if on is None else access.device(on), name=what)
    document = explanation_document(found) | {"residual": residual_documents(found.profile)}
    findings = "; ".join(finding.title for finding in found.findings[:3])
    return McpAnswer(document=document, text=f"{found.headline} {findings}".strip())


@tool
def atlas(
    access: Access,  # noqa: ARG001 - every tool has it
    *,
    model: str | None = None,
    device: str | None = None,
    runtime: str | None = None,
    quantity: str | None = None,
    weights: str | None = None,
) -> McpAnswer:
    """What others have measured and published, newest first, each with its source. Give a model or a device."""
    from inferometer.known.atlas.looking import atlas as look_up
    from inferometer.understand.view.published import atlas_document

    if model is None and device is None:
        raise DomainError("The atlas has hundreds of thousands of rows.", remedy="Name a model or a device.")
    table = look_up(model=model, device=device, runtime=runtime, quantity=quantity, weights=weights)
    named = " on ".join(filter(None, (model, device)))
    return McpAnswer(document=atlas_document(table), text=f"{counted(len(table), 'measurement')} of {named}.")


@tool
def devices(access: Access, *, name: str | None = None, where: Names = None) -> McpAnswer:
    """List devices, or show one by its `name`; `local` is this machine.

    `where` has conditions such as "unit=gpu" or "memory>=80GB".
    """
    from inferometer.core.codec import document
    from inferometer.known import device
    from inferometer.known.where import matching
    from inferometer.understand.view.listings import device_table
    from inferometer.understand.view.records import DEVICE_FIELDS, device_records
    from inferometer.understand.view.render import records

    if name is not None:
        found = device(access.device(name))
        return McpAnswer(document=document(found), text=f"{found.name}: {found.title}.")
    rows = matching(device_records(), tuple(where or ()), DEVICE_FIELDS)
    return _rows_answer(records(device_table(rows)), "device")


@tool
def models(access: Access, *, name: str | None = None, where: Names = None) -> McpAnswer:
    """List models, or show one by its `name`: what it holds, computes and moves.

    `where` has conditions such as "family=llama" or "parameters<=2e9".
    """
    from inferometer.core.sizes import bind
    from inferometer.known import models as every_model
    from inferometer.known.where import matching
    from inferometer.predict.ask import model_graph
    from inferometer.predict.memory.inventory import inventory
    from inferometer.understand.view.listings import inventory_document, model_table
    from inferometer.understand.view.records import MODEL_FIELDS, model_record
    from inferometer.understand.view.render import records

    if name is not None:
        graph = model_graph(access.model(name))
        binding = bind(graph, Workload(), {}, complete=False)
        counts = inventory(graph, binding)
        size = format_quantity(counts.weight_bytes, "B")
        text = f"{graph.name}: {counts.parameters:,} parameters, {size} of weights."
        return McpAnswer(document=inventory_document(counts, binding.precision), text=text)
    rows = matching(list(map(model_record, every_model().values())), tuple(where or ()), MODEL_FIELDS)
    return _rows_answer(records(model_table(rows)), "model")


@tool
def plan(
    access: Access,
    *,
    model: str,
    rate: float,
    slo: str | list[str],
    prompt: Lengths = 1024,
    generate: Lengths = 256,
    goal: Literal["cheapest", "greenest", "smallest"] = "cheapest",
    devices: Names = None,
    runtimes: Names = None,
    weights: Names = None,
    tp: Numbers = None,
    most_devices: int = 256,
    keep: int = 3,
) -> McpAnswer:
    """The best ways to serve a model at `rate` requests a second within objectives, and why others lost.

    `slo` is such as "ttft_p95<=1s". Naming `devices` makes it quick; else every device with a price is compared.
    """
    from inferometer.api.services import plan as find_plans

    answer = find_plans(
        access.model(model), rate=rate, slo=tuple([slo] if isinstance(slo, str) else slo),
        prompt=access.length(prompt), generate=access.length(generate), goal=goal,
        devices=[access.device(name) for name in devices or ()], runtimes=runtimes or (), weights=weights or (),
        tp=tp or (), most_devices=most_devices, keep=keep,
    )  # fmt: skip
    if not answer.plans:
        return McpAnswer(document=answer.document(), text=f"There is no plan. {answer.why_not}")
    best = answer.plans[0]
    cost = "" if best.usd_per_hour is None else f" for {best.usd_per_hour:.2f} USD an hour"
    text = f"{counted(len(answer.plans), 'plan')}; the best is {best.count} × {best.device} in {best.runtime}{cost}."
    return McpAnswer(document=answer.document(), text=text)


@tool_asking(fields_that(door="simulate"))
def simulate(
    access: Access,
    *,
    model: str,
    on: str,
    rate: float | None = None,
    concurrency: int | None = None,
    trace: str | None = None,
    requests: int = 500,
    prompt: Lengths = 512,
    generate: Lengths = 128,
    slo: list[str] | None = None,
    replicas: int = 1,
    seed: int = 0,
    **asked: Any,
) -> McpAnswer:
    """Simulate a served model under load by the engine's own scheduling rules: what its users would see.

    One of `rate` (requests a second), `concurrency` or `trace` (a file) says what comes.
    """
    from inferometer.api.services import simulate as simulate_service
    from inferometer.understand.view.load_tests import load_document, load_result

    require_bounded(requests, MOST_REQUESTS, "requests")
    profile = simulate_service(
        access.model(model), on=access.device(on), rate=rate, concurrency=concurrency,
        trace=None if trace is None else access.file(trace), requests=requests, prompt=access.length(prompt),
        generate=access.length(generate), slo=tuple(slo or ()), replicas=replicas, seed=seed, **_reached(access, asked),
    )  # fmt: skip
    assert profile.served is not None  # noqa: S101 - of a simulation
    document = load_document(profile, load_result(profile.served))
    medians = {name: figures["p50"] for name, figures in document["summary"].items() if figures["p50"] is not None}
    told = ", ".join(f"{name.removesuffix('_s')} {format_quantity(value, 's')}" for name, value in medians.items())
    return McpAnswer(document=document, text=f"{model} on {on} at {document['headline']}, medians: {told}.")


@tool_listing(AXES)
def sweep(
    access: Access, *, models: list[str], devices: list[str], pareto: Names = None, **axes: list[Any] | None
) -> McpAnswer:
    """Predict every combination of some lists, a row each.

    `pareto` keeps the rows that no other beats in those columns, such as ["tpot_s", "usd_per_million_tokens"].
    """
    from inferometer.predict.sweep import sweep as sweep_all

    given: dict[str, Any] = {name: axis for name, axis in axes.items() if axis}
    lengths = [len(models), len(devices), *map(len, given.values())]
    require_bounded(math.prod(lengths), MOST_CONFIGURATIONS, "configurations")
    rows = sweep_all([access.model(name) for name in models], [access.device(name) for name in devices], **given)
    return _rows_answer(list((rows.pareto(*pareto, ties=False) if pareto else rows).records()), "configuration")


@tool
def runs(
    access: Access,
    *,
    run: str | None = None,
    project: str | None = None,
    model: str | None = None,
    device: str | None = None,
    runtime: str | None = None,
    search: str | None = None,
) -> McpAnswer:
    """List stored runs, newest first, or show one: `run` is an id, a name or `last`."""
    from inferometer.store.recording import hub_link
    from inferometer.understand.view.render import records
    from inferometer.understand.view.runs import run_document, run_table

    with access.runs() as store:
        if run is not None:
            stored = store.get(run)
            row, metrics = store.row(stored.id), store.metrics(stored.id)
            document = run_document(stored, row, metrics, hub_link(stored.id))
            text = stored.status if stored.profile is None else _profile_text(stored.profile)
            return McpAnswer(document=document, text=f"Run {stored.id}: {text}")
        wanted = Filter(project=project, model=model, device=device, runtime=runtime, words=search)
        page, total = store.list(wanted, limit=MOST_ROWS), store.count(wanted)
    answer = _rows_answer(records(run_table(page.rows, "json")), "run")
    if total <= len(page.rows):
        return answer
    words = f"The newest {len(page.rows):,} of {total:,} runs: name a project, a model, a device or words for others."
    return McpAnswer(document=answer.document, text=words)


@tool_asking(in_python(fields_that(door="profile")))
def profile(access: Access, *, model: str, seconds_at_most: float = 30.0, **asked: Any) -> McpAnswer:
    """Measure a model on this machine, after the user has agreed, and store the run. Takes seconds to minutes."""
    from inferometer.api.measurements import profile as measure
    from inferometer.core.codec import document
    from inferometer.measure.bench.plan import Plan
    from inferometer.store.recording import recording

    most = Plan(seconds=min(1.0, seconds_at_most), seconds_at_most=seconds_at_most)
    with recording(store=access.store, kind="profile", parameters={"model": model}, subject={"model": model}) as run:
        measured = measure(access.model(model), plan=most, **asked)
        run.keep(measured)
    return McpAnswer(document={**document(measured), "run": run.id}, text=f"Run {run.id}: {_profile_text(measured)}")


@tool
def submit(
    access: Access,
    *,
    model: str,
    device: str,
    project: str = "default",
    runtime: str | None = None,
    precision: str | None = None,
    generate: int | None = None,
) -> McpAnswer:
    """Have a catalog model measured by one of the hub's devices: a job in its queue. `runs` has what comes of it."""
    assert access.submit is not None  # noqa: S101 - who may not is not offered the tool
    wish = {"runtime": runtime, "precision": precision, "generate": generate}
    job = access.submit({"model": access.model(model), "device": device, "project": project, **wish})
    return McpAnswer(document=job, text=f"Job {job['id']} is {job['state']}: {model} on {device}.")


def profile_question(arguments: Mapping[str, Any]) -> str:
    """What the user is asked before a measurement."""
    given = ", ".join(f"{name} {value}" for name, value in arguments.items() if name != "model")
    if "device" in arguments:
        return f"Have {arguments.get('model')} measured by the hub ({given})?"
    return f"Measure {arguments.get('model')} on this machine{f' ({given})' if given else ''} and store the run?"


def _rows_answer(rows: list[dict[str, Any]], what: str) -> McpAnswer:
    return McpAnswer(document={"rows": rows}, text=f"{counted(len(rows), what)}.")


def _profile_text(profile: Any) -> str:
    from inferometer.understand.view.phrases import headline_figures, interval_text, profile_title

    figures = ", ".join(f"{label} {value}" for label, value in headline_figures(profile.summary))
    phase = profile.steady
    known = phase is not None and phase.low_s is not None and phase.high_s is not None
    interval = f"; {phase.name} {interval_text(phase.low_s, phase.high_s)}" if known else ""
    fits = " It does not fit into memory." if profile.summary.fits is False else ""
    return f"{profile_title(profile)} in {profile.runtime}, {profile.kind}: {figures}{interval}.{fits}"
