"""The contract of an importer: another tool's result file goes in, profiles come out.

An importer says by a file's content whether it is one of its own. Importers are found through the entry points of the
group `inferometer.importers`; ours come through the same door.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from inferometer.core.frozen import frozen
from inferometer.core.profile import Profile

GROUP = "inferometer.importers"


@frozen
class Document:
    """A result file as an importer sees it: its text, and the JSON in it where it is JSON.

    `json` is the one value of a JSON file. `records` are the values of one that has a value a line (JSONL); a JSON
    file has its own value there, so that both can be read alike. `flaw` says why text that begins like JSON is none.
    """

    path: Path
    data: bytes  # UTF-8, unpacked
    json: Any = None
    records: tuple[Any, ...] = ()
    flaw: str | None = None

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", errors="replace")

    @property
    def keys(self) -> Mapping[str, Any]:
        """The JSON object that the file is, or none of its keys where it is something else."""
        return self.json if isinstance(self.json, dict) else {}


@runtime_checkable
class Importer(Protocol):
    """`name` is what `--as` takes, `title` what people call the source.

    `matches` looks at the content and never raises. `read` gives a profile for each result in the file, and raises
    only InferometerErrors. What the source does not say stays None: nothing is filled in. A profile's provenance names
    the tool that measured; where its time is not known, `created` is empty and becomes the time of the import.
    """

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

    def matches(self, document: Document) -> bool: ...

    def read(self, document: Document) -> tuple[Profile, ...]: ...
