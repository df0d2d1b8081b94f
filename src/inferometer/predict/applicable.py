"""What a question gives must mean something for its model and its engine: it is refused, not ignored.

What changes nothing makes an answer to another question than the one that was asked. Options that no answer would use
are refused in `predict.unused`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from inferometer.core.dtypes import is_gguf_block
from inferometer.core.errors import DomainError
from inferometer.core.graph import Graph, is_generative, takes_prompt
from inferometer.core.kept import Kept
from inferometer.core.workload import MOST
from inferometer.known.engines import default_runtime, known_engine
from inferometer.predict.fields import fields_that

if TYPE_CHECKING:
    from collections.abc import Callable

    from inferometer.core.engine import EngineDescriptor
    from inferometer.core.workload import Workload
    from inferometer.predict.fields import Needs
    from inferometer.predict.question import Question

_TAKEN = {
    "tokens": "models that write tokens", "arrays": "networks that answer in one pass",
    "texts": "models that read or write texts", "speech": "models of speech",
}  # fmt: skip
_LEAST_IMAGE = 16  # the smallest patch of common networks: below it convolutions look at padding alone
_IMAGE = frozenset({"image", "height", "width"})  # sizes that the side of an image sets


def require_applicable(question: Question) -> None:
    """Raise if something was given that cannot change the answer."""
    graph = question.graph
    if question.workload.prompt is not None and not takes_prompt(graph):
        raise _meaningless(question, "a prompt length", "reads no sequence of tokens", "--prompt")
    if question.workload.image not in {None, graph.metadata.get("image")} and not takes_image(graph):
        raise _meaningless(question, "an image size", "has no size of an image that could be set", "--image")
    if question.workload.image is not None and question.workload.image < _LEAST_IMAGE:
        raise DomainError(
            f"An image of {question.workload.image} pixels a side leaves nothing for {graph.name} to look at.",
            remedy=f"Give --image {_LEAST_IMAGE} or more, up to {MOST['image']}.",
        )
    if not is_generative(graph):
        workload = question.workload
        given = {
            "--generate": ("a number of tokens to generate", workload.generate),
            "--context": ("a context", workload.context),
            "--kv": ("a format of the cache", workload.precision.kv),
            "--prefill-on": ("a device for the prefill", question.prefill_on),
        }
        for option, (what, value) in given.items():
            if value is not None:
                raise _meaningless(question, what, "generates no tokens", option)
    drafting = question.options.speculative
    if drafting is not None and not is_generative(drafting.draft):
        raise DomainError(
            f"{drafting.draft.name} writes no tokens, so it cannot draft any for {graph.name}.",
            remedy="Name a smaller model of the same family with --draft.",
        )
    require_engine(question)


def meaningful(workload: Workload, graph: Graph) -> Workload:
    """The workload without what means nothing to the model: for sizes that were not given for this model alone."""
    kept: dict[str, Any] = {
        name: getattr(workload, name) if applies(graph) else None for name, applies in SIZES.items()
    }
    kv = workload.precision.kv if is_generative(graph) else None
    return replace(workload, **kept, precision=replace(workload.precision, kv=kv))


def takes_image(graph: Graph) -> bool:
    """Whether a size of the graph is the side of an image."""
    return not _IMAGE.isdisjoint(graph.symbols)


# The sizes of a request that only some models have, and which.
_HAVE: dict[Needs, Callable[[Graph], bool]] = {"prompt": takes_prompt, "tokens": is_generative, "image": takes_image}
SIZES = {name: _HAVE[field.needs] for name, field in fields_that("size").items() if field.needs in _HAVE}


def _meaningless(question: Question, what: str, why: str, option: str) -> DomainError:
    return DomainError(f"{question.graph.name} {why}, so {what} means nothing to it.", remedy=f"Leave {option} out.")


def require_engine(question: Question) -> None:
    """The engine must be made for such a device, such a model and such formats.

    The blocks of GGUF files have kernels in engines that open such files; one that runs nothing takes all.
    """
    descriptor = known_engine(question.runtime_name)
    if descriptor is not None:
        of = (question.graph, question.device, descriptor)
        _able.get_or_make(question.workload.precision, of, lambda: _require_able(question, descriptor))


_able = Kept(400_000, weigh=lambda ops: 1 + ops)  # combinations that were found to run, by the ops of their graphs


def _require_able(question: Question, descriptor: EngineDescriptor) -> int:
    # a vendor's engine runs on that vendor's chips, and some run one kind of model alone
    device, graph = question.device, question.graph
    if not descriptor.runs_on(device):
        units = (pattern.split(":") for pattern in descriptor.only_on)
        places = [f"{'any' if of == '*' else of.rstrip('-*')} {'chip' if unit == '*' else unit}" for unit, of in units]
        where = f"it is for {' and '.join(places)}" if not device.is_bare else "a microcontroller has no system for it"
        raise DomainError(
            f"{descriptor.title} does not run on {device.title}: {where}.",
            remedy=f"Use --runtime {default_runtime(device, graph)}, or leave --runtime out.",
        )
    takes = {
        "tokens": is_generative(graph), "arrays": not is_generative(graph),
        "texts": is_generative(graph) or takes_prompt(graph), "speech": "frames" in graph.symbols,
    }  # fmt: skip
    if not takes.get(descriptor.takes, True):
        raise DomainError(
            f"{descriptor.title} runs {_TAKEN[descriptor.takes]}, and {graph.name} is none.",
            remedy=f"Use --runtime {default_runtime(device, graph)}, or leave --runtime out.",
        )
    if graph.architecture in descriptor.lacks:
        raise DomainError(
            f"{descriptor.title} does not run models of the architecture {graph.architecture}, as {graph.name} is.",
            remedy=f"Use --runtime {default_runtime(device, graph)}, or leave --runtime out.",
        )
    if not descriptor.opens or "gguf" in descriptor.opens:
        return graph.size
    precision = question.workload.precision
    for option, format_ in (("--weights", precision.weights), ("--kv", precision.kv)):
        if format_ is not None and is_gguf_block(format_):
            other = "--runtime llamacpp, or " if is_generative(question.graph) else ""
            raise DomainError(
                f"{format_} is a format of GGUF files, and {descriptor.title} has no kernels for it.",
                remedy=f"Use {other}{option} {descriptor.small.narrow} or {descriptor.small.byte}.",
            )
    return graph.size
