"""Run every benchmark of this folder, print a line for each figure, and keep them in results.json.

A benchmark is a module with `figures() -> Iterable[Figure]`. Ratios are measured against a peer or a floor in the same
run; a missed target is printed as missed, and does not fail the run.
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


def figures_of(name):
    """Printed one by one. A script that only gathers cases has none."""
    figures = []
    for figure in getattr(importlib.import_module(name), "figures", tuple)():
        print(figure, flush=True)
        figures.append(figure)
    return figures


def main():
    wanted = sys.argv[1:]
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


if __name__ == "__main__":
    main()
