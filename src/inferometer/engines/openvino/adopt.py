"""Which nodes of the file each executed operation computes.

An operation lists what it was fused from, and leaves out nodes whose names were lost on the way: the convolution whose
norm was multiplied into its weights, the pieces of an activation that became one, a convolution in groups that became
one of each group. Whole operations have names that the engine made up (`HSwish_43274`, `Convolution_34387`). Both are
found by where they lie: nodes that no operation lists belong to the operations without a known name between the same
neighbours. Where there are none, a fused kernel keeps the names of the last nodes in it, so a node left out belongs to
the first kernel that needs its result.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from inferometer.core.frozen import frozen
from inferometer.engines.base import served
from inferometer.engines.onnx_nodes import NodeRow, Topology
from inferometer.engines.onnxruntime.fusion import constant_nodes
from inferometer.engines.openvino.executed import OUTSIDE, Executed, NameFlow, needed, running

# From the names that OpenVINO gives to its operations back to the nodes of the file.
#
# Where a node becomes several operations, the last has the node's name and those before it have made-up ones: so an
# operation with a made-up name belongs to the first named one after it.


def known_names(original: Topology) -> dict[str, str]:
    """Names that stand for a node: its own, those of its results, and those with the number of a result."""
    known: dict[str, str] = {}
    for node in original.nodes:
        for index, name in enumerate(node.outputs):
            known.setdefault(name, node.name)
            known.setdefault(f"{node.engine_name}.{index}", node.name)
        known[node.engine_name] = node.name
    return known


def own_names(consumers: Mapping[str, Sequence[str]], known: Mapping[str, str], *, at_most: int = 64) -> dict[str, str]:
    """By operation, the file's node. `consumers` in topological order; `known` are names that stand for a node."""
    nodes: dict[str, str] = {}
    steps: dict[str, int] = {}
    for name in reversed(list(consumers)):
        if name in known:
            nodes[name], steps[name] = known[name], 0
            continue
        after = [each for each in consumers[name] if each in nodes]
        nearest = min(after, key=steps.__getitem__, default=None)
        if nearest is not None and steps[nearest] < at_most:
            nodes[name], steps[name] = nodes[nearest], steps[nearest] + 1
    return nodes


def listed_layers(listed: str, own: Mapping[str, str]) -> tuple[str, ...]:
    """The nodes in `originalLayersNames`, each once."""
    return tuple(dict.fromkeys(own[name] for name in _listed(listed, own) if name in own))


def ends_made_up(listed: str, own: Mapping[str, str]) -> bool:
    """Whether the last name listed stands for no node: something was fused behind the nodes."""
    names = _listed(listed, own)
    return bool(names) and names[-1] not in own


def _listed(listed: str, own: Mapping[str, str]) -> list[str]:
    """`originalLayersNames` is a list with commas; a name may hold commas too, and the longest known one is taken."""
    pieces = listed.split(",") if listed else []
    names: list[str] = []
    start = 0
    while start < len(pieces):
        ends = range(min(len(pieces), start + 8), start, -1)
        end = next((end for end in ends if ",".join(pieces[start:end]) in own), start + 1)
        names.append(",".join(pieces[start:end]))
        start = end
    return names


ENGINES_OWN = frozenset({"Reorder", "Convert", "Transpose"})  # kinds of operations that the engine puts in
_SHAPES = frozenset({"Shape", "Size"})
_NO_WORK = frozenset({"Identity", "Dropout", "Reshape", "Flatten", "Squeeze", "Unsqueeze"})
_PRODUCTS = frozenset({"MatMul", "Gemm"})
_HEAVY = {"Convolution": frozenset({"Conv"}), "Deconvolution": frozenset({"ConvTranspose"}),
          "FullyConnected": _PRODUCTS, "MatMul": _PRODUCTS}  # fmt: skip
_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})
_SEQUENCES = frozenset({"TensorIterator", "RNNSeq", "LSTMSequence", "GRUSequence"})
_TAIL, _GIVEN, _TAKEN = "\0tail", "\0given", "\0taken"  # no node has such a name


@dataclass(slots=True, kw_only=True)
class _Found:
    kernel_of: dict[str, str] = field(default_factory=dict)  # by node
    same_as: dict[str, str] = field(default_factory=dict)  # kernels that compute the same nodes as another


@frozen
class Role:
    """The nodes a kernel computes; one of the engine's own lays out or converts what they take or give."""

    layers: tuple[str, ...] = ()
    own: bool = False


def kernel_roles(
    original: Topology | None, executed: Sequence[Executed], own: Mapping[str, str], ran: Sequence[str]
) -> dict[str, Role]:
    """By kernel that `ran`. Without an ONNX file the names of `own` are the layers."""
    if original is not None:
        layers = adopt(original, executed, own, ran)
    else:
        layers = {op.name: listed_layers(op.originals, own) for op in executed}
    kinds = {op.name: op.kind for op in executed}
    serves = served({op.name: op.takers for op in executed}, layers)

    def role(name: str) -> Role:
        if layers.get(name):
            return Role(layers=layers[name])
        return Role(layers=serves[name], own=True) if name in serves and kinds[name] in ENGINES_OWN else Role()

    return {name: role(name) for name in ran}


def adopt(
    original: Topology, executed: Sequence[Executed], own: Mapping[str, str], ran: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """The nodes of each kernel that `ran`, in the file's order. `own` are the names that stand for a node.

    Several kernels may have the same nodes, and compute them together. A node in none of them was computed when the
    model was loaded, or is gone.
    """
    found, moving = _Found(), running(executed)
    kernels = [moving[name] for name in ran if name in moving]
    for op in kernels:
        for name in listed_layers(op.originals, own):
            found.same_as[op.name] = found.kernel_of.setdefault(name, op.name)
    folded = _known_at_load(original) - found.kernel_of.keys()
    rows = [node for node in original.nodes if node.name not in folded and node.inside is None]
    kinds = {op.name: op.kind for op in kernels} | {node.name: node.kind for node in rows}

    def flows() -> tuple[NameFlow, NameFlow]:
        return _engine_flow(moving, frozenset(ran), own, found), _file_flow(original, rows, found.kernel_of)

    _claim_heavy(rows, kernels, found.kernel_of)
    _pair_heavy(*flows(), kinds, found.kernel_of)
    _pair_recurrent(*flows(), kinds, found)
    _match_between(*flows(), found)
    _give(original, ran, found.kernel_of, folded)
    layers: dict[str, list[str]] = {kernel: [] for kernel in ran}
    for node in original.nodes:
        if node.name in found.kernel_of:
            layers[found.kernel_of[node.name]].append(node.name)
    return {kernel: tuple(names or layers.get(found.same_as.get(kernel, ""), ())) for kernel, names in layers.items()}


def _claim_heavy(rows: Sequence[NodeRow], kernels: Sequence[Executed], kernel_of: dict[str, str]) -> None:
    """A convolution that lists only the norm after it is also the convolution before it."""
    place = {node.name: index for index, node in enumerate(rows)}
    makers = {name: node.name for node in rows for name in node.outputs}
    for op in kernels:
        wanted = _HEAVY.get(op.kind, frozenset())
        mine = [name for name, kernel in kernel_of.items() if kernel == op.name and name in place]
        if not wanted or any(rows[place[name]].kind in wanted for name in mine):
            continue
        behind: dict[str, None] = {}
        waiting = list(mine)
        while waiting:
            makes = (makers.get(tensor) for tensor in rows[place[waiting.pop()]].inputs)
            fresh = [name for name in makes if name and name not in kernel_of and name not in behind]
            behind.update(dict.fromkeys(fresh))
            waiting += fresh
        heavy = max((name for name in behind if rows[place[name]].kind in wanted), key=place.__getitem__, default=None)
        if heavy is not None:
            reached = {heavy}
            for name in sorted(behind, key=place.__getitem__):
                if any(makers.get(tensor) in reached for tensor in rows[place[name]].inputs):
                    reached.add(name)
            kernel_of.update(dict.fromkeys(reached, op.name))


@frozen
class _Between:
    """Names without a label, and the labels of their nearest neighbours on both sides."""

    names: Sequence[str]
    before: frozenset[str]
    after: frozenset[str]

    def beside(self, other: "_Between") -> bool:
        """Whether both lie between the same neighbours."""
        return bool(self.before & other.before) and bool(self.after & other.after)


def _between(flow: NameFlow) -> list[_Between]:
    before, after = flow.labels_before(), flow.labels_after()
    return [
        _Between(
            names=names,
            before=frozenset().union(*(before[name] for name in names)),
            after=frozenset().union(*(after[name] for name in names)),
        )
        for names in flow.unlabelled()
    ]


def _pair_heavy(engine: NameFlow, file: NameFlow, kinds: Mapping[str, str], kernel_of: dict[str, str]) -> None:
    """Convolutions one after the other, all without a known name: as many nodes as kernels, so one each."""
    pieces = _between(file)
    for region in _between(engine):
        nodes = [name for piece in pieces if region.beside(piece) for name in piece.names]
        for wanted in {_HEAVY[kinds[name]] for name in region.names if kinds.get(name) in _HEAVY}:
            kernels = [name for name in region.names if _HEAVY.get(kinds.get(name, "")) == wanted]
            heavy = [name for name in nodes if kinds[name] in wanted]
            if len(kernels) == len(heavy) > 1 and engine.in_line(kernels) and file.in_line(heavy):
                kernel_of.update(zip(heavy, kernels, strict=True))


def _pair_recurrent(engine: NameFlow, file: NameFlow, kinds: Mapping[str, str], found: _Found) -> None:
    """A loop over a sequence is the one recurrent node between the same neighbours. One that runs both ways is two.

    Neighbours are compared node by node: what is computed once for several of them makes one piece of all of these.
    """
    before, after = file.labels_before(), file.labels_after()
    nodes = [name for name in file.before if name not in file.labels and kinds.get(name) in _RECURRENT]
    for region in _between(engine):
        loops = [name for name in region.names if kinds.get(name) in _SEQUENCES]
        beside = [
            name
            for name in nodes
            if before[name] & region.before and (after[name] & region.after) - ({OUTSIDE} if len(nodes) > 1 else set())
        ]
        if len(loops) == len(beside) == 1:
            found.same_as[loops[0]] = found.kernel_of.setdefault(beside[0], loops[0])


def _match_between(engine: NameFlow, file: NameFlow, found: _Found) -> None:
    """Nodes without a kernel and kernels without a node, by the kernels before and after both.

    Kernels between which no node is left are pieces of the layer that they lead to.
    """
    order = {name: index for index, name in enumerate(engine.before)}
    pieces = _between(file)
    for region in _between(engine):
        kernels = [name for name in region.names if not name.endswith(_TAIL)]
        first = next(iter(kernels), region.names[0].removesuffix(_TAIL))
        nodes = [name for piece in pieces if region.beside(piece) for name in piece.names]
        for name in nodes:
            found.kernel_of.setdefault(name, first)
        following, earlier = region.after & order.keys(), region.before & order.keys()
        if nodes:
            leader: str | None = found.kernel_of[nodes[0]]
        elif following:
            leader = min(following, key=order.__getitem__)
        else:
            leader = max(earlier, key=order.__getitem__, default=None)
        if leader is not None:
            found.same_as.update(dict.fromkeys(kernels, leader))


def _engine_flow(
    moving: Mapping[str, Executed], ran: Collection[str], own: Mapping[str, str], found: _Found
) -> NameFlow:
    """The kernels that ran, without those the engine put in. One that ends in a name made up goes on in a tail."""
    labels = {**found.same_as, **{kernel: kernel for kernel in found.kernel_of.values()}}
    passed: set[str] = set()
    tails: dict[str, str] = {}
    for name, op in moving.items():
        listed = listed_layers(op.originals, own)
        if op.is_end:
            labels[name] = OUTSIDE
        elif name not in ran or (not listed and name not in labels and (op.kind in ENGINES_OWN or not op.originals)):
            passed.add(name)
        elif listed:
            labels.setdefault(name, found.kernel_of[listed[0]])
        if name in labels and name in ran and ends_made_up(op.originals, own):
            tails[name] = name + _TAIL
    before: dict[str, list[str]] = {}
    for name, sources in needed(moving).items():
        before[name] = [tails.get(source, source) for source in sources]
        if name in tails:
            before[tails[name]] = [name]
    return NameFlow(before=before, labels=labels).without(passed)


def _file_flow(original: Topology, rows: Sequence[NodeRow], kernel_of: Mapping[str, str]) -> NameFlow:
    """The file's nodes, without nodes that only pass on what they are given."""
    makers = {name: node.name for node in rows for name in node.outputs} | dict.fromkeys(original.inputs, _GIVEN)
    before: dict[str, list[str]] = {_GIVEN: []}
    for node in rows:
        before[node.name] = list(dict.fromkeys(makers[name] for name in node.inputs if name in makers))
    before[_TAKEN] = [makers[name] for name in original.outputs if name in makers]
    passed = {node.name for node in rows if node.kind in _NO_WORK} - kernel_of.keys()
    return NameFlow(before=before, labels={**kernel_of, _GIVEN: OUTSIDE, _TAKEN: OUTSIDE}).without(passed)


def _give(original: Topology, ran: Iterable[str], kernel_of: dict[str, str], folded: set[str]) -> None:
    """Each node left over to the first kernel after it; where none is, to the last before it."""
    order = {kernel: index for index, kernel in enumerate(ran)}
    makers = {name: node.name for node in original.nodes for name in node.outputs}
    users = original.users()
    free = [node for node in original.nodes if node.name not in folded and node.kind not in _NO_WORK]
    for node in reversed(free):
        after = {
            kernel_of[user.name] for name in node.outputs for user in users.get(name, ()) if user.name in kernel_of
        }
        if after and node.name not in kernel_of:
            kernel_of[node.name] = min(after, key=order.__getitem__)
    for node in free:
        before = {kernel_of[makers[name]] for name in node.inputs if makers.get(name) in kernel_of}
        if before and node.name not in kernel_of:
            kernel_of[node.name] = max(before, key=order.__getitem__)
    for node in original.nodes:
        if node.inside in kernel_of:  # the engine reports a branch or a loop as a whole
            kernel_of.setdefault(node.name, kernel_of[node.inside])


def _known_at_load(original: Topology) -> set[str]:
    """Nodes that need only what is stored, and the shapes of tensors: these are known once the sizes are."""
    known = set(constant_nodes(original))
    fixed = set(original.stored) | {name for node in original.nodes if node.name in known for name in node.outputs}
    for node in original.nodes:
        if node.kind in _SHAPES or (node.inputs and not node.results and all(name in fixed for name in node.inputs)):
            known.add(node.name)
            fixed.update(node.outputs)
    return known
