"""ONNX files written by hand, so that the reader is tested without the package it does without."""

import struct
from pathlib import Path

from inferometer.formats.onnx import read_bytes

FLOAT, UINT8, INT8, INT32, INT64, STRING, BOOL, HALF, UINT4, INT4 = 1, 2, 3, 6, 7, 8, 9, 10, 21, 22
LETTERS = {FLOAT: "f", UINT8: "B", INT8: "b", INT32: "i", INT64: "q", BOOL: "B", HALF: "e"}


def varint(number):
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number, content):
    """One field: a whole number as varint, a float in four bytes, text and bytes with their length."""
    if isinstance(content, float):
        return varint(number << 3 | 5) + struct.pack("<f", content)
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    raw = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def fields(number, contents):
    return b"".join(field(number, content) for content in contents)


class Message(bytes):
    """Bytes that are a message of the kind its subclass says."""

    __slots__ = ()


class TensorBytes(Message):
    __slots__ = ()


class GraphBytes(Message):
    __slots__ = ()


def tensor(name, dims, kind=FLOAT, values=None, *, raw=None, external=None, size=None):
    """A TensorProto. Without values it holds zeros of the right length; `size` writes as many bytes as one likes."""
    count = 1
    for dim in dims:
        count *= dim
    out = fields(1, dims) + field(2, kind) + field(8, name)
    if external is not None:
        entries = b"".join(field(13, field(1, key) + field(2, str(value))) for key, value in external.items())
        return TensorBytes(out + entries + field(14, 1))
    if raw is None and values is not None:
        raw = struct.pack(f"<{count}{LETTERS[kind]}", *values)
    if raw is None:
        bits = {UINT4: 4, INT4: 4}.get(kind, 8 * struct.calcsize(LETTERS.get(kind, "f")))
        raw = bytes(size if size is not None else -(-count * bits // 8))
    return TensorBytes(out + field(9, raw))


def ints(name, *values):
    """A vector of 64-bit whole numbers."""
    return tensor(name, (len(values),), INT64, values)


def scalar(name, value, kind=INT64):
    return tensor(name, (), kind, (value,))


def attribute(name, value):
    head = field(1, name)
    if isinstance(value, TensorBytes):
        return head + field(5, value) + field(20, 4)
    if isinstance(value, GraphBytes):
        return head + field(6, value) + field(20, 5)
    if isinstance(value, bool | int):
        return head + field(3, int(value)) + field(20, 2)
    if isinstance(value, float):
        return head + field(2, value) + field(20, 1)
    if isinstance(value, str):
        return head + field(4, value) + field(20, 3)
    if any(isinstance(item, float) for item in value):
        return head + fields(7, value) + field(20, 6)
    return head + fields(8, value) + field(20, 7)


def node(op_type, inputs, outputs, *, name="", domain="", **attributes):
    inputs, outputs = inputs.split() if isinstance(inputs, str) else inputs, outputs.split()
    named = [name for name in (field(3, name) if name else b"", field(7, domain) if domain else b"") if name]
    body = fields(1, ("" if i == "_" else i for i in inputs)) + fields(2, outputs) + b"".join(named)
    return body + field(4, op_type) + b"".join(field(5, attribute(key, value)) for key, value in attributes.items())


def shape(dims):
    out = b""
    for dim in dims:
        out += field(1, b"" if dim is None else field(2, dim) if isinstance(dim, str) else field(1, dim))
    return out


def value(name, dims=None, kind=FLOAT):
    """A ValueInfoProto of a tensor; dims are numbers, names, or None; None in their place gives no shape at all."""
    inner = field(1, kind) + (b"" if dims is None else field(2, shape(dims)))
    return field(1, name) + field(2, field(1, inner))


def graph(nodes, inputs=(), outputs=(), stored=(), infos=()):
    outputs = [field(1, output) if isinstance(output, str) else output for output in outputs]
    return GraphBytes(
        fields(1, nodes)
        + field(2, "g")
        + fields(5, stored)
        + fields(11, inputs)
        + fields(12, outputs)
        + fields(13, infos)
    )


def opset(version, domain=""):
    return field(8, (field(1, domain) if domain else b"") + field(2, version))


def model(body, *, version=17, ir=8, domains=(), functions=(), extra=b""):
    sets = opset(version) + b"".join(opset(1, domain) for domain in domains)
    return field(1, ir) + field(2, "test") + field(7, body) + sets + fields(25, functions) + extra


def function(name, inputs, outputs, nodes, *, domain="own", attributes=(), version=17):
    body = field(1, name) + fields(4, inputs.split()) + fields(5, outputs.split()) + fields(6, attributes)
    return body + fields(7, nodes) + field(9, field(2, version)) + field(10, domain)


def read(nodes, inputs=(), outputs=(), stored=(), infos=(), **more):
    """The graph that the reader makes of a model with these nodes."""
    raw = model(graph(nodes, inputs, outputs, stored, infos), **more)
    return read_bytes(Path("model.onnx"), raw)


def ops(graph):
    return [op for _, op in graph.ops()]


def only(graph):
    """The one op of a graph; tensors that nothing reads stand in a block of their own."""
    (op,) = graph.blocks[0].ops
    return op


def shapes(graph):
    """Every op's first result, as text: symbols read as they are written."""
    return {op.outputs[0].name: tuple(str(dim) for dim in op.outputs[0].shape) for op in ops(graph) if op.outputs}
