"""The op that stands out, and where ops ran: words and numbers by the shapes, phases and units that they come from."""

from types import SimpleNamespace

import pytest

from inferometer.core.profile import Environment, Headline, Phase
from inferometer.explain.findings import FINDERS
from inferometer.explain.findings.bounds import _slowest
from inferometer.explain.findings.culprit import _article, _shape_words
from unit.explain.explain_cases import CPU, GPU, case_of, computing, forward, moving, op, profile, text


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
