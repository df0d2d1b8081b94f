from dataclasses import replace

import pytest

from inferometer.core.workload import Precision, Workload
from inferometer.formats.resolve import read
from inferometer.known import device
from inferometer.known.engines import require_effects
from inferometer.predict import work_of
from inferometer.predict.options import Options
from inferometer.predict.question import Question
from inferometer.predict.ready import make_ready
from inferometer.predict.work.rules.experts import share_touched
from unit.predict.decoders import at, tokens, weight
from unit.predict.examples import experts, op

STACK = 64 * 3 * 32 * 48 * 2


def test_one_token_reads_exactly_the_experts_it_chose():
    assert work_of(experts(), at()).weights == STACK * 6 // 64


def test_many_tokens_read_nearly_every_expert_and_never_more():
    assert work_of(experts(), at(query=20)).weights == pytest.approx(STACK * (1 - (1 - 6 / 64) ** 20), abs=1)
    assert work_of(experts(), at(query=100_000)).weights == STACK


def test_choosing_every_expert_reads_every_expert():
    assert share_touched(8, 8, 1) == 1


def test_operations_grow_with_the_routed_rows_only():
    few, many = (work_of(experts(experts=n), at(query=7)).total_flops for n in (8, 64))
    assert few == many == 7 * 6 * (2 * 32 * 48 * 3 + (5 + 1) * 48 + 2 * 32)


def test_without_a_gate_there_are_two_products():
    assert work_of(experts(gated=False), at()).total_flops == 6 * (2 * 32 * 48 * 2 + 5 * 48 + 2 * 32)


def test_routed_rows_are_written_and_read_back_between_the_products():
    work = work_of(experts(), at(query=7))
    inside = 7 * 6 * (3 * 48 + 32) * 2
    assert work.reads == work.writes == 7 * 32 * 2 + inside


def test_kernels_that_sort_tokens_by_their_expert_cost_the_host_and_do_not_move_all_of_them_again():
    workload = Workload(prompt=2000, generate=1)
    asked = [
        Question(graph=read("olmoe-1b-7b"), device=device("nvidia-h200"), runtime=runtime, workload=workload)
        for runtime in ("torch-eager", "torch-graph")
    ]
    eager, captured = (question.answer().phase("prefill").ops for question in asked)
    assert experts_s(eager) < 1.5 * experts_s(captured)


@pytest.mark.parametrize(
    ("on", "engine", "passes"), [("nvidia-h200", "torch-graph", 8), ("intel-emerald-rapids-1-vcpu", "torch-eager", 0)]
)
def test_on_a_gpu_rows_of_experts_pass_through_memory_beside_their_products(on, engine, passes):
    """16 layers, each of 2 × 300 tokens through 8 experts: 2,048 numbers in and out, twice 1,024 between."""
    effects = require_effects(engine)
    told, bare = (beside_s(on, each) for each in (effects, replace(effects, routed=None)))
    seconds = 16 * 2 * 300 * 8 * (2 * 2048 + 2 * 1024) * 2 / 4.8e12
    assert told - bare == pytest.approx(passes * seconds, rel=1e-6, abs=1e-12)


def beside_s(on, effects):
    workload = Workload(precision=Precision(weights="bf16"))
    plan = make_ready(read("olmoe-1b-7b"), device(on), effects=effects, workload=workload, options=Options()).plan
    sizes = {"batch": 2, "query": 300, "context": 0, "logits": 1}
    return plan.step(sizes, "prefill").sums().waiting_s


def experts_s(ops):
    return sum(op.time_s for op in ops if op.kind == "moe_experts")


def test_quantised_experts_move_their_blocks():
    assert work_of(experts(dtype="q8_0"), at(query=100_000)).weights == STACK // 2 // 32 * 34


def test_biases_of_experts_add_once_for_each_number():
    plain = experts()
    biased = op("moe_experts", plain.inputs, plain.outputs, (*plain.weights, weight("b", 64, 96)), **plain.attributes)
    added = work_of(biased, at()).total_flops - work_of(plain, at()).total_flops
    assert added == 6 * 96


def test_a_router_scores_every_expert_for_every_row():
    router = op("moe_router", [tokens("x", 96)], [tokens("y", 6)], [weight("w", 64, 96)], experts=64, top_k=8)
    work = work_of(router, at(query=5))
    assert work.total_flops == 5 * 64 * (2 * 96 + 5 + 3)
    assert work.weights == 64 * 96 * 2
