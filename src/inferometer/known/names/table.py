"""The names that no rule gives: phones, boards, part numbers; words that say nothing; families of cloud instances."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from inferometer.core.frozen import frozen
from inferometer.known.load import parse_file

_FILE = Path(__file__).parent.parent / "data" / "names.toml"


@frozen
class NameTable:
    """`devices`: what something is also called → a chip or a row. `vendors`: a word → whose it is."""

    devices: Mapping[str, str]
    exact: Mapping[str, str]  # whole names
    vendors: Mapping[str, str]
    noise: frozenset[str]
    spellings: Mapping[str, str]
    unit_of_vendor: Mapping[str, str]
    instances: Mapping[str, Mapping[str, Any]]


@cache
def name_table() -> NameTable:
    content = parse_file(_FILE)
    devices = {name: target for group in content["devices"].values() for name, target in _each(group)}
    return NameTable(
        devices=devices,
        exact=content["exact"],
        vendors={word: vendor for vendor, words in content["vendors"].items() for word in words},
        noise=frozenset(content["noise"]["words"]),
        spellings=content["spellings"],
        unit_of_vendor=content["unit_of_vendor"],
        instances=content["instances"],
    )


def _each(group: Mapping[str, list[str]]) -> list[tuple[str, str]]:
    """A target with its names → name and target."""
    return [(name, target) for target, names in group.items() for name in names]
