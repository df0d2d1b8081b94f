"""Safetensors files made by hand."""

import json
import struct
from math import prod

BITS = {"F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "U8": 8, "I8": 8, "F8_E4M3": 8, "F4": 4, "F6_E2M3": 6}


def described(tensors: dict[str, tuple[str, list[int]]], metadata: dict | None = None) -> tuple[dict, int]:
    """The header's entries, and how many bytes of tensors follow."""
    entries, offset = {} if metadata is None else {"__metadata__": metadata}, 0
    for name, (kind, shape) in tensors.items():
        size = -(-prod(shape) * BITS[kind] // 8)
        entries[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    return entries, offset


def packed(entries, size: int = 0, pad: int = 0) -> bytes:
    raw = (entries if isinstance(entries, bytes) else json.dumps(entries).encode()) + b" " * pad
    return struct.pack("<Q", len(raw)) + raw + bytes(size)


def write(path, tensors: dict[str, tuple[str, list[int]]], metadata: dict | None = None) -> None:
    entries, size = described(tensors, metadata)
    raw = packed(entries)
    with path.open("wb") as file:
        file.write(raw)
        file.truncate(len(raw) + size)
