"""The pages of the fleet: its devices, one device, the queue, one job."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from inferometer.core.units import format_capacity
from inferometer.hub.agent.facts import device_name
from inferometer.hub.fleet.desk import FleetDesk
from inferometer.hub.fleet.starting import queue_place, starts_in
from inferometer.hub.web.guard.people import may, may_cancel, may_control, seen, visitor_of
from inferometer.hub.web.pages.routes import html_page, page_routes
from inferometer.known.files import is_built_in
from inferometer.known.zoo import models
from inferometer.store.queue.fleet import Fleet, grade
from inferometer.store.queue.values import HELD, FleetDevice, JobRow, LeaseCheck, fails_often
from inferometer.store.queue.wanted import fits

_DAY_S = 86_400.0
_SKEW_S = 2.0  # a message may be so long under way
_WAITING = 1000  # jobs that are looked at
_BESIDE = 20  # jobs that one page follows at most
_ENDED = ("done", "failed", "cancelled", "inconclusive")


def fleet_routes(desk: FleetDesk) -> list[Route]:
    pages = FleetPages(desk)
    table = {
        "/new": pages.new_run,
        "/fleet": pages.devices,
        "/fleet/queue": pages.queue,
        "/fleet/devices/{name}": pages.device,
        "/fleet/jobs/{job}": pages.job,
    }
    return page_routes(table)


class FleetPages:
    def __init__(self, desk: FleetDesk) -> None:
        self._desk = desk

    def new_run(self, request: Request) -> Response:
        fleet, visitor, desk = self._desk.seen(request), visitor_of(request), self._desk
        known = [name for name in seen(request, desk.store).project_names() if may(request, "writer", name)]
        only = None if visitor is None else visitor.project
        devices = device_choices(fleet, fleet.devices(facts=False))
        own = device_name(None) if desk.own_agent.offered else None
        there = any(row["name"] == own and row["standing"] != "away" for row in devices)
        return html_page(
            "new_run.html",
            "new",
            writes=visitor is None or visitor.allows("write"),
            projects=[only] if only else known,
            project=only or ("default" if visitor is None or "default" in known else next(iter(known), visitor.user)),
            models=[(row.name, row.title) for row in models().values() if is_built_in("models", row.name)],
            model=request.query_params.get("model", "")[:200],
            sources=desk.rules.sources,
            data={"devices": devices, "own": None if there else own},
        )

    def devices(self, request: Request) -> Response:
        fleet = self._desk.seen(request)
        now, grades, busy, faults = fleet.now(), fleet.grades(), fleet.busy(_DAY_S), fleet.recent_faults()
        rows = [
            {
                "device": device,
                "standing": standing(device, now),
                "trust": grades.get(device.name) or grade(()),
                "busy": min(busy.get(device.name, 0.0) / _DAY_S, 1.0),
                "fails_often": fails_often(device.failures, faults.get(device.name, 0)),
            }
            for device in fleet.devices(facts=False)
        ]
        return html_page("fleet.html", "fleet", tab="devices", rows=rows, counts=fleet.counts())

    def device(self, request: Request) -> Response:
        fleet = self._desk.seen(request)
        device = fleet.device(request.path_params["name"])
        checks, recent = fleet.checks(device.name), fleet.recent_faults().get(device.name, 0)
        served = fleet.projects_of(device.name)
        return html_page(
            "fleet_device.html",
            "fleet",
            device=device,
            served=[name for name in served if may(request, "reader", name)],
            controls=may_control(request, device, served),
            standing=standing(device, fleet.now()),
            facts=_facts(device),
            calibrations=device.facts.get("calibrations") or (),
            trust=fleet.trust(device.name),
            fails_often=fails_often(device.failures, recent),
            faults=fleet.faults(device.name),
            drawing=_drawing(checks),
            checks=list(reversed(checks))[:10],
            busy=min(fleet.busy(_DAY_S).get(device.name, 0.0) / _DAY_S, 1.0),
            jobs=fleet.jobs(device=device.name, limit=20),
            waiting=[
                row
                for row in fleet.jobs(states=("queued",), limit=_WAITING)
                if fits(row.wanted, device.name, device.labels)
            ],
        )

    def queue(self, request: Request) -> Response:
        fleet = self._desk.seen(request)
        project = request.query_params.get("project") or None
        waiting = fleet.jobs(states=("queued",), project=project)
        return html_page(
            "fleet_queue.html",
            "fleet",
            tab="queue",
            project=project,
            counts=fleet.counts(),
            running=fleet.jobs(states=HELD, project=project),
            now=fleet.now(),
            away={device.name for device in fleet.devices(facts=False) if device.away(fleet.now())},
            waiting=waiting,
            starts=starts_in(self._desk.fleet) if waiting else {},
            ended=fleet.jobs(states=_ENDED, project=project, limit=30),
        )

    def job(self, request: Request) -> Response:
        fleet = self._desk.seen(request)
        row = fleet.job(request.path_params["job"])
        document = fleet.document(row.id)
        others = [fleet.job(other) for other in request.query_params.getlist("with")[:_BESIDE]]
        devices = fleet.devices(facts=False, project=row.project)
        return html_page(
            "fleet_job.html",
            "fleet",
            row=row,
            document=document,
            others=others,
            place=queue_place(self._desk.fleet, row) if row.state == "queued" else None,
            still_s=row.still_s(fleet.now()),
            away=row.state in HELD and row.device in {device.name for device in devices if device.away(fleet.now())},
            asks=_asks(row),
            cancels=may_cancel(request, row),
            repeats=may(request, "writer", row.project),
            devices=[device.name for device in devices if device.state == "ready"],
        )


def device_choices(fleet: Fleet, devices: Sequence[FleetDevice]) -> list[dict[str, Any]]:
    """Facts for choosing a device, before anything is predicted for it."""
    waiting, grades, now = fleet.jobs(states=("queued",), limit=_WAITING), fleet.grades(), fleet.now()
    rows = []
    for device in devices:
        ahead = sum(fits(row.wanted, device.name, device.labels) for row in waiting) + (device.job is not None)
        trust = grades.get(device.name) or grade(())
        word, tone = standing(device, now)
        rows.append({
            "name": device.name, "standing": word, "tone": tone, "ready": device.state == "ready",
            "trust": trust.grade, "why": trust.why, "ahead": ahead, "reason": device.reason,
            "units": device.labels.get("unit", ()), "engines": device.labels.get("runtime", ()),
        })  # fmt: skip
    return rows


def standing(device: FleetDevice, now: float) -> tuple[str, str]:
    """A device's state in a word, and its tone."""
    if device.state != "ready":
        return device.state, "bad" if device.state == "quarantined" else "quiet"
    if device.away(now):
        return "away", "bad"
    return ("measuring", "busy") if device.job else ("ready", "good")


def _asks(row: JobRow) -> str:
    labels = [f"{key}={value}" for key, value in row.wanted.labels.items()]
    return ", ".join(filter(None, (row.wanted.device, *labels))) or "any device"


def _facts(device: FleetDevice) -> list[tuple[str, str]]:
    """What an agent said of its machine, as far as it did: text from elsewhere, in whatever shape it has."""
    machine = device.facts.get("machine")
    known: Mapping[str, Any] = machine if isinstance(machine, dict) else {}
    shown = [_fact(name, value) for name, value in known.items() if value not in (None, [], "")]
    runtimes = device.facts.get("runtimes")
    engines = (
        ", ".join(f"{name} {version or ''}".strip() for name, version in runtimes.items())
        if isinstance(runtimes, dict)
        else ""
    )
    labels = ", ".join(f"{key}={value}" for key, values in device.labels.items() for value in values)
    agent = ", ".join(filter(None, (device.version, device.user and f"of {device.user}")))
    box = str(device.facts.get("box") or "")
    rows = [*shown, ("engines", engines), ("labels", labels), ("agent", agent), ("box for jobs", box)]
    if abs(device.skew_s) > _SKEW_S:
        rows.append(("clock", f"{abs(device.skew_s):,.0f} s {'ahead of' if device.skew_s > 0 else 'behind'} the hub's"))
    return [(name, text) for name, text in rows if text]


def _fact(name: str, value: Any) -> tuple[str, str]:
    if name.endswith("_bytes") and isinstance(value, int | float):
        return name.removesuffix("_bytes").replace("_", " "), format_capacity(value)
    if isinstance(value, bool):
        return name.replace("_", " "), "yes" if value else "no"
    return name.replace("_", " "), ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _drawing(checks: tuple[LeaseCheck, ...]) -> dict[str, Any] | None:
    """Points of a small chart: each lease's reference relative to the median, in a box of 100 × 40."""
    if len(checks) < 2:
        return None
    usual = median(check.before_s for check in checks)
    apart = [(check.before_s / usual - 1, check.after_s / usual - 1) for check in checks]
    most = max(0.01, *(abs(value) for pair in apart for value in pair))
    step = 100 / (len(checks) - 1)

    def place(value: float) -> float:
        return round(20 - 18 * value / most, 2)

    points = [
        {"x": round(step * number, 2), "before": place(before), "after": place(after), "moved": check.moved}
        for number, ((before, after), check) in enumerate(zip(apart, checks, strict=True))
    ]
    return {"points": points, "most": most}
