"""The tokeniser that may lie beside a model, and the tokens that end a text."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import DomainError, MissingDependencyError
from inferometer.core.json_text import parse_json

if TYPE_CHECKING:
    from pathlib import Path


def load_tokeniser(model: Path) -> Any:
    place = model.parent / "tokenizer.json"
    if not place.is_file():
        raise DomainError(
            f"{str(model)!r} came without a tokeniser: there is no tokenizer.json beside it.",
            remedy="Put it there, or give token ids.",
        )
    try:
        library = import_module("tokenizers")
    except ImportError:
        raise MissingDependencyError(
            f"Reading the tokeniser {str(place)!r} needs the package tokenizers, which is not installed.",
            remedy="pip install tokenizers",
        ) from None
    try:
        return library.Tokenizer.from_file(str(place))
    except Exception as error:  # noqa: BLE001 - the library raises plain Exception
        raise DomainError(f"The tokeniser {str(place)!r} cannot be read: {error}.") from None


def end_tokens(model: Path) -> frozenset[int]:
    """From the configs beside the model; none where nothing says so."""
    for name in ("generation_config.json", "config.json"):
        try:
            ends = parse_json((model.parent / name).read_text()).get("eos_token_id")
        except (OSError, ValueError, AttributeError):
            continue
        if isinstance(ends, int):
            return frozenset({ends})
        if isinstance(ends, list):
            return frozenset(token for token in ends if isinstance(token, int))
    return frozenset()
