"""Live modules. This is the one module that imports torch, and only when a module is read."""

import inspect
import re
import warnings
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from inferometer.core.errors import FormatError, MissingDependencyError
from inferometer.core.graph import Graph
from inferometer.formats.torch.convert import program_graph
from inferometer.formats.torch.walk import program_of

_NAME = re.compile(r"[A-Za-z_][\w.]*")


def import_torch() -> Any:
    try:
        return import_module("torch")
    except ImportError as error:
        raise MissingDependencyError(
            f"Reading a live module needs torch, which cannot be imported: {error}.",
            remedy="pip install 'inferometer[torch]'",
        ) from None


def read_module(
    module: Any,
    example_inputs: tuple[Any, ...],
    *,
    kwargs: Mapping[str, Any] | None = None,
    name: str | None = None,
    dynamic_shapes: Any = None,
) -> Graph:
    """The graph of a `torch.nn.Module`, traced by torch.export with inputs of the shapes it takes.

    Tracing computes shapes only: neither weights nor inputs are touched, and a module on the meta device needs no
    memory at all. `dynamic_shapes` is torch.export's; sizes that it names (`torch.export.Dim("batch")`) keep their
    names in the graph. Without it every size is fixed. The module is traced in the mode it is in: `eval()` it first.
    """
    exported = export_module(module, example_inputs, kwargs=kwargs, dynamic_shapes=dynamic_shapes)
    given = _named_axes(module, example_inputs, kwargs or {}, dynamic_shapes)
    return program_graph(program_of(exported, name=name or type(module).__name__, given=given))


def read_exported(exported: Any, *, name: str = "program") -> Graph:
    """The graph of a `torch.export.ExportedProgram` that is in memory."""
    return program_graph(program_of(exported, name=name))


def export_module(
    module: Any, example_inputs: tuple[Any, ...], *, kwargs: Mapping[str, Any] | None = None, dynamic_shapes: Any = None
) -> Any:
    """The exported program of a module. Torch's errors while tracing are rephrased."""
    torch = import_torch()
    if not isinstance(module, torch.nn.Module):
        raise FormatError(
            f"A torch.nn.Module was expected, and this is a {type(module).__name__}.",
            remedy="Give a module and a tuple of inputs, or the path of a .pt2 file.",
        )
    if not isinstance(example_inputs, tuple):
        raise FormatError(
            f"Example inputs must be a tuple, and are a {type(example_inputs).__name__}.",
            remedy="Write (x,) for one input.",
        )
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # torch's remarks on how a module is written are no news about its work
            return torch.export.export(
                module, example_inputs, dict(kwargs or {}), dynamic_shapes=dynamic_shapes, strict=False
            )
    except Exception as error:
        # The first paragraph of a long message; torch appends how to debug torch.
        text = str(error).strip().split("\n\n")[0]
        text = " ".join(text.split())
        first_words = text if len(text) <= 600 else f"{text[:600]}…"
        raise FormatError(
            f"torch.export cannot trace {type(module).__name__}: {type(error).__name__}: {first_words}",
            remedy="If the message names a size, give it in dynamic_shapes or fix it; if it names control flow that "
            "depends on data, rewrite that with torch.cond, or export a part of the module that has none.",
        ) from error


def _named_axes(
    module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], dynamic_shapes: Any
) -> dict[tuple[str, int], str]:
    """The names that `dynamic_shapes` gives to axes of inputs. Torch calls an input by its argument and its place."""
    try:
        arguments = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return {}
    if isinstance(dynamic_shapes, list | tuple):
        dynamic_shapes = dict(zip(arguments, dynamic_shapes, strict=False))
    if not isinstance(dynamic_shapes, Mapping):
        return {}
    return {
        (path, axis): name
        for argument, value in arguments.items()
        for path, axis, name in _axes(argument, value, dynamic_shapes.get(argument))
    }


def _axes(path: str, value: Any, spec: Any) -> Iterator[tuple[str, int, str]]:
    """Named axes under one argument: a tensor's own, or those of the tensors in a list or dict."""
    if hasattr(value, "dtype"):
        axes = enumerate(spec) if isinstance(spec, list | tuple) else spec.items() if isinstance(spec, Mapping) else ()
        for axis, dim in axes:
            name = getattr(dim, "__name__", None)
            if isinstance(name, str) and _NAME.fullmatch(name):
                yield path, axis, name
    elif isinstance(value, Mapping) and isinstance(spec, Mapping):
        for key, item in value.items():
            yield from _axes(f"{path}_{key}", item, spec.get(key))
    elif isinstance(value, list | tuple) and isinstance(spec, list | tuple):
        for index, (item, inner) in enumerate(zip(value, spec, strict=False)):
            yield from _axes(f"{path}_{index}", item, inner)
