"""Ops that run other ops, and ops that reach other devices."""

from functools import reduce
from typing import Any

from inferometer.core.binding import Binding
from inferometer.core.graph import Op
from inferometer.core.work import STREAMS, Work
from inferometer.predict.work.polynomial import larger
from inferometer.predict.work.rules.registry import rule, streams, work_of


@rule("control")
def control(op: Op, binding: Binding) -> Work:
    """A loop is its body × `trips`; of two or more bodies without trips one runs.

    Which one is not known before the run, so the larger count of each kind of work is taken: no branch costs more.
    """
    bodies = [sum((work_of(inner, binding) for inner in body), Work()) for body in op["bodies"]]
    if op.get("trips") is not None:
        repeated: Work = sum(bodies, Work()) * binding.size(op["trips"])
        return repeated
    return reduce(_costlier, bodies, Work())


def _costlier(one: Work, other: Work) -> Work:
    flops = {name: larger(one.flops.get(name, 0), other.flops.get(name, 0)) for name in {**one.flops, **other.flops}}
    return Work(flops=flops, **{name: larger(getattr(one, name), getattr(other, name)) for name in STREAMS})


@rule("collective")
def collective(op: Op, binding: Binding) -> Work:
    """Bytes that each of n `devices` sends, by the ring algorithms, which send the least.

    all_reduce 2·(n − 1)/n of its input, in two rounds of (n − 1)/n: reduce_scatter, then all_gather of the parts.
    all_to_all (n − 1)/n of its input: all but its own share. all_gather (n − 1)/n of its output. Where `devices` is
    not given, the limit for many of them. Summing adds (n − 1)/n operations for each number of the input.
    """
    function = op["function"]
    moved = streams(op, binding)
    nbytes = sum(binding.nbytes(t) for t in (op.outputs if function == "all_gather" else op.inputs))
    rounds = 2 if function == "all_reduce" else 1
    flops = {}
    if function in {"all_reduce", "reduce_scatter"}:
        flops = {binding.arithmetic(op): _to_others(sum(binding.elements(t) for t in op.inputs), op)}
    return Work(flops=flops, **moved | {"link": rounds * _to_others(nbytes, op)})


def _to_others(amount: Any, op: Op) -> Any:
    """(n − 1)/n of an amount: what is left when each device keeps its own share, a whole number rounded up."""
    devices = op.get("devices")
    return amount if devices is None else amount - amount // devices  # the share that stays is rounded down
