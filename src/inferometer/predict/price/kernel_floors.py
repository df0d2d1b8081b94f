"""The ideal seconds of a serving engine's kernel: its operations and bytes at a device's peaks, from its sizes alone.

The longer of the two is its floor. Tables of measured kernels are kept as shares of these floors and read back with
them, so the same formula stands on both sides: what a floor leaves out is in the share. Sizes may be numbers or arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.frozen import frozen
from inferometer.predict.work.rules.attention import causal_pairs
from inferometer.predict.work.rules.experts import share_touched

if TYPE_CHECKING:
    from inferometer.core.device import Device

_ACTIVATION_BYTES = 2  # bf16, as engines keep them between kernels
# A format runs on units of its own, or on those of the next wider format; the fastest that the device has is the floor.
_FASTER = {"nvfp4": ("nvfp4", "f8e4m3", "bf16"), "mxfp4": ("mxfp4", "f8e4m3", "bf16"), "i8": ("i8", "bf16")}
# DeepSeek-V2 and V3, whose shapes every engine's kernels of this family have
_LATENT, _LATENT_VALUE, _EXPANDED_KEY, _EXPANDED_VALUE = 576, 512, 192, 128
Ideals = tuple[Any, Any]  # seconds of its operations and of its bytes


@frozen
class PeakRates:
    """What floors are counted with: operations a second by format, bytes a second of memory and of a link."""

    peaks: Mapping[str, float]
    memory: float
    link: float | None = None
    found: dict[str, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    def operations(self, name: str) -> float:
        """The peak of a format; where the device has none that of the format that stands in for it."""
        if name not in self.found:
            candidates = (*_FASTER.get(name, (name,)), "bf16", "f16", "f32")
            known = [self.peaks[candidate] for candidate in candidates if candidate in self.peaks]
            self.found[name] = known[0] if known else max(self.peaks.values())
        return self.found[name]


def peak_rates(device: Device) -> PeakRates:
    link = device.peer_link or device.network_link or device.host_link
    memory = device.memory
    return PeakRates(
        peaks={name: float(peak) for name, peak in device.peaks.items()},
        memory=1.0 if memory is None or memory.bandwidth_bytes_per_s is None else float(memory.bandwidth_bytes_per_s),
        link=None if link is None or link.bandwidth_bytes_per_s is None else float(link.bandwidth_bytes_per_s),
    )


def floor_of(ideals: Ideals) -> Any:
    return np.maximum(*ideals)


def floats(size: Any) -> Any:
    """A size in floating point: a lone one as a plain number, which numpy would take ten times as long for."""
    return float(size) if isinstance(size, int | float) else np.asarray(size, float)


def gemm_ideals(rates: PeakRates, s: Mapping[str, Any], *, arithmetic: str, weight_bytes: float) -> Ideals:
    """[rows, k] × [k, n]: the weights once, the activations in and out."""
    m, n, k = s["rows"], s["out_features"], s["in_features"]
    weights, row = n * k * weight_bytes / rates.memory, _ACTIVATION_BYTES * (n + k) / rates.memory
    return m * (2.0 * n * k / rates.operations(arithmetic)), weights + m * row


def attention_prefill_ideals(rates: PeakRates, s: Mapping[str, Any], *, arithmetic: str, kv_bytes: float) -> Ideals:
    """Causal attention of `query` new tokens after `context`; a window of 0 is none."""
    query, context = floats(s["query"]), floats(s.get("context", 0))
    pairs = _windowed_pairs(query, context, s.get("window", 0))
    operations = 4.0 * s["batch"] * s["heads"] * s["head_dim"] * pairs
    new = _ACTIVATION_BYTES * 2 * query * s["heads"] * s["head_dim"]
    cached = kv_bytes * 2 * (query + context) * s["kv_heads"] * s["head_dim"]
    return operations / rates.operations(arithmetic), s["batch"] * (new + cached) / rates.memory


def attention_decode_ideals(rates: PeakRates, s: Mapping[str, Any], *, arithmetic: str, kv_bytes: float) -> Ideals:
    """One token each of `batch` sequences over `keys` cached ones."""
    keys = floats(s["keys"])
    window = floats(s.get("window", 0))
    if _is_any(window):
        keys = np.where(window > 0, np.minimum(keys, np.maximum(window, 1)), keys)
    operations = 4.0 * s["batch"] * s["heads"] * s["head_dim"] * keys
    moved = s["batch"] * (kv_bytes * 2 * keys * s["kv_heads"] + _ACTIVATION_BYTES * 2 * s["heads"]) * s["head_dim"]
    return operations / rates.operations(arithmetic), moved / rates.memory


def mla_prefill_ideals(rates: PeakRates, s: Mapping[str, Any], *, arithmetic: str, kv_bytes: float) -> Ideals:
    """Latent attention with keys and values expanded."""
    query, context = floats(s["query"]), floats(s.get("context", 0))
    width = _EXPANDED_KEY + _EXPANDED_VALUE
    operations = 2.0 * s["batch"] * s["heads"] * width * causal_pairs(query, context)
    moved = s["batch"] * (_ACTIVATION_BYTES * 2 * query * s["heads"] * width + kv_bytes * (query + context) * _LATENT)
    return operations / rates.operations(arithmetic), moved / rates.memory


def mla_decode_ideals(rates: PeakRates, s: Mapping[str, Any], *, arithmetic: str, kv_bytes: float) -> Ideals:
    """Latent attention with the up-projection absorbed: every head meets the one latent of each cached token."""
    keys = floats(s["keys"])
    width = _LATENT + _LATENT_VALUE
    operations = 2.0 * s["batch"] * s["heads"] * width * keys
    moved = s["batch"] * (kv_bytes * keys * _LATENT + _ACTIVATION_BYTES * s["heads"] * width)
    return operations / rates.operations(arithmetic), moved / rates.memory


def experts_ideals(rates: PeakRates, s: Mapping[str, Any], *, arithmetic: str, weight_bytes: float) -> Ideals:
    """`rows` tokens of all replicas, each through `top_k` experts, of which this device has 1/ep, each 1/tp wide."""
    rows, matrices = floats(s["rows"]), s.get("matrices", 3)
    inner = s["intermediate"] / s["tp"]
    routed = rows * s["top_k"] / s["ep"]
    touched = _touched(s["experts"], s["top_k"], rows)
    weights = touched * s["experts"] / s["ep"] * matrices * s["hidden"] * inner * weight_bytes
    moved = weights + _ACTIVATION_BYTES * routed * (2 * s["hidden"] + matrices * inner)
    return 2.0 * matrices * routed * s["hidden"] * inner / rates.operations(arithmetic), moved / rates.memory


def _touched(experts: Any, top_k: Any, rows: Any) -> Any:
    if np.ndim(experts) or np.ndim(top_k):
        # A model whose every expert is chosen misses none, and the logarithm of 0 is no number; so a billionth is left.
        missed = np.log1p(-np.minimum(top_k / np.asarray(experts, float), 1 - 1e-9))
        return -np.expm1(rows * missed)
    return share_touched(experts, top_k, rows)


def _is_any(window: Any) -> bool:
    return window > 0 if isinstance(window, float) else bool(np.any(window > 0))


def _windowed_pairs(query: Any, context: Any, window: Any) -> Any:
    whole = query * context + query * (query + 1) / 2
    window = floats(window)
    if not _is_any(window):
        return whole
    return np.where(window > 0, causal_pairs(query, context, np.maximum(window, 1)), whole)


def message_bytes_ideals(rates: PeakRates, s: Mapping[str, Any], *, function: str) -> Ideals:
    """What one device sends over its link; without a link over memory, which only keeps shares comparable."""
    devices = floats(s["devices"])
    share = {"all_reduce": 2.0, "reduce_scatter": 1.0, "all_gather": 1.0}.get(function, 1.0 / devices)
    sent = share * (devices - 1) / devices * s["bytes"]
    return np.zeros_like(sent), sent / (rates.link or rates.memory)


def form_terms(family: str, ideals: Ideals, s: Mapping[str, Any]) -> tuple[Any, Any, Any, Any]:
    """What a form is made of: both ideals, the pieces that a kernel works on, and the devices that share experts.

    Pieces are the numbers that a product quantises, the depth of an expert's two products, the heads of all sequences'
    caches.
    """
    if family == "gemm":
        return *ideals, s["rows"] * s["in_features"], 1.0
    if family == "experts":
        return *ideals, s["hidden"] + s["intermediate"] / s["tp"], s["ep"]
    return *ideals, s["batch"] * s.get("kv_heads", 1) if family.endswith(".decode") else 0.0, 1.0
