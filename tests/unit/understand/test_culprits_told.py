"""The op that stands out, and where ops ran: words and numbers by the shapes, phases and units that they come from."""

from dataclasses import replace
from math import exp
from types import SimpleNamespace

import pytest

from inferometer.core.finding import Finding
from inferometer.core.profile import Environment, Headline, ModelFacts, Phase
from inferometer.understand.findings import FINDERS
from inferometer.understand.findings.bounds import _slowest
from inferometer.understand.findings.overheads import _by_expert, _over_prediction
from inferometer.understand.findings.times import _article, _shape_words
from inferometer.understand.residual import KindGap, _alike
from unit.understand.explain_cases import CPU, GPU, case_of, computing, forward, moving, op, profile, text


def graph(kind, shape, name="a", **attributes):
    """A model of one op with one weight."""
    one = SimpleNamespace(
        name=name, kind=kind, weights=[SimpleNamespace(shape=shape)] if shape is not None else [], get=attributes.get
    )
    return SimpleNamespace(ops=lambda: [(None, SimpleNamespace(name="other", kind="x", weights=[])), (None, one)])


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (graph("convolution", (64, 3, 7, 5)), "7×5 convolution, 3 → 64 channels"),
        (graph("convolution", (64, 1, 3, 3), groups=64), "3×3 convolution, 64 → 64 channels"),
        (graph("convolution", (64, 16, 9), groups=4), "9 convolution, 64 → 64 channels"),
        (graph("convolution", (64, 3)), "convolution"), (graph("linear", (10, 20)), "matrix product, 20 → 10"),
        (graph("linear", ("n", 20)), "matrix product"), (graph("linear", (10,)), "matrix product"),
        (graph("linear", None), "matrix product"), (graph("attention", (10, 20)), "attention"),
    ],
)  # fmt: skip
def test_an_op_is_named_with_its_shape_where_the_model_tells_it(made, words):
    kind = [one for _, one in made.ops()][1].kind
    assert _shape_words(op("a", kind, 1.0), made) == words
    assert _shape_words(op("a", "linear", 1.0), None) == "matrix product"


def test_a_layer_of_a_stack_is_known_by_its_name_without_the_number():
    stacked = graph("linear", (10, 20), name="layers.{}.up")
    assert _shape_words(op("layers.12.up", "linear", 1.0), stacked) == "matrix product, 20 → 10"
    assert _shape_words(op("kernel", "linear", 1.0, layers=("layers.3.up", "x")), stacked) == "matrix product, 20 → 10"
    assert _shape_words(op("kernel", "linear", 1.0, layers=("x", "layers.3.up")), stacked) == "matrix product"
    assert [_article(word) for word in ("attention", "matrix", "8×8 x", "11×11 x", "1×1 x", "unusual")] == [
        "an attention", "a matrix", "an 8×8 x", "an 11×11 x", "a 1×1 x", "a unusual",
    ]  # fmt: skip


def dominating(large, *others, **more):
    return FINDERS["op.dominates"](case_of(profile(forward(large, *others, **more)), CPU))


def test_what_bounds_the_op_is_its_own_in_its_own_phase():
    """Another op before it, and one of the same name in another phase, are bound otherwise."""
    small = [computing(0.05, name=f"s{place}") for place in range(4)]
    assert "and is bound by moving bytes" in dominating(*small, moving(0.8, name="large")).advice
    first = Phase(name="prefill", time_s=0.1, ops=(computing(0.1, name="large"),))
    steps = text(0.1, 1.0, ops=(moving(0.8, name="large"), *small))
    both = profile(first, *steps.phases[1:], summary=steps.summary, workload=steps.workload)
    found = FINDERS["op.dominates"](case_of(both, CPU))
    assert (found.phase, "bound by moving bytes" in found.advice) == ("decode", True)


def test_an_op_dominates_from_three_tenths_on_among_four_and_alone_of_its_kind():
    rest = [computing(0.1, name=f"s{place}") for place in range(3)]
    assert dominating(computing(0.3, name="a"), *rest).evidence["share"] == 0.3
    assert dominating(computing(0.29, name="a"), *rest) is None
    assert dominating(computing(0.3, name="a"), *rest[:2]) is None
    assert dominating(computing(0.3, name="a", count=2), *rest) is None
    assert dominating(computing(0.3, name="a", kind="collective"), *rest) is None
    told = dominating(computing(0.375, name="a", floor_s=0.125), *rest)
    assert told.evidence["times_its_floor"] == 3.0
    assert "Its kernel is far" in told.advice
    assert "It runs near" in dominating(computing(0.3, name="a", floor_s=0.11), *rest).advice
    assert told.evidence["work_share"] == pytest.approx(0.375 / 0.675)
    unknown = dominating(computing(0.3, name="a"), *rest, op("x", "y", 0.1))
    assert "work_share" not in unknown.evidence
    assert unknown.advice.startswith("It stands out")


# Where it ran.


def fallen(*ops, device=GPU, **more):
    return FINDERS["placement.fallback"](case_of(profile(forward(*ops), **more), device))


def test_all_of_it_on_the_cpu_saves_copies_only_where_some_ran_elsewhere():
    some = fallen(op("a", "linear", 0.5, unit="gpu"), op("b", "sort", 0.3), op("c", "gather", 0.1, count=2))
    assert some.changes == ("unit=cpu",)
    assert some.title == "3 ops ran on the CPU (40%) instead of the GPU (50%): 40% of the forward pass"
    assert some.evidence == pytest.approx(
        {"share": 0.4, "time_s": 0.4, "fallen_ops": 3, "ops": 4, "speedup_at_most": 1 / 0.6, "gpu_share": 0.5,
         "cpu_share": 0.4}
    )  # fmt: skip
    assert "was not built for it: sort, gather." in some.advice, "the longest first"
    nothing = fallen(op("a", "linear", 0.5), summary=Headline(latency_s=1.0))
    assert nothing.changes == ()
    assert "speedup_at_most" not in nothing.evidence


@pytest.mark.parametrize(("seconds", "told"), [(0.02, True), (0.0199, False)])
def test_shapes_and_indices_belong_on_the_cpu(seconds, told):
    found = fallen(op("a", "linear", 0.5, unit="gpu"), op("b", "shape", seconds))
    assert (found is not None) is told


@pytest.mark.parametrize(
    ("threads", "cpus", "code", "change"),
    [(9, 8.0, "threads.too-many", "threads=8"), (8, 8.0, None, None), (5, 8.0, None, None),
     (4, 8.0, "threads.too-few", "threads=8"), (1, 2.5, "threads.too-few", "threads=2"),
     (2, 1.5, "threads.too-many", "threads=1")],
)  # fmt: skip
def test_threads_are_as_many_as_there_are_cpus_or_up_to_half(threads, cpus, code, change):
    made = profile(
        forward(computing(1.0)), environment=Environment(threads=threads, host={"usable_cpus": cpus})
    )  # fmt: skip
    case = case_of(made, CPU)
    assert (case.threads, case.cpus) == (threads, cpus)
    for each in ("threads.too-many", "threads.too-few"):
        found = FINDERS[each](case)
        assert (found is not None) == (each == code)
        if found is not None:
            assert found.changes == (change,)
            stake = 1.0 if each == "threads.too-many" else 1 - threads / cpus
            assert found.stake_s == pytest.approx(stake)


def test_the_slowest_op_is_the_furthest_above_its_prediction_in_seconds():
    ops = (op("long", "x", 9.0, predicted_s=8.5), op("late", "x", 2.0, predicted_s=1.0), op("bare", "x", 99.0))
    assert _slowest(forward(*ops)) == "late"
    assert _slowest(forward(ops[2])) == "its longest ops"


# Experts, the first token, and memory.


def test_experts_are_uneven_by_their_own_times_or_by_their_prediction():
    times = {"l.0": (1.0, 3.0), "l.1": (2.0, 2.0, 5.0)}
    ops = [op(f"{layer}.experts.{n}.up", "linear", each) for layer, row in times.items() for n, each in enumerate(row)]
    seconds, uneven = _by_expert(forward(*ops, op("l.0.experts.0.down", "linear", 1.0), op("other", "linear", 9.0)))
    assert (seconds, uneven) == (14.0, pytest.approx((3.0 / 2.5 + 5.0 / 3.0) / 2)), (
        "the first expert of a layer has 2 s"
    )
    assert _by_expert(forward(op("l.experts.0.up", "linear", 1.0))) is None
    assert _by_expert(forward(op("l.experts.0.up", "linear", 0.0), op("l.experts.1.up", "linear", 0.0))) is None
    experts, dense = op("e", "moe_experts", 6.0, predicted_s=2.0), op("d", "linear", 3.0, predicted_s=2.0)
    assert _over_prediction(forward(experts, dense)) == (6.0, 2.0)
    assert _over_prediction(forward(experts, op("d", "matmul", 0.0, predicted_s=2.0))) == (6.0, 0.0)
    assert _over_prediction(forward(op("e", "moe_experts", 0.0, predicted_s=2.0), dense)) == (0.0, 0.0)
    assert _over_prediction(forward(experts)) == _over_prediction(forward(dense)) == (0.0, 0.0)
    assert _over_prediction(forward(op("e", "moe_experts", 6.0), dense)) == (0.0, 0.0)


def in_memory(used, *, fits=None, device=CPU):
    made = profile(forward(computing(1.0)), summary=Headline(latency_s=1.0, peak_memory_bytes=used, fits=fits))
    return {code: FINDERS[f"memory.{code}"](case_of(made, device)) for code in ("nearly-full", "does-not-fit")}


@pytest.mark.parametrize(
    ("used", "fits", "code"),
    [(14_399_999_999, None, None), (14_400_000_000, None, "nearly-full"), (16_000_000_000, None, "nearly-full"),
     (16_000_000_001, None, "does-not-fit"), (15_000_000_000, False, "does-not-fit"), (None, None, None)],
)  # fmt: skip
def test_memory_is_nearly_full_from_nine_tenths_and_too_small_beyond_all_of_it(used, fits, code):
    found = in_memory(used, fits=fits)
    assert {name for name, each in found.items() if each is not None} == ({code} if code else set())
    if code == "nearly-full":
        share = used / 16e9
        assert found[code].evidence == pytest.approx(
            {"used_bytes": used, "capacity_bytes": 16e9, "free_bytes": 16e9 - used, "share": share}
        )


@pytest.mark.parametrize(
    ("sizes", "tokens"),
    [({"prompt": 6, "generate": 4}, 10), ({"prompt": 6, "generate": 3}, None), ({"context": 10}, 10),
     ({"prompt": 6, "generate": 3, "context": 12}, 12)],
)  # fmt: skip
def test_a_cache_is_told_from_where_it_is_as_large_as_the_weights(sizes, tokens):
    made = text(0.1, 2.0, ops=())
    made = replace(made, workload=replace(made.workload, **{"prompt": None, "generate": None, **sizes}, batch=5),
                   model=ModelFacts(name="m", weight_bytes=1000, kv_bytes_per_token=20.0))  # fmt: skip
    found = FINDERS["memory.kv-cache"](case_of(made, CPU))
    assert (found is not None) == (tokens is not None)
    if found is not None:
        assert found.evidence == {"kv_bytes": 100.0 * tokens, "weight_bytes": 1000.0, "kv_bytes_per_token": 20.0,
                                  "tokens": tokens, "batch": 5}  # fmt: skip


@pytest.mark.parametrize(
    ("ttft", "step", "generate", "told"),
    [(5.0, 1.0, 16, True), (4.99, 1.0, 5, False), (5.0, 1.0, 17, False), (20.0, 1.0, 16, True)],
)
def test_the_first_token_is_told_from_five_others_and_a_quarter_of_the_request(ttft, step, generate, told):
    found = FINDERS["latency.first-token"](case_of(text(ttft, step, generate=generate, prompt=8), CPU))
    assert (found is not None) is told
    if told:
        request_s = ttft + (generate - 1) * step
        assert found.evidence == pytest.approx(
            {"ttft_s": ttft, "tpot_s": step, "ratio": ttft / step, "share": ttft / request_s, "prompt_tokens": 8,
             "seconds_per_prompt_token_s": ttft / 8}
        )  # fmt: skip
        assert found.changes == ("cached_prefix=4",)


def test_a_measured_profile_is_no_prediction_of_itself():
    measured = profile(forward(computing(1.0)))
    predicted = replace(measured, kind="predicted")
    assert case_of(measured).predicted is None
    assert case_of(predicted).predicted == predicted
    assert case_of(measured, predicted=predicted).predicted is predicted


@pytest.mark.parametrize(
    ("ratios", "alike"),
    [((1.051, 1.051), True), ((1.049, 1.049), False), ((1.2, 1.2 * exp(0.299)), True), ((1.2, 1.2 * exp(0.301)), False),
     ((0.9, 0.9), True), ((1.2,), False), ((1.2, 0.9), True), ((1.2, 1.0), False)],
)  # fmt: skip
def test_kinds_are_off_alike_by_nearly_one_factor_beyond_what_is_near(ratios, alike):
    kinds = tuple(
        KindGap(kind=f"k{place}", measured_s=ratio, predicted_s=1.0, share=0.1, ops=1)
        for place, ratio in enumerate(ratios)
    )
    assert _alike(kinds, 10.0) is alike
    small = KindGap(kind="small", measured_s=0.5, predicted_s=9.0, share=0.1, ops=1)
    beside = KindGap(kind="beside the layers", measured_s=9.0, predicted_s=1.0, share=0.1, ops=0)
    assert _alike((*kinds, small, beside), 10.0) is alike, "what is a twentieth of the time does not matter"


@pytest.mark.parametrize(
    ("told", "waste"),
    [({"tokens": 60, "padded_tokens": 100}, 0.4), ({"tokens": 85, "padded_tokens": 100.0}, 0.15),
     ({"tokens": 86, "padded_tokens": 100}, None), ({"tokens": "60", "padded_tokens": 100}, None),
     ({"tokens": 60, "padded_tokens": "100"}, None), ({"tokens": 60}, None), ({"tokens": 0, "padded_tokens": 9}, None),
     ("60 of 100", None)],
)  # fmt: skip
def test_padding_is_what_a_report_counts_in_numbers(told, waste):
    made = profile(forward(computing(1.0)), environment=Environment(host={"padding": told}))
    found = FINDERS["padding.waste"](case_of(made, CPU))
    assert (found and found.evidence["waste"]) == (None if waste is None else pytest.approx(waste))
    if found is not None:
        assert found.evidence["speedup_at_most"] == pytest.approx(1 / (1 - waste))
        assert found.stake_s == pytest.approx(waste)


def test_what_a_prediction_noticed_of_memory_is_told_as_it_was():
    other = Finding(code="memory.bound", severity="info", title="Other", evidence={})
    noticed = Finding(code="memory.does-not-fit", severity="critical", title="Too large", evidence={})
    made = profile(forward(computing(1.0)))
    assert FINDERS["memory.does-not-fit"](case_of(replace(made, findings=(other, noticed)), CPU)) is noticed
    assert FINDERS["memory.does-not-fit"](case_of(replace(made, findings=(other,)), CPU)) is None
