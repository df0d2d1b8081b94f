"""Send runs to a hub. What it cannot take now is kept and sent later; a run keeps its id, so that it arrives once."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from inferometer.core.errors import InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.json_text import parse_json
from inferometer.hub.places.hub_client import HubAwayError, HubRefusalError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from inferometer.hub.places.hub_client import HubClient
    from inferometer.store.store import Store
    from inferometer.store.values import Push

_TIMEOUT_S = 300.0


@frozen
class Pushed:
    """What became of one run: its page at the hub, or why it has none. `waits` if it will be sent later."""

    run: str
    link: str | None = None
    waits: bool = False
    reason: str | None = None


def push(store: Store, client: HubClient, runs: Iterable[str] = (), *, project: str | None = None) -> list[Pushed]:
    """Send these runs, and whatever waits for this hub from before, the oldest first.

    A hub that does not answer is asked once: the rest waits too.
    """
    for run in runs:
        store.queue_push(run, client.url, project)
    answers: list[Pushed] = []
    away: HubAwayError | None = None
    for waiting in store.waiting_pushes(client.url):
        if away is None:
            try:
                answers.append(_send(store, client, waiting))
                continue
            except HubAwayError as error:
                away = error
        store.note_push(waiting, reason=away.message)
        answers.append(Pushed(run=waiting.run, waits=True, reason=str(away)))
    return answers


def _send(store: Store, client: HubClient, waiting: Push) -> Pushed:
    try:
        with tempfile.TemporaryDirectory(prefix="inferometer-") as folder:
            archive = store.export(waiting.run, Path(folder, "run.zip")).read_bytes()
        answer = parse_json(
            client.call(
                "POST", "/api/v1/runs/import", archive, query={"project": waiting.project}, timeout_s=_TIMEOUT_S,
                kind="application/zip",
            )
        )  # fmt: skip
    except HubAwayError:
        raise
    except HubRefusalError as error:
        # A token can be mended; what the hub says of the run itself stays true.
        store.note_push(waiting, reason=error.message, refused=error.status not in {401, 403})
        return Pushed(run=waiting.run, waits=error.status in {401, 403}, reason=str(error))
    except InferometerError as error:
        store.note_push(waiting, reason=error.message, refused=True)
        return Pushed(run=waiting.run, reason=str(error))
    store.note_push(waiting)
    return Pushed(run=waiting.run, link=str(answer["link"]))
