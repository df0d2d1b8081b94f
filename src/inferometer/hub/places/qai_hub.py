"""The provider `qai-hub`: a phone, laptop or board of Qualcomm AI Hub. `qai-hub:Samsung Galaxy S24?os=14`.

It goes through Qualcomm's own client (the package qai-hub), which keeps the token in ~/.qai_hub; `?profile=NAME` names
another of its files. A model that the engine asked for does not open as it is (ONNX for LiteRT or QNN) is compiled
there first. Its client has no way to stop a job: one that is cancelled here is left alone there, and ends by itself.
Written against qai-hub 0.56 and a server of ours that speaks its protocol; the service itself was not reached.
"""

import json
import logging
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from inferometer.core import notices
from inferometer.core.errors import DomainError, PlaceError, UnknownNameError
from inferometer.core.job import Job, JobModel, JobResult, JobState
from inferometer.core.units import format_quantity
from inferometer.hub.places.base import LocalFiles, PlaceAddress
from inferometer.hub.places.benchmarks import imported, require_measurement, require_taken
from inferometer.hub.places.device_side import link_or_copy
from inferometer.hub.places.requests import request_of
from inferometer.hub.places.services import Look, ServicePlace, ServiceProvider, Ticket

_TITLE = "Qualcomm AI Hub"
_TAKEN = frozenset({"unit", "guarded", "energy", "shape", "strict", "limits", "predict", "seed", "cases"})
# The engine that a file of each kind runs in as it is, and what to ask the compiler for where it is another.
_RUNS_IN: Mapping[str, str] = {".tflite": "litert", ".onnx": "onnxruntime", ".dlc": "qnn"}
_COMPILED: Mapping[str, str] = {"litert": "tflite", "onnxruntime": "onnx", "qnn": "qnn_dlc"}
_SOURCES = (".onnx", ".pt2")  # what its compiler takes
_UNITS = ("cpu", "gpu", "npu")
_STATES: Mapping[str, JobState] = {
    "CREATED": "queued",
    "OPTIMIZING_MODEL": "preparing", "QUANTIZING_MODEL": "preparing", "LINKING_MODELS": "preparing",
    "PROVISIONING_DEVICE": "preparing",
    "MEASURING_PERFORMANCE": "running", "RUNNING_INFERENCE": "running",
    "SUCCESS": "done", "FAILED": "failed",
}  # fmt: skip


class QaiHubPlace(ServicePlace):
    def __init__(self, address: PlaceAddress, **seams: Any) -> None:
        address.require_options("os", "profile", "project")
        if not address.rest:
            raise DomainError(
                f"The address {address.text!r} names no device.",
                remedy="Write qai-hub:NAME, as `qai-hub list-devices` calls it.",
            )
        super().__init__(address, **seams)
        self._held: Any = None

    @property
    def title(self) -> str:
        return f"{self._address.rest} at {_TITLE}"

    @property
    def _client(self) -> Any:
        """The service's own client. Importing it takes a second, and opening it reads its token."""
        if self._held is None:
            import qai_hub  # noqa: PLC0415 - only where it is used

            with _translated():
                self._held = qai_hub.Client(profile=self._address.options.get("profile"))
                self._held.set_verbose(False)
        return self._held

    def _send(self, job: Job, files: LocalFiles) -> dict[str, str]:
        import qai_hub  # noqa: PLC0415 - only where it is used

        require_measurement(job, _TITLE, "it measures a model, and nothing else of ours runs there")
        require_taken(job, _TAKEN, _TITLE, "--unit, --runtime and --runs are what it takes")
        # What was asked for, as flags of a profile job.
        request = request_of(job, Path())
        if request.unit not in {None, *_UNITS}:
            raise UnknownNameError(
                "unit", str(request.unit), _UNITS, listing=f"A device there has {', '.join(_UNITS)}."
            )
        units = [f"--compute_unit {request.unit}"] if request.unit else []
        runs = [f"--max_profiler_iterations {request.plan.runs}"] if request.plan and request.plan.runs else []
        model, options = _opened_there(job), " ".join([*units, *runs])
        suffix = Path(model.entry).suffix
        runtime = job.runtime or _RUNS_IN.get(suffix, "onnxruntime")
        target = None if _RUNS_IN.get(suffix) == runtime else _compiled_for(runtime, suffix)
        device, project = self._device(qai_hub), self._address.options.get("project")
        ids = {"runtime": runtime}
        notices.tell(f"Sending {model.name} ({format_quantity(model.size_bytes, 'B')}) to {_TITLE} …")
        with tempfile.TemporaryDirectory(prefix="inferometer-") as folder, _translated():
            sent = self._client.upload_model(str(_laid_out(model, files, Path(folder))), name=model.name)
            if target is not None:
                asked = f"--target_runtime {target}"
                compiling = self._client.submit_compile_job(sent, device, name=job.id, options=asked, project=project)
                sent = compiling.get_target_model()  # it has an id before it is made
                ids["compile"] = compiling.job_id
            measuring = self._client.submit_inference_job(
                sent, device, name=job.id, options=options, profile=True, project=project
            )
        notices.tell(f"Job {measuring.job_id}: {measuring.url}")
        return {**ids, "profile": measuring.job_id}

    def _device(self, qai_hub: Any) -> Any:
        """The device of this name; where there is none, the names that are near it."""
        name, os = self._address.rest, self._address.options.get("os", "")
        with _translated():
            devices = self._client.get_devices()
        known = list(dict.fromkeys(device.name for device in devices))
        exact = next((other for other in known if other.casefold() == name.casefold()), None)
        if exact is None:
            listing = f"{_TITLE} has {len(known)} devices: `qai-hub list-devices`."
            raise UnknownNameError(f"device of {_TITLE}", name, known, listing=listing)
        return qai_hub.Device(exact, os)

    def _look(self, ticket: Ticket) -> Look:
        if "compile" in ticket.ids:
            compiling = self._status(ticket.ids["compile"])
            if compiling.code == "FAILED":
                return Look(state="failed", text=_plain(compiling.message or "It could not be compiled."))
            if not compiling.success:
                return Look(state="queued" if compiling.pending else "preparing")
        status = self._status(ticket.ids["profile"])
        state = _STATES.get(status.code, "preparing")  # a state of a later client is on its way to one of these
        return Look(state=state, text=_plain(status.message or "") or None if state == "failed" else None)

    def _status(self, job: str) -> Any:
        with _translated():
            return self._client.get_job(job).get_status()

    def _stop(self, ticket: Ticket) -> None:
        notices.tell(f"{_TITLE} cannot be asked to stop a job: {ticket.ids['profile']} ends there by itself.")

    def _result(self, ticket: Ticket) -> JobResult:
        look = self._look(ticket)
        if look.state != "done":
            return JobResult(
                job=ticket.job, ended="failed", error=f"{_TITLE}: {look.text or 'the job failed.'}",
                remedy=f"Its page has the log: job {ticket.ids['profile']}.", error_kind="EngineError",
            )  # fmt: skip
        with _translated():
            profile = self._client.get_job(ticket.ids["profile"]).download_profile()
        return imported(
            ticket.job, json.dumps(profile).encode(), "", device=self._address.rest, source="qai-hub",
            runtime=ticket.ids["runtime"], what=f"The profile from {_TITLE}",
        )  # fmt: skip

    def _clear(self, ticket: Ticket) -> None:
        """Its client has no way to remove a job or a model: they stay on its pages."""


def _opened_there(job: Job) -> JobModel:
    model = job.model
    assert model is not None  # noqa: S101 - require_measurement has looked
    suffixes = sorted({*_RUNS_IN, *_SOURCES})
    if Path(model.entry).suffix not in suffixes:
        raise DomainError(f"{_TITLE} opens {', '.join(suffixes)} files, and this is {model.entry}.")
    return model


def _compiled_for(runtime: str, suffix: str) -> str:
    if runtime not in _COMPILED:
        raise UnknownNameError(
            f"runtime of {_TITLE}", runtime, _COMPILED, listing=f"It has {', '.join(sorted(_COMPILED))}."
        )
    if suffix not in _SOURCES:
        raise DomainError(
            f"{_TITLE} compiles {' and '.join(_SOURCES)} files, and {runtime} does not open {suffix} ones.",
            remedy=f"Give the model as ONNX, or leave out --runtime {runtime}.",
        )
    return _COMPILED[runtime]


def _laid_out(model: JobModel, files: LocalFiles, folder: Path) -> Path:
    """The model under the names that its client goes by: one file, or a folder of an ONNX file and its weights."""
    for file in model.files:
        place = folder / "model" / file.path
        place.parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(files[file.sha256], place)
    return folder / "model" / model.entry if len(model.files) == 1 else folder / "model"


@contextmanager
def _translated() -> Iterator[None]:
    """Its client's errors as ours; what it prints for people who use it alone is kept off the terminal."""
    import qai_hub.client as theirs  # noqa: PLC0415 - only where it is used

    logging.getLogger("LogRetry").setLevel(logging.ERROR)
    try:
        yield
    except theirs.UserError as error:
        words = _plain(str(error))
        remedy = "Check what was asked for."
        if "onfiguration file" in words or "authenticate" in words:
            remedy = "`qai-hub configure --api_token TOKEN` keeps the token of your account where its client looks."
        raise PlaceError(f"{_TITLE}: {words}", remedy=remedy) from None
    except theirs.RateLimitedError as error:
        raise PlaceError(f"{_TITLE}: {_plain(str(error))}", remedy="Wait until your other jobs have ended.") from None
    except (theirs.Error, OSError) as error:
        remedy = "If it was sent, the job goes on there: the same command picks it up."
        raise PlaceError(f"{_TITLE}: {_plain(str(error))}", remedy=remedy) from None


def _plain(text: str) -> str:
    """Without the box that its client draws around what it says."""
    return re.sub(r"[\s|\u2500-\u257f]+", " ", text).strip()[:500]


provider: Any = ServiceProvider(
    name="qai-hub", title=_TITLE, client="qai-hub", missing="its client is not installed", place=QaiHubPlace
)
