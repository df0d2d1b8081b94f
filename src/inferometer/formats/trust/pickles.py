"""What a pickle would call, without running it.

A pickle names what it calls. As `torch.save` writes it, each name stands in the pickle as it is, so that reading the
names is enough; an instruction that puts a name together while it runs is refused, whatever it would put together.
"""

from __future__ import annotations

import pickletools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_OPCODES = 20_000_000
# Tensors, their storages and types, and plain containers: what PyTorch's own reader of bare weights lets a pickle name.
_REBUILT = "tensor tensor_v2 tensor_v3 parameter parameter_with_state qtensor sparse_tensor meta_tensor_no_storage "
_REBUILT += "device_tensor_from_numpy device_tensor_from_cpu_tensor nested_tensor wrapper_subclass"
_NAMES = frozenset({
    "collections OrderedDict", "collections Counter", "builtins set", "builtins bytearray", "builtins complex",
    "__builtin__ set", "__builtin__ bytearray", "__builtin__ complex", "_codecs encode", "torch Size", "torch Tensor",
    "torch device", "torch._tensor _rebuild_from_type_v2", "torch.nn.parameter Parameter",
    "torch.serialization _get_layout", "torch.storage TypedStorage", "torch.storage UntypedStorage",
    "torch.storage _LegacyStorage", *(f"torch._utils _rebuild_{name}" for name in _REBUILT.split()),
})  # fmt: skip
_TYPES = re.compile(
    r"torch(\.cuda|\.sparse|\.cuda\.sparse)? [A-Z][A-Za-z0-9]*(Storage|Tensor)"
    r"|torch (bool|bfloat16|(u?int|q?u?int|float|complex|bits)\d+\w*|per_(channel|tensor)_\w+)"
)
# How instructions name what is called by what lies on the stack, or outside the pickle.
_HIDDEN = frozenset({"STACK_GLOBAL", "INST", "OBJ", "EXT1", "EXT2", "EXT4", "NEWOBJ_EX"})


def strange_calls(pickled: bytes) -> Iterator[str]:
    """What is named in the pickle that is no part of a tensor, as `os.system`; a pickle that hides names says so."""
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(pickled)):
            if count > _MOST_OPCODES:
                yield "more instructions than any model has"
                return
            if opcode.name in _HIDDEN:
                yield f"a name that it puts together as it runs ({opcode.name})"
            elif opcode.name == "GLOBAL" and not _is_plain(str(argument)):
                yield str(argument).replace(" ", ".")
    except (ValueError, IndexError, KeyError, EOFError, OverflowError, UnicodeError, AttributeError) as error:
        yield f"something that cannot be followed ({error})"


def _is_plain(name: str) -> bool:
    return name in _NAMES or _TYPES.fullmatch(name) is not None
