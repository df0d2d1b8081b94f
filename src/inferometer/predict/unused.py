"""Options that would change nothing of an answer: a question with one is refused, and so is a sweep that never uses it.

What depends on the tokens of a request (a prefix without a prompt) is refused in `request.completed`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from inferometer.core.errors import DomainError
from inferometer.core.graph import is_generative
from inferometer.predict.energy import energy_costs, power_model
from inferometer.predict.headline import windows_per_s

if TYPE_CHECKING:
    from collections.abc import Mapping

    from inferometer.core.device import Device
    from inferometer.core.graph import Graph
    from inferometer.core.workload import Parallel
    from inferometer.predict.options import Options
    from inferometer.predict.question import Question


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
    if options == type(options)():  # what nearly everyone asks
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
    none = type(options)()
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
