"""The ONNX nodes that each kind of op becomes, with their constants in place.

`nodes_told.txt` has the cases, in the words of `unit/formats/listing.py`: an op's kind, what goes in, what is stored,
what comes out, its attributes; `name` is the op's, `numbers` what the config says. `python
tests/unit/formats/synth/test_nodes_told.py` writes the lines below the cases anew (with src and tests on the path).
"""

from pathlib import Path

import numpy as np

from inferometer.formats.onnx.write.lowering import Numbers, lower
from unit.formats.listing import holds, rewrite
from unit.formats.synth.cases import graph_of

TOLD = Path(__file__).parent / "nodes_told.txt"


def lowered(case):
    graph, said = graph_of(case, "numbers", "sizes", "form")
    form = said.get("form", "float32")
    return lower(graph, Numbers(**said.get("numbers", {})), said.get("sizes", {}), float_type=form)


def value_text(value):
    if isinstance(value, np.ndarray):
        numbers = value.tolist() if value.dtype == np.int64 else np.round(value.astype(float), 7).tolist()
        return f"{value.dtype} {numbers if value.size <= 300 else value.shape}"
    return str(value)


def read(case):
    nodes = lowered(case)
    constants = {
        node.outputs[0]: value_text(node.attributes["value"]) for node in nodes.nodes if node.kind == "Constant"
    }
    stored = {name: f"{name}{list(kept.shape)}{' turned' * kept.transposed}" for name, kept in nodes.stored.items()}
    for node in nodes.nodes:
        if node.kind != "Constant":
            read_from = ", ".join(constants.get(name) or stored.get(name) or name for name in node.inputs)
            words = "".join(f" {key}={value_text(value)}" for key, value in sorted(node.attributes.items()))
            yield f"{', '.join(node.outputs)} = {node.kind}({read_from}){words}"
    ends = [
        f"{port.name}{'i' * port.integer}[{','.join(map(str, port.shape))}]" for port in (*nodes.inputs, *nodes.outputs)
    ]
    yield f"{', '.join(ends[: len(nodes.inputs)])} -> {', '.join(ends[len(nodes.inputs) :])}"


test_every_op_becomes_the_nodes_that_are_written_below_it = holds(TOLD, read)

if __name__ == "__main__":
    rewrite(TOLD, read)
