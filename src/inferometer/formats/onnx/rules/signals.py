"""Fourier transforms, windows and filter banks; text and images as files hold them."""

from inferometer.core.dims import Dim
from inferometer.formats.onnx import algebra
from inferometer.formats.onnx.faults import UnknownShapeError
from inferometer.formats.onnx.rules.common import first_is_whole, first_size
from inferometer.formats.onnx.value import Call, Out


def transform_axis(call: Call, rank: int) -> int:
    """The axis of a DFT: an attribute until operator set 19, an input after."""
    if call.opset < 20 or call.has_attribute("axis"):
        return call.axis(call.integer("axis", 1), rank)
    given = first_is_whole(call, 2) if call.has(2) else -2
    if given is None:
        raise UnknownShapeError
    return call.axis(given, rank)


def dft(call: Call) -> list[Out]:
    """The last axis holds real and imaginary parts."""
    shape = call.shape(0)
    axis = transform_axis(call, len(shape))
    size: Dim | None = shape[axis]
    inverse, one_sided = bool(call.integer("inverse")), bool(call.integer("onesided"))
    if call.has(1):
        size = first_size(call, 1)
    elif inverse and one_sided:
        size = algebra.mul(algebra.sub(shape[axis], 1), 2)
    if one_sided and not inverse and size is not None:
        size = algebra.add(algebra.floordiv(size, 2), 1)
    parts = 1 if inverse and one_sided else 2
    return [Out((*shape[:axis], size, *shape[axis + 1 : -1], parts), call.dtype(0))]


def stft(call: Call) -> list[Out]:
    signal, length, hop = call.shape(0), _frame_length(call), first_size(call, 1)
    frames = bins = None
    if length is not None:
        bins = algebra.add(algebra.floordiv(length, 2), 1) if call.integer("onesided", 1) else length
    if length is not None and isinstance(hop, int) and hop > 0:
        frames = algebra.add(algebra.floordiv(algebra.sub(signal[1], length), hop), 1)
    return [Out((signal[0], frames, bins, 2), call.dtype(0))]


def _frame_length(call: Call) -> Dim | None:
    if call.has(3):
        return first_size(call, 3)
    return call.shape(2)[0] if call.has(2) and call.shape(2) else None


def window_function(call: Call) -> list[Out]:
    return [Out((first_size(call, 0),), call.element("output_datatype", "f32"))]


def mel_weights(call: Call) -> list[Out]:
    bins, length = first_is_whole(call, 0), first_is_whole(call, 1)
    return [Out((None if length is None else length // 2 + 1, bins), call.element("output_datatype", "f32"))]


def determinant(call: Call) -> list[Out]:
    return [Out(call.shape(0)[:-2], call.dtype(0))]


def image_decoder(call: Call) -> list[Out]:
    channels = 1 if call.text("pixel_format", "RGB") == "Grayscale" else 3
    return [Out((None, None, channels), "u8")]


def tf_idf(call: Call) -> list[Out]:
    shape = call.shape(0)
    indexes = call.integers("ngram_indexes") or ()
    columns = max(indexes, default=-1) + 1 if call.count("ngram_indexes") == len(indexes) else None
    return [Out((*shape[:-1], columns), "f32")]


def string_split(call: Call) -> list[Out]:
    return [Out((*call.shape(0), None), "string"), Out(call.shape(0), "i64")]
