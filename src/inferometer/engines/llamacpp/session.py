"""Opens a GGUF file in llama.cpp: by its C functions where they can be called, else by the server it has inside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inferometer.core.errors import DomainError, EngineError, UnknownNameError
from inferometer.engines.llamacpp.direct import open_direct
from inferometer.engines.llamacpp.library import find_library
from inferometer.engines.llamacpp.options import parse_options
from inferometer.engines.llamacpp.server import open_server

if TYPE_CHECKING:
    from inferometer.engines.base import Target, TextSession


def open_session(target: Target, name: str) -> TextSession:
    """The server has a queue, JSON and a stream of text between the engine and the caller: the functions have not."""
    options = parse_options(target.options)
    _check(target, name)
    library, reason = (None, "") if options.api == "server" else find_library()
    if library is not None:
        return open_direct(target, options, library)
    if options.api == "direct":
        raise EngineError(
            f"llama.cpp's functions cannot be called here. {reason}",
            remedy="Leave out the option api, or install llama-cpp-python.",
        )
    return open_server(target, options, reason)


def _check(target: Target, name: str) -> None:
    if not target.path.is_file():
        raise EngineError(
            f"{name} was given {str(target.path)!r}, which is no file.", remedy="Give the path of a GGUF file."
        )
    if target.providers:
        raise UnknownNameError(
            "provider of llama.cpp", target.providers[0], (), listing="Choose a unit instead: cpu, gpu or gpu:1."
        )
    if target.batch < 1:
        raise DomainError(f"A batch of {target.batch} was asked for.", remedy="Ask for one or more.")
