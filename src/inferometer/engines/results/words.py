"""Other tools' words in ours: the kind of an op by its type, the unit by a provider's, delegate's or kernel's name.

A type without a counterpart is `custom`; a name that does not identify the unit gives None.
"""

import re

# Types whose name misleads the parts below, or that are too short for them. Letters and digits only, lower case.
_WHOLE = {
    "mm": "matmul", "bmm": "matmul", "baddbmm": "matmul", "einsum": "matmul", "addmm": "linear", "mul": "elementwise",
    "add": "elementwise", "addn": "elementwise", "sub": "elementwise", "div": "elementwise", "pow": "elementwise",
    "exp": "elementwise", "log": "elementwise", "neg": "elementwise", "abs": "elementwise", "sin": "elementwise",
    "cos": "elementwise", "erf": "elementwise", "sqrt": "elementwise", "rsqrt": "elementwise", "where": "elementwise",
    "eltwise": "elementwise", "multiply": "elementwise", "subtract": "elementwise",
    "divide": "elementwise", "maximum": "elementwise", "minimum": "elementwise", "clip": "elementwise",
    "clamp": "elementwise", "max": "reduce", "min": "reduce", "sum": "reduce", "mean": "reduce", "argmax": "reduce",
    "argmin": "reduce", "any": "reduce", "all": "reduce", "lrn": "norm", "mvn": "norm", "rope": "rotary",
    "to": "cast", "tocopy": "copy", "clone": "copy", "contiguous": "copy", "pad": "copy", "padv2": "copy",
    "tile": "copy", "reorder": "copy", "concat": "copy", "concatenation": "copy", "cat": "copy", "stack": "copy",
    "split": "copy", "slice": "copy", "stridedslice": "copy", "pack": "copy", "unpack": "copy", "fill": "copy",
    "t": "view", "view": "view", "asstrided": "view", "detach": "view", "alias": "view", "select": "view",
    "identity": "view", "dropout": "view", "flatten": "view", "squeeze": "view", "unsqueeze": "view",
    "expanddims": "view", "shape": "view", "embedding": "embedding", "embeddinglookup": "embedding",
    "index": "gather", "indexselect": "gather", "take": "gather", "if": "control", "while": "control",
    "loop": "control", "scan": "control", "call": "control", "sort": "sort", "topk": "sort", "topkv2": "sort",
    "mulmat": "linear", "mulmatid": "moe_experts", "getrows": "embedding", "cpy": "copy", "cont": "copy",
    "lstm": "recurrent", "gru": "recurrent", "rnn": "recurrent", "multinomial": "sampling", "cast": "cast",
}  # fmt: skip

_TORCH_VIEWS = frozenset({"transpose", "permute", "slice", "split", "chunk"})  # elsewhere these move data

# The first part that a type contains decides.
_PARTS = (
    ("reformat", "copy"), ("convert", "cast"), ("conv", "convolution"), ("softmax", "softmax"),
    ("scaleddotproduct", "attention"),
    ("attention", "attention"), ("fmha", "attention"), ("flash", "attention"),
    ("attn", "attention"), ("fullyconnected", "linear"), ("innerproduct", "linear"),
    ("matmul", "matmul"), ("gemm", "linear"), ("gemv", "linear"),
    ("dequant", "dequantize"), ("quantize", "quantize"),
    ("linear", "linear"), ("norm", "norm"), ("pool", "pool"), ("rotary", "rotary"), ("resize", "resize"),
    ("upsample", "resize"), ("interpolate", "resize"), ("embedding", "embedding"), ("gather", "gather"),
    ("scatter", "scatter"), ("reduce", "reduce"), ("cumsum", "reduce"), ("nccl", "collective"),
    ("reorder", "copy"),
    ("transpose", "copy"), ("permute", "copy"), ("memcpy", "copy"), ("memset", "copy"), ("copy", "copy"),
    ("concat", "copy"), ("split", "copy"), ("slice", "copy"), ("pad", "copy"), ("reshape", "view"),
    ("broadcast", "view"), ("expand", "view"), ("relu", "activation"), ("sigmoid", "activation"),
    ("logistic", "activation"),
    ("silu", "activation"), ("gelu", "activation"), ("swish", "activation"), ("tanh", "activation"),
    ("elu", "activation"), ("glu", "activation"),
    ("hardsigmoid", "activation"), ("lstm", "recurrent"), ("gru", "recurrent"),
    ("multiply", "elementwise"), ("elementwise", "elementwise"), ("binary", "elementwise"), ("unary", "elementwise"),
    ("clamp", "elementwise"), ("sort", "sort"), ("topk", "sort"),
)  # fmt: skip

# Only providers that run on one kind of unit. OpenVINO, QNN, CoreML, DirectML and others choose among several.
_PROVIDERS = {
    "CPUExecutionProvider": "cpu", "XnnpackExecutionProvider": "cpu", "DnnlExecutionProvider": "cpu",
    "ACLExecutionProvider": "cpu", "ArmNNExecutionProvider": "cpu", "CUDAExecutionProvider": "gpu",
    "TensorrtExecutionProvider": "gpu", "NvTensorRTRTXExecutionProvider": "gpu", "ROCMExecutionProvider": "gpu",
    "MIGraphXExecutionProvider": "gpu", "WebGpuExecutionProvider": "gpu", "VitisAIExecutionProvider": "npu",
    "RknpuExecutionProvider": "npu", "CANNExecutionProvider": "npu",
}  # fmt: skip

_DELEGATES = (("xnnpack", "cpu"), ("gpu", "gpu"), ("hexagon", "dsp"), ("edgetpu", "tpu"))
_CPU_KERNEL = re.compile(r"(avx|sse4|_amx|neon|_sve|asimd|_acl|acl_)")
_GPU_KERNEL = re.compile(r"(_gpu_|_gpu$|^ocl|:ocl)")
_UNITS = frozenset({"cpu", "gpu", "npu", "dsp", "tpu"})


def kind_of(source_type: str | None) -> str:
    """`Conv`, `CONV_2D`, `aten::conv2d` and `Convolution (NHWC, F32) IGEMM` are all a convolution."""
    if not source_type:
        return "custom"
    plain = re.sub(r"[^a-z0-9]", "", source_type.casefold().rpartition("::")[2])
    if source_type.startswith("aten::") and plain in _TORCH_VIEWS:
        return "view"
    if plain in _WHOLE:
        return _WHOLE[plain]
    return next((kind for part, kind in _PARTS if part in plain), "custom")


def unit_named(word: str | None) -> str | None:
    """`NPU` → npu; a word that is no unit gives None."""
    plain = (word or "").casefold()
    return plain if plain in _UNITS else None


def unit_of_provider(provider: str | None) -> str | None:
    """An ONNX Runtime execution provider's unit."""
    return _PROVIDERS.get(provider or "")


def unit_of_delegate(node_type: str) -> str | None:
    """A LiteRT node's unit: a delegate's, or the CPU, where every op without one runs."""
    plain = node_type.casefold()
    if "delegate" not in plain and "edgetpu" not in plain:
        return "cpu"
    return next((unit for part, unit in _DELEGATES if part in plain), None)


def unit_of_kernel(exec_type: str | None) -> str | None:
    """An OpenVINO kernel's unit, where its name says it: `brgconv_avx512_amx_bf16` is the CPU's."""
    plain = (exec_type or "").casefold()
    if _GPU_KERNEL.search(plain):
        return "gpu"
    return "cpu" if _CPU_KERNEL.search(plain) else None
