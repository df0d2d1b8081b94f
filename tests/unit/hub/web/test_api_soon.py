"""The API is there before somebody waits for it, and what keeps it away is told to whoever asks."""

import asyncio

import pytest

from inferometer.core.errors import InferometerError
from inferometer.hub.web import app
from inferometer.hub.web.api import routes


async def _at_once(seconds):
    assert seconds > 1, "the first page comes first"


def test_the_api_is_made_soon_after_the_start_and_once(monkeypatch):
    made = []
    monkeypatch.setattr(routes, "create_api", lambda *parts: made.append(parts) or object())
    api = app.LazyApi("store", "rules", "desk")
    asyncio.run(api.make_soon(_at_once))
    assert made == [("store", "rules", "desk")]
    assert api.api() is api.api()
    assert len(made) == 1


def test_what_fails_then_fails_where_somebody_asks(monkeypatch):
    def refused(*_):
        raise InferometerError("FastAPI is too old.")

    monkeypatch.setattr(routes, "create_api", refused)
    api = app.LazyApi("store", "rules", "desk")
    asyncio.run(api.make_soon(_at_once))
    with pytest.raises(InferometerError, match="too old"):
        api.api()
