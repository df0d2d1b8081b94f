"""From what a user asks to the sizes a graph is counted at."""

from collections.abc import Mapping
from dataclasses import replace

from inferometer.core.binding import Binding
from inferometer.core.graph import Graph
from inferometer.core.sizes import default_prompt, in_graph_names, require_sizes
from inferometer.core.workload import Workload

_FORMAT = "f32"


def bind(graph: Graph, workload: Workload, sizes: Mapping[str, int] | None = None, *, complete: bool = True) -> Binding:
    """The binding of a workload: batch, prompt and context, the model's own defaults, then what was asked by name.

    A size that is still open is an error, or is left out of the binding where it need not be `complete`.
    """
    defaults = graph.metadata.get("default_sizes", {})
    prompt = workload.prompt or default_prompt(graph)
    asked = {
        "batch": workload.batch,
        **({} if prompt is None else {"query": prompt}),
        "context": workload.context or 0,
        "logits": 1,
        **defaults,
    }
    if workload.image is not None:
        asked |= dict.fromkeys(("image", "height", "width"), workload.image)
    asked |= in_graph_names(graph, sizes or {})
    known = graph.symbols
    chosen = {name: size for name, size in asked.items() if name in known}
    if complete:
        require_sizes(graph, chosen)
    # A model that names no format is counted in f32, as frameworks make it.
    formats, otherwise = workload.precision, graph.precision or _FORMAT
    filled = replace(formats, weights=formats.weights or otherwise, activations=formats.activations or otherwise)
    return Binding(sizes=chosen, precision=filled)
