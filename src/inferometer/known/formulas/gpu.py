"""GPUs and accelerators: occupancy, utilisation of their units, and what a kernel costs to launch."""

from inferometer.known.formulas import cpu
from inferometer.known.formulas import quantities as q
from inferometer.known.formulas.elementwise import choose, least, whole_above, whole_below
from inferometer.known.formulas.registry import formula, require

_CUDA = "NVIDIA, CUDA C++ Programming Guide, Technical Specifications per Compute Capability"
_NSIGHT = "NVIDIA, Nsight Compute documentation, Metrics Guide"


@formula(row="2.1 SM occupancy", source=_CUDA, example={"active_warps": 48, "max_warps": 64}, answer=0.75)
def sm_occupancy(*, active_warps: q.CountOrNone, max_warps: q.Count) -> q.Fraction:
    """The share of an SM's warp slots that hold a warp.

    Derivation: resident warps over the slots the hardware has.
    Units: warps and warps → 1.
    Ignores: whether the warps can issue. A kernel with much instruction-level parallelism runs well at low occupancy.
    """
    require(
        active_warps <= max_warps,
        "active_warps must not exceed max_warps",
        active_warps=active_warps,
        max_warps=max_warps,
    )
    return active_warps / max_warps


@formula(
    row="2.1 Occupancy from resources",
    source=_CUDA,
    example={"registers_per_thread": 64, "threads_per_block": 256},
    answer=0.5,
)
def occupancy_from_resources(
    *,
    registers_per_thread: q.Count,
    threads_per_block: q.Count,
    shared_memory_per_block: q.Bytes = 0,
    registers: q.Count = 65536,
    shared_memory: q.SomeBytes = 233472,
    max_blocks: q.Count = 32,
    max_warps: q.Count = 64,
) -> q.SomeFraction:
    """The occupancy that a kernel's registers, shared memory and block size allow.

    Derivation: an SM takes whole blocks. Registers allow ⌊registers/(registers per thread · threads)⌋ of them, shared
    memory ⌊shared memory/shared memory per block⌋, warp slots ⌊max warps/warps per block⌋, and the hardware max_blocks.
    The least wins; times the warps of a block, over max_warps. A block has ⌈threads/32⌉ warps. The defaults are those
    of compute capability 9.0 (H100, H200): 65,536 registers, 228 KiB, 32 blocks, 64 warps.
    Units: registers, threads, B, blocks and warps → 1.
    Ignores: allocation in steps (256 registers a warp) and the shared memory that CUDA reserves for each block.
    """
    warps = whole_above(threads_per_block / 32)
    by_registers = whole_below(registers / (registers_per_thread * threads_per_block))
    needs_shared = shared_memory_per_block > 0
    by_shared = choose(
        needs_shared, whole_below(shared_memory / choose(needs_shared, shared_memory_per_block, 1)), max_blocks
    )
    blocks = least(least(by_registers, by_shared), least(whole_below(max_warps / warps), max_blocks))
    require(
        blocks >= 1,
        "one block must fit into the SM",
        remedy="Use fewer threads, registers per thread or bytes of shared memory.",
        registers_per_thread=registers_per_thread,
        threads_per_block=threads_per_block,
        shared_memory_per_block=shared_memory_per_block,
    )
    return sm_occupancy(active_warps=blocks * warps, max_warps=max_warps)


@formula(
    row="2.2 Warp execution efficiency",
    source=_NSIGHT,
    example={"active_threads": 24, "warp_size": 32},
    answer=0.75,
)
def warp_execution_efficiency(*, active_threads: q.Ratio, warp_size: q.Count = 32) -> q.Fraction:
    """The share of a warp's threads that do work, on average over the executed instructions.

    Derivation: a warp issues one instruction for all its threads; those on the other side of a branch are masked off.
    Units: threads and threads → 1.
    Ignores: threads that run but whose result is thrown away (padding).
    """
    require(
        active_threads <= warp_size,
        "active_threads must not exceed warp_size",
        active_threads=active_threads,
        warp_size=warp_size,
    )
    return active_threads / warp_size


@formula(
    row="2.3 Tensor-core utilization",
    source=_NSIGHT,
    example={"active_cycles": 6e8, "cycles": 1e9},
    answer=0.6,
)
def tensor_core_utilization(*, active_cycles: q.Cycles, cycles: q.SomeCycles) -> q.Fraction:
    """The share of cycles in which the tensor cores were busy.

    Derivation: busy cycles over all cycles of the same interval.
    Units: cycle and cycle → 1.
    Ignores: how full each operation was. A tile that is half padding keeps the pipe as busy as a full one.
    """
    require(active_cycles <= cycles, "active_cycles must not exceed cycles", active_cycles=active_cycles, cycles=cycles)
    return active_cycles / cycles


@formula(
    row="2.4 Bandwidth utilization",
    source="definition",
    example={"achieved": 2.68e12, "peak": 3.35e12},
    answer=0.8,
)
def bandwidth_utilization(*, achieved: q.ByteRate, peak: q.Bandwidth) -> q.Ratio:
    """The share of the memory's peak bandwidth that was reached.

    Derivation: a rate over a rate.
    Units: B/s and B/s → 1.
    Ignores: caches. Where `achieved` is computed from the model's bytes, a value above 1 says that a cache served some.
    """
    return achieved / peak


@formula(
    row="2.5 Kernel time",
    source="definition",
    example={"launch": 10e-6, "compute": 85e-6, "sync": 5e-6},
    answer=100e-6,
)
def kernel_time(*, compute: q.Seconds, launch: q.Seconds = 0, sync: q.Seconds = 0) -> q.Seconds:
    """The time of one kernel as the host sees it.

    Derivation: the host launches, the device computes, the host waits for the end: three steps, one after another.
    Units: s, s and s → s.
    Ignores: overlap. Queued launches and CUDA graphs hide most of the launch behind the kernel before it.
    """
    return launch + compute + sync


@formula(
    row="2.5 Launch-overhead fraction",
    source="definition",
    example={"launch": 10e-6, "compute": 85e-6, "sync": 5e-6},
    answer=0.15,
)
def launch_overhead_fraction(*, compute: q.SomeSeconds, launch: q.Seconds = 0, sync: q.Seconds = 0) -> q.Fraction:
    """The share of a kernel's time that is not computing.

    Derivation: (launch + sync)/(launch + compute + sync).
    Units: s, s and s → 1.
    Ignores: overlap, as in the kernel time it divides by.
    """
    return (launch + sync) / kernel_time(compute=compute, launch=launch, sync=sync)


@formula(
    row="2.7 MXU / systolic utilization",
    source="Jouppi et al. 2017, In-Datacenter Performance Analysis of a Tensor Processing Unit",
    example={"performed": 55e12, "peak": 100e12},
    answer=0.55,
)
def mxu_utilization(*, performed: q.DeliveredRate, peak: q.FlopRate) -> q.Ratio:
    """The share of a matrix unit's capacity that was used.

    Derivation: the rate of matrix arithmetic done over the rate the array has when every cell works every cycle.
    Units: FLOP/s and FLOP/s → 1.
    Ignores: why. Small dimensions leave cells empty, and filling and draining the array costs its side length.
    """
    return cpu.flop_efficiency(delivered=performed, peak=peak)
