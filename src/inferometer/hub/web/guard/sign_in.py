"""Signing in and out: a token, pasted once, begins a session, whose cookie scripts and other sites do not get.

The cookie is not the token, and ends at the hub: by signing out, after half a day without use, with the token.
"""

from functools import partial
from urllib.parse import parse_qs, urlsplit

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from inferometer.core.errors import InferometerError
from inferometer.hub.web.answers import HubError, status_of, told
from inferometer.hub.web.guard.oidc import OidcProvider, allowed, new_attempt, read_attempt
from inferometer.hub.web.guard.people import acting
from inferometer.hub.web.guard.rules import Rules
from inferometer.hub.web.guard.security import (
    VISITOR,
    RateLimit,
    client_of,
    cookie_name,
    own_address,
    session_text,
    speaks_https,
)
from inferometer.hub.web.rendering import render_template
from inferometer.store.audit import Deed
from inferometer.store.store import Store
from inferometer.store.visitors import LONGEST_S

_WRONG = "This token is not valid here: it is unknown, expired, revoked, or may not read."
_ENDED = "You were signed out: your session has ended, or its token has expired or was revoked."
_TOO_MANY = "Too many wrong tokens came from your address. Try again in a minute."
_MOST_TEXT = 1000
_CALLBACK = "/sign-in/provider/callback"
_ATTEMPT_S = 600  # that one may take at the provider


def sign_in_routes(store: Store, rules: Rules, wrong_tokens: RateLimit) -> list[Route]:
    provider = None if rules.oidc is None else OidcProvider(rules.oidc)
    form = partial(_form, provider=None if rules.oidc is None else urlsplit(rules.oidc.issuer).hostname)

    async def sign_in(request: Request) -> Response:
        to = own_path(request.query_params.get("to", "/"))
        if request.method == "GET":
            return form(to, _ENDED if request.query_params.get("ended") else None)
        client = client_of(request)
        text = parse_qs((await request.body()).decode("utf-8", "replace")).get("token", [""])[0].strip()
        token = await to_thread.run_sync(store.admitted, text, "read") if 0 < len(text) < _MOST_TEXT else None
        if token is None:  # only a wrong one is slowed down
            slowed = wrong_tokens.wait(client) > 0
            return form(to, _TOO_MANY, 429) if slowed else form(to, _WRONG, 403)
        answer = partial(signed_in_answer, request, store, rules, token.user, token.id, to=to)
        return await to_thread.run_sync(answer)

    def sign_out(request: Request) -> Response:
        text, secure = session_text(request, rules), speaks_https(request, rules)
        visitor = store.visitor(session=text) if text else None
        if visitor is not None and visitor.session is not None:
            request.scope[VISITOR] = visitor
            acting(request, store, "sign-out").end_session(visitor.session)
        answer = RedirectResponse("/sign-in", status_code=303)
        answer.delete_cookie(cookie_name(secure=secure), secure=secure, httponly=True, samesite="lax")
        return answer

    def to_provider(request: Request) -> Response:
        assert provider is not None  # noqa: S101 - the route is there only then
        attempt = new_attempt(own_path(request.query_params.get("to", "/")))
        try:
            answer = RedirectResponse(provider.sign_in_address(attempt, _back(request, rules)), status_code=303)
        except InferometerError as error:
            return form(attempt.to, _sentence(error), status_of(error))
        secure = speaks_https(request, rules)
        # Lax, so that it comes along when the provider leads the browser back here.
        answer.set_cookie(
            _attempt_cookie(secure=secure), attempt.written(), httponly=True, samesite="lax", secure=secure,
            max_age=_ATTEMPT_S,
        )  # fmt: skip
        return answer

    def from_provider(request: Request) -> Response:
        assert provider is not None  # noqa: S101 - as above
        secure = speaks_https(request, rules)
        attempt = read_attempt(request.cookies.get(_attempt_cookie(secure=secure), ""))
        try:
            who = provider.identity(request.query_params, attempt, _back(request, rules))
            joins = allowed(who.email, provider.rules.allow)
            user = store.identified(who.issuer, who.subject, who.email, joins=joins)
            if user is None:
                raise HubError(403, _stranger(who.email))
        except InferometerError as error:
            return form("/", _sentence(error), status_of(error))
        answer = signed_in_answer(request, store, rules, user, None, to="/" if attempt is None else attempt.to)
        answer.delete_cookie(_attempt_cookie(secure=secure), secure=secure, httponly=True, samesite="lax")
        return answer

    routes = [
        Route("/sign-in", sign_in, methods=["GET", "POST"]),
        Route("/sign-out", sign_out, methods=["POST"]),
    ]
    if provider is None:
        return routes
    return [
        *routes,
        Route("/sign-in/provider", to_provider, methods=["GET"]),
        Route(_CALLBACK, from_provider, methods=["GET"]),
    ]


def _back(request: Request, rules: Rules) -> str:
    """Where the provider leads people back to: the address that it was told of when the hub was registered there."""
    return own_address(request, rules).rstrip("/") + _CALLBACK


def _attempt_cookie(*, secure: bool) -> str:
    return f"{'__Host-' if secure else ''}inferometer_attempt"


def _sentence(error: InferometerError) -> str:
    return " ".join(filter(None, told(error)))


def _stranger(email: str | None) -> str:
    if email is None:
        return "The provider has verified no e-mail address of yours, and you are not known here."
    return f"{email} is not known here: ask an owner of a project to invite this address."


def own_path(to: str) -> str:
    """Where to go after signing in: a page of this hub, and of no other."""
    return to if to.startswith("/") and not to.startswith(("//", "/\\")) else "/"


def signed_in_answer(  # noqa: PLR0913 - who, by what, and where to
    request: Request, store: Store, rules: Rules, user: str, token: str | None, *, to: str
) -> Response:
    """Begin a session, and lead to where its owner was going."""
    browser = request.headers.get("user-agent")
    deed = Deed(user=user, action="sign-in", token=token, address=client_of(request), detail=browser)
    text = store.doing(deed).begin_session(user, token=token, address=client_of(request), browser=browser)
    answer = RedirectResponse(own_path(to), status_code=303)
    secure = speaks_https(request, rules)
    # Lax: a link in a chat opens the page it leads to. Writes are refused from any page but ours, cookie or not.
    answer.set_cookie(
        cookie_name(secure=secure), text, httponly=True, samesite="lax", secure=secure, max_age=round(LONGEST_S)
    )
    return answer


def _form(to: str, message: str | None, status: int = 200, *, provider: str | None) -> Response:
    headers = {"retry-after": "60"} if status == 429 else None
    page = render_template("sign_in.html", {"to": to, "message": message, "provider": provider, "here": ""})
    return HTMLResponse(page, status_code=status, headers=headers)
