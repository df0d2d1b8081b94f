"""Run every benchmark of this folder, print a line for each figure, and keep them in results.json.

A benchmark is a module with `figures() -> Iterable[Figure]`. Ratios are measured against a peer or a floor in the same
run; a missed target is printed as missed, and does not fail the run.
"""

import importlib.util
import json
import platform
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from figure import Figure

FOLDER = Path(__file__).parent


def figures_of(file):
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.figures()


def main():
    wanted = sys.argv[1:]
    files = [file for file in sorted(FOLDER.glob("*.py")) if file.stem not in {"run", "figure"}]
    results: list[Figure] = []
    for file in files:
        if wanted and file.stem not in wanted:
            continue
        for figure in figures_of(file):
            print(figure, flush=True)
            results.append(figure)
    document = {
        "created": datetime.now(tz=UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "figures": [asdict(figure) for figure in results],
    }
    (FOLDER / "results.json").write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
