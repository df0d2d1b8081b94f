"""Probes as exported PyTorch programs, for engines whose files are made of those. In a process of their own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from inferometer.engines.base import Target
from inferometer.formats.huggingface import graph_from_config
from inferometer.measure.calibrate.torch.graphs import module_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inferometer.engines.order import ToolOrder


def export(order: ToolOrder) -> Iterator[str]:
    """The config in the folder, with random weights, at the shape of its one input."""
    import torch  # noqa: PLC0415, TID251 - an edge, in a child

    (name, shape), *_ = order.shapes.items()
    config = json.loads((order.source / "config.json").read_text(encoding="utf-8"))
    if "image_size" in config:
        graph = graph_from_config(config, name=order.source.name)
        module = module_of(torch, graph, {"image": shape[-1]}).eval()
        program = torch.export.export(module, (torch.zeros(shape),))
    else:
        module, ids = _encoder(torch, order, name), torch.zeros(shape, dtype=torch.int64)
        program = torch.export.export(module, (ids,))
    torch.export.save(program, str(order.target))
    yield f"Exported by PyTorch {torch.__version__}."


def _encoder(torch: Any, order: ToolOrder, name: str) -> Any:
    """As transformers builds it, taking ids alone: every other argument would be an input of the program."""
    from inferometer.engines.torch.engine import choose_device  # noqa: PLC0415 - brings torch
    from inferometer.engines.torch.modules import find_module  # noqa: PLC0415 - as above

    target = Target(path=order.source, format="config")
    built = find_module(target, choose_device(target, torch), torch)()

    def forward(self: Any, ids: Any) -> Any:
        return self.model(**{name: ids}, **built.given)[0]

    encoder = type("Encoder", (torch.nn.Module,), {"forward": forward})()
    encoder.model = built.model
    return encoder.eval()
