"""Shapes of ONNX Runtime's own operators (com.microsoft)."""

from collections.abc import Callable
from dataclasses import replace

from inferometer.formats.onnx import algebra
from inferometer.formats.onnx.faults import Fault, UnknownShapeError
from inferometer.formats.onnx.rules.common import as_dim, first_is_whole, first_size, without_axes
from inferometer.formats.onnx.rules.moves import concatenate, pad
from inferometer.formats.onnx.rules.products import contraction
from inferometer.formats.onnx.rules.windows import conv, pooled, window_of, windowed
from inferometer.formats.onnx.value import Call, Out, Shape

Rule = Callable[[Call], list[Out]]


def n_bits(call: Call) -> list[Out]:
    """MatMulNBits and its kind: the weight is packed, its sizes stand in attributes N and K."""
    columns = call.integer("N")
    if columns < 1:
        raise Fault("a packed product that does not say how wide it is")
    return [Out((*call.shape(0)[:-1], columns), call.dtype(0))]


def bnb4(call: Call) -> list[Out]:
    columns = call.integer("N") if call.integer("transB", 1) else call.integer("K")
    return [Out((*call.shape(0)[:-1], columns), call.dtype(0))]


def fpq4(call: Call) -> list[Out]:
    """The weight's [K, N] is an input."""
    sides = call.items(2)
    if sides is None or len(sides) != 2:
        raise UnknownShapeError
    return [Out((*call.shape(0)[:-1], as_dim(sides[1])), call.dtype(0))]


def block_quantized(packed: int) -> Rule:
    """A weight of [N, K / packed]."""

    def infer(call: Call) -> list[Out]:
        a, b = call.shape(0), call.shape(1)
        if len(b) != 2:
            raise UnknownShapeError
        wanted = algebra.mul(b[1], packed)
        if isinstance(a[-1], int) and isinstance(wanted, int) and a[-1] != wanted:
            raise Fault(f"a product of [.., {a[-1]}] with [{wanted}, ..]")
        return [Out((*a[:-1], b[0]), call.dtype(0))]

    return infer


def nbits_mlp(call: Call) -> list[Out]:
    shape = (*call.shape(0)[:-1], call.integer("N"))
    return [Out(shape, call.dtype(0)), Out(call.shape(0), call.dtype(0))]


def nbits_qkv(call: Call) -> list[Out]:
    rows, dtype = call.shape(0)[:-1], call.dtype(0)
    wide, narrow = call.integer("Nq"), call.integer("Nkv")
    return [
        Out((*rows, wide), dtype),
        Out((*rows, narrow), dtype),
        Out((*rows, narrow), dtype),
        Out(call.shape(0), dtype),
    ]


def gemm_float8(call: Call) -> list[Out]:
    dtype = call.element("dtype", call.dtype(0)) if call.has_attribute("dtype") else "f32"
    return [_product(call, 1, dtype)]


def q_gemm(call: Call) -> list[Out]:
    """A, its scale and zero point, B, its scale and zero point, C, and those of the result where it is quantised."""
    return [_product(call, 3, call.dtype(8) if call.has(8) else "f32")]


def _product(call: Call, second: int, dtype: str | None) -> Out:
    """Of two matrices, each of which may be transposed."""
    a, b = call.shape(0), call.shape(second)
    left = (a[1], a[0]) if call.integer("transA") else a
    right = (b[1], b[0]) if call.integer("transB") else b
    return Out(contraction(call, left, right).shape, dtype)


def skip_norm(call: Call) -> list[Out]:
    """The result, mean, 1/σ, and the sum that was normalised."""
    x = call.shape(0)
    rows: Shape = (*x[:-1], 1)
    return [Out(x, call.dtype(0)), Out(rows, "f32"), Out(rows, "f32"), Out(x, call.dtype(0))]


def embed_norm(call: Call) -> list[Out]:
    ids, table = call.shape(0), call.shape(2)
    hidden, dtype = (*ids, table[-1]), call.dtype(5)
    return [Out(hidden, dtype), Out(ids[:1], "i32"), Out(hidden, dtype)]


def gather_block_quantized(call: Call) -> list[Out]:
    """Rows of a table whose numbers are packed into 8-bit ones, or are 4-bit themselves."""
    data, indices = call.shape(0), call.shape(1)
    axis = call.axis(call.integer("gather_axis"), len(data))
    last = data[-1]
    if call.dtype(0) == "u8" and call.integer("bits", 4) < 8:
        last = algebra.mul(last, 8 // max(1, call.integer("bits", 4)))
    whole: Shape = (*data[:-1], last)
    return [Out((*whole[:axis], *indices, *whole[axis + 1 :]), call.dtype(2))]


def qlinear_conv(call: Call) -> list[Out]:
    if not call.integer("channels_last"):
        return conv(0, 3, 7)(call)
    return [Out(_channels_last(call, 3), call.dtype(7))]


def channels_last_conv(call: Call) -> list[Out]:
    return [Out(_channels_last(call, 1), call.dtype(0))]


def _channels_last(call: Call, weight: int) -> Shape:
    """Images as [batch, height, width, channels]; the weight as ever [filters, channels, height, width]."""
    shape, filters = call.shape(0), call.shape(weight)
    kernel = call.integers("kernel_shape") or tuple(dim for dim in filters[2:] if isinstance(dim, int))
    if len(shape) < 3 or len(kernel) != len(shape) - 2:
        raise Fault(f"a window of {len(kernel)} dimensions over {len(shape) - 2}")
    return (shape[0], *windowed(shape[1:-1], window_of(call, kernel)), filters[0])


def channels_last_pool(call: Call) -> list[Out]:
    last = call.node.op_type == "NhwcMaxPool" or bool(call.integer("channels_last"))
    return [Out(pooled(call, channels_last=last), call.dtype(0))]


def global_pool(call: Call) -> list[Out]:
    shape = call.shape(0)
    ones: Shape = (1,) * (len(shape) - 2)
    if call.integer("channels_last"):
        return [Out((shape[0], *ones, shape[-1]), call.dtype(0))]
    return [Out((*shape[:2], *ones), call.dtype(0))]


def qlinear_concat(call: Call) -> list[Out]:
    """After the result's scale and zero point, each input stands with its own."""
    data = tuple(call.inputs[index] for index in range(2, len(call.inputs), 3))
    return [Out(out.shape, out.dtype) for out in concatenate(replace(call, inputs=data))]


def cdist(call: Call) -> list[Out]:
    return [Out((call.shape(0)[0], call.shape(1)[0]), call.dtype(0))]


def bias_split(call: Call) -> list[Out]:
    """One half of the channels gates the other."""
    x = call.shape(0)
    return [Out((*x[:-1], algebra.floordiv(x[-1], 2)), call.dtype(0))]


def expand_dims(call: Call) -> list[Out]:
    shape, axis = call.shape(0), first_is_whole(call, 1)
    if axis is None:
        return [Out((None,) * (len(shape) + 1), call.dtype(0))]
    place = call.axis(axis, len(shape) + 1)
    return [Out((*shape[:place], 1, *shape[place:]), call.dtype(0))]


def padded(call: Call) -> list[Out]:
    shape, pads = call.shape(0), call.items(1)
    if pads is None or len(pads) != 2 * len(shape):
        return [Out((None,) * len(shape), call.dtype(0))]
    return pad(call)


def crop_and_resize(call: Call) -> list[Out]:
    sides = call.items(3)
    if sides is None or len(sides) != 2:
        raise UnknownShapeError
    return [Out((call.shape(1)[0], call.shape(0)[1], as_dim(sides[0]), as_dim(sides[1])), call.dtype(0))]


def unfold(call: Call) -> list[Out]:
    """Windows along one axis, each as a new last axis."""
    shape = call.shape(0)
    axis = call.axis(call.integer("dim", -1), len(shape))
    size, step = call.integer("size"), max(1, call.integer("step", 1))
    count = algebra.add(algebra.floordiv(algebra.sub(shape[axis], size), step), 1)
    return [Out((*shape[:axis], count, *shape[axis + 1 :], size), call.dtype(0))]


def position_bias(call: Call) -> list[Out]:
    """Table of [buckets, heads] → [1, heads, queries, keys]."""
    return [Out((1, call.shape(0)[-1], first_size(call, 1), first_size(call, 2)), call.dtype(0))]


def rfft(call: Call) -> list[Out]:
    shape, rank = call.shape(0), max(1, call.integer("signal_ndim", 1))
    last = algebra.add(algebra.floordiv(shape[-1], 2), 1) if call.integer("onesided", 1) else shape[-1]
    if rank > len(shape):
        raise Fault(f"a transform of {rank} dimensions of {len(shape)}")
    return [Out((*shape[:-1], last, 2), call.dtype(0))]


def irfft(call: Call) -> list[Out]:
    shape = call.shape(0)
    if len(shape) < 2:
        raise Fault(f"an inverse transform of {len(shape)} dimensions")
    last = algebra.mul(algebra.sub(shape[-2], 1), 2) if call.integer("onesided", 1) else shape[-2]
    return [Out((*shape[:-2], last), call.dtype(0))]


def remove_padding(call: Call) -> list[Out]:
    x = call.shape(0)
    return [Out((None, x[-1]), call.dtype(0)), Out(x[:2], "i32"), Out((algebra.add(x[0], 1),), "i32"), Out((1,), "i32")]


def restore_padding(call: Call) -> list[Out]:
    return [Out((*call.shape(1), call.shape(0)[-1]), call.dtype(0))]


def same_and_mask(call: Call) -> list[Out]:
    return [Out(call.shape(0), call.dtype(0)), Out(call.shape(0), "bool")]


def qlinear_reduce(call: Call) -> list[Out]:
    shape = call.shape(0)
    axes = {call.axis(axis, len(shape)) for axis in call.integers("axes") or range(len(shape))}
    keep = bool(call.integer("keepdims", 1))
    return [Out(without_axes(shape, axes, keep=keep), call.dtype(0))]


def one_flag(_call: Call) -> list[Out]:
    return [Out((), "bool")]


def reordered(call: Call) -> list[Out]:
    """Blocks may hold more channels than there are; the attribute says how many stay."""
    shape, channels = call.shape(0), call.integer("channels")
    if channels < 1 or len(shape) < 2:
        return [Out(shape, call.dtype(0))]
    if call.integer("channels_last"):
        return [Out((shape[0], *shape[2:], channels), call.dtype(0))]
    return [Out((shape[0], channels, *shape[2:]), call.dtype(0))]


def upsampled(call: Call) -> list[Out]:
    shape, scales = call.shape(0), call.integers("scales")
    if scales is None or len(scales) != len(shape):
        raise UnknownShapeError
    return [Out(tuple(algebra.mul(dim, n) for dim, n in zip(shape, scales, strict=True)), call.dtype(0))]
