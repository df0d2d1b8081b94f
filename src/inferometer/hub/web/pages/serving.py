"""The pages of questions in a form: its address is the question, so that an answer can be shared.

Plans, simulations and what fits are answered on the page; a load test and a calibration are started by it
(`web/api/new_runs.py`).

Catalog names only: a path, also as the file of a length, would let a visitor read this machine.
"""

import re
import shlex
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from inferometer.core.errors import DomainError, InferometerError
from inferometer.core.frozen import frozen
from inferometer.hub.fleet.desk import FleetDesk
from inferometer.hub.web.answers import HubError
from inferometer.hub.web.guard.catalog_names import catalog_device, catalog_model
from inferometer.hub.web.guard.people import visitor_of
from inferometer.hub.web.guard.security import own_address
from inferometer.hub.web.pages.routes import html_page, page_routes
from inferometer.hub.web.pages.run import page_values, shown_table
from inferometer.understand.view.page import page_of

_MOST_REQUESTS = 5000  # of a simulation that somebody waits for
_AT_ONCE = 2  # answers that are worked out at the same time: each takes a core for seconds
_REMEMBERED = 32  # answers, so that whoever opens a link that was shared does not wait again
_LONGEST = 300  # letters of a field
_LARGEST = 1_000_000  # of every number: what nobody serves would keep the hub busy for long


@frozen
class ServingField:
    """A field of a form. `kind` is text, number, whole, or the list of a choice; `many`: names with commas between."""

    name: str
    label: str
    default: str = ""
    hint: str = ""
    kind: str = "text"
    listed: str = ""  # the catalog's names that it offers
    many: bool = False
    choices: tuple[str, ...] = ()
    option: str = ""  # of the command, where it is not called as the field

    def read(self, text: str) -> Any:
        """The value of a text; wrong ones are told with the field's own name."""
        numbers = self.kind in {"number", "whole"} or self.name in {"prompt", "generate"}
        if numbers and any(float(digits) > _LARGEST for digits in re.findall(r"\d+(?:\.\d+)?(?:[eE]\+?\d+)?", text)):
            raise DomainError(
                f"{self.label} goes up to {_LARGEST:,} here.",
                remedy="The command beside it takes any number.",
            )
        try:
            if self.kind in {"number", "whole"}:
                return (float if self.kind == "number" else int)(text)
        except ValueError:
            raise DomainError(f"{self.label} is a number, and {text!r} is none.", remedy="Write digits only.") from None
        if self.choices and text not in self.choices:
            raise DomainError(f"{self.label} is one of {', '.join(self.choices)}, not {text!r}.")
        if self.name in {"prompt", "generate"} and text.startswith("file:"):
            raise DomainError(
                "A length from a file is read on your own machine.", remedy="Use the command that the page shows."
            )
        return [part.strip() for part in text.split(",") if part.strip()] if self.many else text


_SLO = "such as ttft_p95<=1s,tpot_p95<=50ms"
_LENGTH = "a number, uniform:64-512 or lognormal:512,400"
_TRAFFIC = (
    ServingField(name="prompt", label="Tokens of a prompt", default="1024", hint=_LENGTH),
    ServingField(name="generate", label="Tokens of an answer", default="256", hint=_LENGTH),
    ServingField(name="slo", label="Objectives", hint=_SLO),
)
_MODEL = ServingField(name="model", label="Model", default="llama-3.1-8b", listed="models")
PLAN_FIELDS = (
    _MODEL,
    ServingField(name="rate", label="Requests a second", default="10", kind="number"),
    *_TRAFFIC[:2],
    ServingField(name="slo", label="Objectives", default="ttft_p95<=1s,tpot_p95<=50ms", hint=_SLO),
    ServingField(name="goal", label="Goal", default="cheapest", choices=("cheapest", "greenest", "smallest")),
    ServingField(
        name="devices", label="Devices", hint="with commas between; empty: every one with a price", listed="devices",
        many=True, option="on",
    ),
    ServingField(name="weights", label="Weights", hint="formats to try; empty: the model's and smaller", many=True),
)  # fmt: skip
SIMULATE_FIELDS = (
    _MODEL,
    ServingField(name="on", label="Device", default="nvidia-h100-sxm", listed="devices"),
    ServingField(name="rate", label="Requests a second", default="10", kind="number", hint="or requests at once:"),
    ServingField(name="concurrency", label="Requests at once", kind="whole"),
    ServingField(name="requests", label="Requests in all", default="500", kind="whole"),
    *_TRAFFIC,
    ServingField(name="runtime", label="Engine", hint="vllm, sglang, trtllm or llamacpp"),
    ServingField(name="weights", label="Weights", hint="empty: the model's"),
    ServingField(name="tp", label="Devices that share a layer", default="1", kind="whole"),
    ServingField(name="replicas", label="Replicas", default="1", kind="whole"),
)
RUN_FIELDS = (
    _MODEL,
    ServingField(
        name="on", label="Device", default="nvidia-rtx-4090", hint="several with commas between share the layers",
        listed="devices", many=True,
    ),
    ServingField(name="host", label="CPU beside a GPU", hint="for what does not fit", listed="devices"),
    ServingField(name="context", label="Tokens to have room for", default="4096", kind="whole"),
    ServingField(name="runtime", label="Engine", hint="empty: llama.cpp, where the device has it"),
)  # fmt: skip
FIT_FIELDS = (
    _MODEL,
    ServingField(name="on", label="Device", default="nvidia-l4", listed="devices"),
    ServingField(name="batch", label="Requests at once", kind="whole"),
    ServingField(name="context", label="Tokens of one of them", kind="whole", hint="empty: 512 and 128"),
    ServingField(name="runtime", label="Engine", hint="empty: the device's usual one"),
    ServingField(name="weights", label="Weights", hint="empty: the model's"),
    ServingField(name="kv", label="Cache", hint="its number format"),
    ServingField(name="tp", label="Devices that share a layer", default="1", kind="whole"),
)
LOAD_FIELDS = (
    ServingField(name="url", label="Server", default="http://localhost:8000", hint="one that speaks OpenAI's API"),
    ServingField(name="model", label="Model", hint="empty: the only one that it serves"),
    ServingField(name="concurrency", label="Requests at once", default="8", kind="whole"),
    ServingField(name="rate", label="Requests a second", kind="number", hint="in place of requests at once"),
    ServingField(name="requests", label="Requests in all", kind="whole", hint="empty: ten for each at once"),
    ServingField(name="prompt", label="Tokens of a prompt", default="128", hint=_LENGTH),
    ServingField(name="generate", label="Tokens of an answer", default="64", hint=_LENGTH),
    ServingField(name="slo", label="Objective", hint="such as ttft_p95<=1s"),
    ServingField(name="project", label="Project", default="default"),
)
CALIBRATE_FIELDS = (
    ServingField(name="on", label="Device", listed="fleet", hint="one that takes jobs of the project"),
    ServingField(name="runtime", label="Engine", hint="empty: the device's own choice"),
    ServingField(name="dtype", label="Number format", hint="empty: the engine's usual one"),
    ServingField(name="unit", label="Unit", hint="cpu, gpu, gpu:1; empty: the best"),
    ServingField(name="budget", label="How long to measure", default="120s", hint="an hour at most"),
    ServingField(name="project", label="Project", default="default"),
)
STARTED = {"load": LOAD_FIELDS, "calibrate": CALIBRATE_FIELDS}


def read_form(fields: tuple[ServingField, ...], texts: Mapping[str, str]) -> dict[str, Any]:
    """The values of the fields that are filled in."""
    return {field.name: field.read(texts[field.name].strip()) for field in fields if texts.get(field.name, "").strip()}


def serving_routes(desk: FleetDesk) -> list[Route]:
    pages = ServingPages(desk)
    table = {
        "/plan": pages.plan, "/simulate": pages.simulate, "/can-i-run": pages.can_i_run, "/fit": pages.fit,
        "/load": pages.load, "/calibrate": pages.calibrate,
    }  # fmt: skip
    return page_routes(table)


class ServingPages:
    """An address without a question shows the form as it is filled at first, and answers nothing."""

    def __init__(self, desk: FleetDesk) -> None:
        self._desk = desk
        self._working = threading.Semaphore(_AT_ONCE)
        self._answers: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def plan(self, request: Request) -> Response:
        return self._page(request, "plan", PLAN_FIELDS, planned)

    def simulate(self, request: Request) -> Response:
        return self._page(request, "simulate", SIMULATE_FIELDS, simulated)

    def can_i_run(self, request: Request) -> Response:
        return self._page(request, "can-i-run", RUN_FIELDS, runnable)

    def fit(self, request: Request) -> Response:
        return self._page(request, "fit", FIT_FIELDS, fitted)

    def load(self, request: Request) -> Response:
        texts = asked_texts(request.query_params, LOAD_FIELDS)
        why_not = None if self._desk.own_agent.offered else (
            "Others reach this hub: it sends no requests of theirs to other servers. Start the command below yourself; "
            "its run comes here with INFEROMETER_HUB."
        )  # fmt: skip
        typed = {**texts, "project": "" if texts["project"] == "default" else texts["project"]}
        return self._started(request, "load", texts, typed, why_not)

    def calibrate(self, request: Request) -> Response:
        devices = [device.name for device in self._desk.seen(request).devices(facts=False) if device.state == "ready"]
        texts = asked_texts(request.query_params, CALIBRATE_FIELDS)
        texts["on"] = texts["on"] or next(iter(devices), "")
        why_not = None if devices else (
            f"No device takes jobs yet. Start one: inferometer hub agent --hub {own_address(request, self._desk.rules)}"
        )  # fmt: skip
        place = f"hub:{texts['on'] or 'NAME'}" + (
            "" if texts["project"] == "default" else f"?project={texts['project']}"
        )
        typed = {**texts, "on": place, "project": ""}
        return self._started(request, "calibrate", texts, typed, why_not, {"fleet": devices})

    def _started(  # noqa: PLR0913, PLR0917 - what is asked, how it is typed, and why it may not be
        self,
        request: Request,
        verb: str,
        texts: dict[str, str],
        typed: Mapping[str, str],
        why_not: str | None,
        listed: Mapping[str, list[str]] | None = None,
    ) -> Response:
        """A form whose button starts something. Whoever may not is told why, and has the command."""
        fields, visitor = STARTED[verb], visitor_of(request)
        if visitor is not None and not visitor.allows("write"):
            why_not = "You are signed in to read. Starting this needs a token with the scope write: see /settings."
        return html_page(
            "serving.html", verb, verb=verb, fields=fields, texts=texts, listed=listed or {}, why_not=why_not,
            starts=True, command=command_of(verb, typed, fields), answer=None, problem=None,
            python=python_of(verb, {**texts, "project": ""}, fields) if verb == "load" else None,
        )  # fmt: skip

    def _page(self, request: Request, verb: str, fields: tuple[ServingField, ...], work: Any) -> Response:
        asked = bool(request.query_params)
        texts = asked_texts(request.query_params, fields)
        values: dict[str, Any] = {"answer": None, "problem": None, "starts": False}
        if asked:
            try:
                values["answer"] = self._answer(verb, texts, fields, work)
            except InferometerError as error:
                values["problem"] = error
        from inferometer.hub.web.pages.catalog import device_rows, model_rows  # noqa: PLC0415 - the whole catalog

        listed = {"models": [row["name"] for row in model_rows()], "devices": [row["name"] for row in device_rows()]}
        return html_page(
            "serving.html", verb, verb=verb, fields=fields, texts=texts, listed=listed,
            command=command_of(verb, texts, fields), python=python_of(verb, texts, fields), **values,
        )  # fmt: skip

    def _answer(self, verb: str, texts: Mapping[str, str], fields: tuple[ServingField, ...], work: Any) -> Any:
        key = command_of(verb, texts, fields)
        if key in self._answers:
            return self._answers[key]
        given = read_form(fields, texts)
        if not self._working.acquire(blocking=False):
            raise HubError(503, "The hub is working out other answers.", remedy="Ask again in a minute.")
        try:
            answer = self._answers[key] = work(given)
        finally:
            self._working.release()
        while len(self._answers) > _REMEMBERED:
            self._answers.popitem(last=False)
        return answer


def asked_texts(query: QueryParams, fields: tuple[ServingField, ...]) -> dict[str, str]:
    """The value of each field: the address's, or a default at the first look. Only one way of loading is filled."""
    if not query:
        return {field.name: field.default for field in fields}
    texts = {field.name: query.get(field.name, "").strip()[:_LONGEST] for field in fields}
    first = fields[0]
    texts[first.name] = texts[first.name] or first.default
    return texts


def planned(given: dict[str, Any]) -> dict[str, Any]:
    from inferometer.api.services import plan  # noqa: PLC0415 - the search, with the first plan
    from inferometer.understand.view.serving import plan_card, plan_table  # noqa: PLC0415 - as above

    model = catalog_model(given.pop("model"))
    devices = [catalog_device(name).name for name in given.pop("devices", ())]
    if "rate" not in given or "slo" not in given:
        raise DomainError("A plan needs to know what comes and what is in time.", remedy="Fill in rate and objectives.")
    answer = plan(model, devices=devices, **given)
    document = answer.document()
    if not answer.plans:
        return {"text": f"There is no plan. {answer.why_not}", "card": None, "table": None}
    return {"text": None, "card": plan_card(document, title=f"{model} at {given['rate']:g} requests a second"),
            "table": shown_table(plan_table(document))}  # fmt: skip


def simulated(given: dict[str, Any]) -> dict[str, Any]:
    from inferometer.api.services import simulate  # noqa: PLC0415 - the simulator, with the first simulation

    model, device = catalog_model(given.pop("model")), catalog_device(given.pop("on", ""))
    if given.get("requests", 0) > _MOST_REQUESTS:
        raise DomainError(
            f"A page simulates up to {_MOST_REQUESTS:,} requests.", remedy="The command beside it takes any number."
        )
    if ("rate" in given) == ("concurrency" in given):
        raise DomainError(
            "Requests come at a rate, or a number of them at once.", remedy="Fill in one of the two fields."
        )
    profile = simulate(model, on=device, **given)
    values = page_values(page_of(profile))
    return {**values, "specs": {chart.name: chart.spec() for chart in values["charts"]}}


def runnable(given: dict[str, Any]) -> dict[str, Any]:
    from inferometer.predict.placing import can_i_run  # noqa: PLC0415 - as above
    from inferometer.understand.view.serving import runnable_card, runnable_table  # noqa: PLC0415 - as above

    model, devices = catalog_model(given.pop("model")), [catalog_device(name) for name in given.pop("on", [""])]
    host = catalog_device(given.pop("host")) if "host" in given else None
    answer = can_i_run(model, on=devices, host=host, **given)
    return {"card": runnable_card(answer), "table": shown_table(runnable_table(answer))}


def fitted(given: dict[str, Any]) -> dict[str, Any]:
    from inferometer.api import ask  # noqa: PLC0415 - as above
    from inferometer.predict.fitting import memory_fit  # noqa: PLC0415 - as above
    from inferometer.understand.view.serving import fit_card  # noqa: PLC0415 - as above

    model, device = catalog_model(given.pop("model")), catalog_device(given.pop("on", ""))
    question = ask(model, on=device, **given)
    found, title = memory_fit(question), f"{model} on {device.title}"
    card = fit_card(found.document(), title=title, subtitle=question.runtime_name, notes=found.notes)
    return {"card": card, "table": None}


_SUBJECTS = ("model", "url")  # what a command is about stands first, and has no option


def command_of(verb: str, texts: Mapping[str, str], fields: tuple[ServingField, ...]) -> str:
    subject = fields[0] if fields[0].name in _SUBJECTS else None
    command = ["predict", "--fit"] if verb == "fit" else [verb]
    parts = ["inferometer", *command, *([texts[subject.name]] if subject else [])]
    for field in fields:
        if field is not subject and texts[field.name]:
            parts += [f"--{(field.option or field.name).replace('_', '-')}", texts[field.name]]
    return shlex.join(parts)


def python_of(verb: str, texts: Mapping[str, str], fields: tuple[ServingField, ...]) -> str:
    """The same in Python; a field that cannot be read stands as the text that it is."""
    arguments = [repr(texts[fields[0].name])]
    for field in fields[1:]:
        if not texts[field.name]:
            continue
        try:
            value = field.read(texts[field.name])
        except DomainError:
            value = texts[field.name]
        arguments.append(f"{field.name}={value!r}")
    return f"import inferometer\n\nanswer = inferometer.{verb.replace('-', '_')}({', '.join(arguments)})"
