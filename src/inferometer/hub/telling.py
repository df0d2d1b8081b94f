"""Telling others of an alarm: a webhook, e-mail, GitHub and GitLab, and a badge.

What cannot be told is said here, and stays with the run.
"""

from __future__ import annotations

import http.client
import json
import re
import smtplib
import socket
import ssl
from email.message import EmailMessage
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, unquote, urlsplit

from inferometer.core.errors import PlaceError
from inferometer.core.settings import value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from inferometer.understand.series import Alarm

T = TypeVar("T")
_TIMEOUT_S = 10.0
_LETTERS = 140  # of a commit's state, that GitHub takes; GitLab takes 255
_AGAIN = "The alarm is kept with the run: `inferometer runs watch RUN --tell PLACE` tells it again."
_FORGES = {"github": "https://api.github.com", "gitlab": "https://gitlab.com/api/v4"}
_PLACE = re.compile(r"(?P<project>[\w.-]+(?:/[\w.-]+)+)(?P<sign>[#!@])(?P<which>[0-9a-f]{1,40})")
_COLOURS = {"too few": "#9f9f9f", "steady": "#4c1", "suspected": "#dfb317", "withdrawn": "#4c1", "confirmed": "#e05d44"}
_SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="speed: {words}">'
    '<rect width="46" height="20" fill="#555"/><rect x="46" width="{right}" height="20" fill="{colour}"/>'
    '<g fill="#fff" font-family="Verdana,sans-serif" font-size="11"><text x="6" y="14">speed</text>'
    '<text x="52" y="14">{words}</text></g></svg>\n'
)


def tell_alarm(place: str, alarm: Alarm, *, timeout_s: float = _TIMEOUT_S) -> None:
    """Tell a place of an alarm: `https://…`, `mailto:…`, `github:…` or `gitlab:…`.

    Only what is confirmed is told, but for the state of a commit, which also says that all is well. Who cannot be told
    is a `PlaceError`.
    """
    kind, _, rest = place.partition(":")
    if kind in {"http", "https"}:
        if alarm.told:
            _request("POST", place, alarm.document(), {}, timeout_s)
    elif kind == "mailto":
        if alarm.told:
            _send_mail(rest, alarm, timeout_s)
    elif kind in _FORGES and (found := _PLACE.fullmatch(rest)):
        _tell_forge(kind, found, alarm, timeout_s)
    else:
        raise PlaceError(
            f"{place!r} is no place that can be told.",
            remedy="Places are https://ADDRESS, mailto:ADDRESS, github:OWNER/REPOSITORY#PULL or @COMMIT, and "
            "gitlab:GROUP/PROJECT!MERGE or @COMMIT.",
        )


def _tell_forge(kind: str, found: re.Match[str], alarm: Alarm, timeout_s: float) -> None:
    """A comment on a pull or merge request, or the state of a commit, by the API that each documents."""
    project, sign, which = found["project"], found["sign"], found["which"]
    token = value_of("INFEROMETER_FORGE_TOKEN")
    if not token:
        raise PlaceError(f"{kind} needs a token to be told.", remedy="Set INFEROMETER_FORGE_TOKEN.")
    at_github = kind == "github"
    api = f"/repos/{project}" if at_github else f"/projects/{quote(project, safe='')}"
    if sign == "@":
        slower, bad = alarm.told and (alarm.ratio or 0) > 1, "failure" if at_github else "failed"
        path, named = f"{api}/statuses/{which}", "context" if at_github else "name"
        words = alarm.sentence if len(alarm.sentence) <= _LETTERS else f"{alarm.sentence[: _LETTERS - 1]}…"
        body = {"state": bad if slower else "success", named: "inferometer", "description": words}
    elif alarm.told:
        path = f"{api}/issues/{which}/comments" if at_github else f"{api}/merge_requests/{which}/notes"
        body = {"body": f"**{badge_text(alarm)}**: {alarm.sentence}"}
    else:
        return
    headers = {"authorization": f"Bearer {token}", "accept": "application/vnd.github+json"}
    if not at_github:
        headers = {"private-token": token}
    _request("POST", f"{value_of('INFEROMETER_FORGE') or _FORGES[kind]}{path}", body, headers, timeout_s)


def _send_mail(to: str, alarm: Alarm, timeout_s: float) -> None:
    parts = urlsplit(value_of("INFEROMETER_SMTP") or "")
    if parts.scheme not in {"smtp", "smtps"} or not parts.hostname:
        raise PlaceError(
            f"{to} was not told: there is no server of mail.",
            remedy="Set INFEROMETER_SMTP to smtps://USER:PASSWORD@HOST or smtp://HOST:PORT.",
        )
    message = EmailMessage()
    model = alarm.series.get("model") or "a model"
    message["Subject"] = f"{model}: {badge_text(alarm)}"
    message["From"], message["To"] = f"inferometer@{socket.getfqdn()}", to
    message.set_content(f"{alarm.sentence}\n\nRun {alarm.run}\n")
    host, port = parts.hostname, parts.port or 0

    def send() -> None:
        kind = smtplib.SMTP_SSL if parts.scheme == "smtps" else smtplib.SMTP
        with kind(host, port, timeout=timeout_s) as server:
            server.ehlo_or_helo_if_needed()
            if parts.scheme == "smtp" and server.has_extn("starttls"):
                server.starttls(context=ssl.create_default_context())
            if parts.username:
                server.login(unquote(parts.username), unquote(parts.password or ""))
            server.send_message(message)

    try:
        _in_time(send, timeout_s)
    except (OSError, smtplib.SMTPException) as error:
        raise PlaceError(f"{to} was not told: {_why(error, timeout_s)}.", remedy=_AGAIN) from None


def _request(method: str, url: str, document: Mapping[str, Any], headers: Mapping[str, str], timeout_s: float) -> None:
    """Send JSON. Whatever comes but a 2xx is a `PlaceError`, also nothing within the time."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise PlaceError(f"{url!r} is no address that can be told.", remedy="It begins with https:// or http://.")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
    shown = f"{parts.scheme}://{parts.hostname}"  # the path of a webhook is often its secret
    connection = kind(parts.hostname, parts.port, timeout=timeout_s)
    sent = {"content-type": "application/json", "user-agent": "inferometer", **headers}

    def send() -> int:
        connection.request(method, path, json.dumps(document), sent)
        return connection.getresponse().status

    try:
        status = _in_time(send, timeout_s)
    except (OSError, http.client.HTTPException) as error:
        raise PlaceError(f"{shown} was not told: {_why(error, timeout_s)}.", remedy=_AGAIN) from None
    finally:
        connection.close()
    if not 200 <= status < 300:
        raise PlaceError(f"{shown} was not told: it answered {status}.", remedy=_AGAIN)


def _in_time(work: Callable[[], T], timeout_s: float) -> T:
    """What `work` gives, or a `TimeoutError` after so long in all: a socket's own limit begins anew with every byte."""
    ended: SimpleQueue[T | Exception] = SimpleQueue()

    def run() -> None:
        try:
            ended.put(work())
        except Exception as error:  # noqa: BLE001 - raised again by who waits
            ended.put(error)

    Thread(target=run, daemon=True).start()
    try:
        found = ended.get(timeout=timeout_s)
    except Empty:
        raise TimeoutError from None
    if isinstance(found, Exception):
        raise found
    return found


def _why(error: Exception, timeout_s: float) -> str:
    return f"no answer within {timeout_s:g} s" if isinstance(error, TimeoutError) else str(error) or "it hung up"


def badge_text(alarm: Alarm) -> str:
    change = "" if alarm.ratio is None or not alarm.told else f" {alarm.ratio - 1:+.0%}"
    return {"too few": "too few runs", "confirmed": "changed"}.get(alarm.state, alarm.state) + change


def write_badge(alarm: Alarm, path: Path) -> None:
    """An SVG, or the JSON that services which draw badges read."""
    from inferometer.core.cache import write_asked_for  # noqa: PLC0415 - who wants no badge needs none of it

    words, colour = badge_text(alarm), _COLOURS[alarm.state]
    if path.suffix.lower() == ".json":
        text = json.dumps({"schemaVersion": 1, "label": "speed", "message": words, "color": colour}) + "\n"
    else:
        right = 14 + 7 * len(words)
        text = _SVG.format(width=46 + right, right=right, colour=colour, words=words)
    write_asked_for(path, [text.encode()])
