"""Running the hub: the socket and uvicorn."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from typing import TYPE_CHECKING

from inferometer.errors import DomainError, MissingDependencyError
from inferometer.hub.rules import Rules, is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from inferometer.store.store import Store

_BACKLOG = 128


def require_web() -> None:
    from importlib.util import find_spec  # noqa: PLC0415 - only to start the hub

    missing = [name for name in ("starlette", "uvicorn", "jinja2", "fastapi") if find_spec(name) is None]
    if missing:
        raise MissingDependencyError(
            f"The hub needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed.",
            remedy="pip install 'inferometer[hub]'",
        )


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one."""
    try:
        (family, kind, protocol, _, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise DomainError(f"The hub cannot listen on {host!r}: {error.strerror or error}.") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise DomainError(
            f"The hub cannot listen on {host}:{port}: {error.strerror or error}.",
            remedy="Another hub may be running there: open it, or choose another port with --port.",
        ) from None
    return listening


def require_tokens(store: Store, rules: Rules) -> None:
    """A hub that needs tokens and has none is a mistake; the error says how to create one."""
    if rules.tokens and not any(token.revoked is None for token in store.tokens()):
        reach = "this machine" if is_loopback(rules.host) else "other machines"
        raise DomainError(
            f"The hub would serve {reach} with tokens only, but there is no token.",
            remedy="Create one first: `inferometer hub token create NAME --scope write`.",
        )


def serve(store: Store, rules: Rules, listening: socket.socket, *, ready: Callable[[], None]) -> None:
    """Serve until interrupted. `ready` is called just before the first request can come."""
    import uvicorn  # noqa: PLC0415 - only to start the hub

    from inferometer.hub.app import create_app  # noqa: PLC0415 - as above
    from inferometer.hub.assets import warm  # noqa: PLC0415 - as above

    config = uvicorn.Config(
        create_app(store, rules), log_level="warning", access_log=False, server_header=False, lifespan="off",
        timeout_graceful_shutdown=2, limit_concurrency=512, h11_max_incomplete_event_size=64_000,
    )  # fmt: skip
    server = uvicorn.Server(config)
    timer = threading.Timer(1.0, warm)  # after the first page, which should not wait for it
    timer.daemon = True
    timer.start()
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    ready()
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listening])
    timer.cancel()


@contextlib.contextmanager
def hub_in_thread(store: Store, rules: Rules) -> Iterator[str]:
    """A hub in a thread of this process, for tests and benchmarks; yields its address."""
    import uvicorn  # noqa: PLC0415 - as above

    from inferometer.hub.app import create_app  # noqa: PLC0415 - as above

    with listen(rules.host, 0) as listening:
        port = listening.getsockname()[1]
        config = uvicorn.Config(
            create_app(store, rules), log_level="warning", access_log=False, lifespan="off",
            timeout_graceful_shutdown=1,
        )  # fmt: skip
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join(timeout=10)
