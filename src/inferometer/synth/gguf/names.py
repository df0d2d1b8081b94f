"""From a graph's ops to GGUF's tensors.

Ops have the same short names in every family, so one table serves all of them; checkpoints' own names are kept as the
source of the numbers, so that a GGUF file and a safetensors file of one seed hold the same weights. (llama.cpp's own
converter also reorders the rows of llama's queries and keys; that changes no size and no time, and is left out.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from inferometer.errors import InferometerError
from inferometer.synth.weights import Weight, planned_op

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inferometer.core.graph import Block, Graph, Op

__all__ = ["Target", "targets"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A tensor of the file. Its numbers are those of `parts`, one after the other."""

    name: str
    shape: tuple[int, ...]
    parts: tuple[Weight, ...]
    stem: str  # its name without layer and ending: `attn_v`
    layer: int = 0
    matrix: bool = False  # may be quantised

    @property
    def elements(self) -> int:
        return prod(self.shape)


_STEMS = {
    "embed": "token_embd",
    "embed.positions": "position_embd",
    "embed.norm": "token_embd_norm",
    "final_norm": "output_norm",
    "lm_head": "output",
    "attn.norm": "attn_norm",
    "attn.post_norm": "post_attention_norm",
    "attn.q_proj": "attn_q",
    "attn.k_proj": "attn_k",
    "attn.v_proj": "attn_v",
    "attn.qkv_proj": "attn_qkv",
    "attn.o_proj": "attn_output",
    "attn.q_norm": "attn_q_norm",
    "attn.k_norm": "attn_k_norm",
    "attn.attention": "attn_sinks",
    "attn.q_a_proj": "attn_q_a",
    "attn.q_a_norm": "attn_q_a_norm",
    "attn.q_b_proj": "attn_q_b",
    "attn.kv_a_proj": "attn_kv_a_mqa",
    "attn.kv_a_norm": "attn_kv_a_norm",
    "attn.kv_b_proj": "attn_kv_b",
    "mlp.norm": "ffn_norm",
    "mlp.post_norm": "post_ffw_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.router": "ffn_gate_inp",
    "mlp.shared.gate_proj": "ffn_gate_shexp",
    "mlp.shared.up_proj": "ffn_up_shexp",
    "mlp.shared.down_proj": "ffn_down_shexp",
    "mlp.shared.gate": "ffn_gate_inp_shexp",
    "ssm.norm": "attn_norm",
    "ssm.in_proj": "ssm_in",
    "ssm.conv": "ssm_conv1d",
    "ssm.x_proj": "ssm_x",
    "ssm.dt_proj": "ssm_dt",
    "ssm.dt_norm": "ssm_dt_norm",
    "ssm.b_norm": "ssm_b_norm",
    "ssm.c_norm": "ssm_c_norm",
    "ssm.out_norm": "ssm_norm",
    "ssm.out_proj": "ssm_out",
}
# Exceptions of single architectures: the norms of Falcon's two parallel branches, and gpt-oss's MLP norm.
_RENAMED = {
    ("falcon", "attn.norm", "ln_attn"): "attn_norm_2",
    ("falcon", "mlp.norm", "ln_mlp"): "attn_norm",
    ("gpt-oss", "mlp.norm", ""): "post_attention_norm",
}
_NEVER_QUANTISED = {"ffn_gate_inp", "ffn_gate_inp_shexp", "position_embd", "ssm_conv1d", "ssm_norm"}


def targets(graph: Graph, architecture: str) -> tuple[Target, ...]:
    """Every tensor of the file once, in the order of execution."""
    found: dict[str, Target] = {}
    sources: set[str] = set()
    for block in graph.blocks:
        for repetition in range(block.count):
            for op in block.ops:
                weights = planned_op(block, op, repetition)
                fresh = tuple(weight for weight in weights if weight.name not in sources)
                if fresh:
                    sources |= {weight.name for weight in fresh}
                    for target in _of_op(block, op, repetition, fresh, architecture):
                        found.setdefault(target.name, target)
    return tuple(found.values())


def _of_op(
    block: Block, op: Op, repetition: int, weights: tuple[Weight, ...], architecture: str
) -> Iterator[Target]:
    layer = block.first + repetition
    inside = op.name.startswith("layers.")
    part = op.name.split(".", 2)[2] if inside else op.name
    before = f"blk.{layer}." if inside else ""
    if op.kind == "moe_experts":
        made = _experts(op, weights)
    elif op.kind == "ssm_scan":
        made = _scan(op, weights)
    elif part == "attn.kv_b_proj":
        made = _latent(block, weights[0])
    else:
        groups = next((other["groups"] for other in block.ops if other.kind == "ssm_scan"), 1)
        made = _plain(op, part, weights, architecture, groups)
    for target in made:
        yield replace(target, name=before + target.name, layer=layer)


def _plain(op: Op, part: str, weights: tuple[Weight, ...], architecture: str, groups: int) -> Iterator[Target]:
    stem = _stem(part, weights[0].name, architecture)
    for weight in weights:
        last = weight.name.rpartition(".")[2]
        if last == "e_score_correction_bias":
            yield _target("exp_probs_b", "bias", weight, weight.shape)
            continue
        shape = _stored(op, weight, groups)
        ending = "bias" if last == "bias" else "weight"
        matrix = len(shape) > 1 and ending == "weight" and stem not in _NEVER_QUANTISED
        yield _target(stem, ending, weight, shape, matrix=matrix)


def _stem(part: str, source: str, architecture: str) -> str:
    for (family, renamed, mark), stem in _RENAMED.items():
        if family == architecture and renamed == part and mark in source:
            return stem
    if part not in _STEMS:
        raise InferometerError(
            f"GGUF's {architecture} has no tensor for {source!r} (the op {part!r}).",
            remedy="Write this model as .onnx or .safetensors.",
        )
    return _STEMS[part]


def _stored(op: Op, weight: Weight, groups: int) -> tuple[int, ...]:
    """GGUF's shape: [out, in] always, no axes of size one, Mamba-2's norm by groups."""
    if op.get("layout") == "in_out" and len(weight.shape) == 2:
        return weight.shape[::-1]
    if op.name.endswith("ssm.out_norm"):
        return groups, weight.shape[0] // groups
    if op.kind in {"convolution", "linear"}:
        return tuple(size for size in weight.shape if size > 1) or (1,)
    return weight.shape


def _target(stem: str, ending: str, weight: Weight, shape: tuple[int, ...], *, matrix: bool = False) -> Target:
    return Target(name=f"{stem}.{ending}" if ending else stem, shape=shape, parts=(weight,), stem=stem, matrix=matrix)


def _experts(op: Op, weights: tuple[Weight, ...]) -> Iterator[Target]:
    """One stack a projection. Where gate and up are one tensor in the checkpoint, they are two here."""
    count, hidden, width = op["experts"], op["hidden"], op["intermediate"]
    shapes = {"gate": (count, width, hidden), "up": (count, width, hidden), "down": (count, hidden, width)}
    if len(weights) == 3 * count:
        for place, (part, shape) in enumerate(shapes.items()):
            stack = weights[place * count : (place + 1) * count]
            yield Target(
                name=f"ffn_{part}_exps.weight", shape=shape, parts=stack, stem=f"ffn_{part}_exps", matrix=True
            )
        return
    spreads = [weight.spread for weight in weights]
    for part, shape in shapes.items():
        source = weights[2] if part == "down" else weights[0]
        bias = weights[3] if part == "down" else weights[1]
        whole = replace(source, name=f"{source.name}.{part}", shape=shape, spread=spreads[2 if part == "down" else 0])
        yield _target(f"ffn_{part}_exps", "weight", whole, shape, matrix=True)
        small = replace(bias, name=f"{bias.name}.{part}", shape=shape[:2])
        yield _target(f"ffn_{part}_exps", "bias", small, shape[:2])


def _scan(op: Op, weights: tuple[Weight, ...]) -> Iterator[Target]:
    """A is stored as −exp(A_log), which is negative; it and D have no ending."""
    for weight in weights:
        last = weight.name.rpartition(".")[2]
        column = (*weight.shape, 1) if op["version"] == 2 else weight.shape
        if last == "A_log":
            yield _target("ssm_a", "", replace(weight, centre=-1.0, spread=0.5), column)
        elif last == "D":
            yield _target("ssm_d", "", weight, column)
        else:
            yield _target("ssm_dt", "bias", weight, weight.shape)


def _latent(block: Block, weight: Weight) -> Iterator[Target]:
    """kv_b_proj is stored as what each head's keys and values are made with, the keys' part transposed."""
    core = next(op for op in block.ops if op.kind == "attention")
    heads, rank, value = core["heads"], core["kv_rank"], core["value_dim"]
    nope = core["head_dim"] - core["rope_dim"]
    shapes = {"attn_k_b": (heads, rank, nope), "attn_v_b": (heads, value, rank)}
    for stem, shape in shapes.items():
        part = replace(weight, name=f"{weight.name}.{stem}", shape=shape)
        yield _target(stem, "weight", part, shape, matrix=True)
