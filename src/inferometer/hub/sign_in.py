"""Signing in and out: a token, pasted once, begins a session, whose cookie scripts and other sites do not get.

The cookie is not the token, and ends at the hub: by signing out, after half a day without use, with the token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from anyio import to_thread
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from inferometer.hub.people import acting
from inferometer.hub.rendering import render_template
from inferometer.hub.security import VISITOR, client_of, cookie_name, session_text, speaks_https
from inferometer.store.audit import Deed
from inferometer.store.visitors import LONGEST_S

if TYPE_CHECKING:
    from starlette.requests import Request

    from inferometer.hub.rate_limit import RateLimit
    from inferometer.hub.rules import Rules
    from inferometer.store.store import Store

_WRONG = "This token is not valid here: it is unknown, expired, revoked, or may not read."
_ENDED = "You were signed out: your session, or the token it was begun with, has ended."
_TOO_MANY = "Too many wrong tokens came from your address. Try again in a minute."
_MOST_TEXT = 1000


def sign_in_routes(store: Store, rules: Rules, wrong_tokens: RateLimit) -> list[Route]:
    async def sign_in(request: Request) -> Response:
        to = own_path(request.query_params.get("to", "/"))
        if request.method == "GET":
            return _form(to, _ENDED if request.query_params.get("ended") else None)
        client = client_of(request)
        text = parse_qs((await request.body()).decode("utf-8", "replace")).get("token", [""])[0].strip()
        token = await to_thread.run_sync(store.admitted, text, "read") if 0 < len(text) < _MOST_TEXT else None
        if token is None:  # only a wrong one is slowed down
            slowed = wrong_tokens.wait(client) > 0
            return _form(to, _TOO_MANY, 429) if slowed else _form(to, _WRONG, 403)
        return await to_thread.run_sync(signed_in_answer, request, store, rules, token.user, token.id)

    def sign_out(request: Request) -> Response:
        text, secure = session_text(request, rules), speaks_https(request, rules)
        visitor = store.visitor(session=text) if text else None
        if visitor is not None and visitor.session is not None:
            request.scope[VISITOR] = visitor
            acting(request, store, "sign-out").end_session(visitor.session)
        answer = RedirectResponse("/sign-in", status_code=303)
        answer.delete_cookie(cookie_name(secure=secure), secure=secure, httponly=True, samesite="lax")
        return answer

    return [
        Route("/sign-in", sign_in, methods=["GET", "POST"]),
        Route("/sign-out", sign_out, methods=["POST"]),
    ]


def own_path(to: str) -> str:
    """Where to go after signing in: a page of this hub, and of no other."""
    return to if to.startswith("/") and not to.startswith(("//", "/\\")) else "/"


def signed_in_answer(request: Request, store: Store, rules: Rules, user: str, token: str | None) -> Response:
    """Begin a session, and lead to where its owner was going."""
    browser = request.headers.get("user-agent")
    deed = Deed(user=user, action="sign-in", token=token, address=client_of(request), detail=browser)
    text = store.doing(deed).begin_session(user, token=token, address=client_of(request), browser=browser)
    answer = RedirectResponse(own_path(request.query_params.get("to", "/")), status_code=303)
    secure = speaks_https(request, rules)
    # Lax: a link in a chat opens the page it leads to. Writes are refused from any page but ours, cookie or not.
    answer.set_cookie(
        cookie_name(secure=secure), text, httponly=True, samesite="lax", secure=secure, max_age=round(LONGEST_S)
    )
    return answer


def _form(to: str, message: str | None, status: int = 200) -> Response:
    headers = {"retry-after": "60"} if status == 429 else None
    page = render_template("sign_in.html", {"to": to, "message": message, "here": ""})
    return HTMLResponse(page, status_code=status, headers=headers)
