"""The provider `aws`: a phone of AWS Device Farm. `aws:Google Pixel 8?project=NAME&binary=benchmark_model`.

It goes through boto3, which finds the account's keys where AWS's other tools do; an address has none. A phone there is
reached from a host that AWS lends with it: a package with the model and an engine's own benchmark is sent, and a test
spec that pushes both to the phone over adb, runs the benchmark and keeps what it printed. See benchmarks.py.
Written against boto3 1.44 and a server of ours that speaks its protocol; the service itself was not reached. The form
of the package and of the spec: docs.aws.amazon.com/devicefarm/latest/developerguide, "Test spec reference and syntax"
and "Troubleshooting Appium Python tests".
"""

import io
import json
import shlex
import tempfile
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from inferometer.core import notices
from inferometer.core.errors import DomainError, PlaceError, UnknownNameError
from inferometer.core.job import Job, JobResult, JobState
from inferometer.core.units import format_quantity
from inferometer.hub.places.base import LocalFiles, PlaceAddress
from inferometer.hub.places.benchmarks import program_of
from inferometer.hub.places.services import Look, ServicePlace, ServiceProvider, Ticket

_TITLE = "AWS Device Farm"
_REGION = "us-west-2"  # the only one that Device Farm is in
# A test without an app, in a framework that its hosts have: the spec decides what is run, and no test of it is.
_KIND = "APPIUM_WEB_PYTHON"
_PACKAGE_BYTES = 4_000_000_000  # the largest upload that it takes
_PRINTED_BYTES = 200_000_000  # more than a benchmark prints
_MINUTES = "30"
_LOOK_S = 2.0
_STATES: Mapping[str, JobState] = {
    "PENDING": "queued", "PENDING_CONCURRENCY": "queued", "PENDING_DEVICE": "queued",
    "PROCESSING": "preparing", "SCHEDULING": "preparing", "PREPARING": "preparing",
    "RUNNING": "running", "STOPPING": "running",
}  # fmt: skip
_CREDENTIALS = frozenset({
    "AccessDeniedException", "UnrecognizedClientException", "ExpiredTokenException", "InvalidSignatureException",
    "NotAuthorizedException", "ServiceAccountException",
})  # fmt: skip
_FOLDER = "/data/local/tmp/inferometer"


class DeviceFarmPlace(ServicePlace):
    def __init__(self, address: PlaceAddress, **seams: Any) -> None:
        address.require_options("project", "binary", "with", "kind", "os", "minutes", "region", "account")
        if not address.rest:
            raise DomainError(f"The address {address.text!r} names no phone.", remedy="Write aws:NAME.")
        super().__init__(address, **seams)
        self._program = program_of(address)
        minutes = address.options.get("minutes", _MINUTES)
        if not minutes.isdecimal() or not 1 <= int(minutes) <= 150:  # what Device Farm allows a job
            raise DomainError(f"A run on {_TITLE} takes 1 to 150 minutes, and {minutes!r} were asked for.")
        self._minutes = int(minutes)
        self._held: Any = None

    @property
    def title(self) -> str:
        return f"{self._address.rest} at {_TITLE}"

    @property
    def _client(self) -> Any:
        if self._held is None:
            import boto3  # noqa: PLC0415 - only where it is used

            options = self._address.options
            with _translated():  # `account` is a profile of AWS's own configuration, and no key
                session = boto3.session.Session(profile_name=options.get("account"))
                self._held = session.client("devicefarm", region_name=options.get("region", _REGION))
        return self._held

    def _send(self, job: Job, files: LocalFiles) -> dict[str, str]:
        request = self._program.request(job)
        model = job.model.entry if job.model is not None else ""
        words = shlex.join([f"./{self._program.binary.name}", *self._program.benchmark.arguments(model, request)])
        phone, project = self._phone(), self._project()
        with tempfile.TemporaryDirectory(prefix="inferometer-") as folder:
            package, spec = Path(folder) / "package.zip", Path(folder) / "spec.yml"
            _write_package(package, job, files, self._program.files)
            spec.write_text(_spec(words), encoding="utf-8")
            size = package.stat().st_size
            if size > _PACKAGE_BYTES:
                most = format_quantity(_PACKAGE_BYTES, "B")
                raise DomainError(f"The package has {format_quantity(size, 'B')}, and {_TITLE} takes {most} at most.")
            notices.tell(f"Sending {format_quantity(size, 'B')} to {_TITLE} …")
            ids = {"project": project, "package": self._upload(project, package, f"{_KIND}_TEST_PACKAGE")}
            ids["spec"] = self._upload(project, spec, f"{_KIND}_TEST_SPEC")
        with _translated():
            run = self._client.schedule_run(
                projectArn=project,
                name=f"inferometer {job.id}",
                deviceSelectionConfiguration={
                    "filters": [{"attribute": "ARN", "operator": "IN", "values": [phone["arn"]]}],
                    "maxDevices": 1,
                },
                test={"type": _KIND, "testPackageArn": ids["package"], "testSpecArn": ids["spec"]},
                executionConfiguration={"jobTimeoutMinutes": self._minutes, "videoCapture": False},
            )["run"]
        return {**ids, "run": run["arn"]}

    def _phone(self) -> Mapping[str, Any]:
        """The phone of this name that is there; the newest system of several, unless `?os=` names one."""
        name, os = self._address.rest.casefold(), self._address.options.get("os")
        with _translated():
            pages = self._client.get_paginator("list_devices").paginate()
            phones = [phone for page in pages for phone in page["devices"] if phone.get("platform") == "ANDROID"]
        named = [phone for phone in phones if phone["name"].casefold() == name and os in {None, phone.get("os")}]
        if not named:
            known = sorted({phone["name"] for phone in phones})
            listing = f"{_TITLE} has {len(known)} Android phones: `aws devicefarm list-devices`."
            raise UnknownNameError(f"phone of {_TITLE}", self._address.rest, known, listing=listing)
        there = [phone for phone in named if phone.get("availability") != "TEMPORARY_NOT_AVAILABLE"]
        if not there:
            raise PlaceError(f"{self.title} is not available now.", remedy="Try again later, or choose another phone.")
        return max(there, key=lambda phone: [int(part) for part in phone.get("os", "").split(".") if part.isdigit()])

    def _project(self) -> str:
        """The address of the project: uploads and runs belong to one."""
        asked = self._address.options.get("project")
        with _translated():
            pages = self._client.get_paginator("list_projects").paginate()
            projects = {project["name"]: project["arn"] for page in pages for project in page["projects"]}
        if asked is None and len(projects) == 1:
            return str(*projects.values())
        if asked not in projects:
            listing = f"Your account has {', '.join(sorted(projects)) or 'none: create one on its page'}."
            raise UnknownNameError(f"project of {_TITLE} (?project=NAME)", asked or "", projects, listing=listing)
        return str(projects[asked])

    def _upload(self, project: str, path: Path, kind: str) -> str:
        with _translated(), path.open("rb") as file:
            upload = self._client.create_upload(projectArn=project, name=path.name, type=kind)["upload"]
            request = urllib.request.Request(_web(upload["url"]), data=file, method="PUT")  # noqa: S310 - see _web
            request.add_header("Content-Length", str(path.stat().st_size))
            request.add_header("Content-Type", "application/octet-stream")
            urllib.request.urlopen(request, timeout=600).close()  # noqa: S310
            while upload["status"] not in {"SUCCEEDED", "FAILED"}:
                self._sleep(_LOOK_S)
                upload = self._client.get_upload(arn=upload["arn"])["upload"]
        if upload["status"] == "FAILED":
            words = upload.get("message") or upload.get("metadata") or "it does not say why"
            raise PlaceError(f"{_TITLE} refused {path.name}: {str(words)[:500]}.", remedy="Check the binary's files.")
        return str(upload["arn"])

    def _look(self, ticket: Ticket) -> Look:
        run = self._run(ticket)
        if run["status"] != "COMPLETED":
            return Look(state=_STATES.get(run["status"], "preparing"))
        if run["result"] == "STOPPED":
            return Look(state="cancelled")
        if run["result"] == "ERRORED":  # the service's own fault, or the phone's
            return Look(state="inconclusive", text=run.get("message"))
        result = self._read(ticket)
        return Look(state=result.state, text=result.error)

    def _run(self, ticket: Ticket) -> Mapping[str, Any]:
        with _translated():
            run: Mapping[str, Any] = self._client.get_run(arn=ticket.ids["run"])["run"]
        return run

    def _stop(self, ticket: Ticket) -> None:
        with _translated():
            self._client.stop_run(arn=ticket.ids["run"])

    def _result(self, ticket: Ticket) -> JobResult:
        run = self._run(ticket)
        if run["result"] == "STOPPED":
            return JobResult(job=ticket.job, ended="stopped", error=f"It was stopped on the page of {_TITLE}.")
        if run["result"] == "ERRORED":
            words = run.get("message") or "it does not say why"
            return JobResult(
                job=ticket.job, ended="lost", error=f"{_TITLE} could not run it: {words}.",
                remedy="Try again, or choose another phone.", error_kind="PlaceError",
            )  # fmt: skip
        return self._read(ticket)

    def _read(self, ticket: Ticket) -> JobResult:
        """What the benchmark left in the folder that the host gives back."""
        kept = self._artifacts(ticket)
        log = (kept.get("err", b"") + b"\n" + kept.get("out", b"")).decode("utf-8", "replace")[-64_000:]
        code = kept.get("code", b"").strip()
        if code == b"0":
            return self._program.result(ticket.job, kept.get("out", b""), log, self._address.rest)
        return self._program.failed(ticket.job, int(code) if code.isdigit() else None, log)

    def _artifacts(self, ticket: Ticket) -> dict[str, bytes]:
        """`out`, `err` and `code`, out of the archive of the host's log folder."""
        with _translated():
            pages = self._client.get_paginator("list_artifacts").paginate(arn=ticket.ids["run"], type="FILE")
            found = [one for page in pages for one in page["artifacts"] if one["type"] == "CUSTOMER_ARTIFACT"]
            kept: dict[str, bytes] = {}
            for one in found:
                with urllib.request.urlopen(_web(one["url"]), timeout=600) as answer:  # noqa: S310 - see _web
                    data = answer.read(_PRINTED_BYTES + 1)
                kept |= _unpacked(data)
        return kept

    def _clear(self, ticket: Ticket) -> None:
        """Its model and the run: what is not deleted stays for 400 days."""
        with suppress(PlaceError), _translated():
            self._client.delete_run(arn=ticket.ids["run"])
        for name in ("package", "spec"):
            with suppress(PlaceError), _translated():
                self._client.delete_upload(arn=ticket.ids[name])


def _write_package(path: Path, job: Job, files: LocalFiles, programs: tuple[Path, ...]) -> None:
    """The model and the programs, with a test that does nothing: the service looks for one before it runs the spec."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("requirements.txt", "pytest\n")
        archive.writestr("tests/test_nothing.py", "def test_nothing():\n    pass\n")
        for file in job.files:
            archive.write(files[file.sha256], f"phone/{file.path}")
        for program in programs:
            archive.write(program, f"phone/{program.name}")


def _spec(words: str) -> str:
    """What the host does: push, run, keep. The benchmark's own exit code is kept, and does not end the spec."""
    adb = 'adb -s "$DEVICEFARM_DEVICE_UDID"'
    run = f"cd {_FOLDER} && chmod -R 755 . && LD_LIBRARY_PATH=. {words}"
    commands = [
        f"{adb} shell {shlex.quote(f'rm -rf {_FOLDER}; mkdir -p {_FOLDER}')}",
        f'{adb} push "$DEVICEFARM_TEST_PACKAGE_PATH/phone/." {_FOLDER}',
        f'cd "$DEVICEFARM_LOG_DIR"; {adb} shell {shlex.quote(run)} >out 2>err; echo $? >code',
        f"{adb} shell {shlex.quote(f'rm -rf {_FOLDER}')}",
    ]
    # JSON strings are YAML strings, so that nothing of a name can end one.
    lines = "".join(f"      - {json.dumps(command)}\n" for command in commands)
    return f"version: 0.1\nphases:\n  test:\n    commands:\n{lines}artifacts:\n  - $DEVICEFARM_LOG_DIR\n"


def _web(url: str) -> str:
    """An address that the service gave: only of the web, whatever it says."""
    if not url.startswith(("https://", "http://")):
        raise PlaceError(f"{_TITLE} gave an address that is none of the web: {url[:80]!r}.", remedy="Try again.")
    return url


def _unpacked(data: bytes) -> dict[str, bytes]:
    if len(data) > _PRINTED_BYTES:
        raise PlaceError(f"{_TITLE} gave back more than {format_quantity(_PRINTED_BYTES, 'B')}.", remedy="Log less.")
    kept: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for entry in archive.infolist():
                name = entry.filename.rpartition("/")[2]
                if name in {"out", "err", "code"} and entry.file_size <= _PRINTED_BYTES:
                    kept[name] = archive.read(entry)
    except zipfile.BadZipFile:
        raise PlaceError(f"What {_TITLE} gave back is damaged.", remedy="Try again.") from None
    return kept


@contextmanager
def _translated() -> Iterator[None]:
    """The errors of AWS's library as ours."""
    from botocore import exceptions  # noqa: PLC0415 - only where it is used

    go_on = "If it was sent, the job goes on there: the same command picks it up."
    try:
        yield
    except exceptions.ClientError as error:
        code, words = (error.response.get("Error", {}).get(key, "") for key in ("Code", "Message"))
        remedy = {"LimitExceededException": "Wait until your other runs have ended."}.get(code, go_on)
        if code in _CREDENTIALS:
            remedy = "`aws configure` keeps the keys of an account that may use devicefarm."
        raise PlaceError(f"{_TITLE} refused it ({code}): {words}", remedy=remedy) from None
    except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError, exceptions.ProfileNotFound) as error:
        remedy = "`aws configure` keeps the keys of an account; `?account=NAME` names one of its profiles."
        raise PlaceError(f"{_TITLE}: {str(error).rstrip('.')}.", remedy=remedy) from None
    except (exceptions.BotoCoreError, OSError) as error:
        raise PlaceError(f"{_TITLE} cannot be reached: {str(error).rstrip('.')}.", remedy=go_on) from None


provider: Any = ServiceProvider(
    name="aws", title=_TITLE, client="boto3", missing="boto3 is not installed", place=DeviceFarmPlace
)
