"""A Hugging Face checkpoint as a folder of CTranslate2, by its own converter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inferometer.errors import FormatError
from inferometer.prepare.tools.checkpoint import offline, whole_checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inferometer.prepare.order import ToolOrder

_QUANTISATION = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "i8": "int8"}
_BESIDE = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")


def convert(order: ToolOrder) -> Iterator[str]:
    offline()
    from ctranslate2.converters import TransformersConverter  # noqa: PLC0415 - an edge, in a child

    folder, notes = whole_checkpoint(order)
    yield from notes
    beside = [name for name in _BESIDE if (folder / name).is_file()]
    stored = order.options.get("weights")
    converter = TransformersConverter(str(folder), copy_files=beside)
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
    if stored == "i8":
        yield "Weights have a scale for each row; activations are quantised for each token while it runs."
