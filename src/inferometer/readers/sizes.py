"""From what a user asks to the sizes a graph is counted at."""

from collections.abc import Mapping
from dataclasses import replace

from inferometer.core.binding import Binding
from inferometer.core.graph import Graph
from inferometer.core.workload import Precision, Workload
from inferometer.errors import DomainError

_DEFAULT_PROMPT = 512
_FORMAT = "f32"


def bind(graph: Graph, workload: Workload, sizes: Mapping[str, int] | None = None) -> Binding:
    """The binding of a workload: batch, prompt and context, the model's own defaults, then what was asked by name."""
    defaults = graph.metadata.get("default_sizes", {})
    asked = {
        "batch": workload.batch,
        "query": workload.prompt or _DEFAULT_PROMPT,
        "context": workload.context or 0,
        "logits": 1,
        **defaults,
    }
    if workload.image is not None:
        asked |= dict.fromkeys(("image", "height", "width"), workload.image)
    known = graph.symbols
    for name in sizes or {}:
        if name not in known:
            raise DomainError(
                f"{graph.name} has no size {name!r}.", remedy=f"Its sizes: {', '.join(sorted(known)) or 'none'}."
            )
    chosen = {name: size for name, size in {**asked, **(sizes or {})}.items() if name in known}
    _require_all(graph, chosen)
    return Binding(sizes=chosen, precision=_filled(workload.precision, graph.precision or _FORMAT))


def _require_all(graph: Graph, chosen: Mapping[str, int]) -> None:
    """Every size that the model's inputs leave open must be given: there is no number to guess."""
    left = sorted(frozenset().union(*(tensor.symbols for tensor in graph.inputs)) - set(chosen))
    if left:
        raise DomainError(
            f"{graph.name} leaves open how large {_and(left)} {'is' if len(left) == 1 else 'are'}.",
            remedy=f"Say {' '.join(f'--size {name}=N' for name in left)}.",
        )


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _filled(asked: Precision, otherwise: str) -> Precision:
    """A model that names no format is counted in f32, as frameworks make it."""
    return replace(asked, weights=asked.weights or otherwise, activations=asked.activations or otherwise)
