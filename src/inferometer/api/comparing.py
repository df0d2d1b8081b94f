"""The verb that compares two results, whatever they are named by."""

from pathlib import Path

from inferometer.api.naming import name_of_result, profile_of
from inferometer.core.profile import Profile
from inferometer.core.units import parse_quantity
from inferometer.measure.bench import compare as comparing
from inferometer.measure.bench.compare import Comparison
from inferometer.measure.bench.measurement import Measurement
from inferometer.measure.bench.verdict import Criteria


def compare(  # noqa: PLR0913 - two results, and what counts as a difference
    a: Profile | Measurement | str | Path,
    b: Profile | Measurement | str | Path,
    *,
    threshold: float | str = 0.01,
    alpha: float = 0.005,
    names: tuple[str, str] | None = None,
    store: str | Path | None = None,
) -> Comparison:
    """Whether B is faster or slower than A, the baseline: `compare("last~1", "last").main.verdict`.

    Each is a profile, a measurement, a file, or a stored run. `threshold` is the smallest difference that counts (0.01
    or "1%"), `alpha` the risk of taking noise for one. `names` are what the two are called in sentences.
    """
    smallest = parse_quantity(threshold, "1") if isinstance(threshold, str) else threshold
    called = names or (name_of_result(a) or "A", name_of_result(b) or "B")
    criteria = Criteria(threshold=smallest, alpha=alpha)
    return comparing.compare(profile_of(a, store), profile_of(b, store), criteria=criteria, names=called)
