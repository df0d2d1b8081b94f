"""An exported program as plain data: what a `.pt2` file holds and what `torch.export` makes of a live module.

Both come into this one form, and everything after it knows neither zip files nor torch.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from inferometer.core.dims import Dim
from inferometer.core.dtypes import dtype
from inferometer.core.errors import UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Role

# The JSON documents inside an exported program, field for field as far as they are read.
#
# A union is an object with one key that says which member it is (`{"as_int": 3}`): a struct whose fields are all
# optional reads it. Fields that are not named here are skipped, stack traces first among them.


class HintDoc(msgspec.Struct):
    as_int: int | None = None


class ExpressionDoc(msgspec.Struct):
    expr_str: str
    hint: HintDoc | None = None


class SizeDoc(msgspec.Struct):
    as_int: int | None = None
    as_expr: ExpressionDoc | None = None


class TensorDoc(msgspec.Struct):
    dtype: int
    sizes: list[SizeDoc]
    strides: list[SizeDoc] | None = None
    storage_offset: SizeDoc | None = None


class NameDoc(msgspec.Struct):
    name: str


class SymbolicDoc(msgspec.Struct):
    as_name: str | None = None
    as_int: int | None = None
    as_float: float | str | None = None
    as_bool: bool | None = None


class OptionalTensorDoc(msgspec.Struct):
    as_tensor: NameDoc | None = None
    as_none: bool | None = None


class SubgraphDoc(msgspec.Struct):
    name: str
    graph: "GraphDoc"


class ArgumentDoc(msgspec.Struct):
    """One of these is set. Kinds that say nothing about work (devices, layouts, custom objects) are not read."""

    as_tensor: NameDoc | None = None
    as_tensors: list[NameDoc] | None = None
    as_optional_tensor: OptionalTensorDoc | None = None
    as_optional_tensors: list[OptionalTensorDoc] | None = None
    as_nested_tensors: list[list[NameDoc]] | None = None
    as_int: int | None = None
    as_ints: list[int] | None = None
    as_int_lists: list[list[int]] | None = None
    as_float: float | str | None = None
    as_floats: list[float | str] | None = None
    as_bool: bool | None = None
    as_bools: list[bool] | None = None
    as_string: str | None = None
    as_strings: list[str] | None = None
    as_operator: str | None = None
    as_scalar_type: int | None = None
    as_sym_int: SymbolicDoc | None = None
    as_sym_ints: list[SymbolicDoc] | None = None
    as_sym_float: SymbolicDoc | None = None
    as_sym_bool: SymbolicDoc | None = None
    as_graph: SubgraphDoc | None = None


class NamedArgumentDoc(msgspec.Struct):
    arg: ArgumentDoc
    name: str = ""


class NodeMetadataDoc(msgspec.Struct):
    nn_module_stack: str | None = None


class NodeDoc(msgspec.Struct):
    target: str
    inputs: list[NamedArgumentDoc]
    outputs: list[ArgumentDoc]
    metadata: NodeMetadataDoc = msgspec.field(default_factory=NodeMetadataDoc)
    name: str | None = None


class GraphDoc(msgspec.Struct):
    inputs: list[ArgumentDoc]
    outputs: list[ArgumentDoc]
    nodes: list[NodeDoc]
    tensor_values: dict[str, TensorDoc]
    sym_int_values: dict[str, SizeDoc] = msgspec.field(default_factory=dict)


class UserInputDoc(msgspec.Struct):
    arg: ArgumentDoc


class ParameterDoc(msgspec.Struct):
    arg: NameDoc
    parameter_name: str


class BufferDoc(msgspec.Struct):
    arg: NameDoc
    buffer_name: str


class ConstantDoc(msgspec.Struct):
    arg: NameDoc
    tensor_constant_name: str


class InputDoc(msgspec.Struct):
    user_input: UserInputDoc | None = None
    parameter: ParameterDoc | None = None
    buffer: BufferDoc | None = None
    tensor_constant: ConstantDoc | None = None


class OutputDoc(msgspec.Struct):
    user_output: UserInputDoc | None = None
    buffer_mutation: BufferDoc | None = None


class SignatureDoc(msgspec.Struct):
    input_specs: list[InputDoc]
    output_specs: list[OutputDoc]


class GraphModuleDoc(msgspec.Struct):
    graph: "GraphDoc"
    signature: SignatureDoc


class VersionDoc(msgspec.Struct):
    major: int
    minor: int = 0


class VersionedDoc(msgspec.Struct):
    """What is looked at first: a newer document may have other fields."""

    schema_version: VersionDoc
    torch_version: str | None = None


class ProgramDoc(msgspec.Struct):
    graph_module: GraphModuleDoc


class PayloadDoc(msgspec.Struct):
    path_name: str
    use_pickle: bool = False
    tensor_meta: TensorDoc | None = None


class PayloadsDoc(msgspec.Struct):
    config: dict[str, PayloadDoc]


@frozen
class ProgramValue:
    """A tensor's shape and format. Strides tell whether a reshape has to copy; None where they are not known."""

    shape: tuple[Dim, ...]
    dtype: str | None
    strides: tuple[Dim, ...] | None = None


@dataclass(frozen=True, slots=True)
class Ref:
    """A tensor that an earlier call, or the caller, has made."""

    name: str


# A Ref, a Body, a Dim, a float, a bool, text (a number format is text too), None, or a tuple of these.
Argument = Any


@frozen
class ProgramCall:
    """One call of an operator. `path` is the module it stands in (`model.layers.0.mlp`), empty for the outermost."""

    name: str
    target: str  # `aten.linear.default`, `higher_order.cond`
    arguments: Mapping[str, Argument]
    outputs: tuple[str, ...]
    path: str = ""

    @property
    def refs(self) -> tuple[Ref, ...]:
        """The tensors it is given, in order."""
        return refs_in(tuple(self.arguments.values()))


@frozen
class ProgramBody:
    """A function of tensors: the program itself, or a branch or loop body that an operator is given."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    calls: tuple[ProgramCall, ...]
    values: Mapping[str, ProgramValue]


@frozen
class HeldInput:
    """What a program's input stands for when it is not the user's: a parameter (`weight`), a buffer or a constant."""

    name: str
    role: Role
    stored_bytes: int | None = None


@frozen
class Program:
    """`held` maps the body's inputs to what they stand for. Tied parameters have one name there.

    `mutated` are the names of buffers that a functional program hands back changed.
    """

    name: str
    body: ProgramBody
    held: Mapping[str, HeldInput]
    mutated: frozenset[str] = frozenset()
    metadata: Mapping[str, Any] = field(default_factory=dict)


def refs_in(argument: Argument) -> tuple[Ref, ...]:
    """The tensors an argument names, in order."""
    if isinstance(argument, Ref):
        return (argument,)
    if isinstance(argument, tuple):
        return tuple(ref for item in argument for ref in refs_in(item))
    return ()


def named_arguments(names: list[str], values: list[Argument]) -> dict[str, Argument]:
    """Arguments by name. A nameless one, or a name that is there already, gets its place as a name."""
    arguments: dict[str, Argument] = {}
    for index, (name, value) in enumerate(zip(names, values, strict=True)):
        arguments[name if name and name not in arguments else f"#{index}"] = value
    return arguments


# The numbers that exported programs use for formats (torch's serialised ScalarType). Formats that have no row of their
# own stand for another of the same width, so that their bytes are exact.
SCALAR_TYPES: dict[int, str] = {
    1: "u8",
    2: "i8",
    3: "i16",
    4: "i32",
    5: "i64",
    6: "f16",
    7: "f32",
    8: "f64",
    9: "u32",  # a complex number of two halves
    10: "c64",
    11: "c128",
    12: "bool",
    13: "bf16",
    28: "u16",
    29: "f8e4m3",
    30: "f8e5m2",
    31: "f8e4m3",  # other infinities, the same width
    32: "f8e5m2",
    33: "u8",  # eight bits of exponent: the scales of micro-scaled formats
    34: "u32",
    35: "u64",
}

_BY_WIDTH = {1: "u8", 2: "u16", 4: "u32", 8: "u64", 16: "c128"}


def format_of(name: str, width: int) -> str | None:
    """The format of a torch dtype, by its name without `torch.`, else by the bytes one number takes."""
    try:
        return dtype(name).name
    except UnknownNameError:
        return _BY_WIDTH.get(width)


# The operator table: which ATen operator is what in the graph's vocabulary. The rows are data, in `aten.toml`.

_RESERVED = frozenset({"kind", "form", "ops", "flops", "reason"})

# Quantisation made explicit by torch's own quantiser; the operators stand in a namespace of their own.
_QUANTIZED = "quantized_decomposed"


@frozen
class AtenRow:
    """`attributes` go onto the op as they are; `form` is read by the converter of that name."""

    kind: str
    form: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def but(self, kind: str | None = None, **attributes: Any) -> "AtenRow":
        """The row of another kind, or with further attributes."""
        return replace(self, kind=kind or self.kind, attributes={**self.attributes, **attributes})


@cache
def rows() -> Mapping[str, AtenRow]:
    """Every operator that is known, by its name without namespace and overload."""
    text = files(__package__).joinpath("aten.toml").read_text(encoding="utf-8")
    table: dict[str, AtenRow] = {}
    for group in tomllib.loads(text)["group"]:
        for name in group["ops"].split():
            table[name] = _row(name, group)
    return table


def row_of(target: str) -> AtenRow:
    """The row of `aten.linear.default` or `quantized_decomposed.quantize_per_tensor.default`.

    An operator that is not known is custom, with a reason that names it.
    """
    namespace, _, rest = target.partition(".")
    name = base_name(target)
    if namespace == "aten" and name in rows():
        return rows()[name]
    if namespace == _QUANTIZED and rest.startswith(("quantize", "dequantize")):
        kind = rest.partition("_")[0]
        return AtenRow(kind=kind, form="dequantize" if kind == "dequantize" else None)
    if namespace in {"higher_order", "inferometer"}:
        return AtenRow(kind="control", form=f"{namespace}.{name}")
    return AtenRow(kind="custom", attributes={"reason": f"{target} is not a known operator"})


def base_name(target: str) -> str:
    """`aten.add_.Tensor` → `add`. An operator in place is the one without the underscore."""
    parts = target.split(".")
    name = parts[1] if len(parts) > 1 else target
    if name in rows() or name.startswith("__"):
        return name
    return name.removesuffix("_") if name.removesuffix("_") in rows() else name


def _row(name: str, group: Mapping[str, Any]) -> AtenRow:
    kind = group["kind"]
    attributes = {key: value for key, value in group.items() if key not in _RESERVED}
    if kind in {"elementwise", "activation", "reduce", "copy"}:
        attributes.setdefault("function", name.strip("_"))
    if "flops" in group:
        attributes["flops_per_element"] = group["flops"]
    if "reason" in group:
        attributes["reason"] = f"{name}: {group['reason']}"
    return AtenRow(kind=kind, form=group.get("form"), attributes=attributes)
