"""From `timm:resnet50` to its graph: as shipped, else through the installed package.

A graph is made for one size of image, which a name may say (`timm:resnet50@288`). The shipped graphs were traced from
the same package by the same code, so that both ways give one answer.
"""

from dataclasses import replace

from inferometer.core.errors import DomainError, MissingDependencyError, UnknownNameError
from inferometer.core.graph import Graph
from inferometer.formats.networks.packages import PACKAGES, built, installed
from inferometer.formats.networks.shipped import networks, shipped_graph
from inferometer.known.networks import NetworkName


def read_network(asked: NetworkName, *, image: int | None = None) -> Graph:
    """The graph at the size of image that was asked for, else at the network's usual one."""
    if None not in {image, asked.image} and image != asked.image:
        raise DomainError(f"{asked}@{asked.image} is asked for with images of {image} pixels.", remedy="Give one size.")
    side = image or asked.image
    shipped = networks(asked.package).get(asked.network)
    if shipped is not None and (side is None or side in shipped.images):
        side = side or shipped.image
        return _described(shipped_graph(asked.package, asked.network, side), side)
    if installed(asked.package):
        return _traced(asked, side)
    if shipped is None:
        raise _unknown(asked)
    sizes = ", ".join(map(str, shipped.images))
    raise MissingDependencyError(
        f"{asked} is at hand for images of {sizes} pixels, and not of {side}; another size needs {asked.package}, "
        "which is not installed.",
        remedy=f"pip install 'inferometer[torch]' {asked.package}, or ask for one of these sizes.",
    )


def _described(graph: Graph, image: int) -> Graph:
    """With the size of its image, which is no open size of the graph and is asked for all the same."""
    return replace(graph, metadata={**graph.metadata, "image": image, "default_sizes": {"image": image}})


def _traced(asked: NetworkName, image: int | None) -> Graph:
    from inferometer.formats.networks.tracing import MARK, traced  # noqa: PLC0415 - as above
    from inferometer.formats.torch.live import import_torch  # noqa: PLC0415 - a shipped graph needs no torch

    package = PACKAGES[asked.package]
    if asked.network not in package.names():
        raise _unknown(asked)
    module, shape = built(package, asked.network, image)
    pixels = import_torch().empty(MARK, *shape, device="meta")
    return _described(traced(module, (pixels,), name=str(asked)), shape[-1])


def _unknown(asked: NetworkName) -> UnknownNameError:
    known = {f"{asked.package}:{name}" for name in networks(asked.package)}
    if installed(asked.package):
        known |= {f"{asked.package}:{name}" for name in PACKAGES[asked.package].names()}
    listing = f"`inferometer models --where family={asked.package}` lists them."
    return UnknownNameError("model", str(asked), known, listing=listing)
