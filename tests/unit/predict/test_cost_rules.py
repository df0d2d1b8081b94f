"""Limits of what may be asked, and the edges of a few rules."""

from dataclasses import replace
from math import log
from types import SimpleNamespace

import numpy as np
import pytest

from inferometer.core.binding import Binding
from inferometer.core.dims import Symbol
from inferometer.core.errors import DomainError
from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.predict.headline import with_own_steps
from inferometer.predict.memory.inventory import inventory
from inferometer.predict.options import Battery, EnergyCosts, HostCosts, Hosting, Offload, Options, Speculative
from inferometer.predict.price.step import StepPrice
from inferometer.predict.work.classes import dims_of
from unit.predict.decoders import LLAMA_3_1_8B

LIMITS = [  # what may be asked, its least, its most
    (lambda value: Offload(layers=value), 0, None),
    (lambda value: Speculative(draft=LLAMA_3_1_8B, length=value, acceptance=0.5), 0, None),
    (lambda value: Speculative(draft=LLAMA_3_1_8B, length=2, acceptance=value), 0, 1),
    (lambda value: HostCosts(tokenise_s_per_token=value), 0, None),
    (lambda value: HostCosts(sampling_s=value), 0, None),
    (lambda value: HostCosts(detokenise_s_per_token=value), 0, None),
    (lambda value: EnergyCosts(joules_per_flop=value, joules_per_byte=1.0), 0, None),
    (lambda value: EnergyCosts(joules_per_flop=1.0, joules_per_byte=value), 0, None),
    (lambda value: Battery(capacity_j=value, per_s=1.0), 0, None),
    (lambda value: Battery(capacity_j=1.0, per_s=value), 0, None),
    (lambda value: Battery(capacity_j=1.0, per_s=1.0, efficiency=value), 0, 1),
    (lambda value: Hosting(usd_per_hour=value), 0, None),
    (lambda value: Options(chunk=value), 1, None),
    (lambda value: Options(cached_prefix=value), 0, None),
    (lambda value: Options(micro_batches=value), 1, None),
    (lambda value: Options(overlap=value), 0, 1),
    (lambda value: Options(imbalance=value), 1, None),
    (lambda value: Options(steps=value), 1, None),
    (lambda value: Options(storage_bytes_per_s=value), 1, None),
]


@pytest.mark.parametrize(("made", "least", "most"), LIMITS)
def test_what_may_be_asked_has_limits_that_are_allowed_themselves(made, least, most):
    made(least)
    with pytest.raises(DomainError, match="must be a number"):
        made(least - 1)
    with pytest.raises(DomainError, match="must be a number"):
        made(float("inf"))
    with pytest.raises(DomainError, match="must be a number"):
        made(float("nan"))
    if most is not None:
        made(most)
        with pytest.raises(DomainError, match=f"from {least} to {most}"):
            made(most + 1)


@pytest.mark.parametrize("size", [0, -1, 1.0, True])
def test_a_size_is_a_whole_number_of_one_or_more(size):
    Options(sizes={"n": 1})
    with pytest.raises(DomainError, match="The size n must be"):
        Options(sizes={"n": size})


def attention(**attributes):
    given = {"heads": 6, "head_dim": 4, "query": 5, **attributes}
    width = given["heads"] * given.get("value_dim", given["head_dim"])
    return Op(
        name="a", kind="attention", inputs=(Tensor(name="q", shape=(3, 5, 24)),),
        outputs=(Tensor(name="y", shape=(3, 5, width)),), attributes=given,
    )  # fmt: skip


def test_an_attention_meets_what_is_cached_and_itself_or_what_it_crosses_to():
    assert dims_of(attention())["keys"] == 5
    assert dims_of(attention(context=7))["keys"] == 12
    assert dims_of(attention(context=7, cross=True))["keys"] == 7
    plain = dims_of(attention(value_dim=2, kv_heads=2))
    assert (plain["sequences"], plain["kv_heads"], plain["heads"], plain["head_dim"]) == (3, 2, 6, 4)
    assert dims_of(attention())["kv_heads"] == 6
    assert (plain["rows"], plain["in_features"], plain["out_features"], plain["elements"]) == (15, 24, 12, 180)


def step(far, seconds):
    groups = {"linear": np.array([1.0, 0.0, 1.0]), "vector": np.array([0.0, 1.0, 0.0])}
    priced = SimpleNamespace(time_s=np.array(seconds)[:, None])
    return StepPrice(
        priced=priced, quantities=None, counts=np.array([1.0, 2.0, 1.0]), step_s=0.0,
        far=np.array(far)[:, None] if far else 0.0, rates=SimpleNamespace(groups=groups),
    )  # fmt: skip


def test_only_classes_that_take_a_share_of_the_time_outside_of_their_tables_are_told():
    far = [log(3.0), log(2.1), 0.0]
    assert step(far, [2.0, 1.0, 6.0]).outside() == pytest.approx({"linear": 3.0, "vector": 2.1})
    assert step(far, [0.4, 1.0, 7.6]).outside() == pytest.approx({"vector": 2.1}), "a twentieth of ten seconds"
    assert step([log(2.0), log(1.9), 0.0], [5.0, 2.0, 1.0]).outside() == {}, "twice as far and no further"
    assert step(None, [5.0, 2.0, 1.0]).outside() == {}


def linear(name, *weights, inputs=4):
    x, y = Tensor(name="x", shape=(2, inputs)), Tensor(name="y", shape=(2, 6))
    return Op(name=name, kind="linear", inputs=(x,), outputs=(y,), weights=weights,
              attributes={"in_features": inputs, "out_features": 6})  # fmt: skip


def weight(name, *shape, dtype="f32"):
    return Tensor(name=name, shape=shape, role="weight", dtype=dtype)


def test_an_inventory_counts_each_weight_once_and_each_repetition():
    shared = weight("shared", 6, 4, dtype="f16")
    body = Block(name="body", ops=(linear("l.{}.up", weight("l.{}.w", 6, 4)), linear("l.{}.tied", shared)), count=3)
    graph = Graph(name="g", blocks=(body, Block(name="end", ops=(linear("head", shared),))), precision="f32")
    found = inventory(graph, Binding())
    rows = {layer.name: layer for layer in found.layers}
    assert [(layer.parameters, layer.count) for layer in found.layers] == [(72, 3), (24, 3), (0, 1)]
    assert found.bytes_by_format == {"f32": 3 * 24 * 4, "f16": 24 * 2}
    assert found.parameters == 96
    up = next(layer for name, layer in rows.items() if name.endswith("up"))
    assert (up.flops, up.bytes, up.shape, up.weights) == (3 * 2 * 2 * 4 * 6, 3 * 4 * (8 + 24 + 12), (2, 6), "f32")
    assert up.intensity == pytest.approx(96 / 176)
    assert found.flops == sum(layer.flops for layer in found.layers)


def test_an_inventory_knows_the_parameters_before_the_sizes():
    x, y = (Tensor(name=name, shape=(Symbol("rows"), 4)) for name in "xy")
    fixed = linear("fixed", weight("w", 6, 4))
    open_ = Op(name="relu", kind="activation", inputs=(x,), outputs=(y,))
    graph = Graph(name="g", blocks=(Block(name="b", ops=(fixed, open_)),), inputs=(x,), precision="f32")
    found = inventory(graph, Binding())
    assert (found.parameters, found.flops, found.footprint) == (24, None, None)
    assert [layer.flops is None for layer in found.layers] == [False, True], "an op of fixed sizes keeps its work"
    assert [str(size) for size in found.open] == ["rows (input x, axis 0)"]
    assert inventory(graph, Binding(sizes={"rows": 2})).open == ()
    stretched = linear("l", *fixed.weights, weight("v", Symbol("rows"), 4))
    graph = replace(graph, blocks=(Block(name="b", ops=(stretched,)),))
    assert [layer.parameters for layer in inventory(graph, Binding(sizes={"rows": 2})).layers] == [24]


def test_a_pipeline_takes_its_own_steps_where_none_are_asked_for():
    plain, pipeline = (Graph(name="noise", blocks=(), metadata=own) for own in ({}, {"steps": 20}))
    assert [with_own_steps(of, Options()).steps for of in (plain, pipeline)] == [None, 20]
    assert [with_own_steps(of, Options(steps=7)).steps for of in (plain, pipeline)] == [7, 7]
