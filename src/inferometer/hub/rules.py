"""What a hub allows: whom, from where, how much, how often."""

import ipaddress
from dataclasses import dataclass

_OWN_NAMES = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """`names` are further host names of the hub. With `tokens`, every request except the sign-in needs one."""

    host: str = "127.0.0.1"
    port: int = 8077
    names: tuple[str, ...] = ()
    tokens: bool = False
    document_bytes: int = 64_000_000  # of one profile
    archive_bytes: int = 256_000_000  # of one archive of a run
    body_bytes: int = 1_000_000  # of everything else
    per_s: float = 100.0  # requests of one client, in the long run
    burst: int = 600
    sign_ins: int = 10  # wrong tokens of one client in a minute
    streams: int = 64  # live connections at once
    sweep_rows: int = 20_000
    poll_s: float = 0.5  # how often live pages look at the store

    @property
    def everywhere(self) -> bool:
        """Whether it listens on every address of the machine."""
        return self.host in {"0.0.0.0", "::", ""}  # noqa: S104 - compared, not bound

    @property
    def hosts(self) -> frozenset[str]:
        """The host names a request may use. Any other is another site's name that was pointed here (DNS rebinding)."""
        bound = () if self.everywhere else (bracketed(self.host),)
        return frozenset(name.lower() for name in (*_OWN_NAMES, *bound, *self.names))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach this address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def bracketed(host: str) -> str:
    """An IPv6 address in brackets, as URLs have it; any other host unchanged."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
