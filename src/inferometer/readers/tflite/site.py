"""One operator where it stands: its tensors by number, and the op that is made of it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from inferometer.core.dims import Dim
from inferometer.core.graph import Op, Role, Tensor
from inferometer.readers.tflite.model import OperatorInfo, Quantization
from inferometer.readers.tflite.schema import ACTIVATIONS
from inferometer.readers.tflite.scope import Scope

__all__ = ["Site"]

_STORED = frozenset({"weight", "constant"})
_NARROW = frozenset({"i8", "i4", "i2", "u8", "u4"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    info: OperatorInfo
    scope: Scope
    name: str

    @property
    def options(self) -> Any:
        return self.info.options

    def given(self, number: int) -> int:
        """The tensor of an input, or −1 where it is left out."""
        return self.info.inputs[number] if number < len(self.info.inputs) else -1

    def shape(self, number: int) -> tuple[Dim, ...]:
        return self.scope.shape(self.info.inputs[number])

    def sizes(self, number: int, axes: int) -> tuple[int, ...]:
        """The shape of weights, which must have so many axes; a size that is not fixed counts as 1."""
        shape = self.shape(number)
        if len(shape) != axes:
            raise ValueError(f"input {number} has {len(shape)} axes where {axes} are due")
        return tuple(size if isinstance(size, int) else 1 for size in shape)

    def width(self, number: int) -> int:
        """The last axis."""
        last = self.shape(number)[-1]
        return last if isinstance(last, int) else 1

    def numbers(self, number: int) -> tuple[int, ...] | None:
        """The values of an input that holds sizes or axes, where the file tells them."""
        place = self.given(number)
        return None if place < 0 else self.scope.numbers(place)

    def is_stored(self, number: int) -> bool:
        return self.scope.is_constant(self.info.inputs[number])

    def role(self, number: int) -> Role:
        return self.scope.tensor(self.info.inputs[number]).role

    def outputs(self) -> tuple[Tensor, ...]:
        return tuple(self.scope.tensor(place) for place in self.info.outputs if place >= 0)

    def split(self) -> tuple[list[int], list[int]]:
        """All inputs by number: those that flow, then those that shape the op; and apart from them the parameters."""
        numbers = [number for number, place in enumerate(self.info.inputs) if place >= 0]
        flowing = [number for number in numbers if self.role(number) not in _STORED]
        shaping = [number for number in numbers if self.role(number) == "constant"]
        weights = [number for number in numbers if self.role(number) == "weight"]
        if not flowing:  # a constant that is worked on: it is what comes in
            return [*weights, *shaping], []
        return [*flowing, *shaping], weights

    def op(self, inputs: Iterable[int], weights: Iterable[int] = (), *, kind: str = "", **attributes: Any) -> Op:
        """The op, its inputs and weights by their numbers; those left out are passed over."""
        scope, operator = self.scope, self.info.operator
        read = [self.given(number) for number in inputs]
        held = [self.given(number) for number in weights]
        return Op(
            name=self.name,
            kind=kind or operator.kind,
            inputs=tuple(scope.tensor(place) for place in read if place >= 0),
            outputs=self.outputs(),
            weights=tuple(scope.weight(place) for place in held if place >= 0),
            attributes={**operator.attributes, **self.shared(), **attributes},
            source_type=operator.name,
        )

    def uncovered(self, reason: str) -> Op:
        inputs, weights = self.split()
        return self.op(inputs, weights, kind="custom", reason=reason)

    def shared(self) -> dict[str, Any]:
        """What any operator may have: its place, a fused activation, quantised or sparse tensors."""
        found: dict[str, Any] = {"index": self.info.index}
        if fused := ACTIVATIONS.get(self.options.get("fused", 0)):
            found["fused_activation"] = fused
        infos = [self.scope.info(place) for place in (*self.info.inputs, *self.info.outputs) if place >= 0]
        quantised = {entry.name: _as_attributes(entry.quantization) for entry in infos if entry.quantization}
        if quantised:
            found["quantization"] = quantised
        if sparse := tuple(entry.name for entry in infos if entry.sparse):
            found["sparse"] = sparse
        return found

    def arithmetic(self, x: int, weights: int) -> dict[str, str]:
        """f32 activations with narrow weights: kernels quantise the activations on the way in and multiply in i8."""
        stored, place = self.scope.info(self.info.inputs[weights]), self.info.inputs[weights]
        flowing = self.scope.info(self.info.inputs[x])
        hybrid = flowing.dtype == "f32" and stored.dtype in _NARROW and stored.quantization is not None
        return {"compute": "i8"} if hybrid and not self.scope.is_widened(place) else {}


def _as_attributes(found: Quantization) -> dict[str, Any]:
    entries = {
        "scales": found.scales, "zero_points": found.zero_points, "axis": found.axis, "details": found.details,
        "block": found.block,
    }  # fmt: skip
    return {key: value for key, value in entries.items() if value is not None}
