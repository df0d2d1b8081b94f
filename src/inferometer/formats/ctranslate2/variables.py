"""The variables of a `model.bin`: names, shapes and formats, and the value of a single number; weights are not read.

The file is a version, the name of the architecture's class and its revision, the variables with their bytes, and other
names of some of them; all numbers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, BinaryIO

from inferometer.core.errors import FormatError
from inferometer.core.frozen import frozen

if TYPE_CHECKING:
    from pathlib import Path

# By the number that the file has for a format: its name, and how Python unpacks one number of it.
_TYPES = {0: ("f32", "<f"), 1: ("i8", "<b"), 2: ("i16", "<h"), 3: ("i32", "<i"), 4: ("f16", "<e"), 5: ("bf16", "")}
_MOST = 1_000_000  # variables; a large model has some ten thousand
_LONGEST = 4096  # bytes of a name
_AXES = 8


@frozen
class Variable:
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    value: float | None = None  # of a single number


@frozen
class ModelBin:
    """`variables` by all of their names."""

    architecture: str  # the class that describes it: TransformerDecoderSpec
    variables: Mapping[str, Variable]
    aliases: Mapping[str, str]

    def number(self, name: str, default: float) -> float:
        variable = self.variables.get(name)
        return default if variable is None or variable.value is None else variable.value


def read_variables(path: Path) -> ModelBin:
    try:
        with path.open("rb") as file:
            return _parsed(file, path.stat().st_size)
    except FileNotFoundError:
        raise FormatError(f"There is no file {str(path)!r}.", remedy="Check the path.") from None
    except OSError as error:
        raise FormatError(f"{str(path)!r} cannot be opened: {error}.") from None
    except (struct.error, ValueError) as error:
        raise FormatError(
            f"{str(path)!r} cannot be read as CTranslate2's weights: {error}.",
            remedy="Convert the model again: `inferometer prepare CHECKPOINT --for ctranslate2 -o FOLDER`.",
        ) from None


def _parsed(file: BinaryIO, size: int) -> ModelBin:
    _whole(file)  # the version of the file format
    architecture = _text(file)
    _whole(file)  # the revision of the class
    count = _counted(_whole(file))
    variables: dict[str, Variable] = {}
    for _ in range(count):
        name = _text(file)
        variables[name] = _variable(file, name, size)
    aliases = {}
    for _ in range(_counted(_whole(file))):
        alias, name = _text(file), _text(file)
        if name not in variables:
            raise ValueError(f"{alias!r} is another name of {name!r}, which is not there")
        aliases[alias] = name
    named = {alias: variables[name] for alias, name in aliases.items()}
    return ModelBin(architecture=architecture, variables=variables | named, aliases=aliases)


def _variable(file: BinaryIO, name: str, size: int) -> Variable:
    (axes,) = struct.unpack("<B", file.read(1))
    if axes > _AXES:
        raise ValueError(f"{name!r} has {axes} axes")
    shape = tuple(_whole(file) for _ in range(axes))
    (kind,) = struct.unpack("<B", file.read(1))
    nbytes = _whole(file)
    if kind not in _TYPES:
        raise ValueError(f"{name!r} is of a type with the number {kind}")
    if file.tell() + nbytes > size:
        raise ValueError(f"{name!r} has {nbytes} bytes, which are not all there")
    dtype, code = _TYPES[kind]
    if shape or not code or nbytes != struct.calcsize(code):
        file.seek(nbytes, 1)
        return Variable(shape=shape, dtype=dtype, nbytes=nbytes)
    return Variable(shape=shape, dtype=dtype, nbytes=nbytes, value=struct.unpack(code, file.read(nbytes))[0])


def _whole(file: BinaryIO) -> int:
    number: int = struct.unpack("<I", file.read(4))[0]
    return number


def _counted(number: int) -> int:
    if number > _MOST:
        raise ValueError(f"it would have {number} variables")
    return number


def _text(file: BinaryIO) -> str:
    (length,) = struct.unpack("<H", file.read(2))
    if not 1 <= length <= _LONGEST:
        raise ValueError(f"a name has {length} bytes")
    raw = file.read(length)
    if len(raw) != length or raw[-1]:
        raise ValueError("a name does not end where it should")
    return raw[:-1].decode()
