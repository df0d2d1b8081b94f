"""Why it is as slow as it is, and what to do: attribution, roofline, findings, what-ifs.

`explanation.explain` gives all of it for one profile; `attribution` and `roofline` can be asked alone.
"""

from typing import TYPE_CHECKING

from inferometer.lazy import attributes

if TYPE_CHECKING:
    from inferometer.explain.explanation import Explanation, document, explain
    from inferometer.explain.resolve import graph_of
    from inferometer.explain.roofline import roofed

__all__ = ["Explanation", "document", "explain", "graph_of", "roofed"]

__getattr__ = attributes(__name__, {
    "inferometer.explain.explanation": ("Explanation", "document", "explain"),
    "inferometer.explain.resolve": ("graph_of",),
    "inferometer.explain.roofline": ("roofed",),
})  # fmt: skip
