"""Journals of `inferometer calibrate` → the shipped calibrations of a CPU, fitted anew.

    python -m workshop.calibrations.cpu workshop/recorded/arm-neoverse-n1-2-cores-journals-2026-11-16.tar.gz

The archive has the folders that the command kept, one for each engine and format. Circumstances (when, versions,
threads) stay those of the calibration that is shipped; it is replaced.
"""

from __future__ import annotations

import argparse
import re
import tarfile
import tempfile
from pathlib import Path

from inferometer.known import device
from inferometer.known.engines import require_effects
from inferometer.measure.calibrate.fitting.assemble import assemble_calibration
from inferometer.measure.calibrate.fitting.points import read_points, read_steps
from inferometer.measure.calibrate.fitting.subject import CalibrationSubject
from inferometer.predict.basis.calibrations import with_calibration
from inferometer.predict.basis.files import SHIPPED, files_in, read_calibration, write_calibration


def refit(journal: Path, shipped: Path) -> None:
    kept = read_calibration(shipped)
    subject = CalibrationSubject(
        device=with_calibration(device(kept.device), kept), runtime=require_effects(kept.runtime), dtype=kept.dtype,
        created=kept.created, versions=kept.versions, environment=kept.environment, threads=kept.threads,
    )  # fmt: skip
    steps = read_steps(journal / "steps.jsonl") if (journal / "steps.jsonl").exists() else ()
    made = assemble_calibration(subject, read_points(journal / "points.jsonl"), steps)
    shipped.unlink()
    write_calibration(made, shipped.parent)
    whole = {name: round(value, 3) for name, value in made.residuals.items() if name.startswith("step")}
    print(f"{kept.runtime} {kept.dtype}: {made.points} points, {made.steps} steps, whole {whole}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path)
    args = parser.parse_args()
    shipped = {(one.device, one.runtime, one.dtype): path for path in files_in([SHIPPED])
               for one in [read_calibration(path)]}  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(args.archive) as archive:
            archive.extractall(scratch, filter="data")
        for journal in sorted(path.parent for path in Path(scratch).rglob("points.jsonl")):
            key = next(
                key for key in shipped if re.fullmatch("-".join(map(re.escape, key)) + r"-\d+-threads", journal.name)
            )
            refit(journal, shipped[key])


if __name__ == "__main__":
    main()
