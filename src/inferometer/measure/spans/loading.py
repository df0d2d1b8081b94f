"""Load a recording from a file, or merge those of several processes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from inferometer.core.errors import FormatError, SchemaError
from inferometer.measure.spans.batch import DEVICE, FLAGS, READINGS, WORDS, SpanBatch
from inferometer.measure.spans.build import batches_of, build, from_trace
from inferometer.measure.spans.files import SpanFile, write_batches
from inferometer.measure.spans.power import Power
from inferometer.measure.spans.recording import Recording, RecordingRun


def load(path: str | Path) -> Recording:
    """One file, as `Profiler.save` or a profiler with `file=` wrote it; or an inferometer.trace document."""
    file = SpanFile.open(Path(path))
    if file.trace is not None:
        return from_trace(file.trace)
    return _together([(file, list(_checked(file)))])


def merge(*paths: str | Path) -> Recording:
    """The files of several processes as one recording.

    Processes of one machine share a clock. Those of another machine are shifted by the difference of the machines'
    wall clocks; a note says so, since the result is only as good as they are.
    """
    if not paths:
        raise FormatError("No files were given to merge.")
    files = [SpanFile.open(Path(path)) for path in paths]
    traces = [file.path for file in files if file.trace is not None]
    if traces:
        raise SchemaError(
            f"{traces[0]} is an inferometer.trace document, which does not say what its clock began with.",
            remedy="Merge recordings: what `Profiler.save` writes.",
        )
    held = [(file, list(_checked(file))) for file in files]
    merged = next((file.path for file, batches in held for batch in batches if "parent" in batch.columns), None)
    if merged is not None and len(files) > 1:
        raise SchemaError(f"{merged} is itself the result of a merge.", remedy="Merge all the first files at once.")
    return _together(held)


def save(recording: Recording, path: str | Path) -> Path:
    """Keep a recording (a merged one, say) in a file that `load` reads."""
    target, run = Path(path), recording.run
    header = {"clock": run.clock, "started_at": run.started_at, "process": 0}
    threads = {str(lane.thread): lane.title for lane in recording.lanes if lane.task is None}
    write_batches(target, header, batches_of(recording), {**run_facts(run), "threads": threads})
    return target


def _checked(file: SpanFile) -> Sequence[SpanBatch]:
    sound = []
    for batch in file.batches():
        wrong = next((name for name, column in batch.columns.items() if not _sound(name, column)), None)
        if wrong is None:
            sound.append(batch)
        else:
            file.notes.append(f"{file.path.name}: {batch.count} spans have a {wrong} that cannot be one; lost.")
    return sound


_NEEDED = frozenset({"name", "start", "end"})
_WHOLE = frozenset({"layer", "token", "process", "thread", "task", "link", "above", "parent", *DEVICE})
_NUMBERS = frozenset({"tokens", "context", "flops", "bytes", "energy", *READINGS})


def _sound(name: str, column: Sequence[Any]) -> bool:
    """Whether a column holds what it should: words, whole numbers that 64 bits hold, numbers, or nothing.

    A column that is not known is not read: a later writer may add some.
    """
    held = set(map(type, column)) - (set() if name in _NEEDED else {type(None)})
    if name in WORDS:
        return held <= {str}
    if name in FLAGS:
        return held <= {bool}
    if name not in _NEEDED | _WHOLE | _NUMBERS:
        return True
    if not held <= ({int, float} if name in _NUMBERS else {int}):
        return False
    return all(-(2**63) < number < 2**63 for number in column if type(number) is int)


def _together(files: Sequence[tuple[SpanFile, Sequence[SpanBatch]]]) -> Recording:
    processes = _process_numbers([file for file, _ in files])
    titles: dict[tuple[int, int], str] = {}
    batches: list[SpanBatch] = []
    notes: list[str] = []
    links, first = 0, files[0][0]
    for (file, held), process in zip(files, processes, strict=True):
        shift = _shift_ns(file, first, notes)
        most = 0
        for batch in held:
            batches.append(_placed(batch, process, shift, links))
            most = max([most, *(link for link in batch.column("link") if link is not None)])
        links += most
        notes += [*file.notes, *file.last.get("notes", ())]
        names = file.last.get("threads", {}).items()
        held_by = {process, *(number for batch in held for number in batch.columns.get("process", ()))}
        titles |= {(number, int(thread)): title for number in held_by for thread, title in names}
    run = run_of(first.header, [file.last for file, _ in files])
    return build(batches, run=replace(run, notes=tuple(notes)), titles=titles)


def _process_numbers(files: Sequence[SpanFile]) -> list[int]:
    """Process ids; where two machines gave out the same one, plain numbers."""
    processes = [file.header.get("process") for file in files]
    known = [number for number in processes if isinstance(number, int)]
    return known if len(set(known)) == len(files) else list(range(1, len(files) + 1))


def _shift_ns(file: SpanFile, first: SpanFile, notes: list[str]) -> int:
    keys = ("host", "boot", "clock")
    if file is first or all(file.header.get(key) == first.header.get(key) for key in keys):
        return 0
    mine, theirs = file.header, first.header
    if not all(isinstance(header.get(key), int) for header in (mine, theirs) for key in ("epoch_ns", "started_ns")):
        notes.append(f"{file.path.name} is from another machine and says no time of day: it is not aligned.")
        return 0
    notes.append(f"{file.path.name} is from another machine: aligned by the machines' wall clocks.")
    return int((mine["epoch_ns"] - mine["started_ns"]) - (theirs["epoch_ns"] - theirs["started_ns"]))


def _placed(batch: SpanBatch, process: int, shift: int, links: int) -> SpanBatch:
    columns: dict[str, list[Any]] = {"process": [process] * batch.count, **batch.columns}
    for name in ("start", "end", "device_start", "device_end"):
        if shift and name in columns:
            columns[name] = [None if time is None else time + shift for time in columns[name]]
    for name in ("link", "above"):
        if links and name in columns:
            columns[name] = [None if link is None else link + links for link in columns[name]]
    return SpanBatch(count=batch.count, columns=columns)


def run_facts(run: RecordingRun) -> dict[str, Any]:
    """A run's facts as a file's last line holds them."""
    power = None if run.power is None else msgspec.to_builtins(run.power)
    return {"dropped": run.dropped, "notes": list(run.notes), "span_cost_s": run.span_cost_s, "power": power}


def run_of(header: dict[str, Any], lasts: Sequence[dict[str, Any]]) -> RecordingRun:
    costs = [last["span_cost_s"] for last in lasts if last.get("span_cost_s") is not None]
    powers = [last["power"] for last in lasts if last.get("power")]
    try:
        power = msgspec.convert(powers[0], Power) if powers else None
    except msgspec.ValidationError:
        power = None
    return RecordingRun(
        clock=str(header.get("clock", "perf_counter_ns")),
        started_at=header.get("started_at"),
        dropped=sum(int(last.get("dropped") or 0) for last in lasts),
        span_cost_s=max(costs, default=None),
        power=power,
    )
