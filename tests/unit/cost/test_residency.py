"""Memory made ready for many sizes is the memory of `footprint`."""

from dataclasses import replace

import numpy as np
import pytest

from inferometer.catalog.engines import runtime_effects
from inferometer.core import Block, Graph, Parallel
from inferometer.cost import footprint
from inferometer.cost.memory.residency import residency_of
from inferometer.cost.parallel import place
from inferometer.cost.work.prepare import Terms
from unit.cost.decoders import BF16, LLAMA_3_1_8B, at, decoder, tensor, tokens
from unit.cost.examples import cross, experts, mla, op, state

SMALL = {"hidden": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "ffn": 128, "vocab": 100}
TERMS = Terms(precision=BF16, effects=runtime_effects("ideal"))


def graph(*ops, count=1):
    return Graph(name="graph", blocks=(Block(name="all", ops=ops, count=count),), precision="bf16")


SCAN = op("ssm_scan", [tokens("x", 64), state("h.{}", 64, 16)], [tokens("y", 64)], inner=64, state=16)
LOOSE = op("copy", [tensor("past.{}", 2, 10, 64, role="kv"), tokens("new", 64)], [tokens("y", 64)])
MODELS = [
    LLAMA_3_1_8B,
    decoder(layers=3, windows=((32, 2),), **SMALL),
    decoder(layers=2, tied=True, **SMALL),
    graph(SCAN, count=4),
    graph(experts(), count=2),
    graph(mla(absorbed=False), count=3),
    graph(LOOSE, count=2),
]


def residency(model, terms=TERMS, **plan):
    return residency_of(model, place(model, Parallel(**plan)), terms)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.blocks[0].ops[0].kind)
@pytest.mark.parametrize("sizes", [{"query": 1, "context": 100}, {"batch": 3, "query": 40, "context": 0}])
def test_it_is_the_footprint(model, sizes):
    sizes = {"batch": 1, "logits": 1, **sizes}
    found, expected = residency(model).use(sizes), footprint(model, at(**sizes))
    for name in ("weights_bytes", "kv_bytes", "state_bytes", "activations_bytes", "workspace_bytes"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name)), name
    assert found.total_bytes == pytest.approx(expected.peak_bytes)


def test_a_fixed_size_is_put_in():
    model = graph(cross(cached=True), count=6)
    found = residency(model, replace(TERMS, fixed={"encoder": 1500}))
    assert found.use({"batch": 1, "query": 1, "context": 0, "logits": 1}).kv_bytes == 6 * 1500 * 2 * 512 * 2
    assert found.kv_bytes_per_token == 0


@pytest.mark.parametrize("model", MODELS[:2])
def test_many_workloads_at_once_are_each_workload_alone(model):
    contexts = np.array([[1, 50, 500]])
    together = residency(model).use({"batch": np.array([[1], [4]]), "query": 1, "context": contexts, "logits": 1})
    assert together.kv_bytes.shape == (2, 3)
    for row, batch in enumerate((1, 4)):
        for column, context in enumerate((1, 50, 500)):
            alone = residency(model).use({"batch": batch, "query": 1, "context": context, "logits": 1})
            assert together.total_bytes[row, column] == pytest.approx(alone.total_bytes)


def test_tensor_parallel_devices_share_weights_and_cache():
    sizes = {"batch": 1, "query": 1, "context": 999, "logits": 1}
    whole, half = residency(LLAMA_3_1_8B).use(sizes), residency(LLAMA_3_1_8B, tp=2).use(sizes)
    norms = 65 * 4096 * 2  # kept whole
    assert half.weights_bytes == (whole.weights_bytes - norms) / 2 + norms
    assert half.kv_bytes == whole.kv_bytes / 2
    assert half.activations_bytes < whole.activations_bytes


def test_pipeline_stages_share_the_layers_and_not_the_tables():
    whole = residency(LLAMA_3_1_8B).weights_bytes
    tables = 2 * 128_256 * 4096 * 2
    quarter = residency(LLAMA_3_1_8B, replace(TERMS, stages=4), pp=4)
    rest = 4096 * 2  # the final norm
    assert quarter.weights_bytes == pytest.approx((whole - tables - rest) / 4 + tables + rest)


def test_offloaded_weights_lie_elsewhere():
    down = next(n for n, o in enumerate(LLAMA_3_1_8B.blocks[1].ops) if o.name.endswith("down_proj"))
    found = residency(LLAMA_3_1_8B, replace(TERMS, offloaded=frozenset({(1, down)})))
    assert found.offloaded_bytes == 32 * 4096 * 14336 * 2
    assert found.weights_bytes + found.offloaded_bytes == residency(LLAMA_3_1_8B).weights_bytes
