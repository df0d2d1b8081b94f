"""What a runtime is: an engine that can say whether it is here, and which model files it takes.

`probe` answers from package metadata; it never imports the engine.
"""

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Protocol

__all__ = ["Engine", "Missing", "Ready", "Runtime"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    reason: str
    remedy: str


class Runtime(Protocol):
    """The protocol plug-ins of the group `inferometer.runtimes` keep."""

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def formats(self) -> frozenset[str]:
        """Names of the model formats it loads."""
        ...

    def probe(self) -> Ready | Missing: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A runtime whose engine is a Python package."""

    name: str
    title: str
    package: str  # as the package index names it
    module: str  # as Python imports it
    extra: str  # as `pip install inferometer[…]` names it
    formats: frozenset[str]

    def probe(self) -> Ready | Missing:
        remedy = f"pip install 'inferometer[{self.extra}]'"
        if find_spec(self.module) is None:
            return Missing(reason=f"{self.package} is not installed", remedy=remedy)
        try:
            return Ready(version=version(self.package))
        except PackageNotFoundError:
            return Missing(
                reason=f"a module {self.module} is here, but not from the package {self.package}", remedy=remedy
            )
