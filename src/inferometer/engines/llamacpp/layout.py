"""Where fields lie in llama.cpp's parameter structures, found by the defaults it fills them with.

The structures grow from release to release, and a package of compiled code says nothing of its headers. The defaults
do: 512 tokens of context, 4 threads, a row of minus ones before the rope frequencies, f16 for both caches after an
empty callback. A field that is not found where its neighbours say it should be is None, and is not used.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from inferometer.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable

_UNSET = 0xFFFFFFFF
_MINUS_ONE = struct.unpack("<I", struct.pack("<f", -1.0))[0]
_DEFAULT_THREADS = 4
_F16 = 1


@frozen
class ContextFields:
    """Offsets in bytes in `llama_context_params`. The first four are the same in every release that has them."""

    context: int = 0
    batch: int = 4
    ubatch: int = 8
    sequences: int = 12
    threads: int  # those for prompts follow
    flash: int | None
    callback: int | None  # its argument follows
    type_k: int | None  # that of v follows


@frozen
class ModelFields:
    """Offsets in bytes in `llama_model_params`."""

    devices: int = 0
    layers: int = 16


@frozen
class TensorFields:
    """Offsets in bytes in `ggml_tensor`."""

    type: int = 0
    buffer: int = 8
    shape: int = 16
    op: int = 80
    sources: int
    count: int
    name: int


def context_fields(raw: bytes) -> ContextFields | None:
    """`raw` is what `llama_context_default_params` gives. None where it does not begin as it should."""
    words = struct.unpack(f"<{len(raw) // 4}I", raw[: len(raw) // 4 * 4])
    if words[:4] != (512, 2048, 512, 1):
        return None
    threads = _first(range(4, 12), lambda at: words[at] == words[at + 1] == _DEFAULT_THREADS)
    if threads is None:
        return None
    unset = _first(range(threads + 2, 20), lambda at: words[at : at + 4] == (_UNSET,) * 4)
    callback = _first(range(threads + 2, len(words) - 6), lambda at: _is_callback(words, at))
    return ContextFields(
        threads=threads * 4,
        flash=None if unset is None else unset * 4 + 12,
        callback=None if callback is None else callback * 4,
        type_k=None if callback is None else callback * 4 + 16,
    )


def _is_callback(words: tuple[int, ...], at: int) -> bool:
    """Two empty pointers, after a threshold that is off and before the types of the caches."""
    return (
        at % 2 == 0
        and words[at - 1] == _MINUS_ONE
        and words[at : at + 4] == (0, 0, 0, 0)
        and words[at + 4 : at + 6] == (_F16, _F16)
    )


def model_fields(raw: bytes) -> ModelFields | None:
    """`raw` is what `llama_model_default_params` gives: two empty pointers, layers, and a split by layer."""
    words = struct.unpack("<6I", raw[:24])
    sound = words[:4] == (0, 0, 0, 0) and words[4] in {0, 999, _UNSET} and words[5] == 1
    return ModelFields() if sound else None


def tensor_fields(*, name_at: int, sources: int = 10, parameters: int = 64) -> TensorFields | None:
    """`name_at` is where a tensor's name lies, by ggml itself: the sources, a view and the data lie before it."""
    flags = 84 + parameters
    first = (flags + 4 + 7) // 8 * 8
    expected = first + sources * 8 + 24
    return TensorFields(sources=first, count=sources, name=name_at) if name_at == expected else None


def _first(places: range, holds: Callable[[int], bool]) -> int | None:
    return next((place for place in places if holds(place)), None)
