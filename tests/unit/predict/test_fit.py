from dataclasses import replace

from inferometer.core import Memory, Parallel, Precision, Workload
from inferometer.core.engine import Overheads, RuntimeEffects
from inferometer.predict.memory.fit import fit
from inferometer.predict.options import Options
from unit.predict.decoders import LLAMA_3_1_8B
from unit.predict.machines import machine, stated
from unit.predict.test_residency import SCAN, graph

WEIGHTS = 2 * 8_030_261_248
TOKEN = 131_072


def memory(capacity):
    return machine(memories=(Memory(level="dram", capacity_bytes=capacity, bandwidth_bytes_per_s=stated(1e11)),))


BIG, SMALL = memory(stated(24e9)), memory(stated(12e9))


def test_the_parts_add_up_and_are_compared_with_what_there_is():
    found = fit(LLAMA_3_1_8B, BIG, workload=Workload(prompt=1000, generate=25, batch=2))
    assert found.weights_bytes == WEIGHTS
    assert found.kv_bytes_per_token == TOKEN
    assert found.total_bytes == WEIGHTS + found.kv_bytes + found.activations_bytes
    assert found.fits
    assert found.free_bytes == 24e9 - found.total_bytes


def test_what_the_driver_shows_decides_and_not_the_label():
    label = BIG.memories[0]
    shown = machine(memories=(replace(label, usable_bytes=stated(22.5e9)),))
    found = fit(LLAMA_3_1_8B, shown, workload=Workload(prompt=1000, generate=25, batch=2))
    assert found.capacity_bytes == 22.5e9
    assert found.free_bytes == 22.5e9 - found.total_bytes
    nearly_full = replace(label, usable_bytes=stated(float(found.total_bytes - 1)))
    assert not fit(
        LLAMA_3_1_8B, machine(memories=(nearly_full,)), workload=Workload(prompt=1000, generate=25, batch=2)
    ).fits


def test_weights_of_a_microcontroller_lie_in_its_flash_and_nothing_else_does():
    asked = Workload(prompt=1000, generate=25, batch=2)
    alone = fit(LLAMA_3_1_8B, BIG, workload=asked)
    rest = alone.total_bytes - alone.weights_bytes

    def fits(ram, flash):
        board = replace(memory(stated(float(ram))), flash_bytes=stated(float(flash)))
        return fit(LLAMA_3_1_8B, board, workload=asked).fits

    assert fits(rest, WEIGHTS)
    assert not fits(rest - 1, 2 * WEIGHTS), "activations and caches are written, and flash is not"
    assert not fits(rest, WEIGHTS - 1)


def test_the_longest_context_fits_and_one_more_does_not():
    found = fit(LLAMA_3_1_8B, BIG, workload=Workload(batch=2))
    assert 24e9 - WEIGHTS > found.longest_context * 2 * TOKEN > 0.99 * (24e9 - WEIGHTS)
    longest = Workload(batch=2, context=found.longest_context - 1)
    assert fit(LLAMA_3_1_8B, BIG, workload=longest).fits
    assert not fit(LLAMA_3_1_8B, BIG, workload=replace(longest, context=found.longest_context)).fits


def test_the_largest_batch_fits_and_one_more_does_not():
    asked = Workload(context=4095)
    found = fit(LLAMA_3_1_8B, BIG, workload=asked)
    assert fit(LLAMA_3_1_8B, BIG, workload=replace(asked, batch=found.largest_batch)).fits
    assert not fit(LLAMA_3_1_8B, BIG, workload=replace(asked, batch=found.largest_batch + 1)).fits


def test_the_models_own_window_limits_the_context():
    limited = replace(LLAMA_3_1_8B, context_limit=2048)
    assert fit(limited, BIG).longest_context == 2048


def test_what_does_not_fit_says_how_many_devices_would_hold_it():
    found = fit(LLAMA_3_1_8B, SMALL, workload=Workload(context=127))
    assert not found.fits
    assert found.free_bytes < 0
    assert (found.longest_context, found.largest_batch) == (0, 0)
    assert found.devices_at_least == 2
    assert fit(LLAMA_3_1_8B, SMALL, workload=Workload(context=127, parallel=Parallel(tp=2))).fits


def test_fewer_bits_fit():
    assert fit(LLAMA_3_1_8B, SMALL, workload=Workload(precision=Precision(weights="q4_0"))).fits


def test_a_reserve_is_kept_free():
    taking = RuntimeEffects(name="t", title="t", overheads={"gpu": Overheads(reserve_bytes=stated(8e9))})
    assert fit(LLAMA_3_1_8B, BIG).fits
    found = fit(LLAMA_3_1_8B, BIG, runtime=taking)
    assert found.reserve_bytes == 8e9
    assert not found.fits
    assert fit(LLAMA_3_1_8B, memory(stated(1e9)), runtime=taking).devices_at_least is None


def test_a_prompt_in_chunks_needs_less_at_once():
    asked = Workload(prompt=8192, generate=1)
    whole, chunked = (fit(LLAMA_3_1_8B, BIG, workload=asked, options=o) for o in (None, Options(chunk=512)))
    assert chunked.activations_bytes < whole.activations_bytes
    assert chunked.kv_bytes == whole.kv_bytes


def test_replicas_hold_a_batch_each():
    one, two = (
        fit(LLAMA_3_1_8B, BIG, workload=Workload(batch=2, context=1023, parallel=Parallel(dp=dp))) for dp in (1, 2)
    )
    assert two.largest_batch == 2 * one.largest_batch
    assert two.devices == 2


def test_capacity_that_is_not_known_leaves_the_answer_open():
    found = fit(LLAMA_3_1_8B, memory(None))
    assert (found.fits, found.longest_context, found.devices_at_least) == (None, None, None)


def test_a_model_without_a_cache_has_no_longest_context():
    assert fit(graph(SCAN, count=4), BIG, workload=Workload(prompt=10)).longest_context is None
