"""How fast will it run: a question, what is known to answer it with, and the price of every op.

The package is the verb of its name too: `inferometer.predict("llama-3.1-8b", on="nvidia-h200")`.
"""

from typing import TYPE_CHECKING

from inferometer.core.lazy import attributes, callable_package

if TYPE_CHECKING:
    from inferometer.predict.memory.footprint import Footprint, footprint
    from inferometer.predict.work.count import Coverage, Uncovered, coverage, graph_work, op_works
    from inferometer.predict.work.rules import covered, work_of

__all__ = [
    "Coverage", "Footprint", "Uncovered", "coverage", "covered", "footprint", "graph_work", "op_works", "work_of",
]  # fmt: skip

__getattr__ = attributes(__name__, {
    "inferometer.predict.memory.footprint": ("Footprint", "footprint"),
    "inferometer.predict.work.count": ("Coverage", "Uncovered", "coverage", "graph_work", "op_works"),
    "inferometer.predict.work.rules": ("covered", "work_of"),
})  # fmt: skip

callable_package(__name__, "inferometer.predict.verbs")
