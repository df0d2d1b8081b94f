"""Questions of the page of a new run, before anything is measured: a file's format, and the time on each device.

The job that it answers with is the one to submit, so that what was shown is what is measured.
"""

import base64
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter
from pydantic import Base64Bytes, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from inferometer.core.codec import document
from inferometer.core.errors import DomainError, FormatError
from inferometer.core.job import Job, JobFile, JobModel, may_carry
from inferometer.core.plugins import load_all
from inferometer.core.units import format_duration, parse_quantity
from inferometer.core.workload import Workload
from inferometer.formats.base import HEAD_BYTES, Peek, Reader
from inferometer.formats.detect import choose_reader
from inferometer.hub.fleet.desk import FleetDesk, sender_of
from inferometer.hub.places.requests import (
    Calibrating,
    Judging,
    Preparing,
    measurement_job,
    pack_calibration,
    preparation_job,
    require_known,
)
from inferometer.hub.web.answers import ERRORS, HubError, answer, json_response
from inferometer.hub.web.api.bodies import Body, Bytes, Hash, LongName, Name
from inferometer.hub.web.guard.people import founding, seen
from inferometer.hub.web.guard.security import own_address
from inferometer.hub.web.pages.fleet import device_choices
from inferometer.hub.web.pages.serving import STARTED, read_form
from inferometer.measure.run.model import MeasureRequest

LONGEST_S = 3600.0  # of a calibration that a page starts
_USUAL = "http://127.0.0.1:8077"  # where the command looks for a hub by itself
Size = Annotated[int, Field(ge=1, le=10**9)]


class SentFile(Body):
    path: Annotated[str, Field(min_length=1, max_length=1000)]
    sha256: Hash
    size_bytes: Bytes


class Wish(Body):
    """A model by files that were sent, or by its name in the catalog, and how to run it."""

    model: LongName
    entry: Annotated[str, Field(max_length=1000)] = ""
    files: list[SentFile] = Field(default=[], max_length=10_000)
    runtime: Name | None = None
    precision: Name | None = None
    sizes: dict[Name, Size] = Field(default={}, max_length=50)
    generate: Size | None = None
    quantise: Name | None = None  # prepare it in this format, for the engine of `device`
    device: Name | None = None
    project: Name = "default"


class ChosenFile(Body):
    """A file on somebody's machine. `head` are its first bytes; of a folder with many files the names say enough."""

    path: Annotated[str, Field(min_length=1, max_length=1000)]
    size_bytes: Bytes
    head: Base64Bytes = b""


class Source(Body):
    url: Annotated[str, Field(min_length=1, max_length=2000)]


def router(desk: FleetDesk) -> APIRouter:
    api = APIRouter(prefix="/fleet", responses=ERRORS, tags=["fleet"])

    @api.post("/models/chosen", responses={200: json_response()})
    def sort_out(
        request: Request, files: Annotated[list[ChosenFile], Field(min_length=1, max_length=10_000)]
    ) -> Response:
        """The format of the files chosen as a model, before they are sent, and which of them belong to it."""
        found = sorted_out(files)
        # Now, and not when it is sent: a browser reads a file of 20 GB for minutes before it knows its hash.
        desk.uploads.require_at_most(sum(files[file["at"]].size_bytes for file in found["files"]))
        return answer(request, found)

    @api.post("/models/fetched", responses={200: json_response()})
    def fetch_model(request: Request, source: Source) -> Response:
        """A model of one file from an address that the hub's owner allows, as if whoever asks had sent it."""
        found = desk.uploads.fetch(source.url, desk.rules.sources, sender_of(request))
        head = base64.b64encode(found.head)
        sorted_out([ChosenFile(path=found.name or "model", size_bytes=found.size_bytes, head=head)])
        file = {"path": found.name, "sha256": found.sha256, "size_bytes": found.size_bytes}
        return answer(request, {"model": found.name, "entry": found.name, "files": [file]})

    @api.post("/preview", responses={200: json_response()})
    def preview_job(request: Request, wish: Wish) -> Response:
        """A preview: the model, the job to submit, and the predicted time on each device."""
        founding(request, desk.fleet, wish.project)
        job = _job(wish)
        require_known(job)
        for sha256 in desk.missing(request, [file.sha256 for file in job.files]):
            raise DomainError(f"The file {sha256[:12]}… of the model is not here.", remedy="Send it first.")
        desk.touch(tuple(file.sha256 for file in job.files))
        known = wish.project in seen(request, desk.store).project_names()
        devices = desk.seen(request).devices(project=wish.project if known else None)
        if not known:  # a project that is made by its first job has been given no device yet
            devices = tuple(device for device in devices if device.everyone)
        outlook = desk.forecaster.outlook(job, devices, wish.device)
        if "error" in outlook:
            raise DomainError(f"This model cannot be read: {outlook['error']}", remedy=outlook.get("remedy"))
        rows, opens, hub = [], outlook["model"]["engines"], own_address(request, desk.rules)
        for row in device_choices(desk.seen(request), devices):
            able = [name for name in row["engines"] if opens is None or name in opens]
            command = _command(hub, wish, row["name"])
            rows.append({**row, "engines": able, "predicted": outlook["devices"][row["name"]], "command": command})
        precisions = {name: each.capabilities.precision for name, each in load_all("inferometer.runtimes")[0].items()}
        prepared = outlook["prepared"]
        told = {"model": outlook["model"], "devices": rows, "prepared": prepared, "precisions": precisions}
        if wish.quantise is None:
            return answer(request, {**told, "job": document(job), "python": _python(wish)})
        if prepared is None or wish.quantise not in [row["quantise"] for row in prepared["formats"]]:
            why = (prepared or {}).get("error") or "no device is chosen for it"
            raise DomainError(f"This model cannot be prepared as {wish.quantise}: {why}.")
        wish = wish.model_copy(update={"runtime": prepared["runtime"]})
        assert job.model is not None  # noqa: S101 - `_job` gave it one
        asked = Preparing(quantise=wish.quantise, sizes=wish.sizes)
        job = preparation_job(prepared["runtime"], job.workload, job.model, asked)
        command, python = _preparing(wish)
        rows = [{**row, "command": command} for row in rows]
        return answer(request, {**told, "devices": rows, "job": document(job), "python": python})

    @api.post("/start/{verb}", responses={200: json_response()})
    def start(
        request: Request,
        verb: Literal["calibrate", "load"],
        texts: Annotated[dict[Name, Annotated[str, Field(max_length=300)]], Field(max_length=20)],
    ) -> Response:
        """The answer to a form: the job to submit, or the link to a load test that has begun."""
        return answer(request, _begun(desk, request, verb, texts))

    @api.post("/here", status_code=202, responses={202: json_response()})
    def measure_here(request: Request) -> Response:
        """Let the hub's own machine take jobs, by an agent that ends with the hub; nobody else may reach such a hub."""
        if not desk.own_agent.offered:
            raise HubError(
                403, "Others reach this hub: its own machine takes no jobs by a click.",
                remedy="Start `inferometer hub agent` there.",
            )  # fmt: skip
        name = desk.own_agent.start(own_address(request, desk.rules))
        return answer(request, {"name": name}, status=202)

    return api


def _begun(desk: FleetDesk, request: Request, verb: str, texts: Mapping[str, str]) -> dict[str, Any]:
    given = read_form(STARTED[verb], texts)
    project = given.pop("project", "default")
    founding(request, desk.fleet, project)
    if verb == "load":
        url = given.pop("url", "")
        if not url.startswith(("http://", "https://")):
            raise DomainError(f"{url!r} is no address of a server.", remedy="Write http://HOST:PORT.")
        options = [f"--{name}={value}" for name, value in {**given, "project": project}.items()]
        return {"link": desk.own_agent.load(url, options, desk.store)}
    budget_s = parse_quantity(given.pop("budget", "120s"), "s")
    if not 0 < budget_s <= LONGEST_S:
        raise DomainError(f"A calibration takes {format_duration(LONGEST_S)} at most.", remedy="Ask for less.")
    device, runtime = desk.seen(request).device(given.pop("on", ""), facts=False).name, given.pop("runtime", None)
    job = pack_calibration(runtime, Calibrating(budget_s=budget_s, **given)).job
    require_known(job)
    return {"job": document(job), "device": device, "project": project}


def sorted_out(files: Sequence[ChosenFile]) -> dict[str, Any]:
    """The entry of a model and its files, by what is in them. `at` is the place of each in what was chosen."""
    paths = [PurePosixPath(file.path.replace("\\", "/")) for file in files]
    top = {path.parts[0] for path in paths} if all(len(path.parts) > 1 for path in paths) else set()
    folder = next(iter(top)) if len(top) == 1 else "model"
    inside = [PurePosixPath(*path.parts[1:]) if len(top) == 1 else path for path in paths]
    shown = {str(path): at for at, path in enumerate(inside) if not any(part.startswith(".") for part in path.parts)}
    entry = folder if len(files) > 1 else None
    reader = None if entry is None else _reader(Peek(path=Path(folder), is_folder=True, names=tuple(sorted(shown))))
    if reader is None:  # one file, with whatever lies beside it
        entry, reader = _best(files, shown)
        kept = [path for path in shown if path == entry or may_carry(entry, path, shown)]
    else:
        shown = {f"{folder}/{path}": at for path, at in shown.items()}
        kept = [path for path in shown if may_carry(folder, path, shown)]
    return {
        "name": PurePosixPath(str(entry)).name, "entry": entry, "format": reader.name,
        "files": [{"path": path, "at": shown[path]} for path in kept],
    }  # fmt: skip


def _best(files: Sequence[ChosenFile], shown: Mapping[str, int]) -> tuple[str, Reader]:
    """The file that a reader is surest of. Where none is, the error is about the largest one."""
    peeks = {
        path: Peek(path=Path(path), size=files[at].size_bytes, head=files[at].head[:HEAD_BYTES])
        for path, at in shown.items()
    }
    found = {path: reader for path, peek in peeks.items() if peek.head and (reader := _reader(peek)) is not None}
    if not found:
        largest = max(peeks.values(), key=lambda peek: peek.size, default=Peek(path=Path(files[0].path)))
        return "", choose_reader(largest)
    entry = max(sorted(found), key=lambda path: found[path].match(peeks[path]))
    return entry, found[entry]


def _reader(peek: Peek) -> Reader | None:
    try:
        return choose_reader(peek)
    except FormatError:
        return None


def _job(wish: Wish) -> Job:
    files = tuple(JobFile(path=each.path, sha256=each.sha256, size_bytes=each.size_bytes) for each in wish.files)
    model = JobModel(name=wish.model, entry=wish.entry, files=files)
    request = MeasureRequest(
        model=wish.model, runtime=wish.runtime, workload=Workload(generate=wish.generate), precision=wish.precision,
        sizes=wish.sizes,
    )  # fmt: skip
    return measurement_job("profile", request, model, Judging())


def submitted_wish(desk: FleetDesk, request: Request, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The job that an agent's client asked for, in the queue."""
    from inferometer.hub.web.api.fleet import Submission, job_document, submitted  # noqa: PLC0415 - it imports us

    device = asked["device"]
    try:
        wish = Wish(**{name: value for name, value in asked.items() if name != "device"})
        submission = Submission(job=document(_job(wish)), device=device, project=wish.project)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise DomainError(f"{'.'.join(map(str, wrong['loc']))}: {wrong['msg']}.") from None
    row, _ = submitted(desk, submission, request)
    return job_document(row)


def _command(hub: str, wish: Wish, device: str) -> str:
    place = f"hub:{device}" if hub == _USUAL else f"hub:{device}?url={quote(hub, safe='/:')}"
    words = ["inferometer", "profile", wish.entry or wish.model, "--on", place]
    named = {"--runtime": wish.runtime, "--activations": wish.precision, "--generate": wish.generate}
    for option, value in named.items():
        words += [] if value is None else [option, str(value)]
    for name, size in wish.sizes.items():
        words += ["--size", f"{name}={size}"]
    words += [] if wish.project == "default" else ["--project", wish.project]
    return shlex.join(words)


def _python(wish: Wish) -> str:
    """For the machine itself: from Python a model is measured where Python runs."""
    named = {"runtime": wish.runtime, "precision": wish.precision, "generate": wish.generate, "sizes": wish.sizes}
    given = "".join(f", {name}={value!r}" for name, value in named.items() if value)
    return f"import inferometer as im\n\nim.profile({(wish.entry or wish.model)!r}{given})"


def _preparing(wish: Wish) -> tuple[str, str]:
    """The command and the Python that prepare the same here, where they run."""
    model = wish.entry or wish.model
    stem, dot, ending = model.rpartition(".") if wish.files else (model, ".", "onnx")
    out = f"{stem or ending}-{wish.quantise}{dot if stem else ''}{ending if stem else ''}"
    words = ["inferometer", "prepare", model, "--for", str(wish.runtime), "--quantise", str(wish.quantise), "-o", out]
    for name, size in wish.sizes.items():
        words += ["--size", f"{name}={size}"]
    sizes = f", sizes={wish.sizes!r}" if wish.sizes else ""
    python = f"im.prepare({model!r}, runtime={wish.runtime!r}, quantise={wish.quantise!r}, out={out!r}{sizes})"
    return shlex.join(words), f"import inferometer as im\n\n{python}"
