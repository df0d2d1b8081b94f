"""Readings of a machine beside an engine's ops: streams from each level of memory, and reads from storage.

They are listed beside a calibration's tables and enter no price: what an op gains from a cache is in its own table.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile

import numpy as np

from inferometer.core.device import Device
from inferometer.core.errors import EngineError
from inferometer.core.frozen import frozen
from inferometer.measure.calibrate.fitting.points import OpPoint, overhead
from inferometer.measure.calibrate.run import CandidateResult, ProbeCandidate

_STORED_BYTES = 96_000_000 // mmap.PAGESIZE * mmap.PAGESIZE
_CHUNK_BYTES = 4 << 20
_LONGEST_S = 0.3
_MOST_OF_MEMORY = 1 / 16
_LEAST_BYTES = 16_384


@frozen
class HostReadings:
    """A provider of readings: `stream.LEVEL` for every level of memory whose size is known, and `storage`."""

    device: Device
    dtype: str
    threads: int
    folder: Path  # on the storage that models are read from
    clock: Callable[[], float] = time.perf_counter

    def candidates(self) -> list[ProbeCandidate]:
        names = [f"stream {level}" for level in stream_bytes(self.device)] + ["storage read"]
        return [ProbeCandidate(key=name, op_class="reading", seconds=_LONGEST_S, first=True) for name in names]

    def measure(self, candidate: ProbeCandidate) -> CandidateResult:
        kind, _, level = candidate.key.partition(" ")
        if kind == "stream":
            rate = stream_bytes_per_s(stream_bytes(self.device)[level], threads=self.threads, clock=self.clock)
            return CandidateResult(points=(self._reading(f"stream.{level}", rate),))
        storage_rate = read_bytes_per_s(self.folder, clock=self.clock)
        if storage_rate is None:
            raise EngineError("this system cannot read a file past its cache.")
        return CandidateResult(points=(self._reading("storage", storage_rate),))

    def _reading(self, name: str, rate: float) -> OpPoint:
        point = overhead(name, 1 / rate, dtype=self.dtype, probe=name)
        return replace(point, classes=("reading",), rates={f"bandwidth:{name}": rate})


def stream_bytes(device: Device) -> dict[str, int]:
    """How many bytes to stream for each level: half of a cache; for main memory, twice the largest cache.

    A level that is no larger than the one before it is left out, and so is memory too small for such a stream.
    """
    known = [(memory.level, memory.capacity_bytes) for memory in device.memories]
    sizes = {level: float(capacity) for level, capacity in known if capacity is not None}
    caches = sorted((size, level) for level, size in sizes.items() if level.startswith("l"))
    streamed: dict[str, int] = {}
    below = float(_LEAST_BYTES)
    for size, level in caches:
        if size / 2 > below:
            streamed[level] = int(size / 2)
        below = size
    main = next((level for level in sizes if not level.startswith("l")), None)
    if main is not None and caches and 2 * below <= _MOST_OF_MEMORY * sizes[main]:
        streamed[main] = int(2 * below)
    return streamed


def stream_bytes_per_s(nbytes: int, *, threads: int, clock: Callable[[], float]) -> float:
    """The best rate of a copy within a buffer, shared by the threads. Bytes read and bytes written both count."""
    elements = max(_LEAST_BYTES, nbytes // threads) // 16
    parts = [(np.ones(elements), np.zeros(elements)) for _ in range(threads)]
    rounds = max(1, 4_000_000 // (16 * elements))  # a copy in a near cache is shorter than starting a thread

    def copies(part: tuple[np.ndarray, np.ndarray]) -> None:
        for _ in range(rounds):
            np.copyto(part[1], part[0])

    best, begun = float("inf"), clock()
    with ThreadPoolExecutor(threads) as pool:
        for turn in range(1000):
            start = clock()
            if threads == 1:
                copies(parts[0])
            else:
                list(pool.map(copies, parts))
            best = min(best, clock() - start)
            if turn > 1 and clock() - begun > _LONGEST_S:
                break
    return 16 * elements * threads * rounds / best


def read_bytes_per_s(folder: Path, *, clock: Callable[[], float], nbytes: int = _STORED_BYTES) -> float | None:
    """The rate of reading a new file once, past the system's cache; None if the system cannot do that.

    The file is written in full and flushed first. Only direct reads are sure to come from storage.
    """
    direct = getattr(os, "O_DIRECT", None)
    if direct is None:
        return None
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=folder, prefix="reading-") as file:
            block = np.random.default_rng(0).bytes(_CHUNK_BYTES)
            for start in range(0, nbytes, _CHUNK_BYTES):
                file.write(block[: min(_CHUNK_BYTES, nbytes - start)])
            file.flush()
            os.fsync(file.fileno())
            return _read_through(os.open(file.name, os.O_RDONLY | direct), nbytes, clock)
    return None


def _read_through(descriptor: int, nbytes: int, clock: Callable[[], float]) -> float:
    """Bytes per second of one pass. Direct reads need page-aligned memory, which a map has."""
    try:
        with mmap.mmap(-1, _CHUNK_BYTES) as buffer:
            start, done = clock(), 0
            while done < nbytes and (got := os.readv(descriptor, [buffer])) > 0:
                done += got
            return done / (clock() - start)
    finally:
        os.close(descriptor)
