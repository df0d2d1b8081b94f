"""macOS and Windows: what psutil can read, the rest absent with the reason."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from inferometer.known.machine.detect.fields import pairs, whole
from inferometer.known.machine.detect.machine import Machine
from inferometer.known.machine.health.gpu_state import gpu_states
from inferometer.known.machine.health.readings import (
    Absent,
    BoardThrottle,
    Counters,
    CpuTime,
    LinkCounts,
    Load,
    MemoryState,
    Paging,
    ProcessTime,
    State,
    Supply,
    Temperature,
    installed_packages,
)

T = TypeVar("T")
_NAMES = {"Darwin": "macOS", "Windows": "Windows"}


def portable_counters(machine: Machine) -> Counters:
    system = _NAMES.get(machine.system, machine.system or "this system")
    ps = machine.module("psutil")
    linux_only = Absent(f"{system} does not report this")
    cpus = _asked(ps, lambda: tuple(_cpu_time(row) for row in ps.cpu_times(percpu=True)))
    return Counters(
        load=_load(machine, ps),
        queue=Absent(f"{system} does not count running tasks"),
        pressure=Absent(f"pressure information is Linux's; {system} has none"),
        cpu=_asked(ps, lambda: _cpu_time(ps.cpu_times())),
        cpus=cpus if isinstance(cpus, tuple) else (),
        processes=_asked(ps, lambda: _processes(ps)),
        memory=_asked(ps, lambda: _memory(ps)),
        paging=_paging(machine, ps),
        links=_asked(ps, lambda: _links(ps)),
        tcp=linux_only,
        disk_busy_s=linux_only,
        throttle_events=linux_only,
        quota=Absent("there is no CPU quota"),
    )


def portable_state(machine: Machine) -> State:
    system = _NAMES.get(machine.system, machine.system or "this system")
    ps = machine.module("psutil")
    return State(
        clocks=Absent(f"{system} does not show how the clock is chosen"),
        temperatures=_temperatures(ps, system),
        gpus=gpu_states(machine),
        kernel=Absent(f"{system}'s log is not read"),
        board=_thermal(machine, system),
        supply=_asked(ps, lambda: _supply(ps)),
        disks=machine.disks() or Absent("the file systems do not say how much room they have"),
        clock_source=Absent(f"{system} does not name its clock source"),
        packages=installed_packages(machine),
    )


def _asked(ps: Any, read: Callable[[], T]) -> T | Absent:
    """One question to psutil; its errors and a missing psutil are reasons."""
    if ps is None:
        return Absent("psutil is not installed")
    try:
        return read()
    except (ps.Error, OSError, AttributeError, NotImplementedError, RuntimeError) as error:
        return Absent(f"psutil could not read it ({type(error).__name__})")


def _load(machine: Machine, ps: Any) -> Load | Absent:
    if machine.system == "Windows":
        return Absent("Windows has no load average")
    return _asked(ps, lambda: Load(**dict(zip(("one", "five", "fifteen"), ps.getloadavg(), strict=True))))


def _cpu_time(row: Any) -> CpuTime:
    """The fields differ by system: everything that is not idle is busy."""
    times: Mapping[str, float] = row._asdict()
    idle = times.get("idle", 0.0)
    inside = {"guest", "guest_nice", "interrupt", "dpc"}  # Linux counts the first two, Windows the last two, twice
    busy = sum(value for name, value in times.items() if name not in inside | {"idle", "steal", "iowait"})
    return CpuTime(busy_s=busy, idle_s=idle + times.get("iowait", 0.0), steal_s=times.get("steal"))


def _processes(ps: Any) -> dict[int, ProcessTime]:
    processes = {}
    for process in ps.process_iter(["pid", "name", "cpu_times"]):
        times = process.info.get("cpu_times")
        pid = process.info.get("pid")
        if times is not None and pid:  # process 0 on Windows is the idle time itself
            name = str(process.info.get("name") or pid)[:64]
            processes[pid] = ProcessTime(name=name, cpu_s=times.user + times.system)
    return processes


def _memory(ps: Any) -> MemoryState:
    memory, swap = ps.virtual_memory(), ps.swap_memory()
    return MemoryState(
        total_bytes=memory.total,
        available_bytes=memory.available,
        swap_total_bytes=swap.total,
        swap_used_bytes=swap.used,
    )


def _paging(machine: Machine, ps: Any) -> Paging | Absent:
    if machine.system == "Windows":
        return Absent("psutil does not count swapping on Windows")

    def read() -> Paging:
        swap = ps.swap_memory()
        return Paging(in_bytes=swap.sin, out_bytes=swap.sout)

    return _asked(ps, read)


def _links(ps: Any) -> dict[str, LinkCounts]:
    loopback = ("lo", "Loopback")
    return {
        name: LinkCounts(
            packets=row.packets_sent + row.packets_recv, errors=row.errin + row.errout, drops=row.dropin + row.dropout
        )
        for name, row in ps.net_io_counters(pernic=True).items()
        if not name.startswith(loopback)
    }


def _temperatures(ps: Any, system: str) -> tuple[Temperature, ...] | Absent:
    if ps is None or not hasattr(ps, "sensors_temperatures"):
        return Absent(f"{system} shows programs no temperatures")
    chips = _asked(ps, ps.sensors_temperatures)
    if isinstance(chips, Absent):
        return chips
    rows = [(chip, row) for chip, chip_rows in chips.items() for row in chip_rows if row.current is not None]
    readings = tuple(
        Temperature(name=f"{chip} {row.label}".strip(), celsius=row.current, high_c=row.high, critical_c=row.critical)
        for chip, row in rows
    )
    return readings or Absent(f"{system} shows programs no temperatures")


def _supply(ps: Any) -> Supply:
    battery = ps.sensors_battery()
    if battery is None:
        return Supply(has_battery=False, on_mains=None, charge=None)
    return Supply(has_battery=True, on_mains=battery.power_plugged, charge=battery.percent / 100)


def parse_pmset_therm(text: str | None) -> BoardThrottle | None:
    """`CPU_Speed_Limit = 100`; a Mac with Apple silicon prints only that it has recorded nothing."""
    limits = {name: whole(pairs(text, "=").get(name)) for name in ("CPU_Speed_Limit", "CPU_Scheduler_Limit")}
    known = {name: limit for name, limit in limits.items() if limit is not None}
    if not known:
        return None
    now = tuple(f"{name.replace('_', ' ')} {limit} %" for name, limit in known.items() if limit < 100)
    return BoardThrottle(now=now, since_boot=())


def _thermal(machine: Machine, system: str) -> BoardThrottle | Absent:
    if machine.system != "Darwin":
        return Absent(f"{system} does not report throttling")
    throttle = parse_pmset_therm(machine.run("pmset", "-g", "therm"))
    return throttle or Absent("pmset records no CPU speed limit on this Mac")
