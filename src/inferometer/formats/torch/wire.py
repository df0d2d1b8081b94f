"""The JSON documents inside an exported program, field for field as far as they are read.

A union is an object with one key that says which member it is (`{"as_int": 3}`): a struct whose fields are all
optional reads it. Fields that are not named here are skipped, stack traces first among them.
"""

import msgspec


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
