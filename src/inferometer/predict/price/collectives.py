"""How long messages between devices take: the formulas of `formulas.distributed` over a link.

The floor of a message is the bytes a device must send over the link's bandwidth; latency, and the share of the
bandwidth that is reached, come on top.
"""

from __future__ import annotations

from typing import Any

from inferometer.core.device import Device, Link
from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.known import link as link_named
from inferometer.predict.price.price import require_rate

IN_A_MACHINE = 8  # devices in the largest rented machines: for links that do not say how many they join
_NETWORKS = frozenset({"network", "scale-out"})  # kinds of links that go from machine to machine
# The network between machines when none is named: a port a GPU, as in DGX H100, Azure ND H100 v5, EC2 P5; a desk's.
_USUAL_NETWORKS = {"server": "infiniband-ndr", None: "ethernet-10g"}


@frozen
class Route:
    """The links that messages go over: one within a machine, and one between machines.

    `between` is None where all of them are in one machine, or apart and joined by one link.
    """

    within: Link
    between: Link | None = None
    machine: int = IN_A_MACHINE

    def crossings(self, stage: int, stages: int) -> float:
        """The share of a pipeline's hand-overs that leave a machine: as many stages as fit whole are in one."""
        if self.between is None or stages < 2:
            return 0.0
        machines = -(-stages // max(1, self.machine // stage))
        return (machines - 1) / (stages - 1)


def sent_bytes(function: str, devices: int, nbytes: Any) -> Any:
    """Bytes that one device sends for a message of `nbytes`, by the ring algorithms.

    all_reduce 2·(n − 1)/n, reduce_scatter and all_gather (n − 1)/n, send all of it. For all_to_all `nbytes` is what
    the whole group has to deliver: each device holds 1/n of it and keeps 1/n of that.
    """
    share = {
        "all_reduce": 2 * (devices - 1) / devices,  # a reduce_scatter, then an all_gather of the sums
        "reduce_scatter": (devices - 1) / devices,
        "all_gather": (devices - 1) / devices,
        "all_to_all": (devices - 1) / devices / devices,  # of its 1/n all but the 1/n that stays
        "send": 1.0,  # from one stage of a pipeline to the next
    }
    if function not in share:
        raise DomainError(f"There is no collective {function!r}.", remedy=f"Known: {', '.join(share)}.")
    return share[function] * nbytes


def message_floor(function: str, devices: int, nbytes: Any, link: Link) -> Any:
    return sent_bytes(function, devices, nbytes) / bandwidth_of(link)


def message_seconds(  # noqa: PLR0913 - what a message is, and what hides it
    function: str, devices: int, nbytes: Any, link: Link, *, share: float = 1.0, overlap: float = 0.0
) -> Any:
    """Seconds of a message that the step waits for: `overlap` is the share that hides behind computing."""
    from inferometer.known.formulas.distributed import exposed_communication, ring_allreduce  # noqa: PLC0415 - as below
    from inferometer.known.formulas.network import transfer_time  # noqa: PLC0415 - only plans of several devices need them

    bandwidth = bandwidth_of(link) * share
    # Without a stated latency a message takes the time of its bytes: too little for small ones, right for large ones.
    latency = 0.0 if link.latency_s is None else link.latency_s.value
    if function == "all_reduce":
        time = ring_allreduce(n=devices, bytes=nbytes, bandwidth=bandwidth, latency=latency)
    else:
        # Round a ring each step waits for the one before, and has a latency of its own; an all_to_all goes straight.
        steps = 1 if function in {"send", "all_to_all"} else devices - 1
        sent = sent_bytes(function, devices, nbytes)
        time = steps * transfer_time(bytes=sent / steps, bandwidth=bandwidth, latency=latency) if steps else 0.0
    return exposed_communication(time=time, overlap=overlap)


def chosen_link(device: Device, link: Link | None = None) -> Link | None:
    """The link given, the devices' own, their network, or the host's bus."""
    # The quickest that a device may have comes first: NVLink and its kin before a network, and the bus as a last
    # resort.
    return link or device.peer_link or device.network_link or device.host_link


def route_of(device: Device, link: Link | None = None, devices: int = 1) -> Route:
    """The links between the devices of a plan, each with a bandwidth.

    Devices of one machine talk over the link given, or their own. Where they are more than a machine has, a network
    that is given lies between the machines; else their own network, or a usual one.
    """
    own = chosen_link(device)
    near = own if own is not None and link is not None and link.kind in _NETWORKS else link or own
    machine = IN_A_MACHINE if near is None else near.devices or IN_A_MACHINE
    if near is None or near.kind in _NETWORKS or devices <= machine:
        return Route(within=_known(device, link or own), machine=machine)
    far = link if link is not None and link.kind in _NETWORKS else device.network_link
    if far is None:
        far = link_named(_USUAL_NETWORKS.get(device.kind, _USUAL_NETWORKS[None]))
    return Route(within=_known(device, near), between=_known(device, far), machine=machine)


def _known(device: Device, link: Link | None) -> Link:
    if link is None or link.bandwidth_bytes_per_s is None:
        raise DomainError(
            f"{device.name} has no link to another device whose bandwidth is known.",
            remedy="Name one of the catalog's links.",
        )
    return link


def bandwidth_of(link: Link) -> float:
    if link.bandwidth_bytes_per_s is None:
        raise DomainError(f"The bandwidth of the link {link.name} is not known.")
    return require_rate(link.bandwidth_bytes_per_s, f"The bandwidth of {link.name}")
