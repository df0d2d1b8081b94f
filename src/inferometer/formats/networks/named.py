"""The graphs that come with Inferometer under names of their own: `yolov8s`, `ffnet-40s`, `mobilesam/encoder`.

A part of a model that runs by itself is named after a slash. `yolov8s` is at hand for any side of the image that its
strides divide; most others for the one size of input that they were measured with.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inferometer.core.graph import Graph
    from inferometer.formats.networks.archive import ArchiveTables

DATA = Path(__file__).parents[2] / "known" / "data" / "networks" / "named"
INDEX = DATA / "index.json"
ENDING = ".json.gz"


@cache
def shipped_nets() -> dict[str, str]:
    """The file of each network, by name."""
    names: dict[str, str] = json.loads(INDEX.read_bytes())
    return names


def net_named(name: str) -> str | None:
    """The name as the index has it, for a name in any case of letters; None where there is no such network."""
    known = name if name in shipped_nets() else name.casefold()
    return known if known in shipped_nets() else None


def read_net(name: str) -> Graph:
    """The graph of a network, by its name in the index."""
    from inferometer.formats.networks.archive import graph_in  # noqa: PLC0415 - every model is looked for in the index

    graph, image = graph_in(_tables(shipped_nets()[name]), name)
    # a graph whose image is open says which side is usual; any other was traced at one
    sizes = {"default_sizes": {"image": image}} if "image" in graph.symbols else {"image": image} if image else {}
    return replace(graph, metadata={**graph.metadata, **sizes})


@cache
def _tables(file: str) -> ArchiveTables:
    from inferometer.formats.networks.archive import read_tables  # noqa: PLC0415 - as above

    return read_tables(DATA / f"{file}{ENDING}")
