"""The verbs that need several wings. They turn names into values and leave the work to the wing that knows how."""

from typing import TYPE_CHECKING

from inferometer.core.lazy import attributes

if TYPE_CHECKING:
    from inferometer.api.explanations import explained
    from inferometer.api.measurements import measure_and_judge, measure_pair_and_judge, profile, verify
    from inferometer.predict.ask import ask
    from inferometer.predict.question import Question
    from inferometer.predict.verbs import fit, gains, predict

__all__ = [
    "Question", "ask", "explained", "fit", "gains", "measure_and_judge", "measure_pair_and_judge", "predict",
    "profile", "verify",
]  # fmt: skip

__getattr__ = attributes(__name__, {
    "inferometer.predict.ask": ("ask",),
    "inferometer.predict.question": ("Question",),
    "inferometer.api.explanations": ("explained",),
    "inferometer.api.measurements": ("measure_and_judge", "measure_pair_and_judge", "profile", "verify"),
    "inferometer.predict.verbs": ("fit", "gains", "predict"),
})  # fmt: skip
