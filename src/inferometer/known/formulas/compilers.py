"""Compilers and runtimes: what fusion saves and when compiling pays."""

from inferometer.known.formulas import quantities as q
from inferometer.known.formulas.registry import formula, require


@formula(
    row="16.1 Fusion bytes saved",
    source="definition",
    example={"intermediate_bytes": 2048 * 8192 * 2},
    answer=67_108_864,
)
def fusion_bytes_saved(*, intermediate_bytes: q.Bytes, edges: q.Count = 1) -> q.Bytes:
    """Memory traffic that fusing two operations saves.

    Derivation: unfused, the first writes its result and the second reads it back; fused, it stays in registers. One
    write and one read for each edge that is fused away: 2·bytes.
    Units: B of one intermediate and a count → B.
    Ignores: intermediates that stayed in a cache anyway, and intermediates that another op reads too, which are still
    written.
    """
    return 2 * intermediate_bytes * edges


@formula(
    row="16.4 JIT break-even runs",
    source="definition",
    example={"compile_time": 60.0, "eager_time": 0.020, "jit_time": 0.012},
    answer=7500.0,
)
def jit_break_even(*, compile_time: q.Seconds, eager_time: q.Seconds, jit_time: q.Seconds) -> q.Amount:
    """Runs after which compiling has paid for itself.

    Derivation: each run saves T_eager − T_jit; the saving reaches T_compile after T_compile/(T_eager − T_jit) runs.
    Units: s, s and s → runs; round up.
    Ignores: recompiling for new shapes, and caches that keep compiled code between processes.
    """
    require(
        eager_time > jit_time,
        "eager_time must be longer than jit_time, or compiling never pays",
        eager_time=eager_time,
        jit_time=jit_time,
    )
    return compile_time / (eager_time - jit_time)
