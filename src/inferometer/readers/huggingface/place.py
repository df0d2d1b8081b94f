"""Where a part of a model stands: what goes before the names of its weights and of its ops."""

from inferometer.core.frozen import frozen

__all__ = ["Place"]


@frozen
class Place:
    body: str = ""  # before the body's weights: `model.`
    head: str = ""  # before its heads' weights
    at: str = ""  # before the names of ops, where the part is one of several
