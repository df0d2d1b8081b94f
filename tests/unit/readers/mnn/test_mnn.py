"""MNN's files as graphs: those of its own converter, and damaged ones."""

import pytest

from contract.runtime_cases_mnn import write_network
from inferometer.errors import FormatError
from inferometer.readers.base import look
from inferometer.readers.mnn import reader
from inferometer.runtimes.base import FileNode, Target
from inferometer.runtimes.mnn import runtime


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    return write_network(tmp_path_factory.mktemp("mnn"))


def test_operators_have_their_shapes_weights_and_the_activation_that_runs_inside(network):
    graph = reader.read(network)
    ops = {op.name: op for _, op in graph.ops()}
    assert graph.parameters == 3 * 3 * 3 * 8 + 8 + 8 * 10 + 10
    assert [(tensor.name, tensor.shape) for tensor in graph.inputs] == [("x", (1, 3, 16, 16))]
    convolution = next(op for op in ops.values() if op.kind == "convolution")
    assert convolution.outputs[0].shape == (1, 8, 16, 16)
    assert ops[f"{convolution.name}/activation"].kind == "activation"
    assert not [op.name for op in ops.values() if op.kind == "custom"]


def test_it_is_known_by_its_content(network, tmp_path):
    other = tmp_path / "network.bin"
    other.write_bytes(network.read_bytes())
    assert 0 < reader.match(look(other)) < reader.match(look(network))
    other.write_bytes(b"\x28\0\0\0" + bytes(64))
    assert reader.match(look(other)) == 0


def test_a_damaged_file_is_an_error_that_names_it(network, tmp_path):
    raw, path = network.read_bytes(), tmp_path / "cut.mnn"
    for size in range(8, len(raw) // 2, max(1, len(raw) // 40)):
        path.write_bytes(raw[:size])
        with pytest.raises(FormatError, match=r"cut\.mnn"):
            reader.read(path)


def test_kernels_stand_for_the_nodes_of_the_graph(network):
    nodes = tuple(FileNode(name=op.name, kind=op.kind) for _, op in reader.read(network).ops())
    session = runtime.open(Target(path=network, format="mnn", threads=1, instrument=True, nodes=nodes))
    session.step()
    kernels = session.kernels()["forward"]
    session.close()
    names = {node.name for node in nodes}
    assert all(set(kernel.layers) <= names for kernel in kernels)
    convolution = next(kernel for kernel in kernels if kernel.kind == "Convolution")
    assert [layer.rpartition("/")[2] for layer in convolution.layers[1:]] == ["activation"]
