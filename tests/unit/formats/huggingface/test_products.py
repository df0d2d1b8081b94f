"""Each family computes what its library computes: the products of tiny models, counted while transformers ran them.

See tests/data/huggingface/record_products.py. Sizes divide nothing: a plane that is no multiple of its window, a prompt
of five, an encoder of seven.
"""

import json
from collections import Counter
from pathlib import Path

from fakes.every import every
from inferometer.core.dims import evaluate, product
from inferometer.formats.huggingface.graph import graph_from_config

FOLDER = Path(__file__).parents[3] / "data" / "huggingface"
RECORDED = json.loads((FOLDER.parent / "huggingface_products.json").read_text())["cases"]


def elements(tensor, sizes):
    return evaluate(product(tensor.shape), sizes)


def operations(op, sizes):
    """Multiplications and additions of an op's products; of attention, with every pair: that is what eager computes."""
    made = elements(op.outputs[0], sizes)
    if op.kind in {"linear", "matmul"}:
        return 2 * made * op.get("in_features", op.inputs[0].shape[-1])
    if op.kind == "convolution":
        return 2 * made * evaluate(product(op.weights[0].shape[1:]), sizes)
    query, context = (evaluate(op[name], sizes) for name in ("query", "context"))
    keys, width = context if op.get("cross") else context + query, op.get("value_dim", op["head_dim"])
    return 2 * made * keys * (op["head_dim"] + width) // width


@every(sorted(RECORDED))
def test_products_are_those_that_the_library_computes(case):
    truth = dict(RECORDED[case])
    sizes = truth.pop("sizes")
    graph = graph_from_config(json.loads((FOLDER / f"{case}.json").read_text())["config"], name=case)
    found = Counter()
    for block, op in graph.ops():
        if op.kind in {"linear", "matmul", "convolution", "attention"}:
            found[op.kind.replace("matmul", "linear")] += block.count * operations(op, sizes)
    assert found == truth
