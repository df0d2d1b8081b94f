"""What the machine runs in and on: the kernel's log, the supply, limits, versions."""

from collections import Counter

from inferometer.core.units import format_quantity
from inferometer.known.machine.health.check import Outcome, Topic, bad, good, topic, unknown, warn
from inferometer.known.machine.health.readings import Absent, Readings, engine_packages, known

_RECENT_S = 3600.0


@topic(
    "kernel-errors",
    title="Kernel errors",
    what="Lines of the kernel's log about memory, hardware, heat, voltage, disks and GPUs that failed.",
    why="A machine with memory errors, a resetting GPU or a disk that times out gives numbers that repeat on no other.",
    remedy="Read the lines with `sudo dmesg --level=err,warn`, and mend or replace what they name before measuring.",
    bearing="disturbs",
)
def kernel_errors(readings: Readings) -> Outcome:
    events = readings.state.kernel
    if isinstance(events, Absent):
        return unknown(events, remedy="Look with `sudo dmesg --level=err,warn`.")
    if not events:
        return good("no line about a failure", {"events": 0.0, "recent": 0.0})
    recent = [event for event in events if event.age_s is None or event.age_s <= _RECENT_S]
    kinds = Counter(event.kind for event in recent or events)
    named = ", ".join(f"{kind} ({count})" for kind, count in kinds.most_common(4))
    numbers = {"events": float(len(events)), "recent": float(len(recent))}
    if recent:
        return bad(f"{named} in the last hour; the last: {recent[-1].text}", numbers)
    return warn(f"{named}, none in the last hour", numbers)


@topic(
    "on-battery",
    title="Power supply",
    what="Whether the machine runs on mains or on its battery.",
    why="On battery, firmware lowers power limits and clocks, differently at every charge.",
    remedy="Plug it in, and wait until the power profile has changed.",
    bearing="disturbs",
)
def on_battery(readings: Readings) -> Outcome:
    supply = readings.state.supply
    if isinstance(supply, Absent):
        return unknown(supply)
    if not supply.has_battery:
        return good("no battery: on mains")
    charge = f", battery at {supply.charge:.0%}" if supply.charge is not None else ""
    numbers = {} if supply.charge is None else {"charge": supply.charge}
    if supply.on_mains is None:
        return unknown(f"the system does not say whether it is plugged in{charge}")
    return good(f"on mains{charge}", numbers) if supply.on_mains else bad(f"on battery{charge}", numbers)


@topic(
    "container-limits",
    title="Container and affinity limits",
    what="CPUs and memory that a container, a CPU set, a quota or an affinity mask takes away, and whether the quota "
    "stopped this container during the interval.",
    why="A quota does not slow the CPU down: it stops all threads for the rest of each tenth of a second, which shows "
    "as latencies with two humps. Engines that start a thread for each CPU of the host then make it worse.",
    remedy="Set the engine's threads to the CPUs that are allowed; measure without a quota, with a CPU set instead.",
)
def container_limits(readings: Readings) -> Outcome:
    host, before, after = readings.host, readings.before.quota, readings.after.quota
    limits, logical = host.limits, host.cpu.logical_cores
    usable, memory = host.usable_cpus, limits.memory_bytes
    stops = after.stops - before.stops if not isinstance(after, Absent) and not isinstance(before, Absent) else 0
    parts = [f"{usable:g} of {logical} CPUs"] if usable is not None and logical and usable < logical else []
    if limits.quota_cpus is not None:
        parts.append(f"by a quota of {limits.quota_cpus:g}")
    if memory is not None and (host.memory.total_bytes is None or memory < host.memory.total_bytes):
        parts.append(f"{format_quantity(memory, 'B', digits=3)} of memory")
    numbers = {"usable_cpus": usable} if usable is not None else {}
    where = f" in {limits.container}" if limits.container else ""
    if stops > 0:
        return bad(f"stopped {stops} times by the quota: {', '.join(parts)}{where}", numbers | {"stops": float(stops)})
    if parts:
        return warn(f"only {', '.join(parts)}{where}", numbers)
    if usable is None:
        return unknown("the number of CPUs is not known")
    return good(f"all {usable:g} CPUs may be used{where}", numbers)


@topic(
    "versions",
    title="Versions",
    what="Python, numpy, this program, and the inference engines that are installed.",
    why="An engine's version is part of every result: two results with different versions compare two programs.",
    remedy="Install an engine: `inferometer runtimes` lists them, and how to get each.",
    bearing="none",
)
def versions(readings: Readings) -> Outcome:
    packages = readings.state.packages
    python = f"Python {readings.host.python}" if readings.host.python else None
    listed = [python, *(f"{name} {version}" for name, version in packages.items())]
    found = ", ".join(part for part in listed if part)
    if not found:
        return unknown("neither Python nor the packages tell their version")
    engines = len(packages.keys() & set(engine_packages()))
    numbers = {"engines": float(engines)}
    return good(found, numbers) if engines else warn(f"{found}; no inference engine is installed", numbers)


@topic(
    "host-speed",
    title="Host speed",
    what="The time of one call from Python into compiled code: a fixed piece of the work that starts a kernel.",
    why="A GPU that is given its kernels one by one waits for its host, so an eager step takes longer on a slower "
    "host with the same GPU. Calibrations carry the figure of the host that they were made on.",
    remedy="Predictions for this machine's own GPU take it by themselves. For a GPU in another host give that host's: "
    "`inferometer predict … --host-speed TIME`.",
    bearing="none",
)
def host_speed(readings: Readings) -> Outcome:
    seconds = known(readings.call_s)
    return good(f"{format_quantity(seconds, 's', digits=3)} a call from Python", {"call_s": seconds})


@topic(
    "job-box",
    title="Box for jobs",
    what="What keeps a job of somebody else from this machine's files, network and memory when an agent runs it, or a "
    "hub reads its model.",
    why="A model's file can bring an engine to do what nobody meant, and a small one can ask for all memory there is.",
    remedy="Install bubblewrap (Linux). `inferometer hub agent --box strict` takes no job without a box.",
    bearing="none",
)
def job_box(readings: Readings) -> Outcome:
    means = known(readings.box)
    return good(means.said) if means.real else warn(means.said)


TOPICS: tuple[Topic, ...] = (kernel_errors, on_battery, container_limits, versions, host_speed, job_box)
