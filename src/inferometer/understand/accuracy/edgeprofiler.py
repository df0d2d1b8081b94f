"""EdgeProfiler's closed form (arXiv:2506.09061), as published: its models, its machines and its table.

`docs/edgeprofiler.md` says, point by point, what is wrong in it and what this package does instead.

Six integers describe a model and five rates a machine. Everything is per token, and every token pays for loading the
weights. Nothing that this package predicts uses it: it is there to be compared with.
"""

from collections.abc import Iterable
from dataclasses import asdict, fields, replace
from itertools import product
from math import isfinite
from typing import Any

from inferometer.core.device import Device, Link, Sourced
from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph
from inferometer.known.formulas.energy import edgeprofiler_energy
from inferometer.known.formulas.memory import arithmetic_intensity
from inferometer.predict.ask import device_for, model_graph

PRECISIONS = {"FP32": 4, "FP16": 2, "INT8": 1}  # bytes per number
FORMATS = {"f32": "FP32", "f16": "FP16", "i8": "INT8"}  # our names for them


@frozen
class EdgeModel:
    """The six integers; the last is the bytes per number."""

    layers: int
    hidden: int
    intermediate: int
    vocab: int
    sequence: int
    element_bytes: int = 4

    def __post_init__(self) -> None:
        for name in (entry.name for entry in fields(self)):
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


@frozen
class EdgeHardware:
    """Peaks in operations and bytes per second, the share of each that is reached, whatever runs, and joules."""

    name: str
    flops_per_s: float
    memory_bytes_per_s: float
    storage_bytes_per_s: float
    transfer_bytes_per_s: float
    network_bytes_per_s: float
    compute_share: float = 0.7
    memory_share: float = 0.6
    storage_share: float = 0.8
    transfer_share: float = 0.7
    network_share: float = 0.8
    joules_per_flop: float = 1e-12
    joules_per_byte: float = 1e-9

    def __post_init__(self) -> None:
        for name in (entry.name for entry in fields(self)):
            value = getattr(self, name)
            if name != "name" and not (isfinite(value) and value > 0):
                raise DomainError(f"{name} of {self.name} must be greater than 0, and is {value!r}.")


def _hardware(name: str, *rates: float) -> EdgeHardware:
    flops, memory, storage, transfer, network = rates
    return EdgeHardware(
        name=name, flops_per_s=flops, memory_bytes_per_s=memory, storage_bytes_per_s=storage,
        transfer_bytes_per_s=transfer, network_bytes_per_s=network,
    )  # fmt: skip


# Its own rows, from its source (https://github.com/ShakyaJayakody/EdgeProfiler): wrong as they are.
HARDWARE = {
    "raspberry-pi-4": _hardware("raspberry-pi-4", 50e9, 19e9, 5e8, 12e9, 1e8),
    "raspberry-pi-5": _hardware("raspberry-pi-5", 64e9, 34e9, 5e8, 16e9, 1e8),
    "jetson-nano-super": _hardware("jetson-nano-super", 0.5e12, 25.6e9, 2e9, 30e9, 5e8),
}
_ONE_B = EdgeModel(layers=24, hidden=2048, intermediate=8192, vocab=50257, sequence=1024)
MODELS = {
    "tinyllama-1b": _ONE_B,
    "gemma3-1b": _ONE_B,
    "llama3.2-1b": _ONE_B,
    "deepseek-r1-1.5b": replace(_ONE_B, layers=26, hidden=2304, intermediate=9216),
}


@frozen
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
    compute = model.flops / (machine.flops_per_s * machine.compute_share)
    memory = model.memory_bytes / (machine.memory_bytes_per_s * machine.memory_share)
    io = weights / (machine.storage_bytes_per_s * machine.storage_share)
    transfer = weights / (machine.transfer_bytes_per_s * machine.transfer_share)
    sent = model.sequence * model.hidden * model.element_bytes
    network = sent / (machine.network_bytes_per_s * machine.network_share)
    joules = edgeprofiler_energy(
        flops=model.flops, bytes=model.memory_bytes, joules_per_flop=machine.joules_per_flop,
        joules_per_byte=machine.joules_per_byte,
    )  # fmt: skip
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
        energy_j=float(joules),
    )


def edge_rows(name: str, model: EdgeModel, hardware: EdgeHardware, precisions: tuple[str, ...]) -> list[dict[str, Any]]:
    """Its table: a row for each precision."""
    rows = []
    for precision in precisions:
        found = edge_profile(replace(model, element_bytes=PRECISIONS[precision]), hardware)
        rows.append({"device": hardware.name, "model": name, "precision": precision, **asdict(found)})
    return rows


def edge_model(graph: Graph, sequence: int) -> EdgeModel:
    """The integers of one of our models."""
    keys = {"layers": "layers", "hidden": "hidden_size", "intermediate": "intermediate_size", "vocab": "vocab_size"}
    found: dict[str, Any] = {name: graph.metadata.get(key) for name, key in keys.items()}
    missing = [keys[name] for name, value in found.items() if value is None]
    if missing:
        raise DomainError(
            f"EdgeProfiler needs {', '.join(missing)} of {graph.name}, which it does not have.",
            remedy="It knows transformers with one feed-forward size, such as llama-3.2-1b.",
        )
    return EdgeModel(**found, sequence=sequence)


def edge_hardware(device: Device) -> EdgeHardware:
    """The five rates of one of our devices, with its own utilisation and energies where its row states them."""
    peaks = [device.peaks[name] for name in ("f32", "f16", "bf16", "i8") if name in device.peaks]
    rates = {
        "flops_per_s": peaks[0] if peaks else None,
        "memory_bytes_per_s": device.memory.bandwidth_bytes_per_s if device.memory else None,
        "storage_bytes_per_s": device.storage_bytes_per_s,
        "transfer_bytes_per_s": _bandwidth(device.host_link),
        "network_bytes_per_s": _bandwidth(device.network_link),
    }
    missing = [name.removesuffix("_bytes_per_s").removesuffix("_per_s") for name, rate in rates.items() if rate is None]
    if missing:
        raise DomainError(
            f"EdgeProfiler needs five rates of {device.name}; not known: {', '.join(missing)}.",
            remedy=f"Give them in a device file of your own, or ask for one of its own: {', '.join(HARDWARE)}.",
        )
    shares = device.shares
    stated: dict[str, Sourced | None] = {
        **rates,
        "compute_share": shares.compute, "memory_share": shares.memory, "storage_share": shares.storage,
        "transfer_share": shares.host, "network_share": shares.network,
        "joules_per_flop": device.joules_per_flop, "joules_per_byte": device.joules_per_byte,
    }  # fmt: skip
    return EdgeHardware(name=device.name, **{name: float(rate) for name, rate in stated.items() if rate is not None})


def _bandwidth(link: Link | None) -> Sourced | None:
    return None if link is None else link.bandwidth_bytes_per_s


def _known(name: str) -> EdgeHardware:
    if name not in HARDWARE:
        raise UnknownNameError("EdgeProfiler hardware row", name, HARDWARE)
    return HARDWARE[name]


# EdgeProfiler's own answer for models and devices by name, to stand beside ours.

_SEQUENCE = 1024  # as EdgeProfiler's own models have it


def edgeprofiler_rows(
    models: Iterable[str], devices: Iterable[str], weights: Iterable[str] = (), prompt: int | None = None
) -> list[dict[str, Any]]:
    """Its table for every model, device and precision; one of its own names means its own row."""
    precisions = _precisions(tuple(weights))
    return [
        row
        for device, model in product(devices, models)
        for row in edge_rows(model, _asked(model, prompt), _meant(device), precisions)
    ]


def _precisions(weights: tuple[str, ...]) -> tuple[str, ...]:
    for name in weights:
        if name not in FORMATS:
            raise DomainError(f"EdgeProfiler has no format {name!r}.", remedy=f"It knows {', '.join(FORMATS)}.")
    return tuple(FORMATS[name] for name in weights or FORMATS)


def _asked(name: str, prompt: int | None) -> EdgeModel:
    if name in MODELS:
        return MODELS[name] if prompt is None else replace(MODELS[name], sequence=prompt)
    return edge_model(model_graph(name), _SEQUENCE if prompt is None else prompt)


def _meant(name: str) -> EdgeHardware:
    return HARDWARE[name] if name in HARDWARE else edge_hardware(device_for(name))
