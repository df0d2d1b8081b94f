"""Which inputs and outputs of a model make it a language model with a cache.

Two layouts are known, and both name the cache `past_key_values.N.key` and `.value` going in and `present.N.key` and
`.value` coming out: `input_ids` alone beside it, or with `attention_mask`, `position_ids` and `use_cache_branch`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inferometer.core.errors import FormatError
from inferometer.engines.base import Port

_PAST = re.compile(r"past(?:_key_values)?[._](\d+)[._](.*?(?:key|value))")
_PRESENT = re.compile(r"present(?:_key_values)?[._](\d+)[._](.*?(?:key|value))")
_BESIDE = ("attention_mask", "position_ids", "use_cache_branch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """`cache` has pairs of an input and the output that is its value in the next step."""

    ids: Port
    beside: Mapping[str, Port]
    cache: tuple[tuple[Port, str], ...]
    logits: Port
    last_only: bool  # logits of the last position alone
    vocabulary: int | None


def decoder_of(inputs: Sequence[Port], outputs: Sequence[Port], *, name: str) -> Decoder:
    by_name = {port.name: port for port in inputs}
    past = {match.groups(): port for port in inputs if (match := _PAST.fullmatch(port.name))}
    present = {match.groups(): port.name for port in outputs if (match := _PRESENT.fullmatch(port.name))}
    beside = {key: by_name[key] for key in _BESIDE if key in by_name}
    known = {"input_ids", *beside, *(port.name for port in past.values())}
    strange = [port.name for port in inputs if port.name not in known]
    logits = next((port for port in outputs if port.name == "logits"), None)
    if "input_ids" not in by_name or logits is None or not past or past.keys() != present.keys() or strange:
        raise FormatError(
            f"{name!r} is no language model with a cache that can be run: its inputs are "
            f"{_listed(inputs)} and its outputs {_listed(outputs)}.",
            remedy="It needs input_ids, past_key_values.N.key and .value, logits, and present.N.key and .value.",
        )
    size, positions = logits.shape[-1], logits.shape[-2] if len(logits.shape) > 2 else 1
    return Decoder(
        ids=by_name["input_ids"],
        beside=beside,
        cache=tuple((port, present[key]) for key, port in past.items()),
        logits=logits,
        last_only=positions == 1,
        vocabulary=size if isinstance(size, int) else None,
    )


def _listed(ports: Sequence[Port]) -> str:
    names = [port.name for port in ports]
    return ", ".join(names if len(names) < 7 else [*names[:6], f"… ({len(names)})"])


def empty_shape(port: Port, batch: int) -> tuple[int, ...]:
    """Of a cache with nothing in it: the batch is the first axis, and tokens lie along the one that is open."""
    sizes = [batch, *port.shape[1:]]
    return tuple(size if isinstance(size, int) else 0 for size in sizes)


def feeds(decoder: Decoder, ids: Sequence[int], cached: int, batch: int) -> dict[str, np.ndarray[Any, Any]]:
    """What goes in beside the cache: the same tokens in every row of the batch."""
    count = len(ids)
    rows = {
        "input_ids": np.tile(np.asarray(ids), (batch, 1)),
        "attention_mask": np.ones((batch, cached + count)),
        "position_ids": np.tile(np.arange(cached, cached + count), (batch, 1)),
        "use_cache_branch": np.array([cached > 0]),
    }
    ports = {"input_ids": decoder.ids, **decoder.beside}
    return {name: np.ascontiguousarray(rows[name], dtype=port.dtype) for name, port in ports.items()}
