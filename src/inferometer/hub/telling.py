"""Telling others of an alarm: a webhook, and a badge. What cannot be told is said here, and stays with the run."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from inferometer.core.errors import PlaceError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from inferometer.understand.series import Alarm

_TIMEOUT_S = 10.0
_COLOURS = {"too few": "#9f9f9f", "steady": "#4c1", "suspected": "#dfb317", "withdrawn": "#4c1", "confirmed": "#e05d44"}
_SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="speed: {words}">'
    '<rect width="46" height="20" fill="#555"/><rect x="46" width="{right}" height="20" fill="{colour}"/>'
    '<g fill="#fff" font-family="Verdana,sans-serif" font-size="11"><text x="6" y="14">speed</text>'
    '<text x="52" y="14">{words}</text></g></svg>\n'
)


def post_alarm(url: str, document: Mapping[str, Any], *, timeout_s: float = _TIMEOUT_S) -> None:
    """Send it as JSON. Whatever comes but a 2xx is a `PlaceError`, also nothing within the time."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise PlaceError(f"{url!r} is no address of a webhook.", remedy="It begins with https:// or http://.")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
    shown = f"{parts.scheme}://{parts.hostname}"  # the path of a webhook is often its secret
    again = "The alarm is kept with the run: `inferometer watch RUN --webhook URL` sends it again."
    connection = kind(parts.hostname, parts.port, timeout=timeout_s)
    try:
        connection.request("POST", path, json.dumps(document), {"content-type": "application/json"})
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        why = f"no answer within {timeout_s:g} s" if isinstance(error, TimeoutError) else str(error) or "it hung up"
        raise PlaceError(f"{shown} was not told: {why}.", remedy=again) from None
    finally:
        connection.close()
    if not 200 <= status < 300:
        raise PlaceError(f"{shown} was not told: it answered {status}.", remedy=again)


def badge_text(alarm: Alarm) -> str:
    change = "" if alarm.ratio is None or not alarm.told else f" {alarm.ratio - 1:+.0%}"
    return {"too few": "too few runs", "confirmed": "changed"}.get(alarm.state, alarm.state) + change


def write_badge(alarm: Alarm, path: Path) -> None:
    """An SVG, or the JSON that services which draw badges read."""
    from inferometer.measure.spans.files import write_whole  # noqa: PLC0415 - who wants no badge needs none of it

    words, colour = badge_text(alarm), _COLOURS[alarm.state]
    if path.suffix.lower() == ".json":
        text = json.dumps({"schemaVersion": 1, "label": "speed", "message": words, "color": colour}) + "\n"
    else:
        right = 14 + 7 * len(words)
        text = _SVG.format(width=46 + right, right=right, colour=colour, words=words)
    write_whole(path, [text.encode()])
