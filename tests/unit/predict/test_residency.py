"""How several devices share memory. That one device has the memory of `footprint`: tests/property/test_price.py."""

from dataclasses import replace

import numpy as np
import pytest

from inferometer.core import Block, Graph, Parallel
from inferometer.known.engines import runtime_effects
from inferometer.predict.memory.residency import _without_once, residency_of
from inferometer.predict.parallel import place
from inferometer.predict.work.merge import with_sizes
from inferometer.predict.work.prepare import Terms
from unit.predict.decoders import BF16, LLAMA_3_1_8B, decoder, tokens
from unit.predict.examples import cross, op, state

SMALL = {"hidden": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "ffn": 128, "vocab": 100}
SCAN = op("ssm_scan", [tokens("x", 64), state("h.{}", 64, 16)], [tokens("y", 64)], inner=64, state=16)
TERMS = Terms(precision=BF16, effects=runtime_effects("ideal"))


def graph(*ops, count=1):
    return Graph(name="graph", blocks=(Block(name="all", ops=ops, count=count),), precision="bf16")


def residency(model, terms=TERMS, **plan):
    return residency_of(model, place(model, Parallel(**plan)), terms)


def test_a_fixed_size_is_put_in():
    model = with_sizes(graph(cross(cached=True), count=6), {"encoder": 1500})
    found = residency(model)
    assert found.use({"batch": 1, "query": 1, "context": 0, "logits": 1}).kv_bytes == 6 * 1500 * 2 * 512 * 2
    assert found.kv_bytes_per_token == 0


@pytest.mark.parametrize("model", [LLAMA_3_1_8B, decoder(layers=3, windows=((32, 2),), **SMALL)])
def test_many_workloads_at_once_are_each_workload_alone(model):
    contexts = np.array([[1, 50, 500]])
    together = residency(model).use({"batch": np.array([[1], [4]]), "query": 1, "context": contexts, "logits": 1})
    assert together.kv_bytes.shape == (2, 3)
    for row, batch in enumerate((1, 4)):
        for column, context in enumerate((1, 50, 500)):
            alone = residency(model).use({"batch": batch, "query": 1, "context": context, "logits": 1})
            assert together.total_bytes[row, column] == pytest.approx(alone.total_bytes)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("model", [LLAMA_3_1_8B, decoder(layers=3, windows=((32, 2),), **SMALL)])
def test_a_batch_of_sequences_takes_what_its_parts_add_up_to(model, first):
    sizes = {"batch": np.array([[1.0], [4.0]]), "query": np.array([[1.0, 7.0, 90.0]]), "context": 5, "logits": 1}
    passing = residency(model).passing
    expected = passing.use(sizes, first=first).total_bytes
    np.testing.assert_array_equal(np.broadcast_to(passing.total_bytes(sizes, first=first), (2, 3)), expected)


def test_tensor_parallel_devices_share_weights_and_cache():
    sizes = {"batch": 1, "query": 1, "context": 999, "logits": 1}
    whole, half = residency(LLAMA_3_1_8B).use(sizes), residency(LLAMA_3_1_8B, tp=2).use(sizes)
    norms = 65 * 4096 * 2  # kept whole
    assert half.weights_bytes == (whole.weights_bytes - norms) / 2 + norms
    assert half.kv_bytes == whole.kv_bytes / 2
    assert half.activations_bytes < whole.activations_bytes


def test_pipeline_stages_share_the_layers_and_not_the_tables():
    whole = residency(LLAMA_3_1_8B).weights_bytes
    table = 128_256 * 4096 * 2
    quarter = residency(LLAMA_3_1_8B, replace(TERMS, stages=4), pp=4)
    rest = 4096 * 2  # the final norm, which the last stage has beside its head; the embedding is on the first
    assert quarter.weights_bytes == pytest.approx((whole - 2 * table - rest) / 4 + table + rest)
    assert quarter.weights_bytes / 2**30 == pytest.approx(4.26, rel=0.01)  # vLLM 0.19's own log of the first of four


def test_offloaded_weights_lie_elsewhere():
    down = next(n for n, o in enumerate(LLAMA_3_1_8B.blocks[1].ops) if o.name.endswith("down_proj"))
    found = residency(LLAMA_3_1_8B, replace(TERMS, offloaded=frozenset({(1, down)})))
    assert found.offloaded_bytes == 32 * 4096 * 14336 * 2
    assert found.weights_bytes + found.offloaded_bytes == residency(LLAMA_3_1_8B).weights_bytes


def test_a_later_step_has_the_keys_of_an_encoder_in_its_cache_or_makes_them_again():
    fresh = cross(cached=False)
    kept, once = (
        replace(fresh, name=name, attributes={**fresh.attributes, **more})
        for name, more in (("kept", {"cached": True}), ("once", {"once": True}))
    )
    graph = Graph(name="g", blocks=(Block(name="b", ops=(fresh, kept, once)), Block(name="c", ops=(once,))))
    later = _without_once(graph)
    assert [(op.name, len(op.inputs)) for block in later.blocks for op in block.ops] == [("attention", 3), ("kept", 1)]
    assert len(later.blocks) == 1
