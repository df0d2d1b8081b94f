"""Signing in through a provider of identities: a real one from end to end, and every way to lie to us."""

import base64
import hashlib
import json
import re
import time
import warnings
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from inferometer.core.errors import DomainError
from inferometer.hub.web.answers import HubError
from inferometer.hub.web.guard.oidc import OidcProvider, allowed, identity_of, new_attempt, read_attempt
from inferometer.hub.web.guard.rules import OidcRules
from inferometer.hub.web.guard.security import COOKIE
from inferometer.store import open_store
from unit.hub.web.samples import hub

jwt = pytest.importorskip("jwt", reason="pip install 'inferometer[oidc]'")
pytest.importorskip("cryptography", reason="pip install 'inferometer[oidc]'")
from cryptography.hazmat.primitives.asymmetric import ec, rsa  # noqa: E402 - comes with it

ISSUER, CLIENT = "https://id.example", "hub"
DOCUMENT = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/authorize",
    "token_endpoint": f"{ISSUER}/token",
    "jwks_uri": f"{ISSUER}/keys",
}
CURVED, SQUARED = ec.generate_private_key(ec.SECP256R1()), rsa.generate_private_key(65537, 2048)


def public(key, kid, algorithm):
    kind = jwt.algorithms.ECAlgorithm if algorithm == "ES256" else jwt.algorithms.RSAAlgorithm
    return {**json.loads(kind.to_jwk(key.public_key())), "kid": kid, "alg": algorithm}


class Provider:
    """What a provider answers, without one."""

    def __init__(self, document=DOCUMENT, keys=None):
        self.document, self.asked, self.token = document, [], None
        self.keys = keys or [public(CURVED, "e", "ES256"), public(SQUARED, "r", "RS256")]

    def __call__(self, request):
        self.asked.append(request)
        if request.full_url.endswith("openid-configuration"):
            return self.document
        return {"keys": self.keys} if request.full_url.endswith("/keys") else {"id_token": self.token}


def provider(fake=None, clock=time.monotonic, **rules):
    given = OidcRules(**{"issuer": ISSUER, "client_id": CLIENT, "client_secret": "s3", **rules})
    return OidcProvider(given, fetch=fake or Provider(), clock=clock)


def token(nonce, *, key=CURVED, kid="e", algorithm="ES256", **changes):
    now = time.time()
    claims = {"iss": ISSUER, "aud": CLIENT, "sub": "42", "iat": now, "exp": now + 60, "nonce": nonce,
              "email": "Ann@Example.org", "email_verified": True, **changes}  # fmt: skip
    claims = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(claims, key, algorithm=algorithm, headers={"kid": kid})


@pytest.mark.parametrize(("key", "kid", "algorithm"), [(CURVED, "e", "ES256"), (SQUARED, "r", "RS256")])
def test_a_token_of_the_provider_is_believed(key, kid, algorithm):
    claims = provider().claims(token("n", key=key, kid=kid, algorithm=algorithm), "n")
    assert identity_of(claims, ISSUER).email == "ann@example.org"


STRANGER = ec.generate_private_key(ec.SECP256R1())
LIES = {
    "another issuer": {"iss": "https://evil.example"},
    "another audience": {"aud": "another"},
    "no audience": {"aud": None},
    "several audiences, made for another": {"aud": [CLIENT, "another"], "azp": "another"},
    "made for another": {"azp": "another"},
    "expired": {"exp": time.time() - 120},
    "without end": {"exp": None},
    "from the future": {"iat": time.time() + 3600},
    "not yet": {"nbf": time.time() + 3600},
    "another sign-in": {"nonce": "other"},
    "no nonce": {"nonce": None},
    "nobody": {"sub": None},
    "another's key": {"key": STRANGER},
    "an unknown key": {"key": STRANGER, "kid": "x"},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_token_that_lies_is_refused(lie):
    changes = {"nonce": "n", **LIES[lie]}
    with pytest.raises(HubError) as refused:
        provider().claims(token(changes.pop("nonce"), **changes), "n")
    assert refused.value.status == 403


def test_no_signature_and_one_by_a_public_key_as_secret_are_refused():
    with pytest.raises(HubError, match="signed by none"):
        provider().claims(jwt.encode({"sub": "42"}, None, algorithm="none"), "n")
    secret = b"known to everybody, and long enough to be a secret"
    with pytest.raises(HubError, match="signed by HS256"):
        provider().claims(jwt.encode({"sub": "42"}, secret, algorithm="HS256", headers={"kid": "r"}), "n")
    with pytest.raises(HubError):
        provider().claims("no.token.at-all", "n")


def test_a_document_of_another_issuer_is_refused():
    for named in ("https://evil.example", f"{ISSUER}/", None):
        with pytest.raises(HubError, match="names the issuer"):
            provider(Provider({**DOCUMENT, "issuer": named})).sign_in_address(new_attempt("/"), "https://hub/")


@pytest.mark.parametrize("name", ["token_endpoint", "jwks_uri", "authorization_endpoint"])
def test_secrets_and_keys_do_not_travel_in_the_clear(name):
    with pytest.raises(DomainError, match="no https"):
        provider(Provider({**DOCUMENT, name: "http://id.example/x"})).sign_in_address(new_attempt("/"), "https://hub/")
    with pytest.raises(DomainError, match="no https"):
        provider(issuer="http://id.example")


def test_the_code_is_redeemed_with_what_only_this_browser_has():
    fake = Provider()
    asked = provider(fake)
    attempt = new_attempt("/live")
    sent = {
        name: values[0]
        for name, values in parse_qs(urlsplit(asked.sign_in_address(attempt, "https://hub/back")).query).items()
    }
    assert (sent["state"], sent["nonce"], sent["code_challenge_method"]) == (attempt.state, attempt.nonce, "S256")
    assert attempt.verifier not in sent.values()
    fake.token = token(attempt.nonce)
    who = asked.identity({"state": attempt.state, "code": "c"}, read_attempt(attempt.written()), "https://hub/back")
    form = {name: values[0] for name, values in parse_qs(fake.asked[1].data.decode()).items()}
    digest = hashlib.sha256(form["code_verifier"].encode()).digest()
    assert base64.urlsafe_b64encode(digest).decode().rstrip("=") == sent["code_challenge"]
    assert form["redirect_uri"] == sent["redirect_uri"] == "https://hub/back"
    assert base64.b64decode(fake.asked[1].get_header("Authorization").split()[1]) == b"hub:s3"
    assert who.subject == "42"


@pytest.mark.parametrize(
    "query",
    [{"code": "c"}, {"code": "c", "state": "guessed"}, {"code": "c", "state": ""}],
)
def test_a_code_that_was_not_asked_for_here_is_not_redeemed(query):
    fake = Provider()
    with pytest.raises(HubError, match="not begun in this browser"):
        provider(fake).identity(query, new_attempt("/"), "https://hub/")
    with pytest.raises(HubError, match="not begun in this browser"):
        provider(fake).identity({**query, "state": "x"}, read_attempt("tampered"), "https://hub/")
    assert fake.asked == []


def test_an_answer_of_another_provider_or_a_refusal_is_told():
    attempt = new_attempt("/")
    with pytest.raises(HubError, match="another provider"):
        provider().identity(
            {"state": attempt.state, "code": "c", "iss": "https://evil.example"}, attempt, "https://hub/"
        )
    with pytest.raises(HubError, match="access_denied"):
        provider().identity({"state": attempt.state, "error": "access_denied"}, attempt, "https://hub/")


def test_new_keys_of_the_provider_are_found_and_unknown_ones_do_not_make_us_ask_for_ever():
    now = [0.0]
    fake = Provider(keys=[public(STRANGER, "old", "ES256")])
    asked = provider(fake, clock=lambda: now[0])
    for _ in range(5):
        with pytest.raises(HubError):
            asked.claims(token("n"), "n")
    assert sum(request.full_url.endswith("/keys") for request in fake.asked) == 1
    fake.keys, now[0] = [public(CURVED, "e", "ES256")], 61.0
    assert asked.claims(token("n"), "n")["sub"] == "42"


@pytest.mark.parametrize(
    ("claims", "email"),
    [({"email_verified": False}, None), ({"email_verified": "true"}, None), ({"email": None}, None),
     ({"email": "a@b@example.org"}, None), ({}, "ann@example.org")],
)  # fmt: skip
def test_an_address_counts_only_if_the_provider_has_verified_it(claims, email):
    given = {"sub": "1", "email": "ann@example.org", "email_verified": True, **claims}
    assert identity_of(given, ISSUER).email == email


@pytest.mark.parametrize(
    ("email", "may"),
    [("ann@example.org", True), ("eve@sub.example.org", False), ("eve@evilexample.org", False), ("eve@else.org", False),
     ("bob@else.org", True), (None, False)],
)  # fmt: skip
def test_domains_and_addresses_are_matched_whole(email, may):
    assert allowed(email, ("example.org", "Bob@else.org")) is may


def test_an_identity_keeps_its_user_and_an_address_with_a_new_owner_does_not_inherit(tmp_path):
    with open_store(tmp_path / "runs.db") as store:
        store.create_user("ann@example.org")  # invited
        assert store.identified(ISSUER, "1", "ann@example.org", joins=False) == "ann@example.org"
        assert store.identified(ISSUER, "1", "changed@example.org", joins=False) == "ann@example.org"
        assert store.identified(ISSUER, "2", "ann@example.org", joins=True) is None
        assert store.identified("https://other.example", "1", "ann@example.org", joins=True) is None
        assert store.identified(ISSUER, "3", "new@example.org", joins=False) is None
        assert store.identified(ISSUER, "3", "new@example.org", joins=True) == "new@example.org"
        assert store.identified(ISSUER, "4", None, joins=True) is None


# A real provider. What it is made with says of itself that it will change.

SOON = pytest.mark.filterwarnings("ignore:get_jwt_config", "ignore:authlib.jose")
SECRET = {"client_id": CLIENT, "client_secret": "s"}


@pytest.fixture(scope="module")
def real():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        mock = pytest.importorskip("oidc_provider_mock", reason="pip install oidc-provider-mock")
    people = [
        mock.User(sub="ann", claims={"email": "ann@example.org", "email_verified": True}),
        mock.User(sub="eve", claims={"email": "eve@evil.example", "email_verified": True}),
    ]
    with mock.run_server_in_thread(user_claims=people, require_nonce=True) as server:
        yield f"http://localhost:{server.server_port}"


def came_back(client, who, to="/live"):
    """A browser's way to the provider and back; gives the hub's last answer."""
    there = client.get("/sign-in/provider", params={"to": to})
    assert there.status_code == 303, there.text
    with httpx.Client(timeout=120) as outside:
        consented = outside.post(there.headers["location"], data={"sub": who})
    back = consented.headers["location"]
    assert re.match(rf"{client.base_url}sign-in/provider/callback|{str(client.base_url).rstrip('/')}/sign-in", back)
    return client.get(back)


@SOON
def test_people_of_an_allowed_domain_sign_in_and_others_do_not(tmp_path, real):
    rules = OidcRules(issuer=real, **SECRET, allow=("example.org",))
    with hub(tmp_path, tokens=True, oidc=rules) as (store, client):
        assert "Sign in with localhost" in client.get("/sign-in").text
        refused = came_back(client, "eve")
        assert (refused.status_code, "eve@evil.example is not known here" in refused.text) == (403, True)
        assert COOKIE not in client.cookies
        answer = came_back(client, "ann")
        assert (answer.status_code, answer.headers["location"]) == (303, "/live")
        assert client.get("/live").status_code == 200
        assert client.get("/api/v1/runs").json()["rows"] == []  # signed in, and a member of nothing
        assert [user.name for user in store.users()] == ["ann@example.org"]
        (session,) = store.sessions("ann@example.org")
        assert session.token is None
        assert [entry.action for entry in store.audit()] == ["sign-in"]
        client.post("/sign-out")
        assert client.get("/live").status_code == 401


@SOON
def test_an_invited_member_signs_in_and_sees_their_project(tmp_path, real):
    with hub(tmp_path, tokens=True, oidc=OidcRules(issuer=real, **SECRET)) as (store, client):
        assert came_back(client, "ann").status_code == 403
        store.create_project("phones")
        store.create_user("ann@example.org")
        store.set_member("phones", "ann@example.org", "writer")
        assert came_back(client, "ann", to="//evil.example").headers["location"] == "/"
        assert client.get("/projects/phones").status_code == 200


@SOON
def test_a_callback_works_once_and_only_in_the_browser_that_began(tmp_path, real):
    rules = OidcRules(issuer=real, **SECRET, allow=("example.org",))
    with hub(tmp_path, tokens=True, oidc=rules) as (_, client):
        there = client.get("/sign-in/provider")
        with httpx.Client(timeout=120) as outside:
            back = outside.post(there.headers["location"], data={"sub": "ann"}).headers["location"]
            assert outside.get(back).status_code == 403  # somebody else's link, opened in another browser
        assert client.get(back).status_code == 303
        assert client.get(back).status_code == 403
