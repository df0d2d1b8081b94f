"""What a service is made of, worked out by hand: blocks, swapping, handing over, drafts, and who comes first."""

from functools import partial

import pytest

from inferometer.core.errors import DomainError
from inferometer.known import device
from inferometer.known import link as link_named
from inferometer.predict.ask import ask
from inferometer.serving.load.plan import LoadPlan, LoadStep
from inferometer.serving.simulate.building import kept_tokens, service_of
from inferometer.serving.simulate.plan import SimulationPlan
from inferometer.serving.simulate.replica import EngineLimits, Replica
from inferometer.serving.simulate.request import SimulatedRequest
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


def test_slots_hand_no_prompt_over_to_another_pool():
    phone = ask("smollm2-135m", on="raspberry-pi-5", runtime="llamacpp", weights="q4_0")
    with pytest.raises(DomainError, match="a pool that reads prompts"):
        service(phone, readers=phone)


def test_each_rank_of_a_gang_has_the_limits_of_an_engine():
    pool = service(asked("qwen3-30b-a3b"), ranks=2, blocks=1000, sequences=64, tokens=2048).pool
    assert (pool.limits.blocks, pool.limits.sequences, pool.limits.tokens) == (1000, 64, 2048)
    assert (pool.ranks, pool.replicas, pool.gang is not None) == (2, 1, True)


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
