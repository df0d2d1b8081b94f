"""Devices of the fleet: register, give a sign of life, be taken out and put back."""

from statistics import median

import msgspec
from sqlalchemy import Connection, case, delete, func, insert, select, update

from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.store import names
from inferometer.store.finding import project_id, value_of
from inferometer.store.queue.rows import device_named, no_device
from inferometer.store.queue.values import DEVICE_STATES, DeviceFault, DeviceState, Moment, NewDevice
from inferometer.store.queue.wanted import valid_label
from inferometer.store.tables import fleet_checks, fleet_device_projects, fleet_devices, fleet_faults, projects
from inferometer.store.upserts import put_new

_FACTS = 1_000_000  # characters
RESERVED = ("any", "each")  # `hub:any` is no device
_USUAL, _LEAST = 20, 3  # checks that say how long a device's reference usually takes, and that are enough
_FAR = 1.5  # times as long, or as short, from which on a device is not the one that it was


@frozen
class Registrar:
    """Who registers a device. `takes_over`: also another's, as an administrator may.

    `project` is the one that their token is for. `everyone`: the hub has no tokens, and all jobs are theirs.
    """

    user: str = "local"
    project: str | None = None
    everyone: bool = True
    takes_over: bool = False


def register(connection: Connection, device: NewDevice, by: Registrar, *, now_us: int) -> bool:
    """Make the device, or bring what is known of it up to date; gives whether its labels have changed.

    Its state, and what projects it works for, stay as somebody set them. A name belongs to whoever registered it first.
    """
    name = valid_label(device.name, of="name of a device")
    if name.casefold() in RESERVED:
        raise DomainError(f"A device cannot be called {name!r}: hub:{name} means something else.")
    checked = {
        valid_label(key): sorted({valid_label(value, of=f"value of {key}") for value in values})
        for key, values in device.labels.items()
    }
    labels = msgspec.json.encode(dict(sorted(checked.items()))).decode()
    row = {
        "name": name,
        "user": by.user,
        "labels": labels,
        "facts": _facts(device),
        "version": names.clean(device.version, most=100) or "",
        "skew_us": round(max(-1e9, min(device.skew_s, 1e9)) * 1e6),
        "heartbeat_us": now_us,
        "token": device.token,
        "probes": device.probes,
    }
    first = {"state": "ready", "failures": 0, "registered_us": now_us, "everyone": by.everyone}
    if put_new(connection, "fleet_devices", {**row, **first}):
        _work_for_project(connection, name, by.project)
        return False  # a new one takes nothing away
    known = select(fleet_devices.c.user, fleet_devices.c.labels).where(fleet_devices.c.name == name)
    before = connection.execute(known.with_for_update()).one()
    if before.user != by.user and not by.takes_over:
        raise DomainError(
            f"There is a device {name!r} already, of somebody else.", remedy="Choose another name with --name."
        )
    if by.everyone:
        row["everyone"] = True
    connection.execute(update(fleet_devices).where(fleet_devices.c.name == name).values(**row))
    _work_for_project(connection, name, by.project)
    return bool(before.labels != row["labels"])


def _work_for_project(connection: Connection, name: str, project: str | None) -> None:
    if project is not None:
        row = {"device": name, "project_id": project_id(connection, project)}
        put_new(connection, "fleet_device_projects", row)


def share(connection: Connection, name: str, project: str | None, *, shared: bool = True) -> None:
    """Let a device take the jobs of a project, or of every one (None); or not any more."""
    if project is None:
        everyone = update(fleet_devices).where(fleet_devices.c.name == name).values(everyone=shared)
        if not connection.execute(everyone).rowcount:
            raise no_device(connection, name)
        return
    device_named(connection, name, facts=False)
    if shared:
        _work_for_project(connection, name, project)
        return
    of = fleet_device_projects.c
    gone = delete(fleet_device_projects).where(of.device == name, of.project_id == project_id(connection, project))
    if not connection.execute(gone).rowcount:
        raise UnknownNameError("project of this device", project, projects_of(connection, name))


def projects_of(connection: Connection, name: str) -> list[str]:
    """The projects that a device was given to, by name."""
    query = select(projects.c.name).join(fleet_device_projects, fleet_device_projects.c.project_id == projects.c.id)
    return list(
        connection.execute(query.where(fleet_device_projects.c.device == name).order_by(projects.c.name)).scalars()
    )


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


def set_state(connection: Connection, name: str, state: DeviceState, reason: str | None, *, now_us: int) -> None:
    """A device in maintenance or quarantine ends the job that it has and gets no other.

    One that comes back from quarantine is probed first.
    """
    if state not in DEVICE_STATES:
        raise UnknownNameError("state", state, DEVICE_STATES, listing=f"There is: {', '.join(DEVICE_STATES)}.")
    again = case((fleet_devices.c.state == "quarantined", now_us), else_=fleet_devices.c.probe_us)
    values = {"state": state, "reason": names.clean(reason, most=2000), "failures": 0, "probe_us": again}
    changed = connection.execute(update(fleet_devices).where(fleet_devices.c.name == name).values(**values))
    if not changed.rowcount:
        raise no_device(connection, name)


def remove(connection: Connection, name: str) -> None:
    found = device_named(connection, name, facts=False)
    if found.job is not None:
        raise DomainError(f"{name} is measuring job {found.job}.", remedy="Cancel it, or wait for its end.")
    connection.execute(delete(fleet_devices).where(fleet_devices.c.name == name))


def failed(connection: Connection, name: str, reason: str, moment: Moment, *, lied: bool = False) -> None:
    """It did not bring a job to an end. After several in a row it gets no more until somebody has looked.

    Before that it is probed; after one answer that cannot be (`lied`), at once.
    """
    row = connection.execute(select(fleet_devices).where(fleet_devices.c.name == name).with_for_update()).first()
    if row is None:
        return
    failures, timing = row.failures + 1, moment.timing
    values: dict[str, object] = {"failures": failures}
    if failures >= timing.often or lied:
        values["probe_us"] = moment.now_us
    if failures >= timing.failures and row.state == "ready":
        values |= {"state": "quarantined", "reason": f"It lost {failures} jobs in a row. The last: {reason}"}
    connection.execute(update(fleet_devices).where(fleet_devices.c.name == name).values(**values))


def probed(connection: Connection, name: str, reference_s: float | None) -> None:
    """It has run its reference alone, or could not (None): as the device that it was, it gets jobs again.

    If it is not that device, somebody has to look.
    """
    device = device_named(connection, name, facts=False)
    values: dict[str, object] = {"probe_us": None}
    wrong = _wrong_with(connection, name, reference_s)
    if wrong is not None and device.state == "ready":
        values = {"state": "quarantined", "reason": f"It was probed: {wrong}"}
    connection.execute(update(fleet_devices).where(fleet_devices.c.name == name).values(**values))


def _wrong_with(connection: Connection, name: str, reference_s: float | None) -> str | None:
    if reference_s is None:
        return "it could not run its reference."
    query = select(fleet_checks.c.before_s).where(fleet_checks.c.device == name).order_by(fleet_checks.c.at_us.desc())
    usual = list(connection.execute(query.limit(_USUAL)).scalars())
    if len(usual) < _LEAST:
        return None  # nothing to compare it with: that it runs at all is enough
    times = reference_s / median(usual)
    return None if 1 / _FAR < times < _FAR else f"its reference takes {times:.2g} times as long as usual."


def mark(connection: Connection, fault: DeviceFault, lease: str | None, document: bytes | None = None) -> bool:
    """Write down what a device did wrong; of one lease each thing once, however often it is sent."""
    reason = names.clean(fault.reason, most=2000) or ""
    same = (fleet_faults.c.device == fault.device, fleet_faults.c.lease == lease, fleet_faults.c.reason == reason)
    if connection.execute(select(fleet_faults.c.id).where(*same).limit(1)).first() is not None:
        return False
    row = {
        "device": fault.device, "job_id": fault.job, "lease": lease, "at_us": round(fault.at * 1e6), "reason": reason,
        "document": document,
    }  # fmt: skip
    connection.execute(insert(fleet_faults), [row])
    return True


def faults_of(connection: Connection, name: str, most: int) -> tuple[DeviceFault, ...]:
    """The newest first."""
    kept = fleet_faults.c.document.is_not(None).label("kept")
    columns = (fleet_faults.c.device, fleet_faults.c.job_id, fleet_faults.c.at_us, fleet_faults.c.reason, kept)
    query = select(*columns).where(fleet_faults.c.device == name).order_by(fleet_faults.c.at_us.desc()).limit(most)
    rows = connection.execute(query).mappings()
    return tuple(value_of(DeviceFault, row, kept=bool(row["kept"])) for row in rows)


def faults_since(connection: Connection, since_us: int) -> dict[str, int]:
    """How many each device has had since then."""
    query = select(fleet_faults.c.device, func.count()).where(fleet_faults.c.at_us >= since_us)
    return {row[0]: row[1] for row in connection.execute(query.group_by(fleet_faults.c.device))}


def did_well(connection: Connection, name: str) -> None:
    connection.execute(
        update(fleet_devices).where(fleet_devices.c.name == name, fleet_devices.c.failures > 0).values(failures=0)
    )
