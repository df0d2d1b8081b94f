"""Wheels: our own package as one, and those of others for a device that has no index."""

import base64
import hashlib
import io
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from inferometer.core.errors import DomainError, InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.settings import cache_folder
from inferometer.version import __version__

_PACKAGE = Path(__file__).parents[2]
_INFO = f"inferometer-{__version__}.dist-info"
_LEFT_OUT = frozenset({"__pycache__"})
_DATE = (2020, 1, 1, 0, 0, 0)  # the same bytes, and so the same hash, whenever it is packed
_GLIBC = 31  # of Ubuntu 20.04 and Debian 11: what a target has if it does not say
_TARGET = re.compile(r"(linux|macos|win)-([a-z0-9_]+)-cp3(\d+)")
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


@cache
def our_wheel() -> bytes:
    """Our package as it is here, as a wheel: what runs elsewhere is what runs here, whatever was released meanwhile."""
    files = {f"inferometer/{path.relative_to(_PACKAGE).as_posix()}": path.read_bytes() for path in _sources()}
    # Of the installed package: its plug-ins are found by it.
    try:
        known = distribution("inferometer")
    except PackageNotFoundError:
        raise InferometerError(
            "Inferometer runs from its sources and is not installed, so that it cannot be sent elsewhere.",
            remedy="Install it: pip install -e . in its folder.",
        ) from None
    wheel = "Wheel-Version: 1.0\nGenerator: inferometer\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    texts = {name: known.read_text(name) for name in ("METADATA", "entry_points.txt")}
    metadata = {"WHEEL": wheel, **{name: text for name, text in texts.items() if text}}
    files |= {f"{_INFO}/{name}": text.encode() for name, text in metadata.items()}
    record = "".join(f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in files.items())
    files[f"{_INFO}/RECORD"] = f"{record}{_INFO}/RECORD,,\n".encode()
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, _DATE), data, zipfile.ZIP_DEFLATED)
    return held.getvalue()


def _sources() -> Iterator[Path]:
    for path in sorted(_PACKAGE.rglob("*")):
        if path.is_file() and not _LEFT_OUT.intersection(path.parts):
            yield path


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


@frozen
class WheelTarget:
    """A kind of device as wheels name it. `glibc` is the minor version of the C library, where that is what it has."""

    system: str  # linux, macos, win
    machine: str
    python: tuple[int, int]
    glibc: int = _GLIBC

    def __str__(self) -> str:
        return f"{self.system}-{self.machine}-cp{self.python[0]}{self.python[1]}"

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platform tags that such a device takes, the newest first."""
        if self.system == "win":
            return ("win_arm64",) if self.machine == "aarch64" else ("win_amd64",)
        if self.system == "macos":
            machine = "arm64" if self.machine == "aarch64" else self.machine
            return tuple(
                f"macosx_{version}_0_{kind}" for version in range(15, 10, -1) for kind in (machine, "universal2")
            )
        newer = tuple(f"manylinux_2_{minor}_{self.machine}" for minor in range(self.glibc, 4, -1))
        old = tuple(f"{name}_{self.machine}" for name in ("manylinux2014", "manylinux2010", "manylinux1", "linux"))
        return (*newer, *old)


def parse_target(text: str) -> WheelTarget:
    """`linux-x86_64-cp312`, `linux-aarch64-cp311`, `macos-arm64-cp312`, `win-amd64-cp311`."""
    match = _TARGET.fullmatch(text)
    if match is None:
        raise DomainError(
            f"{text!r} is not a target.",
            remedy="Write SYSTEM-MACHINE-cpVERSION, such as linux-x86_64-cp312 or linux-aarch64-cp311, or `here`.",
        )
    if int(match[3]) < 11:
        raise DomainError(f"The target {text!r} is of Python 3.{match[3]}; a job needs 3.11 or newer.")
    return WheelTarget(system=match[1], machine=_MACHINES.get(match[2], match[2]), python=(3, int(match[3])))


def target_of(facts: Mapping[str, object]) -> WheelTarget:
    """The target that a device is, from what `look_around` says of it."""
    system = {"linux": "linux", "darwin": "macos", "win32": "win"}.get(str(facts["system"]))
    if system is None:
        raise InferometerError(f"There are no wheels for a device of system {facts['system']}.")
    python, libc = facts["python"], facts["libc"]
    if not isinstance(python, list) or not isinstance(libc, list):
        raise InferometerError("The device did not say which Python it has.")
    version = str(libc[1]).partition(".")[2] if libc[0] == "glibc" else ""
    machine = str(facts["machine"]).lower()
    return WheelTarget(
        system=system,
        machine=_MACHINES.get(machine, machine),
        python=(int(python[0]), int(python[1])),
        glibc=int(version) if version.isdecimal() else _GLIBC,
    )


def download_wheels(requirements: Sequence[str], target: WheelTarget, folder: Path | None = None) -> tuple[Path, ...]:
    """The wheels of a target and of all that they need, fetched by pip here. They are kept: a second time is quick."""
    mark = hashlib.sha256("\n".join(sorted(requirements)).encode()).hexdigest()[:12]
    place = folder or cache_folder() / "wheels" / f"{target}-{mark}"
    done = place / ".done"
    if not done.is_file():
        place.mkdir(parents=True, exist_ok=True)
        _pip_download(requirements, target, place)
        done.touch()
    return tuple(sorted(place.glob("*.whl")))


def _pip_download(requirements: Sequence[str], target: WheelTarget, place: Path) -> None:
    minor = target.python[1]
    command = [
        sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-input", "--quiet",
        "--only-binary", ":all:", "--dest", str(place), "--implementation", "cp", "--python-version", f"3.{minor}",
        *(word for abi in (f"cp3{minor}", "abi3", "none") for word in ("--abi", abi)),
        *(word for platform in target.platforms for word in ("--platform", platform)),
        *requirements,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - pip of this Python
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise InferometerError(
            f"The packages for {target} could not be fetched here. pip said: {' '.join(said[:2])[:500]}",
            remedy="Connect this machine to an index, or install the packages on the device and name its Python.",
        )
