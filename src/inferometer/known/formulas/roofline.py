"""The roofline: what arithmetic intensity lets a device deliver."""

import numpy as np

from inferometer.known.formulas import quantities as q
from inferometer.known.formulas.elementwise import choose, least
from inferometer.known.formulas.registry import formula, require

_WILLIAMS = "Williams, Waterman & Patterson 2009, Roofline: An Insightful Visual Performance Model"


@formula(
    row="4.1 Roofline",
    source=_WILLIAMS,
    example={"peak": 989e12, "bandwidth": 3.35e12, "intensity": 100},
    answer=335e12,
)
def roofline(*, peak: q.FlopRate, bandwidth: q.Bandwidth, intensity: q.Intensity) -> q.DeliveredRate:
    """The most FLOP/s a kernel of this intensity can reach.

    Derivation: W FLOPs take at least W/peak; their bytes Q take at least Q/BW. Overlapped, the time is the greater of
    the two, so W/time ≤ min(peak, BW·W/Q) = min(peak, BW·AI).
    Units: FLOP/s, B/s and FLOP/B → FLOP/s.
    Ignores: latency, launch costs, caches, and imperfect overlap. It is an upper bound, not a prediction.
    """
    return least(peak, bandwidth * intensity)


@formula(
    row="4.2 Ridge point",
    source=_WILLIAMS,
    example={"peak": 989e12, "bandwidth": 3.35e12},
    answer=295.2238805970149,
)
def ridge_point(*, peak: q.FlopRate, bandwidth: q.Bandwidth) -> q.SomeIntensity:
    """The intensity at which a device passes from memory-bound to compute-bound.

    Derivation: both roofs meet where BW·AI = peak, so AI = peak/BW.
    Units: FLOP/s and B/s → FLOP/B.
    Ignores: that both are datasheet values. The ridge of a real kernel uses the peaks that can be reached.
    """
    return peak / bandwidth


@formula(
    row="4.2 Bound class",
    source=_WILLIAMS,
    example={"intensity": 1, "peak": 989e12, "bandwidth": 3.35e12},
    answer="memory",
)
def bound_class(*, intensity: q.Intensity, peak: q.FlopRate, bandwidth: q.Bandwidth) -> q.Label:
    """Which roof a kernel meets: "memory" or "compute".

    Derivation: left of the ridge BW·AI < peak, so bytes take longer than FLOPs; at the ridge and right of it they do
    not.
    Units: FLOP/B, FLOP/s and B/s → a word.
    Ignores: kernels bound by neither, such as small ones, whose time is mostly launch and latency.
    """
    return choose(intensity < ridge_point(peak=peak, bandwidth=bandwidth), "memory", "compute")


@formula(
    row="4.4 Hierarchical roofline",
    source="Yang, Kurth & Williams 2020, Hierarchical Roofline Analysis for GPUs",
    example={"peak": 100e9, "bandwidths": [500e9, 50e9], "intensities": [0.5, 1.2]},
    answer=60e9,
)
def hierarchical_roofline(
    *, peak: q.FlopRate, bandwidths: q.BandwidthList, intensities: q.IntensityList
) -> q.DeliveredRate:
    """The roofline with one bandwidth roof per memory level.

    Derivation: each level ℓ carries its own bytes Qℓ, so its own intensity AIℓ = W/Qℓ. Every level must keep up, so
    the bound is min(peak, min over ℓ of BWℓ·AIℓ). One intensity for all levels would let only the slowest one matter.
    Units: FLOP/s, a list of B/s and a list of FLOP/B, level by level → FLOP/s.
    Ignores: levels that cannot transfer at the same time.
    """
    require(
        np.shape(bandwidths)[-1] == np.shape(intensities)[-1],
        "bandwidths and intensities must have one value a level",
        bandwidths=bandwidths,
        intensities=intensities,
    )
    return least(peak, np.min(np.multiply(bandwidths, intensities), axis=-1))
