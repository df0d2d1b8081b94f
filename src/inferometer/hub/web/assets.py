"""The one script that is not ours: Vega, bundled once by vl-convert on this machine and kept in the cache folder."""

import hashlib
import threading
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from inferometer.core.errors import MissingDependencyError
from inferometer.core.settings import cache_folder

_LOCK = threading.Lock()


def vega_bundle(folder: Path | None = None) -> bytes:
    """Vega, Vega-Lite and vega-embed as one script. Making it takes seconds; afterwards it is a file."""
    try:
        converter = version("vl-convert-python")
    except PackageNotFoundError:
        raise MissingDependencyError(
            "Drawing charts in a page needs vl-convert, which is not installed.",
            remedy="pip install 'inferometer[charts]'",
        ) from None
    path = (folder or cache_folder()) / "hub" / f"vega-{converter}.js"
    with _LOCK:
        if path.is_file():
            return path.read_bytes()
        bundle: bytes = import_module("vl_convert").javascript_bundle().encode()
        _cache(path, bundle)
    return bundle


def _cache(path: Path, data: bytes) -> None:
    """Write it beside its place and move it, so that nobody reads half a script. A read-only cache is no error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{hashlib.sha256(data).hexdigest()[:8]}.part")
        partial.write_bytes(data)
        partial.replace(path)
    except OSError:
        return


def warm() -> None:
    """Make the bundle in the background, before anybody waits for it."""

    def work() -> None:
        try:
            vega_bundle()
        except MissingDependencyError:
            return

    threading.Thread(target=work, name="vega", daemon=True).start()
