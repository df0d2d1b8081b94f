"""How a model is run: the threads of a CPU, the layout of images, the host of a GPU.

A calibration knows how it was measured, fitted levels know what published tables say. Where neither knows a layout
or a host, the question is refused: an answer would be one to another question. Threads are shares of cores then.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from inferometer.core.errors import DomainError
from inferometer.core.graph import Graph, is_generative
from inferometer.core.units import format_quantity
from inferometer.known.engines import costs_of, known_engine, require_effects
from inferometer.predict.precision import counted_precision
from inferometer.predict.price.class_figures import core_count, memory_of_cores
from inferometer.predict.price.deviations import standing_of
from inferometer.predict.price.hosts import host_speed_of, speed_by_module
from inferometer.predict.price.variants import USUAL_LAYOUT, knows_variant, threads_variant

if TYPE_CHECKING:
    from inferometer.core.calibration import Calibration
    from inferometer.core.device import Device
    from inferometer.predict.options import Options
    from inferometer.predict.question import Question


def require_run(question: Question) -> None:
    """Raise if the question names a setting that changes nothing, or whose effect nobody has measured."""
    options = question.options
    if options.threads is not None:
        _require_threads(question, options.threads)
    if options.layout is not None:
        _require_layout(question, options.layout)
    if options.host_speed is not None or options.host_call_s is not None:
        _require_host(question)
    if options.engine_version is not None and not version_notes(question):
        raise DomainError(
            f"A version is that of a serving engine, and {question.runtime_name} is none: it would change nothing.",
            remedy="Leave --engine-version out, or ask for --runtime vllm, sglang or trtllm.",
        )


def version_notes(question: Question) -> tuple[str, ...]:
    """Which version of a serving engine answers, and whose costs it is given."""
    descriptor = known_engine(question.runtime_name)
    if descriptor is None or descriptor.serving is None:
        return ()
    rules, asked = descriptor.serving, question.options.engine_version
    since = costs_of(rules, asked, question.device.name).since
    costs = f"{since} and newer" if since != "0" else "the oldest that is known"
    version = asked or f"{rules.version}, the newest that is known"
    return (f"Answered as {descriptor.title} {version}: what a step costs beside its kernels is that of {costs}.",)


def measured_otherwise(question: Question, calibration: Calibration) -> str | None:
    """Why a calibration says nothing of a question: it was made with other threads, or in another layout."""
    options = question.options
    made = f"The calibration of {calibration.created[:10]}"
    if options.threads is not None and calibration.threads != options.threads:
        threads = "an unknown number of" if calibration.threads is None else calibration.threads
        return f"{made} was made with {threads} threads, and is not used for {options.threads}."
    if options.layout not in {None, USUAL_LAYOUT}:
        return f"{made} was made with images in {USUAL_LAYOUT}, and is not used for {options.layout}."
    return None


def with_own_host(question: Question, calibration: Calibration | None) -> Options:
    """The options of a question with its own host, where none is asked for and both hosts' figures are known."""
    options = question.options
    asked = options.host_speed is not None or options.host_call_s is not None
    if asked or calibration is None or calibration.host_call_s is None:
        return options
    if question.host_module_s is not None:
        return replace(options, host_speed=speed_by_module(question.host_module_s, calibration.host_call_s))
    return options if question.host_call_s is None else replace(options, host_call_s=question.host_call_s)


def _require_threads(question: Question, threads: int) -> None:
    device, cores = question.device, core_count(question.device)
    if device.unit != "cpu":
        raise DomainError(
            f"Threads are those of an engine on a CPU, and {device.name} is a {device.unit}.",
            remedy="Leave --threads out.",
        )
    if cores is not None and threads > cores:
        raise DomainError(
            f"{device.name} has {cores} cores: {threads} threads would share them.",
            remedy=f"Ask for {cores} or fewer.",
        )
    calibration = question.basis().calibration
    if calibration is not None and (reason := measured_otherwise(question, calibration)) is not None:
        raise DomainError(reason, remedy="Leave --threads or the calibration out.")
    if calibration is None and cores is None and not _is_known(question, threads_variant(threads)):
        raise DomainError(
            f"Nothing is known of {question.runtime_name} with {threads} threads on {device.name}: neither its cores, "
            "nor a calibration with as many, nor published figures of this engine that tell threads apart.",
            remedy=f"Run `inferometer calibrate --threads {threads}` there, or leave --threads out.",
        )


def usual_threads(question: Question) -> int | None:
    """All cores of a CPU, where published runs of the engine name their threads: its peaks are then those of a run."""
    cores = core_count(question.device) if question.device.unit == "cpu" else None
    return cores if cores is not None and _is_known(question, threads_variant(cores)) else None


def threads_notes(question: Question, device: Device) -> tuple[str, ...]:
    """The note about threads that nobody measured this engine with: its speed is then taken by the share of cores."""
    threads, cores = question.options.threads, core_count(question.device)
    if threads in {None, cores} or cores is None or _is_known(question, threads_variant(threads or 1)):
        return ()
    told = f"Nobody measured {question.runtime_name} with {threads} of {cores} cores"
    memory, limited = device.memory, memory_of_cores(device, threads or 1).memory
    reached = None if limited is None or limited is memory else limited.bandwidth_bytes_per_s
    memory_rate = "that of all of it" if reached is None else format_quantity(reached.value, "B/s", digits=3)
    return (f"{told}: its arithmetic is taken as the share of cores that run, and its memory as {memory_rate}.",)


def engine_notes(question: Question) -> tuple[str, ...]:
    return (*_state_notes(question), *_default_notes(question))


def _default_notes(question: Question) -> tuple[str, ...]:
    """Notes on what the default makes of a question.

    An accelerator without a known engine is answered bare, and too good. An encoder whose file states single precision
    is answered in it, though it is served in halves: the largest part of what a GPU seems to lose.
    """
    device, known = question.device, known_engine(question.runtime_name)
    asked = question.workload.precision
    weights_alone = asked.weights == "i8" and question.precision.activations is None
    if weights_alone and not is_generative(question.graph) and device.unit != "cpu" and "i8" in device.peaks:
        return ("Weights alone are in i8: --activations i8 asks for int8 throughout, as networks are deployed here.",)
    made_in = question.precision.weights
    if known is not None and asked.weights is None and made_in is not None and made_in == known.effects.stored:
        return (f"Weights are in {made_in}, as models are made for {known.title}; --weights asks for others.",)
    if known is not None and asked.weights is asked.activations is None and made_in in known.effects.whole:
        return (
            f"All of it is in {made_in}, as networks are made for {known.title}; --weights asks for other formats.",
        )
    if _stays_single(question):
        times = device.peaks["f16"].value / device.peaks["f32"].value
        return (
            (
                f"Computed in f32, as the model is stored. {device.title} multiplies f16 {times:.2g} times as fast: "
                "--weights f16 asks for the half model that is mostly served."
            ),
        )
    if (device.unit in {"cpu", "gpu"} and not device.is_bare) or known is None or "accelerator" not in known.first_for:
        return ()
    models = "models that write tokens" if is_generative(question.graph) else "such networks"
    return (f"No engine that runs {models} on {device.title} is known: the answer is the device without any software.",)


def _state_notes(question: Question) -> tuple[str, ...]:
    """Recurrent layers are captured in no graph: a step of such a model took an H200 nine times what was told."""
    known = known_engine(question.runtime_name)
    keeps_state = any(op.kind in {"ssm_scan", "recurrent"} for _, op in question.graph.ops())
    if known is None or not keeps_state or known.effects.cache != "repeated":
        return ()
    if known.effects.execution not in {"captured", "compiled"}:
        return ()
    launches = f"{known.title} launches each kernel of {question.graph.name} or refuses it"
    return (
        f"A cache of fixed size holds no recurrent state: {launches}, and takes longer than this. Ask for torch-eager.",
    )


def _stays_single(question: Question) -> bool:
    """Whether an encoder on a GPU is answered in single precision that nobody asked for, where halves are faster."""
    asked, peaks = question.workload.precision, question.device.peaks
    if question.device.unit != "gpu" or asked.weights or asked.activations or question.graph.precision != "f32":
        return False
    if is_generative(question.graph) or not {"f16", "f32"} <= set(peaks) or peaks["f16"].value < 2 * peaks["f32"].value:
        return False
    return any(op.kind == "attention" for _, op in question.graph.ops())


def _require_layout(question: Question, layout: str) -> None:
    if not has_images(question.graph):
        raise DomainError(
            f"{question.graph.name} has no convolution, so a layout of images means nothing to it.",
            remedy="Leave --layout out.",
        )
    calibration = question.basis().calibration
    if calibration is not None and (reason := measured_otherwise(question, calibration)) is not None:
        raise DomainError(reason, remedy="Leave --layout or the calibration out.")
    if _is_known(question, "layout=nhwc"):
        return
    raise DomainError(
        f"Nothing is known of {question.runtime_name} on {question.device.name} with images in {layout}: neither a "
        "calibration nor published figures tell layouts apart there.",
        remedy="Leave --layout out; layouts are known of torch-eager on a GPU.",
    )


def _require_host(question: Question) -> None:
    effects = require_effects(question.runtime)
    overheads = effects.on(question.device.unit)
    if overheads.host_s is None:
        raise DomainError(
            f"{effects.name} on {question.device.name} starts no kernels from a host, so a host's speed changes "
            "nothing.",
            remedy="Leave --host-speed out.",
        )
    phases = {"prefill", "decode"} if is_generative(question.graph) else {"forward"}
    if phases <= overheads.captured:
        raise DomainError(
            f"{effects.name} replays each step as one graph, so the host's speed changes nothing.",
            remedy="Leave --host-speed out.",
        )
    host_speed_of(question.options, question.basis().calibration)


def _is_known(question: Question, variant: str) -> bool:
    precision = counted_precision(question.graph, question.precision)
    standing = standing_of(question.device, question.runtime_name, precision)
    return knows_variant(standing, variant, tokens=is_generative(question.graph))


def has_images(graph: Graph) -> bool:
    return any(op.kind == "convolution" for _, op in graph.ops())
