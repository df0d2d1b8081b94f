"""Which files hold a model in the format of a plan, so that what is launched is what was planned."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.known import device as device_named
from inferometer.known import model as model_named
from inferometer.known.files import row_named
from inferometer.predict.ask import model_graph
from inferometer.serving.plans.search import own_bits

if TYPE_CHECKING:
    from inferometer.serving.plans.asked import ServingPlan

_FILE = Path(__file__).with_name("checkpoints.toml")
_ROOM = 0.9  # of a device, for weights that are loaded whole


@frozen
class Files:
    """`repository` is a folder, or a place on the Hugging Face hub; `quantization` is made of them on load."""

    repository: str
    quantization: str | None = None


def files_of(plan: ServingPlan, model: str) -> Files:
    """Files in the plan's format that its engine reads, or an error that says what to do."""
    if plan.weights is not None:
        for row in _rows(model, plan.weights, plan.runtime):
            return Files(repository=row["repository"])
        made = _known()["engines"][plan.runtime].get("made_on_load", {}).get(plan.weights)
        if made is not None and _holds_whole(plan, model):
            return Files(repository=_repository(model), quantization=made)
        raise DomainError(
            f"No files of {model} in {plan.weights} that {plan.runtime} reads are known here.",
            remedy="Plan with --weights own, or for a folder with such weights: inferometer plan FOLDER --weights own.",
        )
    if plan.drafting is not None and plan.drafting.head == "eagle":
        return Files(repository=_eagle(model, plan.runtime)["target"])
    return Files(repository=_repository(model))


def draft_of(plan: ServingPlan, model: str) -> str | None:
    """The files of what drafts; None where nothing does, or where it is in the model's own."""
    if plan.drafting is None or plan.drafting.head in {"mtp", "ngram"}:
        return None
    if plan.drafting.head == "eagle":
        return str(_eagle(model, plan.runtime)["repository"])
    return _repository(plan.drafting.draft)


def _eagle(model: str, runtime: str) -> dict[str, Any]:
    for row in _rows(model, "eagle", runtime):
        return row
    raise DomainError(
        f"No EAGLE head for {model} that {runtime} reads is known here.",
        remedy="Plan with --draft and a smaller model of the same family, or with --draft ngram.",
    )


def _rows(model: str, form: str, runtime: str) -> list[dict[str, Any]]:
    name = model_named(model).name if row_named("models", model) else model
    reads = _known()["engines"][runtime]["reads"]
    return [row for row in _known()["models"].get(name, {}).get(form, ()) if row["method"] in reads]


@cache
def _known() -> dict[str, dict[str, dict[str, Any]]]:
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


def _repository(model: str) -> str:
    """Where the files of a model are: a path of the user's own, or the repository that the catalog names."""
    if not row_named("models", model):
        return str(model)
    names = [name for name in model_named(model).aliases if "/" in name]
    if not names:
        raise DomainError(
            f"The catalog names no repository of {model}.",
            remedy="Name the folder of its files instead: inferometer plan FOLDER.",
        )
    return next((name for name in names if name.casefold() == str(model).casefold()), names[0])


def _holds_whole(plan: ServingPlan, model: str) -> bool:
    """Whether a device has room for its share of the weights as they are in the files."""
    graph, memory = model_graph(model), device_named(plan.device).memory
    needed = graph.parameters * own_bits(graph) / 8 / plan.size
    return memory is not None and memory.room is not None and needed <= _ROOM * float(memory.room)
