"""The graphs that come with Inferometer under names of their own: `yolov8s`, `ffnet-40s`, `mobilesam/encoder`.

A part of a model that runs by itself is named after a slash. `yolov8s` is at hand for any side of the image that its
strides divide; most others for the one size of input that they were measured with.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path

import msgspec

from inferometer.core.graph import Graph
from inferometer.readers.zoo.archive import ArchiveTables, graph_in, read_tables

DATA = Path(__file__).parent / "data"
INDEX = DATA / "index.json"
ENDING = ".json.gz"


@cache
def shipped_nets() -> dict[str, str]:
    """The file of each network, by name."""
    return msgspec.json.decode(INDEX.read_bytes(), type=dict[str, str])


def net_named(name: str) -> str | None:
    """The name as the index has it, for a name in any case of letters; None where there is no such network."""
    known = name if name in shipped_nets() else name.casefold()
    return known if known in shipped_nets() else None


def read_net(name: str) -> Graph:
    """The graph of a network, by its name in the index."""
    graph, image = graph_in(_tables(shipped_nets()[name]), name)
    # a graph whose image is open says which side is usual; any other was traced at one
    sizes = {"default_sizes": {"image": image}} if "image" in graph.symbols else {"image": image} if image else {}
    return replace(graph, metadata={**graph.metadata, **sizes})


@cache
def _tables(file: str) -> ArchiveTables:
    return read_tables(DATA / f"{file}{ENDING}")
