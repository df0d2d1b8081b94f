"""Models in ONNX Runtime's format, written by hand with the schema's tables as plain calls."""

from unit.formats.tflite.tflite_bytes import Numbers, Table, serialised

FLOAT, INT64 = 1, 7


def longs(*values):
    return Numbers("q", values)


def size(value):
    if value is None:
        return Table({0: Table({0: ("b", 0)})})
    return Table({0: Table({0: ("b", 2), 2: value} if isinstance(value, str) else {0: ("b", 1), 1: ("q", value)})})


def value(name, dims, kind=FLOAT):
    shape = Table({0: [size(dim) for dim in dims]})
    return Table({0: name, 2: Table({1: ("B", 1), 2: Table({0: ("i", kind), 1: shape})})})


def tensor(name, dims, data, kind=FLOAT):
    return Table({0: name, 2: longs(*dims), 3: ("i", kind), 4: data})


def attribute(name, kind, **fields):
    places = {"f": 3, "i": 4, "s": 5, "t": 6, "g": 7, "floats": 8, "ints": 9, "texts": 10, "tensors": 11, "graphs": 12}
    return Table({0: name, 2: ("i", kind), **{places[key]: given for key, given in fields.items()}})


def node(op_type, inputs, outputs, *attributes, name="", domain=""):
    return Table({0: name, 2: domain, 5: op_type, 8: list(inputs), 9: list(outputs), 10: list(attributes)})


def graph(nodes, values, inputs, outputs, stored=()):
    return Table({0: list(stored), 1: list(values), 2: list(nodes), 5: list(inputs), 6: list(outputs)})


def session(body):
    model = Table({0: ("q", 9), 1: [Table({0: "", 1: ("q", 17)})], 2: "by hand", 7: body})
    return serialised(Table({0: "1.31.1", 1: model}), b"ORTM")


def linear_ort():
    """x [batch, 4] × w [4, 3]."""
    values = [value("x", ("batch", 4)), value("y", ("batch", 3))]
    product = node("MatMul", ["x", "w"], ["y"], name="product")
    return session(graph([product], values, ["x"], ["y"], [tensor("w", (4, 3), bytes(48))]))
