"""What is given to an engine or a model: whether a target, arrays or a request fit it, and how texts become tokens."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from inferometer.core.errors import DomainError, EngineError, MissingDependencyError, UnknownNameError
from inferometer.core.json_text import parse_json
from inferometer.engines.base import Port, Request, Target

T = TypeVar("T")


def alive(held: T | None) -> T:
    """What a session holds of its engine, until it is closed."""
    if held is None:
        raise EngineError("The session is closed.", remedy="Open the model again.")
    return held


def require_arrays_on_cpu(target: Target, name: str, title: str, *, listing: str) -> None:
    """What an engine can do that runs models of arrays on the CPU, and has neither options nor providers."""
    if target.text:
        raise DomainError(f"{name} opens models of arrays; a language model was asked for.")
    if target.unit is not None and target.unit.removesuffix(":0") != "cpu":
        raise EngineError(f"{title} has no unit {target.unit!r} here.", remedy="There is: cpu.")
    require_no_settings(target, title, listing=listing)


def require_no_settings(target: Target, title: str, *, listing: str) -> None:
    """For an engine that has neither options nor providers."""
    for word, given in (("option", target.options), ("provider", target.providers)):
        for entry in given:
            raise UnknownNameError(f"{word} of {title}", entry, (), listing=listing)


def require_fitting(ports: Sequence[Port], inputs: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Names, types, ranks and fixed sizes; one name for two open sizes means that they are equal."""
    names = [port.name for port in ports]
    missing = [name for name in names if name not in inputs]
    extra = [name for name in inputs if name not in names]
    if missing or extra:
        problems = [f"{', '.join(map(repr, missing))} missing"] if missing else []
        problems += [f"{', '.join(map(repr, extra))} not among them"] if extra else []
        raise DomainError(f"The model takes the inputs {', '.join(map(repr, names))}: {'; '.join(problems)}.")
    sizes: dict[str, int] = {}
    for port in ports:
        _require_port(port, inputs[port.name], sizes)


def _require_port(port: Port, array: np.ndarray[Any, Any], sizes: dict[str, int]) -> None:
    expected = f"{port.dtype} [{', '.join('?' if dim is None else str(dim) for dim in port.shape)}]"
    given = f"{array.dtype.name} {list(array.shape)}"
    fits = array.dtype.name == port.dtype and array.ndim == len(port.shape)
    if not fits or not all(
        (not isinstance(dim, int) or dim == size) for dim, size in zip(port.shape, array.shape, strict=True)
    ):
        raise DomainError(
            f"The input {port.name!r} must be {expected}, and is {given}.",
            remedy="Give it in the type and the sizes of the model: nothing is converted.",
        )
    for dim, size in zip(port.shape, array.shape, strict=True):
        if isinstance(dim, str) and dim != "?" and sizes.setdefault(dim, size) != size:
            raise DomainError(
                f"The input {port.name!r} must be {expected}, and is {given}: {dim} is {sizes[dim]} in another input."
            )


def require_request(request: Request, *, vocabulary: int, room: int | None) -> None:
    """A prompt of known tokens, and a cache with `room` for everything; None where it grows."""
    if not request.prompt:
        raise DomainError("The prompt is empty.", remedy="Give at least one token.")
    if request.generate < 0 or request.depth < 0:
        raise DomainError(
            f"{request.generate} tokens at a depth of {request.depth} were asked for; neither can be negative.",
            remedy="Ask for 0 or more.",
        )
    require_tokens(request.prompt, vocabulary)
    needed = request.depth + len(request.prompt) + request.generate
    if room is not None and needed > room:
        raise DomainError(
            f"{needed} tokens were asked for ({request.depth} in the cache, {len(request.prompt)} of prompt, "
            f"{request.generate} to generate); the context holds {room}.",
            remedy="Ask for fewer, or for a larger context.",
        )


def require_tokens(ids: Sequence[int], vocabulary: int) -> None:
    wrong = next((token for token in ids if not 0 <= token < vocabulary), None)
    if wrong is not None:
        raise DomainError(
            f"The token {wrong} is outside the vocabulary of {vocabulary} (0 to {vocabulary - 1}).",
            remedy="Give ids of this model's own tokeniser.",
        )


# The tokeniser that may lie beside a model, and the tokens that end a text.


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


class Tokenising:
    """A session of a language model whose tokeniser lies beside its file; it is read when it is first asked for."""

    _model_file: Path

    @cached_property
    def _tokeniser(self) -> Any:
        return load_tokeniser(self._model_file)

    def tokenise(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokeniser.encode(text).ids)

    def detokenise(self, ids: tuple[int, ...]) -> str:
        return str(self._tokeniser.decode(list(ids)))


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
