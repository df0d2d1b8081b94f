"""Laws that formulas keep for any valid numbers, and what every formula does with invalid ones."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fakes.every import every
from inferometer.core.errors import DomainError
from inferometer.known.formulas import (
    cloud,
    distributed,
    edge,
    energy,
    gpu,
    inference,
    latency,
    llm,
    memory,
    network,
    parallel,
    quantization,
    queueing,
    roofline,
    training,
)
from inferometer.known.formulas.registry import all_formulas

positive = st.floats(1e-9, 1e15)
times = st.floats(1e-9, 1e6)
fractions = st.floats(0, 1)
counts = st.integers(1, 10_000)
readings = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=60)
close = {"rel_tol": 1e-9, "abs_tol": 1e-12}


@given(fraction=st.floats(0, 0.9999), n=counts)
def test_amdahl_stays_between_one_and_its_limit(fraction, n):
    gain = parallel.amdahl_cores(fraction=fraction, n=n)
    assert 1 - 1e-12 <= gain <= min(n, parallel.amdahl_limit(fraction=fraction)) * (1 + 1e-12)


@given(fraction=fractions, n=counts)
def test_gustafson_is_never_below_amdahl(fraction, n):
    assert parallel.gustafson(fraction=fraction, n=n) >= parallel.amdahl_cores(fraction=fraction, n=n) * (1 - 1e-12)


@given(fraction=st.floats(0.001, 0.999), n=st.integers(2, 1000))
def test_karp_flatt_recovers_the_serial_fraction_of_amdahl(fraction, n):
    gain = parallel.amdahl_cores(fraction=fraction, n=n)
    assert math.isclose(parallel.karp_flatt(speedup=gain, n=n), 1 - fraction, rel_tol=1e-6, abs_tol=1e-9)


@given(fraction=fractions, before=positive, after=positive)
def test_quantising_part_of_the_time_gains_no_more_than_quantising_all(fraction, before, after):
    assume(after <= before)
    bits = {"original_bits": before, "quantized_bits": after}
    bound = quantization.quantization_speedup_bound(**bits)
    assert quantization.quantization_speedup(fraction=fraction, **bits) <= bound * (1 + 1e-12)


@given(n=st.integers(2, 4096), size=positive, bandwidth=positive, more=st.floats(1.01, 100), wait=times)
def test_a_ring_all_reduce_gets_faster_with_bandwidth_and_never_below_its_latency(n, size, bandwidth, more, wait):
    slow = distributed.ring_allreduce(n=n, bytes=size, bandwidth=bandwidth, latency=wait)
    fast = distributed.ring_allreduce(n=n, bytes=size, bandwidth=bandwidth * more, latency=wait)
    assert 2 * (n - 1) * wait * (1 - 1e-12) <= fast <= slow


@given(n=st.integers(2, 4096), size=positive, bandwidth=positive)
def test_bus_bandwidth_of_a_ring_without_latency_is_its_link(n, size, bandwidth):
    spent = distributed.ring_allreduce(n=n, bytes=size, bandwidth=bandwidth)
    assert math.isclose(distributed.bus_bandwidth(n=n, bytes=size, time=spent), bandwidth, **close)


@given(parameters=positive, devices=counts)
def test_each_stage_of_zero_needs_no_more_than_the_one_before(parameters, devices):
    every = training.training_memory(parameters=parameters)
    stages = [
        zero(parameters=parameters, devices=devices) for zero in (distributed.zero1_bytes, distributed.zero2_bytes)
    ]
    last = distributed.zero3_bytes(parameters=parameters, devices=devices)
    assert last <= stages[1] * (1 + 1e-12) <= stages[0] * (1 + 2e-12) <= every * (1 + 3e-12)


@given(stages=counts, batches=counts)
def test_more_micro_batches_make_a_smaller_bubble(stages, batches):
    bubble = distributed.pipeline_bubble(stages=stages, micro_batches=batches)
    assert 0 <= distributed.pipeline_bubble(stages=stages, micro_batches=batches + 1) <= bubble < 1


@given(layers=counts, heads=st.integers(1, 256), size=st.integers(1, 1024), tokens=counts, batch=counts)
def test_the_kv_cache_is_linear_in_tokens_and_batch(layers, heads, size, tokens, batch):
    each = llm.kv_bytes_per_token(layers=layers, kv_heads=heads, head_dim=size)
    assert llm.kv_cache_bytes(bytes_per_token=each, tokens=tokens, batch=batch) == each * tokens * batch
    assert each == llm.kv_bytes_per_token_mha(layers=layers, hidden=heads * size)


@given(memory_=positive, weights=fractions, per_token=st.floats(1, 1e6), context=counts)
def test_the_sequences_that_fit_do_fit_and_one_more_does_not(memory_, weights, per_token, context):
    found = llm.max_concurrent_sequences(
        memory=memory_, weights=weights * memory_, kv_bytes_per_token=per_token, context=context
    )
    left = memory_ - weights * memory_
    assert found * per_token * context <= left + 1e-8 * per_token * context
    assert (found + 1) * per_token * context > left * (1 - 1e-9) - 1e-8 * per_token * context


@given(first=times, each=times, tokens=st.integers(2, 10_000))
def test_tpot_undoes_the_end_to_end_latency(first, each, tokens):
    whole = llm.e2e_latency(ttft=first, tpot=each, tokens=tokens)
    assert math.isclose(llm.tpot(e2e=whole, ttft=first, tokens=tokens), each, rel_tol=1e-9, abs_tol=1e-9 * first)


@given(acceptance=fractions, draft=st.integers(0, 64))
def test_speculation_gives_between_one_token_and_all_of_them(acceptance, draft):
    tokens = llm.speculative_tokens(acceptance=acceptance, draft_length=draft)
    assert 1 - 1e-12 <= tokens <= (draft + 1) * (1 + 1e-12)
    assert math.isclose(tokens, math.fsum(acceptance**i for i in range(draft + 1)), rel_tol=1e-9)


@given(acceptance=fractions, draft=st.integers(0, 64))
def test_a_draft_that_costs_nothing_never_slows_down(acceptance, draft):
    assert llm.speculative_speedup(acceptance=acceptance, draft_length=draft, draft_cost=0) >= 1 - 1e-12


@given(n=st.integers(1, 60), data=st.data())
def test_pass_at_k_is_the_count_of_draws_with_a_right_one(n, data):
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    exact = 1 - math.comb(n - c, k) / math.comb(n, k)
    assert math.isclose(llm.pass_at_k(n=n, c=c, k=k), exact, rel_tol=1e-9, abs_tol=1e-12)


@given(peak=positive, bandwidth=positive, intensity=st.floats(0, 1e6))
def test_the_roofline_lies_below_both_roofs_and_on_one(peak, bandwidth, intensity):
    bound = roofline.roofline(peak=peak, bandwidth=bandwidth, intensity=intensity)
    assert bound == min(peak, bandwidth * intensity)
    kind = roofline.bound_class(intensity=intensity, peak=peak, bandwidth=bandwidth)
    assert math.isclose(bound, peak if kind == "compute" else bandwidth * intensity, **close)


@given(peak=positive, levels=st.lists(st.tuples(positive, st.floats(0, 1e6)), min_size=1, max_size=5))
def test_a_memory_level_more_never_raises_the_roof(peak, levels):
    bandwidths, intensities = zip(*levels, strict=True)
    bound = roofline.hierarchical_roofline(peak=peak, bandwidths=bandwidths, intensities=intensities)
    pairs = zip(bandwidths, intensities, strict=True)
    assert bound == min(roofline.roofline(peak=peak, bandwidth=b, intensity=i) for b, i in pairs)


@given(flops=positive, size=positive, peak=positive, bandwidth=positive)
def test_the_prefill_model_is_the_roofline_turned_into_time(flops, size, peak, bandwidth):
    intensity = memory.arithmetic_intensity(flops=flops, bytes=size)
    bound = roofline.roofline(peak=peak, bandwidth=bandwidth, intensity=intensity)
    modelled = llm.ttft_model(flops=flops, bytes=size, peak=peak, bandwidth=bandwidth)
    assert math.isclose(modelled, flops / bound, rel_tol=1e-9)


@given(weights=positive, cache=positive, bandwidth=positive, more=st.floats(1.0, 100), batch=counts)
def test_a_decode_step_gets_faster_with_bandwidth_and_slower_with_batch(weights, cache, bandwidth, more, batch):
    step = {"weight_bytes": weights, "kv_bytes": cache}
    floor = llm.decode_floor(**step, bandwidth=bandwidth, batch=batch)
    assert llm.decode_floor(**step, bandwidth=bandwidth * more, batch=batch) <= floor
    assert llm.decode_floor(**step, bandwidth=bandwidth, batch=batch + 1) >= floor


@given(samples=readings, p=fractions)
def test_percentiles_lie_within_the_samples_and_the_linear_one_is_numpys(samples, p):
    linear = latency.percentile_linear(samples=samples, p=p)
    assert min(samples) - 1e-6 <= linear <= max(samples) + 1e-6
    assert math.isclose(linear, float(np.percentile(samples, 100 * p)), rel_tol=1e-6, abs_tol=1e-3)
    assert latency.percentile_nearest_rank(samples=samples, p=p) in samples


@given(samples=readings, p=fractions)
def test_at_least_a_share_p_of_samples_is_at_or_below_the_nearest_rank(samples, p):
    value = latency.percentile_nearest_rank(samples=samples, p=p)
    assert sum(sample <= value for sample in samples) >= p * len(samples) - 1e-6


@given(samples=readings, low=fractions, high=fractions)
def test_percentiles_rise_with_p(samples, low, high):
    assume(low <= high)
    for percentile in (latency.percentile_linear, latency.percentile_nearest_rank):
        assert percentile(samples=samples, p=low) <= percentile(samples=samples, p=high) + 1e-6


@given(p=fractions, n=st.integers(1, 1000))
def test_asking_one_server_more_makes_a_slow_one_no_less_likely(p, n):
    chance = latency.fanout_tail_probability(p=p, n=n)
    assert p - 1e-12 <= chance <= latency.fanout_tail_probability(p=p, n=n + 1) + 1e-12 <= 1 + 1e-12


@given(instructions=positive, ipc=st.floats(1e-3, 100), frequency=st.floats(1e3, 1e10))
def test_cpi_and_ipc_tell_the_same_time(instructions, ipc, frequency):
    by_ipc = latency.execution_time_ipc(instructions=instructions, ipc=ipc, frequency=frequency)
    by_cpi = latency.execution_time_cpi(instructions=instructions, cpi=1 / ipc, frequency=frequency)
    assert math.isclose(by_ipc, by_cpi, rel_tol=1e-12)


@given(stages=st.lists(times, min_size=1, max_size=20))
def test_a_pipeline_is_at_least_as_fast_as_one_request_at_a_time(stages):
    serial = latency.throughput_serial(latency=math.fsum(stages))
    assert latency.throughput_pipeline(stages=stages) >= serial * (1 - 1e-12)


@given(service=st.floats(1e-3, 1e6), load=st.floats(1e-3, 0.999))
def test_mm1_and_little_agree_on_how_many_are_in_the_system(service, load):
    rates = {"arrival_rate": service * load, "service_rate": service}
    inside = queueing.littles_law(arrival_rate=service * load, time=queueing.mm1_response(**rates))
    busy = queueing.mm1_utilization(**rates)
    assert math.isclose(inside, busy / (1 - busy), rel_tol=1e-9)


@given(hits=st.integers(0, 10**9), misses=st.integers(0, 10**9))
def test_hits_and_misses_are_everything(hits, misses):
    assume(hits + misses > 0)
    found = memory.hit_ratio(hits=hits, accesses=hits + misses)
    lost = memory.miss_ratio(misses=misses, accesses=hits + misses)
    assert math.isclose(found + lost, 1, rel_tol=1e-12)


@given(size=positive, bandwidth=positive, wait=times)
def test_a_message_of_n_half_gets_half_the_bandwidth(size, bandwidth, wait):
    half = network.half_bandwidth_size(bandwidth=bandwidth, latency=wait)
    spent = network.transfer_time(bytes=half, bandwidth=bandwidth, latency=wait)
    assert math.isclose(memory.bandwidth(bytes=half, time=spent), bandwidth / 2, **close)
    assert network.transfer_time(bytes=size, bandwidth=bandwidth, latency=wait) >= wait


@given(rate=st.floats(0, 1e5), service=st.floats(1e-6, 10), target=st.floats(0.05, 1))
def test_the_replicas_needed_keep_the_target(rate, service, target):
    replicas = cloud.replicas_needed(arrival_rate=rate, service_time=service, target_utilization=target)
    assert rate * service <= replicas * target * (1 + 1e-9) + 1e-8
    assert replicas < rate * service / target + 1 + 1e-6


@given(checkpoint=st.floats(0.1, 100), mtbf=st.floats(1e3, 1e7), other=st.floats(0.1, 10))
def test_no_checkpoint_interval_loses_less_than_youngs(checkpoint, mtbf, other):
    best = cloud.optimal_checkpoint_interval(checkpoint=checkpoint, mtbf=mtbf)

    def lost(interval):
        return checkpoint / interval + interval / (2 * mtbf)

    assert lost(best) <= lost(best * other) * (1 + 1e-12)


@given(fixed=st.floats(0, 0.1), each=st.floats(1e-4, 0.01), limit=st.floats(0.2, 1))
def test_no_batch_within_the_limit_beats_the_optimal_one(fixed, each, limit):
    best = inference.optimal_batch_throughput(fixed=fixed, per_request=each, limit=limit)
    allowed = [batch for batch in range(1, 10_001, 7) if fixed + each * batch <= limit]
    rates = [inference.batched_throughput(batch=batch, batch_time=fixed + each * batch) for batch in allowed]
    assert max(rates) <= best * (1 + 1e-9)


@given(value=st.floats(-1e6, 1e6), largest=st.floats(1e-3, 1e6), bits=st.integers(2, 16))
def test_a_quantised_value_is_within_half_a_step(value, largest, bits):
    assume(abs(value) <= largest)
    code = quantization.symmetric_quantize(value=value, largest=largest, bits=bits)
    top = 2 ** (bits - 1) - 1
    assert -top <= code <= top
    assert abs(code * largest / top - value) <= largest / top * (0.5 + 1e-9)


@given(registers=st.integers(1, 255), threads=st.integers(1, 1024), shared=st.integers(0, 200_000))
def test_occupancy_never_exceeds_one(registers, threads, shared):
    assume(registers * threads <= 65536)
    found = gpu.occupancy_from_resources(
        registers_per_thread=registers, threads_per_block=threads, shared_memory_per_block=shared
    )
    assert 0 < found <= 1


@given(active=positive, idle=positive, duty=fractions)
def test_mean_power_lies_between_idle_and_active(active, idle, duty):
    mean = edge.duty_cycled_power(active=active, idle=idle, duty=duty)
    assert min(active, idle) * (1 - 1e-12) <= mean <= max(active, idle) * (1 + 1e-12)


@given(powers=st.lists(st.floats(0, 1e4), min_size=2, max_size=50), interval=times)
def test_integrated_energy_lies_between_least_and_greatest_power(powers, interval):
    span = (len(powers) - 1) * interval
    joules = energy.energy_by_integration(powers=powers, interval=interval)
    assert min(powers) * span * (1 - 1e-9) - 1e-9 <= joules <= max(powers) * span * (1 + 1e-9) + 1e-9


@given(joules=positive, grid=st.floats(0, 2000), pue=st.floats(1, 3))
def test_carbon_rises_with_pue(joules, grid, pue):
    assert energy.co2e(energy=joules, intensity=grid, pue=pue) >= energy.co2e(energy=joules, intensity=grid)


# Every formula, whatever it is given.

BAD = [
    float("nan"),
    float("inf"),
    float("-inf"),
    "8",
    "",
    b"8",
    None,
    True,
    1j,
    [],
    (),
    {},
    {1.0},
    object(),
    len,
    [[1.0], [1.0, 2.0]],
    ["a"],
    [None],
    [1.0, float("nan")],
    10**400,
    -(10**400),
    np.array([]),
    np.array(["a"]),
    np.array([1j]),
    np.array([True]),
    np.array([np.nan]),
    np.array(["2024-01-01"], dtype="datetime64[D]"),
    np.array([object()]),
]


@every(all_formulas().values(), name=lambda formula: formula.name)
def test_bad_values_are_refused_by_name_and_nothing_else_happens(formula):
    for name, quantity in formula.inputs.items():
        below = [-1e308] if quantity.low > -math.inf else []  # a point on a clock or a reading may be any finite number
        for bad in BAD + below:
            with pytest.raises(DomainError, match=rf"^{formula.name}: .*{name}"):
                formula.function(**{**formula.example, name: bad})


scalars = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.integers(),
    st.sampled_from([0, 1, 2, 5e-324, 1e-308, 1e308, 1.7976931348623157e308, 10**300, -0.0]),
    st.text(max_size=3),
    st.none(),
    st.booleans(),
)
values = st.one_of(scalars, st.lists(scalars, max_size=4), st.sampled_from([np.ones(2), np.zeros(3), np.ones((2, 3))]))


@given(data=st.data(), name=st.sampled_from(sorted(all_formulas())))
def test_any_arguments_give_a_finite_result_or_a_domain_error(data, name):
    formula = all_formulas()[name]
    arguments = {argument: data.draw(values, label=argument) for argument in formula.inputs}
    try:
        result = formula.function(**arguments)
    except DomainError:
        return
    exact = isinstance(result, str | int)  # whole numbers of Python have no end
    assert exact or np.asarray(result).dtype.kind in "Ub" or np.all(np.isfinite(result))


@given(data=st.data(), name=st.sampled_from(sorted(all_formulas())))
def test_numbers_inside_every_range_give_a_finite_result_or_say_why_not(data, name):
    formula = all_formulas()[name]
    arguments = {argument: data.draw(inside(quantity), label=argument) for argument, quantity in formula.inputs.items()}
    try:
        result = formula.function(**arguments)
    except DomainError:
        return
    finite = math.isfinite if isinstance(result, int | float) else np.isfinite
    assert isinstance(result, str) or np.all(finite(result))


def inside(quantity):
    if quantity.choices:
        return st.sampled_from(quantity.choices)
    low, high = quantity.bounds
    one = st.integers(int(low), int(min(high, 10**6))) if quantity.whole else st.floats(low, high)
    return st.lists(one, min_size=quantity.at_least, max_size=5) if quantity.sequence else one
