"""The nodes that a file's reader found, as the topology in which kernels are adopted: its kinds are those of ONNX."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inferometer.engines.onnx_nodes import NodeRow, Topology

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inferometer.engines.base import FileNode

_KINDS = {
    # TFLite
    "CONV_2D": "Conv", "DEPTHWISE_CONV_2D": "Conv", "CONV_3D": "Conv", "TRANSPOSE_CONV": "ConvTranspose",
    "Convolution2DTransposeBias": "ConvTranspose", "FULLY_CONNECTED": "Gemm", "BATCH_MATMUL": "MatMul",
    "RESHAPE": "Reshape", "EXPAND_DIMS": "Unsqueeze", "SQUEEZE": "Squeeze", "SHAPE": "Shape",
    # OpenVINO's own format
    "Convolution": "Conv", "GroupConvolution": "Conv", "ConvolutionBackpropData": "ConvTranspose",
    "GroupConvolutionBackpropData": "ConvTranspose", "ShapeOf": "Shape",
}  # fmt: skip


def file_topology(nodes: Sequence[FileNode]) -> Topology:
    made = {name for node in nodes for name in node.outputs}
    taken = {name for node in nodes for name in node.inputs}
    rows = tuple(
        NodeRow(
            name=node.name,
            engine_name=node.name,
            kind=_KINDS.get(node.kind, node.kind),
            inputs=node.inputs,
            outputs=node.outputs,
        )
        for node in nodes
    )
    return Topology(nodes=rows, inputs=tuple(sorted(taken - made)), outputs=tuple(sorted(made - taken)))
