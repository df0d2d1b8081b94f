"""How a measuring command records its run: begun before it measures, closed however it ends.

    with recording(project="phones", name="after the fix", tags=["ci"]) as recorder:
        recorder.keep(measure())
    print(recorder.link)

An exception leaves a failed run with the traceback as its log; Ctrl-C leaves a killed one with the profile so far; a
process that is killed outright leaves one that the next look marks as killed. A request that is refused before anything
is measured leaves none. Where the store fails, however early, measuring goes on and the profiles are saved in files
instead: no measurement is lost to a full disk or a database that is gone.
"""

import shlex
import tempfile
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from inferometer.core.codec import encode
from inferometer.core.errors import (
    CatalogError,
    DomainError,
    FormatError,
    GateError,
    InferometerError,
    MissingDependencyError,
    PlaceError,
    PluginError,
    UnitError,
    UnknownNameError,
)
from inferometer.core.profile import Profile
from inferometer.core.settings import user_name, value_of
from inferometer.store.errors import StoreError
from inferometer.store.location import require_database
from inferometer.store.values import Attachment

if TYPE_CHECKING:
    from inferometer.store.run_writing import Known
    from inferometer.store.store import Store

DEFAULT_PORT = 8077
# What is wrong with a request, and not with what was measured for it.
_REFUSALS = (
    CatalogError, DomainError, FormatError, MissingDependencyError, PlaceError, PluginError, UnitError,
    UnknownNameError,
)  # fmt: skip


def hub_link(run: str, *, base: str | None = None) -> str:
    """Where the hub shows a run. Others can open it if INFEROMETER_URL says how they reach the hub."""
    address = base or value_of("INFEROMETER_URL") or f"http://127.0.0.1:{_port()}"
    return f"{address.rstrip('/')}/runs/{run}"


def _port() -> int:
    text = value_of("INFEROMETER_PORT")
    return int(text) if text and text.isdecimal() else DEFAULT_PORT


def recording(
    project: str = "default",
    *,
    store: "str | Path | Store | None" = None,
    enabled: bool = True,
    folder: Path | None = None,
    **known: Unpack["Known"],
) -> "RunRecorder":
    """A recorder to measure within. With `enabled=False` it records nothing and has no link.

    `folder` is where a profile goes that the store could not take: the current one, unless another is given.
    """
    known.setdefault("author", user_name())
    return RunRecorder(project, known, store=store, enabled=enabled, folder=folder or Path())


class RunRecorder:
    """One run, from its begin to its end. `skipped` says why it is not stored."""

    def __init__(
        self, project: str, known: "Known", *, store: "str | Path | Store | None", enabled: bool, folder: Path
    ) -> None:
        self._project, self._known = project, known
        self._place, self._enabled, self._folder = store, enabled, folder
        self._store: Store | None = None
        self._ours = False
        self._profile: Profile | None = None
        self._unstored: list[Profile] = []  # measured along with it, and refused by the store
        self._log: list[str] = []
        self._attachments: list[Attachment] = []
        # Called with the store and the run when it has ended, however it did: to send it to a hub.
        self.then: Callable[[Store, str], None] | None = None
        self.id: str | None = None
        self.skipped: str | None = None

    @property
    def link(self) -> str | None:
        return None if self.id is None else hub_link(self.id)

    def __enter__(self) -> Self:
        if self._enabled:
            try:
                self._open()
            except MissingDependencyError as error:
                self.skipped = str(error)  # a board without a database still measures
        return self

    def _open(self) -> None:
        """Fail now rather than after an hour of measuring."""
        require_database()
        from inferometer.store.store import Store, open_store  # noqa: PLC0415 - SQLAlchemy, only where runs are stored

        self._ours = not isinstance(self._place, Store)
        opened = self._place if isinstance(self._place, Store) else open_store(self._place)
        try:
            self.id = opened.begin(self._project, **self._known)
        except BaseException:
            if self._ours:
                opened.close()
            raise
        self._store = opened

    def keep(self, profile: Profile) -> None:
        """The profile so far; the last one given is the run's."""
        self._profile = profile

    def keep_below(self, profile: Profile) -> None:
        """A profile that was measured along with it: a finished run of its own, with this one as its parent."""
        if self._store is None or self.id is None:
            return
        known: Known = {**self._known, "parent": self.id}
        try:
            self._store.finish(self._store.begin(self._project, **known), profile)
        except InferometerError:
            self._unstored.append(profile)

    def attach(self, name: str, source: Path | bytes, media_type: str | None = None) -> None:
        """A file that belongs to the run; it is copied into the store when the run ends."""
        self._attachments.append(Attachment(name=name, source=source, media_type=media_type))

    def log(self, line: str) -> None:
        self._log.append(line)

    def metric(self, name: str, value: float, step: int | None = None) -> None:
        self.metrics({name: value}, step)

    def metrics(self, values: Mapping[str, float], step: int | None = None) -> None:
        """Written at once, so that whoever watches sees it: not for use inside what is timed."""
        self._try_to(lambda store, run: store.add_metrics(run, values, step))

    def series(self, name: str, points: Mapping[int, float]) -> None:
        """A metric over its steps, written at once: `memory_bytes` over milliseconds is drawn on the run's page."""
        if points:
            self._try_to(lambda store, run: store.add_series(run, name, points))

    def tag(self, tags: Iterable[str]) -> None:
        self._try_to(lambda store, run: store.tag(run, *tags))

    def _try_to(self, write: "Callable[[Store, str], object]") -> None:
        """Write beside the profile. If the store fails it is no reason to stop measuring: the end reports it."""
        if self._store is not None and self.id is not None:
            with suppress(InferometerError):
                write(self._store, self.id)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._store is None or self.id is None:
            return
        try:
            self._end(self._store, self.id, error)
        except InferometerError as lost:
            self._rescue(self.id, lost, error)
        else:
            if self.then is not None and self.id is not None:
                self.then(self._store, self.id)
        finally:
            if self._ours:
                self._store.close()

    def _end(self, store: "Store", run: str, error: BaseException | None) -> None:
        if isinstance(error, KeyboardInterrupt):
            store.kill(run, "Interrupted.", self._profile, log=self._written())
        elif error is None or _well(error):
            store.finish(run, self._profile, log=self._written(), attachments=self._attachments)
            if self._unstored:
                raise StoreError(f"{len(self._unstored)} of its further lengths could not be stored.")
        elif self._profile is None and isinstance(error, _REFUSALS):
            store.delete(run)
            self.id = None
        else:
            self._log += traceback.format_exception(error)
            reason = str(error) if isinstance(error, InferometerError) else f"{type(error).__name__}: {error}"
            store.fail(run, reason, self._profile, log=self._written())

    def _written(self) -> str | None:
        return "\n".join(line.rstrip("\n") for line in self._log) + "\n" if self._log else None

    def _rescue(self, run: str, lost: InferometerError, error: BaseException | None) -> None:
        """The store failed: save the profile in a file. An error that was already raised stays the one reported."""
        measured = [profile for profile in (self._profile, *self._unstored) if profile is not None]
        names = [run, *(f"{run}-{number}" for number in range(2, len(measured) + 1))]
        places = [_saved(profile, name, self._folder) for profile, name in zip(measured, names, strict=True)]
        saved = shlex.join(str(place) for place in places if place is not None)
        kept = f" What was measured is saved as {saved}; `inferometer import {saved}` stores it." if saved else ""
        if None in places:
            kept += f" {self._folder.resolve()} and {tempfile.gettempdir()} could not take it either: it is lost."
        if error is not None:
            error.add_note(f"Run {run} could not be stored either: {lost}{kept}")
            return
        raise StoreError(f"Run {run} was measured and not stored: {lost.message}{kept}", remedy=lost.remedy) from lost


def _well(error: BaseException) -> bool:
    """A gate that did not hold says something about the result; the run itself is done."""
    return isinstance(error, GateError) or (isinstance(error, SystemExit) and error.code in {None, 0, 1})


def _saved(profile: Profile, run: str, folder: Path) -> Path | None:
    for place in (folder, Path(tempfile.gettempdir())):
        path = place / f"inferometer-{run}.json"
        try:
            path.write_bytes(encode(profile, indent=2) + b"\n")
        except OSError:
            continue
        return path
    return None
