"""SQLAlchemy is an optional dependency: a small board measures without it."""

from importlib.util import find_spec

from inferometer.core.errors import MissingDependencyError


def require_database() -> None:
    missing = [name for name in ("sqlalchemy", "alembic") if find_spec(name) is None]
    if missing:
        raise MissingDependencyError(
            f"Runs are kept with {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed.",
            remedy="pip install 'inferometer[hub]'",
        )
