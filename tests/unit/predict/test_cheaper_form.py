"""DeepSeek's attention has two forms; engines take the one with fewer operations."""

import numpy as np

from inferometer.core import Binding, Precision
from inferometer.formats.resolve import read
from inferometer.predict.work.rules import work_of

DEEPSEEK = read("deepseek-v3")
ATTENTION = next(op for _, op in DEEPSEEK.ops() if op.kind == "attention")


def work(query, context):
    sizes = {"batch": 1, "query": query, "context": context, "logits": 1}
    return work_of(ATTENTION, Binding(sizes=sizes, precision=Precision(weights="bf16", activations="bf16")))


def test_a_step_is_absorbed_so_a_pair_costs_two_dot_products_of_the_latent():
    pairs = 4097
    assert work(1, 4096).total_flops == 128 * (2 * (576 + 512) + 5) * pairs


def test_a_prompt_is_naive_so_a_pair_costs_what_it_costs_with_heads_of_192_and_128():
    pairs = 4096 * 4097 // 2
    assert work(4096, 0).total_flops == 128 * (2 * (192 + 128) + 5) * pairs


def test_many_workloads_take_each_its_own_form():
    both = work(np.array([1, 4096]), np.array([4096, 0]))
    assert both.total_flops.tolist() == [work(1, 4096).total_flops, work(4096, 0).total_flops]
    assert both.bytes.tolist() == [work(1, 4096).bytes, work(4096, 0).bytes]
