"""Graphs on several devices."""

from dataclasses import replace

import numpy as np
import pytest

from inferometer.core import Block, Graph, Parallel, Workload
from inferometer.core.errors import DomainError
from inferometer.known import link as link_named
from inferometer.known.formulas.distributed import all_to_all, ring_allreduce, tp_communication_bytes
from inferometer.predict.answer import predict_graph
from inferometer.predict.options import Options
from inferometer.predict.parallel import is_layer, layer_count, place, replica_batch, stage_share
from inferometer.predict.price.collectives import message_floor, message_seconds, route_of, sent_bytes
from unit.predict.decoders import LLAMA_3_1_8B, project, rms_norm
from unit.predict.examples import experts, image, mla, op
from unit.predict.machines import MACHINE, WIRE, machine, stated


def graph(*ops, **rest):
    return Graph(name="graph", blocks=(Block(name="all", ops=ops),), **rest)


def entries(model, **plan):
    return {entry.op.name: entry for ops in place(model, Parallel(**plan)) for entry in ops}


def functions(entry):
    return [message.function for message in entry.messages]


def test_one_device_does_everything_and_says_nothing():
    assert all(e.scale.flops == 1 and not e.messages for e in entries(LLAMA_3_1_8B).values())


def test_a_layer_is_split_as_megatron_splits_it():
    found = entries(LLAMA_3_1_8B, tp=4)
    at = "layers.{}"
    for name in ("q_proj", "k_proj", "gate_proj", "up_proj", "o_proj", "down_proj", "attention", "act"):
        assert found[f"{at}.{name}"].scale.flops == 0.25, name
    for name in ("input_norm", "attention_add", "ffn_add"):
        assert found[f"{at}.{name}"].scale.flops == 1, name
    told = {name: functions(entry) for name, entry in found.items() if entry.messages}
    assert told == {
        "embed": ["all_reduce"],
        f"{at}.o_proj": ["all_reduce"],
        f"{at}.down_proj": ["all_reduce"],
        "lm_head": ["all_gather"],
    }


def test_two_all_reduces_a_layer_hand_over_what_the_formula_says():
    messages = [m for e in entries(LLAMA_3_1_8B, tp=8).values() for m in e.messages if "layers" in e.op.name]
    elements = sum(np.prod([{"batch": 2, "query": 7}.get(str(d), d) for d in m.tensor.shape]) for m in messages)
    assert 2 * elements == tp_communication_bytes(batch=2, tokens=7, hidden=4096, element_bytes=2)


def test_key_value_heads_are_repeated_where_there_are_fewer_than_devices():
    attention = "layers.{}.attention"
    assert entries(LLAMA_3_1_8B, tp=4)[attention].scale.kv == 0.25
    assert entries(LLAMA_3_1_8B, tp=32)[attention].scale.kv == 1 / 8


def test_a_latent_cache_is_whole_on_every_device():
    model = graph(project("up", "latent_in", "q", 64, 128 * 192), mla(absorbed=True))
    assert entries(model, tp=4)["attention"].scale.kv == 1


def test_what_a_norm_reads_as_a_whole_is_not_split():
    normed = replace(rms_norm("n", "latent", "normed", 64), attributes={"norm": "rms", "features": 64})
    model = graph(project("down", "x", "latent", 256, 64), normed, project("up", "normed", "y", 64, 256))
    found = entries(model, tp=2)
    assert [found[name].scale.flops for name in ("down", "n", "up")] == [1, 1, 0.5]


def test_sequence_parallelism_splits_what_was_whole():
    placed = place(LLAMA_3_1_8B, Parallel(tp=4), sequence=True)
    norm = next(e for ops in placed for e in ops if e.op.name.endswith("input_norm"))
    assert norm.scale.reads == 0.25


def test_experts_without_ep_are_split_like_products():
    entry = entries(graph(experts()), tp=4)["moe_experts"]
    assert entry.scale.flops == 0.25
    assert functions(entry) == ["all_reduce"]


def test_experts_are_spread_over_devices_and_rows_travel_both_ways():
    (entry,) = place(graph(experts()), Parallel(tp=2, dp=4, ep=8), imbalance=1.5)[0]
    assert entry.scale.weights == 1 / 8
    assert entry.scale.flops == 1.5 / 8
    assert entry.scale.batch == 4  # the rows of four replicas meet there
    # Four copies: all of them hold every token for a while, and each keeps the sums of its own.
    assert functions(entry) == ["all_gather", "reduce_scatter"]
    assert [(message.devices, message.share) for message in entry.messages] == [(8, 4), (8, 4)]


def test_a_token_travels_once_to_each_device_that_has_experts_of_its_own():
    (entry,) = place(graph(experts(top_k=6)), Parallel(dp=16, ep=16), imbalance=1.5)[0]
    assert functions(entry) == ["all_to_all", "all_to_all"]
    visited = 16 * (1 - (15 / 16) ** 6)  # fewer than six: some of the six experts are neighbours
    assert entry.messages[0].share == pytest.approx(16 * visited * 1.5)


def test_stages_hand_the_stream_on_once_each():
    found = [m for e in entries(LLAMA_3_1_8B, pp=4).values() for m in e.messages]
    assert [(m.function, m.count, m.tensor.name) for m in found] == [("send", 3, "hidden")]


def test_layers_are_what_stages_are_cut_between():
    assert layer_count(LLAMA_3_1_8B) == 32
    assert [is_layer(block) for block in LLAMA_3_1_8B.blocks] == [False, True, False]
    assert stage_share(LLAMA_3_1_8B, 3) == 11 / 32


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        ({"tp": 3}, "tp=3 does not divide the 32 attention heads"),
        ({"tp": 64}, "tp=64 does not divide"),
        ({"pp": 33}, "33 is more stages than the 32 layers"),
        ({"ep": 2}, "no experts"),
    ],
)
def test_plans_that_cannot_be_are_refused(plan, says):
    with pytest.raises(DomainError, match=says):
        place(LLAMA_3_1_8B, Parallel(**plan))


@pytest.mark.parametrize(
    ("plan", "says"),
    [({"ep": 3}, "does not divide the 64 experts"), ({"tp": 2, "ep": 4}, "does not divide the tp·dp")],
)
def test_experts_that_cannot_be_spread_are_refused(plan, says):
    with pytest.raises(DomainError, match=says):
        place(graph(experts()), Parallel(**plan))


def test_a_graph_without_products_cannot_be_shared():
    pool = op("pool", [image("x", 16)], [image("y", 16, 2)], function="max", kernel=(2, 2))
    with pytest.raises(DomainError, match="no product"):
        place(graph(pool), Parallel(tp=2))


def test_the_busiest_expert_is_never_less_busy_than_the_mean():
    with pytest.raises(DomainError, match="1 or more"):
        place(graph(experts()), Parallel(tp=2, ep=2), imbalance=0.5)


def test_replicas_share_the_batch():
    assert replica_batch(10, Parallel(dp=4)) == 3
    with pytest.raises(DomainError, match="batch of 2 cannot be shared by dp=4"):
        replica_batch(2, Parallel(dp=4))


def test_messages_take_what_the_formulas_say():
    assert message_seconds("all_reduce", 8, 1e9, WIRE) == ring_allreduce(n=8, bytes=1e9, bandwidth=100e9, latency=1e-6)
    rows, hidden, top_k = 1000, 4096, 2
    delivered = rows * hidden * top_k * 2
    way = all_to_all(tokens=rows, hidden=hidden, experts_per_token=top_k, devices=8, bandwidth=100e9)
    assert message_seconds("all_to_all", 8, delivered, WIRE) == pytest.approx(way + 1e-6)


def test_a_message_is_never_below_its_floor_and_hides_by_its_overlap():
    for function in ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "send"):
        floor = message_floor(function, 4, 1e6, WIRE)
        assert message_seconds(function, 4, 1e6, WIRE, share=0.8) > floor > 0
        assert message_seconds(function, 4, 1e6, WIRE, overlap=1.0) == 0
    with pytest.raises(DomainError, match="no collective 'shout'"):
        sent_bytes("shout", 2, 1)


def test_devices_talk_over_their_own_link_then_the_hosts():
    assert route_of(MACHINE).within.name == "wire"
    assert route_of(machine(peer_link=None)).within.name == "bus"
    assert route_of(MACHINE, replace(WIRE, name="other")).within.name == "other"
    with pytest.raises(DomainError, match="no link to another device"):
        route_of(machine(peer_link=None, host_link=None))
    unknown = replace(WIRE, bandwidth_bytes_per_s=None)
    with pytest.raises(DomainError, match="bandwidth"):
        message_floor("send", 2, 1, unknown)


def test_experts_within_one_attention_group_are_summed_and_not_sent():
    (within,) = place(graph(experts()), Parallel(tp=8, ep=4))[0]
    assert [message.function for message in within.messages] == ["all_reduce"]
    assert within.scale.weights == pytest.approx(1 / 8)  # four groups of experts, each shared by two devices
    assert within.scale.reads == pytest.approx(1 / 4)
    (copied,) = place(graph(experts()), Parallel(tp=2, dp=4, ep=8))[0]
    assert {message.function for message in copied.messages} == {"all_gather", "reduce_scatter"}


def test_a_norm_over_all_heads_leaves_them_split():
    norm = replace(rms_norm("q_norm", "q", "normed", 256), attributes={"norm": "rms", "features": 256})
    model = graph(project("q_proj", "x", "q", 64, 256), norm, project("o_proj", "other", "y", 256, 64))
    split, normed, _ = place(model, Parallel(tp=4))[0]
    assert split.scale.weights == normed.scale.weights == 1 / 4
    assert [message.share for message in normed.messages] == [1 / 256]  # one sum of squares a token


def seconds(link=None, *, within=72, batch=4, **plan):
    """Time to the first token and between tokens of a small decoder, on machines of so many devices."""
    device = machine(peer_link=replace(WIRE, devices=within))
    workload = Workload(batch=batch, prompt=512, generate=16, parallel=Parallel(**plan))
    summary = predict_graph(LLAMA_3_1_8B, device, workload=workload, options=Options(link=link)).summary
    return summary.ttft_s, summary.tpot_s


def network(rate):
    return replace(WIRE, name=f"{rate:g}", kind="scale-out", bandwidth_bytes_per_s=stated(rate))


PLANS = ({"tp": 16}, {"tp": 8, "pp": 2}, {"tp": 4, "pp": 4}, {"pp": 16}, {"tp": 2, "pp": 6}, {"tp": 32})


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_several_machines_are_never_quicker_than_one_and_a_slower_network_never_quicker_than_another(plan):
    one, rates = seconds(**plan), (100e9, 25e9, 5e9, 1e9)
    found = [seconds(network(rate), within=8, **plan) for rate in rates]
    for quicker, slower in zip([one, *found], found, strict=False):
        assert all(a <= b * (1 + 1e-12) for a, b in zip(quicker, slower, strict=True)), plan
    assert found[-1][0] > one[0]  # what leaves a machine is sent over the network
    assert seconds(within=8, **plan) == seconds(link_named("infiniband-ndr"), within=8, **plan)  # where nobody says


def test_a_network_within_one_machine_carries_every_message_and_beside_several_only_what_leaves_them():
    slow = network(1e9)
    assert seconds(slow, tp=8)[0] > 1.3 * seconds(tp=8)[0]
    assert seconds(slow, within=8, tp=8, pp=2)[0] < 1.1 * seconds(tp=8, pp=2)[0]


def test_stages_that_fit_into_one_machine_hand_over_within_it():
    route = route_of(machine(peer_link=replace(WIRE, devices=8)), devices=32)
    assert route.between.name == "infiniband-ndr"
    assert [route.crossings(*of) for of in ((8, 4), (4, 4), (3, 4), (2, 16), (16, 2), (1, 8))] == [
        1, 1 / 3, 1 / 3, 3 / 15, 1, 0,
    ]  # fmt: skip
