"""Operators that are given functions: branches, loops, and regions that only set a mode."""

from collections.abc import Callable
from dataclasses import replace

from inferometer.core.dims import Dim
from inferometer.core.errors import FormatError
from inferometer.core.graph import Op, Tensor
from inferometer.formats.torch.products import FORMS as PRODUCTS
from inferometer.formats.torch.program import Argument, AtenRow, ProgramBody, ProgramCall, Ref, refs_in
from inferometer.formats.torch.scope import Bound, ProgramScope, UnreadableCallError

_MAX_NESTING = 48


def forms(
    walk: Callable[[ProgramScope, ProgramBody], None],
) -> dict[str, Callable[[ProgramScope, ProgramCall, AtenRow], None]]:
    """Converters of the higher-order operators. `walk` converts a body in a scope."""

    def cond(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
        """One of two branches."""
        bodies, operands = _parts(call)
        _controlled(scope, call, row, [_inside(scope, call, body, operands) for body in bodies])

    def while_loop(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
        """Condition and body, as often as the data says: the number of rounds is not known."""
        bodies, operands = _parts(call)
        ops = tuple(op for body in bodies for op in _inside(scope, call, body, operands))
        _controlled(scope, call, row, [ops])

    def scan(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
        """A body for each entry of the tensors that are scanned, along their first axis."""
        bodies, operands = _parts(call)
        # `scan` is given a body, what is carried and what is scanned; `map` a body and what is mapped over
        after: list[Argument] = []
        for argument in call.arguments.values():
            after = [] if isinstance(argument, ProgramBody) else [*after, argument]
        index = 1 if call.target.endswith(".scan") else 0
        scanned = next(iter(refs_in(after[index])), None) if len(after) > index else None
        trips = scope.value(scanned, call).shape[:1] if scanned else ()
        if not trips:
            raise UnreadableCallError("nothing that is scanned")
        _controlled(scope, call, row, [_inside(scope, call, body, operands) for body in bodies], trips[0])

    def inlined(scope: ProgramScope, call: ProgramCall, _row: AtenRow) -> None:
        """A region that changes no numbers (no gradients, another autocast): its calls stand where it stands."""
        bodies, operands = _parts(call)
        if len(bodies) != 1:
            raise UnreadableCallError("not one body")
        inner = _enter(scope, call, bodies[0], operands)
        walk(inner, _placed_in(bodies[0], call.path))
        scope.placed += inner.placed
        for name, made in zip(call.outputs, bodies[0].outputs, strict=False):
            scope.bound[name] = inner.of(Ref(made), call)

    def flex(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
        """Attention with a score function; the pairs that its block mask leaves out are not known, so all count."""
        refs = call.refs
        named = dict(zip(("query", "key", "value"), refs[:3], strict=True))
        PRODUCTS["attention"](scope, replace(call, arguments=named), row.but("attention"))

    def _inside(scope: ProgramScope, call: ProgramCall, body: ProgramBody, operands: tuple[Ref, ...]) -> tuple[Op, ...]:
        inner = _enter(scope, call, body, operands)
        walk(inner, _placed_in(body, call.path))
        return tuple(placed.op for placed in inner.placed)

    wrappers = ("wrap_with_set_grad_enabled", "wrap_with_autocast", "invoke_subgraph", "hints_wrapper", "wrap",
                "tag_activation_checkpoint", "wrap_activation_checkpoint", "strict_mode")  # fmt: skip
    return {
        "higher_order.cond": cond,
        "higher_order.while_loop": while_loop,
        "higher_order.scan": scan,
        "higher_order.map_impl": scan,
        "higher_order.map": scan,
        "higher_order.flex_attention": flex,
        **{f"higher_order.{name}": inlined for name in wrappers},
    }


def _parts(call: ProgramCall) -> tuple[list[ProgramBody], tuple[Ref, ...]]:
    """The functions an operator is given, and the tensors after them, which they are called with."""
    arguments = list(call.arguments.values())
    indices = [index for index, argument in enumerate(arguments) if isinstance(argument, ProgramBody)]
    after = tuple(arguments[indices[-1] + 1 :]) if indices else ()
    return [arguments[index] for index in indices], refs_in(after)


def _enter(scope: ProgramScope, call: ProgramCall, body: ProgramBody, operands: tuple[Ref, ...]) -> ProgramScope:
    if scope.depth >= _MAX_NESTING:
        raise FormatError(f"The call {call.name!r} stands more than {_MAX_NESTING} functions deep.")
    inner = scope.inside(body.values, call.name)
    if len(body.inputs) > len(operands):
        raise FormatError(
            f"The call {call.name!r} ({call.target}) has a function of {len(body.inputs)} tensors and gives "
            f"{len(operands)}.",
            remedy="The file is damaged; save it again.",
        )
    for name, ref in zip(body.inputs, operands, strict=False):
        given, shape = scope.of(ref, call), inner.value(name, call).shape
        outer = scope.value(ref, call).shape
        if shape == outer:
            inner.bound[name] = given
        else:  # one entry of what is scanned
            dtype = inner.value(name, call).dtype
            inner.bound[name] = Bound(tensor=Tensor(name=inner.prefix + name, shape=shape, dtype=dtype))
    return inner


def _placed_in(body: ProgramBody, path: str) -> ProgramBody:
    """Calls that name no module stand in the one their operator stands in."""
    return replace(body, calls=tuple(call if call.path else replace(call, path=path) for call in body.calls))


def _controlled(
    scope: ProgramScope, call: ProgramCall, row: AtenRow, bodies: list[tuple[Op, ...]], trips: Dim | None = None
) -> None:
    if not bodies:
        raise UnreadableCallError("no body")
    flowing, stored = scope.operands(call.refs, call)
    within = [weight for body in bodies for op in body for weight in op.weights]
    weights = list({weight.name: weight for weight in (*stored, *within)}.values())
    scope.emit(call, row.but("control", bodies=tuple(bodies), trips=trips), flowing, weights)
