"""Writes the .pte files beside it: `python make.py`, with executorch 1.5.1 and torch 2.13. The numbers are random."""

from pathlib import Path

import torch  # noqa: TID251 - it writes the files once
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from executorch.exir import to_edge_transform_and_lower
from torch import nn  # noqa: TID251 - as above
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

HERE = Path(__file__).parent


class Network(nn.Module):
    """What XNNPACK takes, and an error function between it, which it does not."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.pool = nn.MaxPool2d(2)
        self.deep, self.wide = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 16, 1)
        self.last = nn.Linear(16, 10)

    def forward(self, x):
        x = torch.erf(self.pool(torch.relu(self.norm(self.first(x)))))
        y = torch.relu(self.deep(x) + x)
        return torch.softmax(self.last(self.wide(y).mean((2, 3))), -1)


class Scaled(nn.Module):
    """What takes a number that is no tensor."""

    def forward(self, x, times: int):
        return x * times


def write(program, name, partitioners):
    lowered = to_edge_transform_and_lower(program, partitioner=partitioners).to_executorch()
    with (HERE / name).open("wb") as file:
        lowered.write_to_file(file)


def main():
    torch.manual_seed(1)
    network, example = Network().eval(), (torch.randn(1, 3, 16, 16),)
    program = torch.export.export(network, example)
    write(program, "xnnpack.pte", [XnnpackPartitioner()])
    write(program, "portable.pte", [])
    write(torch.export.export(Scaled(), (torch.ones(2, 3), 3)), "scalar.pte", [])
    quantiser = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(program.module(), quantiser)
    prepared(*example)
    write(torch.export.export(convert_pt2e(prepared), example), "xnnpack-i8.pte", [XnnpackPartitioner()])


if __name__ == "__main__":
    main()
