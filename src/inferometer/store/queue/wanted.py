"""Whether a device is what a job asks for, and why none is."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NoReturn

import msgspec

from inferometer.core.codec import settled
from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.store.queue.values import FleetDevice, Wanted

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+-]{0,99}")
_DOCUMENT = 2000  # characters
_LISTED = 8


def valid_label(text: str, *, of: str = "label") -> str:
    if not _LABEL.fullmatch(text):
        raise DomainError(
            f"{text[:50]!r} cannot be a {of}.", remedy="Use letters, digits, dots, colons, plus signs and dashes."
        )
    return text


def fits(wanted: Wanted, name: str, labels: Mapping[str, Iterable[str]]) -> bool:
    """Every label that is asked for must be among the device's; letters' case does not matter."""
    if wanted.device is not None and wanted.device != name:
        return False
    return all(
        any(value.casefold() == known.casefold() for known in labels.get(key, ()))
        for key, value in wanted.labels.items()
    )


def written(wanted: Wanted) -> str:
    """The same text for the same wish."""
    for key, value in wanted.labels.items():
        valid_label(key), valid_label(value, of=f"value of {key}")
    text = msgspec.json.encode({"device": wanted.device, "labels": dict(sorted(wanted.labels.items()))}).decode()
    if len(text) > _DOCUMENT:
        raise DomainError(f"A job may ask for less: its labels take {len(text):,} characters of {_DOCUMENT:,}.")
    return text


@lru_cache(maxsize=4096)
def read(document: str) -> Wanted:
    return msgspec.json.decode(document, type=settled(Wanted))


def refuse_unfitting(wanted: Wanted, devices: tuple[FleetDevice, ...]) -> NoReturn:
    """Say of a job that no registered device could take why none can, with what there is."""
    if not devices:
        raise DomainError(
            "No device is registered with this hub that works for this project.",
            remedy="Start `inferometer hub agent --hub URL --token …` on one, with a token for the project; or have "
            "one that is there given to it: `inferometer hub device share NAME PROJECT`.",
        )
    names = [device.name for device in devices]
    if wanted.device is not None and wanted.device not in names:
        some = ", ".join(names[:_LISTED]) + (" …" if len(names) > _LISTED else "")
        raise UnknownNameError("device of the fleet", wanted.device, names, listing=f"There is: {some}.")
    asked = devices if wanted.device is None else [device for device in devices if device.name == wanted.device]
    whose = "No device of the fleet has" if wanted.device is None else f"{wanted.device} does not have"
    for key, value in wanted.labels.items():
        if any(fits(Wanted(labels={key: value}), device.name, device.labels) for device in asked):
            continue
        known = sorted({known for device in asked for known in device.labels.get(key, ())})
        there = f"There is: {', '.join(f'{key}={each}' for each in known[:_LISTED])}." if known else None
        raise DomainError(f"{whose} {key}={value}.", remedy=there or f"No label {key!r} is known: see the devices.")
    asks = " and ".join(f"{key}={value}" for key, value in wanted.labels.items())
    raise DomainError(f"{whose} {asks} at once.", remedy="Ask for less, or name a device.")
