"""Live modules. This is the one module that imports torch, and only when a module is read."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from inferometer.errors import FormatError, MissingDependencyError
from inferometer.readers.torch.convert import graph_of
from inferometer.readers.torch.walk import program_of

if TYPE_CHECKING:
    from inferometer.core.graph import Graph
    from inferometer.readers.torch.program import Program

__all__ = ["export_module", "import_torch", "read_exported", "read_module"]

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
    names in the graph. Without it every size is fixed.
    """
    exported = export_module(module, example_inputs, kwargs=kwargs, dynamic_shapes=dynamic_shapes)
    title = name or type(module).__name__
    return graph_of(_program(exported, title, example_inputs, kwargs, dynamic_shapes))


def read_exported(exported: Any, *, name: str = "program") -> Graph:
    """The graph of a `torch.export.ExportedProgram` that is in memory."""
    return graph_of(_program(exported, name, (), None, None))


def export_module(
    module: Any, example_inputs: tuple[Any, ...], *, kwargs: Mapping[str, Any] | None = None, dynamic_shapes: Any = None
) -> Any:
    """The exported program of a module. What torch says when it cannot trace is told in our words."""
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
        raise FormatError(
            f"torch.export cannot trace {type(module).__name__}: {type(error).__name__}: {_first_words(error)}",
            remedy="If the message names a size, give it in dynamic_shapes or fix it; if it names control flow that "
            "depends on data, rewrite that with torch.cond, or export a part of the module that has none.",
        ) from error


def _first_words(error: Exception, *, limit: int = 600) -> str:
    """The first paragraph of a long message; torch appends how to debug torch."""
    text = str(error).strip().split("\n\n")[0]
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[:limit]}…"


def _program(
    exported: Any, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None, dynamic_shapes: Any
) -> Program:
    torch = import_torch()
    users = [user for user in exported.graph_signature.user_inputs if isinstance(user, str)]
    leaves = list(_leaves((args, dict(kwargs or {})), torch))
    program = program_of(exported, name=name, given=_given(users, leaves, args, kwargs, dynamic_shapes, torch))
    return program
