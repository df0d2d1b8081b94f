"""`python -m inferometer.hub.fleet.forecast`: what a model is, how long a job should take, and how long it must.

A process of its own, with limits: it opens models that others sent. What goes in and out is JSON.
"""

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from inferometer.core.calibration import Calibration
from inferometer.core.codec import decode, settled
from inferometer.core.device import Device, Sourced
from inferometer.core.errors import InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph, is_generative
from inferometer.core.job import Job
from inferometer.core.profile import Profile
from inferometer.core.sizes import default_prompt, open_sizes, with_given_sizes
from inferometer.core.workload import Workload
from inferometer.formats.resolve import read
from inferometer.hub.places.requests import calibrating_of, model_path, request_of, require_known
from inferometer.known import devices
from inferometer.known.engines import default_runtime, engine_ranks, ranked_engines
from inferometer.measure.bench.plan import Plan
from inferometer.measure.prepare.foretell import foretell
from inferometer.measure.prepare.run import PrepareRequest
from inferometer.predict.options import Options
from inferometer.predict.question import Question

_WARM_UPS = 5  # what warming up until the times are steady takes, mostly
_PROVEN = 3 * 2 * 18  # steps that preparing takes: three comparisons, mostly, of two sides in 18 runs each
_SHARED = 16.0  # times as fast as its measured figures a device may be: they were taken beside others on a busy one


@frozen
class Said:
    """What an answer says that it ran on, and the workload of each of its profiles."""

    workloads: tuple[Workload, ...]
    unit: str | None = None


def measuring_s(job: Job, files: Path, device: Device, calibrations: tuple[Calibration, ...]) -> float:
    """The time of a job's own runs: warm-up, clean runs, and the run with the engine's timers."""
    require_known(job)
    if job.verb == "calibrate":
        return calibrating_of(job).budget_s
    assert job.model is not None  # noqa: S101 - every other verb has one
    graph = read(model_path(job.model, files))
    step_s = whole_s(_predicted(job, graph, device, calibrations))
    return _PROVEN * step_s if job.verb == "prepare" else _runs_s(job, step_s, files)


def _runs_s(job: Job, step_s: float, files: Path) -> float:
    if job.verb == "verify":
        return 2 * step_s
    plan = request_of(job, files).plan or Plan()
    warm_s = min((_WARM_UPS if plan.warmup is None else plan.warmup) * step_s, plan.warmup_seconds_at_most)
    clean_s = min(max(plan.runs * step_s, plan.seconds), plan.seconds_at_most)
    shaped = job.verb == "profile" and job.options.get("shape", True)
    return warm_s + clean_s * (2 if shaped else 1)


def _predicted(job: Job, graph: Graph, device: Device, calibrations: tuple[Calibration, ...]) -> Profile:
    workload, options = job.workload, Options()
    sizes = job.options.get("sizes")
    if sizes:
        workload, rest = with_given_sizes(graph, workload, sizes)
        options = Options(sizes=rest)
    runtime = job.runtime or default_runtime(device, graph)
    fitting = [made for made in calibrations if (made.device, made.runtime) == (device.name, runtime)]
    return Question(
        graph=graph, device=device, runtime=runtime, workload=workload, options=options,
        calibrated=False, calibration=fitting[0] if fitting else None,
    ).answer()  # fmt: skip


def whole_s(profile: Profile) -> float:
    """One step of a network, or one answer of a model that writes."""
    summary = profile.summary
    whole = summary.latency_s if summary.latency_s is not None else summary.e2e_s
    return float(sum(phase.time_s for phase in profile.phases) if whole is None else whole)


def outlook(job: Job, files: Path, fleet: Mapping[str, Any], prepared_on: str | None = None) -> dict[str, Any]:
    """What the model of a job is, and what each device should need for it; or why that cannot be said.

    `prepared_on` is the device that formats are foretold for.
    """
    require_known(job)
    assert job.model is not None  # noqa: S101 - whoever asks has chosen one
    graph = read(model_path(job.model, files))
    told = {name: _on(job, graph, known) for name, known in fleet.items()}
    return {
        "model": model_card(graph),
        "devices": told,
        "prepared": prepared_on and _formats(job, files, fleet[prepared_on], told[prepared_on]),
    }


def _formats(job: Job, files: Path, known: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
    """What each format that the model could be quantised to would gain on a device, with the engine it runs there."""
    assert job.model is not None  # noqa: S101 - as above
    if "error" in told:
        return {"error": told["error"], "formats": []}
    request = PrepareRequest(
        model=model_path(job.model, files), runtime=told["runtime"], workload=job.workload,
        sizes=job.options.get("sizes") or {},
    )  # fmt: skip
    try:
        rows = foretell(request, decode(json.dumps(known["device"]), Device))
    except InferometerError as error:
        return {"runtime": told["runtime"], "error": error.message, "formats": []}
    named = ("gain", "low", "high")
    formats = [
        {
            "quantise": row.quantise, "verdict": row.verdict, "weight_bytes": row.weight_bytes, "reason": row.reason,
            "why": " ".join(row.why), **{name: row.gain and getattr(row.gain, name) for name in named},
        }
        for row in rows
    ]  # fmt: skip
    return {"runtime": told["runtime"], "error": None, "formats": formats}


def _on(job: Job, graph: Graph, known: Mapping[str, Any]) -> dict[str, Any]:
    if known["device"] is None:
        return {"error": "Its agent has not said what it can do."}
    device = decode(json.dumps(known["device"]), Device)
    made = tuple(decode(json.dumps(plain), Calibration) for plain in known["calibrations"])
    ranked = ranked_engines(device, makes_tokens=is_generative(graph), format=graph.metadata.get("format"))
    chosen = job.runtime or next((name for name in ranked if name in known["engines"]), None)
    try:
        profile = _predicted(replace(job, runtime=chosen), graph, device, made)
    except InferometerError as error:
        return {"error": error.message, "remedy": error.remedy}
    summary = profile.summary
    return {
        "step_s": whole_s(profile), "measuring_s": _runs_s(job, whole_s(profile), Path()), "runtime": profile.runtime,
        "latency_s": summary.latency_s, "ttft_s": summary.ttft_s, "tpot_s": summary.tpot_s, "fits": summary.fits,
    }  # fmt: skip


def model_card(graph: Graph) -> dict[str, Any]:
    """A model in the words of a page. `open` are its sizes that may be given; one without a `value` has to be."""
    stored, usual = graph.metadata.get("format"), graph.metadata.get("default_sizes", {})
    usual = {**usual, "batch": 1, "query": default_prompt(graph)}
    opens = [each.name for each in engine_ranks() if stored in each.opens]
    return {
        "name": graph.name, "architecture": graph.architecture, "format": stored, "parameters": graph.parameters,
        "precision": graph.precision, "writes": is_generative(graph),
        "engines": sorted(opens) if stored not in {None, "config"} else None,  # None: it is made in what each opens
        "inputs": [
            {"name": each.name, "dtype": each.dtype, "shape": [str(dim) for dim in each.shape]}
            for each in graph.inputs
        ],
        "open": [
            {"name": size.name, "text": str(size), "value": usual.get(size.name)} for size in open_sizes(graph)
        ],
    }  # fmt: skip


def floors(job: Job, files: Path, device: Device, said: Said) -> dict[str, Any]:
    """What an answer to a job is held against: the model's name, and for each case the floor of each phase.

    A device says of itself what it can do, and may say anything: of one that the catalog knows, the catalog's figures
    count as well, and nothing is believed to be faster than the fastest in there. That is all that is known of another
    unit than the one that the device gave figures of.
    """
    assert job.model is not None  # noqa: S101 - whoever asks has one
    graph = read(model_path(job.model, files))
    runtime = job.runtime or default_runtime(device, graph)
    same = said.unit in {None, device.unit}
    known = [_credible(device, same=same), *([devices()[device.name]] if same and device.name in devices() else [])]
    found: list[dict[str, float]] = []
    for case in said.workloads:
        workload, rest = with_given_sizes(graph, case, job.options.get("sizes") or {})
        least: dict[str, float] = {}
        for row in known:
            asked = Question(
                graph=graph, device=row, runtime=runtime, workload=workload, options=Options(sizes=rest),
                calibrated=False,
            )  # fmt: skip
            for phase in asked.answer().phases:
                least[phase.name] = max(least.get(phase.name, 0.0), float(phase.floor_s or 0.0))
        found.append(least)
    return {"model": graph.name, "floors": found}


def _credible(device: Device, *, same: bool) -> Device:
    """The device as fast as it may be: by its stated figures, well beyond its measured ones, never beyond the catalog.

    If it is another unit than the figures are of, it may be as fast as the best of the catalog.
    """
    rows = devices().values()
    most = max(peak.value for row in rows for peak in row.peaks.values())
    widest = max(
        memory.bandwidth_bytes_per_s.value for row in rows for memory in row.memories if memory.bandwidth_bytes_per_s
    )

    def at_most(figure: Sourced, best: float) -> Sourced:
        value = figure.value if figure.origin == "datasheet" else _SHARED * figure.value
        return replace(figure, value=min(value, best) if same else best)

    return replace(
        device,
        name=f"{device.name} as it says",  # what a graph became on a device is remembered by the device's name
        peaks={name: at_most(peak, most) for name, peak in device.peaks.items()},
        memories=tuple(
            replace(memory, bandwidth_bytes_per_s=at_most(rate, widest))
            if (rate := memory.bandwidth_bytes_per_s)
            else memory
            for memory in device.memories
        ),
    )


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    try:
        job, files = decode(json.dumps(asked["job"]), Job), Path(asked["files"])
        if "fleet" in asked:
            return outlook(job, files, asked["fleet"], asked.get("prepared_on"))
        device = decode(json.dumps(asked["device"]), Device)
        if asked.get("floors"):
            return floors(job, files, device, msgspec.convert(asked["floors"], settled(Said)))
        made = tuple(decode(json.dumps(plain), Calibration) for plain in asked["calibrations"])
        return {"seconds": measuring_s(job, files, device, made)}
    except InferometerError as error:
        return {
            "error": error.message.replace(f"{asked['files']}/", ""),
            "remedy": error.remedy,
        }  # where it lies here is nobody's business


def main() -> None:
    asked = json.loads(sys.stdin.read())
    with suppress(ImportError, ValueError, OSError):  # POSIX only
        import resource  # noqa: PLC0415 - as above

        resource.setrlimit(resource.RLIMIT_AS, (asked["memory_bytes"],) * 2)
        resource.setrlimit(resource.RLIMIT_CPU, (asked["seconds"],) * 2)
    sys.stdout.write(json.dumps(answer(asked)))


if __name__ == "__main__":
    main()
