"""What can be asked of llama.cpp beside the target's own fields, as text by name → values; and where it put a model."""

from __future__ import annotations

import ctypes
import re
from typing import TYPE_CHECKING, TypeVar

from inferometer.core.errors import DomainError, EngineError, UnknownNameError
from inferometer.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_Value = TypeVar("_Value")

# The types llama.cpp keeps a cache in, with their numbers in ggml's enumeration.
CACHE_TYPES = {
    "f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "iq4_nl": 20, "bf16": 30,
}  # fmt: skip
_FLASH = {"auto": -1, "off": 0, "on": 1}
_SWITCH = {"off": False, "on": True}
_APIS = {"auto": "auto", "direct": "direct", "server": "server"}


@frozen
class LlamaOptions:
    """`layers` are put on the accelerator; None: all where there is one. `api` is the door: C functions, or a server.

    `batch` is how many tokens of a prompt are given at once, `ubatch` how many are computed at once.
    """

    api: str = "auto"
    type_k: str = "f16"
    type_v: str = "f16"
    flash: int = -1
    layers: int | None = None
    batch: int = 2048
    ubatch: int = 512
    warmup: bool = False


def parse_options(given: Mapping[str, str]) -> LlamaOptions:
    """The names are those of llama.cpp's own command line where it has one."""
    known = ("api", "type_k", "type_v", "flash_attention", "n_gpu_layers", "n_batch", "n_ubatch", "warmup")
    for name in given:
        if name not in known:
            raise UnknownNameError("option of llama.cpp", name, known, listing=f"There are: {', '.join(known)}.")
    return LlamaOptions(
        api=_choice(given, "api", _APIS, "auto"),
        type_k=_type(given, "type_k"),
        type_v=_type(given, "type_v"),
        flash=_choice(given, "flash_attention", _FLASH, "auto"),
        layers=_number(given, "n_gpu_layers", least=0),
        batch=_number(given, "n_batch", least=1) or LlamaOptions().batch,
        ubatch=_number(given, "n_ubatch", least=1) or LlamaOptions().ubatch,
        warmup=_choice(given, "warmup", _SWITCH, "off"),
    )


def _type(given: Mapping[str, str], name: str) -> str:
    asked = given.get(name, "f16").casefold()
    _choice({name: asked}, name, CACHE_TYPES, "f16")
    return asked


def _choice(given: Mapping[str, str], name: str, values: Mapping[str, _Value], default: str) -> _Value:
    asked = given.get(name, default).casefold()
    if asked not in values:
        raise DomainError(
            f"llama.cpp's option {name} was given {given[name]!r}.", remedy=f"It takes: {', '.join(values)}."
        )
    return values[asked]


def _number(given: Mapping[str, str], name: str, *, least: int) -> int | None:
    if name not in given:
        return None
    text = given[name]
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise DomainError(
            f"llama.cpp's option {name} was given {text!r}.", remedy=f"It takes a whole number from {least} up."
        )
    return int(text)


# Which devices a model is put on, and what the engine's log says of where it went.

Devices = ctypes.Array[ctypes.c_void_p]  # handles, and an empty one at the end
_ACCELERATORS = frozenset({1, 2})  # a card of its own, or one that shares the host's memory
_ALL = 999
_OFFLOADED = re.compile(r"offloaded (\d+)/(\d+) layers")


def choose_devices(
    asked: str | None, layers: int | None, devices: Sequence[tuple[str, int, int]]
) -> tuple[str, Devices, int]:
    """The unit, the devices to use beside the CPU, and how many layers to put on them."""
    gpus = [(name, handle) for name, kind, handle in devices if kind in _ACCELERATORS and name != "BLAS"]
    unit = asked or ("gpu" if gpus else "cpu")
    kind, _, index = unit.partition(":")
    there = ["cpu", *(f"gpu:{index} ({name})" for index, (name, _) in enumerate(gpus))]
    if kind not in {"cpu", "gpu"} or (index and not index.isdigit()):
        raise EngineError(f"llama.cpp has no unit {unit!r}.", remedy=f"There are: {', '.join(there)}.")
    if kind == "cpu":
        if layers:
            raise DomainError(f"{layers} layers were asked for on an accelerator, and the unit cpu.")
        return "cpu", (ctypes.c_void_p * 1)(None), 0
    chosen = gpus if not index else gpus[int(index) : int(index) + 1]
    if not chosen:
        raise EngineError(
            f"llama.cpp sees no {unit} here.",
            remedy=f"There are: {', '.join(there)}. Builds for accelerators are packages of their own.",
        )
    handles = (ctypes.c_void_p * (len(chosen) + 1))(*(handle for _, handle in chosen), None)
    return unit, handles, _ALL if layers is None else layers


def placed_by_log(lines: Sequence[str], layers: int, unit: str) -> tuple[dict[str, int], tuple[str, ...]]:
    """Layers by where they are (the output counts as one), and a note where not all are where they were asked for."""
    match = next((found for line in lines if (found := _OFFLOADED.search(line))), None)
    there, total = (int(match[1]), int(match[2])) if match else (0, layers)
    placed = {name: count for name, count in (("gpu", there), ("cpu", total - there)) if count}
    if unit != "cpu" and there < total:
        return placed, (f"{total - there} of {total} layers run on the CPU.",)
    return placed, ()
