"""Probe models as transformers builds them, for a runtime that calls its modules one by one.

There a step takes as long as its Python does: the calls of modules, and what transformers does around them, are most of
a small step, and a model of bare functions has none of it.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def builds_modules() -> bool:
    return find_spec("transformers") is not None


def module_weights(net: Any, config: Mapping[str, Any]) -> Any:
    transformers = import_module("transformers")
    stated = {name: value for name, value in config.items() if name not in {"model_type", "architectures"}}
    with net.torch.device(net.place):
        model = getattr(transformers, config["architectures"][0])(
            transformers.AutoConfig.for_model(config["model_type"], **stated)
        )
    return model.to(net.format).eval()


def module_call(net: Any, run: Any, masked: bool, config: Mapping[str, Any]) -> Callable[[], Any]:
    del masked  # the model decides
    torch, model = net.torch, net.weights
    if run.image is not None:
        pixels = net.new(run.batch, config["num_channels"], run.image, run.image)
        return lambda: model(pixel_values=pixels)
    ids = torch.randint(0, config["vocab_size"], (run.batch, run.query), device=net.place)
    if run.phase == "forward":
        return lambda: model(input_ids=ids)
    if not run.context:
        return lambda: model(input_ids=ids, use_cache=True, logits_to_keep=1)
    cache = import_module("transformers").DynamicCache(config=model.config)
    for layer in range(config["num_hidden_layers"]):
        shape = (run.batch, config["num_key_value_heads"], run.context, config["head_dim"])
        cache.update(net.new(*shape), net.new(*shape), layer)

    def step() -> None:
        model(input_ids=ids, past_key_values=cache, use_cache=True)
        cache.crop(-run.query)

    return step
