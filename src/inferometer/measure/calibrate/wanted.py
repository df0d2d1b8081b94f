"""The models that a calibration is made for: their predictions should become better.

They are measured whole, through the engine, as `profile` measures them; and probes are weighed by what the models need:
by how much of their time is in ops of the probe's class, the nearer in shape the more. So the budget goes where it
shortens their intervals.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, log
from typing import TYPE_CHECKING

from inferometer.core.calibration import Calibration
from inferometer.core.errors import EngineError, InferometerError
from inferometer.core.graph import is_generative, takes_prompt
from inferometer.core.profile import Profile
from inferometer.core.settings import learns
from inferometer.core.sizes import PROMPT
from inferometer.core.workload import Workload
from inferometer.formats.resolve import read
from inferometer.measure.bench.plan import Plan
from inferometer.measure.calibrate.fitting.fit import class_for
from inferometer.measure.calibrate.fitting.points import StepPoint, middle_steps, works_of
from inferometer.measure.calibrate.fitting.subject import CalibrationSubject, plan_of
from inferometer.measure.calibrate.fitting.whole_models import FEWEST
from inferometer.measure.calibrate.run import SHARES, CandidateResult, CandidateSource, ProbeCandidate
from inferometer.measure.run.model import MeasureRequest, measure_model
from inferometer.predict.applicable import meaningful
from inferometer.predict.basis.calibrations import formats_of
from inferometer.predict.basis.learned import LearnedStep, keep_learned, learned_file, lines_of, read_learned
from inferometer.predict.basis.roof import roof_for
from inferometer.predict.question import Question
from inferometer.predict.request import step_sizes

if TYPE_CHECKING:
    from pathlib import Path

    from inferometer.core.device import Device

_WHOLE_MODELS = 6  # that a calibration measures without being asked: those profiled here last, and usual ones
# Of the catalog, by what an engine takes: quick ones, each of another family. Probes are timed at their best moments in
# the calibrator's process, and profiles state the usual ones of a process of their own. What that makes of a machine is
# alike for all models: on four cores of a server, four of seven measured left the other three 8 % off (23 % before).
_NETWORKS = ("mobilenet-v3-large", "all-minilm-l6-v2", "densenet121", "resnet34", "efficientnet-b0", "convnext-tiny")
# Three show what others are off by (`fitting.whole_models`). Those of a hundred million weights may stay in a server's
# last cache from one token to the next, which a probe's are kept from; a larger one's cannot.
_DECODERS = ("gpt2", "pythia-160m", "smollm2-360m", "pythia-410m")
_USUAL = {"files": _NETWORKS, "modules": _NETWORKS, "decoders": _DECODERS}  # by the engine's kind of probe
_GENERATE = 16  # tokens: enough steps for a median, and the context hardly grows
_OPENING_S = 4.0  # to start a process, open a model and warm it up
_RUNNING_S = 1.0  # of a model at least: its steps' median settles, and small models' clocks too
_BYTES_PER_S = 150e6  # in which weights of a model are made up and written
_SLOWEST = 2.0  # times its prediction, that a model may take
_WHOLE = 0.5  # of the budget goes into models that were asked for before anything else
_WHOLE_FEWEST = 0.7  # … until there are as many as tell what others are off by: two in 110 seconds told nothing
_ELSE = 0.05  # of a need: a class that no wanted model has may still be asked about
_SHAPE = ("flops", "bytes", "weight_bytes")  # axes on which ops of a class are compared
_KEY = "model "


def lately_profiled(folder: Path, device: str, runtime: str, dtype: str) -> tuple[str, ...]:
    """The models that were profiled here last with an engine, and that can be read by their names."""
    lines = read_learned(learned_file(device, runtime, folder))
    names = dict.fromkeys(line.model for line in reversed(lines) if line.dtype == dtype)
    return tuple(name for name in names if _is_readable(name))[:_WHOLE_MODELS]


def usual_models(kind: str, models: Sequence[str]) -> tuple[str, ...]:
    """Models that are measured beside those profiled lately, which are the more the merrier but rarely enough."""
    others = [name for name in _USUAL.get(kind, ()) if name not in models]
    return tuple(others[: max(0, _WHOLE_MODELS - len(models))])


def _is_readable(name: str) -> bool:
    try:
        read(name)
    except InferometerError:
        return False
    return True


def asked_steps(model: str, dtype: str) -> tuple[StepPoint, ...]:
    """The steps of a model that a calibration is for, without their seconds."""
    graph = read(model)
    if is_generative(graph):
        decode = StepPoint(model=model, phase="decode", seconds=1.0, dtype=dtype, context=PROMPT + _GENERATE // 2)
        return StepPoint(model=model, phase="prefill", seconds=1.0, dtype=dtype, query=PROMPT), decode
    query = PROMPT if takes_prompt(graph) else 1
    return (StepPoint(model=model, phase="forward", seconds=1.0, dtype=dtype, query=query),)


@dataclass(slots=True, kw_only=True)
class WantedModels:
    """A provider with the models as candidates beside those of another, which are weighed by what the models need.

    No probe is chosen for those `beside` them: these show how whole models differ from probes.
    """

    provider: CandidateSource
    subject: CalibrationSubject
    models: Sequence[str]
    budget_s: float
    threads: int | None = None
    base: Calibration | None = None
    beside: Sequence[str] = ()
    run: Callable[[MeasureRequest], Profile] = lambda request: measure_model(request).profile
    _needs: dict[str, list[tuple[Mapping[str, float], float, str]]] = field(default_factory=lambda: defaultdict(list))

    def candidates(self) -> list[ProbeCandidate]:
        whole = [self._whole(model) for model in (*self.models, *self.beside)]
        spent, early = 0.0, list[ProbeCandidate]()
        for candidate in sorted(whole, key=lambda each: each.seconds + each.making_s):
            spent += candidate.seconds + candidate.making_s
            # Further ones that nobody asked for are spread among the probes: a machine's pace changes by the minute.
            asked = _WHOLE if candidate.probe in self.models else 0.0
            share = asked if len(early) >= FEWEST else _WHOLE_FEWEST
            early.append(replace(candidate, first=spent <= share * self.budget_s))
        return [*(self._weighed(candidate) for candidate in self.provider.candidates()), *early]

    def _whole(self, model: str) -> ProbeCandidate:
        """The model itself; what it needs is noted on the way."""
        predicted_s = 0.0
        for step in asked_steps(model, self.subject.dtype):
            plan = plan_of(self.subject, step, self.base)
            passes = step.passes(plan.prepared.effects)
            sizes = step_sizes(passes[:1], step.batch)
            priced = plan.step(sizes, step.phase)
            whole_s = float(priced.total("time_s").sum())
            seconds = {entry.name: float(priced.priced.time_s[entry.row].item()) for entry in plan.prepared.entries}
            for work in works_of(plan, sizes, step.phase) if model in self.models else ():
                share = work.count * seconds[work.name] / whole_s
                self._needs[class_for(work.classes)].append((work.axes, share, model))
            predicted_s += whole_s * (_GENERATE if step.phase == "decode" else 1)
        weights_bytes = 4.0 * read(model).parameters  # as f32, the most that writing them can take
        return ProbeCandidate(
            key=f"{_KEY}{model}",
            op_class="step.asked",
            seconds=_OPENING_S + max(_RUNNING_S, 3 * _SLOWEST * predicted_s),
            making_s=weights_bytes / _BYTES_PER_S,
            probe=model,
            buys="its own prediction" if model in self.models else "how whole models differ from probes",
        )

    def _weighed(self, candidate: ProbeCandidate) -> ProbeCandidate:
        """The weight of a candidate: its share of the models' time over the share of such ops in models in general."""
        if not self.models:
            return candidate
        ops = self._needs.get(candidate.op_class, [])
        need = sum(share * exp(-_apart(candidate.axes, axes) / 2) for axes, share, _ in ops)
        usual = SHARES.get(candidate.op_class, SHARES.get(candidate.op_class.partition(".")[0], 0.3))
        by_model: dict[str, float] = defaultdict(float)
        for _, share, model in ops:
            by_model[model] += share
        most = max(by_model, key=lambda model: by_model[model], default=None)
        buys = f"{candidate.op_class}, {by_model[most]:.0%} of {most}" if most is not None else ""
        weight = candidate.weight * (_ELSE + need / max(1, len(self.models))) / usual
        return replace(candidate, weight=weight, buys=candidate.buys or buys)

    def measure(self, candidate: ProbeCandidate) -> CandidateResult:
        if not candidate.key.startswith(_KEY):
            return self.provider.measure(candidate)
        model = candidate.key.removeprefix(_KEY)
        steps = asked_steps(model, self.subject.dtype)
        prompt = max(step.query for step in steps)
        tells = steps[0].phase == "prefill"
        workload = Workload(prompt=prompt if prompt > 1 else None, generate=_GENERATE if tells else None)
        request = MeasureRequest(
            model=model, runtime=self.subject.runtime.name, workload=workload, weights=self.subject.dtype,
            threads=self.threads, unit="cpu", plan=Plan(runs=8, seconds=_RUNNING_S, seconds_at_most=self.budget_s / 4),
            shape=False, guarded=False, energy=False,
        )  # fmt: skip
        phases = {phase.name: phase for phase in self.run(request).phases}
        measured = tuple(replace(step, seconds=phases[step.phase].time_s) for step in steps if step.phase in phases)
        if not measured:
            raise EngineError(f"{model} has none of the phases that repeat.")
        return CandidateResult(steps=measured)


def _apart(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """How far two shapes are apart, as a logarithm, on the axes that both have."""
    both = [name for name in _SHAPE if one.get(name, 0) > 0 and other.get(name, 0) > 0]
    return sum(abs(log(one[name] / other[name])) for name in both) / max(1, len(both))


def keep_asked(device: Device, runtime: str, steps: Sequence[StepPoint], *, threads: int | None, folder: Path) -> None:
    """Let predictions learn from the models that were measured whole, as from profiles of them.

    They are named in the catalog; probes carry their configs. So no model that was asked for is left to what the fit
    makes of all of them together.
    """
    lines: list[LearnedStep] = []
    for step in middle_steps(step for step in steps if not step.config):
        graph = read(step.model)
        context = step.context if step.phase == "decode" else None
        workload = Workload(
            batch=step.batch, prompt=step.query, context=context, precision=formats_of(runtime, step.dtype)
        )
        question = Question(
            graph=graph, device=device, runtime=runtime, workload=meaningful(workload, graph), roof=roof_for(device),
            had_threads=threads, learned=False,
        )  # fmt: skip
        lines += lines_of(question, step.model, {step.phase: step.seconds}, question.answer())
    if lines and learns():
        keep_learned(learned_file(device.name, runtime, folder), lines)
