"""The one script that is not ours: Vega, made by vl-convert on this machine once, and kept in the cache folder."""

import hashlib
import threading
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from inferometer.errors import MissingDependencyError
from inferometer.settings import cache_folder

_LOCK = threading.Lock()


def vega_bundle(folder: Path | None = None) -> bytes:
    """Vega, Vega-Lite and vega-embed as one script. Making it takes seconds; afterwards it is a file."""
    try:
        made_by = version("vl-convert-python")
    except PackageNotFoundError:
        raise MissingDependencyError(
            "Drawing charts in a page needs vl-convert, which is not installed.",
            remedy="pip install 'inferometer[charts]'",
        ) from None
    place = (folder or cache_folder()) / "hub" / f"vega-{made_by}.js"
    with _LOCK:
        if place.is_file():
            return place.read_bytes()
        made: bytes = import_module("vl_convert").javascript_bundle().encode()
        _keep(place, made)
    return made


def _keep(place: Path, data: bytes) -> None:
    """Beside its place first, then moved: nobody reads half a script. A cache that cannot be written is no error."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        partial = place.with_suffix(f".{hashlib.sha256(data).hexdigest()[:8]}.part")
        partial.write_bytes(data)
        partial.replace(place)
    except OSError:
        return


def warm() -> None:
    """Make the bundle while nobody waits for it."""

    def work() -> None:
        try:
            vega_bundle()
        except MissingDependencyError:
            return

    threading.Thread(target=work, name="vega", daemon=True).start()
