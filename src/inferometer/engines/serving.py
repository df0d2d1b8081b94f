"""An engine's own kernels and the layers they work for.

An engine lays tensors out anew, or converts their numbers, because the kernel that takes them wants them so. No node of
the model stands for that; its time belongs to the layer that takes the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def served(takers: Mapping[str, Sequence[str]], layers: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """For each kernel of `takers` without layers of its own, those of the first kernel that takes its result.

    `takers` stand in the order of execution. What only the model's outputs take serves the layer that made it.
    """
    makers: dict[str, str] = {}
    for kernel, following in takers.items():
        for taker in following:
            makers.setdefault(taker, kernel)
    served_layers: dict[str, tuple[str, ...]] = {}
    for kernel in reversed(list(takers)):
        if not layers.get(kernel):
            served_layers[kernel] = next(
                filter(None, (layers.get(taker) or served_layers.get(taker) for taker in takers[kernel])), ()
            )
    for kernel in takers:
        if served_layers.get(kernel) == ():
            maker = makers.get(kernel, "")
            served_layers[kernel] = layers.get(maker) or served_layers.get(maker, ())
    return {kernel: names for kernel, names in served_layers.items() if names}
