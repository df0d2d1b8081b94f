"""The work rules: one plain function for each op kind, from an op and a binding of its sizes to its `Work`.

Every rule takes ints or numpy arrays for its sizes. Ints give exact ints; arrays give one answer for each element (bind
float64 arrays where a product may pass 2⁶³). Conventions that hold in all of them:

- A multiply and an add are two operations. A comparison, a division, an exponential, a root or a tanh is one.
- Each tensor an op names is read or written once, however often the arithmetic uses it: the least that must move.
- Integer arithmetic is counted like any other, under its own format.
"""

from inferometer.predict.work.rules import attention, control, elementwise, experts, indexing, linear
from inferometer.predict.work.rules.registry import RULES, Rule, covered, rule, work_of

__all__ = [
    "RULES", "Rule", "attention", "control", "covered", "elementwise", "experts", "indexing", "linear", "rule",
    "work_of",
]  # fmt: skip
