"""Many devices: all-reduce, overlap, tensor, pipeline and expert parallelism, and ZeRO's memory."""

from inferometer.known.formulas import memory
from inferometer.known.formulas import quantities as q
from inferometer.known.formulas.network import transfer_time
from inferometer.known.formulas.registry import formula, require

_ZERO = "Rajbhandari et al. 2020, ZeRO, arXiv:1910.02054"


@formula(
    row="11.1 DP throughput",
    source="definition",
    example={"n": 8, "throughput": 512, "efficiency": 0.92},
    answer=3768.32,
)
def dp_throughput(*, n: q.Count, throughput: q.SomeSampleRate, efficiency: q.SomeFraction = 1) -> q.SampleRate:
    """The throughput of data-parallel training.

    Derivation: n replicas each do `throughput`; a share 1 − efficiency is lost to exposed communication.
    Units: a count, sample/s of one replica and a fraction → sample/s.
    Ignores: why efficiency is what it is. It falls with n unless the batch of a replica stays the same.
    """
    return n * throughput * efficiency


@formula(
    row="11.2 Ring all-reduce",
    source="Patarasuk & Yuan 2009, Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations",
    example={"n": 8, "bytes": 1e9, "bandwidth": 50e9, "latency": 5e-6},
    answer=0.03507,
)
def ring_allreduce(*, n: q.Count, bytes: q.Bytes, bandwidth: q.Bandwidth, latency: q.Seconds = 0) -> q.Seconds:
    """The time of a ring all-reduce.

    Derivation: the data is cut into n parts. n−1 steps sum them round the ring and n−1 hand the sums on; each step
    moves M/n on every link at once. So 2(n−1)·(M/n/BW + α) = 2(n−1)/n·M/BW + 2(n−1)·α.
    Units: devices, B on each device, B/s of one link in one direction, s per step → s.
    Ignores: the addition itself, trees (fewer steps for small data) and in-network reduction (half the traffic).
    NVLink figures are often totals of both directions: use half.
    """
    return 2 * (n - 1) * transfer_time(bytes=bytes / n, bandwidth=bandwidth, latency=latency)


@formula(
    row="11.2 Bus bandwidth (nccl-tests)",
    source="NVIDIA, nccl-tests, doc/PERFORMANCE.md",
    example={"n": 8, "bytes": 1e9, "time": 0.03507},
    answer=49900199600.79841,
)
def bus_bandwidth(*, n: q.Count, bytes: q.Bytes, time: q.SomeSeconds) -> q.ByteRate:
    """The bandwidth that an all-reduce used on each link.

    Derivation: algorithm bandwidth is M/T. A device sends 2(n−1)/n·M, so the links ran at M/T·2(n−1)/n. Unlike M/T it
    can be compared with the hardware's bandwidth, whatever n is.
    Units: devices, B on each device and s → B/s in one direction.
    Ignores: latency, which lowers it for small data. The factor is the all-reduce's; other collectives have theirs.
    """
    return memory.bandwidth(bytes=bytes, time=time) * 2 * (n - 1) / n


@formula(row="11.3 Overlap ratio", source="definition", example={"hidden": 0.024, "total": 0.030}, answer=0.8)
def overlap_ratio(*, hidden: q.Seconds, total: q.SomeSeconds) -> q.Fraction:
    """The share of communication that hides behind computing.

    Derivation: hidden time over all communication time.
    Units: s and s → 1.
    Ignores: that hidden communication still takes memory bandwidth and SMs from the computing it hides behind.
    """
    require(hidden <= total, "hidden must not exceed total", hidden=hidden, total=total)
    return hidden / total


@formula(row="11.3 Exposed comm", source="definition", example={"time": 0.030, "overlap": 0.8}, answer=0.006)
def exposed_communication(*, time: q.Seconds, overlap: q.Fraction) -> q.Seconds:
    """Communication time that a step has to wait for.

    Derivation: what is not hidden: T·(1 − overlap).
    Units: s and a fraction → s.
    Ignores: the slow-down of the computing it overlaps with.
    """
    return time * (1 - overlap)


@formula(
    row="11.4 TP comm per layer (fwd)",
    source="Shoeybi et al. 2019, Megatron-LM, arXiv:1909.08053",
    example={"batch": 1, "tokens": 2048, "hidden": 8192, "element_bytes": 2},
    answer=67_108_864,
)
def tp_communication_bytes(
    *, tokens: q.Tokens, hidden: q.Count, batch: q.Count = 1, element_bytes: q.SomeBytes = 2
) -> q.Bytes:
    """Bytes that one layer hands to all-reduce in a forward pass under tensor parallelism.

    Derivation: attention and the MLP each end in a sum over the devices, so two all-reduces of the activations, which
    are batch × tokens × hidden elements.
    Units: tokens of a sequence, elements, sequences and B per element → B, before the all-reduce's own 2(n−1)/n.
    Ignores: the backward pass (training has twice as much) and sequence parallelism, which moves the same bytes as
    all-gather and reduce-scatter.
    """
    return 2 * batch * tokens * hidden * element_bytes


@formula(
    row="11.4 Pipeline bubble fraction",
    source="Huang et al. 2019, GPipe, arXiv:1811.06965; Narayanan et al. 2021, Megatron-LM, arXiv:2104.04473",
    example={"stages": 4, "micro_batches": 12},
    answer=0.2,
)
def pipeline_bubble(*, stages: q.Count, micro_batches: q.Count) -> q.PartFraction:
    """The share of time in which a stage of a pipeline stands idle.

    Derivation: a stage works for m micro-batches and waits for P−1 while the pipeline fills and drains, of m + P − 1 in
    all. Megatron divides by m instead, the ideal time; that number is larger.
    Units: stages and micro-batches → 1.
    Ignores: uneven stages, communication, and interleaved schedules, which divide the bubble by their chunks.
    """
    return (stages - 1) / (micro_batches + stages - 1)


@formula(
    row="11.5 3D parallelism",
    source="Narayanan et al. 2021, Megatron-LM, arXiv:2104.04473",
    example={"dp": 8, "tp": 8, "pp": 4},
    answer=256,
)
def parallel_devices(*, dp: q.Count = 1, tp: q.Count = 1, pp: q.Count = 1) -> q.Count:
    """Devices that a plan of data, tensor and pipeline parallelism uses.

    Derivation: the three directions are independent: each replica has pp stages of tp devices.
    Units: counts → devices.
    Ignores: expert and context parallelism, which most often lie inside the data-parallel direction.
    """
    return dp * tp * pp


@formula(
    row="11.6 All-to-all (source)",
    source="definition",
    example={"tokens": 8 * 2048, "hidden": 4096, "experts_per_token": 2, "experts": 8, "bandwidth": 50e9},
    answer=8 * 2048 * 4096 * 2 / (8 * 50e9),
)
def all_to_all_seed(
    *, tokens: q.Tokens, hidden: q.Count, experts_per_token: q.Count, experts: q.Count, bandwidth: q.Bandwidth
) -> q.Seconds:
    """What the source says of the all-to-all of a mixture of experts. It is wrong; use `all_to_all`.

    Derivation: none. The source states time ∝ B·S·H·k/(experts·BW). Traffic is shared among devices, not experts: 64
    experts on 8 devices need as long as 8 experts on 8 devices. The bytes of an element are missing too.
    Units: tokens of the batch, elements, counts and B/s → proportional to s, and not seconds.
    Ignores: the devices, the bytes of an element, and the part that stays at home.
    """
    return tokens * hidden * experts_per_token / (experts * bandwidth)


@formula(
    row="11.6 All-to-all per direction",
    source="Lepikhin et al. 2020, GShard, arXiv:2006.16668",
    example={"tokens": 8 * 2048, "hidden": 4096, "experts_per_token": 2, "devices": 8, "bandwidth": 50e9},
    answer=0.00058720256,
)
def all_to_all(
    *,
    tokens: q.Tokens,
    hidden: q.Count,
    experts_per_token: q.Count,
    devices: q.Count,
    bandwidth: q.Bandwidth,
    element_bytes: q.SomeBytes = 2,
) -> q.Seconds:
    """The time to send tokens to their experts, one way.

    Derivation: the batch has T·k·H·b bytes to deliver and each of N devices holds 1/N of them. Of its share (N−1)/N
    goes to other devices, at BW. So (T·k·H·b/N)·(N−1)/N/BW. Devices count, not experts.
    Units: tokens of the whole batch, elements, counts, B/s of one device and B per element → s.
    Ignores: the way back (twice as much in all), latency, and imbalance: the busiest expert sets the real time.
    """
    share = tokens * experts_per_token * hidden * element_bytes / devices
    return share * (devices - 1) / devices / bandwidth


@formula(row="11.7 ZeRO-1 bytes/GPU", source=_ZERO, example={"parameters": 7.5e9, "devices": 64}, answer=31.40625e9)
def zero1_bytes(*, parameters: q.SomeAmount, devices: q.Count) -> q.SomeBytes:
    """Memory of a device under ZeRO stage 1, which shares out the optimizer's state.

    Derivation: of 16 bytes a parameter (weight 2, gradient 2, Adam 12) the 12 are divided by N: P·(2 + 2 + 12/N). The
    "4×" saving is the limit for large N; at 8 devices it is 16/5.5 = 2.91×.
    Units: parameters and devices → B on each device.
    Ignores: activations, buffers and fragmentation.
    """
    return parameters * (2 + 2 + 12 / devices)


@formula(row="11.7 ZeRO-2 bytes/GPU", source=_ZERO, example={"parameters": 7.5e9, "devices": 64}, answer=16.640625e9)
def zero2_bytes(*, parameters: q.SomeAmount, devices: q.Count) -> q.SomeBytes:
    """Memory of a device under ZeRO stage 2, which shares out the gradients too.

    Derivation: gradients (2) and optimizer (12) are divided by N: P·(2 + 14/N). The "8×" saving is the limit for large
    N; at 8 devices it is 16/3.75 = 4.27×.
    Units: parameters and devices → B on each device.
    Ignores: activations, buffers and fragmentation.
    """
    return parameters * (2 + 14 / devices)


@formula(row="11.7 ZeRO-3 bytes/GPU", source=_ZERO, example={"parameters": 7.5e9, "devices": 64}, answer=1.875e9)
def zero3_bytes(*, parameters: q.SomeAmount, devices: q.Count) -> q.SomeBytes:
    """Memory of a device under ZeRO stage 3, which shares out the weights too.

    Derivation: all 16 bytes a parameter are divided by N: 16·P/N, a saving of N×.
    Units: parameters and devices → B on each device.
    Ignores: the layer that is gathered to be computed, activations, buffers, and half as much communication again.
    """
    return 16 * parameters / devices
