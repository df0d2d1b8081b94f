"""A published name as words: without marks, makers and marketing, so that spellings of one device become equal."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from inferometer.core.device import Unit
from inferometer.core.frozen import frozen
from inferometer.known.load import parse_file

# The names that no rule gives: phones, boards, part numbers; words that say nothing; families of cloud instances.

_FILE = Path(__file__).parent.parent / "data" / "names.toml"


@frozen
class NameTable:
    """`devices`: another name → a chip or a row. `vendors`: a word → its maker."""

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
    # A target with its names → name and target.
    devices = {
        name: target
        for group in content["devices"].values()
        for name, target in [(name, target) for target, names in group.items() for name in names]
    }
    return NameTable(
        devices=devices,
        exact=content["exact"],
        vendors={word: vendor for vendor, words in content["vendors"].items() for word in words},
        noise=frozenset(content["noise"]["words"]),
        spellings=content["spellings"],
        unit_of_vendor=content["unit_of_vendor"],
        instances=content["instances"],
    )


_MARKS = re.compile(r"\((?:r|tm|c)\)|[®™©]")
_DATE = re.compile(r"\[\d{4}-\d{2}-\d{2}\]")
_PLUS = re.compile(r"(?<=[0-9a-z])\+(?![0-9a-z])")  # 8480+, MAX+ 395, but not CPU+iGPU
_WORD = re.compile(r"[0-9a-z]+")
_CLOCK = re.compile(r"\d+(?:\.\d+)?\s*[gm]hz")
_GPU_CORES = re.compile(r"\b\d+[- ]core gpu\b")
_TENSOR_CORES = re.compile(r"\btensor[- ]cores?\b")  # NVIDIA's, and no Tensor of Google's
_SIZE = re.compile(r"\d+g(?:b|ib)?")
_COUNT = (
    re.compile(r"^(\d+)\s*[x×]\s+"),  # 8x H100
    re.compile(r"\s[x×*]\s*(\d+)$"),  # 4090 24GB * 4
    re.compile(r"\(x\s*(\d+)\)$"),  # (x32)
    re.compile(r"\((\d+)x\b"),  # (10x 16GB)
)
_UNITS: tuple[tuple[Unit, re.Pattern[str]], ...] = (
    ("npu", re.compile(r"\bnpu\b|neural engine")),
    ("gpu", re.compile(r"\b[id]?gpu\b|\bradeon\b|\bgeforce\b")),
    ("cpu", re.compile(r"\bcpu\b")),
)


def plain(name: str) -> str:
    """Lower case, without trademark signs and dates, every dash a hyphen."""
    text = unicodedata.normalize("NFKC", _MARKS.sub(" ", name.lower())).replace("\u2011", "-").replace("\u2010", "-")
    return _PLUS.sub(" plus", _DATE.sub(" ", text)).replace("_", " ").strip()


def words_of(name: str) -> tuple[str, ...]:
    """The words that tell devices apart: `Intel® Core™ i7-1185G7 CPU-only` is i7 and 1185g7."""
    text = plain(name)
    for pattern in (*_COUNT, _CLOCK, _GPU_CORES, _TENSOR_CORES):
        text = pattern.sub(" ", text)
    return tuple(word for word in _split(text) if word not in name_table().noise)


def _split(text: str) -> Sequence[str]:
    return [name_table().spellings.get(word, word) for word in _WORD.findall(text)]


def words_of_row(name: str) -> tuple[str, ...]:
    """As `words_of`, of a name that is plain already: a row's, an alias's, one of the table's."""
    noise = name_table().noise
    return tuple(word for word in _WORD.findall(name) if word not in noise)


def is_size(word: str) -> bool:
    """Whether a word is a size or a kind of memory: 80gb, 64g, hbm3."""
    return bool(_SIZE.fullmatch(word)) or word.startswith("hbm")


def without_sizes(words: Sequence[str]) -> tuple[str, ...]:
    """The words less sizes of memory (80gb, hbm3), which stand anywhere in a name."""
    return tuple(word for word in words if not is_size(word))


def vendors_in(name: str) -> frozenset[str]:
    """Makers whose words a name has: a MacBook is Apple's."""
    known = name_table().vendors
    return frozenset(known[word] for word in _split(plain(name)) if word in known)


def count_in(name: str) -> int:
    """How many of the device a name speaks of; 1 unless it says otherwise, or describes cores."""
    text = plain(name)
    if _CLOCK.search(text):
        return 1  # "Cortex-A76 2.4GHz x 4" counts cores
    found = (pattern.search(text) for pattern in _COUNT)
    return next((int(match[1]) for match in found if match and 1 < int(match[1]) <= 4096), 1)


def units_in(name: str) -> tuple[Unit, ...]:
    """The units a name speaks of: `CPU+iGPU` is two, `NPU-only` one."""
    text = plain(name)
    return tuple(unit for unit, pattern in _UNITS if pattern.search(text))
