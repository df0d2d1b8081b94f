"""Devices of the fleet: register, give a sign of life, be taken out and put back."""

import msgspec
from sqlalchemy import Connection, delete, select, update

from inferometer.errors import DomainError, UnknownNameError
from inferometer.store import names
from inferometer.store.queue.rows import device_named, no_device
from inferometer.store.queue.values import DEVICE_STATES, DeviceState, NewDevice
from inferometer.store.queue.wanted import valid_label
from inferometer.store.tables import fleet_devices
from inferometer.store.upserts import put_new

_FACTS = 1_000_000  # characters
RESERVED = ("any", "each")  # `hub:any` is no device


def register(connection: Connection, device: NewDevice, *, user: str, now_us: int, takes_over: bool = False) -> bool:
    """Make the device, or bring what is known of it up to date; gives whether its labels have changed.

    Its state stays as somebody set it. A name belongs to whoever registered it first; `takes_over` is what an
    administrator may do.
    """
    name = valid_label(device.name, of="name of a device")
    if name.casefold() in RESERVED:
        raise DomainError(f"A device cannot be called {name!r}: hub:{name} means something else.")
    row = {
        "name": name,
        "user": user,
        "labels": _labels(device),
        "facts": _facts(device),
        "version": names.clean(device.version, most=100) or "",
        "skew_us": round(max(-1e9, min(device.skew_s, 1e9)) * 1e6),
        "heartbeat_us": now_us,
    }
    first = {"state": "ready", "failures": 0, "registered_us": now_us}
    if put_new(connection, "fleet_devices", {**row, **first}):
        return False  # a new one takes nothing away
    known = select(fleet_devices.c.user, fleet_devices.c.labels).where(fleet_devices.c.name == name)
    before = connection.execute(known.with_for_update()).one()
    if before.user != user and not takes_over:
        raise DomainError(
            f"There is a device {name!r} already: the one of {before.user}.", remedy="Choose another name with --name."
        )
    connection.execute(update(fleet_devices).where(fleet_devices.c.name == name).values(**row))
    return bool(before.labels != row["labels"])


def _labels(device: NewDevice) -> str:
    checked = {
        valid_label(key): sorted({valid_label(value, of=f"value of {key}") for value in values})
        for key, values in device.labels.items()
    }
    return msgspec.json.encode(dict(sorted(checked.items()))).decode()


def _facts(device: NewDevice) -> str:
    text = msgspec.json.encode(device.facts).decode()
    if len(text) > _FACTS:
        raise DomainError(f"What {device.name} says of itself has {len(text):,} characters, of {_FACTS:,} at most.")
    return text


def beat(connection: Connection, name: str, *, now_us: int) -> None:
    changed = connection.execute(
        update(fleet_devices).where(fleet_devices.c.name == name).values(heartbeat_us=now_us)
    )  # fmt: skip
    if not changed.rowcount:
        raise no_device(connection, name)


def set_state(connection: Connection, name: str, state: DeviceState, reason: str | None) -> None:
    """A device in maintenance or quarantine ends the job that it has and gets no other."""
    if state not in DEVICE_STATES:
        raise UnknownNameError("state", state, DEVICE_STATES, listing=f"There is: {', '.join(DEVICE_STATES)}.")
    values = {"state": state, "reason": names.clean(reason, most=2000), "failures": 0}
    changed = connection.execute(update(fleet_devices).where(fleet_devices.c.name == name).values(**values))
    if not changed.rowcount:
        raise no_device(connection, name)


def remove(connection: Connection, name: str) -> None:
    found = device_named(connection, name, facts=False)
    if found.job is not None:
        raise DomainError(f"{name} is measuring job {found.job}.", remedy="Cancel it, or wait for its end.")
    connection.execute(delete(fleet_devices).where(fleet_devices.c.name == name))


def failed(connection: Connection, name: str, reason: str, *, most: int) -> None:
    """It did not bring a job to an end. After several in a row it gets no more until somebody has looked."""
    row = connection.execute(select(fleet_devices).where(fleet_devices.c.name == name).with_for_update()).first()
    if row is None:
        return
    values: dict[str, object] = {"failures": row.failures + 1}
    if row.failures + 1 >= most and row.state == "ready":
        values |= {"state": "quarantined", "reason": f"It lost {row.failures + 1} jobs in a row. The last: {reason}"}
    connection.execute(update(fleet_devices).where(fleet_devices.c.name == name).values(**values))


def did_well(connection: Connection, name: str) -> None:
    connection.execute(
        update(fleet_devices).where(fleet_devices.c.name == name, fleet_devices.c.failures > 0).values(failures=0)
    )
