"""How large every blob is, the outermost size first and without a batch: layers name sizes of others by it.

A matrix is (h, w), an image (c, h, w), a volume (c, d, h, w). A size that the file leaves open is None, and so is a
blob of unknown rank. What a pooling over the whole image leaves is (c, 1, 1) here and has one size in ncnn.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod

from inferometer.formats.ncnn.param import NcnnLayer, input_shape, sizes_of

Size = int | None
Sizes = tuple[Size, ...] | None
UNSET = -233  # a size that is not given
# The axes of the outermost-first sizes that stand at each place, by Permute's order_type and the rank.
_IMAGE_ORDERS = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
_VOLUME_ORDERS = (  # the innermost first, as ncnn's operators.md lists them
    "WHDC", "HWDC", "WDHC", "DWHC", "HDWC", "DHWC", "WHCD", "HWCD", "WCHD", "CWHD", "HCWD", "CHWD", "WDCH", "DWCH",
    "WCDH", "CWDH", "DCWH", "CDWH", "HDCW", "DHCW", "HCDW", "CHDW", "DCHW", "CDHW",
)  # fmt: skip


def blob_sizes(layers: Sequence[NcnnLayer]) -> dict[str, Sizes]:
    known: dict[str, Sizes] = {}
    for layer in layers:
        bottoms = [known.get(name) for name in layer.bottoms]
        found = _of_layer(layer, bottoms, tuple(layers))
        known.update(zip(layer.tops, found, strict=False))
    return known


def _of_layer(layer: NcnnLayer, bottoms: list[Sizes], layers: tuple[NcnnLayer, ...]) -> list[Sizes]:
    if layer.type == "Input":
        shape = input_shape(layers, layer.tops[0]) if layer.tops else None
        given: Sizes = None if shape is None else tuple(size if isinstance(size, int) else None for size in shape[1:])
        return [given] * len(layer.tops)
    if layer.type == "Slice":
        return _sliced(layer, bottoms[0] if bottoms else None)
    rule = _RULES.get(layer.type)
    if rule is not None:
        return [rule(layer, bottoms)]
    return [bottoms[0] if bottoms else None] * len(layer.tops)


def permuted_axes(order: int, rank: int) -> tuple[int, ...] | None:
    """Which axis stands at each place, the outermost first; None for an order that the rank does not have."""
    if rank == 1:
        return (0,)
    if rank == 2:
        return {0: (0, 1), 1: (1, 0)}.get(order)
    if rank == 3:
        return _IMAGE_ORDERS[order] if 0 <= order < len(_IMAGE_ORDERS) else None
    if rank == 4 and 0 <= order < len(_VOLUME_ORDERS):
        return tuple("CDHW".index(axis) for axis in reversed(_VOLUME_ORDERS[order]))
    return None


def reshaped(layer: NcnnLayer, bottoms: Sequence[Sizes]) -> Sizes:
    """What Reshape makes, with a size that is left to be found found if the others are known."""
    first = bottoms[0] if bottoms else None
    if 6 in layer.texts:
        sizes = sizes_of(layer.texts[6], bottoms)
    else:
        given = (layer.whole(key, UNSET) for key in (2, 11, 1, 0))
        sizes = tuple(size for size in given if size != UNSET) or None
    if sizes is None or first is None:
        return sizes
    kept = tuple(_kept(size, index, len(sizes), first) for index, size in enumerate(sizes))
    if kept.count(-1) == 1 and None not in first:
        rest = prod(size for size in kept if size is not None and size > 0) or 1
        whole = prod(size for size in first if size is not None)
        return tuple(whole // rest if size == -1 else size for size in kept)
    return kept


def _kept(size: Size, index: int, rank: int, first: tuple[Size, ...]) -> Size:
    """A size of 0 stays what it was, counted from the innermost."""
    back = index - rank
    return first[back] if size == 0 and -back <= len(first) else size


def _window(layer: NcnnLayer, sizes: Sizes, keys: tuple[int, ...]) -> tuple[Size, Size]:
    """Height and width of what a window slides to; the keys are those of kernel, dilation, stride and four pads."""
    if sizes is None or len(sizes) < 3:
        return None, None
    kernel, dilation, stride, left, top, right, bottom = keys
    found: list[Size] = []
    near = layer.whole(left)
    for side, far, (before, after) in ((sizes[-2], 10, (top, bottom)), (sizes[-1], 0, (left, right))):
        first = layer.whole(before, near)  # the far side is padded as the near one where it says nothing
        pads = (first, layer.whole(after, first))
        step = max(1, layer.whole(stride + far, layer.whole(stride, 1)))
        reach = (layer.whole(kernel + far, layer.whole(kernel, 1)) - 1) * (
            layer.whole(dilation + far, layer.whole(dilation, 1)) if dilation else 1
        )
        if side is None:
            found.append(None)
        else:
            found.append(-(-side // step) if near < 0 else (side + sum(pads) - reach - 1) // step + 1)
    return found[0], found[1]


def _convolved(layer: NcnnLayer, bottoms: list[Sizes]) -> Sizes:
    return (layer.whole(0), *_window(layer, bottoms[0] if bottoms else None, (1, 2, 3, 4, 14, 15, 16)))


def _pooled(layer: NcnnLayer, bottoms: list[Sizes]) -> Sizes:
    sizes = bottoms[0] if bottoms else None
    if sizes is None or len(sizes) < 3:
        return None
    if layer.whole(4):
        return (sizes[0], 1, 1)
    if layer.whole(7):
        return (sizes[0], layer.whole(18, layer.whole(8)), layer.whole(8))
    return None if layer.whole(5) != 1 else (sizes[0], *_window(layer, sizes, (1, 0, 2, 3, 13, 14, 15)))


def _unknown_window(layer: NcnnLayer, bottoms: list[Sizes]) -> Sizes:
    sizes = bottoms[0] if bottoms else None
    channels = layer.whole(0) if layer.type.startswith("Deconvolution") else sizes[0] if sizes else None
    return (channels, None, None)


def _inner(layer: NcnnLayer, bottoms: list[Sizes]) -> Sizes:
    sizes = bottoms[0] if bottoms else None
    return (sizes[0], layer.whole(0)) if sizes is not None and len(sizes) == 2 else (layer.whole(0),)


def _turned(layer: NcnnLayer, bottoms: list[Sizes]) -> Sizes:
    sizes = bottoms[0] if bottoms else None
    axes = None if sizes is None else permuted_axes(layer.whole(0), len(sizes))
    return None if sizes is None or axes is None else tuple(sizes[axis] for axis in axes)


def _multiplied(layer: NcnnLayer, bottoms: list[Sizes]) -> Sizes:
    if len(bottoms) < 2 or bottoms[0] is None or bottoms[1] is None or len(bottoms[1]) < 2:
        return None
    return (*bottoms[0][:-1], bottoms[1][-2 if layer.whole(0) else -1])


def _gemm(layer: NcnnLayer, bottoms: list[Sizes]) -> Sizes:
    left = None if layer.whole(4) or not bottoms else bottoms[0]
    rows = (left[-1 if layer.whole(2) else -2] if left is not None and len(left) > 1 else None) or layer.whole(7)
    right = bottoms[-1] if bottoms and not layer.whole(5) else None
    columns = layer.whole(8) or (right[-2 if layer.whole(3) else -1] if right is not None and len(right) > 1 else None)
    return (rows or None, columns)


def _attended(_layer: NcnnLayer, bottoms: list[Sizes]) -> Sizes:
    query, value = (bottoms[0], bottoms[2]) if len(bottoms) > 2 else (bottoms[0] if bottoms else None, None)
    return query if query is None or value is None else (*query[:-1], value[-1])


def _joined(layer: NcnnLayer, bottoms: list[Sizes]) -> Sizes:
    first = bottoms[0] if bottoms else None
    if first is None or any(sizes is None or len(sizes) != len(first) for sizes in bottoms):
        return None
    axis = layer.whole(0) % len(first)
    parts = [sizes[axis] for sizes in bottoms if sizes is not None]
    whole = None if None in parts else sum(part for part in parts if part is not None)
    return (*first[:axis], whole, *first[axis + 1 :])


def _sliced(layer: NcnnLayer, sizes: Sizes) -> list[Sizes]:
    parts = [int(size) for size in layer.lists.get(0, ())]
    if sizes is None or not sizes:
        return [None] * len(layer.tops)
    axis = layer.whole(1) % len(sizes)
    whole, found, taken = sizes[axis], [], 0
    for index in range(len(layer.tops)):
        left = len(layer.tops) - index
        asked = parts[index] if index < len(parts) else UNSET
        part = asked if asked != UNSET else None if whole is None else (whole - taken) // left
        taken += part or 0
        found.append((*sizes[:axis], part, *sizes[axis + 1 :]))
    return list(found)


def _broadcast(_layer: NcnnLayer, bottoms: list[Sizes]) -> Sizes:
    known = [sizes for sizes in bottoms if sizes is not None]
    if len(known) != len(bottoms) or not known:
        return None
    rank = max(map(len, known))
    same = [sizes for sizes in known if len(sizes) == rank]
    return tuple(None if None in at else max(size for size in at if size is not None) for at in zip(*same, strict=True))


def _constant(layer: NcnnLayer, _bottoms: list[Sizes]) -> Sizes:
    return tuple(size for key in (2, 11, 1, 0) if (size := layer.whole(key)) > 0)


def _looked_up(layer: NcnnLayer, bottoms: list[Sizes]) -> Sizes:
    return None if not bottoms or bottoms[0] is None else (*bottoms[0], layer.whole(0))


def _flat(_layer: NcnnLayer, bottoms: list[Sizes]) -> Sizes:
    sizes = bottoms[0] if bottoms else None
    return (None,) if sizes is None or None in sizes else (prod(size for size in sizes if size is not None),)


def _expanded(layer: NcnnLayer, bottoms: list[Sizes]) -> Sizes:
    sizes = bottoms[0] if bottoms else None
    if sizes is None:
        return None
    axes = [int(axis) for axis in layer.lists.get(3, ())]
    rank = len(sizes) + len(axes)
    if not axes or rank > 4:
        return None
    places, rest = {axis % rank for axis in axes}, iter(sizes)
    return tuple(1 if index in places else next(rest, None) for index in range(rank))


def _squeezed(layer: NcnnLayer, bottoms: list[Sizes]) -> Sizes:
    sizes = bottoms[0] if bottoms else None
    axes = [int(axis) for axis in layer.lists.get(3, ())]
    if sizes is None or not axes:
        return None
    gone = {axis % len(sizes) for axis in axes}
    return tuple(size for index, size in enumerate(sizes) if index not in gone) or (1,)


def _reduced(layer: NcnnLayer, bottoms: list[Sizes]) -> Sizes:
    sizes = bottoms[0] if bottoms else None
    if sizes is None or layer.whole(1, 1):
        return (1,)
    gone = {int(axis) % len(sizes) for axis in layer.lists.get(3, ())}
    kept = tuple(1 if index in gone else size for index, size in enumerate(sizes))
    return kept if layer.whole(4) else tuple(size for index, size in enumerate(sizes) if index not in gone) or (1,)


def _cropped(layer: NcnnLayer, bottoms: list[Sizes]) -> Sizes:
    """The newer form, with starts, ends and axes."""
    sizes = bottoms[0] if bottoms else None
    starts, ends, axes = ([int(value) for value in layer.lists.get(key, ())] for key in (9, 10, 11))
    if sizes is None or not starts or not len(starts) == len(ends) == len(axes) or len(bottoms) > 1:
        return None
    found = list(sizes)
    for start, end, axis in zip(starts, ends, axes, strict=True):
        whole = sizes[axis % len(sizes)]
        if whole is not None:
            kept = range(whole)[start : None if end == UNSET else end]
            found[axis % len(sizes)] = len(kept)
    return tuple(found)


def _nothing(_layer: NcnnLayer, _bottoms: list[Sizes]) -> Sizes:
    return None


_RULES: Mapping[str, Callable[[NcnnLayer, list[Sizes]], Sizes]] = {
    **dict.fromkeys(("Convolution", "ConvolutionDepthWise"), _convolved),
    **dict.fromkeys(("Deconvolution", "DeconvolutionDepthWise", "Interp", "Padding"), _unknown_window),
    **dict.fromkeys(("Tile", "PixelShuffle", "Einsum", "Unfold", "Fold", "GLU"), _nothing),
    **dict.fromkeys(("BinaryOp", "Eltwise"), _broadcast),
    "Pooling": _pooled, "InnerProduct": _inner, "Permute": _turned, "Reshape": reshaped, "MatMul": _multiplied,
    "Gemm": _gemm, "Concat": _joined, "MemoryData": _constant, "Embed": _looked_up, "Flatten": _flat,
    "ExpandDims": _expanded, "Squeeze": _squeezed, "Reduction": _reduced, "Crop": _cropped, "SDPA": _attended,
}  # fmt: skip
