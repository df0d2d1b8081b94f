"""Every optional argument of every formula in a worked example of its own, which a person can follow in their head.

The examples of the reference (`formulas.json`) leave these arguments at their defaults, so nothing would notice one
that is ignored. Numbers are chosen so that neighbours (weights and gradients, registers and shared memory) differ.
"""

import math

import pytest

from fakes.every import every
from inferometer.known.formulas.registry import all_formulas

ATTENTION = {"parameters": 1000, "layers": 3, "attention_width": 5, "context": 7}  # 4·3·5·7 = 420
BLOCK = {"registers_per_thread": 32, "threads_per_block": 256}  # 8 warps; 65,536 / 8192 = 8 blocks
WORK = {"flops": 6e12, "bytes": 1e9, "peak": 2e12, "bandwidth": 1e9}  # 3 s of arithmetic, 1 s of traffic

# Formula, its arguments, which of them are proved, the answer. The working stands beside it.
EXAMPLES = [
    # 50,000 B a block: 4 fit into 233,472; 4 · 8 warps of 64
    ("occupancy_from_resources", {**BLOCK, "shared_memory_per_block": 50_000}, "shared_memory_per_block", 0.5),
    # 100,000 B for blocks of 50,000: 2 · 8 of 64
    ("occupancy_from_resources", {**BLOCK, "shared_memory_per_block": 50_000, "shared_memory": 100_000},
     "shared_memory", 0.25),
    # 24,576 registers: 3 blocks; 3 · 8 of 64
    ("occupancy_from_resources", {**BLOCK, "registers": 24_576}, "registers", 0.375),
    ("occupancy_from_resources", {**BLOCK, "max_blocks": 5}, "max_blocks", 0.625),  # 5 · 8 of 64
    # 96 warps have room for 12 blocks, registers for 8: 64 of 96
    ("occupancy_from_resources", {**BLOCK, "max_warps": 96}, "max_warps", 2 / 3),
    ("gemv_intensity", {"bytes_per_weight": 2, "rows": 7}, "rows", 7.0),  # 2 · 7 operations for 2 bytes
    *(
        (name, ATTENTION, argument, passes * 2420)  # 2 · 1000 + 420 a pass
        for name, passes in (
            ("forward_flops_per_token", 1), ("training_flops_per_token", 3), ("training_flops_per_token_recompute", 4)
        )
        for argument in ("layers", "attention_width", "context")
    ),
    ("training_memory", {"parameters": 100, "activations": 37}, "activations", 1637),  # 100 · 16 + 37
    ("training_memory", {"parameters": 100, "weight_bytes": 4}, "weight_bytes", 1800),  # 4 + 2 + 12
    ("training_memory", {"parameters": 100, "gradient_bytes": 5}, "gradient_bytes", 1900),  # 2 + 5 + 12
    ("training_memory", {"parameters": 100, "optimizer_bytes": 8}, "optimizer_bytes", 1200),  # 2 + 2 + 8
    ("ttft_model", WORK | {"queue": 0.5}, "queue", 3.5),
    ("ttft_model", WORK | {"tokenize": 0.25}, "tokenize", 3.25),
    ("ttft_model", WORK | {"sample": 0.125}, "sample", 3.125),
    ("ttft_model", WORK | {"compute_utilization": 0.5}, "compute_utilization", 6.0),
    ("ttft_model", WORK | {"memory_utilization": 0.2}, "memory_utilization", 5.0),  # 5 s of traffic, now the longer
    # (100 + 3 · 20) B at 10 B/s
    ("decode_floor", {"weight_bytes": 100, "kv_bytes": 20, "bandwidth": 10, "batch": 3}, "batch", 16.0),
    ("decode_floor", {"weight_bytes": 100, "kv_bytes": 20, "bandwidth": 10, "utilization": 0.5}, "utilization", 24.0),
    # 8 · 2 · 3 numbers of 5 B are 240 B; a quarter each, three quarters of it leave: 45 B at 9 B/s
    ("all_to_all", {"tokens": 8, "hidden": 3, "experts_per_token": 2, "devices": 4, "bandwidth": 9, "element_bytes": 5},
     "element_bytes", 5.0),
    ("symmetric_quantize", {"value": 3.0, "largest": 7.0, "bits": 4}, "bits", 3),  # 7 is the largest of 4 bits
    ("topology_cost", {"hops": 3, "bytes": 10, "bandwidth": 5, "latency": 0.5}, "latency", 7.5),  # 3 · (2 + 0.5)
    ("fusion_bytes_saved", {"intermediate_bytes": 11, "edges": 3}, "edges", 66),  # written and read, three times
    ("edgeprofiler_energy", {"flops": 3, "bytes": 0, "joules_per_flop": 2}, "joules_per_flop", 6.0),
    # Those below stand in the reference's examples, but at their defaults.
    ("peak_flops", {"cores": 3, "frequency": 7, "flops_per_cycle": 2}, "cores", 42),
    ("warp_execution_efficiency", {"active_threads": 24, "warp_size": 64}, "warp_size", 0.375),  # AMD's wavefront
    ("peak_dram_bandwidth", {"bus_bytes": 8, "transfer_rate": 5, "channels": 3}, "channels", 120),
    ("ttft", {"first_token": 1.5, "request": 0.25}, "request", 1.25),
    ("kv_bytes_per_token_mha", {"layers": 3, "hidden": 5, "element_bytes": 7}, "element_bytes", 210),  # 2 · 3 · 5 · 7
    # keys and values: 2 · 3 · 5 · 7 numbers of 1 B
    ("kv_bytes_per_token", {"layers": 3, "kv_heads": 5, "head_dim": 7, "element_bytes": 1}, "element_bytes", 210),
    ("kv_cache_bytes", {"bytes_per_token": 3, "tokens": 5, "batch": 7}, "batch", 105),
    # two all-reduces of 3 · 5 · 7 numbers of 4 B
    ("tp_communication_bytes", {"tokens": 5, "hidden": 7, "batch": 3, "element_bytes": 4}, "batch", 840),
    ("tp_communication_bytes", {"tokens": 5, "hidden": 7, "batch": 3, "element_bytes": 4}, "element_bytes", 840),
    ("bisection_bandwidth", {"nodes": 16, "link_bandwidth": 3, "topology": "ring"}, "topology", 6),  # two links are cut
    ("bisection_bandwidth", {"nodes": 16, "link_bandwidth": 3, "topology": "mesh"}, "topology", 192),  # 8 · 8 links
    ("bisection_bandwidth", {"nodes": 4, "link_bandwidth": 3, "topology": "fat-tree"}, "topology", 6),  # half the nodes
    ("bisection_bandwidth", {"nodes": 16, "link_bandwidth": 2, "topology": "dragonfly"}, "topology", 8),  # a quarter
    ("edgeprofiler_energy", {"flops": 0, "bytes": 3, "joules_per_byte": 5}, "joules_per_byte", 15.0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "arguments", "proved", "answer"),
    EXAMPLES,
    ids=[f"{name}-{proved}" for name, _, proved, _ in EXAMPLES],
)
def test_an_optional_argument_gives_the_answer_worked_out_by_hand(name, arguments, proved, answer):
    formula = all_formulas()[name]
    assert math.isclose(formula.function(**arguments), answer, rel_tol=1e-12)
    without = {key: value for key, value in arguments.items() if key != proved}
    assert not math.isclose(formula.function(**without), answer, rel_tol=1e-6), "the default gives the same"


def test_every_argument_of_every_formula_is_in_an_example():
    worked = {(name, proved) for name, _, proved, _ in EXAMPLES}
    missing = [
        f"{formula.name}({argument})"
        for formula in all_formulas().values()
        for argument in formula.inputs
        if argument not in formula.example and (formula.name, argument) not in worked
    ]
    assert missing == []


@every(all_formulas().values(), name=lambda formula: formula.name)
def test_an_optional_argument_of_an_example_changes_its_answer(formula):
    """One that is at its default, or that the answer does not depend on, proves nothing: it is worked out above."""
    worked = {proved for name, _, proved, _ in EXAMPLES if name == formula.name}
    for argument in formula.signature.defaults.keys() & formula.example.keys() - worked:
        without = {name: value for name, value in formula.example.items() if name != argument}
        assert formula.function(**without) != formula.answer, argument
