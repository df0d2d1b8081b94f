"""Graphs to be written as files, from cases in the words of `unit/formats/listing.py`, with `|` between ops."""

from inferometer.core.dims import Symbol
from inferometer.core.graph import Block, Graph, Op, Tensor
from unit.formats.listing import INPUT, call_of, dims_of


def tensor_of(word):
    found = INPUT.match(word)
    shape = tuple(dim if isinstance(dim, int) else Symbol(dim) for dim in dims_of(found["dims"]))
    role = "weight" if found["stored"] else "index" if found["format"] == "i64" else "activation"
    return Tensor(name=found["name"], shape=shape, role=role)


def graph_of(case, *settings):
    """The graph, and what the case's ops say of the file as a whole: the `settings`, which are no op's attributes."""
    ops, inputs, said = [], {}, {}
    for text in case.split(" | "):
        kind, given, results, attributes = call_of(text)
        said |= {name: attributes.pop(name) for name in settings if name in attributes}
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
    blocks = (Block(name="b", ops=tuple(ops)),)
    return Graph(name="g", blocks=blocks, inputs=tuple(inputs.values()), outputs=ops[-1].outputs[:1]), said
