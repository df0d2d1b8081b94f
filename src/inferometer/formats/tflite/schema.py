"""What stands where in a TFLite file, as data: field numbers, enumerations and the options that decide an op's work.

Source: TensorFlow Lite's schema (tensorflow/compiler/mlir/lite/schema/schema.fbs), version 3 with its later fields.
"""

from typing import Any

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
