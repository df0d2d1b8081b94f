# mypy: disable-error-code="misc"
# (torch may be absent where types are checked: its classes are then of no known type)
"""A network as a list of steps, each of which names the step it takes: short enough to write a network down in lines.

Only building the archive needs it. Batch norms are left out, because the engines that these networks come from fold
them into the convolution before; so each convolution has a bias.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU, "relu6": nn.ReLU6, "leaky": lambda: nn.LeakyReLU(0.1), "silu": nn.SiLU, "sigmoid": nn.Sigmoid,
}  # fmt: skip


class Sketch(nn.Module):
    """Every method adds a step and returns its number; the step 0 is the image. `width` of a step is its channels."""

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleDict()
        self.steps: list[tuple[Callable[..., Any], tuple[int, ...]]] = []
        self.widths = [channels]
        self.outputs: list[int] = []

    def forward(self, image: Any) -> tuple[Any, ...]:
        values = [image]
        for run, taken in self.steps:
            values.append(run(*(values[step] for step in taken)))
        return tuple(values[step] for step in self.outputs or [len(values) - 1])

    def width(self, step: int) -> int:
        return self.widths[step]

    def add(self, run: Callable[..., Any], width: int, *taken: int) -> int:
        self.steps.append((run, taken))
        self.widths.append(width)
        return len(self.steps)

    def layer(self, name: str, layer: nn.Module, width: int, *taken: int) -> int:
        name = f"{name}{len(self.steps)}"
        self.layers[name] = layer
        return self.add(layer, width, *taken)

    def conv(self, step: int, width: int, kernel: int = 1, stride: int = 1, *, padding: int | None = None,
             groups: int = 1, act: str | None = "relu") -> int:  # fmt: skip
        """A convolution that keeps the size but for its stride, and what follows it."""
        padding = kernel // 2 if padding is None else padding
        layer = nn.Conv2d(self.width(step), width, kernel, stride, padding, groups=groups)
        return self.act(self.layer("conv", layer, width, step), act)

    def depthwise(self, step: int, kernel: int = 3, stride: int = 1, *, act: str | None = "relu") -> int:
        return self.conv(step, self.width(step), kernel, stride, groups=self.width(step), act=act)

    def separable(self, step: int, width: int, kernel: int = 3, stride: int = 1, *, act: str | None = "relu") -> int:
        """As MobileNet has it: depthwise, then 1 × 1, each with its activation."""
        return self.conv(self.depthwise(step, kernel, stride, act=act), width, act=act)

    def upconv(self, step: int, width: int, kernel: int, stride: int, *, padding: int = 0, groups: int = 1) -> int:
        layer = nn.ConvTranspose2d(self.width(step), width, kernel, stride, padding, groups=groups)
        return self.layer("upconv", layer, width, step)

    def act(self, step: int, act: str | None) -> int:
        return step if act is None else self.layer(act, _ACTIVATIONS[act](), self.width(step), step)

    def pool(self, step: int, kernel: int, stride: int, padding: int = 0, *, ceil: bool = False) -> int:
        layer = nn.MaxPool2d(kernel, stride, padding, ceil_mode=ceil)
        return self.layer("pool", layer, self.width(step), step)

    def average(self, step: int, kernel: int, stride: int, padding: int = 0) -> int:
        return self.layer("average", nn.AvgPool2d(kernel, stride, padding), self.width(step), step)

    def everywhere(self, step: int) -> int:
        """The average over the whole image."""
        return self.layer("mean", nn.AdaptiveAvgPool2d(1), self.width(step), step)

    def linear(self, step: int, width: int, act: str | None = None, *, inputs: int | None = None) -> int:
        layer = nn.Linear(inputs or self.width(step), width)
        return self.act(self.layer("linear", layer, width, step), act)

    def flat(self, step: int) -> int:
        return self.add(lambda x: torch.flatten(x, 1), self.width(step), step)

    def local_norm(self, step: int) -> int:
        return self.layer("lrn", nn.LocalResponseNorm(5), self.width(step), step)

    def sum(self, one: int, other: int, act: str | None = None) -> int:
        return self.act(self.add(lambda x, y: x + y, self.width(one), one, other), act)

    def scale(self, one: int, by: int) -> int:
        return self.add(lambda x, y: x * y, self.width(one), one, by)

    def cat(self, *steps: int) -> int:
        return self.add(lambda *xs: torch.cat(xs, 1), sum(map(self.width, steps)), *steps)

    def halved(self, step: int, which: int) -> int:
        return self.add(lambda x: x.chunk(2, 1)[which], self.width(step) // 2, step)

    def resize(self, step: int, factor: float, mode: str = "nearest") -> int:
        return self.add(lambda x: functional.interpolate(x, scale_factor=factor, mode=mode), self.width(step), step)

    def pad_channels(self, step: int, width: int) -> int:
        missing = width - self.width(step)
        return self.add(lambda x: functional.pad(x, (0, 0, 0, 0, 0, missing)), width, step)

    def shuffle(self, step: int, groups: int) -> int:
        width = self.width(step)

        def shuffled(x: Any) -> Any:
            batch, _, height, across = x.shape
            parts = x.view(batch, groups, width // groups, height, across)
            return parts.transpose(1, 2).reshape(batch, width, height, across)

        return self.add(shuffled, width, step)

    def norm(self, step: int) -> int:
        """Only where no convolution comes before that could take it in."""
        return self.layer("norm", nn.BatchNorm2d(self.width(step)), self.width(step), step)

    def again(self, first: int, last: int, step: int) -> int:
        """The steps from `first` to `last` once more, with their weights, of which the first now takes `step`."""
        taken = self.steps[first - 1][1][0]
        indices = {taken: step}
        for number in range(first, last + 1):
            run, inputs = self.steps[number - 1]
            indices[number] = self.add(run, self.width(number), *(indices.get(old, old) for old in inputs))
        return indices[last]

    def excite(self, step: int, squeezed: int, act: str = "silu") -> int:
        """Squeeze and excitation: one factor for each channel."""
        factors = self.conv(self.conv(self.everywhere(step), squeezed, act=act), self.width(step), act="sigmoid")
        return self.scale(step, factors)

    def ends(self, *steps: int) -> "Sketch":
        self.outputs = list(steps)
        return self
