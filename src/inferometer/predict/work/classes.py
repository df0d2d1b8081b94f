"""How ops are classified to be priced: the class, which has its own utilisation, and the shape within it.

Priors and calibrations use these names. A class may be divided further by phase, path or form, after a dot:
`attention.decode` is looked for before `attention`, `convolution.pointwise` before `convolution`.
"""

from __future__ import annotations

from math import gcd, prod
from typing import TYPE_CHECKING

from inferometer.core.dims import Dim, product, symbols_in

if TYPE_CHECKING:
    from inferometer.core.graph import Op

_CLASS = {
    "linear": "linear", "moe_router": "linear", "matmul": "matmul", "attention": "attention",
    "convolution": "convolution", "moe_experts": "experts", "ssm_scan": "scan", "recurrent": "recurrent",
    "norm": "vector", "softmax": "vector", "elementwise": "vector", "activation": "vector", "reduce": "vector",
    "pool": "vector", "resize": "vector", "rotary": "vector", "quantize": "vector", "dequantize": "vector",
    "cast": "vector", "copy": "vector", "control": "vector",
    "embedding": "indexing", "gather": "indexing", "scatter": "indexing", "sort": "indexing", "sampling": "indexing",
    "collective": "collective", "view": "free", "custom": "free",
}  # fmt: skip

CLASSES = frozenset({*_CLASS.values(), "depthwise"})
FREE = frozenset({"free"})  # nothing is computed and nothing moves
MATRIX = frozenset({"linear", "matmul", "attention", "convolution", "depthwise", "experts", "scan", "recurrent"})

WRITTEN_OUT = "written out"  # attention that no fused kernel takes: a path of its own
FUSED = "vector.fused"  # inside another op's kernel: the numbers are in registers, and nothing is launched
PLAIN = "vector.fused.plain"  # … without a function that takes a series, as relu and sums: hardly more than free
_CURVED = frozenset(
    {"gelu", "gelu_new", "silu", "swish", "sigmoid", "tanh", "mish", "elu", "selu", "softplus", "erf", "exp"}
)
ACTIVATION = "vector.activation"
WINDOW = "convolution.window"
BIASED = "linear.biased"  # a product and a sum in one kernel, which cuBLAS has others for
NARROW_HEAD = 64  # heads up to this wide leave matrix units waiting for the softmax

# What a table's axes may be called: numbers of an op's shape that a utilisation can depend on.
AXES = (
    "rows", "in_features", "out_features", "sequences", "query", "keys", "heads", "kv_heads", "head_dim", "channels",
    "plane", "aligned", "filled", "positions", "taps", "even", "elements", "flops", "bytes", "weight_bytes", "kv_bytes",
)  # fmt: skip
_SHRINKING = frozenset({"pool", "reduce"})  # they read more than they write: what is read is their size
_FLOATS = frozenset({None, "f32", "f16", "bf16"})  # None is the model's own
_IMAGE_AXES = 4  # batch, channels, height, width
_TILE = 64  # channels, of the kernels that matrix units run
_WINOGRAD = 3  # the widest window that engines have Winograd's method for
_USUAL = 5  # sides of windows up to which engines have depthwise kernels of their own
_VECTOR = 8  # channels that kernels read at once
_FEW_CHANNELS = 4  # an image's own, before the first convolution


def class_of(op: Op) -> str:
    """A convolution whose inputs are `gathered` is a product of matrices for each of its groups, and not depthwise."""
    if op.get("groups", 1) == op.get("in_channels") != 1 and not op.get("gathered"):
        return "depthwise"
    return _CLASS[op.kind]


def class_path(op: Op, phase: str, path: str | None = None, *, fused: bool = False) -> tuple[str, ...]:
    """The names to look for, the most specific first. A `fused` op runs inside another's kernel."""
    name = class_of(op)
    if fused and name == "vector":
        forward = (f"{FUSED}.forward",) if phase == "forward" else ()
        return (*(() if _is_curved(op) else (PLAIN,)), FUSED, *forward, f"{name}.{phase}", name)
    if path == WRITTEN_OUT:  # element-wise passes over its scores, and no kernel that attends
        return "vector.elementwise", f"vector.{phase}", "vector"
    if name != "attention":
        return (*(forms_of(op) if phase == "forward" or name == "linear" else ()), f"{name}.{phase}", name)
    width = "narrow" if max(op["head_dim"], op.get("value_dim", 0)) <= NARROW_HEAD else "wide"
    if phase == "decode":
        ways = ["decode"]
    else:  # attention over padding runs other kernels: what causal attention reaches says nothing of it
        # Patches of an image and a window of sound: each meets all others, and nothing is masked.
        mutual = path is None and not any(op.get(key) for key in ("cached", "causal", "window", "biased"))
        ways = [path] if path == "padded" else [way for way in ("mutual" if mutual else path, "prefill") if way]
    return (*(f"{name}.{way}{end}" for way in ways for end in (f".{width}", "")), name)


def _is_curved(op: Op) -> bool:
    return op.kind == "softmax" or op.get("norm") in {"layer", "rms"} or op.get("function") in _CURVED


def forms_of(op: Op) -> tuple[str, ...]:
    """Its form, after a narrower one where there is.

    Winograd's method is for windows of three, one step apart. A number that is spread over a plane or a row keeps
    kernels from reading whole vectors. A function that takes a series takes longer than reading its numbers does,
    unlike one that compares them.
    """
    form = form_of(op)
    if form == ACTIVATION and _is_curved(op):
        return f"{ACTIVATION}.curved", ACTIVATION
    if form == "vector.elementwise" and any(each.shape != op.outputs[0].shape for each in (*op.inputs, *op.weights)):
        return f"{form}.spread", form
    if form == WINDOW and any(stride > 1 for stride in op.get("strides", ())):
        return f"{WINDOW}.strided", WINDOW
    if form == WINDOW and any(side > _WINOGRAD for side in op["kernel"]):
        return f"{WINDOW}.large", WINDOW
    return (form,) if form else ()


def form_of(op: Op) -> str | None:
    """What runs other kernels than the rest of its class, in one pass over an input: `convolution.pointwise`."""
    name = class_of(op)
    if name == "linear":
        return BIASED if _is_biased(op) else None
    if name == "vector":
        return f"vector.{op.get('norm', op.kind)}"
    strided = any(stride > 1 for stride in op.get("strides", ()))
    if name == "depthwise":  # engines have a kernel for windows of three, one step apart
        sides = "three" if set(op["kernel"]) == {_WINOGRAD} else "wide" if min(op["kernel"]) > _USUAL else None
        return "depthwise.strided" if strided else sides and f"depthwise.{sides}"
    return f"convolution.{_kernel_of(op, strided=strided)}" if name == "convolution" else None


def _is_biased(op: Op) -> bool:
    """Whether a bias is added. Beside a matrix in fewer bits stand scales, which look alike."""
    return any(len(added.shape) == 1 for added in op.weights[1:]) and op.weights[0].dtype in _FLOATS


def _kernel_of(op: Op, *, strided: bool) -> str:
    if op["in_channels"] <= _FEW_CHANNELS:
        return "first"
    if op.get("groups", 1) > 1 and not op.get("gathered"):
        return "grouped"
    if any(side > 1 for side in op["kernel"]):
        return "window"
    return "strided" if strided else "pointwise"


def is_padded(op: Op) -> bool:
    """Whether attention may meet padding: an encoder's over a batch of texts, which are not of one length."""
    tokens = op.get("query")
    return op.kind == "attention" and not op.get("cached") and tokens is not None and "query" in symbols_in(tokens)


def attention_path(op: Op, path: str) -> str | None:
    """How a runtime with a path (flash, masked …) attends here: by that path with a cache, `padded` where it must mask.

    None is a fused kernel without a mask, as for the patches of an image.
    """
    if path == "flash" or op.kind != "attention":
        return None
    return path if op.get("cached") else "padded" if is_padded(op) else None


def _filled(channels: int) -> int:
    """The share of the tiles that are computed which channels fill, in percent."""
    # In whole percent: it is an axis of tables, on which shapes that fill their tiles alike are to meet.
    return 100 * channels // (-(-channels // _TILE) * _TILE)


def dims_of(op: Op) -> dict[str, Dim]:
    """The axes that the op itself gives, to be bound later; flops and bytes come from its work."""
    dims: dict[str, Dim] = {}
    # What reads nothing is as large as what it writes; a scalar is one number.
    if op.inputs or op.outputs:
        read = (op.inputs or op.outputs)[0].shape or (1,)
        dims["rows"] = product(read[:-1])
        dims["in_features"] = read[-1]
        dims["plane"] = product(read[2:]) if len(read) == _IMAGE_AXES else dims["in_features"]
        # The largest of 1, 2, 4 and 8 that divides it: kernels read whole vectors only where rows of numbers allow it.
        # A plane of one number is no row: its channels are.
        count = read[1] if len(read) == _IMAGE_AXES and dims["plane"] == 1 else dims["plane"]
        divided = {size: 1 - (count % size + size - 1) // size for size in (2, 4, 8)}  # 1 or 0 each
        dims["aligned"] = 1 + divided[2] + 2 * divided[4] + 4 * divided[8]
    if op.outputs:
        written = op.outputs[0].shape or (1,)
        # The mean of a plane is one number, whether its sides are kept or not.
        dims["out_features"] = 1 if op.kind == "pool" and op.get("function") == "global" else written[-1]
        dims["elements"] = product((op.inputs[0].shape or (1,)) if op.kind in _SHRINKING and op.inputs else written)
    if op.kind == "attention":
        query, context = op["query"], op.get("context", 0)
        dims |= {
            "sequences": dims["elements"] // (query * op["heads"] * op.get("value_dim", op["head_dim"])),
            "query": query,
            "keys": context if op.get("cross") else context + query,
            "heads": op["heads"],
            "kv_heads": op.get("kv_heads", op["heads"]),
            "head_dim": op["head_dim"],
        }
    if op.kind == "convolution":
        dims["channels"] = op["out_channels"]
        dims["filled"] = _filled(op["out_channels"]) * _filled(op["in_channels"] // op.get("groups", 1)) // 100
        # as a product of matrices: [positions, taps] · [taps, channels]
        dims["positions"] = dims["elements"] // op["out_channels"]
        dims["taps"] = op["in_channels"] // op.get("groups", 1) * prod(op["kernel"])
        dims["even"] = gcd(op["in_channels"], op["out_channels"], _VECTOR)
    return dims


# The classes that priors are fitted for.
FORWARD = (
    "convolution.window", "convolution.pointwise", "convolution.strided", "convolution.first", "convolution.grouped",
    "depthwise", "linear", "matmul", "attention", "vector", "vector.norm", "vector.copy", "indexing",
)  # fmt: skip
FITTED = (
    *FORWARD, "linear.prefill", "linear.decode", "attention.prefill", "attention.decode", "experts.prefill",
    "experts.decode", "vector.prefill", "vector.decode",
)  # fmt: skip
PLACE = {name: place for place, name in enumerate(FITTED)}
GENERATING = frozenset({"prefill", "decode"})


def fitted_class(op: Op, phase: str) -> str | None:
    """The class whose parameters price an op; None where no fit knows its kind."""
    name = class_of(op)
    if name in FREE or name == "collective":
        return None
    if phase in GENERATING:
        name = f"{'vector' if name == 'indexing' else name}.{phase}"
    elif name == "convolution":
        name = form_of(op) or name
    elif name == "vector":
        name += {"norm": ".norm", "softmax": ".norm", "copy": ".copy", "cast": ".copy"}.get(op.kind, "")
    return name if name in PLACE else None
