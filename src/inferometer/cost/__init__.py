"""What a graph costs: the work of its ops, and the memory they need."""

from inferometer.cost.memory.footprint import Footprint, footprint
from inferometer.cost.work.count import Coverage, Uncovered, coverage, graph_work, op_works
from inferometer.cost.work.rules import covered, work_of

__all__ = [
    "Coverage",
    "Footprint",
    "Uncovered",
    "coverage",
    "covered",
    "footprint",
    "graph_work",
    "op_works",
    "work_of",
]
