"""How far outputs may differ: from how the formats of both sides round, through as many products as the model has.

**Rounding.** Each number that enters a product carries the rounding error of its format. As a share of the number's
size, root mean square:

- A float of p significant bits is off by up to 1 / 2ᵖ, spread evenly: 1 / (2ᵖ · √3), which is 0.03 % in f16, 0.2 % in
  bf16 and 3.6 % in FP8 e4m3.
- An integer of b bits has steps of the largest value over 2ᵇ / 2, and is off by a step / √12. The largest of a tensor's
  normal numbers is some 4 times their size, of a block of 32 some 2.2 times (int8 0.9 %, q8_0 0.5 %, q4_0 7.9 %).

**Depth.** Errors of weights and activations, of both sides and of successive products, are independent and add up in
squares: √n times as much after n products. That is what a plain chain shows; networks with residual paths show less
(ResNet-50 in int8 by ONNX Runtime: 1.1 % where 53 products allow 9 %), so right outputs have room. The limit is never
above a quarter of the outputs' size: a permuted output is off by 140 %, a dropped one by 100 %.

**Sums.** An engine that adds up in a narrow format rounds after every addition. What has been added up after j of k
numbers has √(j / k) of the result's size, so the sum is off by √(k / 2) roundings: 0.9 % for 2048 channels in f16.
ncnn's kernels show a little less in a plain product (0.66 %) and more in Winograd's. All products together add up in
squares, which allows ResNet-50 4.7 % in ncnn's f16; the mean over positions at its end leaves 0.3 % of it.

**Text.** Logits err in the same way, and what counts is what they choose. Where the reference's best token leads by
more than twice the noise, the best token must be the same. The loss of likelihood has a published scale: Llama 2 70B
loses 0.036 nats a token in q4_0, 0.076 in q3_k and 0.085 in q2_k (llama.cpp, examples/perplexity/README.md). Small
models lose about five times as much; six times is the limit.
"""

import math
import re

from inferometer.core.dtypes import dtype
from inferometer.core.errors import InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph, Op
from inferometer.measure.run.model_file import main_format

EXACT, EXACT_TEXT = 1e-3, 0.05  # below this no error counts, whatever the formats: other orders of adding up
MOST, _MOST_TEXT = 0.25, 0.5
_COSINE, _TOP_1, _NLL = 0.999, 0.9, 0.05
_SIGNIFICANT = {
    "f64": 53, "f32": 24, "tf32": 11, "f16": 11, "bf16": 8, "f8e4m3": 4, "f8e5m2": 3, "mxfp8": 4, "f6e2m3": 4,
    "f6e3m2": 3, "mxfp6": 4, "f4e2m1": 2, "mxfp4": 2, "nvfp4": 2,
}  # fmt: skip
_LARGEST, _LARGEST_OF_BLOCK, _BLOCK = 4.0, 2.2, 16
_LOSS = {1: 0.5, 2: 0.085, 3: 0.076, 4: 0.036, 5: 0.0125}  # nats a token that Llama 2 70B loses, by bits a weight
_SMALL_MODELS = 6.0
_PRODUCTS = frozenset({"linear", "matmul", "convolution", "attention", "moe_experts", "recurrent"})


@frozen
class Tolerance:
    """The limits that a user sets; None is left to the formats. `relative` is of the largest value of each output."""

    relative: float | None = None
    cosine: float | None = None
    top_1: float | None = None
    nll: float | None = None  # nats per token


@frozen
class Formats:
    """What one side stores weights in, the coarsest format that activations pass through, what sums are held in."""

    weights: str = "f32"
    activations: str = "f32"
    sums: str = "f32"

    def __str__(self) -> str:
        same = self.weights == self.activations
        stored = self.weights if same else f"{self.weights} weights and {self.activations} activations"
        return stored if self.sums == "f32" else f"{stored}, added up in {self.sums}"

    @property
    def rounding(self) -> float:
        return math.hypot(rounding(self.weights), rounding(self.activations))


@frozen
class Noise:
    """What rounding may change, as a share of the outputs' size, and why. `bits` are those of the coarsest weights.

    `absolute` is what counts as no difference: a sigmoid or softmax may be next to nothing, and engines make it of
    numbers round one, whose last digits are those of one.
    """

    rms: float = 0.0
    absolute: float = 0.0
    why: str = "f32 on both sides"
    bits: float = 32.0

    @property
    def of_arrays(self) -> float:
        return min(MOST, max(EXACT, self.rms))

    @property
    def of_text(self) -> float:
        return min(_MOST_TEXT, max(EXACT_TEXT, self.rms))

    @property
    def cosine(self) -> float:
        return min(_COSINE, math.sqrt(1 - self.of_arrays**2))

    @property
    def top_1(self) -> float:
        """The share of the positions that are settled, where the best token must be the same."""
        return _TOP_1

    @property
    def nll(self) -> float:
        return max(_NLL, _SMALL_MODELS * _LOSS.get(math.floor(self.bits), 0.0))


def rounding(name: str) -> float:
    """The root mean square error of a number in a format, as a share of the numbers' size."""
    if name in _SIGNIFICANT:
        return 2.0 ** -_SIGNIFICANT[name] / math.sqrt(3)
    # Bits of an integer format, which its name has: i8, q4_0, iq2_xs.
    number = re.search(r"\d+", name)
    digits = int(number[0]) if number else 8
    steps = 2.0 ** (digits - 1)
    largest = _LARGEST_OF_BLOCK if dtype(name).elements >= _BLOCK else _LARGEST
    return largest / steps / math.sqrt(12)


def noise_between(mine: Formats, right: Formats, *, products: int, terms: int = 0, same_weights: bool = False) -> Noise:
    """What may differ between two sides. Where both open the same file, its weights are the same on both.

    `terms` is how many numbers are added up for one output of each product, in all products together.
    """
    sides = (mine, right)
    each = math.hypot(*(rounding(side.activations) if same_weights else side.rounding for side in sides))
    formats = f"{mine} against {right}" if mine != right else f"{mine} on both sides"
    stored = min(dtype(side.weights).bits for side in sides)
    summed = math.sqrt(terms / 2) * math.hypot(*(rounding(side.sums) for side in sides))
    return Noise(
        rms=math.hypot(math.sqrt(max(1, products)) * each, summed),
        why=f"{formats}, rounded in {products} products",
        bits=32.0 if same_weights else float(stored),
    )


def formats_of_side(graph: Graph, stored: str | None, computed: str | None, sums: str | None = None) -> Formats:
    """`stored` is the format of weights that were made up; `computed` and `sums` are what the engine names."""
    weights = _known(stored or main_format(graph) or graph.precision) or "f32"
    # Formats of numbers that products read, or that are made for them by an op that quantises.
    tensors = [
        tensor
        for _, op in graph.ops()
        for tensor in (op.outputs[:1] if op.kind == "quantize" else op.inputs[:1] if op.kind in _PRODUCTS else ())
    ]
    narrowed = {tensor.dtype for tensor in tensors if tensor.dtype is not None and tensor.role == "activation"}
    passed = [_known(computed) or _known(graph.precision) or "f32", *narrowed]
    if dtype(weights).arithmetic[0] == "i8":
        passed.append("q8_0")  # engines multiply such blocks with activations that they make 8 bits wide
    return Formats(weights=weights, activations=max(passed, key=rounding), sums=_known(sums) or "f32")


def last_digits(graph: Graph) -> float:
    """Four units in the last place of one in f32, if every output is a sigmoid or softmax; else nothing."""
    makers = {tensor.name: op for _, op in graph.ops() for tensor in op.outputs}
    last = [makers.get(tensor.name) for tensor in graph.outputs]
    squashed = [op is not None and (op.kind == "softmax" or op.get("function") == "sigmoid") for op in last]
    return 2.0**-21 if squashed and all(squashed) else 0.0


def product_count(graph: Graph) -> int:
    return sum(block.count for block, op in graph.ops() if op.kind in _PRODUCTS)


def summed_terms(graph: Graph) -> int:
    """How many numbers one output of a product is the sum of, in all products with weights together."""
    return sum(block.count * _terms(op) for block, op in graph.ops() if op.kind in _PRODUCTS)


def _terms(op: Op) -> int:
    if op.kind == "convolution":
        window: int = math.prod(op.get("kernel", ()))
        return int(op.get("in_channels", 0)) // int(op.get("groups", 1) or 1) * window
    inner = op.get("contracted", op.get("in_features", 0))  # as readers of files and of configurations name it
    return inner if isinstance(inner, int) else 0


def _known(name: str | None) -> str | None:
    try:
        return None if name is None else dtype(name).name
    except InferometerError:
        return None  # an engine's own word for what it computes in
