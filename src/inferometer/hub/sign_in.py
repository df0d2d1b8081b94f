"""Signing in and out: a token, pasted once, becomes a cookie that scripts and other sites do not get."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from anyio import to_thread
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from inferometer.hub.rendering import render_template
from inferometer.hub.security import COOKIE, client_of

if TYPE_CHECKING:
    from starlette.requests import Request

    from inferometer.hub.rate_limit import RateLimit
    from inferometer.store.store import Store
    from inferometer.store.values import Token

_LONGEST_S = 30 * 86400
_WRONG = "This token is not valid here: it is unknown, expired, revoked, or may not read."
_ENDED = "You were signed out: your token has expired or was revoked."
_TOO_MANY = "Too many wrong tokens came from your address. Try again in a minute."


def sign_in_routes(store: Store, wrong_tokens: RateLimit) -> list[Route]:
    async def sign_in(request: Request) -> Response:
        to = request.query_params.get("to", "/")
        to = to if to.startswith("/") and not to.startswith(("//", "/\\")) else "/"
        if request.method == "GET":
            return _form(to, _ENDED if request.query_params.get("ended") else None)
        client = client_of(request)
        if wrong_tokens.spent(client):
            return _form(to, _TOO_MANY, 429)
        text = parse_qs((await request.body()).decode("utf-8", "replace")).get("token", [""])[0].strip()
        token = await to_thread.run_sync(store.admitted, text, "read") if text else None
        if token is None:
            wrong_tokens.wait(client)
            return _form(to, _WRONG, 403)
        answer = RedirectResponse(to, status_code=303)
        # Lax: a link in a chat opens the page it leads to. Writes are refused from any page but ours, cookie or not.
        answer.set_cookie(
            COOKIE, text, httponly=True, samesite="lax", secure=request.url.scheme == "https", max_age=_lasts_s(token)
        )
        return answer

    def sign_out(_request: Request) -> Response:
        answer = RedirectResponse("/sign-in", status_code=303)
        answer.delete_cookie(COOKIE)
        return answer

    return [
        Route("/sign-in", sign_in, methods=["GET", "POST"]),
        Route("/sign-out", sign_out, methods=["POST"]),
    ]


def _lasts_s(token: Token) -> int:
    left = _LONGEST_S if token.expires is None else token.expires - time.time()
    return max(1, min(_LONGEST_S, round(left)))


def _form(to: str, message: str | None, status: int = 200) -> Response:
    headers = {"retry-after": "60"} if status == 429 else None
    page = render_template("sign_in.html", {"to": to, "message": message, "here": ""})
    return HTMLResponse(page, status_code=status, headers=headers)
