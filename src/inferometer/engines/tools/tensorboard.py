"""TensorBoard's event files (`events.out.tfevents.…`): the scalars of a run.

Shape: tensorflow, core/lib/io/record_writer.h (records: length, checksum of it, data, checksum) and
core/util/event.proto, framework/summary.proto: an Event has `wall_time` (1), `step` (2) and a `summary` (5) of values
with a `tag` (1) and a `simple_value` (2), or a `tensor` (8) of one float, as newer writers put it. The last value of
each tag is a figure of the profile; from the first event to the last is the phase run.
"""

import math
import struct
from collections.abc import Iterator

from inferometer.core.errors import FormatError
from inferometer.core.profile import Phase, Profile
from inferometer.engines.results.assemble import Draft, finish, keep_figures
from inferometer.engines.results.base import Document

_HEAD, _TAIL = 12, 4  # bytes around a record: its length and the checksum of that, then the checksum of its data
_TAGS = 100_000  # more than any board shows


class Tensorboard:
    name = "tensorboard"
    title = "TensorBoard"

    def matches(self, document: Document) -> bool:
        """The first record says what the file is: `brain.Event:2`."""
        return b"brain.Event:" in document.data[:64]

    def read(self, document: Document) -> tuple[Profile, ...]:
        draft, figures, times = Draft(tool="TensorBoard"), dict[str, float](), list[float]()
        for record in _records(document.data):
            for number, value in _fields(record):
                if number == 1 and isinstance(value, bytes) and len(value) == 8:
                    times.append(struct.unpack("<d", value)[0])
                elif number == 5 and isinstance(value, bytes):
                    figures |= _scalars(value)
            if len(figures) > _TAGS:
                raise FormatError(f"It has more than {_TAGS:,} tags.", remedy="Import a smaller run.")
        if not figures:
            raise FormatError("It has no scalars.", remedy="Images, graphs and histograms are not read.")
        keep_figures(draft, figures)
        times = [time for time in times if math.isfinite(time) and time > 0]
        if len(times) > 1 and max(times) > min(times):
            draft.phases.append(Phase(name="run", time_s=max(times) - min(times), statistic="sum"))
        return (finish(draft, document),)


def _records(data: bytes) -> Iterator[bytes]:
    """Whole records: a run that is still written ends in the middle of one."""
    at = 0
    while at + _HEAD <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        start, at = at + _HEAD, at + _HEAD + length + _TAIL
        if at > len(data):
            return
        yield data[start : start + length]


def _scalars(summary: bytes) -> dict[str, float]:
    found: dict[str, float] = {}
    for number, value in _fields(summary):
        if number != 1 or not isinstance(value, bytes):
            continue
        parts = dict(_fields(value))
        tag, simple, tensor = parts.get(1), parts.get(2), parts.get(8)
        scalar = simple if isinstance(simple, bytes) and len(simple) == 4 else _only_float(tensor)
        if isinstance(tag, bytes) and scalar is not None:
            (figure,) = struct.unpack("<f", scalar)
            if math.isfinite(figure):
                found[tag.decode("utf-8", errors="replace")[:200]] = figure
    return found


def _only_float(tensor: int | bytes | None) -> bytes | None:
    """The four bytes of a tensor's one float: its content (4), or its list of floats (5)."""
    if not isinstance(tensor, bytes):
        return None
    parts = dict(_fields(tensor))
    if parts.get(1) != 1:  # DT_FLOAT
        return None
    content = parts.get(4) or parts.get(5)
    return content if isinstance(content, bytes) and len(content) == 4 else None


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message: numbers, and bytes of all others. It ends where the message is broken."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield number, value
            continue
        size, at = (8, at) if kind == 1 else (4, at) if kind == 5 else _varint(message, at)
        if kind not in {1, 2, 5} or size < 0 or at + size > len(message):
            return
        yield number, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 64:
        byte = message[at]
        value, at, shift = value | (byte & 127) << shift, at + 1, shift + 7
        if byte < 128:
            return value, at
    return 0, len(message)


importer = Tensorboard()
