"""Times each node of a pass by llama.cpp's evaluation callback. It makes the engine run node by node."""

from __future__ import annotations

import ctypes
import time
from typing import TYPE_CHECKING

from inferometer.engines.llamacpp.library import Observer
from inferometer.engines.llamacpp.nodes import FREE, LlamaNode, NodeInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from inferometer.engines.llamacpp.library import Library, TensorFields

_MANY_OPS = 64  # ROPE is among the first
_SOURCES, _PARAMETERS = 10, 64  # GGML_MAX_SRC, and GGML_MAX_OP_PARAMS in bytes


class NodeWatch:
    """Nodes of the pass that is running. `broken` says why nodes cannot be timed here, once one pass has been seen.

    The clock is read last before the engine goes on and first when it comes back. Views are left together with the
    node that follows them: they compute nothing, and a stop at each would cost more than they do.
    """

    def __init__(self, library: Library, *, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._library, self._clock = library, clock
        self.active = False
        self.broken: str | None = None
        self._fields: TensorFields | None = None
        # the numbers of the ops that compute nothing. ggml's list begins with NONE; the views come before the rope
        free = set()
        for number in range(_MANY_OPS):
            name = library.ggml_op_name(number).decode()
            if name in FREE:
                free.add(number)
            if name == "ROPE":
                break
        self._free = frozenset(free)
        self._start = 0
        self._seen: list[tuple[int, int]] = []
        self.callback = Observer(self._observe)

    def address(self) -> int:
        address = ctypes.cast(self.callback, ctypes.c_void_p).value
        assert address is not None  # noqa: S101 - a function that exists has an address
        return address

    def _observe(self, tensor: int, ask: bool, _: int | None) -> bool:
        if ask:
            if not self.active or (self._fields is None and not self._knows(tensor)):
                return False
            if ctypes.c_int.from_address(tensor + 80).value in self._free:
                return False
            self._start = self._clock()
            return True
        self._seen.append((tensor, self._clock() - self._start))
        return True

    def _knows(self, tensor: int) -> bool:
        """Whether tensors have the shape known here, by the first one that comes."""
        if self.broken is None:
            self._fields = self._library.tensor_layout(tensor, sources=_SOURCES, parameters=_PARAMETERS)
            if self._fields is None:
                self.broken = f"{self._library.label} has tensors of another shape than those known here"
        return self._fields is not None

    def take(self) -> list[tuple[LlamaNode, float]]:
        """The nodes of the last pass with their seconds. To be called before the next one: it reuses their memory."""
        fields = self._fields
        if fields is None:
            return []
        passed = [(self._node(tensor, fields), elapsed * 1e-9) for tensor, elapsed in self._seen]
        self._seen = []
        return passed

    def _node(self, tensor: int, fields: TensorFields) -> LlamaNode:
        library = self._library
        pointers = (ctypes.c_void_p * fields.count).from_address(tensor + fields.sources)
        buffer = ctypes.c_void_p.from_address(tensor + fields.buffer).value
        shape = (ctypes.c_int64 * 4).from_address(tensor + fields.shape)
        return LlamaNode(
            name=_name(tensor, fields),
            kind=library.ggml_op_desc(tensor).decode(),
            key=tensor,
            sources=tuple(self._source(pointer, fields) for pointer in pointers if pointer),
            shape=tuple(shape),
            dtype=self._dtype(tensor, fields),
            nbytes=library.ggml_nbytes(tensor),
            provider=library.ggml_backend_buffer_name(buffer).decode() if buffer else None,
            unit="cpu" if not buffer or library.ggml_backend_buffer_is_host(buffer) else "gpu",
        )

    def _source(self, tensor: int, fields: TensorFields) -> NodeInput:
        return NodeInput(
            name=_name(tensor, fields),
            key=tensor,
            dtype=self._dtype(tensor, fields),
            nbytes=self._library.ggml_nbytes(tensor),
        )

    def _dtype(self, tensor: int, fields: TensorFields) -> str:
        name: bytes = self._library.ggml_type_name(ctypes.c_int.from_address(tensor + fields.type).value)
        return name.decode()


def _name(tensor: int, fields: TensorFields) -> str:
    return ctypes.string_at(tensor + fields.name).decode(errors="replace")
