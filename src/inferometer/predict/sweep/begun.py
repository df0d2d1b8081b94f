"""Sweeps by name, begun where an earlier process left off: graphs, devices, what was chosen, and folded plans.

All of that is made in milliseconds a combination before the first row is priced, as long as a hundred thousand rows
take. It does not depend on the sizes, so it is kept in the cache folder under what it does depend on: the names and
options, our own files, the packages that are installed, and the user's rows, calibrations and settings. What is asked
by value, by file or about this machine is begun anew.
"""

from __future__ import annotations

import gc
import io
import pickle
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass, is_dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferometer.core import settings
from inferometer.core.cache import write_among
from inferometer.core.kept import Kept
from inferometer.core.stamps import stamp_of, stamp_of_data, stamp_of_ours, stamp_of_packages, stamp_of_tree
from inferometer.predict.ask import device_for, model_graph
from inferometer.predict.sweep.engines import NEW_VALUES
from inferometer.predict.sweep.evaluate import known_combinations, take_combinations
from inferometer.predict.sweep.grid import CHUNK_ROWS, SIZES_OF_ROWS, Study, sized_study, unsized_study
from inferometer.predict.sweep.write import digest_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from inferometer.core.calibration import Calibration
    from inferometer.core.device import Device
    from inferometer.predict.options import Options
    from inferometer.predict.sweep.evaluate import Combination

_MOST_COMBINATIONS = 512  # above which a file would have tens of megabytes
_MOST_ROWS = 20_000  # of plans, for the same reason: some 2 kB each
_MOST_FILES = 100


@dataclass(slots=True)
class _Beginning:
    """A study without its sizes, how much had been made of it, and whether it is new to this process."""

    study: Study
    weight: int = 0
    is_new: bool = True


_beginnings = Kept(16)


@contextmanager
def begun_study(  # noqa: PLR0913 - what holds for all rows
    axes: Mapping[str, Any],
    *,
    calibrated: bool = True,
    calibrations: Iterable[Calibration] = (),
    options: Options,
    prefill_on: str | Device | None = None,
    details: bool = False,
    chunk_rows: int = CHUNK_ROWS,
) -> Iterator[Study]:
    """As `study_of`, with models and devices by name, path or value. What its first rows make is kept behind them."""
    calibrations = tuple(calibrations)

    def begin() -> Study:
        return unsized_study(
            _looked_up(axes),
            calibrated=calibrated,
            calibrations=calibrations,
            options=options,
            prefill_on=None if prefill_on is None else device_for(prefill_on),
        )

    names = [*_listed(axes.get("models")), *_listed(axes.get("devices")), *([] if prefill_on is None else [prefill_on])]
    mark = None
    if settings.remembers() and not calibrations and all(map(_is_name, names)):
        rest = {name: values for name, values in axes.items() if name not in SIZES_OF_ROWS}
        mark = digest_of("", [_world(), rest, options, prefill_on, calibrated])
    with _collecting_rarely():
        if mark is None:
            yield sized_study(begin(), axes, details=details, chunk_rows=chunk_rows)
            return
        beginning = _beginnings.get_or_make(mark, (), lambda: _read(mark) or _Beginning(begin()))
        yield sized_study(beginning.study, axes, details=details, chunk_rows=chunk_rows)
        if beginning.is_new:
            beginning.is_new = False
            _keep(mark, beginning)


@contextmanager
def _collecting_rarely() -> Iterator[None]:
    """Graphs and plans stay: to look for garbage among them every 700 new values is a tenth of a first sweep."""
    before = gc.get_threshold()
    gc.set_threshold(before[0] and max(before[0], NEW_VALUES), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _looked_up(axes: Mapping[str, Any]) -> dict[str, Any]:
    """The models and devices behind the names."""
    # one of the sizes of images, if any is asked for: graphs are then read with that size left open
    image = next((side for side in _listed(axes.get("image")) if side is not None), None)
    runtimes = _listed(axes.get("runtimes"))
    finders: dict[str, Callable[[Any], Any]] = {
        "models": partial(model_graph, image=image), "devices": partial(device_for, runtimes=runtimes),
    }  # fmt: skip
    found = {
        name: [find(value) if isinstance(value, str | Path) else value for value in _listed(axes[name])]
        for name, find in finders.items()
        if axes.get(name) is not None
    }
    return {**axes, **found}


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _is_name(named: Any) -> bool:
    """Whether it is a name of the catalog or of a package's network, which say the same until their files change."""
    return isinstance(named, str) and "local" not in named and not Path(named).exists()


def _world() -> list[Any]:
    """Everything but the question that a prediction depends on."""
    return [
        sys.version,
        stamp_of_ours(),
        stamp_of_packages(tuple(sys.path)),
        stamp_of(settings.config_file()),
        stamp_of_data(settings.data_folder()),
        [stamp_of_tree(folder) for folder in settings.catalog_folders()],
        {name: text for name, text in settings.variables().items() if name.startswith("INFEROMETER_")},
    ]


def _file_of(mark: str) -> Path:
    return settings.cache_folder() / "sweeps" / mark


def _read(mark: str) -> _Beginning | None:
    """What was kept under a mark, where it is there and whole."""
    with suppress(OSError, pickle.UnpicklingError):
        data = _file_of(mark).read_bytes()
        digest, values = data[:32], data[32:]
        if sha256(values).digest() == digest:
            study, combinations = _Values(io.BytesIO(values)).load()
            take_combinations(study, combinations)
            return _Beginning(study, _weight(combinations))
    return None


def _keep(mark: str, beginning: _Beginning) -> None:
    """Whole or not at all. A folder that cannot be written, or what cannot travel, costs time and nothing else."""
    study = beginning.study
    if study.combinations > _MOST_COMBINATIONS:
        return
    combinations = known_combinations(study)
    plans = [each.ready.plan for each in combinations if each is not None and each.ready is not None]
    if _weight(combinations) <= beginning.weight or sum(len(plan.prepared.rows) for plan in plans) > _MOST_ROWS:
        return
    with suppress(OSError, pickle.PicklingError, AttributeError, TypeError):
        values = pickle.dumps((study, combinations), protocol=5)
        write_among(_file_of(mark), sha256(values).digest() + values, most=_MOST_FILES)


def _weight(combinations: Sequence[Combination | None]) -> int:
    """How much was made: combinations, and what they need for each phase that was asked for."""
    made = [each for each in combinations if each is not None]
    plans = [each.ready.plan for each in made if each.ready is not None]
    return len(made) + sum(len(plan.parts) + len(plan.rates) + len(plan.paces) for plan in plans)


_PLAIN = {
    ("builtins", "object"), ("builtins", "slice"), ("fractions", "Fraction"), ("functools", "partial"),
    ("numpy", "dtype"), ("numpy", "ndarray"), ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"), ("numpy._core.numeric", "_frombuffer"),
}  # fmt: skip


class _Values(pickle.Unpickler):
    """Reads our own values and arrays, and nothing that could do anything: whoever can write a cache may write more."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _PLAIN:
            return super().find_class(module, name)
        if module.startswith(("inferometer.core.", "inferometer.predict.")) and "." not in name:
            found = super().find_class(module, name)
            is_own = getattr(found, "__module__", "") == module  # and not what it imports
            is_value = is_dataclass(found) or (isinstance(found, type) and issubclass(found, tuple))
            if is_own and (is_value or module.endswith(".kernel_floors")):  # whose functions are arithmetic
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is no value.")
