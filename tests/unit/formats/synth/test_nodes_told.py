"""The ONNX nodes that each kind of op becomes, with their constants in place.

`nodes_told.txt` has the cases, in the words of `unit/formats/listing.py`: an op's kind, what goes in, what is stored,
what comes out, its attributes; `name` is the op's, `numbers` what the config says. `python
tests/unit/formats/synth/test_nodes_told.py` writes the lines below the cases anew (with src and tests on the path).
"""

from pathlib import Path

import numpy as np

from inferometer.core.dims import Symbol
from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.formats.onnx.write.lowering import Numbers, lower
from unit.formats.listing import INPUT, call_of, dims_of, holds, rewrite

TOLD = Path(__file__).parent / "nodes_told.txt"


def tensor_of(word):
    found = INPUT.match(word)
    shape = tuple(dim if isinstance(dim, int) else Symbol(dim) for dim in dims_of(found["dims"]))
    role = "weight" if found["stored"] else "index" if found["format"] == "i64" else "activation"
    return Tensor(name=found["name"], shape=shape, role=role)


def graph_of(case):
    ops, inputs, numbers, sizes, form = [], {}, {}, {}, "float32"
    for text in case.split(" | "):
        kind, given, results, attributes = call_of(text)
        numbers |= attributes.pop("numbers", {})
        sizes |= attributes.pop("sizes", {})
        form = attributes.pop("form", form)
        read = [tensor_of(word) for word in given.split()]
        made = {tensor.name for op in ops for tensor in op.outputs}
        inputs |= {t.name: t for t in read if t.role != "weight" and t.name not in made}
        if isinstance(attributes.get("context"), str):
            attributes["context"] = Symbol(attributes["context"])
        if "function" in attributes:
            attributes["function"] = attributes["function"].replace("_and_", " and ")
        outputs = tuple(tensor_of(word) for word in results.split())
        ops.append(Op(
            name=attributes.pop("name", outputs[0].name), kind=kind, outputs=outputs, attributes=attributes,
            inputs=tuple(t for t in read if t.role != "weight"), weights=tuple(t for t in read if t.role == "weight"),
        ))  # fmt: skip
    graph = Graph(
        name="g", blocks=(Block(name="b", ops=tuple(ops)),), inputs=tuple(inputs.values()), outputs=ops[-1].outputs[:1]
    )
    return lower(graph, Numbers(**numbers), sizes, float_type=form)


def value_text(value):
    if isinstance(value, np.ndarray):
        numbers = value.tolist() if value.dtype == np.int64 else np.round(value.astype(float), 7).tolist()
        return f"{value.dtype} {numbers if value.size <= 300 else value.shape}"
    return str(value)


def read(case):
    nodes = graph_of(case)
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
