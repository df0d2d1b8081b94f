"""Lines of the kernel's log that mean trouble, as a table of patterns."""

import re
from collections.abc import Mapping

from inferometer.known.machine.detect.fields import lines_of, number
from inferometer.known.machine.health.readings import KernelEvent

PATTERNS: Mapping[str, re.Pattern[str]] = {
    "out of memory": re.compile(r"Out of memory: Kill|oom-kill:|Memory cgroup out of memory"),
    "hardware error": re.compile(r"\[Hardware Error\]|Machine check events logged|EDAC .*\b[CU]E\b"),
    "too hot": re.compile(
        r"temperature above threshold|thermal throttling|critical temperature reached", re.IGNORECASE
    ),
    "low voltage": re.compile(r"under-?voltage detected", re.IGNORECASE),
    "over current": re.compile(r"soctherm: OC ALARM|over-current (change|condition)"),
    "I/O error": re.compile(r"\bI/O error\b|(EXT4|XFS|BTRFS)[^:]*error|nvme.*: I/O .*timeout|critical medium error"),
    "GPU error": re.compile(r"NVRM: Xid|amdgpu.*(GPU reset|ring .* timeout)|i915.*GPU HANG"),
    "hung": re.compile(r"blocked for more than \d+ seconds|soft lockup|hard LOCKUP|rcu.* detected .*stall"),
    "PCIe error": re.compile(r"PCIe Bus Error"),
}

_STAMP = re.compile(r"\[\s*([0-9]{1,12}\.[0-9]{1,9})\]\s?")
_TEXT_AT_MOST = 160


def parse_kernel_log(text: str | None, uptime_s: float | None) -> tuple[KernelEvent, ...]:
    """The lines of `dmesg` that match a pattern, oldest first; each under the first kind that fits."""
    events = []
    for line in lines_of(text):
        kind = next((kind for kind, pattern in PATTERNS.items() if pattern.search(line)), None)
        if kind is None:
            continue
        stamp = _STAMP.search(line)
        at = number(stamp[1]) if stamp else None
        age = max(uptime_s - at, 0.0) if uptime_s is not None and at is not None else None
        events.append(KernelEvent(kind=kind, age_s=age, text=_STAMP.sub("", line).strip()[:_TEXT_AT_MOST]))
    return tuple(events)
