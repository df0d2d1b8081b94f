"""What a hub allows: whom, from where, how much, how often."""

import ipaddress
from dataclasses import field
from pathlib import Path
from urllib.parse import urlsplit

from inferometer.core.frozen import frozen

_OWN_NAMES = ("localhost", "127.0.0.1", "[::1]")


@frozen
class OidcRules:
    """A provider of identities. `allow` are addresses and domains whose people may sign in, beside those invited."""

    issuer: str
    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    allow: tuple[str, ...] = ()


@frozen
class Rules:
    """`names` are further host names of the hub. With `tokens`, every request except the sign-in needs one."""

    host: str = "127.0.0.1"
    port: int = 8077
    names: tuple[str, ...] = ()
    url: str | None = None  # by which others open it, as behind a proxy
    tokens: bool = False
    oidc: OidcRules | None = None  # people may also sign in through it
    proxies: tuple[str, ...] = ()  # addresses whose word is taken for who asks (X-Forwarded-For)
    certificate: Path | None = None  # with `key`, it speaks https
    key: Path | None = None
    document_bytes: int = 64_000_000  # of one profile
    archive_bytes: int = 256_000_000  # of one archive of a run
    body_bytes: int = 1_000_000  # of everything else
    per_s: float = 100.0  # requests of one client, in the long run
    burst: int = 600
    sign_ins: int = 10  # wrong tokens of one client in a minute
    agents_per_s: float = 1000.0  # requests of agents with one token
    agents_burst: int = 10_000
    chunk_bytes: int = 16_000_000  # of a model's file, sent piece by piece
    fleet_bytes: int = 200_000_000_000  # of models kept for jobs; the longest unused go first
    poll_most_s: float = 30.0  # that an agent or a submitter is kept waiting for news
    lease_s: float = 300.0  # that a device may be silent before its job is given to another
    header_s: float = 10.0  # until the headers of a request must be here
    idle_s: float = 60.0  # that a body, or whoever reads a response, may pause
    waiting: int = 2000  # connections that may wait for their request at once
    streams: int = 64  # live connections at once
    streams_each: int = 16  # … of one token, or of one address
    sweep_rows: int = 20_000
    poll_s: float = 0.5  # how often live pages look at the store
    sources: tuple[str, ...] = ()  # beginnings of addresses that models may be fetched from
    audit_s: float = 400 * 86_400.0  # that entries of the audit log are kept

    @property
    def everywhere(self) -> bool:
        """Whether it listens on every address of the machine."""
        return self.host in {"0.0.0.0", "::", ""}  # noqa: S104 - compared, not bound

    @property
    def hosts(self) -> frozenset[str]:
        """The host names a request may use. Any other is another site's name that was pointed here (DNS rebinding)."""
        bound = () if self.everywhere else (bracketed(self.host),)
        own = (urlsplit(self.url).hostname or "",) if self.url else ()
        return frozenset(name.lower() for name in (*_OWN_NAMES, *bound, *self.names, *own))


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
