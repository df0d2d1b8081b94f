"""What others measured, beside a prediction: the nearest published figure of each of its phases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inferometer.core.frozen import frozen
from inferometer.known.atlas import PublishedMeasurement
from inferometer.known.atlas.looking import AtlasComparison, nearest_published

if TYPE_CHECKING:
    from inferometer.core.profile import Profile
    from inferometer.predict.question import Question
    from inferometer.predict.served.question import ServingAnswer

_PHASES = ("forward", "prefill", "decode")


@frozen
class BesidePublished:
    """A phase of a prediction, and what somebody measured."""

    phase: str
    predicted_s: float
    measured: PublishedMeasurement

    @property
    def apart(self) -> float:
        """How far the prediction is from the measurement: 0.1 is ten per cent longer."""
        return self.predicted_s / self.measured.seconds - 1


def published_beside(question: Question, profile: Profile) -> tuple[BesidePublished, ...]:
    """The nearest published figure of each phase that somebody measured under the same conditions."""
    if question.prefill_on is not None or question.options.speculative is not None:
        return ()  # nobody's table has two machines or a draft model
    found = []
    for name in _PHASES:
        phase = profile.phase(name)
        if phase is not None and phase.time_s > 0:
            measured = nearest_published(_asked(question, profile, name))
            if measured is not None:
                found.append(BesidePublished(phase=name, predicted_s=phase.time_s, measured=measured))
    return tuple(found)


def served_beside(answer: ServingAnswer) -> tuple[BesidePublished, ...]:
    """The nearest published first token and token of a service with as many users."""
    found = []
    for name in ("ttft", "tpot"):
        asked = AtlasComparison(
            model=answer.model, device=answer.device, quantity=name, engine=answer.runtime, weights=answer.weights,
            count=answer.devices, batch=answer.users, prompt=answer.prompt, generate=answer.generate,
        )  # fmt: skip
        measured = nearest_published(asked)
        if measured is not None:
            found.append(BesidePublished(phase=name, predicted_s=getattr(answer, f"{name}_s"), measured=measured))
    return tuple(found)


def _asked(question: Question, profile: Profile, phase: str) -> AtlasComparison:
    workload = profile.workload
    image = workload.image or question.graph.metadata.get("default_sizes", {}).get("image")
    context = workload.context
    if context is None and workload.prompt is not None:
        context = workload.prompt + (workload.generate or 0) // 2
    return AtlasComparison(
        model=profile.model.name,
        device=profile.device.name,
        quantity=phase,
        engine=profile.runtime,
        weights=profile.model.weights or workload.precision.weights,
        activations=workload.precision.activations,
        computed=frozenset(profile.arithmetic) | frozenset(filter(None, (workload.precision.activations,))),
        count=profile.device.count,
        batch=workload.batch,
        image=image if phase == "forward" else None,
        prompt=workload.prompt,
        generate=workload.generate,
        context=context,
    )
