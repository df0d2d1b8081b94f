"""What a checkpoint calls the modules of transformers' models, where the library has renamed them since.

Its newer versions give modules of many architectures other names (`vit.layers.0.attention.k_proj`) than their
checkpoints have (`vit.encoder.layer.0.attention.attention.key`), and rename weights as they are loaded and saved. Our
graphs have the checkpoint's names, and kernels the modules'; this says which are the same.
"""

from __future__ import annotations

from importlib import import_module
from itertools import takewhile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def stored_modules(model: Any) -> dict[str, str]:
    """The checkpoint's name of each module that is called otherwise there, by its name in the model."""
    weights = dict(model.named_parameters())
    names = {id(weight): name for name, weight in weights.items()}
    try:
        revert = import_module("transformers.core_model_loading").revert_weight_conversion
        saved = revert(model, weights)
    except Exception:  # noqa: BLE001 - a version without it renames nothing; what it cannot revert keeps its names
        return {}
    # What was joined or split on the way in comes out as other tensors, which stand for several names or for a part.
    stored = {names[id(weight)]: name for name, weight in saved.items() if id(weight) in names}
    return modules_renamed(stored, (name for name, _ in model.named_modules() if name))


def modules_renamed(weights: Mapping[str, str], modules: Iterable[str]) -> dict[str, str]:
    """From the checkpoint's names of weights to those of modules.

    A module without weights below it stands where its parent does; one with several below it is what their names have
    in common.
    """
    if all(name == stored for name, stored in weights.items()):
        return {}
    below: dict[str, list[list[str]]] = {}
    for name, stored in weights.items():
        place = stored.split(".")[:-1]
        outer = name
        while outer := outer.rpartition(".")[0]:
            below.setdefault(outer, []).append(place)
    known: dict[str, str] = {}
    for module in sorted(modules):  # a parent comes before what it holds
        parent, _, last = module.rpartition(".")
        inside = below.get(module)
        around = (known[parent],) if parent in known else ()
        known[module] = ".".join(_in_common(inside) if inside else (*around, last))
    return {module: stored for module, stored in known.items() if module != stored}


def _in_common(places: list[list[str]]) -> list[str]:
    return [parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, zip(*places, strict=False))]
