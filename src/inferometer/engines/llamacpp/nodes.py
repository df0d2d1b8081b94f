"""What llama.cpp computed, node by node, as kernels that name the model's layers.

A GGUF file has tensors and no nodes, so a layer is the stem of its tensors: `blk.3.attn_q`, `ffn_norm`, `output`. What
has no tensor is named beside them by `WEIGHTLESS`: `blk.3.attn`, `blk.3.rope`, `blk.3.ffn_act`, `blk.3.attn_residual`.
"""

import ctypes
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from inferometer.core.frozen import frozen
from inferometer.engines.base import Kernel
from inferometer.engines.llamacpp.library import Library, Observer, TensorFields

# They give another view of what is there: nothing is computed.
FREE = frozenset({"NONE", "RESHAPE", "VIEW", "PERMUTE", "TRANSPOSE"})

# Nodes without a weight, by their kind or the beginning of their name; the first that fits.
WEIGHTLESS: tuple[tuple[str, str], ...] = (
    (r"kind:ROPE\b", "rope"),
    (r"kind:(FLASH_ATTN_EXT|SOFT_MAX)\b", "attn"),
    (r"cache_|kq|kqv|[QKV]cur|k_|v_|q_|attn_", "attn"),
    (r"ffn_inp", "attn_residual"),
    (r"l_out|ffn_residual", "ffn_residual"),
    (r"ffn_moe", "ffn_moe"),
    (r"ffn_", "ffn_act"),
    (r"ssm|conv|mamba", "ssm"),
)
# Engine's names of nodes whose weight lies elsewhere in the file, because it is shared.
_SHARED = {("result_output", "token_embd"): "output"}
_NORMS = frozenset({"NORM", "RMS_NORM", "L2_NORM", "GROUP_NORM"})
# They touch a part of what their sources hold, and the engine does not say how much.
_PARTIAL = frozenset({"GET_ROWS", "SET_ROWS", "MUL_MAT_ID", "ADD_ID"})
_NUMBER = re.compile(r"(?:-|_l)(\d+)(?:\s|$)")
_ANONYMOUS = re.compile(r"node_\d+$")
_WEIGHT = re.compile(r"(?P<stem>.+)\.(?:weight|bias|scale|input_scale|scales)$")


@frozen
class NodeInput:
    """What a node reads. `key` distinguishes it from another of the same name within one pass."""

    name: str
    key: int = 0
    dtype: str | None = None
    nbytes: int | None = None


@frozen
class LlamaNode:
    name: str
    kind: str
    key: int = 0
    sources: tuple[NodeInput, ...] = ()
    shape: tuple[int, ...] = ()
    dtype: str | None = None
    nbytes: int | None = None
    provider: str | None = None
    unit: str = "cpu"


def layers_of_nodes(nodes: Sequence[LlamaNode]) -> tuple[tuple[str, ...], ...]:
    """For each node of one pass, the layers it stands for."""
    layers: list[tuple[str, ...]] = []
    by_name: dict[str, tuple[str, ...]] = {}
    for node in nodes:
        layers.append(_stems(node) or _weightless(node) or _inherited(node, by_name))
        by_name[node.name] = layers[-1]
    used: dict[int, int] = {}
    for index, node in enumerate(nodes):
        for source in node.sources:
            used.setdefault(source.key, index)
    for index, node in enumerate(nodes):  # a norm, and the node after it that applies its weight
        after = used.get(node.key)
        if node.kind in _NORMS and not layers[index] and after is not None and after > index:
            layers[index] = _stems(nodes[after])
    return tuple(layers)


def _stems(node: LlamaNode) -> tuple[str, ...]:
    stems = (_stem(source.name) for source in node.sources)
    return tuple(dict.fromkeys(_SHARED.get((node.name, stem), stem) for stem in stems if stem is not None))


def _stem(name: str) -> str | None:
    match = _WEIGHT.match(name)
    if match:
        return None if match["stem"].startswith("rope_") else match["stem"]
    return name if name.startswith("blk.") and "(" not in name else None


def _weightless(node: LlamaNode) -> tuple[str, ...]:
    number = _number(node)
    if number is None:
        return ()
    name = node.sources[0].name if _ANONYMOUS.match(node.name) and node.sources else node.name
    for pattern, part in WEIGHTLESS:
        text = f"kind:{node.kind}" if pattern.startswith("kind:") else name
        if re.match(pattern, text):
            return (f"blk.{number}.{part}",)
    return ()


def _inherited(node: LlamaNode, by_name: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """A node without a name goes on with what an earlier one without a name made: `node_33 (reshaped)`."""
    if _ANONYMOUS.match(node.name) and node.sources:
        return by_name.get(node.sources[0].name.partition(" (")[0], ())
    return ()


def _number(node: LlamaNode) -> str | None:
    for name in (node.name, *(source.name for source in node.sources)):
        match = _NUMBER.search(name)
        if match:
            return match[1]
    return None


@dataclass(slots=True)
class _Row:
    node: LlamaNode
    layers: tuple[str, ...]
    samples: dict[int, float] = field(default_factory=dict)


class StepNodes:
    """Times of nodes, gathered step by step. A step may be several passes: a long prompt is read in pieces."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[tuple[str, int], _Row]] = {}
        self._steps: dict[str, int] = {}

    def begin(self, phase: str) -> None:
        self._steps[phase] = self._steps.get(phase, 0) + 1

    def add(self, phase: str, passed: Iterable[tuple[LlamaNode, float]]) -> None:
        """A pass of the step that was begun last."""
        entries = list(passed)
        layers = layers_of_nodes([node for node, _ in entries])
        rows, step = self._rows.setdefault(phase, {}), self._steps[phase]
        seen: dict[str, int] = {}
        for (node, seconds), stands_for in zip(entries, layers, strict=True):
            seen[node.name] = seen.get(node.name, 0) + 1
            row = rows.setdefault((node.name, seen[node.name]), _Row(node, stands_for))
            row.samples[step] = row.samples.get(step, 0.0) + seconds

    def take(self) -> Mapping[str, tuple[Kernel, ...]]:
        """Times by phase since the last call. A node that a step did not have took no time in it."""
        kernels = {phase: self._kernels(rows, self._steps[phase]) for phase, rows in self._rows.items()}
        self._rows, self._steps = {}, {}
        return kernels

    @staticmethod
    def _kernels(rows: Mapping[tuple[str, int], _Row], steps: int) -> tuple[Kernel, ...]:
        return tuple(
            Kernel(
                name=(name.strip() or row.node.kind) + (f"#{nth}" if nth > 1 else ""),
                kind=row.node.kind,
                samples_s=tuple(row.samples.get(step, 0.0) for step in range(1, steps + 1)),
                unit=row.node.unit,
                layers=row.layers,
                provider=row.node.provider,
                dtype=_dtype(row.node),
                bytes=_bytes(row.node),
                shapes=(row.node.shape,),
            )
            for (name, nth), row in rows.items()
        )


def _dtype(node: LlamaNode) -> str | None:
    """The format of its weight, else of its result."""
    weights = (source.dtype for source in node.sources if _stem(source.name))
    return next(weights, None) or node.dtype


def _bytes(node: LlamaNode) -> float | None:
    sizes = (node.nbytes, *(source.nbytes for source in node.sources))
    if node.kind in _PARTIAL or any(size is None for size in sizes):
        return None
    return float(sum(size for size in sizes if size is not None))


# Times each node of a pass by llama.cpp's evaluation callback. It makes the engine run node by node.

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
