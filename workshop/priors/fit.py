"""`python -m workshop.priors.fit`: fit the priors anew from the shipped atlas."""

from __future__ import annotations

import argparse
import pickle
import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from inferometer.known.atlas.reading import read_atlas
from inferometer.known.atlas.shipped import load, shipped_datasets, sources
from inferometer.measure.calibrate.priors.cases import CaseReading, cases_of
from inferometer.measure.calibrate.priors.language import language_cases
from inferometer.predict.price.deviations import FILE, TOKENS_FILE
from inferometer.understand.accuracy.cases import CASES
from workshop.priors.build import document, fitted, source_halves, spreads, thinned, validated, write
from workshop.priors.leaving import judge_validation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from inferometer.known.atlas.measurement import PublishedMeasurement

RESULTS, TOKEN_RESULTS = CASES / "published-left-out.json", CASES / "published-tokens-left-out.json"


def _not_shipped(path: Path) -> Iterator[PublishedMeasurement]:
    """The rows of a file whose licence keeps them out of the package: what is fitted from them is no copy of them."""
    known = sources()
    return (row for row in read_atlas(path).table.rows() if row.source in known and not known[row.source].shipped)


def _counted(also: Sequence[Path], *, tokens: bool) -> CaseReading:
    files = [each for path in also for each in (sorted(path.glob("*.csv.gz")) if path.is_dir() else [path])]
    rows = chain(load(shipped_datasets()).rows(), *(_not_shipped(path) for path in files))
    return language_cases(rows) if tokens else cases_of(rows)


def _kept(path: Path | None, count: Callable[[], CaseReading]) -> CaseReading:
    """Counting takes longer than fitting: what was counted can serve again while only the fit is changed."""
    if path is not None and path.is_file():
        reading: CaseReading = pickle.loads(path.read_bytes())  # noqa: S301 - our own cache
        return reading
    reading = count()
    if path is not None:
        path.write_bytes(pickle.dumps(reading))
    return reading


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", action="store_true", help="fit language models, instead of forward passes")
    parser.add_argument("--out", type=Path, help="where the file goes")
    parser.add_argument("--results", type=Path, help="where the left-out results go")
    parser.add_argument(
        "--also",
        type=Path,
        nargs="*",
        default=[],
        help="files, or folders of them, in any form of the atlas that may not be shipped",
    )
    parser.add_argument("--cases", type=Path, help="where counted cases are kept, and read from when they are there")
    parser.add_argument("--made", required=True, help="the date that it states, as 2026-11-16")
    asked = parser.parse_args()

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    reading = _kept(asked.cases, lambda: _counted(asked.also, tokens=asked.tokens))
    say(f"{len(reading.cases)} steps to fit; {sum(reading.left.values())} rows are of something else")
    for reason, count in reading.left.most_common(20):
        say(f"  {count:6}  {reason}")
    judged = thinned(reading.cases)
    begun = fitted(judged, say)
    validation = validated(begun, say)
    fit = begun if len(judged) == len(reading.cases) else fitted(reading.cases, say, begun=begun)
    write(document(fit, judged, validation, made=asked.made), asked.out or (TOKENS_FILE if asked.tokens else FILE))
    halves = source_halves(judged, validation.sources, spreads(judged, validation))
    groups = judge_validation(judged, validation, halves)
    results = asked.results or (TOKEN_RESULTS if asked.tokens else RESULTS)
    results.write_bytes(msgspec.json.format(msgspec.json.encode(groups), indent=1) + b"\n")


if __name__ == "__main__":
    main()
