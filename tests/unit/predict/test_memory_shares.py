"""Memory on devices that share a model: the long way agrees with the short one, and MLA's naive form takes its room."""

from dataclasses import replace

import numpy as np
import pytest

from inferometer.core import Parallel, Precision, Workload
from inferometer.formats.resolve import read
from inferometer.known.engines import require_effects
from inferometer.predict.options import Options
from inferometer.predict.ready import make_layout
from inferometer.predict.work.rules.attention import expanded_bytes
from unit.predict.decoders import at

SIZES = {"batch": 2, "query": 16, "context": 100, "logits": 1}
PARTS = ("kv_bytes", "state_bytes", "activations_bytes", "workspace_bytes")


def passing(model, **plan):
    workload = Workload(parallel=Parallel(**plan), precision=Precision(weights="bf16", activations="bf16", kv="bf16"))
    layout = make_layout(read(model), effects=require_effects("ideal"), workload=workload, options=Options())
    return layout.residency.passing


@pytest.mark.parametrize("plan", [{}, {"tp": 2}, {"pp": 2}, {"tp": 4, "pp": 3}])
@pytest.mark.parametrize("model", ["llama-3.2-1b", "gemma-3-1b"])
def test_a_graph_that_is_no_polynomial_is_shared_like_any_other(model, plan):
    """It was counted whole on every device: a cache of 16 layers where eight lie on each of two stages."""
    if model == "gemma-3-1b":
        plan = {name: size for name, size in plan.items() if name == "pp"}  # one key-value head
    short = passing(model, **plan)
    long_way = replace(short, first=None, later=None)
    found, expected = long_way.use(SIZES), short.use(SIZES)
    for part in PARTS:
        assert getattr(found, part) == pytest.approx(getattr(expected, part), rel=1e-9), part


def test_the_cheaper_form_of_mla_needs_room_where_it_is_the_naive_one():
    """A chunk of a long prompt expands the cached latents; a decode step works on the latents themselves."""
    graph = read("deepseek-v2-lite")
    (op, *_) = (op for _, op in graph.ops() if op.kind == "attention")
    assert op["absorbed"] == "cheaper"
    chunk, step = (at(batch=1, query=query, context=1000, logits=1) for query in (512, 1))
    per_token = op["heads"] * (op["head_dim"] - op["rope_dim"] + op["value_dim"])
    assert expanded_bytes(op, chunk) == 2 * 1000 * per_token
    assert expanded_bytes(op, step) == 0
    both = expanded_bytes(op, at(batch=1, query=np.array([512, 1]), context=1000, logits=1))
    assert both.tolist() == [2 * 1000 * per_token, 0]


def test_the_room_is_in_the_memory_of_a_chunked_prompt():
    found = passing("deepseek-v2-lite")
    chunk, step = (found.use({"batch": 1, "query": query, "context": 8192, "logits": 1}) for query in (512, 1))
    experts = passing("deepseek-v2-lite").use({"batch": 1, "query": 512, "context": 0, "logits": 1}).workspace_bytes
    assert chunk.workspace_bytes > experts
    assert step.workspace_bytes < experts
