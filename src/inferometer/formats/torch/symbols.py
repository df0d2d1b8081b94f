"""Names for the sizes that a program leaves open. Torch numbers them (`s77`); a workload binds names.

A name that the caller gave stays. Without one, custom decides by where the size first stands: the batch comes first,
token ids are [batch, query], an image's sides are height and width. What custom does not cover is called by its place:
`x.1` is axis 1 of the input x. Sizes that only running the model tells (`u0`) keep torch's name.
"""

from collections.abc import Mapping, Sequence

from inferometer.core.dims import Dim, Symbol
from inferometer.formats.torch.program import ProgramValue

_CHANNELS = frozenset({1, 3, 4})
_WHOLE = frozenset({"i32", "i64"})


def name_symbols(
    inputs: Sequence[tuple[str, ProgramValue]], given: Mapping[tuple[str, int], str] | None = None
) -> tuple[dict[str, Dim], dict[str, str]]:
    """Our symbol for each of torch's, and for each of ours where it stands. `given` names axes of inputs."""
    ours: dict[str, Dim] = {}
    explained: dict[str, str] = {}
    given = given or {}
    indices = [(name, axis, value) for name, value in inputs for axis in range(len(value.shape))]
    indices.sort(key=lambda index: (index[0], index[1]) not in given)
    for name, axis, value in indices:
        size = value.shape[axis]
        if not isinstance(size, Symbol) or size.name in ours:
            continue
        usual = given.get((name, axis)) or _usual_at(value, axis)
        chosen = usual if usual is not None and usual not in explained else f"{name}.{axis}"
        ours[size.name] = Symbol(chosen)
        explained[chosen] = f"axis {axis} of input {name!r}, {size.name} in the program"
    return ours, explained


def _usual_at(value: ProgramValue, axis: int) -> str | None:
    shape, rank = value.shape, len(value.shape)
    if axis == 0:
        return "batch" if rank > 1 else None
    if rank == 4 and value.dtype not in _WHOLE and axis in {2, 3} and shape[1] in _CHANNELS:
        return "height" if axis == 2 else "width"
    return "query" if rank == 2 and value.dtype in _WHOLE else None
