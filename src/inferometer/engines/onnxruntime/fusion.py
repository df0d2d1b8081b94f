"""From the graph as the engine runs it back to the graph in the file: which nodes each kernel stands for.

Names of nodes change when they are fused; names of tensors mostly stay. So a node of the optimised graph stands for
what lies in the original one between the tensors it takes and the tensors it gives. Laying tensors out anew (NCHWc)
renames the tensors too but keeps the names of nodes; for that step the names decide, and what has vanished was
swallowed by the kernel that makes the last of its inputs.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import field

from inferometer.core.frozen import frozen
from inferometer.engines.base import served
from inferometer.engines.onnx_nodes import NodeRow, Topology

_LAYOUT_DOMAINS = frozenset({"com.microsoft.nchwc", "com.ms.internal.nhwc"})
_REORDERS = frozenset({"ReorderInput", "ReorderOutput"})
_OWN = _REORDERS | {"Reshape", "Transpose", "Cast", "MemcpyFromHost", "MemcpyToHost"}
_COPY = re.compile(r"_token_\d+$")  # a name that was taken already: `Conv_token_115`
_MADE_INTO_CONV = ("_bn", "_mul", "_add")  # a scale a channel becomes a depthwise convolution
_NOTHING = frozenset({"Identity", "Dropout"})  # no work at inference: gone means gone, not fused
_RANDOM = frozenset(
    {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli"}
)


@frozen
class Fusion:
    """`layers` by the name the engine prints. Nodes in none of them were computed at load, or are gone.

    `serves` are the layers for which kernels of the engine's own lay tensors out anew or convert them.
    """

    layers: Mapping[str, tuple[str, ...]]
    serves: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def needs_layout_step(optimised: Topology) -> bool:
    return any(node.domain in _LAYOUT_DOMAINS or node.kind in _REORDERS for node in optimised.nodes)


def map_fusion(original: Topology, optimised: Topology) -> Fusion:
    makers = {name: node for node in original.nodes for name in node.outputs}
    made = {name for node in optimised.nodes for name in node.outputs}
    given, strange = made | optimised.stored.keys(), made - makers.keys()
    constant = constant_nodes(original)
    before = {
        node.name: [makers[name] for name in node.inputs if name in makers and name not in given]
        for node in original.nodes
    }
    named = {node.engine_name: node for node in original.nodes}
    claimed: dict[str, str] = {}
    for kernel in optimised.nodes:
        roots = [makers[name] for name in kernel.outputs if name in makers]
        renamed = any(name in strange for name in kernel.inputs)
        nodes = [name for name in _between(kernel, roots, before, renamed=renamed) if name not in constant]
        if not nodes and kernel.kind not in _REORDERS and not any(name in makers for name in kernel.outputs):
            same = named.get(_stem(kernel.engine_name))
            nodes = [same.name] if same is not None and same.name not in constant else []
        for name in nodes:
            claimed.setdefault(name, kernel.engine_name)
    # By kernel, in the original's order.
    groups: dict[str, list[str]] = {node.engine_name: [] for node in optimised.nodes}
    for node in original.nodes:
        if node.name in claimed:
            groups[claimed[node.name]].append(node.name)
    grouped = {kernel: tuple(names) for kernel, names in groups.items()}
    return Fusion(layers=grouped)


def _between(
    kernel: NodeRow, roots: Sequence[NodeRow], before: Mapping[str, Sequence[NodeRow]], *, renamed: bool
) -> list[str]:
    """Original nodes from which the kernel's results come. `before` says which nodes make what a node needs.

    Only those on a way from the kernel's own inputs: others were merged with their like, and their result is taken from
    elsewhere. All of them where inputs were `renamed`, because then no such way is known.
    """
    behind: dict[str, NodeRow] = {}
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        if node.name not in behind:
            behind[node.name] = node
            waiting.extend(before[node.name])
    if not renamed:
        keep = {root.name for root in roots} | _reached(behind, set(kernel.inputs))
        behind = {name: node for name, node in behind.items() if name in keep}
    return [name for name, node in behind.items() if node.kind not in _NOTHING or node.kind == kernel.kind]


def _reached(nodes: Mapping[str, NodeRow], tensors: set[str]) -> set[str]:
    """Nodes that depend on the tensors, within the set."""
    known, reached = set(tensors), set[str]()
    for _ in nodes:
        fresh = {name for name, node in nodes.items() if name not in reached and known.intersection(node.inputs)}
        if not fresh:
            break
        reached |= fresh
        known.update(output for name in fresh for output in nodes[name].outputs)
    return reached


def _stem(name: str) -> str:
    """A name without what was added when the node was moved to another layout, copied or made into another kind."""
    name = _COPY.sub("", name).removesuffix("_nchwc").removesuffix("_nhwc").removeprefix("fused ")
    return name.removesuffix("/MatMulAddFusion")


def constant_nodes(topology: Topology) -> frozenset[str]:
    """Nodes that depend on nothing but what the file stores."""
    fixed, constant = set(topology.stored) - set(topology.inputs), set[str]()
    for node in topology.nodes:
        free = bool(node.inputs) and all(name in fixed for name in node.inputs) and node.kind not in _RANDOM
        if node.kind == "Constant" or (free and not node.results):
            constant.add(node.name)
            fixed.update(node.outputs)
    return frozenset(constant)


def map_layout(before: Topology, after: Topology, fusion: Fusion) -> Fusion:
    """The same for a graph whose tensors were laid out anew: `fusion` is that of the graph before."""
    named = {node.engine_name: node for node in before.nodes}
    makers = {name: node for node in before.nodes for name in node.outputs}
    kernel_of: dict[str, str] = {}
    for kernel in after.nodes:
        if kernel.kind in _REORDERS:
            continue
        same = _same(kernel, named, makers)
        if same is not None:
            kernel_of.setdefault(same.name, kernel.engine_name)
    order = {kernel.engine_name: index for index, kernel in enumerate(after.nodes)}
    for node in before.nodes:
        if node.name not in kernel_of:
            sources = {
                kernel_of[makers[name].name]
                for name in node.inputs
                if name in makers and makers[name].name in kernel_of
            }
            if sources:
                kernel_of[node.name] = max(sources, key=order.__getitem__)
    layers: dict[str, list[str]] = {kernel.engine_name: [] for kernel in after.nodes}
    for node in before.nodes:
        if node.name in kernel_of:
            layers[kernel_of[node.name]].extend(fusion.layers.get(node.engine_name, ()))
    return Fusion(layers={kernel: tuple(names) for kernel, names in layers.items()})


def _same(kernel: NodeRow, named: Mapping[str, NodeRow], makers: Mapping[str, NodeRow]) -> NodeRow | None:
    """The node that a kernel was before tensors were laid out anew.

    It keeps its name, or is named after its result: `conv1:0_nchwc`, `norm1_bn_nchwc`, `scale1_mul_nchwc`.
    """
    if kernel.engine_name in named:
        return named[kernel.engine_name]
    stem = _stem(kernel.engine_name)
    stems = [stem, *(stem.removesuffix(tail) for tail in _MADE_INTO_CONV if stem.endswith(tail))]
    for name in (*stems, *kernel.outputs):
        if name in makers:
            return makers[name]
    return next((named[name] for name in stems if name in named), None)


def with_served(original: Topology, optimised: Topology, fusion: Fusion) -> Fusion:
    """The same with what the engine's own kernels serve. A weight that it unpacks in every run is its own work too.

    Any other kernel that no node stands for is a piece of one: a function of the file became several.
    """
    users = optimised.users()
    takers = {
        node.engine_name: [user.engine_name for name in node.outputs for user in users.get(name, ())]
        for node in optimised.nodes
    }
    constant = constant_nodes(original)
    unpacked = {node.engine_name for node in original.nodes if node.name in constant}
    own = {node.engine_name for node in optimised.nodes if node.kind in _OWN or node.engine_name in unpacked}
    serves = served(takers, fusion.layers)
    pieces = {kernel: names for kernel, names in serves.items() if kernel not in own}
    return Fusion(
        layers={**fusion.layers, **pieces},
        serves={kernel: names for kernel, names in serves.items() if kernel in own},
    )
