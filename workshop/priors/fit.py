"""`python -m workshop.priors.fit`: fit the priors anew from the shipped atlas."""

from __future__ import annotations

import argparse
import pickle
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from inferometer.known.atlas.reading import read_atlas
from inferometer.known.atlas.shipped import load, shipped_datasets, sources
from inferometer.measure.calibrate.priors.cases import CaseReading, cases_of
from inferometer.measure.calibrate.priors.language import language_cases
from inferometer.predict.price.deviations import FILE, TOKENS_FILE
from inferometer.understand.accuracy.cases import CASES
from workshop.priors.build import document, fitted, source_halves, spreads, thinned, validated, write
from workshop.priors.leaving import judge_validation, side_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from inferometer.known.atlas.measurement import PublishedMeasurement
    from inferometer.measure.calibrate.priors.stack import StackCase

RESULTS, TOKEN_RESULTS = CASES / "published-left-out.json", CASES / "published-tokens-left-out.json"


def _not_shipped(path: Path) -> Iterator[PublishedMeasurement]:
    """The rows of a file whose licence keeps them out of the package: what is fitted from them is no copy of them."""
    known = sources()
    return (row for row in read_atlas(path).table.rows() if row.source in known and not known[row.source].shipped)


def _counted(also: Sequence[Path], keep: Keep, *, tokens: bool) -> CaseReading:
    """Table after table: each can be kept, and none has rows that another's are counted with."""
    files = [each for path in also for each in (sorted(path.glob("*.csv.gz")) if path.is_dir() else [path])]
    tables: dict[str, Callable[[], Iterable[PublishedMeasurement]]] = {
        **{name: partial(_shipped, name) for name in shipped_datasets()},
        **{path.name: partial(_not_shipped, path) for path in files},
    }
    left: Counter[str] = Counter()
    cases: list[StackCase] = []
    for name, rows in tables.items():
        reading: CaseReading = keep(f"counted-{name}", partial(_count, rows, tokens=tokens))
        left.update(reading.left)
        cases += reading.cases
    return CaseReading(cases=tuple(cases), left=left)


def _shipped(name: str) -> Iterable[PublishedMeasurement]:
    return load((name,)).rows()


def _count(rows: Callable[[], Iterable[PublishedMeasurement]], *, tokens: bool) -> CaseReading:
    return language_cases(rows()) if tokens else cases_of(rows())


class Keep:
    """What was made once is read from a folder when a call that was stopped is made again. None: nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def __call__(self, name: str, make: Callable[[], Any]) -> Any:
        path = None if self.folder is None else self.folder / f"{name}.pickle"
        if path is not None and path.is_file():
            return pickle.loads(path.read_bytes())  # noqa: S301 - our own cache
        made = make()
        if path is not None:
            part = path.with_suffix(".part")
            part.write_bytes(pickle.dumps(made))
            part.replace(path)  # a call that is stopped while it writes leaves nothing that looks whole
        return made

    def forget(self) -> None:
        """All is made: a fit with its cases is half a gigabyte."""
        for path in () if self.folder is None else self.folder.glob("*.pickle"):
            path.unlink()


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
    parser.add_argument("--keep", type=Path, help="a folder for what is counted and fitted, so that it can go on")
    parser.add_argument("--made", required=True, help="the date that it states, as 2026-11-16")
    asked = parser.parse_args()

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    keep = Keep(asked.keep)
    reading = _counted(asked.also, keep, tokens=asked.tokens)
    say(f"{len(reading.cases)} steps to fit; {sum(reading.left.values())} rows are of something else")
    for reason, count in reading.left.most_common(20):
        say(f"  {count:6}  {reason}")
    judged = thinned(reading.cases)
    begun = keep("begun", lambda: fitted(judged, say))
    validation = validated(begun, say, keep)
    whole = len(judged) == len(reading.cases)
    fit = begun if whole else keep("fit", lambda: fitted(reading.cases, say, begun=begun))
    write(document(fit, judged, validation, made=asked.made), asked.out or (TOKENS_FILE if asked.tokens else FILE))
    halves = source_halves(judged, validation.sources, spreads(judged, validation))
    side = side_of(judged)
    told = [spreads(judged, validation, side == each) for each in (0, 1)]
    groups = judge_validation(judged, validation, halves, told)
    results = asked.results or (TOKEN_RESULTS if asked.tokens else RESULTS)
    results.write_bytes(msgspec.json.format(msgspec.json.encode(groups), indent=1) + b"\n")
    keep.forget()


if __name__ == "__main__":
    main()
