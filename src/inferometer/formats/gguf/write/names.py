"""From a graph's weights to GGUF's tensors.

The names are the GGUF reader's own table, read the other way. A checkpoint's name stays the source of the numbers, so
that a GGUF file and a safetensors file of one seed hold the same weights. Llama's queries and keys are stored with the
two halves of each head interleaved, as llama.cpp rotates them.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from inferometer.core.errors import InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Block, Graph, Op
from inferometer.formats.gguf.architecture import Architecture
from inferometer.formats.synth.weights import Weight, executed, planned_op


@frozen
class WrittenTensor:
    """A tensor of the file. Its numbers are those of `parts`, one after the other."""

    name: str
    shape: tuple[int, ...]
    parts: tuple[Weight, ...]
    stem: str  # its name without layer and ending: `attn_v`
    layer: int = 0
    matrix: bool = False  # may be quantised
    transposed: bool = False  # its one part is stored the other way round
    heads: int = 0  # the number of heads whose two halves are interleaved

    @property
    def elements(self) -> int:
        return prod(self.shape)


_INTERLEAVED = "llama"  # the architecture whose rotation llama.cpp does on neighbouring pairs
_NEVER_QUANTISED = {"ffn_gate_inp", "ffn_gate_inp_shexp", "position_embd", "ssm_conv1d", "ssm_norm"}


def targets(graph: Graph, row: Architecture) -> tuple[WrittenTensor, ...]:
    """Every tensor of the file once, in the order of execution."""
    tensors: dict[str, WrittenTensor] = {}
    sources: set[str] = set()
    for block, repetition, op in executed(graph):
        weights = planned_op(block, op, repetition)
        if sources.issuperset(weight.name for weight in weights):
            continue
        for target in _of_op(block, op, weights, row):
            name = block.full_name(target.name, repetition)
            if not sources.issuperset(part.name for part in target.parts):
                tensors.setdefault(name, replace(target, name=name, layer=block.first + repetition))
        sources |= {weight.name for weight in weights}
    return tuple(tensors.values())


def _of_op(block: Block, op: Op, weights: tuple[Weight, ...], row: Architecture) -> Iterator[WrittenTensor]:
    """Names have `{}` for the layer still."""
    if op.kind == "moe_experts":
        return _experts(op, weights)
    if op.name.endswith(".kv_b_proj"):
        return _latent(block, weights[0])
    return (_plain(block, op, tensor.name, weight, row) for tensor, weight in zip(op.weights, weights, strict=True))


def _plain(block: Block, op: Op, template: str, weight: Weight, row: Architecture) -> WrittenTensor:
    place = next(iter(row.places(template)), ())
    if len(place) != 1:
        raise InferometerError(
            f"GGUF's {row.name} has no tensor for {weight.name!r}.", remedy="Write this model as .onnx or .safetensors."
        )
    name = place[0]
    stem = name.removeprefix("blk.{}.").removesuffix(".weight").removesuffix(".bias")
    shape = _stored(block, op, stem, weight)
    if stem == "ssm_a":  # stored as −exp(A_log), which is negative
        weight = replace(weight, centre=-1.0, spread=0.5)
    matrix = len(shape) > 1 and name.endswith(".weight") and stem not in _NEVER_QUANTISED
    swapped = matrix and op.get("layout") == "in_out"
    heads = _interleaved(block, stem) if row.name == _INTERLEAVED else 0
    return WrittenTensor(
        name=name, shape=shape, parts=(weight,), stem=stem, matrix=matrix, transposed=swapped, heads=heads
    )


def _interleaved(block: Block, stem: str) -> int:
    """The heads of llama's queries or keys; 0 for every other tensor."""
    core = next((op for op in block.ops if op.kind == "attention"), None)
    if core is None:
        return 0
    counts = {"attn_q": core["heads"], "attn_k": core.get("kv_heads", core["heads"])}
    return int(counts.get(stem, 0))


def _stored(block: Block, op: Op, stem: str, weight: Weight) -> tuple[int, ...]:
    """GGUF's shape: [out, in] always, no axes of size one, Mamba-2's vectors as it wants them."""
    if op.get("layout") == "in_out":
        return weight.shape[::-1]
    if stem == "ssm_norm":
        groups = next(other["groups"] for other in block.ops if other.kind == "ssm_scan")
        return groups, weight.shape[0] // groups
    if stem in {"ssm_a", "ssm_d"} and op["version"] == 2:
        return *weight.shape, 1
    if op.kind in {"convolution", "linear"}:
        return tuple(size for size in weight.shape if size > 1) or (1,)
    return weight.shape


def _target(stem: str, ending: str, weight: Weight, shape: tuple[int, ...], *, matrix: bool = False) -> WrittenTensor:
    return WrittenTensor(name=f"blk.{{}}.{stem}.{ending}", shape=shape, parts=(weight,), stem=stem, matrix=matrix)


def _experts(op: Op, weights: tuple[Weight, ...]) -> Iterator[WrittenTensor]:
    """One stack a projection. Where gate and up are one tensor in the checkpoint, they are two here."""
    count, hidden, width = op["experts"], op["hidden"], op["intermediate"]
    shapes = {"gate": (count, width, hidden), "up": (count, width, hidden), "down": (count, hidden, width)}
    if len(weights) == 3 * count:
        for index, (part, shape) in enumerate(shapes.items()):
            stack = weights[index * count : (index + 1) * count]
            yield WrittenTensor(
                name=f"blk.{{}}.ffn_{part}_exps.weight", shape=shape, parts=stack, stem=f"ffn_{part}_exps", matrix=True
            )
        return
    for part, shape in shapes.items():
        source, bias = weights[2:4] if part == "down" else weights[:2]
        whole = replace(source, name=f"{source.name}.{part}", shape=shape)
        yield _target(f"ffn_{part}_exps", "weight", whole, shape, matrix=True)
        small = replace(bias, name=f"{bias.name}.{part}", shape=shape[:2])
        yield _target(f"ffn_{part}_exps", "bias", small, shape[:2])


def _latent(block: Block, weight: Weight) -> Iterator[WrittenTensor]:
    """kv_b_proj is stored as what each head's keys and values are made with, the keys' part transposed."""
    core = next(op for op in block.ops if op.kind == "attention")
    heads, rank, value = core["heads"], core["kv_latent"] - core["rope_dim"], core["value_dim"]
    nope = core["head_dim"] - core["rope_dim"]
    shapes = {"attn_k_b": (heads, rank, nope), "attn_v_b": (heads, value, rank)}
    for stem, shape in shapes.items():
        part = replace(weight, name=f"{weight.name}.{stem}", shape=shape)
        yield _target(stem, "weight", part, shape, matrix=True)
