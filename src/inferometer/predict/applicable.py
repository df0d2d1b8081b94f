"""What a question gives must mean something for its model and its engine: it is refused, not ignored.

What changes nothing makes an answer to another question than the one that was asked. Options that no answer would use
are refused below (`require_used`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from inferometer.core.dtypes import is_gguf_block
from inferometer.core.engine import is_one_of
from inferometer.core.errors import DomainError
from inferometer.core.graph import Graph, is_generative, takes_prompt
from inferometer.core.kept import Kept
from inferometer.core.workload import MOST, Parallel, Workload
from inferometer.known.engines import default_runtime, known_engine
from inferometer.predict.energy import energy_costs, power_model
from inferometer.predict.fields import Needs, fields_that
from inferometer.predict.flags import usual_options
from inferometer.predict.headline import windows_per_s

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from inferometer.core.device import Device
    from inferometer.core.engine import EngineDescriptor
    from inferometer.predict.options import Options
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
        if is_one_of(device, descriptor.not_on):
            where = f"{device.family} is too old for it"
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


# Options that would change nothing of an answer: a question with one is refused, and so is a sweep that never uses it.
#
# What depends on the tokens of a request (a prefix without a prompt) is refused in `request.completed`.


def require_used(
    graph: Graph, device: Device, parallel: Parallel, options: Options, *, two_machines: bool = False
) -> None:
    """Refuse the first option that this question would not use."""
    for reason in unused(graph, device, parallel, options, two_machines=two_machines).values():
        raise DomainError(reason, remedy="Leave it out.")


def unused(
    graph: Graph, device: Device, parallel: Parallel, options: Options, *, two_machines: bool = False
) -> dict[str, str]:
    """Why nothing would come of an option, by its name. `two_machines`: one reads the prompt, another writes."""
    if options is usual_options() or options == usual_options():  # what nearly everyone asks
        return {}
    of_model = _of_writers(graph, options) if is_generative(graph) else _of_others(graph, options)
    if options.audio_s is not None and windows_per_s(graph, options) is None:
        of_model["audio"] = (
            f"An audio length is for a model of speech, and {graph.name} is none that states its window."
        )
    reasons = of_model | _of_devices(parallel, options) | _of_energy(device, options, two_machines=two_machines)
    if two_machines:
        reasons.pop("link", None)
    place = options.place
    if place.pue is not None and place.grid is None:
        reasons["pue"] = "A PUE counts for carbon, and no grid is named."
    if place.usd_per_hour is not None and (place.instance is not None or place.spot):
        reasons["instance"] = "A price is given, so neither an instance nor its spot price is looked up."
    return reasons


def require_of_users(question: Question) -> None:
    """Refuse what is asked beside users and would change nothing that they see."""
    workload, options = question.workload, question.options
    none = usual_options()
    names = (
        "storage_bytes_per_s", "host", "energy", "battery", "cooling_w", "micro_batches", "frame_rate", "audio_s",
    )  # fmt: skip
    given = [name for name in names if getattr(options, name) != getattr(none, name)]
    given += [name for name in ("grid", "pue") if getattr(options.place, name) is not None]
    given += ["context"] * (workload.context is not None) + ["batch"] * (workload.batch != 1)
    given += ["prefill_on"] * (question.prefill_on is not None)
    if given:
        spelt = given[0].removesuffix("_s").removesuffix("_w").replace("_bytes_per", "").replace("_", "-")
        raise DomainError(
            f"Users bring prompts, and what serves them reads them together: --{spelt} changes nothing for them.",
            remedy="Leave it out; --prompt and --generate say what each of them asks for.",
        )


def _of_writers(graph: Graph, options: Options) -> dict[str, str]:
    reasons = {}
    if options.frame_rate is not None:
        reasons["frame_rate"] = f"Frames are for a model that answers in one pass; {graph.name} writes token by token."
    if options.steps is not None:
        reasons["steps"] = f"Steps are those of a diffusion model; {graph.name} writes token by token."
    if "encoder" in graph.metadata.get("default_sizes", {}):
        whole = f"An encoder of {graph.name} reads the prompt in one go, without chunks and without a cache."
        reasons |= {"chunk": whole} if options.chunk is not None else {}
        reasons |= {"cached_prefix": whole} if options.cached_prefix else {}
    return reasons


def _of_others(graph: Graph, options: Options) -> dict[str, str]:
    host = options.host
    asked = {
        "chunk": (options.chunk is not None, "Chunks are"),
        "cached_prefix": (options.cached_prefix, "A cached prefix is"),
        "speculative": (options.speculative is not None, "A draft is"),
        "host": (
            any(each is not None for each in (host.tokenise_s_per_token, host.sampling_s, host.detokenise_s_per_token)),
            "Tokenising, sampling and detokenising are",
        ),
    }
    ending = f"for a model that writes tokens, and {graph.name} does not."
    return {name: f"{what} {ending}" for name, (given, what) in asked.items() if given}


def _of_devices(parallel: Parallel, options: Options) -> dict[str, str]:
    """Replicas (dp) send each other nothing, unless experts are spread over them."""
    alone = parallel.tp * parallel.pp * parallel.ep == 1
    asked = {
        "link": (alone and options.link, "Nothing crosses a link: no layers are shared by devices (tp, pp, ep)."),
        "overlap": (alone and options.overlap, "Nothing is sent that could overlap: no layers are shared by devices."),
        "imbalance": (
            parallel.ep == 1 and options.imbalance != 1, "An imbalance is that of experts on several devices (ep)."
        ),
        "sequence_parallel": (
            parallel.tp == 1 and options.sequence_parallel, "Sequence parallelism goes with tensor parallelism (tp)."
        ),
    }  # fmt: skip
    return {name: reason for name, (given, reason) in asked.items() if given}


def _of_energy(device: Device, options: Options, *, two_machines: bool) -> dict[str, str]:
    """Energy is not predicted where two machines share a request, nor on a device whose power is not known."""
    asked: Mapping[str, object] = {"energy": options.energy, "battery": options.battery, "grid": options.place.grid,
                                  "cooling": options.cooling_w}  # fmt: skip
    given = [name for name, value in asked.items() if value is not None]
    if two_machines:
        reason = "Energy is not predicted where two machines share a request, nor are carbon and a battery's life."
        return dict.fromkeys(given, reason)
    if options.cooling_w is not None and power_model(device) is None:
        return {"cooling": f"The power of {device.name} is not known, so neither is the speed that its cooling allows."}
    if "grid" in given and power_model(device) is None and energy_costs(device, options) is None:
        return {
            "grid": f"The power of {device.name} is not known, so neither is the carbon of its energy; "
            "--joules-per-flop and --joules-per-byte would count it."
        }
    return {}
