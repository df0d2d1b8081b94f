"""Rows of steps become kernels: one sample a step, in order of execution, at the layers they stand for."""

import itertools
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from inferometer.engines.base import Kernel
from inferometer.engines.torch.kernels import align_layers, aligned, kernels_from_rows, map_calls
from inferometer.engines.torch.trace import TraceRow, rows_by_step
from unit.engines.torch.documents import eager_step, replayed_step


def row(kind, place="a", ns=1000, **others):
    return TraceRow(place=place, module=place is not None, kind=kind, root=kind, host_ns=ns, **others)


def rows_of(document):
    ((_, rows),) = rows_by_step(document)
    return rows


def test_a_kernel_has_a_sample_for_each_step():
    steps = [[row("aten::mm", ns=1000)], [row("aten::mm", ns=3000)]]
    (kernel,) = kernels_from_rows(steps, unit="gpu", provider="cuda:0")
    assert kernel.samples_s == (1000 * 1e-9, 3000 * 1e-9)
    assert (kernel.name, kernel.kind, kernel.layers) == ("a/aten::mm", "aten::mm", ("a",))
    assert (kernel.unit, kernel.provider, kernel.device_s) == ("cpu", "cpu", None)


def test_a_kernel_has_all_that_its_rows_say_and_the_second_of_a_name_its_number():
    """On the device a row may have several kernels, one after the other, and the host may wait for them."""
    first = row("mm", device_ns=(4000, 500), waited_ns=200, dtype="bf16", shapes=((2, 3), (3, 4)), layers=("a.q", "a"))
    again = row("mm", ns=2000, device_ns=(700,))
    one, two = kernels_from_rows([[first, again], [first]], unit="gpu", provider="cuda:0")
    assert one == Kernel(
        name="a/mm", kind="mm", samples_s=(1000 * 1e-9,) * 2, unit="gpu", layers=("a.q", "a"), provider="cuda:0",
        device_s=(4500 * 1e-9,) * 2, waited_s=(200 * 1e-9,) * 2, dtype="bf16", shapes=((2, 3), (3, 4)),
    )  # fmt: skip
    assert (two.name, two.samples_s, two.device_s) == ("a/mm#2", (2000 * 1e-9, 0.0), (700 * 1e-9, 0.0))
    assert (two.layers, two.waited_s, two.dtype) == (("a",), (0.0, 0.0), None)


def test_what_a_step_did_not_run_took_no_time_in_it():
    steps = [[row("x"), row("z")], [row("x"), row("y"), row("z")]]
    kernels = kernels_from_rows(steps, unit="cpu", provider="cpu")
    assert [kernel.kind for kernel in kernels] == ["x", "y", "z"]
    assert kernels[1].samples_s == (0.0, 1000 * 1e-9)


def test_device_time_stands_beside_the_host_time():
    (kernel,) = [
        k for k in kernels_from_rows([rows_of(eager_step())], unit="gpu", provider="cuda:0") if k.kind == "aten::mm"
    ]
    assert (kernel.unit, kernel.provider, kernel.device_s) == ("gpu", "cuda:0", (12_500 * 1e-9,))


def test_the_model_itself_and_what_is_outside_it_have_no_layer():
    kernels = kernels_from_rows([[row("host", place=""), row("host", place=None)]], unit="cpu", provider="cpu")
    assert [(kernel.name, kernel.layers) for kernel in kernels] == [("(model)/host", ()), ("step/host", ())]


def test_the_compiler_tells_the_layers_of_its_kernels():
    rows = [row("graph_0_cpp_fused_add_1", None), row("aten::mm", None), row("graph_0_cpp_fused_add_1", None)]
    told = [("cpp_fused_add_1", ("l.0.norm", "l.0")), ("aten::mm", ("l.0.q",)), ("cpp_fused_add_1", ("l.1.norm",))]
    found, missed = map_calls(rows, told)
    assert [each.layers for each in found] == [("l.0.norm", "l.0"), ("l.0.q",), ("l.1.norm",)]
    assert missed == 0
    names = [kernel.name for kernel in kernels_from_rows([found], unit="cpu", provider="cpu")]
    assert names == ["l.0.norm/cpp_fused_add_1", "l.0.q/aten::mm", "l.1.norm/cpp_fused_add_1"]


def test_a_call_of_several_ops_is_one_call_of_the_compilers():
    conv = "aten::convolution"
    rows = [row(conv, None), replace(row("aten::copy_", None), root=conv, more=True), row(conv, None)]
    found, missed = map_calls(rows, [(conv, ("a",)), (conv, ("b",))])
    assert [each.layers for each in found] == [("a",), ("a",), ("b",)]
    assert missed == 0


def test_nothing_is_claimed_where_the_numbers_differ():
    found, missed = map_calls([row("aten::mm", None), row("aten::mm", None)], [("aten::mm", ("a",))])
    assert [each.layers for each in found] == [(), ()]
    assert missed == 2


def test_a_replayed_graph_is_aligned_with_a_run_that_was_not_captured():
    reference = [("triton_poi_fused_0", ("l.0",)), ("gemv", ("l.0.q",)), ("triton_poi_fused_0", ("l.1",))]
    found, missed = align_layers(rows_of(replayed_step()), reference)
    assert [each.layers for each in found if each.on_device] == [("l.0",), ("l.0.q",), ("l.1",)]
    assert missed == 0


def test_a_kernel_that_only_the_replay_has_stays_without_layer():
    document = replayed_step(("triton_poi_fused_0", "Memset (Device)", "gemv"))
    found, missed = align_layers(rows_of(document), [("triton_poi_fused_0", ("l.0",)), ("gemv", ("l.0.q",))])
    assert [each.layers for each in found if each.on_device] == [("l.0",), (), ("l.0.q",)]
    assert missed == 1


def test_another_kernel_for_the_same_product_has_its_layer():
    document = replayed_step(("triton_poi_fused_0", "gemv_split", "triton_poi_fused_0"))
    reference = [("triton_poi_fused_0", ("l.0",)), ("gemv", ("l.0.q",)), ("triton_poi_fused_0", ("l.1",))]
    found, missed = align_layers(rows_of(document), reference)
    assert [each.layers for each in found if each.on_device] == [("l.0",), ("l.0.q",), ("l.1",)]
    assert missed == 0


LAYER = ("norm", "mm", "mm", "add", "mm")


def test_layers_that_repeat_are_aligned_one_by_one():
    """Each replayed layer has a kernel more than the recorded one, and one of another name."""
    theirs = LAYER * 30
    ours = ("norm", "mm", "memset", "split", "add", "mm") * 30
    found = dict(aligned(ours, theirs))
    assert len(found) == 5 * 30 - 30  # `split` stands where either of two could, beside the kernel that only we have
    for layer in range(30):
        assert found[6 * layer] == 5 * layer
        assert found[6 * layer + 5] == 5 * layer + 4


@given(st.lists(st.sampled_from("abc"), max_size=14), st.lists(st.sampled_from("abc"), max_size=14))
def test_as_many_pairs_as_possible_are_found_in_order(ours, theirs):
    longest = [[0] * (len(theirs) + 1) for _ in range(len(ours) + 1)]
    for i, a in enumerate(ours):
        for j, b in enumerate(theirs):
            longest[i + 1][j + 1] = longest[i][j] + 1 if a == b else max(longest[i][j + 1], longest[i + 1][j])
    pairs = aligned(tuple(ours), tuple(theirs))
    assert all(x < u and y < v for (x, y), (u, v) in itertools.pairwise(pairs))
    assert sum(ours[x] == theirs[y] for x, y in pairs) == longest[-1][-1]


KINDS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")), max_size=12)


@given(st.lists(KINDS, min_size=1, max_size=4))
def test_no_time_is_lost_and_every_name_is_one_kernel(steps):
    rows = [[row(kind, place, ns=index + 1) for index, (place, kind) in enumerate(step)] for step in steps]
    kernels = kernels_from_rows(rows, unit="cpu", provider="cpu")
    assert len({kernel.name for kernel in kernels}) == len(kernels)
    assert all(len(kernel.samples_s) == len(steps) for kernel in kernels)
    for index, step in enumerate(rows):
        total = sum(kernel.samples_s[index] for kernel in kernels)
        assert abs(total - sum(each.host_ns for each in step) * 1e-9) < 1e-15


@given(KINDS)
def test_the_order_of_one_step_is_kept(step):
    kernels = kernels_from_rows([[row(kind, place) for place, kind in step]], unit="cpu", provider="cpu")
    assert [(kernel.layers[0], kernel.kind) for kernel in kernels] == step
