"""Networks and interconnects: transfer time, n½, bandwidth–delay, bisection and hops."""

from typing import Annotated, Any

import numpy as np

from inferometer.known.formulas import quantities as q
from inferometer.known.formulas.registry import formula, require

_DALLY = "Dally & Towles 2004, Principles and Practices of Interconnection Networks"
_HOCKNEY = "Hockney 1994, The Communication Challenge for MPP"

Topology = Annotated[str, q.Quantity(unit="label", choices=("torus", "fat-tree", "dragonfly", "ring", "mesh"))]


@formula(
    row="13.1 Transfer time",
    source=_HOCKNEY,
    example={"bytes": 100e6, "bandwidth": 50e9, "latency": 1e-6},
    answer=0.002001,
)
def transfer_time(*, bytes: q.Bytes, bandwidth: q.Bandwidth, latency: q.Seconds = 0) -> q.Seconds:
    """The time to send a message.

    Derivation: the first byte arrives after the latency, the others follow at the bandwidth: M/BW + α.
    Units: B, B/s and s → s. Network rates are often in bits: 400 Gb/s is 50 GB/s.
    Ignores: contention, packets and their headers, and a protocol's change of mode between small and large messages.
    """
    return bytes / bandwidth + latency


@formula(
    row="13.1 Half-bandwidth size n½",
    source=_HOCKNEY,
    example={"bandwidth": 50e9, "latency": 1e-6},
    answer=50_000.0,
)
def half_bandwidth_size(*, bandwidth: q.Bandwidth, latency: q.SomeSeconds) -> q.SomeBytes:
    """The message size that gets half the bandwidth.

    Derivation: M/(M/BW + α) = BW/2 holds for M = BW·α. Below it latency rules, above it bandwidth.
    Units: B/s and s → B.
    Ignores: what the transfer time ignores.
    """
    return bandwidth * latency


@formula(
    row="13.1 Bandwidth-delay product",
    source="definition",
    example={"bandwidth": 50e9, "round_trip": 2e-6},
    answer=100_000.0,
)
def bandwidth_delay_product(*, bandwidth: q.Bandwidth, round_trip: q.SomeSeconds) -> q.SomeBytes:
    """Bytes that must be in flight to keep a link full.

    Derivation: the sender hears back after one round trip and could have sent BW·RTT by then.
    Units: B/s and s → B. The example is 400 Gb/s with 2 µs.
    Ignores: queues on the way, which lengthen the round trip as they fill.
    """
    return bandwidth * round_trip


@formula(
    row="13.2 Bisection BW",
    source=_DALLY,
    example={"nodes": 16, "link_bandwidth": 50e9, "topology": "torus"},
    answer=400e9,
)
def bisection_bandwidth(*, nodes: q.Count, link_bandwidth: q.Bandwidth, topology: Topology = "torus") -> q.Bandwidth:
    """The bandwidth between two halves of a network, for the worst cut in half.

    Derivation: count the links that the cut crosses. A k×k torus: each of k rows is a ring and is cut twice, 2k links.
    A ring: 2. A full fat tree: one link's worth for each node of a half, N/2. A full mesh: every pair, (N/2)². A
    balanced dragonfly (Kim et al. 2008) has an end of a global link for each node, N/2 links; half of them cross: N/4.
    Units: nodes, B/s of one link in one direction and a word → B/s in one direction.
    Ignores: routing, which may not use all of them, and taper: fat trees are often built with less above.
    """
    return _cut_links(nodes, topology) * link_bandwidth


def _cut_links(nodes: Any, topology: str) -> Any:
    require(nodes % 2 == 0, "nodes must be even to be cut in half", nodes=nodes)
    if topology == "torus":
        side = np.rint(nodes**0.5)
        require((side * side == nodes) & (side % 2 == 0), "a torus needs k × k nodes with an even k", nodes=nodes)
        return 2 * side
    if topology == "ring":
        return 2 + 0 * nodes  # as many results as there are networks
    return {"fat-tree": nodes / 2, "dragonfly": nodes / 4, "mesh": (nodes / 2) ** 2}[topology]


@formula(
    row="13.4 Topology cost",
    source=_DALLY,
    example={"hops": 3, "bytes": 1e6, "bandwidth": 50e9},
    answer=6e-5,
)
def topology_cost(*, hops: q.Count, bytes: q.Bytes, bandwidth: q.Bandwidth, latency: q.Seconds = 0) -> q.Seconds:
    """The time to send a message over several hops that each store it before they send it on.

    Derivation: each hop takes the whole transfer time, one after another: hops·(M/BW + α).
    Units: hops, B, B/s of a hop and s per hop → s.
    Ignores: cut-through, which nearly every modern switch does: it sends on what has come in, and the time is
    M/BW + hops·α.
    """
    return hops * transfer_time(bytes=bytes, bandwidth=bandwidth, latency=latency)
