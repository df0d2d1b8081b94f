"""Operations of OpenVINO's front end against operators of a TFLite file, named as it names MediaPipe's."""

from inferometer.engines.base import FileNode
from inferometer.engines.openvino.executed import file_topology
from inferometer.engines.openvino.recorded import Operation, known_operators

CONV, DEPTHWISE, POINTWISE, HEAD = NODES = (
    FileNode(name="conv", kind="CONV_2D", inputs=("x",), outputs=("conv;norm",), shape=(1, 112, 112, 24)),
    FileNode(name="dw", kind="DEPTHWISE_CONV_2D", inputs=("conv;norm",), outputs=("dw",), shape=(1, 112, 112, 24)),
    FileNode(name="pw", kind="CONV_2D", inputs=("dw",), outputs=("pw",), shape=(1, 112, 112, 16)),
    FileNode(name="head", kind="FULLY_CONNECTED", inputs=("pw",), outputs=("Identity",), shape=(1, 63)),
)


def test_operations_without_a_name_of_the_file_are_found_by_the_order_they_were_made_in():
    operations = [
        Operation(name="GroupConvolution_132", type="GroupConvolution", shape=(1, 24, 112, 112)),
        Operation(name="Convolution_113", type="Convolution", shape=(1, 24, 112, 112)),
        Operation(name="Transpose_1037", type="Add", shape=(1, 24, 112, 112)),
        Operation(name="Convolution_145", type="Convolution", shape=(None, 16, 112, 112)),
        Operation(name="166", type="MatMul", results=("Identity",), shape=(1, 63)),
        Operation(name="Result_9", type="Result", results=("Identity",), shape=(1, 63)),
    ]
    assert known_operators(NODES, operations) == {
        "Convolution_113": "conv", "GroupConvolution_132": "dw", "Convolution_145": "pw", "166": "head",
    }  # fmt: skip


def test_what_lays_a_result_out_anew_is_not_what_made_it():
    operations = [
        Operation(name="Convolution_3", type="Convolution", shape=(1, 24, 112, 112)),
        Operation(name="Transpose_4", type="Transpose", results=("conv;norm",), shape=(1, 112, 112, 24)),
    ]
    assert known_operators([CONV], operations) == {"Convolution_3": "conv"}


def test_an_operation_of_another_size_is_another_operator():
    operations = [Operation(name="Convolution_3", type="Convolution", shape=(1, 48, 112, 112))]
    assert known_operators([CONV, POINTWISE], operations) == {}


def test_two_in_another_order_are_both_found():
    operations = [
        Operation(name="Transpose_7", type="Convolution", shape=(1, 16, 112, 112)),  # renamed: no number of its own
        Operation(name="Transpose_8", type="Convolution", shape=(1, 24, 112, 112)),
    ]
    assert known_operators([CONV, POINTWISE], operations) == {"Transpose_7": "pw", "Transpose_8": "conv"}


def test_the_topology_speaks_of_onnx_where_kernels_are_adopted():
    topology = file_topology(NODES)
    assert [node.kind for node in topology.nodes] == ["Conv", "Conv", "Conv", "Gemm"]
    assert (topology.inputs, topology.outputs) == (("x",), ("Identity",))
