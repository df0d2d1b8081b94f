"""What an agent says of its device: labels to choose it by, and facts to predict and to show."""

import hashlib
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from inferometer.core.codec import document
from inferometer.core.errors import DomainError, InferometerError
from inferometer.version import __version__

PROTOCOL = 1
_CALIBRATIONS_BYTES = 500_000  # of documents that are sent along; of others only the hash is
_UNSAFE = str.maketrans(dict.fromkeys(" /\\?&=#%\"'<>|*,;@!$()[]{}^`~", "-"))


def device_name(chosen: str | None) -> str:
    """The name that was chosen, else the machine's, as far as it can be one in an address."""
    if chosen is not None:
        return chosen
    from inferometer.known.machine.detect.identity import this_machine  # noqa: PLC0415 - reads the machine

    return this_machine().called.translate(_UNSAFE).strip("-.") or "device"


def parse_labels(texts: Sequence[str]) -> dict[str, list[str]]:
    """`unit=npu` twice gives the label two values."""
    labels: dict[str, list[str]] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key or not value:
            raise DomainError(f"--label is {text!r}.", remedy="Write NAME=VALUE.")
        labels.setdefault(key, []).append(value)
    return labels


def registration(name: str, chosen: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """What the hub is told. Labels that a person chose come before labels that were found."""
    from inferometer.core.plugins import listed  # noqa: PLC0415 - as above
    from inferometer.engines.listing import runtime_records  # noqa: PLC0415 - as above
    from inferometer.hub.box.found import means_here  # noqa: PLC0415 - tries what the system has
    from inferometer.known.machine.detect.identity import this_machine  # noqa: PLC0415 - as above

    machine = this_machine()
    records, _ = runtime_records(listed("inferometer.runtimes"))
    runtimes = {record["name"]: record.get("version") for record in records if record["state"] == "ready"}
    units = ["cpu", *(["gpu"] if machine.gpus else []), *(["npu"] if machine.accelerators else [])]
    found: dict[str, list[str]] = {"unit": units, "runtime": sorted(runtimes)}
    if machine.architecture:
        found["arch"] = [machine.architecture.translate(_UNSAFE)]
    found["os"] = [sys.platform]
    if machine.system:  # `linux` is also `debian`
        found["os"].append(machine.system.split()[0].lower().translate(_UNSAFE))
    return {
        "name": name,
        "protocol": PROTOCOL,
        "labels": {**found, **{key: list(values) for key, values in chosen.items()}},
        "facts": {
            "machine": msgspec.to_builtins(machine),
            "runtimes": runtimes,
            "device": _figures(),
            "calibrations": _calibrations(),
            "box": means_here().said,
        },
        "version": __version__,
        "now": time.time(),
    }


def _figures() -> dict[str, Any] | None:
    """The best unit of this machine, with the figures that it has shown, so that the hub can predict what runs here."""
    from inferometer.predict.ask import device_for  # noqa: PLC0415 - measures, if nothing is known yet
    from inferometer.predict.basis.roof import roof_for, with_roof  # noqa: PLC0415 - as above

    try:
        device = device_for("local")
        roof = roof_for(device)
        return document(device if roof is None else with_roof(device, roof))
    except InferometerError:
        return None  # then there is no expected time for it, and the page says so


def _calibrations() -> list[dict[str, Any]]:
    """Those that were made here, the newest first."""
    from inferometer.predict.basis.files import files_in, own_folder, read_calibration  # noqa: PLC0415 - as above

    told, room = [], _CALIBRATIONS_BYTES
    for path in sorted(files_in([own_folder()]), key=lambda path: path.stat().st_mtime, reverse=True):
        try:
            calibration = read_calibration(path)
        except InferometerError:
            continue
        size = path.stat().st_size
        told.append({
            "sha256": calibration.content_hash or hashlib.sha256(path.read_bytes()).hexdigest(),
            "device": calibration.device, "runtime": calibration.runtime, "dtype": calibration.dtype,
            "created": calibration.created, "document": document(calibration) if size <= room else None,
        })  # fmt: skip
        room -= size if size <= room else 0
    return told
