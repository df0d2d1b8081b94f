"""Sequences of tensors, and optional tensors. What is known of a sequence is one element's shape, and how many."""

from inferometer.core.dims import Dim
from inferometer.formats.onnx import algebra
from inferometer.formats.onnx.content import Item
from inferometer.formats.onnx.faults import UnknownShapeError
from inferometer.formats.onnx.rules.common import agreed, as_dim, first_is_whole, first_size, scalar
from inferometer.formats.onnx.rules.items import add
from inferometer.formats.onnx.value import Call, Out


def sequence_construct(call: Call) -> list[Out]:
    values = [value for value in call.inputs if value is not None]
    dtype = values[0].dtype if values else None
    return [Out(agreed(value.shape for value in values), dtype, None, "sequence", len(values))]


def sequence_empty(call: Call) -> list[Out]:
    return [Out(None, call.element("dtype", "f32"), None, "sequence", 0)]


def sequence_insert(call: Call) -> list[Out]:
    sequence, tensor = call.value(0), call.value(1)
    shape = tensor.shape if sequence.length == 0 else agreed((sequence.shape, tensor.shape))
    return [Out(shape, sequence.dtype or tensor.dtype, None, "sequence", add(sequence.length, 1))]


def sequence_erase(call: Call) -> list[Out]:
    sequence = call.value(0)
    return [Out(sequence.shape, sequence.dtype, None, "sequence", add(sequence.length, -1))]


def sequence_at(call: Call) -> list[Out]:
    sequence = call.value(0)
    return [Out(sequence.shape, sequence.dtype)]


def sequence_length(call: Call) -> list[Out]:
    return [scalar("i64", call.value(0).length)]


def concat_from_sequence(call: Call) -> list[Out]:
    sequence = call.value(0)
    shape, count = sequence.shape, as_dim(sequence.length)
    if shape is None:
        raise UnknownShapeError
    if call.integer("new_axis"):
        axis = call.axis(call.integer("axis"), len(shape) + 1)
        return [Out((*shape[:axis], count, *shape[axis:]), sequence.dtype)]
    axis = call.axis(call.integer("axis"), len(shape))
    whole = None if count is None or not isinstance(shape[axis], int) else algebra.mul(shape[axis], count)
    return [Out((*shape[:axis], whole, *shape[axis + 1 :]), sequence.dtype)]


def split_to_sequence(call: Call) -> list[Out]:
    shape = call.shape(0)
    axis = call.axis(call.integer("axis"), len(shape))
    rest = (shape[:axis], shape[axis + 1 :])
    if not call.has(1):
        one: tuple[Dim, ...] = (1,) if call.integer("keepdims", 1) else ()
        return [Out((*rest[0], *one, *rest[1]), call.dtype(0), None, "sequence", shape[axis])]
    part, count = _parts(call, shape[axis])
    return [Out((*rest[0], part, *rest[1]), call.dtype(0), None, "sequence", count)]


def _parts(call: Call, size: Dim) -> tuple[Dim | None, Item]:
    """How large each part is, where all are alike, and how many there are."""
    split = call.whole(1)
    if len(call.shape(1)) == 0:
        part = first_is_whole(call, 1)
        if part is None or part < 1:
            return None, None
        even = isinstance(size, int) and size % part == 0
        return part if even else None, algebra.ceildiv(size, part)
    if split is None:
        return None, call.shape(1)[0]
    return split[0] if len(set(split)) == 1 else None, len(split)


def optional(call: Call) -> list[Out]:
    if not call.inputs or call.inputs[0] is None:
        return [Out(None, None, None, "optional")]
    value = call.value(0)
    return [Out(value.shape, value.dtype, None, "optional", value.length)]


def optional_element(call: Call) -> list[Out]:
    value = call.value(0)
    group = "sequence" if value.length is not None else "tensor"
    return [Out(value.shape, value.dtype, None, group, value.length)]


def optional_has_element(call: Call) -> list[Out]:
    has = bool(call.inputs) and call.inputs[0] is not None
    return [scalar("bool", None if has else 0)]


# Fourier transforms, windows and filter banks; text and images as files hold them.


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
