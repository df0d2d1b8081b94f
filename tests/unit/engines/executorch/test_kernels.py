"""What ExecuTorch says it ran, laid beside the nodes that the reader finds in the file."""

from pathlib import Path

import numpy as np
import pytest

from inferometer.core.errors import EngineError
from inferometer.engines.base import FileNode, Missing, Target
from inferometer.engines.executorch import runtime
from inferometer.engines.executorch.session import RanKernel, _delegated, _Event, _kernels, layers_of
from inferometer.formats.executorch import reader

PROGRAMS = Path(__file__).parents[3] / "data" / "executorch"


def nodes_of(name):
    ops = reader.read(PROGRAMS / f"{name}.pte").ops()
    return tuple(FileNode(name=op.name, kind=op.source_type) for _, op in ops)


def ran(name, steps=2):
    found = runtime.probe()
    if isinstance(found, Missing):
        pytest.skip(f"{found.reason}; {found.remedy}")
    target = Target(path=PROGRAMS / f"{name}.pte", format="pte", threads=1, instrument=True, nodes=nodes_of(name))
    session = runtime.open(target)
    session.feed({"input_0": np.ones((1, 3, 16, 16), np.float32)})
    for _ in range(steps):
        session.step()
    kernels = session.kernels()["forward"]
    assert not session.kernels()  # asked again without a step, the engine would crash
    session.close()
    return kernels


def test_a_program_that_takes_something_else_than_tensors_is_refused():
    if isinstance(found := runtime.probe(), Missing):
        pytest.skip(f"{found.reason}; {found.remedy}")
    with pytest.raises(EngineError, match=r"input_1 of 'scalar.pte' is no tensor"):
        runtime.open(Target(path=PROGRAMS / "scalar.pte", format="pte", threads=1))


def test_every_operator_of_a_portable_program_is_one_kernel_under_its_own_name():
    kernels = ran("portable")
    assert [kernel.layers for kernel in kernels] == [(node.name,) for node in nodes_of("portable")]
    assert [kernel.kind for kernel in kernels][:3] == [
        "convolution.out", "_native_batch_norm_legit_no_training.out", "relu.out"
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["xnnpack", "xnnpack-i8"])
def test_every_kernel_of_a_lowered_program_stands_for_a_node_but_what_a_call_itself_takes(name):
    kernels = ran(name)
    assert [kernel.kind for kernel in kernels if not kernel.layers] == ["DELEGATE_CALL"] * 3
    assert all(kernel.own for kernel in kernels if not kernel.layers)
    named = {layer for kernel in kernels for layer in kernel.layers}
    heavy = {node.name for node in nodes_of(name) if "onv2d" in node.kind or "Connected" in node.kind}
    assert heavy <= named
    for kernel in kernels:
        if kernel.kind.startswith("Convolution"):
            assert "conv2d" in kernel.layers[0]


def test_a_limit_that_runs_by_itself_belongs_to_the_node_before_it():
    add, clamp = (RanKernel(kind=kind, instruction=3, seconds=1.0, delegated=True) for kind in ("Add (ND) #1", "Clamp"))
    nodes = (FileNode(name="conv2d_3.0", kind="XNNConv2d"), FileNode(name="add_3.1", kind="XNNAdd"))
    assert layers_of((add, clamp), nodes) == (("add_3.1",), ("add_3.1",))


def test_every_change_of_layout_before_a_node_belongs_to_it():
    kinds = ("Transpose (ND) #1", "Copy (NC) #2", "Convolution (NHWC) #3")
    kernels = tuple(RanKernel(kind=kind, instruction=0, seconds=1.0, delegated=True) for kind in kinds)
    nodes = (FileNode(name="conv2d_0.0", kind="XNNConv2d"), FileNode(name="add_0.1", kind="XNNAdd"))
    assert layers_of(kernels, nodes) == (("conv2d_0.0",),) * 3


def test_an_operator_takes_as_long_as_its_only_kernel_and_not_as_the_events_around_it():
    kernel = _Event(name="native_call_add.out", instruction=2, began=1000, ended=4000, told=False)
    call = _Event(name="OPERATOR_CALL", instruction=2, began=0, ended=5000, told=False)
    assert [(one.kind, one.seconds) for one in _kernels([kernel, call])] == [("add.out", pytest.approx(3e-6))]
    assert [(one.kind, one.seconds) for one in _kernels([kernel, kernel, call])] == [("add.out", pytest.approx(5e-6))]


def test_a_delegate_that_tells_of_no_kernels_stands_for_all_its_nodes():
    kernel = RanKernel(kind="DELEGATE_CALL", instruction=1, seconds=1.0, delegated=True)
    assert layers_of((kernel,), (FileNode(name="other_1", kind="Other"),)) == (("other_1",),)
    nodes = tuple(FileNode(name=f"add_1.{place}", kind="XNNAdd") for place in range(2))
    assert layers_of((kernel,), nodes) == (("add_1.0", "add_1.1"),)


def called(ended, *kernels):
    """A delegate's call that began at 0, and what it tells of its kernels, in nanoseconds."""
    call = _Event(name="DELEGATE_CALL", instruction=3, began=0, ended=ended, told=False)
    inside = [_Event(name="a", instruction=-1, began=began, ended=ended, told=True) for began, ended in kernels]
    *told, rest = _delegated(call, inside)
    assert {kernel.instruction for kernel in (*told, rest)} == {3}
    assert [kernel.rest for kernel in (*told, rest)] == [False, False, True]
    return [round(kernel.seconds * 1e9) for kernel in (*told, rest)]


@pytest.mark.parametrize(("ended", "rest"), [(10_000, 1_500), (8_000, 0)])
def test_a_delegates_kernels_and_its_rest_are_its_call(ended, rest):
    """Its own clock may tell a little more than the call took: then nothing is left, and never less."""
    assert called(ended, (0, 4_000), (4_500, 9_000)) == [4_000, 4_500, rest]


@pytest.mark.parametrize(("ended", "cut"), [(90_000, 500), (17_400, 200), (16_000, 0)])
def test_of_a_record_written_after_the_kernels_the_writing_is_no_part(ended, cut):
    """Parts of microseconds that XNNPACK cut off are half a one each, at most what the call leaves for them."""
    assert called(ended, (3_000, 8_000), (8_000, 17_000)) == [5_000 + cut, 9_000 + cut, 3_000]
