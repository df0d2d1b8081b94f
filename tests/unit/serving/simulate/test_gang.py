"""Data-parallel ranks: replicas of their own, or a gang that shares experts and steps together."""

import numpy as np
import pytest

from inferometer.core.errors import DomainError
from inferometer.predict.ask import ask
from inferometer.predict.served.step import Grid
from inferometer.serving.load.plan import LoadPlan, LoadStep
from inferometer.serving.simulate.building import service_of
from inferometer.serving.simulate.plan import SimulationPlan
from inferometer.serving.simulate.times import GangTimes

SIZES = np.array([1, 4096])


class OneRank:
    """A rank with all experts by itself: 1 s and a millisecond a token."""

    kernels = kernels_prompt = 1.0

    def decode(self, sequences, _context):
        return 1.0 + 1e-3 * sequences

    def mixed(self, chunks, sequences, _context):
        return 1.0 + 1e-3 * (sequences + sum(size for size, _ in chunks))


def gang(*, padded_up_to=512):
    each = Grid(sizes=SIZES, seconds=1e-3 * SIZES)
    half = Grid(sizes=SIZES, seconds=0.5e-3 * SIZES)
    nothing = Grid(sizes=SIZES, seconds=0.0 * SIZES)
    return GangTimes(OneRank(), 2, alone=each, together=(half, nothing), most=1024, padded_up_to=padded_up_to)


def service(model="qwen3-30b-a3b", device="nvidia-h200", ranks=2, **parallel):
    question = ask(model, on=device, runtime="vllm", **parallel)
    return service_of(SimulationPlan(question=question, traffic=LoadPlan(url="", steps=(LoadStep(),)), ranks=ranks))


def test_ranks_with_equal_work_take_as_long_as_each_with_its_own_experts():
    assert gang().decode(20, 100.0) == pytest.approx(1.01)


def test_a_rank_with_less_to_do_is_filled_up_where_steps_are_replayed():
    chunks = [(100, 0)]  # one rank reads, the other has nothing
    assert gang().mixed(chunks, 0, 0.0) == pytest.approx(1.0 + 0.5e-3 * 200)
    assert gang(padded_up_to=64).mixed(chunks, 0, 0.0) == pytest.approx(1.0 + 0.5e-3 * 100)


def test_experts_are_split_or_spread_over_all_ranks():
    split, _ = service()
    spread, _ = service(ep=2)
    assert split.pool.replicas == spread.pool.replicas == 1
    assert split.pool.limits == spread.pool.limits
    assert split.pool.times.decode(128, 500.0) == pytest.approx(spread.pool.times.decode(128, 500.0), rel=0.3)
    with pytest.raises(DomainError, match="--ep 2 for --enable-expert-parallel"):
        service(ep=4)


def test_a_gang_has_room_where_one_rank_could_not_hold_all_experts():
    made, notes = service("qwen3-235b-a22b", ranks=8)  # 470 GB of weights, 141 GB a device
    assert made.pool.limits.blocks > 8 * 1000
    assert any("8 data-parallel ranks share the experts" in note for note in notes)


def test_ranks_of_a_dense_model_are_replicas():
    made, _ = service("llama-3.1-8b", ranks=3)
    assert made.pool.replicas == 3


def test_llamacpp_computes_the_sequences_of_a_step_one_after_the_other_on_a_cpu():
    def times(device):
        question = ask("smollm2-135m", on=device, runtime="llamacpp", weights="q4_0")
        return service_of(SimulationPlan(question=question, traffic=LoadPlan(url="", steps=(LoadStep(),))))[
            0
        ].pool.times

    cpu, gpu = times("raspberry-pi-5"), times("nvidia-l4")
    assert cpu.decode(4, 100.0) == pytest.approx(4 * cpu.decode(1, 100.0))
    assert gpu.decode(4, 100.0) < 2 * gpu.decode(1, 100.0)
    together = cpu.mixed([(16, 0)], 2, 100.0)
    assert together == pytest.approx(2 * cpu.decode(1, 100.0) + cpu.mixed([(16, 0)], 0, 0.0))
