"""Which modules a fused kernel stands for, as torch's compiler records while it compiles.

Its graph keeps the module of each node (`nn_module_stack`), and its provenance tracking the nodes of each kernel, in
the order of the calls. Both are the compiler's internals: where a version lacks them, kernels have no layer and a note
says so.

A graph from the compiler's cache comes without its provenance, so the calls of each graph are kept beside it, under a
hash of the code that the compiler made and of the modules' names.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from contextlib import contextmanager, suppress
from hashlib import sha256
from importlib import import_module
from typing import TYPE_CHECKING, Any

from inferometer.core.cache import write_whole
from inferometer.core.json_text import parse_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_TIMERS = {"cpp.enable_kernel_profile": True}  # C++ kernels show themselves to the profiler, as Triton's do
_SETTINGS = {"trace.provenance_tracking_level": 1}
_MARK = "inferometer-modules-1"  # part of the compiler's key: a change of what is kept needs another number

Calls = list[tuple[str, tuple[str, ...]]]


@contextmanager
def compiler_calls(names: frozenset[str], *, timers: bool, folder: Path | None = None) -> Iterator[Calls]:
    """A list that fills, while graphs are compiled, with each kernel call and the modules (of `names`) behind it.

    The module with the most nodes in a kernel comes first. With `timers`, kernels on a CPU report themselves, which
    costs time: a plain run is compiled without. Without a `folder` to keep calls in, nothing comes from the cache.
    """
    calls: Calls = []
    try:
        config = import_module("torch._inductor.config")
        debug = import_module("torch._inductor.debug")
        lowering = import_module("torch._inductor.graph").GraphLowering
        wanted = {**_SETTINGS, **(_TIMERS if timers else {})}
        known = {key: value for key, value in wanted.items() if _has(config, key)}
        before = lowering.__dict__["save_output_code"]
    except (ImportError, AttributeError, KeyError):
        yield calls
        return
    modules: dict[str, str] = {}
    fresh: list[bool] = []

    def keep_modules(graph: Any) -> None:
        fresh.append(True)
        modules.clear()
        modules.update({node.name: path for node in graph.nodes if (path := _deepest(node, names))})

    def keep_calls(code: str) -> None:
        """Of a graph that was compiled just now, or that came from the cache: then no pass went over it."""
        kept = None if folder is None else folder / f"{_key(code, names)}.json"
        if fresh:
            fresh.clear()
            nodes_of: Mapping[str, list[str]] = getattr(debug, "_inductor_triton_kernel_to_post_grad_node_info", {})
            made = [_call(kernel, nodes, modules) for kernel, nodes in nodes_of.items()]
            if kept is not None:
                _write(kept, made)
        else:
            made = _read(kept) if kept is not None else []
        calls.extend(made)

    lowering.save_output_code = staticmethod(keep_calls)
    try:
        ours = config.patch({**known, "post_grad_custom_post_pass": _with_mark(keep_modules)})
        with ours, _cache(config, on=folder is not None):
            yield calls
    finally:
        lowering.save_output_code = before


@contextmanager
def _cache(config: Any, *, on: bool) -> Iterator[None]:
    if on:
        yield
        return
    with (
        config.patch(fx_graph_cache=False),
        import_module("torch._functorch.config").patch(enable_autograd_cache=False),
    ):
        yield


def _with_mark(keep: Any) -> Any:
    """The function as a pass that the compiler can put into its key: one that changes nothing in the graph."""
    try:
        base = import_module("torch._inductor.custom_graph_pass").CustomGraphPass
    except (ImportError, AttributeError):
        return keep
    members = {"__call__": lambda _self, graph: keep(graph), "uuid": lambda _self: _MARK}
    return type("KeepModules", (base,), members)()


def _call(kernel: str, nodes: Sequence[str], modules: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    name = call_name(kernel)
    most = Counter(modules[node] for node in behind(name, nodes) if node in modules).most_common()
    return name, tuple(module for module, _ in most)


def _key(code: str, names: frozenset[str]) -> str:
    return sha256("\0".join((code, *sorted(names))).encode()).hexdigest()[:32]


def _write(path: Path, calls: Calls) -> None:
    """Whole or not at all: another process may read it. What cannot be kept is made again next time."""
    with suppress(OSError):
        write_whole(path, json.dumps(calls).encode())


def _read(path: Path) -> Calls:
    """Nothing where the file is gone or broken: kernels then have no layer, and a note says so."""
    try:
        return [(str(name), tuple(map(str, layers))) for name, layers in parse_json(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError):
        return []


def _has(config: Any, key: str) -> bool:
    value = config
    for part in key.split("."):
        value = getattr(value, part, None)
    return value is not None


def _deepest(node: Any, names: frozenset[str]) -> str | None:
    stack = node.meta.get("nn_module_stack") or {}
    return module_path(str(list(stack.values())[-1][0]), names) if stack else None


def behind(name: str, nodes: Sequence[str]) -> Sequence[str]:
    """The nodes of a call: where the call is one op, those of that op, and not what was folded into its inputs."""
    op = name.partition("::")[2].strip("_")
    same = [node for node in nodes if op and re.sub(r"(_default)?(_\d+)?$", "", node).strip("_") == op]
    return same or nodes


def module_path(expression: str, names: frozenset[str]) -> str | None:
    """`L['self']._modules['model'].layers.0` is the module `model.layers.0`, where there is one of that name."""
    plain = re.sub(r"(?:\._modules)?\[['\"]?([^'\"\]]+)['\"]?\]", r".\1", expression)
    parts = [part for part in plain.split(".") if part]
    for start in range(len(parts)):
        path = ".".join(parts[start:])
        if path in names:
            return path
    return None


def call_name(call: str) -> str:
    """The compiler's name of a call as the profiler shows it: `extern_kernels.mm:2` is `aten::mm`."""
    name = re.sub(r":\d+$", "", call)
    if name.startswith("extern_kernels."):
        return "aten::" + name.removeprefix("extern_kernels.")
    if match := re.fullmatch(r"torch\.ops\.(\w+)\.(\w+)(?:\.\w+)?", name):
        return f"{match[1]}::{match[2]}"
    return name
