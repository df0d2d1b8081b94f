"""Who asks, and whether what they want to remove is theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inferometer.hub.failures import HubError
from inferometer.hub.security import TOKEN

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Scope

    from inferometer.store.values import Token


def token_of(request: Request) -> Token | None:
    """The token a request came with; None at a hub that needs none."""
    token: Token | None = request.scope.get(TOKEN)
    return token


def author_of(request: Request) -> str | None:
    return user_in(request.scope)


def user_in(scope: Scope) -> str | None:
    token: Token | None = scope.get(TOKEN)
    return None if token is None else token.user


def require_owner(request: Request, what: str, owner: str | None) -> None:
    """Whoever may write may not yet remove what another has made; without tokens there is only one user."""
    token = token_of(request)
    if token is None or token.allows("admin") or (owner is not None and token.user == owner):
        return
    whose = "nobody's that is known" if owner is None else f"{owner}'s"
    raise HubError(
        403,
        f"{what} is {whose}, and this token is {token.user}'s.",
        remedy="Only its owner, or a token with the scope admin, may delete it.",
    )
