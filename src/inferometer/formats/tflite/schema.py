"""What stands where in a TFLite file, as data: field numbers, enumerations and the options that decide an op's work.

Source: TensorFlow Lite's schema (tensorflow/compiler/mlir/lite/schema/schema.fbs), version 3 with its later fields.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from inferometer.core.frozen import frozen

IDENTIFIER = b"TFL3"

# TensorType → our name of the format; None for what is not made of numbers.
TENSOR_TYPES: dict[int, str | None] = {
    0: "f32", 1: "f16", 2: "i32", 3: "u8", 4: "i64", 5: None, 6: "bool", 7: "i16", 8: "c64", 9: "i8", 10: "f64",
    11: "c128", 12: "u64", 13: None, 14: None, 15: "u32", 16: "u16", 17: "i4", 18: "bf16", 19: "i2", 20: "u4",
    21: "f8e4m3", 22: "f8e5m2",
}  # fmt: skip

PADDINGS = {0: "same", 1: "valid"}
ACTIVATIONS = {0: None, 1: "relu", 2: "hardtanh", 3: "relu6", 4: "tanh", 5: "sign"}

# A field of an options table: its number, how it is stored (a struct letter; `*` for a vector, `s` for text), and the
# value it has where the file leaves it out.
Fields = dict[str, tuple[int, str, Any]]

_FUSED_FIRST: Fields = {"fused": (0, "b", 0)}
_LSTM: Fields = {"fused": (0, "b", 0), "time_major": (3, "?", False)}
_BLOCK: Fields = {"block_size": (0, "i", 0)}
_SUBGRAPHS: Fields = {"first": (0, "i", 0), "second": (1, "i", 0)}

# BuiltinOptions: the number of the union's member → its fields. Members that say nothing about the work are left out.
OPTIONS: dict[int, Fields] = {
    1: {
        "padding": (0, "b", 0), "stride_w": (1, "i", 0), "stride_h": (2, "i", 0), "fused": (3, "b", 0),
        "dilation_w": (4, "i", 1), "dilation_h": (5, "i", 1),
    },
    2: {
        "padding": (0, "b", 0), "stride_w": (1, "i", 0), "stride_h": (2, "i", 0), "multiplier": (3, "i", 0),
        "fused": (4, "b", 0), "dilation_w": (5, "i", 1), "dilation_h": (6, "i", 1),
    },
    5: {
        "padding": (0, "b", 0), "stride_w": (1, "i", 0), "stride_h": (2, "i", 0), "filter_w": (3, "i", 0),
        "filter_h": (4, "i", 0), "fused": (5, "b", 0),
    },
    6: {"rank": (0, "i", 0), "fused": (1, "b", 0)},
    7: _FUSED_FIRST,
    8: {"fused": (0, "b", 0), "weights_format": (1, "b", 0), "keep_dims": (2, "?", False)},
    9: {"beta": (0, "f", 0.0)},
    10: {"axis": (0, "i", 0), "fused": (1, "b", 0)},
    11: _FUSED_FIRST,
    12: _FUSED_FIRST,
    13: {"radius": (0, "i", 0)},
    14: {"fused": (0, "b", 0), "kernel_type": (3, "b", 0)},
    16: {"first": (0, "I", 0)},
    17: {"new_shape": (0, "*i", ())},
    19: _BLOCK,
    21: _FUSED_FIRST,
    23: {"axis": (0, "i", 0), "batch_dims": (1, "i", 0)},
    27: {"keep_dims": (0, "?", False)},
    28: _FUSED_FIRST,
    29: _FUSED_FIRST,
    30: {"axes": (0, "*i", ())},
    31: {"time_major": (0, "?", False), "fused": (1, "b", 0)},
    32: {
        "begin_mask": (0, "i", 0), "end_mask": (1, "i", 0), "ellipsis_mask": (2, "i", 0), "new_axis_mask": (3, "i", 0),
        "shrink_axis_mask": (4, "i", 0),
    },
    35: {"splits": (0, "i", 0)},
    49: {"padding": (0, "b", 0), "stride_w": (1, "i", 0), "stride_h": (2, "i", 0), "fused": (3, "b", 0)},
    59: {"axis": (1, "i", 0)},
    61: {"axis": (0, "i", 0)},
    64: {"axis": (1, "i", 0)},
    69: {"fused": (0, "b", 0), "merge": (3, "?", False), "time_major": (4, "?", True)},
    70: {"time_major": (0, "?", False), "fused": (1, "b", 0), "merge": (2, "?", False)},
    71: _LSTM,
    79: {"splits": (0, "i", 0)},
    92: _SUBGRAPHS,
    93: _SUBGRAPHS,
    94: _BLOCK,
    101: {"adjoint_a": (0, "?", False), "adjoint_b": (1, "?", False)},
    103: {"first": (0, "i", 0)},
    106: {
        "padding": (0, "b", 0), "stride_d": (1, "i", 0), "stride_w": (2, "i", 0), "stride_h": (3, "i", 0),
        "fused": (4, "b", 0), "dilation_d": (5, "i", 1), "dilation_w": (6, "i", 1), "dilation_h": (7, "i", 1),
    },
    111: {"container": (0, "s", ""), "shared_name": (1, "s", "")},
    115: {"boundaries": (0, "*f", ())},
    116: {"approximate": (0, "?", False)},
}  # fmt: skip

# BuiltinOptions2: the same for the operators that came with StableHLO.
OPTIONS_2: dict[int, Fields] = {
    1: {"axis": (0, "q", 0)},
    4: {
        "strides": (0, "*q", ()), "lhs_dilation": (2, "*q", ()), "dilations": (3, "*q", ()),
        "input_feature": (6, "q", 0), "kernel_input": (8, "q", 0), "kernel_output": (9, "q", 0),
        "kernel_spatial": (10, "*q", ()), "groups": (14, "q", 0),
    },
    5: {"target": (0, "s", "")},
    6: {"axes": (0, "*q", ())},
    12: {"contracting": (2, "*q", ()), "contracting_b": (3, "*q", ())},
    13: {"window": (0, "*q", ())},
    14: {"axis": (0, "q", 0)},
    15: _SUBGRAPHS,
    17: {"permutation": (0, "*q", ())},
    20: {"function": (0, "i", 0)},
    21: {"name": (0, "s", ""), "first": (1, "i", 0)},
    23: {"branches": (0, "*i", ())},
}  # fmt: skip


# TFLite's operators as data: number → name, the kind of op it is to us, and what its name alone says about the work.
#
# Source: the enumeration BuiltinOperator of TensorFlow Lite's schema. What an operator's options and tensors add to
# this is in `convert`. An operator whose work depends on the data, or on what the file does not hold, is `custom` and
# says so.

CUSTOM = 32


@frozen
class TfliteOperator:
    """`form` names the function of `convert` that knows the operator's tensors and options; "" for plain ones."""

    name: str
    kind: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    form: str = ""


def _each(kind: str, rows: Mapping[int, str], *, form: str = "", key: str = "function") -> dict[int, TfliteOperator]:
    """Rows of `NAME` or `NAME function`; the function is the name in lower case where it is not given."""
    table = {}
    for number, row in rows.items():
        name, _, function = row.partition(" ")
        table[number] = TfliteOperator(name=name, kind=kind, attributes={key: function or name.lower()}, form=form)
    return table


_ELEMENTWISE = {
    0: "ADD", 8: "FLOOR", 18: "MUL multiply", 41: "SUB subtract", 42: "DIV divide", 47: "EXP", 55: "MAXIMUM",
    57: "MINIMUM", 58: "LESS", 59: "NEG negate", 61: "GREATER", 62: "GREATER_EQUAL", 63: "LESS_EQUAL", 64: "SELECT",
    66: "SIN", 71: "EQUAL", 72: "NOT_EQUAL", 73: "LOG", 75: "SQRT", 76: "RSQRT", 78: "POW", 84: "LOGICAL_OR",
    85: "ONE_HOT", 86: "LOGICAL_AND", 87: "LOGICAL_NOT", 90: "FLOOR_DIV", 92: "SQUARE", 95: "FLOOR_MOD", 96: "RANGE",
    101: "ABS", 104: "CEIL", 106: "ADD_N sum", 108: "COS", 116: "ROUND", 123: "SELECT_V2 select", 128: "CUMSUM",
    146: "RANDOM_STANDARD_NORMAL", 148: "RANDOM_UNIFORM", 156: "ATAN2", 158: "SIGN", 160: "BITWISE_XOR",
    161: "RIGHT_SHIFT", 163: "STABLEHLO_ADD add", 164: "STABLEHLO_DIVIDE divide", 165: "STABLEHLO_MULTIPLY multiply",
    166: "STABLEHLO_MAXIMUM maximum", 175: "STABLEHLO_ABS abs", 176: "STABLEHLO_AND logical_and",
    177: "STABLEHLO_COSINE cos", 178: "STABLEHLO_EXPONENTIAL exp", 179: "STABLEHLO_FLOOR floor",
    180: "STABLEHLO_LOG log", 181: "STABLEHLO_MINIMUM minimum", 182: "STABLEHLO_NEGATE negate",
    183: "STABLEHLO_OR logical_or", 184: "STABLEHLO_POWER pow", 185: "STABLEHLO_REMAINDER remainder",
    186: "STABLEHLO_RSQRT rsqrt", 187: "STABLEHLO_SELECT select", 188: "STABLEHLO_SUBTRACT subtract",
    191: "STABLEHLO_COMPARE compare", 196: "STABLEHLO_IOTA range", 204: "STABLEHLO_RNG_BIT_GENERATOR random",
    207: "STABLEHLO_SHIFT_LEFT shift_left", 208: "STABLEHLO_CBRT cbrt",
}  # fmt: skip
_ACTIVATION = {
    14: "LOGISTIC sigmoid", 19: "RELU", 20: "RELU_N1_TO_1 hardtanh", 21: "RELU6", 28: "TANH", 54: "PRELU",
    98: "LEAKY_RELU", 111: "ELU", 117: "HARD_SWISH hardswish", 152: "RELU_0_TO_1 hardtanh",
    162: "STABLEHLO_LOGISTIC sigmoid", 168: "STABLEHLO_CLAMP clip", 189: "STABLEHLO_TANH tanh",
}  # fmt: skip
_COPY = {
    2: "CONCATENATION concat", 5: "DEPTH_TO_SPACE", 26: "SPACE_TO_DEPTH", 29: "CONCAT_EMBEDDINGS concat", 34: "PAD",
    37: "BATCH_TO_SPACE_ND", 38: "SPACE_TO_BATCH_ND", 39: "TRANSPOSE", 45: "STRIDED_SLICE slice", 49: "SPLIT",
    60: "PADV2 pad", 65: "SLICE", 69: "TILE", 83: "PACK concat", 88: "UNPACK split", 93: "ZEROS_LIKE fill", 94: "FILL",
    100: "MIRROR_PAD pad", 102: "SPLIT_V split", 105: "REVERSE_V2 reverse", 112: "REVERSE_SEQUENCE reverse",
    113: "MATRIX_DIAG diagonal", 115: "MATRIX_SET_DIAG diagonal", 124: "DENSIFY", 130: "BROADCAST_TO expand",
    133: "IMAG", 134: "REAL", 138: "HASHTABLE_IMPORT", 169: "STABLEHLO_CONCATENATE concat",
    170: "STABLEHLO_BROADCAST_IN_DIM expand", 172: "STABLEHLO_SLICE slice", 193: "STABLEHLO_DYNAMIC_SLICE slice",
    195: "STABLEHLO_PAD pad", 202: "STABLEHLO_TRANSPOSE transpose", 203: "DILATE",
}  # fmt: skip
_VIEW = {
    22: "RESHAPE", 43: "SQUEEZE", 70: "EXPAND_DIMS", 77: "SHAPE", 110: "RANK", 136: "HASHTABLE", 139: "HASHTABLE_SIZE",
    142: "VAR_HANDLE", 145: "BROADCAST_ARGS", 159: "BITCAST", 167: "STABLEHLO_RESHAPE",
}  # fmt: skip
_REDUCE = {
    40: "MEAN", 56: "ARG_MAX argmax", 74: "SUM", 79: "ARG_MIN argmin", 81: "REDUCE_PROD prod", 82: "REDUCE_MAX max",
    89: "REDUCE_MIN min", 91: "REDUCE_ANY any", 109: "WHERE", 125: "SEGMENT_SUM sum", 140: "REDUCE_ALL all",
    153: "UNSORTED_SEGMENT_PROD prod", 154: "UNSORTED_SEGMENT_MAX max", 155: "UNSORTED_SEGMENT_SUM sum",
    157: "UNSORTED_SEGMENT_MIN min", 174: "STABLEHLO_REDUCE",
}  # fmt: skip
_RECURRENT = {
    16: "LSTM", 24: "RNN", 35: "UNIDIRECTIONAL_SEQUENCE_RNN rnn", 44: "UNIDIRECTIONAL_SEQUENCE_LSTM lstm",
    46: "BIDIRECTIONAL_SEQUENCE_RNN rnn", 52: "BIDIRECTIONAL_SEQUENCE_LSTM lstm",
}  # fmt: skip
_CONTROL = {
    31: "CALL", 118: "IF", 119: "WHILE", 129: "CALL_ONCE", 200: "STABLEHLO_WHILE while",
    206: "STABLEHLO_COMPOSITE composite", 209: "STABLEHLO_CASE case",
}  # fmt: skip
_DATA_DEPENDENT = "its work depends on the data"
_UNCOVERED = {
    15: ("LSH_PROJECTION", "hashing is not counted"),
    30: ("SKIP_GRAM", "text is not counted"),
    51: ("DELEGATE", "a delegate's ops are not in the file"),
    120: ("NON_MAX_SUPPRESSION_V4", _DATA_DEPENDENT),
    121: ("NON_MAX_SUPPRESSION_V5", _DATA_DEPENDENT),
    127: ("PLACEHOLDER_FOR_GREATER_OP_CODES", "it stands for no operator"),
    173: ("STABLEHLO_CUSTOM_CALL", "an operator of the program that made the file"),
}


def _uncovered(name: str, reason: str) -> TfliteOperator:
    return TfliteOperator(name=name, kind="custom", attributes={"reason": reason})


def _one(number: int, name: str, kind: str, form: str = "", **attributes: Any) -> dict[int, TfliteOperator]:
    return {number: TfliteOperator(name=name, kind=kind, attributes=attributes, form=form)}


OPERATORS: dict[int, TfliteOperator] = {
    **_each("elementwise", _ELEMENTWISE),
    **_each("activation", _ACTIVATION),
    **_each("copy", _COPY),
    **_each("view", _VIEW),
    **_each("reduce", _REDUCE, form="reduce"),
    **_each("recurrent", _RECURRENT, form="recurrent", key="cell"),
    **_each("control", _CONTROL, form="control"),
    **_each("pool", {1: "AVERAGE_POOL_2D average", 12: "L2_POOL_2D l2", 17: "MAX_POOL_2D max"}, form="pool"),
    **_each("pool", {198: "STABLEHLO_REDUCE_WINDOW window", 205: "REDUCE_WINDOW window"}, form="window"),
    **_each("resize", {23: "RESIZE_BILINEAR bilinear", 97: "RESIZE_NEAREST_NEIGHBOR nearest"}, key="mode"),
    **_each("softmax", {25: "SOFTMAX", 50: "LOG_SOFTMAX"}),
    **_each("norm", {11: "L2_NORMALIZATION l2"}, key="norm"),
    **_each(
        "gather", {10: "HASHTABLE_LOOKUP", 107: "GATHER_ND", 137: "HASHTABLE_FIND", 201: "STABLEHLO_GATHER gather"}
    ),
    **_each("cast", {53: "CAST", 192: "STABLEHLO_CONVERT cast"}),
    **_each("embedding", {7: "EMBEDDING_LOOKUP", 33: "EMBEDDING_LOOKUP_SPARSE"}, form="embedding"),
    **_one(3, "CONV_2D", "convolution", "convolution"),
    **_one(4, "DEPTHWISE_CONV_2D", "convolution", "depthwise"),
    **_one(6, "DEQUANTIZE", "dequantize", "dequantize"),
    **_one(9, "FULLY_CONNECTED", "linear", "fully_connected"),
    **_one(13, "LOCAL_RESPONSE_NORMALIZATION", "norm", "lrn", norm="lrn"),
    **_one(27, "SVDF", "linear", "svdf"),
    **_one(36, "GATHER", "gather", "gather"),
    **_one(48, "TOPK_V2", "sort", "topk"),
    **_one(67, "TRANSPOSE_CONV", "convolution", "transpose_conv"),
    **_one(68, "SPARSE_TO_DENSE", "scatter"),
    **_one(80, "FAKE_QUANT", "quantize"),
    **_one(99, "SQUARED_DIFFERENCE", "elementwise", function="squared_difference", flops_per_element=2),
    **_one(103, "UNIQUE", "sort"),
    **_one(114, "QUANTIZE", "quantize"),
    **_one(122, "SCATTER_ND", "scatter", "scatter"),
    **_one(126, "BATCH_MATMUL", "matmul", "batch_matmul"),
    **_one(131, "RFFT2D", "elementwise", "fft", function="rfft2d"),
    **_one(132, "CONV_3D", "convolution", "convolution_3d"),
    **_one(135, "COMPLEX_ABS", "elementwise", function="complex_abs", flops_per_element=4),
    **_one(141, "CONV_3D_TRANSPOSE", "convolution", "transpose_conv_3d"),
    **_one(143, "READ_VARIABLE", "view", "read_variable"),
    **_one(144, "ASSIGN_VARIABLE", "copy", "assign_variable", function="assign"),
    **_one(147, "BUCKETIZE", "elementwise", "bucketize", function="bucketize"),
    **_one(149, "MULTINOMIAL", "sampling"),
    **_one(150, "GELU", "activation", "gelu", function="gelu"),
    **_one(151, "DYNAMIC_UPDATE_SLICE", "scatter", "update_slice"),
    **_one(171, "STABLEHLO_CONVOLUTION", "convolution", "general_convolution"),
    **_one(190, "STABLEHLO_SCATTER", "scatter"),
    **_one(194, "STABLEHLO_DYNAMIC_UPDATE_SLICE", "scatter", "update_slice"),
    **_one(197, "STABLEHLO_DOT_GENERAL", "matmul", "dot_general"),
    **_one(199, "STABLEHLO_SORT", "sort", "axis"),
    **{number: _uncovered(name, reason) for number, (name, reason) in _UNCOVERED.items()},
}

# Operators by name that are not TFLite's own. MediaPipe's first three are in its source (util/tflite/operations).
CUSTOM_OPERATORS: dict[str, TfliteOperator] = {
    operator.name: operator
    for operator in (
        TfliteOperator(name="Convolution2DTransposeBias", kind="convolution", form="transpose_conv_bias"),
        TfliteOperator(name="MaxUnpooling2D", kind="copy", attributes={"function": "unpool"}),
        TfliteOperator(name="TransformTensorBilinear", kind="resize", attributes={"mode": "bilinear"}),
        _uncovered("TFLite_Detection_PostProcess", _DATA_DEPENDENT),
        _uncovered("edgetpu-custom-op", "compiled for the Edge TPU: no ops in the file"),
        _uncovered("ethos-u", "compiled for the Ethos-U: no ops in the file"),
    )
}


def operator_of(code: int, custom: str) -> TfliteOperator:
    """The operator of a number, or by its name where it is a custom one."""
    if code != CUSTOM:
        unknown = TfliteOperator(
            name=f"BUILTIN_{code}", kind="custom", attributes={"reason": f"unknown operator {code}"}
        )
        return OPERATORS.get(code, unknown)
    unnamed = _uncovered(custom or "CUSTOM", "a custom operator")
    return CUSTOM_OPERATORS.get(custom, unnamed)
