"""A power meter that the user names: a smart plug that answers in JSON, or the CSV that a meter's program writes.

It stands between the machine and the mains, so it measures all of it, and nothing else is counted beside it.
"""

import csv
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from inferometer.core.errors import DomainError
from inferometer.core.json_text import parse_json
from inferometer.core.units import format_quantity
from inferometer.known.machine.detect.fields import number
from inferometer.measure.spans.sensors import Channel, Sensors

_ANSWER_S = 2.0  # a plug in the same house answers in a tenth of it
_PLUG_S = 1.0  # Shelly and Tasmota measure about once a second
_READ_BYTES = 2**23  # from the end of a log: days of a meter that writes each second
# Watts by their names: Shelly's second generation, its meters, the first, Tasmota, and what we ask of others.
_PLUG_WATTS = ("apower", "act_power", "total_act_power", "power", "Power", "power_w")
_PLUG_PARTS = ("switch:0", "pm1:0", "em1:0", "em:0", "meters", "emeters", "StatusSNS", "ENERGY")
_TIME = ("time", "timestamp", "datetime", "date", "epoch", "epoch_s", "time_s", "t")
_WATTS = {"power_w": 1.0, "watts": 1.0, "watt": 1.0, "w": 1.0, "power": 1.0, "power_mw": 1e-3, "mw": 1e-3}
_VOLTS, _AMPERES = ("voltage_v", "voltage", "volts", "v"), ("current_a", "current", "amperes", "amps", "a")
_EPOCH_UNITS = ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3))  # a moment of this century in ns, µs and ms
_AGREES_S = 1.0  # between two clocks: less than any meter's update is worth
_PATIENCE = 5  # updates that a row may be late
_HOLE = 5  # updates without a row, after which nobody knows what was drawn


def named_meter(name: str) -> Sensors:
    """The meter's one channel. What does not answer is an error: who names a meter wants no other's joules."""
    is_plug = re.match(r"https?://", name)
    channel = _plug(name) if is_plug else MeterLog(Path(name).expanduser()).channel()
    return Sensors(channels=(channel,), missing={}, close=lambda: None, why_none=f"{channel.name} does not answer")


def _plug(url: str) -> Channel:
    def read() -> float | None:
        try:
            with urllib.request.urlopen(url, timeout=_ANSWER_S) as answer:  # noqa: S310 - http and https alone
                return plug_watts(parse_json(answer.read(2**20)))
        except (OSError, ValueError, urllib.error.URLError):
            return None

    if read() is None:
        raise DomainError(
            f"The power meter {url} does not answer with watts.",
            remedy="It answers in JSON: Shelly's /rpc/Switch.GetStatus?id=0, Tasmota's /cm?cmnd=Status%208, "
            'or {"power_w": 12.3}.',
        )
    return Channel(
        name="plug", quantity="power", read=read, counted=True, covers="whole machine", whole=True, named=True,
        update_s=_PLUG_S,
    )  # fmt: skip


def plug_watts(answer: Any) -> float | None:
    """The watts in an answer of a plug, wherever its maker put them; None where there are none.

    A relay's `power` may be its switch, "on" or true: only numbers are watts.
    """
    if isinstance(answer, list):
        return plug_watts(answer[0]) if answer else None
    if not isinstance(answer, dict):
        return None
    for key in _PLUG_WATTS:
        if isinstance(watts := answer.get(key), int | float) and not isinstance(watts, bool):
            return float(watts)
    inner = (plug_watts(answer[part]) for part in _PLUG_PARTS if part in answer)
    return next((watts for watts in inner if watts is not None), None)


class MeterLog:
    """A CSV that grows while the meter measures, read by the meter's own times.

    How far the meter's clock is from ours shows when a row arrives: its time against ours. A clock that is off is
    corrected, and the profile says so; one that moves meanwhile is refused, since no row's moment is known then.
    """

    def __init__(
        self,
        path: Path,
        *,
        wall_s: Callable[[], float] = time.time,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._path, self._wall_s, self._clock_ns, self._sleep = path, wall_s, clock_ns, sleep
        rows = self._rows()
        if len(rows) < 2:
            raise DomainError(
                f"The power meter's log {path} has {len(rows)} rows.",
                remedy="Let the meter write, one row each time it measures, and then measure.",
            )
        times = [at for at, _ in rows[-21:]]
        steps = [after - before for before, after in pairwise(times)]
        if min(steps) < 0:
            raise DomainError(f"The times in {path} go back.", remedy="One meter writes one log, in the order of time.")
        self.update_s = max(median(steps), 1e-3)
        lag = self._lag_after(rows[-1][0])
        if lag is None:
            ago = format_quantity(self._wall_s() - rows[-1][0], "s")
            raise DomainError(
                f"The power meter's log {path} does not grow: its last row is from {ago} ago.",
                remedy="Let the meter write while you measure.",
            )
        self._lag_s = lag
        self.offset_s = lag if abs(lag) > max(_AGREES_S, 2 * self.update_s) else 0.0
        self.trouble: str | None = None

    def channel(self) -> Channel:
        covers = "whole machine"
        if self.offset_s:
            way = "behind" if self.offset_s > 0 else "ahead of"
            covers += f"; its clock, {format_quantity(abs(self.offset_s), 's')} {way} ours, was corrected"
        return Channel(
            name=self._path.name, quantity="power", read=lambda: self._rows()[-1][1], counted=True, covers=covers,
            whole=True, named=True, update_s=self.update_s, log=self.between, trouble=lambda: self.trouble,
        )  # fmt: skip

    def between(self, start_ns: int, end_ns: int) -> list[tuple[int, float]]:
        """The rows around two moments of our clock, at their times on it; none where the log cannot be trusted."""
        to_clock = self._clock_ns() * 1e-9 - self._wall_s() + self.offset_s
        rows = self._rows()
        for _ in range(_PATIENCE):  # the row after the end is not written yet
            if rows and rows[-1][0] + to_clock >= end_ns * 1e-9:
                break
            lag = self._lag_after(rows[-1][0] if rows else 0.0)
            moved = 0.0 if lag is None else lag - self._lag_s
            if abs(moved) > max(_AGREES_S, 2 * self.update_s):
                self.trouble = (
                    f"the clock of {self._path.name} moved {format_quantity(abs(moved), 's')} against ours while it "
                    "was read: set it by a time server, and measure again"
                )
                return []
            rows = self._rows()
        times = [(round((at + to_clock) * 1e9), watts) for at, watts in rows]
        first = max((index for index, (at, _) in enumerate(times) if at <= start_ns), default=0)
        around = [*times[first:]]
        last = next((index for index, (at, _) in enumerate(around) if at >= end_ns), len(around) - 1)
        around = around[: last + 1]
        holes = [(after - before) * 1e-9 for (before, _), (after, _) in pairwise(around)]
        if max(holes, default=0.0) > _HOLE * self.update_s:
            self.trouble = f"{self._path.name} has a hole of {format_quantity(max(holes), 's')}"
            return []
        return around

    def _lag_after(self, newest_s: float) -> float | None:
        """Our time less the meter's when the next row arrives; None where none does."""
        pause = self.update_s / 10
        for _ in range(10 * _PATIENCE):
            rows = self._rows()
            if rows and rows[-1][0] > newest_s:
                return self._wall_s() - rows[-1][0]
            self._sleep(pause)
        return None

    def _rows(self) -> list[tuple[float, float]]:
        """(moment, watts) of every whole line that can be read; the last may be half written."""
        try:
            with self._path.open("rb") as file:
                header = file.readline(4096)
                file.seek(max(len(header), file.seek(0, 2) - _READ_BYTES))
                lines = file.read(_READ_BYTES)
        except OSError as error:
            raise DomainError(
                f"The power meter's log {self._path} cannot be read: {error.strerror}.", remedy="Name a file that can."
            ) from None
        whole = lines[: lines.rfind(b"\n") + 1].decode("utf-8", "replace").splitlines()
        titles = header.decode("utf-8", "replace").casefold().split(",")
        names = [re.sub(r"[^a-z]+", "_", title).strip("_") for title in titles]
        return list(_log_rows(names, whole, self._path))


def _log_rows(names: list[str], lines: list[str], path: Path) -> Iterator[tuple[float, float]]:
    at = next((names.index(name) for name in _TIME if name in names), None)
    watts = next((names.index(name) for name in _WATTS if name in names), None)
    volts, amperes = (next((names.index(n) for n in known if n in names), None) for known in (_VOLTS, _AMPERES))
    if at is None or (watts is None and (volts is None or amperes is None)):
        raise DomainError(
            f"The power meter's log {path} has the columns {', '.join(names)[:200]}.",
            remedy="It needs a time (ISO 8601 or seconds since 1970) and watts, or volts and amperes.",
        )
    for row in csv.reader(lines):
        if len(row) != len(names):
            continue
        moment = _moment(row[at])
        if watts is not None:
            value = number(row[watts])
            value = None if value is None else value * _WATTS[names[watts]]
        else:
            u, i = number(row[volts or 0]), number(row[amperes or 0])
            value = None if u is None or i is None else u * i
        if moment is not None and value is not None:
            yield moment, value


def _moment(text: str) -> float | None:
    """Seconds since 1970, written so, in a smaller unit, or as a date with a time, which is local without a zone."""
    if (value := number(text)) is not None:
        return value * next((factor for least, factor in _EPOCH_UNITS if value > least), 1.0)
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError):
        return None
