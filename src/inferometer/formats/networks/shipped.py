"""The graphs that come with Inferometer: which there are, and one of them."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from inferometer.core.codec import settled
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph
from inferometer.formats.networks.archive import ArchiveTables, graph_in, read_tables
from inferometer.known.zoo import network_named

DATA = Path(__file__).parents[2] / "known" / "data" / "networks" / "packages"
INDEX = DATA / "index.json"
ENDING = ".json.gz"


@frozen
class ShippedNetwork:
    """Where the graphs of a network are: the file, the image that it usually gets, and every image it was traced at."""

    file: str
    image: int
    images: tuple[int, ...]
    parameters: int = 0  # at the usual image


class Packages(msgspec.Struct):
    """The index: of each package the release that was traced, and its networks by name."""

    releases: dict[str, str]
    networks: dict[str, dict[str, ShippedNetwork]]


@cache
def index() -> Packages:
    return msgspec.json.decode(INDEX.read_bytes(), type=settled(Packages))


def networks(package: str) -> dict[str, ShippedNetwork]:
    """The shipped networks of a package, by name."""
    return index().networks.get(package, {})


def is_shipped(name: str) -> bool:
    """Whether a name is a network's that comes with Inferometer, at the size that it says."""
    asked = network_named(name)
    entry = None if asked is None else networks(asked.package).get(asked.network)
    return asked is not None and entry is not None and asked.image in {None, *entry.images}


def packaged(name: str) -> str | None:
    """The full name of a network that one package alone has under a bare name: `timm:mobilenetv4_conv_small`."""
    bare = name.casefold()
    having = [package for package, known in index().networks.items() if bare in known]
    return f"{having[0]}:{bare}" if len(having) == 1 else None


def network_records() -> Iterator[dict[str, Any]]:
    """Every shipped network with what is known of it, in the fields that listings of models have."""
    for package, known in index().networks.items():
        for name, entry in known.items():
            yield {"name": f"{package}:{name}", "family": package, "parameters": entry.parameters}


def key_of(name: str, image: int) -> str:
    """What a graph is called in its file."""
    return f"{name}@{image}"


def shipped_graph(package: str, name: str, image: int) -> Graph:
    """The graph of a network that was traced at this image."""
    graph, _ = graph_in(_tables(networks(package)[name].file), key_of(name, image))
    return graph


@cache
def _tables(file: str) -> ArchiveTables:
    return read_tables(DATA / f"{file}{ENDING}")
