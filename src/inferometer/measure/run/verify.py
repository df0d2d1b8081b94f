"""Checking a model's outputs against those of a reference.

Random inputs and one reference cannot prove a model right; they show what a runtime, a weight format or a fusion
changed. How far they may differ follows from the formats of both sides (`tolerance`) and is stated with the verdict.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from inferometer.core.errors import FormatError, InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.profile import Verification
from inferometer.engines.onnx_nodes import load_model, name_nodes
from inferometer.measure.run.tolerance import EXACT, Noise, Tolerance

Array = np.ndarray[Any, Any]

_BEST = 5  # tokens of a position whose overlap is `top_k`


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


@frozen
class _Difference:
    """The worst of all outputs: absolute, of the largest value, of the size, and what the last two may be."""

    absolute: float = 0.0
    relative: float = 0.0
    rms: float = 0.0
    cosine: float = 1.0
    beyond: float = 0.0  # the relative error over its limit


def compare_arrays(
    given: Mapping[str, Array],
    reference: Mapping[str, Array],
    *,
    against: str,
    tolerance: Tolerance | None = None,
    noise: Noise | None = None,
) -> Verification:
    """Compare outputs of the same name, or of the same size if the two formats name them differently."""
    limits, noise = tolerance or Tolerance(), noise or Noise()
    allowed = _allowed(limits, noise)
    pairs = _paired(given, reference)
    reason = next(_not_comparable(pairs), None)
    if not pairs:
        reason = f"the outputs differ: {_shapes(given)} and {_shapes(reference)}"
    if reason is not None:
        return Verification(status="failed", reference=against, tolerance=allowed, reason=reason)
    worst = _worst([(a[np.isfinite(a)], b[np.isfinite(b)]) for a, b in pairs.values()], limits, noise)
    right = (
        worst.beyond <= 1
        and worst.cosine >= (noise.cosine if limits.cosine is None else limits.cosine)
        and (limits.relative is not None or noise.rms <= EXACT or worst.rms <= noise.of_arrays)
    )
    return Verification(
        status="verified" if right else "failed",
        reference=against,
        max_abs=worst.absolute,
        max_rel=worst.relative,
        rms_rel=worst.rms,
        cosine=worst.cosine,
        tolerance=allowed,
        reason=None
        if right
        else f"an output is off by {worst.relative:.2g} of its largest value and {worst.rms:.2g} of its size, "
        f"cosine {worst.cosine:.4f}",
    )


def _worst(pairs: Sequence[tuple[Array, Array]], limits: Tolerance, noise: Noise) -> _Difference:
    worst = _Difference()
    for given, theirs in pairs:
        ours = np.where(np.abs(given - theirs) > noise.absolute, given, theirs)
        difference = float(np.abs(ours - theirs).max(initial=0.0))
        largest = float(np.abs(theirs).max(initial=0.0))
        size = float(np.linalg.norm(theirs))
        relative = difference / largest if largest > 0 else difference
        limit = _relative_limit(theirs, noise) if limits.relative is None else limits.relative
        rms = float(np.linalg.norm(ours - theirs))
        worst = _Difference(
            absolute=max(worst.absolute, difference),
            relative=max(worst.relative, relative),
            rms=max(worst.rms, rms / size if size > 0 else rms),
            cosine=min(worst.cosine, _cosine(ours, theirs)),
            beyond=max(worst.beyond, relative / limit if limit > 0 else math.inf if relative else 0.0),
        )
    return worst


def _relative_limit(reference: Array, noise: Noise) -> float:
    """The largest of n normal errors is √(2 ln 2n) times their size; of the output's largest value, at least theirs."""
    largest = float(np.abs(reference).max(initial=0.0))
    if not largest or noise.rms <= EXACT:
        return EXACT
    size = float(np.linalg.norm(reference)) / math.sqrt(reference.size)
    return noise.of_arrays * max(1.0, math.sqrt(2 * math.log(2 * reference.size)) * size / largest)


def _allowed(limits: Tolerance, noise: Noise) -> str:
    """The limits in words, with the reason."""
    cosine = noise.cosine if limits.cosine is None else limits.cosine
    if limits.relative is not None:
        error = f"error at most {limits.relative:g} of an output's largest value"
    elif noise.rms <= EXACT:
        error = f"error at most {EXACT:g} of an output's largest value"
    else:
        error = f"error at most {noise.of_arrays:.2g} of an output's size"
    given = limits.relative is not None and limits.cosine is not None
    return f"{error}, cosine at least {cosine:.4g} ({'as given' if given else noise.why})"


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
    given: Mapping[str, Array],
    reference: Mapping[str, Array],
    *,
    against: str,
    tolerance: Tolerance | None = None,
    noise: Noise | None = None,
) -> Verification:
    """Compare the logits at every position of one text if both have them, otherwise the tokens that each chose."""
    limits, noise = tolerance or Tolerance(), noise or Noise()
    if "logits" in given and "logits" in reference and given["logits"].shape == reference["logits"].shape:
        return _logits(given, reference, against, limits, noise)
    ours, theirs = given.get("made"), reference.get("made")
    if ours is None or theirs is None or not min(len(ours), len(theirs)):
        reason = "neither logits nor tokens can be compared"
        return Verification(status="unchecked", reference=against, reason=reason)
    shared, least = min(len(ours), len(theirs)), noise.top_1 if limits.top_1 is None else limits.top_1
    same = int(np.argmin(np.append(ours[:shared] == theirs[:shared], False)))
    agreement = same / shared
    right = agreement >= least
    return Verification(
        status="verified" if right else "failed",
        reference=against,
        top_1=agreement,
        tolerance=f"the same first {least:.0%} of the tokens chosen",
        reason=None if right else f"the texts part after {same} of {shared} tokens",
    )


def _logits(
    given: Mapping[str, Array], reference: Mapping[str, Array], against: str, limits: Tolerance, noise: Noise
) -> Verification:
    ours, theirs = given["logits"].astype(np.float64), reference["logits"].astype(np.float64)
    difference = float(np.abs(ours - theirs).max())
    same = ours.argmax(-1) == theirs.argmax(-1)
    drift = _nll(ours, given["ids"]) - _nll(theirs, reference["ids"])
    rms, settled = _logit_noise(ours, theirs, noise)
    counted = np.ones_like(settled) if limits.top_1 is not None else settled
    least, most = limits.top_1 or noise.top_1, noise.nll if limits.nll is None else limits.nll
    agree = float(same[counted].mean()) if counted.any() else 1.0
    right = agree >= least and abs(drift) <= most and rms <= noise.of_text
    where = "positions" if counted.all() else f"the {int(counted.sum())} positions whose lead is beyond rounding"
    best = min(_BEST, ours.shape[-1])
    a, b = (np.argpartition(logits, -best, axis=-1)[:, -best:] for logits in (ours, theirs))
    overlap = float(np.mean([len(set(x) & set(y)) / best for x, y in zip(a.tolist(), b.tolist(), strict=True)]))
    return Verification(
        status="verified" if right else "failed",
        reference=against,
        max_abs=difference,
        max_rel=difference / max(float(np.abs(theirs).max()), 1e-30),
        rms_rel=rms,
        cosine=_cosine(ours.ravel(), theirs.ravel()),
        top_1=float(same.mean()),
        top_k=overlap,
        nll_drift=drift,
        tolerance=f"same best token at {least:.0%} of {where}, NLL drift at most {most:.2g} nats a token, "
        f"logits off by at most {noise.of_text:.2g} of their spread ({noise.why})",
        reason=None
        if right
        else f"the best token is the same at {agree:.0%} of {where}, NLL drifts by {drift:+.3g}, logits are off by "
        f"{rms:.2g} of their spread",
    )


def _logit_noise(ours: Array, theirs: Array, noise: Noise) -> tuple[float, Array]:
    """The logits' difference as a share of their spread; and where the reference's best leads by twice the noise.

    What is added to all logits of a position changes no choice and is left out.
    """
    shifted, spread = (part - part.mean(-1, keepdims=True) for part in (ours - theirs, theirs))
    size = float(np.linalg.norm(spread))
    rms = float(np.linalg.norm(shifted))
    second, first = np.partition(theirs, -2, axis=-1)[:, -2:].T
    settled = first - second > 2 * min(noise.rms, noise.of_text) * spread.std(-1)
    return rms / size if size > 0 else rms, settled


def _nll(logits: Array, ids: Array) -> float:
    """The mean negative log-likelihood of the text's next tokens."""
    shifted = logits[:-1] - logits[:-1].max(-1, keepdims=True)
    log_sum = np.log(np.exp(shifted).sum(-1))
    chosen = shifted[np.arange(len(ids) - 1), ids[1:]]
    return float((log_sum - chosen).mean()) if len(ids) > 1 else 0.0


# A model without its last layer, to see whether two runtimes differ only there or before it.
#
# A softmax of very large numbers depends on their last bit. If its outputs differ, that says nothing about the layers
# before it; their outputs do.


def without_last(path: Path, place: Path) -> str | None:
    """Write the ONNX model without its last layer to `place`, and return that layer's name.

    None if there is no single last layer: several outputs, weights beside the file, or another format.
    """
    if path.suffix != ".onnx" or not path.is_file():
        return None
    try:
        model = load_model(path)
    except InferometerError:
        return None
    graph = model.graph
    if len(graph.output) != 1 or any(tensor.data_location for tensor in graph.initializer):
        return None
    name_nodes(model)
    makers = {name: node for node in graph.node for name in node.output}
    last = makers.get(graph.output[0].name)
    taken = [name for name in (last.input if last else ()) if name in makers]
    if last is None or len(taken) != 1:
        return None
    graph.output[0].name = taken[0]
    graph.output[0].type.tensor_type.ClearField("shape")  # the output of the layer before may have another shape
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(model.SerializeToString())
    return f"{last.op_type} {last.name!r}"
