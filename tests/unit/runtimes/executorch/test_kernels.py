"""What ExecuTorch says it ran, laid beside the nodes that the reader finds in the file."""

from pathlib import Path

import numpy as np
import pytest

from inferometer.readers.executorch import reader
from inferometer.runtimes.base import FileNode, Missing, Target
from inferometer.runtimes.executorch import runtime
from inferometer.runtimes.executorch.dump import RanKernel, _delegated, _Event, _kernels
from inferometer.runtimes.executorch.layers import layers_of

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
    kernel = _Event(name="native_call_add.out", instruction=2, seconds=3.0, told=False)
    call = _Event(name="OPERATOR_CALL", instruction=2, seconds=5.0, told=False)
    assert [(one.kind, one.seconds) for one in _kernels([kernel, call])] == [("add.out", 3.0)]
    assert [(one.kind, one.seconds) for one in _kernels([kernel, kernel, call])] == [("add.out", 5.0)]


def test_a_delegate_that_tells_of_no_kernels_stands_for_all_its_nodes():
    kernel = RanKernel(kind="DELEGATE_CALL", instruction=1, seconds=1.0, delegated=True)
    assert layers_of((kernel,), (FileNode(name="other_1", kind="Other"),)) == (("other_1",),)
    nodes = tuple(FileNode(name=f"add_1.{place}", kind="XNNAdd") for place in range(2))
    assert layers_of((kernel,), nodes) == (("add_1.0", "add_1.1"),)


@pytest.mark.parametrize(("whole_s", "rest_s"), [(10.0, 1.0), (8.5, 0.0)])
def test_a_delegates_kernels_and_its_rest_are_its_call(whole_s, rest_s):
    """Its own clock may tell a little more than the call took: then nothing is left, and never less."""
    call = _Event(name="DELEGATE_CALL", instruction=3, seconds=whole_s, told=False)
    inside = [
        _Event(name=name, instruction=-1, seconds=seconds, told=True) for name, seconds in (("a", 4.0), ("b", 5.0))
    ]
    *told, rest = _delegated(call, inside)
    assert [kernel.seconds for kernel in told] == [4.0, 5.0]
    assert (rest.rest, rest.seconds) == (True, rest_s)
    assert {kernel.instruction for kernel in (*told, rest)} == {3}
