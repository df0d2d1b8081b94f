"""The provider `bundle`: a device that nothing reaches. `bundle:job.zip?target=linux-x86_64-cp312&leave=torch`.

One zip holds the job, the model, our code and the packages of that device. `python job.zip` runs it there and writes
`result.json`; the file comes back by whatever way there is, and `inferometer import` makes it a run.
"""

import hashlib
import io
import json
import re
import sys
import time
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from inferometer.core import notices
from inferometer.core.codec import decode, document
from inferometer.core.errors import DomainError, FormatError, PlaceError, SchemaError
from inferometer.core.job import Job, JobEvent, JobResult
from inferometer.core.units import format_quantity
from inferometer.hub.places import device_side
from inferometer.hub.places.base import Closing, Handle, LocalFiles, Missing, PlaceAddress, Ready
from inferometer.hub.places.requests import require_known
from inferometer.hub.places.requirements import Need, needs_of
from inferometer.hub.places.wheels import download_wheels, our_wheel, parse_target
from inferometer.store.files import whole
from inferometer.version import __version__

HERE = "here"
RESULT = "result.json"
_SCHEMA = "inferometer.bundle/1"
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
_SYSTEMS = {"linux": "linux", "macos": "darwin", "win": "win32"}
# For a Python of any age: it says that it is too old before it reads anything that it would not understand.
_MAIN = """import sys
if sys.version_info < (3, 11):
    sys.exit("This needs Python 3.11 or newer, and this is %d.%d." % sys.version_info[:2])
from pathlib import Path
import device_side
sys.exit(device_side.run_bundle(Path(sys.argv[0]), sys.argv[1:]))
"""


class BundlePlace(Closing):
    """A file to be carried to a device. The job is queued until its result lies beside the file."""

    resumes = False
    waits = True

    def __init__(self, file: Path, *, target: str = HERE, leave: tuple[str, ...] = ()) -> None:
        if not file.name:
            raise DomainError("A bundle needs a file.", remedy="Write bundle:job.zip.")
        self._file, self._target, self._leave = file, target, leave
        self._chosen = None if target == HERE else parse_target(target)

    @property
    def title(self) -> str:
        return str(self._file)

    def submit(self, job: Job, files: LocalFiles) -> Handle:
        """Write the bundle, whole or not at all."""
        require_known(job)  # whoever carries it there should not hear of it only then
        needs = needs_of(job, files, self._leave)
        wheels = self._wheels(needs)
        code = our_wheel()
        facts = {
            "schema": _SCHEMA,
            "by": __version__,
            "target": self._target,
            **self._platform(has_wheels=bool(wheels)),
            "code": hashlib.sha256(code).hexdigest(),
            "env": hashlib.sha256("".join(sorted(wheels)).encode()).hexdigest()[:16],
            "wheels": sorted(wheels),
            "expects": [list(need.names) for need in needs if set(need.names) & set(self._leave)],
        }
        texts = {"__main__.py": _MAIN, "device_side.py": Path(device_side.__file__).read_text(encoding="utf-8")}
        texts |= {"bundle.json": json.dumps(facts, indent=1), "job.json": json.dumps(document(job))}
        blobs: dict[str, bytes | Path] = {facts["code"]: code, **wheels}
        blobs |= {file.sha256: files[file.sha256] for file in job.files}
        size = _write_zip(self._file, texts, blobs)
        notices.tell(f"The bundle has {format_quantity(size, 'B')}, for {self._named_target()}.")
        return Handle(address=f"bundle:{self._file}", job=job.id, folder=str(self._file))

    def _wheels(self, needs: tuple[Need, ...]) -> dict[str, bytes | Path]:
        """The packages that go along, by hash: what is installed here, or the wheels of another target."""
        wanted = [text for need in needs for text in need.install]
        if self._chosen is None:
            packed = (_repacked(name) for name in _closure(wanted, frozenset(self._leave)))
            return {hashlib.sha256(data).hexdigest(): data for data in packed}
        notices.tell(f"Fetching the packages for {self._chosen} …")
        return {device_side.hash_file(path): path for path in download_wheels(wanted, self._chosen)}

    def _platform(self, *, has_wheels: bool) -> dict[str, Any]:
        """What the device must be; without packages in it a bundle runs on any."""
        if not has_wheels:
            return {"python": None, "system": None}
        if self._chosen is None:
            return {"python": list(sys.version_info[:2]), "system": f"{sys.platform} {device_side.machine()}"}
        return {
            "python": list(self._chosen.python),
            "system": f"{_SYSTEMS[self._chosen.system]} {self._chosen.machine}",
        }

    def _named_target(self) -> str:
        return "devices like this one" if self._chosen is None else str(self._chosen)

    def events(self, handle: Handle, after: int = 0) -> Iterator[JobEvent]:
        """That it waits; and how it ended, once the result is beside the bundle."""
        states = [JobEvent(job=handle.job, number=1, at=time.time(), kind="state", state="queued")]
        result = self._result(handle)
        if result is not None:
            ended = JobEvent(
                job=handle.job, number=2, at=time.time(), kind="state", state=result.state, text=result.error
            )
            states.append(ended)
        return (event for event in states if event.number > after)

    def cancel(self, handle: Handle) -> None:
        """Nothing to stop from here: whoever runs the bundle presses Ctrl-C."""

    def fetch(self, handle: Handle) -> JobResult:
        result = self._result(handle)
        if result is None:
            raise PlaceError(
                f"There is no result of job {handle.job} beside {self._file}.",
                remedy=f"Run `python {self._file.name}` on the device and copy its {RESULT} here.",
            )
        return result

    def _result(self, handle: Handle) -> JobResult | None:
        path = self._file.with_name(RESULT)
        if not path.is_file():
            return None
        result = read_result(path)
        return result if result.job.id == handle.job else None


def read_result(path: Path) -> JobResult:
    """The result that a bundle wrote."""
    try:
        return decode(path.read_bytes(), JobResult)
    except OSError as error:
        raise FormatError(f"{path}: cannot be read ({error.strerror or error}).") from None
    except SchemaError as error:
        remedy = error.remedy or "A bundle writes such a file: python job.zip."
        raise SchemaError(f"{path}: {error.message}", remedy=remedy) from None


def _write_zip(path: Path, texts: dict[str, str], blobs: dict[str, bytes | Path]) -> int:
    try:
        with whole(path, mode=0o644) as file, zipfile.ZipFile(file, "w") as archive:
            for entry, text in texts.items():
                archive.writestr(entry, text, zipfile.ZIP_DEFLATED)
            for sha256, source in blobs.items():  # stored as they are: weights and wheels do not shrink
                _add(archive, f"artifacts/{sha256}", source)
        return path.stat().st_size
    except OSError as error:
        raise PlaceError(
            f"{path} cannot be written: {error.strerror or error}.", remedy="Choose another file."
        ) from None


def _add(archive: zipfile.ZipFile, name: str, source: bytes | Path) -> None:
    if isinstance(source, bytes):
        archive.writestr(name, source, zipfile.ZIP_STORED)
    else:
        archive.write(source, name, zipfile.ZIP_STORED)


def _closure(requirements: list[str], leave: frozenset[str]) -> list[str]:
    """The installed packages that the requirements need, one by one; those in `leave` and below are left out."""
    wanted, names = list(requirements), dict[str, None]()
    while wanted:
        match = _NAME.match(wanted.pop())
        name = match[0].lower().replace("_", "-") if match else ""
        if not name or name in names or name in leave:
            continue
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue  # for another system or Python: a requirement with a marker
        names[name] = None
        wanted += [line for line in found.requires or () if "extra ==" not in line]
    missing = [text for text in requirements if _plain_name(text) not in names and _plain_name(text) not in leave]
    if missing:
        raise PlaceError(
            f"{missing[0]} is not installed here, so that it cannot be put into a bundle for devices like this one.",
            remedy="Install it, leave it to the device with --leave NAME, or give a --target.",
        )
    return list(names)


def _plain_name(requirement: str) -> str:
    match = _NAME.match(requirement)
    return match[0].lower().replace("_", "-") if match else requirement


def _repacked(name: str) -> bytes:
    """An installed package as a wheel of its files; scripts and compiled bytecode stay here."""
    found: Distribution = distribution(name)
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for file in sorted(found.files or (), key=str):
            path = Path(str(file.locate()))
            inside = file.as_posix()
            if inside.startswith("..") or inside.endswith(".pyc") or not path.is_file():
                continue
            info = zipfile.ZipInfo(inside, (2020, 1, 1, 0, 0, 0))
            info.external_attr = (path.stat().st_mode & 0o777) << 16
            archive.writestr(info, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return held.getvalue()


class BundleProvider:
    name = "bundle"
    title = "A bundle"

    def probe(self) -> Ready | Missing:
        return Ready(version=__version__)

    def open(self, address: PlaceAddress) -> BundlePlace:
        address.require_options("target", "leave")
        leave = tuple(name for name in address.options.get("leave", "").split(",") if name)
        return BundlePlace(Path(address.rest), target=address.options.get("target", HERE), leave=leave)


provider: Any = BundleProvider()
