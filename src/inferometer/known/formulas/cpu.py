"""Core execution: clocks, instructions, floating-point peaks and multiply–accumulates."""

from inferometer.known.formulas import quantities as q
from inferometer.known.formulas.registry import formula, require

_HENNESSY = "Hennessy & Patterson, Computer Architecture: A Quantitative Approach, ch. 1"


@formula(row="1.1 Clock period", source="definition", example={"frequency": 3.2e9}, answer=3.125e-10)
def clock_period(*, frequency: q.Hertz) -> q.SomeSeconds:
    """The time of one clock cycle.

    Derivation: f cycles fit into one second, so one cycle takes 1/f.
    Units: Hz → s.
    Ignores: turbo and throttling. The clock is taken as constant; use the mean frequency over the interval.
    """
    return 1.0 / frequency


@formula(row="1.2 IPC", source=_HENNESSY, example={"instructions": 8e9, "cycles": 5e9}, answer=1.6)
def ipc(*, instructions: q.SomeInstructions, cycles: q.SomeCycles) -> q.InstructionsPerCycle:
    """Instructions retired per clock cycle, on average.

    Derivation: a count over a count, both read from the performance counters of the same interval.
    Units: instr and cycle → instr/cycle.
    Ignores: what the instructions do. A vector instruction counts as one, so IPC falls when vector code gets faster.
    """
    return instructions / cycles


@formula(row="1.2 Instruction rate", source=_HENNESSY, example={"ipc": 1.6, "frequency": 3.2e9}, answer=5.12e9)
def instruction_rate(*, ipc: q.InstructionsPerCycle, frequency: q.Hertz) -> q.InstructionRate:
    """Instructions retired per second.

    Derivation: instr/cycle × cycle/s = instr/s.
    Units: instr/cycle and Hz → instr/s.
    Ignores: halted cycles. IPC must be over the cycles of the same clock, or the product is not a rate.
    """
    return ipc * frequency


@formula(row="1.3 CPI", source=_HENNESSY, example={"cycles": 5e9, "instructions": 8e9}, answer=0.625)
def cpi(*, cycles: q.SomeCycles, instructions: q.SomeInstructions) -> q.CyclesPerInstruction:
    """Clock cycles per retired instruction: one over the IPC.

    Derivation: cycles/instructions = 1/(instructions/cycles) = 1/IPC.
    Units: cycle and instr → cycle/instr.
    Ignores: which instructions cost the cycles. It is a mean over the mix.
    """
    return 1.0 / ipc(instructions=instructions, cycles=cycles)


@formula(
    row="1.4.1 Peak FLOPS",
    source=_HENNESSY,
    example={"cores": 1, "frequency": 3e9, "flops_per_cycle": 32},
    answer=96e9,
)
def peak_flops(*, frequency: q.Hertz, flops_per_cycle: q.FlopsPerCycle, cores: q.Count = 1) -> q.FlopRate:
    """The most floating-point operations per second that the cores could retire.

    Derivation: each core retires lanes × 2 (an FMA is a multiply and an add) × FMA units per cycle; cores and cycles
    multiply it. The example: 8 lanes × 2 × 2 units = 32 FLOP/cycle at 3 GHz.
    Units: cores, Hz and FLOP/cycle of one core → FLOP/s.
    Ignores: memory, dependencies, and the lower clock many chips run wide vectors at. Nothing real reaches it.
    """
    return cores * frequency * flops_per_cycle


@formula(row="1.4.2 Delivered FLOPS", source="definition", example={"flops": 4.8e11, "time": 10.0}, answer=48e9)
def delivered_flops(*, flops: q.Flops, time: q.SomeSeconds) -> q.DeliveredRate:
    """Floating-point operations per second that were really done.

    Derivation: work over the time it took.
    Units: FLOP and s → FLOP/s.
    Ignores: where the count comes from. A count from shapes and one from counters differ by recomputed work.
    """
    return flops / time


@formula(
    row="1.4.2 FLOP efficiency",
    source="definition",
    example={"delivered": 48e9, "peak": 96e9},
    answer=0.5,
)
def flop_efficiency(*, delivered: q.DeliveredRate, peak: q.FlopRate) -> q.Ratio:
    """The share of the arithmetic peak that was delivered.

    Derivation: a rate over a rate.
    Units: FLOP/s and FLOP/s → 1 (0.5 is 50 %).
    Ignores: whether the peak can be reached at this intensity; see the roofline. A value above 1 says that the peak
    is of another data type or clock, or that the count is wrong.
    """
    return delivered / peak


@formula(row="1.5 MAC rate", source="definition", example={"macs_per_cycle": 16, "frequency": 3e9}, answer=48e9)
def mac_rate(*, macs_per_cycle: q.MacsPerCycle, frequency: q.Hertz) -> q.MacRate:
    """Multiply–accumulates per second of a unit that does some every cycle.

    Derivation: MAC/cycle × cycle/s = MAC/s.
    Units: MAC/cycle and Hz → MAC/s.
    Ignores: stalls and idle lanes. It is a peak.
    """
    return macs_per_cycle * frequency


@formula(row="1.5 GMAC", source="definition", example={"outputs": 25e6, "length": 1000}, answer=2.5e10)
def macs(*, outputs: q.Count, length: q.Count = 1) -> q.Macs:
    """How many multiply–accumulates a layer does.

    Derivation: every output is a dot product of `length` terms, and each term is one a ← a + b·c. For a matrix product
    [m, k] × [k, n] that is m·n outputs of length k; for a convolution the length is channels × kernel area.
    Units: outputs and terms → MAC. The source divides by 10⁹; prefixes belong to the printing, so this does not.
    Ignores: bias and activation, and algorithms that need fewer (Winograd, FFT).
    """
    return outputs * length


@formula(row="1.5 FLOPs from MACs", source="definition", example={"macs": 2.5e10}, answer=5e10)
def flops_from_macs(*, macs: q.Macs) -> q.Flops:
    """Floating-point operations in a number of multiply–accumulates.

    Derivation: a MAC is one multiplication and one addition, so two.
    Units: MAC → FLOP.
    Ignores: that some tools print MACs under the name FLOPs. Check which one a published number is.
    """
    return 2 * macs


@formula(
    row="1.6 FP fraction",
    source="definition",
    example={"fp_instructions": 3e9, "instructions": 8e9},
    answer=0.375,
)
def fp_fraction(*, fp_instructions: q.Instructions, instructions: q.SomeInstructions) -> q.Fraction:
    """The share of instructions that are floating-point.

    Derivation: a count over the count it is part of.
    Units: instr and instr → 1.
    Ignores: the width. One 512-bit FMA and one scalar add both count as one.
    """
    require(
        fp_instructions <= instructions,
        "fp_instructions must not exceed instructions",
        fp_instructions=fp_instructions,
        instructions=instructions,
    )
    return fp_instructions / instructions


@formula(
    row="1.6 Memory instr fraction",
    source="definition",
    example={"loads": 1.6e9, "stores": 0.8e9, "instructions": 8e9},
    answer=0.3,
)
def memory_instruction_fraction(
    *, loads: q.Instructions, stores: q.Instructions, instructions: q.SomeInstructions
) -> q.Fraction:
    """The share of instructions that load or store.

    Derivation: loads and stores are disjoint, so their counts add; the sum is part of all instructions.
    Units: instr, instr and instr → 1.
    Ignores: instructions that do arithmetic on a memory operand. Whether they count as loads depends on the counter.
    """
    require(
        loads + stores <= instructions,
        "loads and stores together must not exceed instructions",
        loads=loads,
        stores=stores,
        instructions=instructions,
    )
    return (loads + stores) / instructions
