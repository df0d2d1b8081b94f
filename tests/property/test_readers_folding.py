"""Sizes that an ONNX model computes for itself, beside what NumPy makes of the same steps."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.core.dims import evaluate, symbols_in
from unit.formats.onnx.onnx_bytes import FLOAT, INT64, node, read, tensor, value

SIZES = {"batch": 3, "n": 7}
SIDES = ("batch", "n", 5)
OFFSET = 1000  # keeps what is computed a size: results may be negative


def truncated(a, b):
    return np.trunc(a / b).astype(np.int64)


BINARY = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Max": np.maximum, "Min": np.minimum, "Div": truncated,
    "Mod": np.mod,
}  # fmt: skip
COMPARED = {
    "Equal": np.equal, "Less": np.less, "LessOrEqual": np.less_equal, "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
}  # fmt: skip
REDUCED = {"ReduceSum": np.sum, "ReduceProd": np.prod, "ReduceMax": np.max, "ReduceMin": np.min}
JOINED = {"And": np.logical_and, "Or": np.logical_or}
numbers = st.integers(-4, 9)


class Steps:
    """A program under construction: its nodes, what it stores, and the array that NumPy has so far."""

    def __init__(self, fixed):
        self.nodes, self.stored, self.made = [node("Shape", "x", "v0")], [], 0
        self.array = np.array([SIZES.get(side, side) for side in SIDES], np.int64)
        self.inputs = [value("x", self.array.tolist() if fixed else SIDES)]

    def keep(self, array, kind=INT64):
        name = f"c{len(self.stored)}"
        self.stored.append(tensor(name, np.shape(array), kind, np.ravel(array).tolist()))
        return name

    def add(self, kind, *others, array, first=True, **attributes):
        current, self.made = f"v{self.made}", self.made + 1
        names = (current, *others) if first else others
        self.nodes.append(node(kind, [*names], f"v{self.made}", **attributes))
        self.array = array

    def last(self):
        return f"v{self.made}"


def arithmetic(steps, draw):
    kind = draw(st.sampled_from(sorted(BINARY)))
    positive = kind in {"Div", "Mod"}
    other = np.array(draw(st.lists(st.integers(1, 6) if positive else numbers, min_size=1, max_size=1)), np.int64)
    steps.add(kind, steps.keep(other), array=BINARY[kind](steps.array, other))


def chosen(steps, draw):
    """Where the numbers stand in an order to another, one or the other."""
    kind, limit, other = draw(st.sampled_from(sorted(COMPARED))), draw(numbers), draw(numbers)
    holds = COMPARED[kind](steps.array, limit)
    joined, second = draw(st.sampled_from(sorted(JOINED))), draw(numbers)
    also = steps.array == second
    current, condition = steps.last(), f"w{steps.made}"
    kept = [steps.keep(np.array([number], np.int64)) for number in (limit, second, other)]
    steps.nodes += [
        node(kind, [current, kept[0]], f"{condition}a"), node("Equal", [current, kept[1]], f"{condition}b"),
        node(joined, [f"{condition}a", f"{condition}b"], f"{condition}c"), node("Not", f"{condition}c", condition),
    ]  # fmt: skip
    array = np.where(~JOINED[joined](holds, also), other, steps.array)
    steps.add("Where", condition, kept[2], current, first=False, array=array)


def gathered(steps, draw):
    size = len(steps.array)
    places = np.array(draw(st.lists(st.integers(-size, size - 1), min_size=1, max_size=4)), np.int64)
    steps.add("Gather", steps.keep(places), array=steps.array[places])


def sliced(steps, draw):
    start, end, step = draw(numbers), draw(numbers), draw(st.sampled_from([1, 2, -1, -2]))
    array = steps.array[slice(start, end, step)]
    if len(array):
        names = [steps.keep(np.array([number], np.int64)) for number in (start, end, 0, step)]
        steps.add("Slice", *names, array=array)


def overwritten(steps, draw):
    place, number = draw(st.integers(-len(steps.array), len(steps.array) - 1)), draw(numbers)
    array = steps.array.copy()
    array[place] = number
    names = [steps.keep(np.array([entry], np.int64)) for entry in (place, number)]
    steps.add("ScatterElements", *names, array=array)


def joined(steps, draw):
    other = np.array(draw(st.lists(numbers, min_size=1, max_size=3)), np.int64)
    steps.add("Concat", steps.keep(other), array=np.concatenate([steps.array, other]), axis=0)


def tabled(steps, draw):
    """Through two dimensions: spread or repeated, turned round, reduced along one of them."""
    rows = draw(st.integers(1, 3))
    steps.add("Unsqueeze", steps.keep(np.array([0])), array=steps.array[None])
    if draw(st.booleans()):
        spread = np.broadcast_to(steps.array, (rows, steps.array.shape[1]))
        steps.add("Expand", steps.keep(np.array(spread.shape)), array=spread)
    else:
        steps.add("Tile", steps.keep(np.array([rows, 2])), array=np.tile(steps.array, (rows, 2)))
    other = np.arange(rows)[:, None]
    steps.add("Mul", steps.keep(other), array=steps.array * other)
    if draw(st.booleans()):
        steps.add("Transpose", array=steps.array.T, perm=(1, 0))
    axis, kind = draw(st.integers(0, 1)), draw(st.sampled_from(sorted(REDUCED)))
    array = np.asarray(REDUCED[kind](steps.array, axis=axis))
    steps.add(kind, steps.keep(np.array([axis])), array=array, keepdims=0)


def flattened(steps, draw):
    steps.add("Unsqueeze", steps.keep(np.array([1])), array=steps.array[:, None])
    steps.add("Concat", steps.last(), array=np.repeat(steps.array, 2, axis=1), axis=1)
    steps.add("Reshape", steps.keep(np.array([-1])), array=steps.array.ravel())


def rounded(steps, draw):
    """As a float times a ratio, and back."""
    ratio, kind = draw(st.sampled_from([0.5, 0.25, 2.0, 1.5, 0.75])), draw(st.sampled_from(["Floor", "Ceil"]))
    scaled = steps.array * ratio  # exact, as their inverses are where they are powers of two
    steps.add("Cast", array=steps.array, to=FLOAT)
    if ratio in {1.5, 0.75} or draw(st.booleans()):
        steps.add("Mul", steps.keep(np.array([ratio]), FLOAT), array=scaled)
    else:
        steps.add("Div", steps.keep(np.array([1 / ratio]), FLOAT), array=scaled)
    steps.add(kind, array=(np.floor if kind == "Floor" else np.ceil)(scaled))
    steps.add("Cast", array=steps.array.astype(np.int64), to=INT64)


MOVES = (arithmetic, chosen, gathered, sliced, overwritten, joined, tabled, flattened, rounded)


@given(data=st.data(), fixed=st.booleans())
@settings(max_examples=150, deadline=None, derandomize=True)
def test_a_computed_size_is_the_one_that_numpy_computes(data, fixed):
    steps = Steps(fixed)
    for move in data.draw(st.lists(st.sampled_from(MOVES), min_size=1, max_size=4)):
        before = steps.array.size
        move(steps, data.draw)
        if steps.array.size > 60 or np.abs(steps.array).max(initial=0) > 1e6 or before == 0:
            return
    steps.array = np.atleast_1d(steps.array)[:16]
    steps.nodes += [
        node("Slice", [steps.last(), steps.keep(np.array([0])), steps.keep(np.array([16]))], "few"),
        node("Add", ["few", steps.keep(np.array([OFFSET]))], "sizes"), node("ConstantOfShape", "sizes", "y"),
    ]  # fmt: skip
    expected = steps.array + OFFSET
    if expected.min() < 0:
        return
    graph = read(steps.nodes, steps.inputs, ["y"], steps.stored)
    (result,) = graph.outputs
    found = [evaluate(dim, SIZES) if symbols_in(dim) <= SIZES.keys() else None for dim in result.shape]
    assert all(size in {None, wanted} for size, wanted in zip(found, expected.tolist(), strict=True))
    assert None not in found or not fixed, "all numbers are known, and so is the result"
