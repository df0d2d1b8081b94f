"""Signing in through a provider of identities (OpenID Connect): authorization code, PKCE, state and nonce.

Any provider that publishes a discovery document will do. What it says is believed only after its signature, issuer,
audience, times and nonce were checked; PyJWT does that, since signatures are no place for code of one's own.
"""

import base64
import hashlib
import hmac
import json
import secrets
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from inferometer.core.errors import DomainError, MissingDependencyError
from inferometer.core.frozen import frozen
from inferometer.core.json_text import parse_json
from inferometer.hub.web.answers import HubError
from inferometer.hub.web.guard.rules import OidcRules, is_loopback

_ALGORITHMS = ("RS256", "ES256")  # signatures by keys of which we know the public half; never HS256, never none
_MOST_BYTES = 1_000_000
_TIMEOUT_S = 10.0
_KEPT_S = 3600.0  # that the provider's description and keys are remembered
_ASKED_AGAIN_S = 60.0  # between two looks for a key that is not known
_CLOCKS_S = 60.0  # that the provider's clock may differ from ours


@frozen
class Attempt:
    """A sign-in under way: a cookie of the browser while its user is at the provider."""

    state: str
    nonce: str
    verifier: str
    to: str

    def written(self) -> str:
        plain = json.dumps([self.state, self.nonce, self.verifier, self.to]).encode()
        return base64.urlsafe_b64encode(plain).decode().rstrip("=")


def new_attempt(to: str) -> Attempt:
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    return Attempt(state=state, nonce=nonce, verifier=verifier, to=to)


def read_attempt(text: str) -> Attempt | None:
    """None where the cookie is missing or was tampered with: whoever does that only shuts themselves out."""
    try:
        state, nonce, verifier, to = parse_json(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, TypeError):
        return None
    if not all(isinstance(part, str) and part for part in (state, nonce, verifier, to)):
        return None
    return Attempt(state=state, nonce=nonce, verifier=verifier, to=to)


@frozen
class Identity:
    """Who a provider says somebody is. `email` is None unless the provider has verified it."""

    issuer: str
    subject: str
    email: str | None = None


def fetched(request: urllib.request.Request) -> Any:
    """A JSON document of the provider."""
    _require_private(request.full_url)
    try:
        with _OPENER.open(request, timeout=_TIMEOUT_S) as response:
            return parse_json(response.read(_MOST_BYTES))  # one that is longer is cut off, and no JSON any more
    except (OSError, ValueError) as error:
        host = urlsplit(request.full_url).hostname
        raise HubError(502, f"The provider of identities, {host}, did not answer as it should ({error}).") from None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A secret is sent to the address that was asked for, and to no other."""

    def redirect_request(self, *_given: Any, **_options: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


def _require_private(address: str) -> None:
    """Secrets and keys go over https; over http only within this machine, for trying it out."""
    parts = urlsplit(address)
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        raise DomainError(f"{address} is no https address: a provider of identities must have one.")


class OidcProvider:
    """A provider, by its discovery document, which is fetched with the first sign-in and kept for an hour."""

    def __init__(
        self,
        rules: OidcRules,
        *,
        fetch: Callable[[urllib.request.Request], Any] = fetched,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        _require_private(rules.issuer)
        self.rules, self._fetch, self._clock = rules, fetch, clock
        self._lock = threading.Lock()
        self._described: tuple[float, Mapping[str, Any]] | None = None
        self._keys: tuple[float, Any] | None = None

    def sign_in_address(self, attempt: Attempt, back: str) -> str:
        """Where to send the browser. Only a hash of the verifier goes along: it is shown when the code is redeemed."""
        challenge = base64.urlsafe_b64encode(hashlib.sha256(attempt.verifier.encode()).digest()).decode().rstrip("=")
        endpoint = str(self._description()["authorization_endpoint"])
        asked = {
            "response_type": "code", "client_id": self.rules.client_id, "redirect_uri": back, "scope": "openid email",
            "state": attempt.state, "nonce": attempt.nonce, "code_challenge": challenge,
            "code_challenge_method": "S256",
        }  # fmt: skip
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(asked)}"

    def identity(self, query: Mapping[str, str], attempt: Attempt | None, back: str) -> Identity:
        """Who came back from the provider, or an error that says why nobody is believed to have."""
        if attempt is None or not hmac.compare_digest(query.get("state", "").encode(), attempt.state.encode()):
            raise HubError(403, "This sign-in was not begun in this browser, or took too long.", remedy="Begin again.")
        if query.get("iss", self.rules.issuer) != self.rules.issuer:
            raise HubError(403, "The answer comes from another provider than was asked.")
        if "code" not in query:
            raise HubError(403, f"The provider refused: {query.get('error', 'it gave no reason')[:200]}.")
        token = self._redeemed(query["code"], attempt, back)
        return identity_of(self.claims(token, attempt.nonce), self.rules.issuer)

    def _redeemed(self, code: str, attempt: Attempt, back: str) -> str:
        form = {
            "grant_type": "authorization_code", "code": code, "redirect_uri": back,
            "client_id": self.rules.client_id, "code_verifier": attempt.verifier,
        }  # fmt: skip
        headers = {"accept": "application/json"}
        if self.rules.client_secret is not None:
            pair = f"{quote(self.rules.client_id, safe='')}:{quote(self.rules.client_secret, safe='')}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        endpoint = str(self._description()["token_endpoint"])
        answer = self._fetch(urllib.request.Request(endpoint, urlencode(form).encode(), headers))  # noqa: S310 - checked
        token = answer.get("id_token") if isinstance(answer, dict) else None
        if not isinstance(token, str):
            raise HubError(502, "The provider of identities gave no ID token.")
        return token

    def claims(self, token: str, nonce: str) -> Mapping[str, Any]:
        """What an ID token says, if it is signed by the provider, for us, now, and for this very sign-in."""
        jwt = _jwt()
        try:
            header = jwt.get_unverified_header(token)
            key = self._key(str(header.get("kid", "")), str(header.get("alg", "")))
            found: dict[str, Any] = jwt.decode(
                token, key, algorithms=list(_ALGORITHMS), audience=self.rules.client_id, issuer=self.rules.issuer,
                leeway=_CLOCKS_S, options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )  # fmt: skip
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise HubError(403, f"The provider's answer is not valid: {error}.") from None
        if not hmac.compare_digest(str(found.get("nonce", "")).encode(), nonce.encode()):
            raise HubError(403, "The provider's answer is not valid: it belongs to another sign-in.")
        several = isinstance(found["aud"], list) and len(found["aud"]) > 1
        if (several or "azp" in found) and found.get("azp") != self.rules.client_id:
            raise HubError(403, "The provider's answer is not valid: it was made for another client.")
        return found

    def _description(self) -> Mapping[str, Any]:
        with self._lock:
            if self._described is None or self._clock() - self._described[0] > _KEPT_S:
                address = f"{self.rules.issuer.rstrip('/')}/.well-known/openid-configuration"
                found = self._fetch(urllib.request.Request(address))  # noqa: S310 - its scheme was checked
                # A document that names another issuer is another's: its keys would vouch for anybody.
                if not isinstance(found, dict) or found.get("issuer") != self.rules.issuer:
                    named = found.get("issuer") if isinstance(found, dict) else None
                    raise HubError(
                        502,
                        f"The discovery document of {self.rules.issuer} names the issuer {str(named)[:200]!r}.",
                        remedy="Give the issuer exactly as the document names it: --oidc-issuer.",
                    )
                for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                    _require_private(str(found.get(name, "")))
                self._described = self._clock(), found
            return self._described[1]

    def _key(self, kid: str, algorithm: str) -> Any:
        """The provider's key of this name. It changes its keys from time to time: one not known is looked for anew."""
        if algorithm not in _ALGORITHMS:
            raise HubError(403, f"The provider's answer is not valid: it is signed by {algorithm[:20] or 'nobody'}.")
        address = str(self._description()["jwks_uri"])
        with self._lock:
            for _ in range(2):
                if self._keys is not None:
                    # By its name; one without a name only if it is the only one.
                    keys = self._keys[1]
                    named = [key for key in keys.keys if key.key_id == kid]
                    if not named and not kid and len(keys.keys) == 1:
                        named = keys.keys
                    key = named[0].key if named else None
                    if key is not None and self._clock() - self._keys[0] < _KEPT_S:
                        return key
                    if self._clock() - self._keys[0] < _ASKED_AGAIN_S:
                        break
                found = self._fetch(urllib.request.Request(address))  # noqa: S310 - as above
                self._keys = self._clock(), _jwt().PyJWKSet.from_dict(found)
        raise HubError(403, "The provider's answer is not valid: it is signed with a key that is not the provider's.")


def identity_of(claims: Mapping[str, Any], issuer: str) -> Identity:
    email = claims.get("email")
    believed = isinstance(email, str) and claims.get("email_verified") is True and email.count("@") == 1
    return Identity(issuer=issuer, subject=str(claims["sub"])[:255], email=str(email).casefold() if believed else None)


def allowed(email: str | None, allow: tuple[str, ...]) -> bool:
    """Whether the list has this address, or its domain; a domain does not stand for those below it."""
    if email is None:
        return False
    domain = email.rpartition("@")[2]
    return any(entry.casefold().removeprefix("@") == domain or entry.casefold() == email for entry in allow)


def _jwt() -> Any:
    try:
        import jwt  # noqa: PLC0415 - only where people sign in through a provider
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: F401, PLC0415 - as above
    except ModuleNotFoundError:
        raise MissingDependencyError(
            "Signing in through a provider needs PyJWT with cryptography, which is not installed.",
            remedy="pip install 'inferometer[oidc]'",
        ) from None
    return jwt


def require_oidc() -> None:
    _jwt()
