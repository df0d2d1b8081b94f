"""Runtimes as records: what is here, what is missing and how to get it."""

from collections.abc import Iterable
from typing import Any

from inferometer.core.errors import PluginError
from inferometer.core.plugins import Listed, load_listed
from inferometer.engines.base import Ready, Runtime


def runtime_records(plugins: Iterable[Listed]) -> tuple[list[dict[str, Any]], list[PluginError]]:
    """A record for every plug-in. A broken one has a record that says so, and its error."""
    records: list[dict[str, Any]] = []
    broken: list[PluginError] = []
    for plugin in plugins:
        try:
            records.append(_record(load_listed(plugin), plugin))
        except PluginError as error:
            broken.append(error)
            records.append({"name": plugin.name, "state": "broken", "package": plugin.package, "remedy": error.remedy})
    return records, broken


def _record(runtime: Runtime, plugin: Listed) -> dict[str, Any]:
    try:
        state = runtime.probe()
        formats = sorted(runtime.formats)
    except Exception as error:
        raise PluginError(
            f"The plug-in {plugin.name!r} of package {plugin.package} failed when probed: "
            f"{type(error).__name__}: {error}.",
            remedy=f"Upgrade or uninstall {plugin.package}.",
        ) from error
    common = {"name": plugin.name, "formats": formats, "package": plugin.package}
    if isinstance(state, Ready):
        return {**common, "state": "ready", "version": state.version}
    return {**common, "state": "missing", "remedy": state.remedy}
