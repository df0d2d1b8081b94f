"""Will the clock hold? Governor, caps, throttling, heat, and the timer itself."""

from collections import Counter
from collections.abc import Mapping

from inferometer.core.units import format_quantity
from inferometer.known.machine.health.check import Outcome, Topic, bad, good, topic, unknown, warn
from inferometer.known.machine.health.readings import Absent, ClockPolicy, GpuState, Readings, Temperature, known

# With these drivers "powersave" is a policy of the hardware that still clocks up; with others it is the lowest clock.
_OWN_POLICY = frozenset({"intel_pstate", "amd-pstate-epp", "amd_pstate_epp"})

# NVML's clock event reasons: bit → (what it is, whether it is a slowdown that ruins a measurement).
THROTTLE_REASONS: Mapping[int, tuple[str, bool]] = {
    0x2: ("application clocks are set", False),
    0x4: ("power cap", False),
    0x8: ("hardware slowdown", True),
    0x10: ("sync boost", False),
    0x20: ("software thermal slowdown", True),
    0x40: ("hardware thermal slowdown", True),
    0x80: ("hardware power brake", True),
    0x100: ("display clocks are set", False),
}

_FAST_SOURCES = frozenset({"tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "riscv_clocksource"})
_SLOW_SOURCES = frozenset({"hpet", "acpi_pm", "jiffies", "refined-jiffies"})


@topic(
    "cpu-governor",
    title="CPU frequency governor",
    what="Which policy chooses the clock of each CPU.",
    why="A governor that follows the load starts every short run at a low clock: the first runs are slow, and so is "
    "every run with pauses between requests.",
    remedy="`sudo cpupower frequency-set -g performance`.",
)
def cpu_governor(readings: Readings) -> Outcome:
    clocks = known(readings.state.clocks)
    governors = Counter(policy.governor for policy in clocks if policy.governor)
    if not governors:
        return unknown("no CPU names its governor")
    found = ", ".join(f"{name} on {count} CPUs" for name, count in governors.most_common())
    numbers = {"cpus": float(sum(governors.values())), "performance": float(governors.get("performance", 0))}
    if any(policy.governor == "powersave" and policy.driver not in _OWN_POLICY for policy in clocks):
        return bad(f"{found}: the lowest clock, always", numbers)
    return good(found, numbers) if set(governors) == {"performance"} else warn(found, numbers)


def _cap(policy: ClockPolicy) -> float | None:
    if policy.allowed_hz is None or not policy.max_hz:
        return None
    return policy.allowed_hz / policy.max_hz


@topic(
    "cpu-clock-capped",
    title="CPU clock cap",
    what="The highest clock the system allows, against the highest the CPU has; the clock just now beside it.",
    why="A cap set by a power profile, a laptop's firmware or a cooling service lowers the peak that every utilisation "
    "is divided by.",
    remedy="Choose the performance power profile (powerprofilesctl, tuned-adm, nvpmodel), or lift scaling_max_freq.",
)
def cpu_clock_capped(readings: Readings) -> Outcome:
    clocks = known(readings.state.clocks)
    caps = [(cap, policy.max_hz or 0.0) for policy in clocks if (cap := _cap(policy)) is not None]
    if not caps:
        return unknown("no CPU reports its highest clock")
    now = [policy.current_hz for policy in clocks if policy.current_hz is not None]
    share, top = min(caps, key=lambda pair: (pair[0], -pair[1]))  # the CPU with the tightest cap, the fastest of them
    current = f", now up to {format_quantity(max(now), 'Hz', digits=3)}" if now else ""
    found = f"{share:.0%} of {format_quantity(top, 'Hz', digits=3)} allowed{current}"
    numbers = {"allowed": share, "max_hz": top} | ({"current_hz": max(now)} if now else {})
    return Outcome(verdict="bad" if share < 0.70 else "warn" if share < 0.95 else "good", found=found, numbers=numbers)


@topic(
    "cpu-throttled",
    title="CPU throttling",
    what="Whether heat or a weak power supply has lowered the clock: the CPU's counters, a Raspberry Pi's firmware, "
    "macOS's speed limit.",
    why="A throttled clock makes later runs slower than earlier ones, and a comparison then finds differences that are "
    "the cooling's.",
    remedy="Improve cooling or the power supply, let the machine cool, and measure with pauses.",
    bearing="disturbs",
)
def cpu_throttled(readings: Readings) -> Outcome:
    before, after, board = readings.before.throttle_events, readings.after.throttle_events, readings.state.board
    if isinstance(after, Absent) and isinstance(board, Absent):
        return unknown(f"{after.why}; {board.why}")
    fresh = after - before if isinstance(after, int) and isinstance(before, int) else 0
    total = after if isinstance(after, int) else 0
    now = () if isinstance(board, Absent) else board.now
    past = () if isinstance(board, Absent) else board.since_boot
    numbers = {"now": float(max(fresh, 0) + len(now)), "since_boot": float(total + len(past))}
    if fresh > 0 or now:
        return bad(f"now: {', '.join(now) or f'{fresh} events in the interval'}", numbers)
    if total or past:
        return warn(f"since boot: {', '.join(past) or f'{total} events'}; not now", numbers)
    return good("none since boot", numbers)


@topic(
    "gpu-throttled",
    title="GPU throttling",
    what="The reasons that the NVIDIA driver gives for a lower clock than the highest.",
    why="A GPU at its heat or power limit clocks down by itself within seconds of load; two measurements are only "
    "comparable with the same reason, or none.",
    remedy="Improve cooling; set a lower fixed clock (nvidia-smi -lgc) for comparisons; check the power limit.",
    bearing="disturbs",
)
def gpu_throttled(readings: Readings) -> Outcome:
    gpus = known(readings.state.gpus)
    answering = [(gpu, gpu.throttle) for gpu in gpus if gpu.throttle is not None]
    if not answering:
        return unknown("this GPU's driver gives no reasons")
    active = [THROTTLE_REASONS[bit] for _, bits in answering for bit in THROTTLE_REASONS if bits & bit]
    numbers = {"reasons": float(len(active))}
    if not active:
        return good(f"no reason on {len(answering)} GPU{'s' if len(answering) > 1 else ''}", numbers)
    found = ", ".join(dict.fromkeys(name for name, _ in active))
    return bad(found, numbers) if any(slow for _, slow in active) else warn(found, numbers)


@topic(
    "gpu-busy",
    title="GPU use",
    what="How busy each GPU is, and how much of its memory is taken, before anything is measured.",
    why="Another process on the GPU takes turns with the model and holds memory that a batch may need.",
    remedy="Stop the other process (nvidia-smi lists them), or choose another GPU with CUDA_VISIBLE_DEVICES.",
    bearing="disturbs",
)
def gpu_busy(readings: Readings) -> Outcome:
    gpus = known(readings.state.gpus)
    uses = [gpu.busy for gpu in gpus if gpu.busy is not None]
    shares = [share for share in (_memory_share(gpu) for gpu in gpus) if share is not None]
    if not uses and not shares:
        return unknown("this GPU's driver does not report how busy it is")
    busy, held = max(uses, default=0.0), max(shares, default=0.0)
    found = f"the busiest {busy:.0%} in use, the fullest {held:.0%} of its memory"
    numbers = {"busy": busy, "memory": held}
    if busy >= 0.30:
        return bad(found, numbers)
    return warn(found, numbers) if busy >= 0.05 or held >= 0.20 else good(found, numbers)


def _memory_share(gpu: GpuState) -> float | None:
    if gpu.memory_used_bytes is None or not gpu.memory_total_bytes:
        return None
    return gpu.memory_used_bytes / gpu.memory_total_bytes


@topic(
    "temperature-high",
    title="Temperature",
    what="The hottest sensor against its own limit; without one, against 90 °C.",
    why="A machine that is hot before the measurement throttles during it.",
    remedy="Let it cool, and look at fans, dust and the room.",
)
def temperature_high(readings: Readings) -> Outcome:
    sensors = readings.state.temperatures
    gpus = () if isinstance(readings.state.gpus, Absent) else readings.state.gpus
    heat = [
        Temperature(name=gpu.name, celsius=gpu.celsius, high_c=None, critical_c=None)
        for gpu in gpus
        if gpu.celsius is not None
    ]
    every = [*(() if isinstance(sensors, Absent) else sensors), *heat]
    if not every:
        return unknown(sensors if isinstance(sensors, Absent) else "no sensor")
    nearest = min(every, key=_margin)
    hottest = max(every, key=lambda reading: reading.celsius)
    margin = _margin(nearest)
    named = nearest if margin < 10 else hottest
    found = f"{named.name} {named.celsius:.0f} °C"
    if margin < 10:
        found += f", {margin:.0f} °C below its limit" if margin > 0 else ", at its limit"
    elif len(every) > 1:
        found += f", the hottest of {len(every)} sensors"
    numbers = {"hottest_c": hottest.celsius, "margin_c": margin}
    if margin <= 0:
        return bad(found, numbers)
    return warn(found, numbers) if margin < 10 else good(found, numbers)


def _margin(reading: Temperature) -> float:
    """Degrees to where the clock would be lowered: below `high`, or 5 °C before `critical`, or 90 °C."""
    if reading.high_c is not None and reading.high_c > 40:
        return reading.high_c - reading.celsius
    if reading.critical_c is not None and reading.critical_c > 40:
        return reading.critical_c - 5 - reading.celsius
    return 90 - reading.celsius


@topic(
    "clock-source",
    title="Clock source",
    what="The timer behind every time stamp.",
    why="Reading a slow timer (hpet, acpi_pm) costs a microsecond or more and cannot resolve a short kernel.",
    remedy="Boot with clocksource=tsc, if the kernel did not disable it for a reason; in a VM ask for kvm-clock.",
)
def clock_source(readings: Readings) -> Outcome:
    source = known(readings.state.clock_source)
    if source in _SLOW_SOURCES:
        return bad(source)
    return good(source) if source in _FAST_SOURCES else warn(f"{source}, whose cost is not known")


TOPICS: tuple[Topic, ...] = (
    cpu_governor,
    cpu_clock_capped,
    cpu_throttled,
    gpu_throttled,
    gpu_busy,
    temperature_high,
    clock_source,
)
