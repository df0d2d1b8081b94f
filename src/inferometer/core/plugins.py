"""Plug-ins: plain entry points, found by name and loaded when used.

Listing a group reads package metadata only; no engine is imported. Built-in plug-ins come through the same door as
anyone's. One that cannot be loaded is reported by name and does not stop the others.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

from inferometer.core.errors import PluginError, UnknownNameError, same_but_for_case
from inferometer.core.frozen import frozen

GROUPS: dict[str, str] = {
    "inferometer.readers": "Turn a model file or config into a Graph.",
    "inferometer.runtimes": "Run a model: an engine that loads it and takes one step at a time.",
    "inferometer.providers": "Say where it runs: this machine, one over SSH, a hub's queue, a phone farm, a bundle.",
    "inferometer.importers": "Turn another tool's result file into a Profile.",
}


@frozen
class Listed:
    """A plug-in as its package announces it; nothing of it has been imported."""

    name: str
    group: str
    package: str
    entry: Any  # an importlib.metadata.EntryPoint, which is slow to import


def listed(group: str) -> tuple[Listed, ...]:
    """The plug-ins of a group, ours first, then others' by name. A name that two packages claim is an error."""
    if group not in GROUPS:
        raise UnknownNameError("plug-in group", group, GROUPS)
    return _listed(group, tuple((folder, _changed(folder)) for folder in sys.path))


def _changed(folder: str) -> int | None:
    """When something was last installed there."""
    try:
        return Path(folder).stat().st_mtime_ns
    except OSError:
        return None


@lru_cache(maxsize=8)
def _announced(folders: tuple[tuple[str, int | None], ...]) -> Any:  # noqa: ARG001 - the key
    """What `select` finds groups in. Read once while the folders stay as they are: hundreds of packages take 25 ms."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - a prediction by its own rows asks for no plug-in

    return entry_points()


@lru_cache(maxsize=32)
def _listed(group: str, folders: tuple[tuple[str, int | None], ...]) -> tuple[Listed, ...]:
    by_name: dict[str, Listed] = {}
    packages: dict[int, str] = {}  # a name is read among all that a package says of itself, its README too: once each
    for entry in _announced(folders).select(group=group):
        if id(entry.dist) not in packages:
            packages[id(entry.dist)] = entry.dist.name if entry.dist is not None else "an unknown package"
        plugin = Listed(name=entry.name, group=group, package=packages[id(entry.dist)], entry=entry)
        other = by_name.setdefault(plugin.name, plugin)
        if other.entry.value != entry.value:
            raise PluginError(
                f"Two packages offer {group} {entry.name!r}: {other.package} and {plugin.package}.",
                remedy="Uninstall one of them.",
            )
    return tuple(sorted(by_name.values(), key=lambda plugin: (plugin.package != "inferometer", plugin.name)))


def load(group: str, name: str) -> Any:
    """The plug-in itself. What goes wrong while it is imported is told with its name and package."""
    plugins = {plugin.name: plugin for plugin in listed(group)}
    name = same_but_for_case(name, plugins) or name
    if name not in plugins:
        kind = group.rpartition(".")[2].removesuffix("s")
        raise UnknownNameError(kind, name, plugins, listing=f"Known: {', '.join(plugins) or 'none'}.")
    return load_listed(plugins[name])


def load_all(group: str) -> tuple[dict[str, Any], tuple[PluginError, ...]]:
    """Every plug-in of a group that loads, and an error for each that does not."""
    loaded: dict[str, Any] = {}
    broken: list[PluginError] = []
    for plugin in listed(group):
        try:
            loaded[plugin.name] = load_listed(plugin)
        except PluginError as error:
            broken.append(error)
    return loaded, tuple(broken)


def usable(group: str) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """Every plug-in of a group that loads, and the error messages of the others."""
    loaded, broken = load_all(group)
    return tuple(loaded.values()), tuple(error.message for error in broken)


def load_listed(plugin: Listed) -> Any:
    try:
        return plugin.entry.load()
    except Exception as error:
        raise PluginError(
            f"The plug-in {plugin.name!r} of package {plugin.package} ({plugin.entry.value}) cannot be loaded: "
            f"{type(error).__name__}: {error}.",
            remedy=f"Upgrade or uninstall {plugin.package}.",
        ) from error
