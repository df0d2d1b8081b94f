"""The forms that kernels of serving engines follow: five numbers a family and format, fitted to measured tables.

Run it with the extra `engines` installed: python -m workshop.kernels.forms --made DATE [--write]. It alone writes
src/inferometer/known/data/kernel_forms.json, with which those predict who have not installed the tables.
`like no other` are the forms of all devices together, for one that no system of the package resembles. The table shows
what single kernels are off by, as the median of |log|: by the form of their own system, and by that of all others,
which is what a device without tables has to expect.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from inferometer.core.calibration import KernelForm, KernelShares
from inferometer.known import device
from inferometer.predict.basis.engine_tables import calibrating
from inferometer.predict.basis.engine_tables.calibrating import measured_kernels, systems
from inferometer.predict.basis.engine_tables.reading import ideals_of
from inferometer.predict.price.kernel_floors import floor_of, form_terms, peak_rates

MOST = 3000  # kernels of a family and format that are drawn
_NORMAL = 1.4826  # standard deviations in a median deviation
_LEAST_SHARE, _LEAST_RAMP_S = 1e-4, 1e-6  # a kernel of a replayed graph takes a microsecond whatever it does


@dataclass(frozen=True, kw_only=True)
class Points:
    """Kernels of one family and format: the terms of their form, one row each, and their seconds."""

    terms: Any
    seconds: Any


def points_of(table: KernelShares, system: str) -> dict[str, Points]:
    """Ideal and measured seconds of some kernels of each format of a family, the fastest of those of one size."""
    rates, chance = peak_rates(device(systems()[system])), np.random.default_rng(1)
    by = "kv" if table.family.startswith(("attention", "mla")) else "format" if table.texts else None
    kinds = table.texts[by] if by else np.asarray(table.sizes["devices"]).astype(int).astype(str)
    found: dict[str, Points] = {}
    for kind in np.unique(kinds).tolist():
        index = np.flatnonzero(kinds == kind)
        if table.family.startswith(("attention.prefill", "mla.prefill")) and "format" in table.texts:
            wide = index[table.texts["format"][index] == "bfloat16"]
            index = wide if len(wide) else index
        index = _fastest(table, index)
        index = chance.permutation(index)[:MOST]
        sizes = {name: np.asarray(values, float)[index] for name, values in table.sizes.items()}
        ideals = ideals_of(table.family, {by: kind} if by else {})(rates, sizes)
        seconds = floor_of(ideals) / np.asarray(table.shares, float)[index]
        terms = [np.broadcast_to(term, seconds.shape) for term in form_terms(table.family, ideals, sizes)]
        found[kind] = Points(terms=np.stack(terms), seconds=seconds)
    return found


def _fastest(table: KernelShares, index: Any) -> Any:
    """Of kernels with the same sizes the one that engines choose."""
    sizes = np.stack([np.asarray(values, float)[index] for values in table.sizes.values()], axis=1)
    order = np.lexsort((-np.asarray(table.shares)[index], *sizes.T))
    ordered = sizes[order]
    first = np.concatenate(([True], np.any(ordered[1:] != ordered[:-1], axis=1)))
    return index[order[first]]


def fitted(points: list[Points]) -> KernelForm:
    """Robustly, in logarithms. What a family has no pieces or sharing of stays at nothing."""
    terms = np.concatenate([each.terms for each in points], axis=1)
    seconds = np.concatenate([each.seconds for each in points])
    pieces, sharing = bool(terms[2].any()), bool((terms[3] > 1).any())

    def form(numbers: Any) -> KernelForm:
        compute, memory = (max(_LEAST_SHARE, float(1 / (1 + np.exp(-number)))) for number in numbers[:2])
        each, uneven = float(np.exp(numbers[3])) if pieces else 0.0, float(numbers[4]) if sharing else 0.0
        ramp = max(_LEAST_RAMP_S, float(np.exp(numbers[2])))
        return KernelForm(
            compute_share=compute, memory_share=memory, ramp_s=ramp, each_s=each, uneven=uneven, residual=0.0
        )

    def off(numbers: Any) -> Any:
        return np.log(form(numbers).seconds(*terms) / seconds)

    little = 0.05 * np.median(seconds) / np.median(np.maximum(1.0, terms[2]))
    begin = [0.4, 0.8, np.log(np.percentile(seconds, 5)), np.log(little), 0.2]
    found = least_squares(off, begin, loss="soft_l1", f_scale=0.2)
    numbers = {name: float(f"{value:.3g}") for name, value in asdict(form(found.x)).items()}
    return KernelForm(**{**numbers, "residual": round(_NORMAL * float(np.median(np.abs(off(found.x)))), 3)})


def off_by(form: KernelForm, points: Points) -> float:
    return float(np.median(np.abs(np.log(form.seconds(*points.terms) / points.seconds))))


def forms_of(engine: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Forms by system, family and format; and the version of the engine that each system's tables are of."""
    points: dict[str, dict[str, dict[str, Points]]] = {}
    versions: dict[str, str] = {}
    for system in systems():
        made = measured_kernels(system, engine)
        if made is None:
            continue
        versions[system] = made.versions[engine]
        points[system] = {family: points_of(table, system) for family, table in made.kernels.items()}
    own = {
        system: {family: {kind: fitted([each]) for kind, each in kinds.items()} for family, kinds in families.items()}
        for system, families in points.items()
    }
    families = dict.fromkeys(family for each in points.values() for family in each)
    for family in families:
        for kind in dict.fromkeys(kind for each in points.values() for kind in each.get(family, ())):
            having = {system: each[family][kind] for system, each in points.items() if kind in each.get(family, ())}
            own.setdefault(calibrating.ANY, {}).setdefault(family, {})[kind] = fitted([*having.values()])
            mine = np.median([off_by(own[system][family][kind], each) for system, each in having.items()])
            others = [
                off_by(fitted([each for name, each in having.items() if name != system]), each)
                for system, each in having.items()
                if len(having) > 1
            ]
            told = f"{np.median(others):5.2f}" if others else "    –"
            print(
                f"{engine:8} {family:18} {kind:18} {len(having):2} systems   own {mine:5.2f}   others' {told}",
                flush=True,
            )
    return own, versions


def _lines(document: dict[str, Any]) -> str:
    """A line for each system of an engine, so that a change of one can be seen."""
    text = json.dumps(document, separators=(",", ":"))
    return text.replace('{"version"', '\n{"version"')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="replace the shipped forms")
    parser.add_argument("--made", required=True, help="the date that the file states, as 2026-11-16")
    asked = parser.parse_args()
    document: dict[str, Any] = {
        "source": calibrating.SOURCE,
        "date": asked.made,
        "numbers": [field.name for field in fields(KernelForm)],
        "engines": {},
    }
    for engine in ("vllm", "sglang", "trtllm"):
        found, versions = forms_of(engine)
        document["engines"][engine] = {
            system: {"version": versions.get(system), "families": {
                family: {kind: [*asdict(form).values()] for kind, form in kinds.items()}
                for family, kinds in families.items()
            }}
            for system, families in found.items()
        }  # fmt: skip
    if asked.write:
        calibrating.FILE.write_text(_lines(document) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
