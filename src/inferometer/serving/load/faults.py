"""What can go wrong with a request, in one word each. Errors are counted by these and never averaged in."""

import errno
import socket
import ssl

KINDS: dict[str, str] = {
    "refused": "nothing listens at the address",
    "unreachable": "the host cannot be reached",
    "dns": "the host's name is not known",
    "tls": "the secure connection was not made: a certificate, a protocol",
    "proxy": "the proxy is not there, or does not let the connection through",
    "connect_timeout": "no connection was made in time",
    "timeout": "the answer was not complete in time",
    "reset": "the server reset the connection",
    "closed_early": "the connection ended before the answer did",
    "malformed": "the answer is not what its protocol says: chunks, events or JSON",
    "redirect": "the server sent the request elsewhere; a load test does not follow",
    "encoding": "the answer was compressed, though it was asked not to be",
    "not_streamed": "a stream was asked for, and the answer came in one piece",
    "unknown_model": "the server does not serve this model",
    "server_error": "the stream held an error instead of tokens",
    "empty": "the answer was complete and held no token",
    "no_descriptors": "this process may open no more connections (ulimit -n)",
    "cancelled": "it was not finished when the test was stopped",
    "not_sent": "the test was stopped before it was sent",
    "broken_off": "it was to follow an answer that failed",
}


class Fault(Exception):  # noqa: N818 - what a server does wrong is no error of this program
    """A request that failed, with its kind."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.message = kind, message


def fault_of(error: BaseException) -> Fault:  # noqa: PLR0911 - a table of kinds
    """The kind of an error that the operating system or the TLS library raised."""
    message = str(error) or type(error).__name__
    if isinstance(error, Fault):
        return error
    if isinstance(error, ssl.SSLError):
        return Fault("tls", getattr(error, "verify_message", "") or getattr(error, "reason", "") or message)
    if isinstance(error, socket.gaierror):
        return Fault("dns", error.strerror or message)
    if isinstance(error, TimeoutError):
        return Fault("connect_timeout", "no connection in time")
    if isinstance(error, ConnectionRefusedError):
        return Fault("refused", "connection refused")
    if isinstance(error, ConnectionResetError | BrokenPipeError | ConnectionAbortedError):
        return Fault("reset", "connection reset by the server")
    if isinstance(error, OSError):
        return _of_os(error, message)
    return Fault("malformed", message)


def _of_os(error: OSError, message: str) -> Fault:
    if error.errno in {errno.EMFILE, errno.ENFILE}:
        return Fault("no_descriptors", "too many open files")
    # asyncio joins the errors of several addresses into one text without a number.
    if "Connect call failed" in message or error.errno == errno.ECONNREFUSED:
        return Fault("refused", "connection refused")
    if error.errno in {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL}:
        return Fault("unreachable", error.strerror or message)
    return Fault("reset", message)
