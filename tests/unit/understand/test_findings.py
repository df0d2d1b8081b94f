"""Findings hold on any profile, are told in order, and their gains are the cost model's."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.core.finding import CODES, SEVERITIES
from inferometer.core.profile import Environment, Headline, OpTime, Phase, Provenance
from inferometer.core.workload import Workload
from inferometer.formats.resolve import read
from inferometer.predict.gains import Gain
from inferometer.understand.case import growth, level_samples
from inferometer.understand.explanation import explanation_document
from inferometer.understand.findings import FINDERS, findings_of
from inferometer.understand.view.explanations import explanation_page
from unit.understand.explain_cases import (
    CPU,
    GPU,
    PAIRS,
    case_of,
    computing,
    explain,
    forward,
    moving,
    noisy,
    on_gpu,
    op,
    profile,
    sampled,
    steady,
    text,
    threads,
)
from unit.understand.strategies import profiles


def priced(change, phase):
    return Gain(
        change=change,
        phase=phase,
        before_s=1.0,
        after_s=0.5,
        gain=2.0,
        low=1.5,
        high=2.5,
        throughput_gain=16.0,
        fits=True,
    )


@settings(max_examples=10)
@given(profiles(), st.sampled_from([None, CPU, GPU]), st.booleans())
def test_no_profile_is_too_poor_to_explain(found, on, with_prices):
    case = case_of(found, on, **({"price": priced} if with_prices else {}))
    for finding in findings_of(case):
        assert finding.code in CODES
        assert finding.severity in SEVERITIES
        assert finding.stake_s is None or finding.stake_s >= 0
        assert all(isinstance(number, float) for number in finding.evidence.values())


@settings(max_examples=10)
@given(profiles(), st.sampled_from([None, CPU, GPU]))
def test_every_explanation_is_a_document_and_a_page(found, on):
    plain = explanation_document(explain(found, on, name="file.json"))
    json.dumps(plain, allow_nan=False)
    for form in ("table", "md"):
        assert plain["headline"] in explanation_page(plain, form)


@settings(max_examples=10)
@given(profiles())
def test_the_severe_come_first(found):
    ranks = [SEVERITIES.index(finding.severity) for finding in findings_of(case_of(found, CPU))]
    assert ranks == sorted(ranks, reverse=True)


def test_of_two_alike_the_one_with_more_at_stake_comes_first():
    moves = op("t", "copy", 0.4)
    codes = [finding.code for finding in findings_of(case_of(profile(forward(moves, computing(0.4))), CPU))]
    assert codes.index("layout.moves") < codes.index("host.gap")


@pytest.mark.parametrize(
    ("reasons", "title"),
    [
        (("during the runs, 2 times: other programs used 40% of all CPUs (cpu-busy). Stop them.",),
         "The measurement was disturbed during the runs, 2 times: other programs used 40% of all CPUs"),
        (("the load rose",), "The measurement was disturbed: the load rose"),
        ((), "The machine was not quiet while it was measured"),
    ],
)  # fmt: skip
def test_what_disturbed_a_run_is_a_sentence(reasons, title):
    found = sampled(steady(40), environment=Environment(disturbed=True, reasons=reasons))
    assert FINDERS["environment.noisy"](case_of(found)).title == title


def test_a_disturbed_run_is_said_before_anything_it_casts_doubt_on():
    found = noisy(disturbed=True)
    found = replace(found, phases=(replace(found.phases[0], ops=(op("t", "copy", 0.009),)),))
    assert findings_of(case_of(found, CPU))[0].code == "environment.noisy"


def test_times_that_scatter_are_noise_without_a_guard_too():
    wild = tuple(0.01 * (1 + n % 2) for n in range(20))
    finding = FINDERS["environment.noisy"](case_of(sampled(wild)))
    assert finding.evidence["variation"] > 0.3
    assert FINDERS["environment.noisy"](case_of(sampled(steady(20)))) is None


def test_a_few_slow_runs_are_a_tail_and_no_noise():
    case = case_of(sampled(steady(400, slow=20, factor=50.0)))
    assert FINDERS["environment.noisy"](case) is None
    assert FINDERS["latency.tail"](case) is not None


def test_gains_are_those_of_the_price():
    asked = []

    def price(change, phase):
        asked.append((change, phase))
        return priced(change, phase)

    finding = FINDERS["memory.bound"](case_of(profile(forward(moving(1.0))), CPU, price=price))
    assert (finding.gain, finding.gain_low, finding.gain_high, finding.gain_of) == (2.0, 1.5, 2.5, "latency")
    assert asked == [("weights=i8", "forward")]
    assert finding.changes[0] == "weights=i8"


def test_a_batch_that_does_not_fit_is_halved_until_it_does():
    def price(change, phase):
        return replace(priced(change, phase), fits=int(change.partition("=")[2]) <= 8)

    finding = FINDERS["batch.small"](case_of(on_gpu("memory", 1), GPU, price=price))
    assert finding.changes == ("batch=8",)
    assert finding.gain == 16.0
    assert finding.gain_of == "throughput"


def test_what_cannot_be_priced_has_no_gain_and_still_advice():
    finding = FINDERS["memory.bound"](case_of(profile(forward(moving(1.0))), CPU))
    assert finding.gain is None
    assert finding.advice


def test_weights_that_are_small_already_are_not_quantised_again():
    found = profile(forward(moving(1.0)))
    found = replace(found, model=replace(found.model, parameters=16_000_000_000))  # 5 bits each
    finding = FINDERS["memory.bound"](case_of(found, CPU, price=priced))
    assert finding.changes == ("batch=4",)
    assert (finding.gain, finding.gain_of) == (16.0, "throughput")


def test_where_most_bytes_are_activations_they_are_what_should_shrink():
    moved = 1e13  # the weights are a thousandth of it
    found = profile(forward(op("relu", "activation", 1.0, flops=moved / 4, bytes=moved)))
    finding = FINDERS["memory.bound"](case_of(found, CPU, price=priced))
    assert finding.changes == ("precision=f16",)
    assert "activations" in finding.advice
    assert finding.evidence["weight_share"] == pytest.approx(1e-3)


def test_a_batch_that_gains_nothing_is_not_advised():
    def price(change, phase):
        return replace(priced(change, phase), throughput_gain=1.05)

    assert FINDERS["batch.small"](case_of(on_gpu("memory", 1), GPU, price=price)) is None


def test_a_graph_optimisation_that_was_turned_down_is_to_be_tried():
    found = PAIRS["utilisation.low"][0]
    turned = replace(found, provenance=replace(found.provenance, command="inferometer profile m --optimisation=none"))
    assert FINDERS["utilisation.low"](case_of(turned, CPU)).changes == ("optimisation=all",)
    assert FINDERS["utilisation.low"](case_of(found, CPU)).changes == ()


def test_llama_cpp_is_told_its_own_formats():
    found = replace(text(0.01, 0.01, ops=(moving(0.01),)), runtime="llamacpp")
    assert FINDERS["memory.bound"](case_of(found, CPU)).changes == ("weights=q4_0", "weights=q8_0")


def test_a_faster_format_is_advised_only_where_the_device_has_one():
    assert FINDERS["compute.bound"](case_of(on_gpu("compute", 500), GPU)).changes == ("precision=i8",)
    assert FINDERS["compute.bound"](case_of(profile(forward(computing(1.0))), CPU)).changes == ()


@pytest.mark.parametrize("command", ["inferometer profile m --unit gpu", "inferometer profile m --unit=npu:0"])
def test_a_unit_that_was_asked_for_and_not_used_is_a_fallback(command):
    found = profile(forward(computing(1.0)))
    found = replace(found, provenance=replace(found.provenance, command=command))
    finding = FINDERS["placement.fallback"](case_of(found))
    assert "every op fell back" in finding.title
    assert FINDERS["placement.fallback"](case_of(profile(forward(computing(1.0))))) is None


def on_three_units(*, command=None):
    """An NPU with most of the time; the CPU and the GPU, which comes first by name, with some."""
    shares = {"cpu": 0.13, "gpu": 0.04, "npu:0": 0.83}
    found = profile(forward(*(op(unit, "linear", share, unit=unit) for unit, share in shares.items())))
    return replace(found, provenance=replace(found.provenance, command=command))


@pytest.mark.parametrize(
    ("command", "title"),
    [
        (None, "2 ops ran on the CPU (13%) and the GPU (4%) instead of the NPU (83%): 17% of the forward pass"),
        ("profile m --unit gpu", "2 ops ran on the NPU (83%) and the CPU (13%) instead of the GPU (4%): 96%"),
        ("profile m --unit tpu", "Nothing ran on the TPU: every op fell back to the NPU (83%) and the CPU (13%) and"),
    ],
)
def test_a_fallback_is_from_the_unit_with_the_most_time_or_the_one_asked_for(command, title):
    finding = FINDERS["placement.fallback"](case_of(on_three_units(command=command)))
    assert finding.title.startswith(title)
    assert [round(finding.evidence[f"{unit}_share"], 2) for unit in ("npu", "cpu", "gpu")] == [0.83, 0.13, 0.04]


def test_nothing_fell_back_from_the_cpu():
    assert FINDERS["placement.fallback"](case_of(on_three_units(command="profile m --unit cpu"))) is None


def test_the_dispatch_of_pytorch_is_no_fallback():
    ops = (op("a", "linear", 0.5, unit="gpu"), op("aten::linear", "linear", 0.5))
    assert FINDERS["placement.fallback"](case_of(profile(forward(*ops), runtime="torch-eager"))) is None
    assert FINDERS["placement.fallback"](case_of(profile(forward(*ops), runtime="onnxruntime"))) is not None


def test_a_host_op_that_starts_a_kernel_is_no_fallback():
    ops = (op("a", "linear", 0.5, unit="gpu"), op("b", "linear", 0.5, device_s=0.4))
    assert FINDERS["placement.fallback"](case_of(profile(forward(*ops)))) is None


def test_what_the_prediction_leaves_open_is_not_slow():
    """Four times the prediction: slow against an interval up to three times, not against one up to five."""
    found = PAIRS["utilisation.low"][0]
    phase = found.phase("forward")
    middle = phase.predicted_s

    def case(high):
        guessed = replace(phase, time_s=middle, low_s=middle / 2, high_s=high * middle)
        return case_of(found, CPU, predicted=replace(found, kind="predicted", phases=(guessed,)))

    assert FINDERS["utilisation.low"](case(5.0)) is None
    slow = FINDERS["utilisation.low"](case(3.0))
    assert slow.gain_low == pytest.approx(phase.time_s / middle / 3)
    assert slow.gain_low > 1


def test_a_change_that_gains_nothing_is_not_proposed():
    fires, _, on = PAIRS["memory.bound"]
    worth, idle = (
        FINDERS["memory.bound"](case_of(fires, on, price=lambda c, p, g=gain: replace(priced(c, p), gain=g)))
        for gain in (2.0, 1.01)
    )
    assert (worth.gain, bool(worth.changes)) == (2.0, True)
    assert (idle.gain, idle.changes) == (None, ())


def test_fewer_threads_are_no_low_utilisation():
    """A prediction is for all CPUs: on 2 of 8 four times as long is as expected."""
    slow = forward(computing(1.0), predicted_s=0.25, floor_s=0.1)
    few = replace(threads(2), phases=(slow,))
    assert FINDERS["utilisation.low"](case_of(few, CPU)) is None
    assert FINDERS["utilisation.low"](case_of(replace(threads(8), phases=(slow,)), CPU)) is not None


def test_a_device_that_waits_while_ops_last_is_a_gap():
    ops = (op("a", "linear", 1.0, unit="gpu", device_s=0.5),)
    finding = FINDERS["host.gap"](case_of(profile(forward(*ops))))
    assert finding.evidence["gap_s"] == pytest.approx(0.5)
    assert finding.title == "The device waits for the host in 50% of the forward pass"


@pytest.mark.parametrize(
    ("runtime", "device", "changes"),
    [
        ("torch-eager", GPU, ("runtime=torch-graph",)), ("torch-compile", GPU, ("runtime=torch-graph",)),
        ("torch-graph", GPU, ()), ("onnxruntime", GPU, ()), ("torch-eager", CPU, ()),
    ],
)  # fmt: skip
def test_where_a_graph_would_take_the_wait_away_it_is_named_with_its_gain(runtime, device, changes):
    unit = "gpu" if device is GPU else "cpu"
    slow = profile(forward(op("a", "linear", 1.0, unit=unit, device_s=0.5)))
    slow = replace(slow, runtime=runtime, summary=replace(slow.summary, top_unit=unit))
    finding = FINDERS["host.gap"](case_of(slow, device, price=lambda c, p: replace(priced(c, p), gain=1.8)))
    assert finding.changes == changes
    assert finding.gain == (1.8 if changes else None)


def launching(launch_s, run_s, **others):
    """A forward pass of a second whose ops nobody timed, on a GPU that its host starts op by op."""
    parts = {"launch": launch_s, "run": run_s}
    phase = replace(forward(), time_s=1.0, ops=(), parts=parts, floor_s=0.1)
    whole = profile(phase)
    return replace(whole, runtime="torch-eager", summary=replace(whole.summary, top_unit="gpu"), **others)


def test_a_host_that_starts_ops_until_the_end_is_told_without_ops():
    told = case_of(launching(0.95, 0.04), GPU, price=lambda c, p: replace(priced(c, p), gain=3.0))
    finding = FINDERS["host.gap"](told)
    assert finding.title == "The host starts ops during 85% of the forward pass, and hardly waits for the device"
    assert (finding.changes, finding.gain) == (("runtime=torch-graph",), 3.0)
    assert finding.evidence["gap_s"] == pytest.approx(0.85)
    assert "ops" not in finding.evidence


def test_a_graph_that_would_be_slower_than_what_a_compiler_joined_is_not_named():
    told = case_of(launching(0.95, 0.04), GPU, price=lambda c, p: replace(priced(c, p), gain=0.8))
    finding = FINDERS["host.gap"](told)
    assert (finding.changes, finding.gain) == ((), None)


@pytest.mark.parametrize(
    ("launch_s", "run_s", "device"),
    [(0.8, 0.2, GPU), (0.01, 0.99, GPU), (0.95, 0.04, CPU)],  # it waits in the end; a graph; a CPU starts its own
)
def test_a_host_that_waits_for_its_device_is_no_gap(launch_s, run_s, device):
    unit = "gpu" if device is GPU else "cpu"
    slow = launching(launch_s, run_s)
    assert FINDERS["host.gap"](case_of(replace(slow, summary=replace(slow.summary, top_unit=unit)), device)) is None


def test_what_is_the_engines_own_comes_after_what_can_be_changed():
    """Half of an engine's step lies between its kernels: nobody can act on it, so it is told and not urged."""
    slow = profile(forward(computing(0.5)))
    own, python = (FINDERS["host.gap"](case_of(replace(slow, runtime=name), CPU)) for name in ("ncnn", "torch-eager"))
    assert own.severity == "info"
    assert "engine's own" in own.advice
    assert python.severity != "info"
    assert "out of Python" in python.advice


def test_a_read_that_waits_for_the_device_is_no_copy():
    phase = forward(op("a", "linear", 1.0, unit="gpu"), parts={"run": 0.1, "read": 0.9})
    assert FINDERS["host.copies"](case_of(profile(phase), GPU)) is not None
    timed = replace(phase, ops=(replace(phase.ops[0], device_s=0.9),))
    assert FINDERS["host.copies"](case_of(profile(timed), GPU)) is None


def test_copies_are_known_by_their_names():
    ops = (op("Memcpy HtoD", "copy", 0.3, unit="gpu"), op("fc", "linear", 0.7, unit="gpu"))
    case = case_of(profile(forward(*ops)), GPU)
    assert FINDERS["host.copies"](case) is not None
    assert FINDERS["layout.moves"](case) is None


def test_experts_above_their_prediction_alone_are_uneven():
    ops = (
        moving(0.6, "e", "moe_experts", predicted_s=0.2),
        moving(0.4, "fc", "linear", predicted_s=0.4),
    )
    assert FINDERS["experts.imbalance"](case_of(profile(forward(*ops)), CPU)).evidence["imbalance"] == pytest.approx(3)
    even = tuple(replace(each, predicted_s=each.time_s / 3) for each in ops)
    assert FINDERS["experts.imbalance"](case_of(profile(forward(*even)), CPU)) is None


def test_throttling_that_was_seen_is_named():
    rising = tuple(0.01 * (1 + n / 100) for n in range(40))
    hot = Environment(disturbed=True, reasons=("after the runs: CPU throttled (cpu-throttled)",))
    assert "throttles" in FINDERS["latency.drift"](case_of(sampled(rising, environment=hot))).title
    assert "throttles" not in FINDERS["latency.drift"](case_of(sampled(rising))).title


def decode_of(slope, contexts=range(100, 160)):
    """Steps of 10 ms at the first context, each token adding `slope` seconds."""
    samples = tuple(0.01 + slope * (at - 100) for at in contexts)
    return Phase(name="decode", time_s=0.01, samples_s=samples, context=tuple(contexts))


def test_steps_that_grow_with_the_context_are_growth_and_neither_drift_nor_tail():
    phase = decode_of(1e-4)
    found = growth(phase)
    assert found.per_token_s == pytest.approx(1e-4)
    assert max(level_samples(phase)) == pytest.approx(min(level_samples(phase)))
    case = case_of(profile(phase, summary=Headline(tpot_s=0.01), workload=Workload(prompt=100, generate=60)))
    codes = {finding.code for finding in findings_of(case)}
    assert "attention.grows" in codes
    assert not codes & {"latency.drift", "latency.tail"}


def test_several_generations_over_the_same_contexts_do_not_hide_growth():
    once = decode_of(1e-4)
    thrice = replace(once, samples_s=once.samples_s * 3, context=once.context * 3)
    assert growth(thrice).per_token_s == pytest.approx(1e-4)


def test_steps_that_do_not_grow_are_not_growth():
    assert growth(decode_of(0.0)) is None
    assert growth(decode_of(1e-4, contexts=range(100, 105))) is None  # too few to tell


@pytest.mark.parametrize(("load_s", "slow"), [(2.0, True), (0.01, False), (500.0, False)])
def test_a_measured_load_waits_for_the_disk_where_it_is_as_fast_as_one(load_s, slow):
    """5 GB in 2 s is a desktop's NVMe disk; in 10 ms it was in memory, and in 500 s something else held it up."""
    found = profile(Phase(name="load", time_s=load_s, bytes=5e9), forward(computing(1.0)))
    assert (FINDERS["load.storage-bound"](case_of(found, CPU)) is not None) == slow


def test_a_short_sample_has_no_tail():
    assert FINDERS["latency.tail"](case_of(sampled(steady(30, slow=5)))) is None


def test_a_runtime_that_writes_weights_out_is_said(monkeypatch):
    from inferometer.known.engines import engine
    from inferometer.understand.findings import overheads

    ideal = engine("ideal")
    row = replace(ideal, effects=replace(ideal.effects, expanded=frozenset({"q4_0"})))
    monkeypatch.setattr(overheads, "engine_or_ideal", lambda _: row)
    found = text(0.1, 0.01)
    found = replace(
        found, workload=replace(found.workload, precision=replace(found.workload.precision, weights="q4_0"))
    )
    assert "before it uses them" in FINDERS["quantisation.overhead"](case_of(found, CPU)).title
    assert FINDERS["quantisation.overhead"](case_of(text(0.1, 0.01), CPU)) is None


def test_commands_to_run_next_are_of_this_profile():
    measured = explain(PAIRS["threads.too-few"][0], CPU, name="a b.json").next
    assert "inferometer explain 'a b.json' --try" in measured
    unknown = explain(profile(forward(moving(1.0))), None, name="x.json").next
    assert "inferometer explain x.json --on DEVICE" in unknown
    foreign = replace(PAIRS["threads.too-few"][0], provenance=Provenance(tool="trtexec", version="", created=""))
    assert not any("--try" in line for line in explain(foreign, CPU, name="x").next)


def test_a_profile_of_an_unknown_runtime_is_explained_all_the_same():
    found = profile(forward(OpTime(name="a", kind="custom", time_s=1.0)), runtime="tensorrt")
    assert explain(found, CPU).headline.startswith("A forward pass takes 1 s")


def test_the_op_that_dominates_is_named_with_its_shape_and_its_distance_to_the_floor():
    layers = [computing(0.1, name=f"layer{number}.0.conv1", kind="convolution") for number in range(1, 5)]
    stem = computing(0.6, name="conv1", kind="convolution", floor_s=0.06)
    found = FINDERS["op.dominates"](case_of(profile(forward(stem, *layers)), CPU, graph=read("resnet18")))
    assert found.title == "conv1, a 7×7 convolution, 3 → 64 channels, takes 60% of the forward pass"
    assert found.advice.startswith("It has 60% of the arithmetic of the forward pass")
    assert "at 10 times its floor. Its kernel is far from what the device can do" in found.advice
    near = FINDERS["op.dominates"](case_of(profile(forward(replace(stem, floor_s=0.5), *layers)), CPU))
    assert near.title.startswith("conv1, a convolution, takes 60%")
    assert "It runs near what the device can do" in near.advice
    head = moving(0.5, name="lm_head", floor_s=0.4)
    steps = text(0.1, 1.0, ops=(head, *(moving(0.1, name=f"layers.{n}.mlp.up_proj") for n in range(5))))
    named = FINDERS["op.dominates"](case_of(steps, CPU, graph=read("llama-3.2-1b")))
    assert named.title == "lm_head, a matrix product, 2048 → 128256, takes 50% of decoding"
