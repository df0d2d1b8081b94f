import pytest

from inferometer.core import Op, Work
from inferometer.core.errors import FormatError, UnknownNameError
from inferometer.core.graph import KINDS
from inferometer.predict import covered, work_of
from inferometer.predict.work.rules import RULES, rule
from unit.predict.decoders import QUERY, at, project, tensor
from unit.predict.examples import EXAMPLES, op, same

LINEAR = project("linear", "x", "y", 96, 40)


def test_every_kind_has_a_rule_but_custom():
    assert set(RULES) == KINDS - {"custom"}


def test_every_rule_says_how_it_is_derived():
    assert all(function.__doc__ and len(function.__doc__) > 60 for function in RULES.values())


def test_every_kind_has_an_example_in_these_tests():
    assert {example.kind for example in EXAMPLES} == KINDS - {"custom"}


def test_a_kind_that_is_not_in_the_vocabulary_cannot_have_a_rule():
    with pytest.raises(UnknownNameError, match="lineer"):
        rule("lineer")(lambda _op, _binding: Work())


def test_an_op_that_lacks_an_attribute_says_which():
    with pytest.raises(FormatError, match=r"attention op 'attention' has no attribute 'head_dim'"):
        work_of(Op(name="attention", kind="attention", attributes={"heads": 8}), at())


def test_an_op_that_lacks_a_tensor_says_so():
    with pytest.raises(FormatError, match=r"linear op 'linear' has no tensor"):
        work_of(op("linear"), at())


def test_a_loop_is_its_body_times_its_trips():
    loop = op("control", bodies=((LINEAR, same("softmax")),), trips=QUERY)
    once = work_of(LINEAR, at(query=5)) + work_of(same("softmax"), at(query=5))
    assert work_of(loop, at(query=5)) == 5 * once


def test_of_two_branches_the_larger_count_of_each_kind_is_taken():
    small, large = project("s", "x", "y", 8, 8), project("l", "x", "y", 64, 64)
    branch = op("control", bodies=((small,), (large,)))
    assert work_of(branch, at()) == work_of(large, at())


def test_a_loop_that_does_not_say_how_often_it_runs_is_not_covered():
    endless = op("control", bodies=((LINEAR,),))
    assert not covered(endless)
    assert work_of(endless, at()) == Work()


def test_a_custom_op_is_not_covered():
    assert not covered(op("custom", reason="no such op"))
    assert work_of(op("custom"), at()) == Work()


@pytest.mark.parametrize(
    ("function", "devices", "link"),
    [
        ("all_reduce", 8, 2 * 7 * 200),
        ("all_reduce", 1, 0),
        ("all_reduce", None, 2 * 1600),
        ("reduce_scatter", 8, 7 * 200),
        ("all_to_all", 8, 7 * 200),
        ("all_gather", 8, 7 * 1600),
    ],
)
def test_a_ring_sends_all_but_each_devices_own_share(function, devices, link):
    gathered = tensor("y", 8 * 800 if function == "all_gather" else 800)
    across = op("collective", [tensor("x", 800)], [gathered], function=function, devices=devices)
    assert work_of(across, at()).link == link


def test_only_collectives_that_sum_compute():
    sizes = {"inputs": [tensor("x", 800)], "outputs": [tensor("y", 800)]}
    assert work_of(op("collective", **sizes, function="all_reduce", devices=8), at()).total_flops == 700
    assert work_of(op("collective", **sizes, function="all_to_all", devices=8), at()).flops == {}
