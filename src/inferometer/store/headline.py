"""The columns that lists show of a profile, extracted once when it is stored; and the profile itself, compressed."""

import zlib
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from inferometer.core.codec import decode, encode
from inferometer.core.profile import Profile
from inferometer.store.errors import StoreError
from inferometer.store.names import clean

MOST_BYTES = 512_000_000  # of one profile's document: far above 100,000 ops with samples, far below a machine's memory
_LEVEL = 1  # packing a profile of thousands of layers must not take longer than writing it
_MOST_NAME = 200
_MOST_ID = 64
_MOST_INTEGER = 2**63 - 1
_MOST_PRECISION = 100
_MOST_WORKLOAD = 500
_SOME = 0.05  # a format that fewer of the parameters have is left out of the name
_SIZES = ("batch", "prompt", "generate", "context", "image", "phase", "arrival_per_s")
_TIMES = ("latency_s", "ttft_s", "tpot_s", "tokens_per_s")


def columns_of(profile: Profile) -> dict[str, Any]:
    summary, environment = profile.summary, profile.environment
    machine = None if environment is None else environment.machine
    # None where the outputs were not compared with anything.
    checked = profile.verification
    verified = None if checked is None or checked.status == "unchecked" else checked.status == "verified"
    return {
        "profile_kind": profile.kind,
        "model": clean(profile.model.name, most=_MOST_NAME),
        "device": clean(profile.device.name, most=_MOST_NAME),
        "runtime": clean(profile.runtime, most=_MOST_NAME),
        "machine": None if machine is None else clean(machine.called, most=_MOST_NAME),
        "machine_id": None if machine is None else clean(machine.id, most=_MOST_ID),
        "batch": _count(profile.workload.batch),
        "precision": clean(precision_of(profile), most=_MOST_PRECISION),
        "threads": None if environment is None else _count(environment.threads),
        "workload": clean(workload_of(profile), most=_MOST_WORKLOAD),
        "disturbed": None if environment is None else environment.disturbed,
        "verified": verified,
        "peak_memory_bytes": _count(summary.peak_memory_bytes),
        **{name: getattr(summary, name) for name in _TIMES},
    }


def precision_of(profile: Profile) -> str | None:
    """The formats of the weights, most of the parameters first, and the one computed in where it is another."""
    chosen = profile.workload.precision
    stored = [name for name, share in profile.model.weight_formats.items() if share >= _SOME]
    weights = "+".join(stored) or chosen.weights
    if chosen.activations in {None, weights}:
        return weights
    return chosen.activations if weights is None else f"{weights}/{chosen.activations}"


def workload_of(profile: Profile) -> str:
    """Every size that was given, as one text: two runs are of one kind where it is the same."""
    workload = profile.workload
    given = {name: getattr(workload, name) for name in _SIZES}
    shared = {name: count for name, count in asdict(workload.parallel).items() if count > 1}
    sizes = {**given, **dict(sorted(profile.sizes.items())), **shared}
    return " ".join(f"{name}={value}" for name, value in sizes.items() if value is not None)


def _count(value: int | None) -> int | None:
    """A count beyond what a database column holds stays in the document only."""
    return None if value is None or abs(value) > _MOST_INTEGER else value


def words_of(*names: str | None, tags: Iterable[str] = ()) -> str:
    """What a search looks in: all that names a run, in small letters."""
    return "\n".join(part.casefold() for part in (*names, *sorted(tags)) if part)


def packed(profile: Profile) -> tuple[bytes, int]:
    """The document, and how long it is unpacked."""
    data = encode(profile)
    return zlib.compress(data, _LEVEL), len(data)


def unpacked(data: bytes, *, run: str) -> Profile:
    inflate = zlib.decompressobj()
    try:
        text = inflate.decompress(data, MOST_BYTES)
    except zlib.error as error:
        damaged = f"The profile of run {run} is damaged ({error})."
        raise StoreError(damaged, remedy="Restore it from a copy.", told=damaged) from None
    if not inflate.eof:
        damaged = f"The profile of run {run} is longer than {MOST_BYTES:,} bytes, or cut off."
        raise StoreError(damaged, told=damaged)
    return decode(text, Profile)
