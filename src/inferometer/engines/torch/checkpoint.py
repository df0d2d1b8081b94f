"""A Hugging Face checkpoint as converters of language models want it: a folder with a config and a tokeniser.

They fail without a tokeniser, which takes no part in the weights. A checkpoint that has none gets one of made-up words,
in a folder of links beside the target: the checkpoint itself is left as it is.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import FormatError
from inferometer.core.json_text import parse_json

if TYPE_CHECKING:
    from pathlib import Path

    from inferometer.engines.order import ToolOrder

_TOKENISERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model")
_MADE_UP = "The checkpoint has no tokeniser: the folder has one of made-up words, and prompts are given as token ids."
# What transformers calls the class with a head, by the config's name of the family: checkpoints mostly say it.
_CLASSES = {
    "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM", "gemma": "GemmaForCausalLM", "gemma2": "Gemma2ForCausalLM", "phi3": "Phi3ForCausalLM",
    "phi": "PhiForCausalLM", "olmo": "OlmoForCausalLM", "smollm3": "SmolLM3ForCausalLM",
}  # fmt: skip
_SPECIAL = ("<unk>", "<s>", "</s>")


def offline() -> None:
    """Before a library that would look for what is missing on the network is imported."""
    for switch in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        os.environ[switch] = "1"  # noqa: TID251 - the libraries' own switches, in a child that ends with its step


def whole_checkpoint(order: ToolOrder) -> tuple[Path, tuple[str, ...]]:
    """The folder to convert, and what there is to say about it."""
    source = order.source if order.source.is_dir() else order.source.parent
    config = config_of(source)
    known = any((source / name).is_file() for name in _TOKENISERS)
    mended = _mended(config)
    if known and mended == config:
        return source, ()
    folder = order.target.parent.parent / "checkpoint"
    folder.mkdir()
    for file in source.iterdir():
        if file.is_file() and file.name != "config.json":
            (folder / file.name).symlink_to(file.resolve())
    _write(folder / "config.json", mended)
    if known:
        return folder, ()
    _write(folder / "tokenizer.json", _tokeniser(int(config["vocab_size"])))
    # A class that a family's name leads to adds a token of its own for padding, where none is named.
    marks = dict(zip(("unk_token", "bos_token", "eos_token"), _SPECIAL, strict=True), pad_token=_SPECIAL[-1])
    _write(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **marks})
    return folder, (_MADE_UP,)


def _mended(config: dict[str, Any]) -> dict[str, Any]:
    """The config with its class, and without what transformers adds to a Phi-3 that has no long context.

    Its default for the length before a long context was trained says 4,096, whatever length the model has, and
    converters take every Phi-3 for one with a long context where the two differ.
    """
    mended = config if config.get("architectures") else {**config, "architectures": [_class_of(config)]}
    length, rope = config.get("max_position_embeddings"), config.get("rope_parameters") or config.get("rope_scaling")
    long = isinstance(rope, dict) and rope.get("rope_type", rope.get("type", "default")) != "default"
    if config.get("model_type") == "phi3" and length is not None and not long:
        mended = {**mended, "original_max_position_embeddings": length}
    return mended


def config_of(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        config: dict[str, Any] = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FormatError(f"{path} cannot be read: {error}.", remedy="Give the folder with config.json.") from None
    return config


def _class_of(config: dict[str, Any]) -> str:
    family = str(config.get("model_type"))
    if family not in _CLASSES:
        raise FormatError(
            f"The config does not say which class of transformers it is of, and {family!r} is none that is known.",
            remedy='Write it into config.json: "architectures": ["…ForCausalLM"].',
        )
    return _CLASSES[family]


def _tokeniser(size: int) -> dict[str, Any]:
    """Words in place of tokens, divided by spaces: `t7` is the token 7."""
    words = [*_SPECIAL, *(f"t{number}" for number in range(len(_SPECIAL), size))]
    marks = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": number, "content": word, **marks} for number, word in enumerate(_SPECIAL)],
        "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
        "model": {
            "type": "WordLevel", "vocab": {word: number for number, word in enumerate(words)}, "unk_token": _SPECIAL[0],
        },
    }  # fmt: skip


def _write(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document), encoding="utf-8")
