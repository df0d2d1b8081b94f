"""A Hugging Face checkpoint as a folder of CTranslate2, by its own converter."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from inferometer.core.errors import FormatError
from inferometer.core.json_text import parse_json
from inferometer.engines.order import ToolOrder
from inferometer.engines.torch.checkpoint import config_of, offline, whole_checkpoint

_QUANTISATION = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "i8": "int8"}
_LIMITS = ("attn_logit_softcapping", "final_logit_softcapping")  # Gemma 2's
_BESIDE = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")


def convert(order: ToolOrder) -> Iterator[str]:
    offline()
    from ctranslate2.converters import TransformersConverter  # noqa: PLC0415 - an edge, in a child

    folder, notes = whole_checkpoint(order)
    yield from notes
    if any(config_of(folder).get(limit) for limit in _LIMITS):
        yield f"CTranslate2's converter leaves out the limits of logits that this config has ({' and '.join(_LIMITS)})."
    beside = [name for name in _BESIDE if (folder / name).is_file()]
    stored = order.options.get("weights")

    class Converter(TransformersConverter):  # type: ignore[misc]  # it has no types
        def load_model(self, model_class: Any, model_name_or_path: str, **given: Any) -> Any:
            return _with_old_names(super().load_model(model_class, model_name_or_path, **given))

    converter = Converter(str(folder), copy_files=beside)
    try:
        converter.convert(str(order.target), quantization=_QUANTISATION[stored] if stored else None)
    except (KeyError, AttributeError, TypeError) as error:
        raise FormatError(
            f"CTranslate2's converter does not fit this checkpoint's config as transformers reads it: {error!r}.",
            remedy="Prepare the model for another engine, or with an older transformers.",
        ) from None
    except ValueError as error:
        if "No conversion is registered" not in str(error):
            raise
        raise FormatError(
            f"CTranslate2 has no converter for it: {error}.",
            remedy="Prepare the model for another engine: `inferometer runtimes` lists them.",
        ) from None
    _add_epsilon(order.target / "config.json", config_of(folder).get("rms_norm_eps"))
    if stored == "i8":
        yield "Weights have a scale for each row; activations are quantised for each token while it runs."


def _add_epsilon(path: Path, epsilon: float | None) -> None:
    """What norms add, where the converter of an architecture leaves it out: CTranslate2 takes another by default."""
    config = parse_json(path.read_text(encoding="utf-8"))
    if config.get("layer_norm_epsilon") is None and epsilon is not None:
        path.write_text(json.dumps({**config, "layer_norm_epsilon": epsilon}, indent=2), encoding="utf-8")


def _with_old_names(model: Any) -> Any:
    """The rotary base and scaling where older versions of transformers had them, for converters that look there."""
    rope = getattr(model.config, "rope_parameters", None)
    if not isinstance(rope, dict) or "rope_theta" not in rope or "rope_type" not in rope:
        return model
    model.config.rope_theta = rope["rope_theta"]
    if rope["rope_type"] != "default":
        rope["type"] = rope["rope_type"]
    elif model.config.model_type == "phi3":  # whose converter takes any scaling for one of long contexts
        model.config.rope_scaling = None
    if model.config.model_type == "phi3":
        factors = SimpleNamespace(long_factor=rope.get("long_factor"), short_factor=rope.get("short_factor"))
        for layer in model.model.layers:
            layer.self_attn.rotary_emb = factors
    return model
