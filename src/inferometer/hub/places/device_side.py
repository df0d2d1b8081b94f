"""What happens on a device before any package of ours is there. Standard library only, and nothing of Inferometer.

The text of this file is sent to a remote Python, which runs one function of it (`call`) and prints the answer as JSON;
a bundle carries it beside its `__main__`; the local provider simply imports it. So everything that starts a job
starts it with this code.

A place is a folder:

    artifacts/ab/HASH      files by their SHA-256          code/KEY    our own package, unpacked
    incoming/HASH.part     those that are still coming     env/KEY     packages that it needs, unpacked
    jobs/ID                one job: see `start`            cache       models that were made up there
"""

import argparse
import contextlib
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

CHUNK = 1 << 20
_LOG_BYTES = 64_000
_FRESH_S = 3600.0  # that a result is waited for by whoever lost the connection; later it is measured again


def artifact_path(root: Path, sha256: str) -> Path:
    return root / "artifacts" / sha256[:2] / sha256


def part_path(root: Path, sha256: str) -> Path:
    return root / "incoming" / f"{sha256}.part"


def hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# looking around


def look_around(root: str, packages: Sequence[str], hashes: Sequence[str], keys: Sequence[str]) -> dict[str, Any]:
    """Facts of this device and of what is there already: packages, files by hash, unpacked folders by key."""
    place = Path(root).expanduser()
    place.mkdir(parents=True, exist_ok=True)
    libc, libc_version = platform.libc_ver()
    return {
        "root": str(place.resolve()),
        "python": list(sys.version_info[:3]),
        "executable": sys.executable,
        "implementation": sys.implementation.name,
        "platform": sysconfig.get_platform(),
        "system": sys.platform,
        "machine": platform.machine(),
        "libc": [libc, libc_version],
        "pip": PathFinder.find_spec("pip") is not None,  # setuptools forgets its distutils if pip is asked for aloud
        "free_bytes": shutil.disk_usage(place).free,
        "packages": {name: _version(name) for name in packages},
        "missing": [sha256 for sha256 in hashes if not artifact_path(place, sha256).is_file()],
        "parts": {sha256: size for sha256 in hashes if (size := _arrived(place, sha256))},
        "ready": [key for key in keys if (place / key).is_dir()],
    }


def _arrived(root: Path, sha256: str) -> int:
    part = part_path(root, sha256)
    return part.stat().st_size if part.is_file() else 0


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


# files


def seal(root: str, sha256: str, named: str | None = None) -> bool:
    """Put a file that has arrived, as a part of that name, in its place if it is what it should be; else drop it."""
    place = Path(root)
    part, to = part_path(place, named or sha256), artifact_path(place, sha256)
    if hash_file(part) != sha256:
        part.unlink()
        return False
    to.parent.mkdir(parents=True, exist_ok=True)
    part.replace(to)
    return True


def lay_out(root: Path, files: Iterable[Mapping[str, Any]], to: Path) -> None:
    """The files of a job under the names that it has for them, sharing their bytes with the artifacts if possible."""
    for file in files:
        place, artifact = to / file["path"], artifact_path(root, file["sha256"])
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.exists():
            continue
        os.utime(artifact)  # used now: the last to be collected
        link_or_copy(artifact, place)


def link_or_copy(source: Path, to: Path) -> None:
    """Without copying bytes where the file system allows it.

    A hard link first: an engine refuses external data behind a symbolic link that leads out of the model's folder.
    """
    source = source.resolve()
    for link in (os.link, os.symlink):
        try:
            link(source, to)
        except (OSError, NotImplementedError):
            continue
        return
    shutil.copyfile(source, to)


def collect_garbage(
    root: str, *, older_s: float, quota_bytes: int | None = None, keep: Iterable[str] = (), now: float | None = None
) -> int:
    """Remove artifacts that were not used for `older_s`, then the longest unused ones until the quota is kept.

    Also what was left of copies and jobs of that age. Those in `keep` stay. Returns the bytes that were freed.
    """
    place, kept = Path(root), set(keep)
    now = time.time() if now is None else now
    freed = 0
    for old in [*(place / "incoming").glob("*.part"), *(place / "jobs").glob("*")]:
        with contextlib.suppress(OSError):
            # A clock that was put forward makes everything old, but not what runs.
            if now - old.stat().st_mtime > older_s and not is_alive(str(old)):
                freed += _remove(old)
    aged = []
    for path in (place / "artifacts").glob("??/*"):
        with contextlib.suppress(OSError):
            status = path.stat()
            aged.append((status.st_mtime, status.st_size, path))
    aged.sort()
    total = sum(size for _, size, _ in aged)
    for used, size, path in aged:
        over = quota_bytes is not None and total > quota_bytes
        if path.name in kept or not (over or now - used > older_s):
            continue
        with contextlib.suppress(OSError):
            path.unlink()
            total, freed = total - size, freed + size
    return freed


def _remove(path: Path) -> int:
    if path.is_dir() and not path.is_symlink():
        size = sum(entry.lstat().st_size for entry in path.rglob("*") if entry.is_file())
        shutil.rmtree(path, ignore_errors=True)
        return size
    size = path.lstat().st_size
    path.unlink()
    return size


# code and packages


def unpack(root: str, key: str, hashes: Sequence[str]) -> str:
    """Unpack wheels, given by their hashes, into the folder `key` of the place: whole or not at all."""
    place = Path(root)
    folder = place / key
    if folder.is_dir():
        return str(folder)
    partial = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for sha256 in hashes:
        unpack_wheel(artifact_path(place, sha256), partial)
    _settle(partial, folder)
    return str(folder)


def _settle(partial: Path, folder: Path) -> None:
    try:
        partial.rename(folder)
    except OSError:  # somebody else was quicker
        shutil.rmtree(partial, ignore_errors=True)
        if not folder.is_dir():
            raise


def unpack_wheel(wheel: Path, to: Path) -> None:
    """As pip would, without scripts: what a wheel keeps under NAME.data/purelib or platlib belongs at the top."""
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            parts = entry.filename.split("/")
            if parts[0].endswith(".data"):
                if len(parts) < 3 or parts[1] not in {"purelib", "platlib"}:
                    continue
                parts = parts[2:]
            if entry.is_dir() or ".." in parts or not parts[0]:
                continue
            place = to.joinpath(*parts)
            place.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(entry) as source, place.open("wb") as target:
                shutil.copyfileobj(source, target, CHUNK)
            mode = entry.external_attr >> 16
            if mode & 0o111:  # a program that a package starts
                place.chmod(0o755)


def install(root: str, key: str, requirements: Sequence[str]) -> dict[str, Any]:
    """Let the device's own pip fetch packages from the index that it has. `error` is what pip said, if it failed."""
    folder = Path(root) / key
    if folder.is_dir():
        return {"folder": str(folder)}
    partial = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
    command = [
        sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--quiet",
        "--retries", "0", "--timeout", "15", "--only-binary", ":all:", "--target", str(partial), *requirements,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - pip of this Python
    if done.returncode:
        shutil.rmtree(partial, ignore_errors=True)
        return {"error": (done.stderr or done.stdout).strip()[-2000:]}
    _settle(partial, folder)
    return {"folder": str(folder)}


# jobs


def start(
    root: str,
    job: Mapping[str, Any],
    paths: Sequence[str],
    settings: Mapping[str, str],
    box: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Start the runner of a job, detached, or find it started. `paths` are where Python finds our code and packages.

    The folder of the job gets `job.json` and the files that it names; the runner adds events, log and result. A job
    of the same id that ended without a result, or long ago with one that nobody fetched, makes room for this one.
    """
    place = Path(root)
    folder = place / "jobs" / str(job["id"])
    if folder.is_dir() and not _worth_picking_up(folder):
        shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return {"folder": str(folder), "resumed": True}
    lay_out(place, files_of(job), folder / "files")
    write_whole(folder / "job.json", json.dumps(job).encode())
    run_detached(folder, paths, settings, box)
    return {"folder": str(folder), "resumed": False}


def _worth_picking_up(folder: Path) -> bool:
    result = folder / "result.json"
    if result.is_file():
        return time.time() - result.stat().st_mtime < _FRESH_S
    return is_alive(str(folder))


def files_of(job: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    models = [model for model in (job.get("model"), job.get("reference")) if model]
    return [*(file for model in models for file in model["files"]), *(job.get("inputs") or {}).values()]


def run_detached(
    folder: Path, paths: Sequence[str], settings: Mapping[str, str], box: Mapping[str, Any] | None = None
) -> int:
    """The runner in a session of its own: it goes on when whoever started it, or the connection, is gone.

    `box`: what the owner of the device wants of its box, for a job that came from elsewhere (hub/agent/warden.py).
    """
    environment = environment_for(paths, settings)
    module = "inferometer.hub.agent.runner"
    if box is not None and box.get("wish") != "none":
        module = "inferometer.hub.agent.warden"
        write_whole(folder / "box.json", json.dumps(box).encode())
    with (folder / "runner.log").open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 - our own module
            # -P: a file of the user such as glob.py must not stand in for a module of Python
            [sys.executable, "-P", "-m", module, str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
    write_whole(folder / "runner.pid", str(process.pid).encode())
    process.returncode = 0  # nobody waits for it here: Python should not warn that it still runs
    return process.pid


def environment_for(paths: Sequence[str], settings: Mapping[str, str]) -> dict[str, str]:
    environment = {**os.environ, **settings}  # noqa: TID251 - passed on to the runner as it is
    inherited = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = os.pathsep.join([*paths, *([inherited] if inherited else [])])
    return environment


def is_alive(folder: str) -> bool:
    """Whether the runner of a job runs. A number that another process has by now does not count."""
    place = Path(folder)
    try:
        pid = int((place / "runner.pid").read_bytes())
    except (OSError, ValueError):
        return False
    command = Path(f"/proc/{pid}/cmdline")
    if command.parent.parent.is_dir():
        try:
            words = command.read_bytes()
            # It has no words for a moment after it is started, and again when it has ended and nobody asked how.
            return place.name.encode() in words if words else ") Z " not in command.with_name("stat").read_text()
        except OSError:
            return False
    command_line = ["ps", "-p", str(pid), "-o", "args="]
    listing = subprocess.run(command_line, capture_output=True, text=True, check=False)  # noqa: S603 - a number of ours
    return place.name in listing.stdout


def ask_to_stop(folder: str) -> None:
    (Path(folder) / "cancel").touch()


def interrupt_runner(folder: str) -> None:
    """As `ask_to_stop`, without a file: for a disk that has no room for one."""
    with contextlib.suppress(OSError, ValueError):
        if is_alive(folder):
            os.kill(int((Path(folder) / "runner.pid").read_bytes()), signal.SIGTERM)


def clear(folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def log_tail(folder: str) -> str:
    try:
        data = (Path(folder) / "runner.log").read_bytes()
    except OSError:
        return ""
    return data[-_LOG_BYTES:].decode("utf-8", "replace")


def write_whole(path: Path, data: bytes) -> None:
    partial = path.with_name(f".{path.name}.part")
    partial.write_bytes(data)
    partial.replace(path)


# a bundle


def run_bundle(bundle: Path, arguments: Sequence[str]) -> int:
    """`python job.zip [-o result.json] [--work FOLDER]`: run the job in a bundle, and write what comes of it."""
    parser = argparse.ArgumentParser(prog=f"python {bundle.name}", description="Run the measurement in this bundle.")
    parser.add_argument("-o", "--out", type=Path, default=Path("result.json"), help="the file to write")
    parser.add_argument("--work", type=Path, help="a folder to unpack in, and to keep for the next bundle")
    parser.add_argument("--box", choices=("auto", "strict", "none"), default="auto", help="what holds the job")
    asked = parser.parse_args(arguments)
    try:
        return _run_bundle(bundle, asked)
    except (OSError, zipfile.BadZipFile) as error:
        sys.stderr.write(f"{bundle.name}: {error}. -o FILE and --work FOLDER choose where it writes.\n")
        return 2


def _run_bundle(bundle: Path, asked: argparse.Namespace) -> int:
    with zipfile.ZipFile(bundle) as archive:
        facts, job = (json.loads(archive.read(name)) for name in ("bundle.json", "job.json"))
        refusal = _unfit(facts)
        if refusal:
            sys.stderr.write(f"{bundle.name}: {refusal}\n")
            return 2
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        made = tempfile.mkdtemp(prefix="inferometer-", dir=asked.out.parent) if asked.work is None else None
        root = (asked.work or Path(str(made))).resolve()
        try:
            _unpack_bundle(archive, root)
            return _run_unpacked(root, facts, job, asked)
        finally:
            if made is not None:
                shutil.rmtree(made, ignore_errors=True)


def _unfit(facts: Mapping[str, Any]) -> str | None:
    """Why a bundle cannot run on this device; None if it can."""
    version = list(sys.version_info[:2])
    if facts["python"] is not None and facts["python"] != version:
        wanted = ".".join(map(str, facts["python"]))
        return (
            f"it was made for Python {wanted}, and this is {'.'.join(map(str, version))}. Run it with python{wanted}."
        )
    here = f"{sys.platform} {machine()}"
    if facts["system"] is not None and facts["system"] != here:
        return f"it was made for {facts['system']}, and this is {here}. Make it again with another --target."
    for names in facts["expects"]:
        if not any(_version(name) for name in names):
            return (
                f"it expects {' or '.join(names)} on the device, which this Python has not. Run it with one that has."
            )
    return None


def machine() -> str:
    """As Linux calls it."""
    name = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def _unpack_bundle(archive: zipfile.ZipFile, root: Path) -> None:
    """The files of a bundle under their hashes; one that is damaged is an error."""
    (root / "incoming").mkdir(parents=True, exist_ok=True)
    for entry in archive.infolist():
        folder, _, sha256 = entry.filename.partition("/")
        if folder != "artifacts" or artifact_path(root, sha256).is_file():
            continue
        with archive.open(entry) as source, part_path(root, sha256).open("wb") as target:
            shutil.copyfileobj(source, target, CHUNK)
        if not seal(str(root), sha256):
            message = f"{archive.filename} is damaged: copy it again."
            raise OSError(message)


def _run_unpacked(root: Path, facts: Mapping[str, Any], job: Mapping[str, Any], asked: argparse.Namespace) -> int:
    out: Path = asked.out
    code = unpack(str(root), f"code/{facts['code'][:16]}", [facts["code"]])
    packages = [unpack(str(root), f"env/{facts['env']}", facts["wheels"])] if facts["wheels"] else []
    settings = {"INFEROMETER_CACHE": str(root / "cache")}
    started = start(str(root), job, [code, *packages], settings, {"wish": asked.box})
    folder = Path(started["folder"])
    _show_events(folder)
    result = folder / "result.json"
    if not result.is_file():
        sys.stderr.write(f"The job left no result. Its log ends with:\n{log_tail(str(folder))[-2000:]}\n")
        return 1
    shutil.copyfile(result, out)
    ended = json.loads(result.read_bytes())
    if ended["ended"] != "done":
        sys.stderr.write(f"{ended['error']} {ended['remedy'] or ''}\n")
    sys.stderr.write(f"Wrote {out}. Where the bundle was made: inferometer import {out.name}\n")
    shutil.rmtree(folder, ignore_errors=True)
    return 0 if ended["ended"] == "done" else 1


def _show_events(folder: Path) -> None:
    """A line for each stage, until the job has ended. Ctrl-C stops it and keeps what it has measured."""
    offset, stage = 0, None
    while True:
        try:
            lives = is_alive(str(folder))
            text = (folder / "events.jsonl").read_bytes() if (folder / "events.jsonl").is_file() else b""
            lines = text[offset:].split(b"\n")[:-1]
            offset += sum(len(line) + 1 for line in lines)
            for line in lines:
                event = json.loads(line)
                words = event["text"] or event["stage"]
                if words and words != stage and event["state"] is None:
                    sys.stderr.write(f"{words} …\n")
                stage = words or stage
            if not lives and not lines:
                return
            time.sleep(0.2)
        except KeyboardInterrupt:
            ask_to_stop(str(folder))


def call(name: str, arguments: Mapping[str, Any]) -> None:
    """Run one function of this file and print its answer, or the error, as a line of JSON."""
    try:
        answer = {"answer": globals()[name](**arguments)}
    except OSError as error:
        answer = {"error": str(error.strerror or error), "number": error.errno, "path": str(error.filename or "")}
    sys.stdout.write(json.dumps(answer) + "\n")
