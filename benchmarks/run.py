"""Run every benchmark of this folder, print a line for each figure, and keep them in results.json.

A benchmark is a module with `figures() -> Iterable[Figure]`. Ratios are measured against a peer or a floor in the same
run; a missed target is printed as missed, and does not fail the run. A ratio that became worse by more than a fifth
since it was last recorded does (`--record` records, for this kind of machine). `--quick` runs what takes a second each,
and fails where a ratio is five times the recorded one: for machines that others use at the same time.
"""

import importlib
import json
import platform
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path

from figure import Figure

FOLDER = Path(__file__).parent
RECORDED = FOLDER / "recorded" / "ratios.json"
WORSE, FAR_WORSE = 1.2, 5.0


def figures_of(name, which="figures"):
    """Printed one by one, each with the ratio that was recorded. A script that only gathers cases has none."""
    figures, last = [], recorded_ratios()
    for figure in getattr(importlib.import_module(name), which, tuple)():
        before = last.get(figure.name)
        told = "" if figure.ratio is None or before is None else f"  [ratio {figure.ratio:.3g}, last {before:.3g}]"
        print(f"{figure}{told}", flush=True)
        figures.append(figure)
    return figures


def recorded_ratios():
    known = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {}
    return known.get(platform.machine(), {})


def worse(figures, limit):
    """The names of figures that are slower beside their peers than was recorded, by more than so many times."""
    last = recorded_ratios()
    return [each.name for each in figures if each.ratio and each.ratio > limit * last.get(each.name, float("inf"))]


def record(figures):
    known = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {}
    mine = known.setdefault(platform.machine(), {})
    mine |= {each.name: float(f"{each.ratio:.4g}") for each in figures if each.ratio is not None}
    RECORDED.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def main():
    wanted = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    if "--quick" in sys.argv:
        found = figures_of("door", "quick")
        if "--record" in sys.argv:
            record(found)
        slower = worse(found, FAR_WORSE)
        sys.exit(f"Far slower than recorded: {', '.join(slower)}." if slower else 0)
    names = [file.stem for file in sorted(FOLDER.glob("*.py")) if file.stem not in {"run", "figure"}]
    results: list[Figure] = []
    for name in names:
        if wanted and name not in wanted:
            continue
        # A process each: what one benchmark loads or holds at its highest is not counted for the next.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            results += process.submit(figures_of, name).result()
    document = {
        "created": datetime.now(tz=UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "figures": [asdict(figure) for figure in results],
    }
    (FOLDER / "results.json").write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if "--record" in sys.argv:
        record(results)
    elif slower := worse(results, WORSE):
        sys.exit(f"Slower than recorded by more than a fifth: {', '.join(slower)}.")


if __name__ == "__main__":
    main()
