"""EdgeProfiler's closed form (arXiv:2506.09061), as published, for comparison in tests and benchmarks.

`docs/edgeprofiler.md` says, point by point, what is wrong in it and what this package does instead.

Six integers describe a model and five rates a machine. Everything is per token, and every token pays for loading the
weights. Nothing else in this package uses it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from inferometer.errors import DomainError, UnknownNameError
from inferometer.formulas.energy import edgeprofiler_energy
from inferometer.formulas.memory import arithmetic_intensity

PRECISIONS = {"FP32": 4, "FP16": 2, "INT8": 1}  # bytes per number

# The share of each peak that it assumes, whatever runs.
COMPUTE_SHARE, MEMORY_SHARE, STORAGE_SHARE, TRANSFER_SHARE, NETWORK_SHARE = 0.7, 0.6, 0.8, 0.7, 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeModel:
    """The six integers; the last is the bytes per number."""

    layers: int
    hidden: int
    intermediate: int
    vocab: int
    sequence: int
    element_bytes: int = 4

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise DomainError(f"{name} must be a whole number of 1 or more, and is {value!r}.")

    @property
    def parameters(self) -> int:
        """4·L·H² + 2·L·H·I + 2·V·H: four square projections, an MLP of two matrices, two embedding tables."""
        layer = 4 * self.hidden**2 + 2 * self.hidden * self.intermediate
        return self.layers * layer + 2 * self.vocab * self.hidden

    @property
    def flops(self) -> int:
        """L·(8·H² + 4·H·S + 4·H·I + 9·H) for a token."""
        hidden = self.hidden
        each = 8 * hidden**2 + 4 * hidden * self.sequence + 4 * hidden * self.intermediate + 9 * hidden
        return self.layers * each

    @property
    def memory_bytes(self) -> int:
        """(P + S·H + 2·L·S·H)·B: weights, activations, and a cache of every head."""
        kept = self.sequence * self.hidden
        return (self.parameters + kept + 2 * self.layers * kept) * self.element_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeHardware:
    """Peaks in operations and bytes per second, as the paper's tables give them."""

    name: str
    flops_per_s: float
    memory_bytes_per_s: float
    storage_bytes_per_s: float
    transfer_bytes_per_s: float
    network_bytes_per_s: float

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if name != "name" and not (isfinite(value) and value > 0):
                raise DomainError(f"{name} of {self.name} must be greater than 0, and is {value!r}.")


HARDWARE = {
    "raspberry-pi-4": EdgeHardware(
        name="raspberry-pi-4",
        flops_per_s=50e9,
        memory_bytes_per_s=19e9,
        storage_bytes_per_s=5e8,
        transfer_bytes_per_s=12e9,
        network_bytes_per_s=1e8,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeProfile:
    """Its prediction for one token."""

    parameters: int
    flops: int
    memory_bytes: int
    compute_s: float
    memory_s: float
    io_s: float
    h2d_s: float
    network_s: float
    e2e_s: float
    intensity: float
    energy_j: float


def edge_profile(model: EdgeModel, hardware: EdgeHardware | str) -> EdgeProfile:
    """e2e = max(compute, memory) + io + h2d + network, each its work over a share of a peak."""
    machine = _known(hardware) if isinstance(hardware, str) else hardware
    weights = model.parameters * model.element_bytes
    compute = model.flops / (machine.flops_per_s * COMPUTE_SHARE)
    memory = model.memory_bytes / (machine.memory_bytes_per_s * MEMORY_SHARE)
    io = weights / (machine.storage_bytes_per_s * STORAGE_SHARE)
    transfer = weights / (machine.transfer_bytes_per_s * TRANSFER_SHARE)
    network = model.sequence * model.hidden * model.element_bytes / (machine.network_bytes_per_s * NETWORK_SHARE)
    return EdgeProfile(
        parameters=model.parameters,
        flops=model.flops,
        memory_bytes=model.memory_bytes,
        compute_s=compute,
        memory_s=memory,
        io_s=io,
        h2d_s=transfer,
        network_s=network,
        e2e_s=max(compute, memory) + io + transfer + network,
        intensity=float(arithmetic_intensity(flops=model.flops, bytes=model.memory_bytes)),
        energy_j=float(edgeprofiler_energy(flops=model.flops, bytes=model.memory_bytes)),
    )


def _known(name: str) -> EdgeHardware:
    if name not in HARDWARE:
        raise UnknownNameError("EdgeProfiler hardware row", name, HARDWARE)
    return HARDWARE[name]
