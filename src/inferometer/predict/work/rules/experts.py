"""Mixtures of experts: choosing them, and the products of those chosen."""

from typing import Any

import numpy as np

from inferometer.core.binding import Binding
from inferometer.core.graph import Op
from inferometer.core.work import Work
from inferometer.predict.work.rules.attention import SOFTMAX_FLOPS
from inferometer.predict.work.rules.elementwise import activation_flops
from inferometer.predict.work.rules.indexing import selection_flops
from inferometer.predict.work.rules.registry import moving, rows, rule, streams


@rule("moe_router")
def moe_router(op: Op, binding: Binding) -> Work:
    """A linear layer to one score for each expert, a softmax over the scores, and the best `top_k` of them.

    For each row: 2·hidden·experts (+ experts with a bias), 5·experts, and experts·log₂ top_k comparisons, at least one
    each.
    """
    x, experts = op.inputs[0], op["experts"]
    hidden = binding.size(x.shape[-1])
    biases = sum(1 for weight in op.weights[1:] if weight.role == "weight")
    each = 2 * hidden + biases + SOFTMAX_FLOPS + selection_flops(op["top_k"])
    return moving(op, binding, rows(x, binding) * experts * each)


@rule("moe_experts")
def moe_experts(op: Op, binding: Binding) -> Work:
    """Every row passes through `top_k` experts, each an up- and a down-projection, and a gate where `gated`.

    FLOPs, for each of rows·top_k routed rows: 2·hidden·intermediate for each of the two or three matrices, the
    activation function on `intermediate` numbers (and the gate's product), 2·hidden to weigh the result and add it up,
    and one for each number of a bias.

    Weights: only experts that some row chose are read, `share_touched` of the stack on average. Between the products
    the routed rows are written and read back as they are between separate layers.
    """
    hidden, intermediate, gated = op["hidden"], op["intermediate"], bool(op.get("gated"))
    count = rows(op.inputs[0], binding)
    matrices = 3 if gated else 2  # up and down, and a gate beside up
    biases = sum(binding.size(w.shape[-1]) for w in op.weights if w.role == "weight" and len(w.shape) == 2)
    each = 2 * hidden * intermediate * matrices + (activation_flops(op) + gated) * intermediate + 2 * hidden + biases
    moved = streams(op, binding)
    inner = hidden_bytes(op, binding)
    # An expected number of bytes, to the nearest byte.
    expected = np.rint(moved["weights"] * share_touched(op["experts"], op["top_k"], count))
    moved["weights"] = expected.astype(np.int64) if isinstance(expected, np.ndarray) else int(expected)
    moved["reads"] = moved["reads"] + inner
    moved["writes"] = moved["writes"] + inner
    return Work(flops={binding.arithmetic(op): count * op["top_k"] * each}, **moved)


def share_touched(experts: int, top_k: int, count: Any) -> Any:
    """The expected share of the experts that `count` rows use, each choosing top_k of them evenly at random.

    One row misses a given expert with probability 1 − top_k/experts, all of them with that to the power of `count`.
    Trained routers are less even, so fewer experts are touched than this.
    """
    if top_k >= experts:
        return 1.0
    # As 1 − (1 − k/n)^count, which would lose its digits where few of many experts are touched.
    return -np.expm1(count * np.log1p(-top_k / experts))


def routed_bytes(op: Op, binding: Binding) -> Any:
    """Bytes of what the products of the experts that a token chose read and write: rows in, between them, and out."""
    width = 2 * op["hidden"] + op["intermediate"] * (2 if op.get("gated") else 1)
    return binding.format(op.inputs[0]).nbytes(op["top_k"] * width)


def hidden_bytes(op: Op, binding: Binding) -> Any:
    """Bytes of the results that live inside the op, for all routed rows.

    What gate and up give, what the activation makes of it, and each expert's output before they are added up.
    """
    x = op.inputs[0]
    # gate and up, and what the activation makes of them
    width = op["intermediate"] * (3 if op.get("gated") else 2) + op["hidden"]
    return binding.format(x).nbytes(rows(x, binding) * op["top_k"] * width)
