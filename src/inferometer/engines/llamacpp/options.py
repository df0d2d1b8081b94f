"""What can be asked of llama.cpp beside the target's own fields: text by name → values."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

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
