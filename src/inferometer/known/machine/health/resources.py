"""Memory, disks and the network: free, vmstat, iostat and sar of the one-minute checklist."""

from collections.abc import Mapping

from inferometer.core.units import format_quantity
from inferometer.known.machine.health.check import Outcome, Topic, bad, good, grade, topic, unknown, warn
from inferometer.known.machine.health.cpu import pressure_outcome
from inferometer.known.machine.health.readings import LinkCounts, Readings, both, known

_SEGMENTS_TO_JUDGE = 100


@topic(
    "memory-low",
    title="Available memory",
    what="The memory that programs can still have without swapping, of the machine or of the container's limit.",
    why="A model that does not fit is read from disk again for every token, or ends the process; file caches that are "
    "squeezed make the first run of every model slow.",
    remedy="Close programs, use a smaller or more quantised model, or raise the container's memory limit.",
)
def memory_low(readings: Readings) -> Outcome:
    memory = known(readings.after.memory)
    share = memory.available_bytes / memory.total_bytes if memory.total_bytes > 0 else 0.0
    found = (
        f"{format_quantity(memory.available_bytes, 'B', digits=3)} of "
        f"{format_quantity(memory.total_bytes, 'B', digits=3)} available ({share:.0%})"
    )
    numbers = {"available_bytes": float(memory.available_bytes), "total_bytes": float(memory.total_bytes)}
    return Outcome(verdict=grade(1 - share, 0.80, 0.90), found=found, numbers=numbers)


@topic(
    "memory-pressure",
    title="Memory pressure",
    what="The share of time in which some task waited for memory (pressure stall information).",
    why="Waiting for memory means that pages are being fetched back from disk or freed for someone else, in the middle "
    "of what is being measured.",
    remedy="Free memory: close programs or use a smaller model.",
    bearing="disturbs",
)
def memory_pressure(readings: Readings) -> Outcome:
    return pressure_outcome(readings, "memory", 0.005, 0.05)


@topic(
    "swap-in-use",
    title="Swap in use",
    what="How much of the swap space holds pages that were pushed out of memory.",
    why="What was pushed out once has to come back when it is touched; it also shows that memory was short before.",
    remedy="Free memory, then `sudo swapoff -a && sudo swapon -a` brings the pages back.",
)
def swap_in_use(readings: Readings) -> Outcome:
    memory = known(readings.after.memory)
    used = memory.swap_used_bytes
    numbers = {"used_bytes": float(used), "total_bytes": float(memory.swap_total_bytes)}
    if memory.swap_total_bytes <= 0:
        return good("there is no swap", numbers)
    found = (
        f"{format_quantity(used, 'B', digits=3)} of {format_quantity(memory.swap_total_bytes, 'B', digits=3)} in use"
    )
    # Linux and macOS put a little there in quiet times; a hundredth of the memory is more than that.
    return warn(found, numbers) if used > 0.01 * memory.total_bytes else good(found, numbers)


@topic(
    "swapping",
    title="Swapping",
    what="Bytes that moved between memory and swap during the interval.",
    why="A disk is a thousand times slower than memory: while pages move, times measure the disk.",
    remedy="Free memory, or use a smaller model, until nothing moves.",
    bearing="disturbs",
)
def swapping(readings: Readings) -> Outcome:
    before, after = both(readings.before.paging, readings.after.paging)
    moved_in = max(after.in_bytes - before.in_bytes, 0) / readings.seconds
    moved_out = max(after.out_bytes - before.out_bytes, 0) / readings.seconds
    numbers = {"in_bytes_per_s": moved_in, "out_bytes_per_s": moved_out}
    if moved_in + moved_out <= 0:
        return good("nothing moved", numbers)
    found = f"{format_quantity(moved_in, 'B/s', digits=3)} in, {format_quantity(moved_out, 'B/s', digits=3)} out"
    return bad(found, numbers) if moved_in + moved_out >= 1e6 else warn(found, numbers)


@topic(
    "disk-space-low",
    title="Disk space",
    what="The room left where measuring writes: the working folder and the folder for temporary files.",
    why="Models that are synthesised or converted take gigabytes; a run that cannot write its result is a run lost.",
    remedy="Free disk space, or work in a folder on another disk.",
    bearing="none",
)
def disk_space_low(readings: Readings) -> Outcome:
    disks = known(readings.state.disks)
    least = min(disk.free_bytes for disk in disks)
    found = ", ".join(f"{format_quantity(disk.free_bytes, 'B', digits=3)} free in the {disk.name}" for disk in disks)
    return Outcome(verdict=grade(-least, -5e9, -1e9), found=found, numbers={"free_bytes": float(least)})


@topic(
    "io-pressure",
    title="I/O pressure",
    what="The share of time in which some task waited for a disk (pressure stall information).",
    why="Loading a model, memory-mapped weights and result files share the disk with whoever keeps it busy.",
    remedy="Wait until copies, updates and backups are done.",
    bearing="disturbs",
)
def io_pressure(readings: Readings) -> Outcome:
    return pressure_outcome(readings, "io", 0.05, 0.20)


@topic(
    "disk-busy",
    title="Disk use",
    what="The share of the interval in which each disk had something to do.",
    why="A busy disk makes loading times a measure of the others' work.",
    remedy="Wait until copies, updates and backups are done.",
)
def disk_busy(readings: Readings) -> Outcome:
    before, after = both(readings.before.disk_busy_s, readings.after.disk_busy_s)
    seconds = readings.seconds
    shares = {n: min(max(busy - before[n], 0.0) / seconds, 1.0) for n, busy in after.items() if n in before}
    if not shares:
        return unknown("the disks changed between the two readings")
    name, share = max(shares.items(), key=lambda item: item[1])
    return Outcome(
        verdict=grade(share, 0.20, 0.60),
        found=f"{name} busy {share:.0%} of the time" if share > 0 else "no disk is busy",
        numbers={"busiest": share},
    )


def _sum(links: Mapping[str, LinkCounts]) -> LinkCounts:
    return LinkCounts(
        packets=sum(link.packets for link in links.values()),
        errors=sum(link.errors for link in links.values()),
        drops=sum(link.drops for link in links.values()),
    )


@topic(
    "network-errors",
    title="Network errors",
    what="Packets that the network interfaces lost or received broken: during the interval, and since boot.",
    why="It matters when a server is measured over the network: a lost packet costs a retransmission, which costs "
    "hundreds of milliseconds in the tail.",
    remedy="Look at the cable, the switch port and the driver of the interface; measure over loopback meanwhile.",
)
def network_errors(readings: Readings) -> Outcome:
    before, after = both(readings.before.links, readings.after.links)
    first, last = _sum(before), _sum(after)
    fresh = max(last.errors - first.errors, 0) + max(last.drops - first.drops, 0)
    share = (last.errors + last.drops) / last.packets if last.packets > 0 else 0.0
    found = f"{fresh} errors and drops just now, {last.errors} errors and {last.drops} drops since boot ({share:.2%})"
    numbers = {"now": float(fresh), "errors": float(last.errors), "drops": float(last.drops), "share": share}
    return warn(found, numbers) if fresh > 0 or share >= 0.01 else good(found, numbers)


@topic(
    "tcp-retransmits",
    title="TCP retransmissions",
    what="The share of TCP segments that had to be sent again: during the interval if enough were sent, else since "
    "boot.",
    why="Each one delays an answer by at least the retransmission time, which shows as a latency tail of a server "
    "that is not the server's.",
    remedy="Look at network-errors; try another network path; measure on the server itself.",
)
def tcp_retransmits(readings: Readings) -> Outcome:
    before, after = both(readings.before.tcp, readings.after.tcp)
    sent, again = max(after.sent - before.sent, 0), max(after.retransmitted - before.retransmitted, 0)
    when = "just now"
    if sent < _SEGMENTS_TO_JUDGE:
        sent, again, when = after.sent, after.retransmitted, "since boot"
    if sent < _SEGMENTS_TO_JUDGE:
        return good(f"{sent} segments sent since boot, too few to judge", {"sent": float(sent)})
    share = again / sent
    return Outcome(
        verdict=grade(share, 0.01, 0.05),
        found=f"{share:.2%} of {sent} segments sent again {when}",
        numbers={"share": share, "sent": float(sent)},
    )


TOPICS: tuple[Topic, ...] = (
    memory_low, memory_pressure, swap_in_use, swapping,
    disk_space_low, io_pressure, disk_busy, network_errors, tcp_retransmits,
)  # fmt: skip
