"""What must hold between the arguments of a formula, one line a relation, for numbers and for arrays."""

import numpy as np
import pytest

from inferometer.core.errors import DomainError
from inferometer.known.formulas.registry import all_formulas, find_formula

# formula, what differs from its example, what the message says
RELATIONS = [
    ("fp_fraction", {"fp_instructions": 9e9}, "fp_instructions must not exceed instructions"),
    ("memory_instruction_fraction", {"loads": 8e9}, "loads and stores together"),
    ("sm_occupancy", {"active_warps": 65}, "active_warps must not exceed max_warps"),
    ("occupancy_from_resources", {"registers_per_thread": 255, "threads_per_block": 1024}, "one block must fit"),
    ("occupancy_from_resources", {"shared_memory_per_block": 300_000}, "one block must fit"),
    ("occupancy_from_resources", {"threads_per_block": 4096, "registers_per_thread": 1}, "one block must fit"),
    ("warp_execution_efficiency", {"active_threads": 33}, "active_threads must not exceed warp_size"),
    ("tensor_core_utilization", {"active_cycles": 2e9}, "active_cycles must not exceed cycles"),
    ("hit_ratio", {"hits": 1001}, "hits must not exceed accesses"),
    ("miss_ratio", {"misses": 5e8}, "misses must not exceed accesses"),
    ("data_starvation_ratio", {"wait": 0.3}, "wait must not exceed step"),
    ("device_utilization", {"busy": 61.0}, "busy must not exceed observed"),
    ("unit_utilization", {"busy_cycles": 2e9}, "busy_cycles must not exceed cycles"),
    ("stall_fraction", {"stall_cycles": 2e9}, "stall_cycles must not exceed cycles"),
    ("mm1_response", {"arrival_rate": 25}, "arrival_rate must be below service_rate"),
    ("mm1_utilization", {"arrival_rate": 30}, "arrival_rate must be below service_rate"),
    ("optimal_batch_throughput", {"limit": 0.011}, "a batch of one"),
    ("availability", {"successes": 10_001}, "successes must not exceed requests"),
    ("batch_fill_rate", {"mean_batch": 33}, "mean_batch must not exceed max_batch"),
    ("ttft", {"request": 2.0}, "first_token must not be before request"),
    ("tpot", {"e2e": 1.0}, "e2e must not be shorter than ttft"),
    ("max_concurrent_sequences", {"weights": 600e9}, "weights and reserve must fit into memory"),
    ("pass_at_k", {"c": 21}, "c must not exceed n"),
    ("pass_at_k", {"k": 21}, "k must not exceed n"),
    ("overlap_ratio", {"hidden": 0.031}, "hidden must not exceed total"),
    ("bisection_bandwidth", {"nodes": 15}, "nodes must be even"),
    ("bisection_bandwidth", {"nodes": 18}, "k × k nodes"),
    ("effective_spot_price", {"time_with_preemption": 0.9}, "must not be shorter than ideal_time"),
    ("battery_life", {"rate": 0, "idle_power": 0}, "something must draw power"),
    ("jit_break_even", {"jit_time": 0.020}, "compiling never pays"),
]


@pytest.mark.parametrize(("name", "changes", "why"), RELATIONS)
def test_arguments_must_fit_each_other(name, changes, why):
    formula = find_formula(name)
    with pytest.raises(DomainError, match=rf"^{name}: .*{why}.* is {next(iter(changes.values()))}"):
        formula.function(**{**formula.example, **changes})


@pytest.mark.parametrize(("name", "changes", "why"), RELATIONS)
def test_one_element_that_does_not_fit_is_enough(name, changes, why):
    formula = find_formula(name)
    pairs = {key: np.array([formula.example.get(key, value), value]) for key, value in changes.items()}
    with pytest.raises(DomainError, match=rf"^{name}: .*{why}"):
        formula.function(**{**formula.example, **pairs})


@pytest.mark.parametrize(
    ("name", "changes", "why"),
    [
        ("clock_period", {"frequency": 0}, "frequency must be greater than 0, and is 0"),
        ("peak_flops", {"cores": 0}, "cores must be 1 or more, and is 0"),
        ("peak_flops", {"cores": 2.5}, "cores must be a whole number, and is 2.5"),
        ("inference_latency", {"model": -0.04}, "model must be 0 or more, and is -0.04"),
        ("fanout_tail_probability", {"p": 1.2}, "p must be 1 or less, and is 1.2"),
        ("percentile_linear", {"p": 95}, "p must be 1 or less, and is 95"),
        ("percentile_linear", {"samples": []}, r"samples must not be empty, and is \[\]"),
        ("amdahl", {"fraction": 1.01}, "fraction must be 1 or less"),
        ("amdahl_limit", {"fraction": 1.0}, "fraction must be less than 1, and is 1.0"),
        ("karp_flatt", {"n": 1}, "n must be 2 or more, and is 1"),
        ("tpot", {"tokens": 1}, "tokens must be 2 or more, and is 1"),
        ("roofline", {"peak": 0}, "peak must be greater than 0"),
        ("load_balance", {"times": [0, 0]}, "times must hold a time greater than 0"),
        ("throughput_pipeline", {"stages": [0.0]}, "stages must hold a time greater than 0"),
        ("hierarchical_roofline", {"intensities": [1.0]}, "bandwidths and intensities must have one value"),
        ("bisection_bandwidth", {"topology": "star"}, "topology must be one of torus, fat-tree, dragonfly, ring, mesh"),
        ("energy_by_integration", {"powers": [10]}, "powers must hold 2 values or more"),
        ("co2e", {"pue": 0.9}, "pue must be 1 or more, and is 0.9"),
        ("usd_per_million_tokens", {"tokens_per_s": 0}, "tokens_per_s must be greater than 0"),
        ("symmetric_quantize", {"bits": 1}, "bits must be 2 or more"),
        ("speculative_tokens", {"acceptance": -0.1}, "acceptance must be 0 or more"),
        ("pass_at_k", {"n": 2_000_000}, "n must be 1000000 or less"),
    ],
)
def test_a_value_must_lie_in_the_range_of_its_quantity(name, changes, why):
    formula = find_formula(name)
    with pytest.raises(DomainError, match=rf"^{name}: {why}"):
        formula.function(**{**formula.example, **changes})


def test_what_does_not_fit_comes_with_a_remedy():
    formula = find_formula("max_concurrent_sequences")
    with pytest.raises(DomainError) as caught:
        formula.function(**{**formula.example, "weights": 1e12})
    assert "fewer bits a weight" in caught.value.remedy


def test_the_ends_of_a_range_are_inside():
    call = {name: formula.function for name, formula in all_formulas().items()}
    assert call["amdahl"](fraction=1, speedup=4) == 4
    assert call["amdahl_cores"](fraction=0, n=8) == 1
    assert call["fanout_tail_probability"](p=1, n=3) == 1
    assert call["fanout_tail_probability"](p=0, n=3) == 0
    assert call["speculative_tokens"](acceptance=1, draft_length=4) == 5
    assert call["speculative_tokens"](acceptance=0, draft_length=4) == 1
    assert call["speculative_tokens"](acceptance=0.5, draft_length=0) == 1
    assert call["pass_at_k"](n=5, c=0, k=5) == 0
    assert call["pass_at_k"](n=5, c=1, k=5) == 1
    assert call["ring_allreduce"](n=1, bytes=1e9, bandwidth=1e9, latency=1) == 0
    assert call["pipeline_bubble"](stages=1, micro_batches=1) == 0
    assert call["percentile_nearest_rank"](samples=[3, 1, 2], p=0) == 1
    assert call["percentile_nearest_rank"](samples=[3, 1, 2], p=1) == 3
    assert call["percentile_linear"](samples=[7], p=0.3) == 7
    assert call["max_concurrent_sequences"](memory=10, weights=5, kv_bytes_per_token=1, context=6) == 0


def test_rounding_errors_do_not_add_a_replica_or_lose_a_request():
    assert find_formula("replicas_needed").function(arrival_rate=70, service_time=0.01, target_utilization=0.7) == 1
    assert find_formula("hpa_replicas").function(replicas=3, metric=0.1, target=0.1) == 3
    batch_of_20 = find_formula("optimal_batch_throughput").function(fixed=0.010, per_request=0.002, limit=0.050)
    assert batch_of_20 == pytest.approx(400.0)


def test_seven_percent_of_a_hundred_samples_is_the_seventh():
    """0.07 × 100 is a hair above 7 in floating point."""
    samples = list(range(1, 101))
    nearest_rank = find_formula("percentile_nearest_rank").function
    assert [nearest_rank(samples=samples, p=rank / 100) for rank in range(1, 101)] == samples


@pytest.mark.parametrize(
    ("topology", "nodes", "links"), [("torus", 16, 8), ("ring", 8, 2), ("fat-tree", 64, 32), ("mesh", 8, 16)]
)
def test_a_bisection_cuts_the_links_of_its_topology(topology, nodes, links):
    bisection = find_formula("bisection_bandwidth").function
    assert bisection(nodes=nodes, link_bandwidth=1.0, topology=topology) == links


def test_occupancy_has_four_limits():
    occupancy = find_formula("occupancy_from_resources").function
    assert occupancy(registers_per_thread=64, threads_per_block=256) == 0.5  # registers: 4 blocks of 8 warps
    assert occupancy(registers_per_thread=16, threads_per_block=32) == 0.5  # 32 blocks of 1 warp
    assert occupancy(registers_per_thread=16, threads_per_block=768) == 0.75  # 64 slots hold 2 blocks of 24 warps
    assert occupancy(registers_per_thread=16, threads_per_block=256, shared_memory_per_block=100_000) == 0.25


def test_attention_is_counted_where_it_is_described():
    forward = find_formula("forward_flops_per_token").function
    assert forward(parameters=1e9, layers=16, attention_width=2048, context=1024) == 2e9 + 4 * 16 * 2048 * 1024
    train, again = (find_formula(f"training_flops_per_token{end}").function for end in ("", "_recompute"))
    shape = {"parameters": 1e9, "layers": 16, "attention_width": 2048, "context": 1024}
    assert train(**shape) == 3 * forward(**shape)
    assert again(**shape) == 4 * forward(**shape)
