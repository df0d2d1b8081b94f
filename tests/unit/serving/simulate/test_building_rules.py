"""What a service is made of, worked out by hand: blocks, swapping, handing over, drafts, and who comes first."""

from functools import partial

import pytest

from inferometer.core.errors import DomainError
from inferometer.known import device
from inferometer.known import link as link_named
from inferometer.predict.ask import ask
from inferometer.predict.options import Options
from inferometer.serving.load.plan import LoadPlan, LoadStep
from inferometer.serving.simulate.building import kept_tokens, service_of
from inferometer.serving.simulate.plan import Lora, SimulationPlan, Vision
from inferometer.serving.simulate.replica import EngineLimits, Replica
from inferometer.serving.simulate.request import SimulatedRequest
from inferometer.serving.simulate.service import Scaling
from unit.serving.simulate.test_queues import PLAIN, EvenSteps

H200 = "nvidia-h200"
KV_BYTES = 2 * 32 * 8 * 128 * 2  # of a token of llama-3.1-8b: keys and values, 32 layers, 8 heads of 128, bf16
asked = partial(ask, on=H200, runtime="vllm")


def service(question, **more):
    return service_of(SimulationPlan(question=question, traffic=LoadPlan(url="", steps=(LoadStep(),)), **more))[0]


def test_a_draft_of_three_of_which_half_are_kept_gives_nearly_two_tokens_a_step():
    assert kept_tokens(3, 0.5) == 1 + 0.5 + 0.25 + 0.125
    assert kept_tokens(1, 0.8) == pytest.approx(1.8)


def test_a_block_is_swapped_with_all_its_tokens():
    limits = service(asked("llama-3.1-8b"), swap=True).pool.limits
    link = device(H200).host_link.bandwidth_bytes_per_s
    assert limits.swap_s_per_block == pytest.approx(KV_BYTES * limits.block_tokens / float(link))


def test_a_prompt_is_handed_over_token_by_token_at_the_speed_of_the_link():
    question = asked("llama-3.1-8b")
    link = device(H200).peer_link
    handed = service(question, readers=question, link=link).handover_s
    assert KV_BYTES / float(link.bandwidth_bytes_per_s) <= handed <= 2 * KV_BYTES / float(link.bandwidth_bytes_per_s)


def test_pools_hand_over_by_their_own_link_in_one_machine_and_by_a_network_beyond_it():
    question = asked("llama-3.1-8b")
    near, far = (
        service(question, readers=question, replicas=4, reader_replicas=readers).handover_s for readers in (4, 5)
    )
    assert near == service(question, readers=question, link=device(H200).peer_link).handover_s
    assert far == service(question, readers=question, link=link_named("infiniband-ndr")).handover_s > near


PHONE = ask("smollm2-135m", on="raspberry-pi-5", runtime="llamacpp", weights="q4_0")
# What each field of a plan may be, so that it means something; those that are left out are needed or of traffic alone.
MEANT = {
    "replicas": 2, "ranks": 2, "routing": "prefix-aware", "tokens": 64, "sequences": 2, "blocks": 9, "block_tokens": 4,
    "prefix_cache": False, "swap": True, "priorities": (0.5, 0.5), "scaling": Scaling(least=1, most=2, target=4),
    "readers": PHONE, "speculation": (2, 0.5), "longest": 99, "queue": 9, "patience_s": 1.0, "offload": ((1e9, None),),
    "cancels": (0.1, 1.0), "lora": Lora(adapters=2), "vision": Vision(images=1, tokens=9, encode_s=0.1),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(MEANT))
def test_slots_take_what_a_plan_says_or_refuse_it(name):
    plain = service(PHONE)
    try:
        asked_for = service(PHONE, **{name: MEANT[name]})
    except DomainError as error:
        assert "slots: " in str(error)
        assert error.remedy
    else:
        assert (asked_for.pool.limits, asked_for.pool.replicas, asked_for.routing, asked_for.scaling) != (
            plain.pool.limits, plain.pool.replicas, plain.routing, plain.scaling
        )  # fmt: skip


def test_each_rank_of_a_gang_has_the_limits_of_an_engine():
    pool = service(asked("qwen3-30b-a3b"), ranks=2, blocks=1000, sequences=64, tokens=2048).pool
    assert (pool.limits.blocks, pool.limits.sequences, pool.limits.tokens) == (1000, 64, 2048)
    assert (pool.ranks, pool.replicas, pool.gang is not None) == (2, 1, True)


@pytest.mark.parametrize("runtime", ["vllm", "sglang", "trtllm"])
def test_copies_of_attention_step_together_where_they_share_the_experts(runtime):
    spread = ask("qwen3-30b-a3b", on=H200, runtime=runtime, dp=2, ep=2)
    assert service(spread, ranks=2).pool.gang is not None
    apart = ask("qwen3-30b-a3b", on=H200, runtime=runtime)
    assert (service(apart, ranks=2).pool.gang is None) == (runtime != "vllm")  # there they share them anyway


def given(number, priority=0):
    request = SimulatedRequest(number, 0.0, 10, 3)
    request.priority = priority
    return request


def test_one_that_waits_weighs_as_much_as_four_that_run():
    replica = Replica(EvenSteps(), PLAIN, EngineLimits(tokens=64, sequences=2, blocks=10, block_tokens=16), print)
    for number in range(3):
        replica.submit(given(number))
    replica.advance(until=1e-6)  # two of them begin
    assert (len(replica.running), len(replica.waiting)) == (2, 1)
    assert replica.load == 4 + 2


def test_of_equal_urgency_the_first_to_come_is_the_first_to_go():
    limits = EngineLimits(tokens=64, sequences=1, blocks=10, block_tokens=16, by_priority=True)
    replica = Replica(EvenSteps(), PLAIN, limits, print)
    for number, priority in enumerate((1, 1, 0, 1, 0)):
        replica.submit(given(number, priority))
    assert [request.number for request in replica.waiting] == [2, 4, 0, 1, 3]


# What `predict` refuses, and how it is asked; each is a way in which a question about a service can be meaningless.
REFUSED = {
    "threads of a GPU": {"on": H200, "runtime": "llamacpp", "threads": 1},
    "threads beside an engine on a GPU": {"on": H200, "runtime": "vllm", "threads": 2},
    "more threads than cores": {"on": "raspberry-pi-5", "runtime": "llamacpp", "threads": 9},
    "a version of an engine that has none": {
        "on": "raspberry-pi-5", "runtime": "llamacpp", "options": Options(engine_version="0.12"),
    },
    "a layout of images": {"on": "raspberry-pi-5", "runtime": "llamacpp", "options": Options(layout="nhwc")},
    "an image": {"on": H200, "runtime": "vllm", "image": 224},
    "a layout of images for a server": {"on": H200, "runtime": "vllm", "options": Options(layout="nhwc")},
    "heads that cannot be shared out": {"on": H200, "runtime": "vllm", "tp": 7},
}  # fmt: skip


@pytest.mark.parametrize("why", sorted(REFUSED))
def test_what_predict_refuses_is_not_simulated_either(why):
    question = ask("smollm2-135m", **REFUSED[why])
    with pytest.raises(DomainError) as predicted:
        question.answer()
    with pytest.raises(DomainError) as simulated:
        service(question)
    assert str(simulated.value) == str(predicted.value)
