"""The store of runs: SQLite in the user's data folder, or PostgreSQL by URL, behind one schema and one interface.

`open_store()` opens it; `recording.recording()` is how a measuring command writes its run. SQLAlchemy loads with the
first of them, not with the package.
"""

from typing import TYPE_CHECKING

from inferometer.core.lazy import attributes

if TYPE_CHECKING:
    from inferometer.store.errors import StoreError
    from inferometer.store.location import Location, locate
    from inferometer.store.recording import RunRecorder, hub_link
    from inferometer.store.store import Store, open_store
    from inferometer.store.values import (
        Attachment,
        Filter,
        Metric,
        Page,
        Project,
        RunRow,
        Secret,
        StoredDevice,
        Token,
        User,
    )

__all__ = [
    "Attachment",
    "Filter",
    "Location",
    "Metric",
    "Page",
    "Project",
    "RunRecorder",
    "RunRow",
    "Secret",
    "Store",
    "StoreError",
    "StoredDevice",
    "Token",
    "User",
    "hub_link",
    "locate",
    "open_store",
]  # fmt: skip

__getattr__ = attributes(__name__, {
    "inferometer.store.errors": ("StoreError",),
    "inferometer.store.location": ("Location", "locate"),
    "inferometer.store.recording": ("RunRecorder", "hub_link"),
    "inferometer.store.store": ("Store", "open_store"),
    "inferometer.store.values": (
        "Attachment", "StoredDevice", "Filter", "Metric", "Page", "Project", "RunRow", "Secret", "Token", "User",
    ),
})  # fmt: skip
