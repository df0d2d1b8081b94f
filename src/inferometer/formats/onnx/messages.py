"""What an ONNX file says, as plain values: the messages of onnx.proto that a reader of headers needs."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from inferometer.core.frozen import frozen

# A size as the file gives it: a number, a name, or nothing.
Axis = int | str | None


@frozen
class External:
    """Where a tensor's data lies outside the file: beside it, from `offset`, `length` bytes (None: to the end)."""

    location: str
    offset: int = 0
    length: int | None = None


@frozen
class TensorDef:
    """A stored tensor. `payload` is where its bytes lie in the file and how they are written, never the bytes."""

    name: str
    dims: tuple[int, ...]
    dtype: str
    start: int  # of the message in the file
    data_type: int
    payload: tuple[str, int, int] | None = None  # "raw" | "f32" | "i32" | "i64" | "f64" | "u64" | "text", start, end
    loose: tuple[Any, ...] = ()  # numbers written one by one instead of packed; the first MAX_ITEMS of them
    loose_count: int = 0
    external: External | None = None
    sparse: int | None = None  # bytes of a sparse tensor's values and indices


@frozen
class TypeDef:
    """`group` is tensor, sparse, sequence, map, optional or opaque; the others hold an `inner` type."""

    group: str
    dtype: str | None = None
    axes: tuple[Axis, ...] | None = None  # None: not even the rank is given
    inner: "TypeDef | None" = None


@frozen
class ValueInfo:
    name: str
    type: TypeDef | None = None


@frozen
class Attribute:
    """`value` is an int, float, str, TensorDef, GraphDef or TypeDef, or a tuple of those.

    `count` is how many there are in the file, of which a long list keeps the first.
    """

    name: str
    value: Any
    count: int = 1
    reference: str | None = None  # within a function: the name of the caller's attribute that stands here


@frozen
class Node:
    op_type: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute]
    overload: str = ""
    start: int = 0
    source: str = ""  # what it is called in a file of another format that is read in ONNX's terms


@frozen
class GraphDef:
    name: str
    nodes: tuple[Node, ...] = ()
    initializers: tuple[TensorDef, ...] = ()
    inputs: tuple[ValueInfo, ...] = ()
    outputs: tuple[ValueInfo, ...] = ()
    infos: tuple[ValueInfo, ...] = ()


@frozen
class Function:
    """An operator the file defines itself."""

    name: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    opsets: Mapping[str, int]
    overload: str = ""
    defaults: Mapping[str, Attribute] = field(default_factory=dict)
    infos: tuple[ValueInfo, ...] = ()


@frozen
class OnnxModel:
    graph: GraphDef
    ir_version: int = 0
    opsets: Mapping[str, int] = field(default_factory=dict)
    functions: Mapping[tuple[str, str, str], Function] = field(default_factory=dict)
    producer: str = ""
    producer_version: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
