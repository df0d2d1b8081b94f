"""The verb that watches a series: whether its newest run is slower than it was, and whether that holds in turns."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from inferometer.api.naming import open_chosen
from inferometer.core.errors import DomainError
from inferometer.core.profile import Profile
from inferometer.core.units import counted
from inferometer.measure.bench.verdict import change_points
from inferometer.measure.run.model import MeasureRequest
from inferometer.store.store import Store
from inferometer.store.values import Filter, RunRow
from inferometer.understand.series import (
    ROUNDS,
    Alarm,
    AlarmRule,
    Suspicion,
    environment_changes,
    rounds_verdict,
    suspicion,
)
from inferometer.understand.trying import same_request

InTurns = Callable[[MeasureRequest, MeasureRequest], tuple[Profile, Profile]]

_SAME = ("kind", "batch", "precision", "threads", "workload")  # beside model, device, engine and machine
_LOOKED_AT = 200  # runs of a series, the newest
_HOLE_S = 14 * 86_400.0
_NAMED = 3  # changes of the machine that a sentence names


def watch(  # noqa: PLR0913 - which series, by which rule, confirmed how
    run: str = "last",
    *,
    branch: str | None = None,
    against: str | None = None,
    store: str | Path | None = None,
    rule: AlarmRule | None = None,
    baseline: str | None = None,
    rounds: int = ROUNDS,
    in_turns: InTurns | None = None,
) -> Alarm:
    """Whether a stored run is slower than its series was: `watch("last", branch="main", baseline="main/model.onnx")`.

    A series is a model in an engine on a machine with a workload, on a branch: runs with the tag `branch:NAME`. The
    baseline is what the branch `against` (else its own) has measured since its last change. What stands out is
    `suspected`; with `baseline`, the model as it was, both are measured in turns and it is `confirmed` or `withdrawn`.
    """
    rule = rule or AlarmRule()
    with open_chosen(store) as opened:
        row, profile = _measured(opened, run)
        page = opened.list(_series_filter(row, against or branch), sort="-created", limit=_LOOKED_AT)
        before = [each for each in reversed(page.rows) if _is_alike(each, row)]
        changes = change_points(list(map(_time, before)), threshold=rule.threshold)
        level = before[max((0, *changes)) :]
        found = suspicion([*map(_time, level), _time(row)], rule)
        alarm = Alarm(
            state="too few", run=row.id, series=_key(row, against or branch), sentence="",
            baseline=tuple(each.id for each in level[-rule.window :]),
            change_points=tuple(before[at].id for at in changes),
            notes=_notes(opened, row, before),
        )  # fmt: skip
        if found is None:
            few = f"{counted(len(level), 'run')} of this series, and {rule.least} are needed before one stands out."
            return replace(alarm, sentence=f"There {'is' if len(level) == 1 else 'are'} {few}")
        alarm = replace(alarm, state="steady", ratio=found.ratio, errors=found.errors, noise=found.noise)
        if not found.stands_out:
            return replace(alarm, sentence=f"As fast as before: {_apart(found)}.")
        last = opened.get(level[-found.runs].id).profile
    moved = () if last is None else environment_changes(last, profile)
    alarm = replace(alarm, state="suspected", environment=moved)
    if baseline is None:
        told = f"Perhaps {_apart(found)}. It was not measured in turns with the baseline, so nobody is told."
        return replace(alarm, sentence=_with_suspects(told, alarm))
    return _confirmed(alarm, profile, baseline, rule, rounds, in_turns or _in_turns)


def _measured(store: Store, run: str) -> tuple[RunRow, Profile]:
    stored = store.get(run)
    row = store.row(stored.id)
    if stored.profile is None or stored.profile.kind != "measured" or not _time(row):
        raise DomainError(f"Run {stored.id} has no measured time.", remedy="Watch one that `inferometer profile` made.")
    return row, stored.profile


def _time(row: RunRow) -> float:
    """Of a token where there are some, else of a pass; 0 where neither is known."""
    return row.tpot_s or row.latency_s or 0.0


def _series_filter(row: RunRow, branch: str | None) -> Filter:
    return Filter(
        model=row.model, device=row.device, runtime=row.runtime, machine=row.machine_id, status=("finished",),
        until=row.created, tags=() if branch is None else (f"branch:{branch}",),
    )  # fmt: skip


def _is_alike(other: RunRow, row: RunRow) -> bool:
    """Of the same series, and fit to be held against: a disturbed run is no baseline."""
    same = all(getattr(other, name) == getattr(row, name) for name in _SAME)
    return same and other.id != row.id and bool(_time(other)) and not other.disturbed


def _key(row: RunRow, branch: str | None) -> dict[str, str | None]:
    names = ("model", "device", "machine", "machine_id", "runtime", "workload", "precision")
    return {**{name: getattr(row, name) for name in names}, "branch": branch}


def _notes(store: Store, row: RunRow, before: list[RunRow]) -> tuple[str, ...]:
    notes = []
    if row.machine is not None:
        named = store.list(Filter(model=row.model, machine=row.machine), limit=_LOOKED_AT).rows
        others = {each.machine_id for each in named if each.machine == row.machine} - {row.machine_id, None}
        if others:
            notes.append(
                f"{row.machine} is the name of {1 + len(others)} machines; only runs of {row.machine_id} count."
            )
    if before and row.created - before[-1].created > _HOLE_S:
        notes.append(f"The run before is {(row.created - before[-1].created) / 86_400:.0f} days older.")
    return tuple(notes)


def _apart(found: Suspicion) -> str:
    way = "slower" if found.ratio > 1 else "faster"
    runs = "this run is" if found.runs == 1 else f"the last {found.runs} runs are"
    noise = f"runs of this series lie {found.noise:.1%} apart"
    return f"{runs} {abs(found.ratio - 1):.1%} {way} than the {found.baseline} before, and {noise}"


def _with_suspects(sentence: str, alarm: Alarm) -> str:
    """The machine before the code: what moved there is named first."""
    if not alarm.environment:
        return f"{sentence} Nothing that is known of the machine has changed."
    moved = ", ".join(f"{each.name} ({each.before} → {each.after})" for each in alarm.environment[:_NAMED])
    more = f" and {len(alarm.environment) - _NAMED} more" if len(alarm.environment) > _NAMED else ""
    return f"{sentence} Before the code, suspect what changed on the machine: {moved}{more}."


def _confirmed(  # noqa: PLR0917, PLR0913 - the alarm so far, and how to confirm it
    alarm: Alarm, profile: Profile, baseline: str, rule: AlarmRule, rounds: int, in_turns: InTurns
) -> Alarm:
    """Both in turns, round after round, each in processes of its own."""
    request = same_request(profile)
    pairs = [in_turns(replace(request, model=baseline), request) for _ in range(rounds)]
    old, new = ([_steady_s(side) for side in sides] for sides in zip(*pairs, strict=True))
    verdict = rounds_verdict(old, new, rule)
    ratio = median(after / before for before, after in zip(old, new, strict=True))
    documents: tuple[dict[str, Any], ...] = tuple(
        {"baseline_s": before, "run_s": after} for before, after in zip(old, new, strict=True)
    )
    measured = f"In {counted(rounds, 'round')} in turns the run takes {ratio:.3f} of the baseline's time"
    if verdict not in {"faster", "slower"}:
        words = f"{measured}: no change is shown, and the suspicion is withdrawn."
        return replace(alarm, state="withdrawn", confirmations=documents, ratio=ratio, sentence=words)
    words = f"{measured}: it is {verdict}."
    return replace(
        alarm, state="confirmed", confirmations=documents, ratio=ratio, sentence=_with_suspects(words, alarm)
    )


def _steady_s(profile: Profile) -> float:
    if profile.steady is None:
        raise DomainError(f"{profile.model.name} has no phase that repeats, so it cannot be measured in turns.")
    return profile.steady.time_s


def _in_turns(baseline: MeasureRequest, request: MeasureRequest) -> tuple[Profile, Profile]:
    from inferometer.api.measurements import measure_pair_and_judge  # noqa: PLC0415 - engines, for who confirms alone

    old, new = measure_pair_and_judge(baseline, request, predict=False)
    return old.profile, new.profile
