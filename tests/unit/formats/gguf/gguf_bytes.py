"""GGUF files made by hand, so that a test can make sound ones and broken ones byte by byte."""

import struct
from math import prod

SCALARS = {"u8": (0, "B"), "i8": (1, "b"), "u16": (2, "H"), "i16": (3, "h"), "u32": (4, "I"), "i32": (5, "i"),
           "f32": (6, "f"), "bool": (7, "?"), "u64": (10, "Q"), "i64": (11, "q"), "f64": (12, "d")}  # fmt: skip
TYPES = {"f32": (0, 1, 4), "f16": (1, 1, 2), "q4_0": (2, 32, 18), "q8_0": (8, 32, 34), "q4_k": (12, 256, 144),
         "q6_k": (14, 256, 210), "mxfp4": (39, 32, 17), "i32": (26, 1, 4)}  # fmt: skip


def text(value: str | bytes, order: str = "<") -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack(order + "Q", len(raw)) + raw


def typed(value, order: str = "<") -> bytes:
    """A value with its type in front: ("u8", 3), "text", True, 7, 0.5, ["a", "b"], or ("u16", [1, 2])."""
    if isinstance(value, tuple):
        kind, inner = value
        if isinstance(inner, list):
            number, letter = SCALARS[kind]
            return struct.pack(f"{order}IIQ{len(inner)}{letter}", 9, number, len(inner), *inner)
        number, letter = SCALARS[kind]
        return struct.pack(order + "I" + letter, number, inner)
    if isinstance(value, bool):
        return typed(("bool", value), order)
    if isinstance(value, int):
        return typed(("u32", value), order)
    if isinstance(value, float):
        return typed(("f32", value), order)
    if isinstance(value, str):
        return struct.pack(order + "I", 8) + text(value, order)
    if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
        return struct.pack(order + "IIQ", 9, 8, len(value)) + b"".join(text(entry, order) for entry in value)
    if isinstance(value, list) and all(isinstance(entry, list) for entry in value):
        inner = b"".join(typed(entry, order)[4:] for entry in value)
        return struct.pack(order + "IIQ", 9, 9, len(value)) + inner
    return typed(("i32", value), order)


def tensor_bytes(shape: tuple[int, ...], kind: str) -> int:
    _, elements, size = TYPES[kind]
    return prod(shape) // elements * size


def header(
    metadata: dict, tensors: dict[str, tuple[tuple[int, ...], str]], *, version: int = 3, order: str = "<"
) -> tuple[bytes, int]:
    """The header with its padding, and how many bytes of tensors follow. Shapes have the outermost axis first."""
    alignment = metadata.get("general.alignment", 32)
    parts = [b"GGUF", struct.pack(order + "IQQ", version, len(tensors), len(metadata))]
    parts += [text(key, order) + typed(value, order) for key, value in metadata.items()]
    offset = 0
    for name, (shape, kind) in tensors.items():
        parts.append(text(name, order) + struct.pack(f"{order}I{len(shape)}Q", len(shape), *reversed(shape)))
        parts.append(struct.pack(order + "IQ", TYPES[kind][0], offset))
        offset += -(-tensor_bytes(shape, kind) // alignment) * alignment
    raw = b"".join(parts)
    return raw + bytes(-len(raw) % alignment), offset


def write(path, metadata: dict, tensors: dict, **how) -> None:
    """The whole file; the tensors are a hole in it, so it takes no room."""
    raw, size = header(metadata, tensors, **how)
    with path.open("wb") as file:
        file.write(raw)
        file.truncate(len(raw) + size)
