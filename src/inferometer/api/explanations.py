"""The verbs that look at results: `explain` and `compare`.

A profile is explained as it was judged; one that never was, or is put on another device, is judged now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from inferometer.api.naming import name_of_result, profile_of
from inferometer.core.units import parse_quantity
from inferometer.understand import explanation
from inferometer.understand.judging import device_behind, graph_behind, judge_profile, other_machine

if TYPE_CHECKING:
    from pathlib import Path

    from inferometer.core.profile import Profile
    from inferometer.measure.bench.compare import Comparison
    from inferometer.measure.bench.measurement import Measurement
    from inferometer.understand.explanation import Explanation


def explain(
    what: Profile | Measurement | str | Path, *, on: str | None = None, store: str | Path | None = None
) -> Explanation:
    """Where the time goes, what bounds it, what to change and what that would gain: `explain("last")`.

    `what` is a profile, a measurement, a file (another tool's, too), or a stored run: its id, its name, or `last`. `on`
    is the catalog device it ran on, if that is not the one it was judged by; `store` another store than your own.
    """
    return explained(profile_of(what, store), on=on, name=name_of_result(what))


def explained(profile: Profile, *, on: str | None = None, name: str | None = None) -> Explanation:
    """Where a profile's time goes, what bounds it, what to change and what that would gain.

    `on` is the catalog device it ran on, if that is not the one the profile was judged by.
    """
    name = name or profile.model.name
    elsewhere = other_machine(profile) if on is not None and on.partition(":")[0] == "local" else None
    if elsewhere is not None:
        note = f"{on} is another machine here: the run was made on {elsewhere.called}, and is explained as such."
        return _explained(profile, on=None, name=name, notes=(note,))
    return _explained(profile, on=on, name=name)


def _explained(profile: Profile, *, on: str | None, name: str, notes: tuple[str, ...] = ()) -> Explanation:
    if profile.kind == "measured" and profile.judged_by is not None and on is None:
        return explanation.explain(profile, notes=notes, name=name)
    from inferometer.predict.basis.roof import roof_for  # noqa: PLC0415 - a judged profile needs none

    device, unknown = device_behind(profile, on)
    graph, unread = graph_behind(profile, files=on is not None)
    roof = roof_for(device) if device is not None and on is not None else None
    judged, more = judge_profile(profile, device, graph=graph, roof=roof)
    return explanation.explain(judged, notes=tuple(filter(None, (*notes, unknown, unread, *more))), name=name)


# The verb that compares two results, whatever they are named by.


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
    from inferometer.measure.bench import compare as comparing  # noqa: PLC0415 - an explanation compares nothing
    from inferometer.measure.bench.verdict import Criteria  # noqa: PLC0415 - as above

    smallest = parse_quantity(threshold, "1") if isinstance(threshold, str) else threshold
    called = names or (name_of_result(a) or "A", name_of_result(b) or "B")
    criteria = Criteria(threshold=smallest, alpha=alpha)
    return comparing.compare(profile_of(a, store), profile_of(b, store), criteria=criteria, names=called)
