"""The text of a .param file as plain values.

Source: ncnn's wiki, "param and model file structure": the magic number, how many layers and blobs, then a line a layer:
its type, its name, how many blobs go in and out, their names, and `id=value` pairs, where an id below −23300 is a list.
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from inferometer.core.frozen import frozen
from inferometer.formats.onnx.faults import MAX_NODES, MAX_TEXT, Fault

MAGIC = "7767517"
_LISTS = -23300
_MOST_PARAMETERS = 64


@frozen
class NcnnLayer:
    type: str
    name: str
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    numbers: Mapping[int, float] = field(default_factory=dict)
    lists: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    texts: Mapping[int, str] = field(default_factory=dict)  # expressions of sizes: `"1,1,//(8,0n),0n"`

    def whole(self, key: int, default: int = 0) -> int:
        value = self.numbers.get(key, default)
        return int(value) if abs(value) < 2**53 else default


def parse_param(text: str) -> tuple[NcnnLayer, ...]:
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines or lines[0].strip() != MAGIC:
        raise Fault(f"it does not start with {MAGIC}")
    counts = lines[1].split() if len(lines) > 1 else []
    if len(counts) != 2 or not all(count.isdecimal() and len(count) < 10 for count in counts):
        raise Fault("its second line is not the numbers of layers and blobs")
    if int(counts[0]) > MAX_NODES:
        raise Fault(f"a network of more than {MAX_NODES:,} layers")
    layers = tuple(_layer(line, number) for number, line in enumerate(lines[2:], start=3))
    if len(layers) != int(counts[0]):
        raise Fault(f"{counts[0]} layers are announced and {len(layers)} are there")
    return layers


def _layer(line: str, number: int) -> NcnnLayer:
    words = line.split()
    if len(words) < 4 or not (words[2].isdecimal() and words[3].isdecimal()) or len(words[2]) + len(words[3]) > 12:
        raise Fault(f"line {number} is no layer: {line[:40]!r}")
    into, out = int(words[2]), int(words[3])
    names, given = words[4 : 4 + into + out], words[4 + into + out :]
    if len(names) != into + out or any(len(word) > MAX_TEXT for word in words):
        raise Fault(f"line {number} has fewer blobs than it says")
    numbers: dict[int, float] = {}
    lists: dict[int, tuple[float, ...]] = {}
    texts: dict[int, str] = {}
    for pair in given[:_MOST_PARAMETERS]:
        key, equals, value = pair.partition("=")
        if not equals or not key.removeprefix("-").isdecimal() or len(key) > 8:
            raise Fault(f"line {number} has {pair[:40]!r} where a parameter is expected")
        if value.startswith('"'):
            texts[int(key)] = value.strip('"')
        elif int(key) <= _LISTS:
            lists[_LISTS - int(key)] = tuple(_number(part, number) for part in value.split(",")[1:])
        else:
            numbers[int(key)] = _number(value, number)
    return NcnnLayer(
        type=words[0], name=words[1], bottoms=tuple(names[:into]), tops=tuple(names[into:]), numbers=numbers,
        lists=lists, texts=texts,
    )  # fmt: skip


def _number(text: str, line: int) -> float:
    try:
        return float(text)
    except ValueError:
        raise Fault(f"line {line} has {text[:40]!r} where a number is expected") from None


_WORD = re.compile(r"-?\d+(?=[,)]|$)|\d+[whdcn]|//|[+*-]|max|min")
_AXES = {"w": -1, "h": -2}
_MOST_NESTED = 16


def sizes_of(text: str, bottoms: Sequence[tuple[int | None, ...] | None] = ()) -> tuple[int, ...] | None:
    """The sizes that an expression gives, the outermost first; None if it depends on a size that is not known.

    They are written as w, h, c, and the batch, `0n`, last. `1h` is the height of the second blob that goes in, and
    `//(8,0n)` is 8 over the batch, which is one.
    """
    sizes: list[int] = []
    rest = text
    try:
        while rest:
            value, rest = _value(rest, bottoms, 0)
            sizes.append(value)
            rest = _after(rest, ",") if rest else ""
    except (ValueError, ZeroDivisionError, LookupError):
        return None
    return tuple((sizes[:-1] if text.endswith("0n") else sizes)[::-1])


def _value(text: str, bottoms: Sequence[tuple[int | None, ...] | None], depth: int) -> tuple[int, str]:
    """The value of what stands first, and the rest; LookupError and ValueError where there is none."""
    found = _WORD.match(text)
    if found is None or depth > _MOST_NESTED or len(found[0]) > 12:
        raise ValueError(text)
    word, rest = found[0], text[found.end() :]
    if word in _OPERATIONS:
        left, rest = _value(_after(rest, "("), bottoms, depth + 1)
        right, rest = _value(_after(rest, ","), bottoms, depth + 1)
        return _OPERATIONS[word](left, right), _after(rest, ")")
    return (_size(int(word[:-1]), word[-1], bottoms) if word[-1] in "whdcn" else int(word)), rest


def _after(text: str, sign: str) -> str:
    if not text.startswith(sign):
        raise ValueError(text)
    return text.removeprefix(sign)


def _size(index: int, axis: str, bottoms: Sequence[tuple[int | None, ...] | None]) -> int:
    if axis == "n":
        return 1
    sizes = bottoms[index]
    if sizes is None:
        raise LookupError(axis)
    at = _AXES.get(axis, 0 if axis == "c" else 1)
    least = {"w": 1, "h": 2, "c": 3, "d": 4}[axis]
    size = sizes[at] if len(sizes) >= least else 1
    if size is None:
        raise LookupError(axis)
    return size


_OPERATIONS: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "max": max, "min": min,
}  # fmt: skip


# Layers whose result has the channels, or the features, of what goes in.
_KEEPING = frozenset({
    "Split", "Scale", "BatchNorm", "Padding", "Interp", "Pooling", "BinaryOp", "UnaryOp", "Eltwise", "Dropout", "Noop",
    "ReLU", "PReLU", "Clip", "Sigmoid", "TanH", "HardSwish", "HardSigmoid", "Swish", "GELU", "ELU", "SELU", "Mish",
})  # fmt: skip


def input_shape(layers: tuple[NcnnLayer, ...], name: str) -> tuple[int | str, ...] | None:
    """What goes in, with ncnn's missing batch as a first axis of one; None if the file does not say what rank it has.

    An Input layer may say its sizes (w, h, c). Without them the weights of the first layer behind it that has some say
    the channels or features.
    """
    stated = next((layer for layer in layers if layer.type == "Input" and name in layer.tops), None)
    if stated is not None and stated.whole(0):
        sizes = [stated.whole(key) for key in (2, 11, 1, 0)]  # channels, depth, height, width
        return (1, *(size for size in sizes if size))
    reached = [name]
    for layer in layers:  # in the order of execution, so that one pass follows every copy
        if not any(bottom in reached for bottom in layer.bottoms):
            continue
        if layer.type in {"Convolution", "ConvolutionDepthWise"}:
            window = layer.whole(1, 1) * layer.whole(11, layer.whole(1, 1))
            channels = layer.whole(6) * layer.whole(7, 1) // max(1, layer.whole(0) * window)
            return (1, max(1, channels), "height", "width")
        if layer.type == "InnerProduct":
            return (1, max(1, layer.whole(2) // max(1, layer.whole(0))))
        if layer.type in _KEEPING:
            reached += layer.tops
    return None
