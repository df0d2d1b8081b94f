"""The verbs of the Python interface. They turn names into values and leave the work to the package that knows how."""

from typing import TYPE_CHECKING

from inferometer.lazy import attributes

if TYPE_CHECKING:
    from inferometer.asking.ask import ask
    from inferometer.asking.question import Question
    from inferometer.verbs.explanations import explained
    from inferometer.verbs.measurements import measure_and_judge, measure_pair_and_judge, profile, verify
    from inferometer.verbs.questions import fit, gains, predict

__all__ = [
    "Question", "ask", "explained", "fit", "gains", "measure_and_judge", "measure_pair_and_judge", "predict",
    "profile", "verify",
]  # fmt: skip

__getattr__ = attributes(__name__, {
    "inferometer.asking.ask": ("ask",),
    "inferometer.asking.question": ("Question",),
    "inferometer.verbs.explanations": ("explained",),
    "inferometer.verbs.measurements": ("measure_and_judge", "measure_pair_and_judge", "profile", "verify"),
    "inferometer.verbs.questions": ("fit", "gains", "predict"),
})  # fmt: skip
