"""Memory and I/O: bandwidth, arithmetic intensity, caches and data loading."""

from inferometer.known.formulas import quantities as q
from inferometer.known.formulas.registry import formula, require

_HENNESSY = "Hennessy & Patterson, Computer Architecture: A Quantitative Approach, app. B"


@formula(row="6.1 Bandwidth", source="definition", example={"bytes": 67.1e9, "time": 2.0}, answer=33.55e9)
def bandwidth(*, bytes: q.Bytes, time: q.SomeSeconds) -> q.ByteRate:
    """Bytes moved per second.

    Derivation: an amount over the time it took.
    Units: B and s → B/s. GB is 10⁹ bytes; a GiB/s is 7 % more than a GB/s.
    Ignores: which bytes are counted. Reads and writes both use a bus; a copy of n bytes moves 2n.
    """
    return bytes / time


@formula(
    row="6.1 Peak DRAM BW",
    source=_HENNESSY,
    example={"bus_bytes": 8, "transfer_rate": 3.2e9, "channels": 1},
    answer=25.6e9,
)
def peak_dram_bandwidth(*, bus_bytes: q.SomeBytes, transfer_rate: q.TransferRate, channels: q.Count = 1) -> q.Bandwidth:
    """The bandwidth that a memory's pins allow.

    Derivation: every transfer carries the width of the bus; channels work side by side.
    Units: B per transfer, transfer/s and channels → B/s. A transfer is an edge: DDR makes two per clock.
    Ignores: refresh, row changes and turning from reads to writes. Streaming reads reach some 80–90 % of it.
    """
    return bus_bytes * transfer_rate * channels


@formula(row="6.2 Latency in cycles", source="definition", example={"latency": 80e-9, "frequency": 3.2e9}, answer=256.0)
def latency_cycles(*, latency: q.Seconds, frequency: q.Hertz) -> q.Cycles:
    """A time counted in clock cycles.

    Derivation: s × cycle/s = cycles.
    Units: s and Hz → cycle.
    Ignores: that a memory's time is fixed and a core's clock is not: the same DRAM costs more cycles at turbo.
    """
    return latency * frequency


@formula(
    row="6.3 Arithmetic intensity",
    source="Williams, Waterman & Patterson 2009, Roofline: An Insightful Visual Performance Model",
    example={"flops": 2 * 1024**3, "bytes": 4 * 3 * 1024**2},
    answer=1024 / 6,
)
def arithmetic_intensity(*, flops: q.Flops, bytes: q.SomeBytes) -> q.Intensity:
    """Operations done per byte moved.

    Derivation: a count over a count. A square f32 product does 2n³ FLOPs and moves three matrices of 4n² bytes: n/6.
    Units: FLOP and B → FLOP/B.
    Ignores: which memory level the bytes pass. Each level has its own intensity; most often DRAM's is meant.
    """
    return flops / bytes


@formula(row="6.3 GEMV AI (decode)", source="definition", example={"bytes_per_weight": 2}, answer=1.0)
def gemv_intensity(*, bytes_per_weight: q.SomeBytes, rows: q.Count = 1) -> q.SomeIntensity:
    """The intensity of a matrix product with few rows: what one decode step does.

    Derivation: each weight is read once and used in one multiply and one add per row, so 2·rows/bytes. It is 1 in
    bf16 and 0.5 in f32 for one row; the claim of 2 for f32 is wrong.
    Units: B per weight and rows (the batch) → FLOP/B.
    Ignores: the activations, which are small until there are many rows, and the KV cache.
    """
    return arithmetic_intensity(flops=2 * rows, bytes=bytes_per_weight)


@formula(row="6.4 Hit ratio", source=_HENNESSY, example={"hits": 950, "accesses": 1000}, answer=0.95)
def hit_ratio(*, hits: q.Amount, accesses: q.SomeAmount) -> q.Fraction:
    """The share of accesses that a cache serves.

    Derivation: a count over the count it is part of.
    Units: counts → 1.
    Ignores: prefetches, unless the counter leaves them in, and which level: each has its own accesses.
    """
    require(hits <= accesses, "hits must not exceed accesses", hits=hits, accesses=accesses)
    return hits / accesses


@formula(
    row="6.4 Miss ratio",
    source=_HENNESSY,
    example={"misses": 364_011_867, "accesses": 474_658_740},
    answer=0.766891739947736,
)
def miss_ratio(*, misses: q.Amount, accesses: q.SomeAmount) -> q.Fraction:
    """The share of accesses that a cache does not serve.

    Derivation: an access hits or misses, so misses = accesses − hits and misses/accesses = 1 − hit ratio. Taken
    directly, because the difference from 1 loses digits where misses are rare.
    Units: counts → 1.
    Ignores: that misses overlap. Ten at once cost little more than one.
    """
    require(misses <= accesses, "misses must not exceed accesses", misses=misses, accesses=accesses)
    return misses / accesses


@formula(
    row="6.4 AMAT",
    source=_HENNESSY,
    example={"hit_time": 1e-9, "miss_ratio": 0.05, "miss_penalty": 80e-9},
    answer=5e-9,
)
def amat(*, hit_time: q.Seconds, miss_ratio: q.Fraction, miss_penalty: q.Seconds) -> q.Seconds:
    """Average memory access time.

    Derivation: every access pays the look-up; a share `miss_ratio` pays the penalty on top.
    Units: s, a ratio and s → s.
    Ignores: out-of-order execution and parallel misses, which hide much of the penalty.
    """
    return hit_time + miss_ratio * miss_penalty


@formula(row="6.6 I/O throughput", source="definition", example={"bytes": 2.47e9, "time": 0.494}, answer=5e9)
def io_throughput(*, bytes: q.Bytes, time: q.SomeSeconds) -> q.ByteRate:
    """Bytes read from or written to storage per second.

    Derivation: bandwidth, for a disk.
    Units: B and s → B/s.
    Ignores: the page cache. A second read of one file measures memory, not the disk.
    """
    return bandwidth(bytes=bytes, time=time)


@formula(
    row="6.7 Data-starvation ratio",
    source="Mohan et al. 2021, Analyzing and Mitigating Data Stalls in DNN Training",
    example={"wait": 0.030, "step": 0.200},
    answer=0.15,
)
def data_starvation_ratio(*, wait: q.Seconds, step: q.SomeSeconds) -> q.Fraction:
    """The share of a step in which the device waits for data.

    Derivation: idle time over the time of the step that contains it.
    Units: s and s → 1.
    Ignores: waits that are not for data (communication, the host's own work). Only data stalls belong in `wait`.
    """
    require(wait <= step, "wait must not exceed step", wait=wait, step=step)
    return wait / step
