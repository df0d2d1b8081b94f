"""Running the hub: the socket and uvicorn."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import DomainError, MissingDependencyError
from inferometer.hub.web.guard.rules import Rules, is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import uvicorn

    from inferometer.store.store import Store

_BACKLOG = 1024  # a thousand agents come back at once when the hub is started again


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
    if rules.tokens and rules.oidc is None and not any(token.holds(time.time()) for token in store.tokens()):
        reach = "this machine" if is_loopback(rules.host) else "other machines"
        raise DomainError(
            f"The hub would serve {reach} with tokens only, but there is no token.",
            remedy="Create one first: `inferometer hub token create NAME --scope write`.",
        )


def serve(store: Store, rules: Rules, listening: socket.socket, *, ready: Callable[[], None]) -> None:
    """Serve until interrupted. `ready` is called just before the first request can come."""
    import uvicorn  # noqa: PLC0415 - only to start the hub

    config = _config(store, rules, timeout_graceful_shutdown=2, server_header=False)
    _allow_many_connections()
    server = uvicorn.Server(config)
    timer = threading.Timer(1.0, _warm)  # after the first page, which should not wait for it
    timer.daemon = True
    timer.start()
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    ready()
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listening])
    timer.cancel()


def _warm() -> None:
    """Load what the second page would wait for: templates, charts, the cost model, the API, Vega."""
    from inferometer.hub.web.api import routes  # noqa: F401, PLC0415 - loaded, that is all
    from inferometer.hub.web.assets import vega_bundle  # noqa: PLC0415 - as above
    from inferometer.hub.web.pages import compare, predictions, run  # noqa: F401, PLC0415 - loaded, that is all
    from inferometer.hub.web.pages.catalog import choices  # noqa: PLC0415 - as above
    from inferometer.hub.web.rendering import environment  # noqa: PLC0415 - as above

    for name in environment().list_templates():
        environment().get_template(name)
    choices()  # reads the catalog
    with contextlib.suppress(MissingDependencyError):
        vega_bundle()


def _config(store: Store, rules: Rules, **options: Any) -> uvicorn.Config:
    import uvicorn  # noqa: PLC0415 - only to start the hub

    from inferometer.hub.web.app import create_app  # noqa: PLC0415 - as above
    from inferometer.hub.web.connections import impatient_protocol  # noqa: PLC0415 - as above

    return uvicorn.Config(
        # Its own configuration of logging would close the handlers of the whole process, and streams behind them.
        create_app(store, rules), log_config=None, log_level="warning", access_log=False,
        http=impatient_protocol(rules), ws="none",
        lifespan="on", limit_concurrency=4096, h11_max_incomplete_event_size=64_000,
        # Whoever may name the client may pass as any: nobody may, unless the hub was told of a proxy.
        proxy_headers=bool(rules.proxies), forwarded_allow_ips=list(rules.proxies), **options, **_tls(rules),
    )  # fmt: skip


def _allow_many_connections() -> None:
    """As many open files as the system permits: each connection is one, and the usual limit is a thousand."""
    try:
        import resource  # noqa: PLC0415 - not on Windows

        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (ImportError, OSError, ValueError):
        return


def require_certificate(rules: Rules) -> None:
    """Files that are missing or do not belong together are an error now, and not when the first browser comes."""
    if (rules.certificate is None) != (rules.key is None):
        raise DomainError("--cert and --key go together.", remedy="Give both, or neither.")
    if rules.certificate is None:
        return
    import ssl  # noqa: PLC0415 - only for https

    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(rules.certificate, rules.key)
    except (OSError, ssl.SSLError) as error:
        raise DomainError(
            f"{rules.certificate} and {rules.key} are not a certificate and its key: {error.strerror or error}.",
            remedy="Give files in PEM form; docs/fleet.md says how to make them.",
        ) from None


def _tls(rules: Rules) -> dict[str, Any]:
    if rules.certificate is None:
        return {}
    return {"ssl_certfile": str(rules.certificate), "ssl_keyfile": str(rules.key)}


@contextlib.contextmanager
def hub_in_thread(store: Store, rules: Rules, *, port: int = 0) -> Iterator[str]:
    """A hub in a thread of this process, for tests and benchmarks; yields its address. Port 0 is any that is free."""
    import uvicorn  # noqa: PLC0415 - as above

    with listen(rules.host, port) as listening:
        port = listening.getsockname()[1]
        config = _config(store, rules, timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            yield f"{'https' if rules.certificate else 'http'}://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join(timeout=10)
