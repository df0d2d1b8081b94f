"""The part of a round that is reported: when the load was as asked for, neither filling up nor running dry."""

import numpy as np

from inferometer.core.served import Window
from inferometer.core.traffic.requests import Requests

_LEAST_SHARE = 0.3  # of a round's requests; a window with fewer says more about chance than the round as a whole


def closed_window(requests: Requests, concurrency: int) -> Window:
    """From when every place has answered once until the last request was sent.

    All places begin at the same moment, which no later request does; after the last was sent, places stay empty.
    """
    ended = np.sort(requests.end_s[requests.ok])
    whole = _whole(requests)
    if len(ended) <= concurrency or len(requests) <= concurrency:
        return _too_few(whole, len(requests), f"{concurrency} at once")
    start, end = float(ended[concurrency - 1]), float(np.nanmax(requests.due_s))
    begun = "the first answer" if concurrency == 1 else f"the first {concurrency} answers"
    why = f"from {begun} until the last request was sent"
    return _checked(requests, Window(start_s=start, end_s=end, why=why), whole)


def open_window(requests: Requests, until_s: float | None = None) -> Window:
    """From when the first arrivals had time to be answered until the last arrival.

    Before that the system is emptier than the load makes it. `until_s` is when arrivals ended, where that is known.
    """
    whole = _whole(requests)
    ok = requests.ok
    if not ok.any():
        return whole
    usual = float(np.median((requests.end_s - requests.due_s)[ok]))
    end = float(requests.due_s.max()) if until_s is None else until_s
    window = Window(
        start_s=float(requests.due_s.min()) + usual, end_s=end, why="from one median answer time on until arrivals end"
    )
    return _checked(requests, window, whole)


def _whole(requests: Requests) -> Window:
    ends = requests.end_s[np.isfinite(requests.end_s)]
    start = float(requests.due_s.min()) if len(requests) else 0.0
    end = float(ends.max()) if len(ends) else float(requests.due_s.max()) if len(requests) else 0.0
    return Window(start_s=start, end_s=max(end, start + 1e-9), why="the whole round")


def _checked(requests: Requests, window: Window, whole: Window) -> Window:
    inside = int(((requests.due_s >= window.start_s) & (requests.due_s <= window.end_s)).sum())
    if window.seconds <= 0 or inside < _LEAST_SHARE * len(requests):
        return _too_few(whole, len(requests), "this load")
    return window


def _too_few(whole: Window, count: int, load: str) -> Window:
    why = f"the whole round: {count} requests are too few for a steady part at {load}"
    return Window(start_s=whole.start_s, end_s=whole.end_s, why=why)
