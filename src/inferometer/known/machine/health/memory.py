"""Is there room? free and vmstat of the one-minute checklist."""

from inferometer.core.units import format_quantity
from inferometer.known.machine.health.check import Outcome, Topic, bad, good, grade, topic, warn
from inferometer.known.machine.health.cpu import pressure_outcome
from inferometer.known.machine.health.readings import Readings, both, known


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


TOPICS: tuple[Topic, ...] = (memory_low, memory_pressure, swap_in_use, swapping)
