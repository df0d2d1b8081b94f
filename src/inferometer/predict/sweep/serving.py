"""The cheapest way to serve a number of users: devices × engines × formats × tensor parallelism × replicas.

Each plan is answered as `predict --users` answers it. Where one replica is not enough, as many are taken as give every
user what was asked for.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.known import devices as all_devices
from inferometer.known import instances_with
from inferometer.predict.ask import ask
from inferometer.predict.basis.engine_tables.calibrating import system_of
from inferometer.predict.options import Options
from inferometer.predict.served.question import ServingAnswer, serving_answer

if TYPE_CHECKING:
    from collections.abc import Iterator

_TP = (1, 2, 4, 8)  # a server has eight devices, and heads divide by powers of two
_WEIGHTS = (None, "f8e4m3", "i4")  # as published, and the two narrower formats that serving engines have kernels for
_MOST_REPLICAS = 64  # doubled until the targets are met; who needs more than these asks with another device


@frozen
class ServingSearch:
    """What is searched.

    Without devices: the data centre's GPUs that have a price; without engines: the usual one; without formats: the
    model's own, 8 and 4 bits.
    """

    models: tuple[str, ...]
    users: int
    prompt: int
    generate: int
    devices: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
    tp: tuple[int, ...] = ()
    kv: str | None = None
    tokens_per_user: float | None = None
    options: Options = Options()


def cheapest_serving(search: ServingSearch) -> list[dict[str, Any]]:
    """Plans that meet the targets, the cheapest an hour first; then plans that miss them, the nearest first.

    A plan that is impossible is left out, unless every plan is: then each says why.
    """
    found: list[ServingAnswer] = []
    refused: list[dict[str, Any]] = []
    for model, device, runtime, weights, tp in _plans(search):
        try:
            found.append(_enough(search, model, device, runtime, weights, tp))
        except DomainError as error:
            named = {"model": model, "device": device, "runtime": runtime, "weights": weights, "tp": tp}
            refused.append({**named, "error": str(error)})
    found.sort(key=_order)
    return [_row(answer) for answer in found] or refused


def _plans(search: ServingSearch) -> Iterator[tuple[str, str, str | None, str | None, int]]:
    devices = search.devices or priced_gpus()
    return product(search.models, devices, search.runtimes or (None,), search.weights or _WEIGHTS, search.tp or _TP)


def priced_gpus() -> tuple[str, ...]:
    """GPUs of data centres whose kernels are known, or a near one's, and that some instance of the catalog has."""
    return tuple(
        name
        for name, device in all_devices().items()
        if device.kind == "server" and device.unit == "gpu" and system_of(name) and instances_with(name)
    )


def _enough(  # noqa: PLR0913, PLR0917 - a plan
    search: ServingSearch, model: str, device: str, runtime: str | None, weights: str | None, tp: int
) -> ServingAnswer:
    """One replica, or the fewest that give every user enough."""
    replicas = 1
    while True:
        question = ask(
            model, on=device, runtime=runtime, weights=weights, kv=search.kv, batch=replicas, prompt=search.prompt,
            generate=search.generate, tp=tp, dp=replicas, options=search.options,
        )  # fmt: skip
        answer = serving_answer(question, search.users, search.tokens_per_user)
        if answer.meets is not False or 2 * replicas > min(_MOST_REPLICAS, search.users):
            return answer
        alone = serving_answer(question, replicas, search.tokens_per_user)
        if not alone.meets:  # not even one user each: more replicas do not help
            return answer
        replicas *= 2


def _order(answer: ServingAnswer) -> tuple[bool, float, float]:
    price = answer.usd_per_hour
    return (answer.meets is False, float("inf") if price is None else price, answer.tpot_s)


def _row(answer: ServingAnswer) -> dict[str, Any]:
    return {name: value for name, value in answer.document().items() if name not in {"notes", "schema"}}
