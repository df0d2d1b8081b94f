"""`inferometer sweep --users`: the cheapest way to serve so many users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inferometer.cli.options import print_document, print_table, print_text
from inferometer.cli.prediction_options import option_of
from inferometer.core.errors import DomainError, InferometerError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from inferometer.predict.options import Options

_SPLIT = ("devices", "runtimes", "weights", "tp")


def print_cheapest(
    axes: Mapping[str, str | None],
    options: Options,
    users: int | None,
    tokens_per_user: float | None,
    form: str,
    *,
    most: int,
) -> None:
    from inferometer.predict.sweep.serving import ServingSearch, cheapest_serving
    from inferometer.understand.view.serving import serving_table

    if users is None or axes["models"] is None:
        raise DomainError(
            "--users takes a number of users and --models the model that they use.",
            remedy="For example --models qwen3-32b --users 64 --tokens-per-user 30.",
        )
    unused = [
        name for name, value in axes.items() if value and name not in {*_SPLIT, "models", "kv", "prompt", "generate"}
    ]
    if unused:
        raise DomainError(
            f"{option_of(unused[0])} is not searched for users.",
            remedy=f"Searched: {', '.join(map(option_of, _SPLIT))} (lists).",
        )
    lists = {name: _listed(axes[name]) for name in _SPLIT}
    search = ServingSearch(
        models=_listed(axes["models"]),
        devices=lists["devices"],
        runtimes=lists["runtimes"],
        weights=lists["weights"],
        tp=tuple(_whole("tp", text) for text in lists["tp"]),
        kv=axes["kv"],
        prompt=_whole("prompt", axes["prompt"] or "1024"),
        generate=_whole("generate", axes["generate"] or "512"),
        users=users,
        tokens_per_user=tokens_per_user,
        options=options,
    )
    rows = cheapest_serving(search)
    if form == "json":
        print_document(rows)
        return
    print_table(serving_table(rows[:most]), form)
    if form == "table" and len(rows) > most:
        print_text(f"{len(rows) - most} more plans: --rows {len(rows)} shows them.")
    if tokens_per_user is not None and not any(row.get("meets") for row in rows):
        raise InferometerError(f"No plan gives {users} users {tokens_per_user:g} tokens/s each.")


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip()) if text else ()


def _whole(name: str, text: Any) -> int:
    try:
        return int(text)
    except ValueError:
        raise DomainError(f"--{name} takes whole numbers here, and not {text!r}.") from None
