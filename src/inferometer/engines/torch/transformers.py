"""Hugging Face checkpoints as PyTorch runs them: quantised by torchao in a folder, or exported as a program.

transformers builds the model, calls torchao for each dense layer and writes the folder, which it opens again with the
same numbers. What it cannot write is left to exported programs.
"""

from __future__ import annotations

import inspect
import logging
import shutil
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import FormatError
from inferometer.core.graph import is_generative
from inferometer.core.units import counted
from inferometer.engines.base import Target
from inferometer.engines.torch.checkpoint import config_of, offline
from inferometer.engines.torch.convert import example_inputs, first_line
from inferometer.engines.torch.engine import TorchDevice
from inferometer.engines.torch.modules import Module, find_module, quiet, transformers_class
from inferometer.engines.torch.torchao import dynamic_i8, weights_i8
from inferometer.formats.resolve import read

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from inferometer.engines.order import ToolOrder

_WAYS = {"i8-weights": weights_i8, "i8-dynamic": dynamic_i8}
_WEIGHTS = (".safetensors", ".bin", ".index.json", ".pt", ".pth")  # what a checkpoint is not to be copied with


def quantise(order: ToolOrder) -> Iterator[str]:
    """The weights of dense layers; the head stays where it is the embedding too, as transformers holds them as one."""
    offline()
    target, raw = _target(order), config_of(_folder(order))
    _require_plain(raw)
    config, kind = transformers_class(target)
    tied = bool(getattr(config, "tie_word_embeddings", False))
    wanted = import_module("transformers").TorchAoConfig(
        _WAYS[order.options["way"]](), modules_to_not_convert=None if tied else []
    )
    try:
        with quiet():
            model = kind.from_pretrained(
                str(_folder(order)),
                config=config,
                quantization_config=wanted,
                dtype="float32",
                local_files_only=True,
                use_safetensors=True,
            )
            changed = sum(type(weight).__module__.startswith("torchao") for weight in model.parameters())
            if changed:
                model.save_pretrained(str(order.target))
    except Exception as error:
        raise FormatError(
            f"torchao cannot quantise {kind.__name__} by transformers: {first_line(error)}.",
            remedy="Prepare it for another engine, or as an exported program: -o MODEL.pt2.",
        ) from error
    if not changed:
        raise FormatError(
            f"{kind.__name__} has no dense layer that transformers quantises.",
            remedy="Ask for i8 with -o MODEL.pt2, which has convolutions too.",
        )
    # a tokeniser and what else lies beside the weights
    for file in _folder(order).iterdir():
        if file.is_file() and not file.name.endswith(_WEIGHTS) and not (order.target / file.name).exists():
            shutil.copyfile(file, order.target / file.name)
    kept = "; the head, which is the embedding, stays" if tied and target.text else ""
    yield f"{counted(changed, 'dense layer')} quantised{kept}."


def to_program(order: ToolOrder) -> None:
    """The model's forward pass at the sizes that were asked for; modules keep their names."""
    import torch  # noqa: PLC0415, TID251 - an edge, in a child

    offline()
    warnings.simplefilter("ignore")
    logging.getLogger("torch").setLevel(logging.CRITICAL)
    _require_plain(config_of(_folder(order)))
    module = find_module(_target(order), TorchDevice(unit="cpu", device="cpu"), torch)()
    names = [port.name for port in module.inputs]
    if set(names) != set(order.shapes):
        raise FormatError(
            f"{type(module.model).__name__} takes {', '.join(names)}, whose sizes are not known: its layers are "
            "read by other names than the checkpoint has.",
            remedy="Export the model with torch.export, and prepare the .pt2 file.",
        )
    examples = dict(zip(order.shapes, example_inputs(order), strict=True))
    try:
        program = torch.export.export(_by_position(module), tuple(examples[name] for name in names))
    except Exception as error:
        raise FormatError(
            f"PyTorch cannot export {type(module.model).__name__}: {first_line(error)}.",
            remedy="Export the model with torch.export by hand, and prepare the .pt2 file.",
        ) from error
    torch.export.save(program, str(order.target))


def _by_position(module: Module) -> Any:
    """The model, taking its inputs in order under their names, and giving tensors in a plain dictionary.

    A program that gives a class of transformers could only be loaded where that is imported first.
    """
    model, call = module.model, module.model.forward
    names = [port.name for port in module.inputs]

    def forward(*arrays: Any) -> dict[str, Any]:
        made = call(**dict(zip(names, arrays, strict=True)), **module.given)
        return {name: value for name, value in made.items() if hasattr(value, "detach")}

    kinds = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    forward.__signature__ = inspect.Signature(kinds)  # type: ignore[attr-defined]  # what names the program's inputs
    model.forward = forward
    return model


def _target(order: ToolOrder) -> Target:
    text = is_generative(read(str(order.source)))
    return Target(path=_folder(order), format="safetensors", text=text, precision="f32")


def _folder(order: ToolOrder) -> Path:
    return order.source if order.source.is_dir() else order.source.parent


def _require_plain(config: dict[str, Any]) -> None:
    if method := config.get("quantization_config"):
        by = method.get("quant_method", "another tool") if isinstance(method, dict) else "another tool"
        raise FormatError(
            f"The checkpoint is quantised already, by {by}.", remedy="Give the checkpoint that it was made of."
        )
