"""Checking a model's outputs against those of a reference.

Random inputs and one reference cannot prove a model right; they show what a runtime, a weight format or a fusion
changed. The tolerance is stated with the verdict.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.profile import Verification
from inferometer.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    Array = np.ndarray[Any, Any]

_BEST = 5  # tokens of a position whose overlap is `top_k`


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """`relative` is relative to the largest value of each output. `nll` is in nats per token."""

    relative: float = 1e-3
    cosine: float = 0.999
    top_1: float = 0.9
    nll: float = 0.05

    def __str__(self) -> str:
        return f"error at most {self.relative:g} of an output's largest value, cosine at least {self.cosine:g}"

    @property
    def of_text(self) -> str:
        return f"same best token at {self.top_1:.0%} of positions or more, NLL drift at most {self.nll:g} nats a token"


def load_outputs(path: Path | str) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except (OSError, ValueError, EOFError) as error:
        raise FormatError(f"The outputs in {str(path)!r} cannot be read: {error}.") from None
    names = arrays.pop("names", None)
    if names is None:
        return arrays
    return {str(name): arrays[f"o{index}"] for index, name in enumerate(names)}


def compare_arrays(
    given: Mapping[str, Array], reference: Mapping[str, Array], *, against: str, tolerance: Tolerance | None = None
) -> Verification:
    """Compare outputs of the same name, or of the same size if the two formats name them differently."""
    limits = tolerance or Tolerance()
    pairs = _paired(given, reference)
    reason = next(_not_comparable(pairs), None)
    if not pairs:
        reason = f"the outputs differ: {_shapes(given)} and {_shapes(reference)}"
    if reason is not None:
        return Verification(status="failed", reference=against, tolerance=str(limits), reason=reason)
    worst_abs, worst_rel, least_cosine = 0.0, 0.0, 1.0
    for ours, theirs in ((a[np.isfinite(a)], b[np.isfinite(b)]) for a, b in pairs.values()):
        difference = float(np.abs(ours - theirs).max(initial=0.0))
        largest = float(np.abs(theirs).max(initial=0.0))
        worst_abs = max(worst_abs, difference)
        worst_rel = max(worst_rel, difference / largest if largest > 0 else difference)
        least_cosine = min(least_cosine, _cosine(ours, theirs))
    right = worst_rel <= limits.relative and least_cosine >= limits.cosine
    return Verification(
        status="verified" if right else "failed",
        reference=against,
        max_abs=worst_abs,
        max_rel=worst_rel,
        cosine=least_cosine,
        tolerance=str(limits),
        reason=None
        if right
        else f"an output is off by {worst_rel:.2g} of its largest value, cosine {least_cosine:.4f}",
    )


def _not_comparable(pairs: Mapping[str, tuple[Array, Array]]) -> Iterator[str]:
    """Values that are not finite are allowed only if both have the same ones (a mask's −∞), and others beside them.

    They would vanish in the comparison: no number is greater than NaN.
    """
    for name, (ours, theirs) in pairs.items():
        finite = np.isfinite(ours)
        if not np.array_equal(ours[~finite], theirs[~finite], equal_nan=True) or not np.isfinite(theirs[finite]).all():
            whose = "reference's output" if finite.all() else "output"
            yield f"the {whose} {name!r} holds values that are not finite"
        elif ours.size and not finite.any():
            yield f"the output {name!r} holds no value that is finite"


def _paired(given: Mapping[str, Array], reference: Mapping[str, Array]) -> dict[str, tuple[Array, Array]]:
    """Pairs by name; outputs whose names differ are paired with the nearest one of their size."""
    if len(given) != len(reference):
        return {}
    ours = {name: array.astype(np.float64).ravel() for name, array in given.items()}
    theirs = {name: array.astype(np.float64).ravel() for name, array in reference.items()}
    if set(ours) == set(theirs):
        named = {name: (ours[name], theirs[name]) for name in ours}
        return named if all(a.size == b.size for a, b in named.values()) else {}
    pairs = sorted(
        (_distance(a, b), name, other)
        for name, a in ours.items()
        for other, b in theirs.items()
        if a.size == b.size and ((name == other) or (name not in theirs and other not in ours))
    )
    pairs_by_name: dict[str, tuple[Array, Array]] = {}
    taken: set[str] = set()
    for _, name, other in pairs:
        if name not in pairs_by_name and other not in taken:
            pairs_by_name[name] = (ours[name], theirs[other])
            taken.add(other)
    return pairs_by_name if len(pairs_by_name) == len(ours) else {}


def _distance(a: Array, b: Array) -> float:
    difference = float(np.abs(a - b).max(initial=0.0))
    return difference if np.isfinite(difference) else float("inf")


def _shapes(arrays: Mapping[str, Array]) -> str:
    return ", ".join(f"{name} {list(array.shape)}" for name, array in arrays.items()) or "none"


def _cosine(a: Array, b: Array) -> float:
    long_a, long_b = float(np.linalg.norm(a)), float(np.linalg.norm(b))
    if long_a == 0 or long_b == 0:
        return 1.0 if long_a == long_b else 0.0
    return float(np.dot(a, b) / (long_a * long_b))


def compare_text(
    given: Mapping[str, Array], reference: Mapping[str, Array], *, against: str, tolerance: Tolerance | None = None
) -> Verification:
    """Compare the logits at every position of one text if both have them, otherwise the tokens that each chose."""
    limits = tolerance or Tolerance()
    if "logits" in given and "logits" in reference and given["logits"].shape == reference["logits"].shape:
        return _logits(given, reference, against, limits)
    ours, theirs = given.get("made"), reference.get("made")
    if ours is None or theirs is None or not min(len(ours), len(theirs)):
        reason = "neither logits nor tokens can be compared"
        return Verification(status="unchecked", reference=against, reason=reason)
    shared = min(len(ours), len(theirs))
    same = int(np.argmin(np.append(ours[:shared] == theirs[:shared], False)))
    agreement = same / shared
    right = agreement >= limits.top_1
    return Verification(
        status="verified" if right else "failed",
        reference=against,
        top_1=agreement,
        tolerance=f"the same first {limits.top_1:.0%} of the tokens chosen",
        reason=None if right else f"the texts part after {same} of {shared} tokens",
    )


def _logits(
    given: Mapping[str, Array], reference: Mapping[str, Array], against: str, limits: Tolerance
) -> Verification:
    ours, theirs = given["logits"].astype(np.float64), reference["logits"].astype(np.float64)
    difference = float(np.abs(ours - theirs).max())
    agree = float((ours.argmax(-1) == theirs.argmax(-1)).mean())
    drift = _nll(ours, given["ids"]) - _nll(theirs, reference["ids"])
    right = agree >= limits.top_1 and abs(drift) <= limits.nll
    return Verification(
        status="verified" if right else "failed",
        reference=against,
        max_abs=difference,
        max_rel=difference / max(float(np.abs(theirs).max()), 1e-30),
        cosine=_cosine(ours.ravel(), theirs.ravel()),
        top_1=agree,
        top_k=_overlap(ours, theirs),
        nll_drift=drift,
        tolerance=limits.of_text,
        reason=None if right else f"the best token is the same at {agree:.0%} of positions, NLL drifts by {drift:+.3g}",
    )


def _nll(logits: Array, ids: Array) -> float:
    """The mean negative log-likelihood of the text's next tokens."""
    shifted = logits[:-1] - logits[:-1].max(-1, keepdims=True)
    log_sum = np.log(np.exp(shifted).sum(-1))
    chosen = shifted[np.arange(len(ids) - 1), ids[1:]]
    return float((log_sum - chosen).mean()) if len(ids) > 1 else 0.0


def _overlap(ours: Array, theirs: Array) -> float:
    best = min(_BEST, ours.shape[-1])
    a, b = (np.argpartition(logits, -best, axis=-1)[:, -best:] for logits in (ours, theirs))
    return float(np.mean([len(set(x) & set(y)) / best for x, y in zip(a.tolist(), b.tolist(), strict=True)]))
