"""JSON that comes from elsewhere: a model's files, another tool's, a server's."""

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """What it says. A nest too deep for Python's stack is an error of the text like any other: a ValueError."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None
